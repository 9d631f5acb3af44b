"""For what people read of a plan: decisions and figures in words."""

from nest.report.decisions import Decided, chunk_ranges, counted, difference, is_mixed, whole
from nest.report.framework_words import chosen_as, layout_difference, layout_text, near_enough, other_plan_texts
from nest.report.other_plans import ON_NETWORK, apart, runner_up_text
from nest.report.plan_summary import (
    COPIES,
    SECONDS_AN_HOUR,
    UNCALIBRATED,
    collectives_text,
    coverage_text,
    egress_of_a_step,
    level_name,
    memory_capacity,
    stage_seconds,
    time_shares,
    training_steps,
)
from nest.report.subject import layers_of, model_name, title
from nest.report.text.first_screen import format_tokens, memory_verdict
from nest_whatif.text.tables import (
    FREEING,
    Answer,
    alternative_notes,
    alternative_rows,
    because,
    freeing_rows,
    slower_by,
    without_alternative,
)

__all__ = [
    "COPIES", "FREEING", "ON_NETWORK", "SECONDS_AN_HOUR", "UNCALIBRATED", "Answer", "Decided",
    "alternative_notes", "alternative_rows", "apart", "because", "chosen_as", "chunk_ranges",
    "collectives_text", "counted", "coverage_text", "difference", "egress_of_a_step", "format_tokens",
    "freeing_rows", "is_mixed", "layers_of", "layout_difference", "layout_text", "level_name",
    "memory_capacity", "memory_verdict", "model_name", "near_enough", "other_plan_texts", "runner_up_text",
    "slower_by", "stage_seconds", "time_shares", "title", "training_steps", "whole", "without_alternative",
]  # fmt: skip
