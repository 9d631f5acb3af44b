"""Figures in sentences: of what a share is one, and what is counted."""

from typing import Any

import pytest
from attrs import evolve

from nest.instance import Cluster, Level
from nest.network import reduce
from nest.network.graph import link_graph
from nest.report.text.comparison import Entry, shortlist_text
from nest.report.text.first_screen import format_tokens
from nest.report.text.layout import WIDE
from nest.report.text.summary import verdict_text
from nest_networks.levels_text import topology_text
from nest_testing.exporter import sample_plans
from nest_whatif.text.comparison import comparison_text
from nest_whatif.text.explanation import binding_text, explanation_section

DECIDED = {"tp": ["2"], "pp": ["4"]}
PLAN: dict[str, Any] = {
    "status": "optimal", "batch_time": 2.0, "lower_bound": 2.0, "throughput": 4.0, "diagnosis": None, "fits": True,
    "fit_probability": 0.9, "data_parallel": 1, "micro_batches": 8,
    "stages": [{"candidate": "tp2", "zero": 0, "recompute": "none", "memory": 2.0**30}],
    "candidate": {"degrees": {"tp": 2}, "micro_batch": 1, "samples": 1},
}  # fmt: skip
PROOF: dict[str, Any] = {
    "bound": 2.0, "better_batch_time": None, "version": "9.12", "models": 3, "pruned": 4, "cases": 5, "seconds": 1.0,
    "gap": 0.05, "tolerance": 1e-6, "reason": "the time was up",
}  # fmt: skip


def rows(text: str) -> list[list[str]]:
    """The cells of a table below its rule."""
    lines = text.splitlines()
    below = next(index for index, line in enumerate(lines) if line and set(line) <= {"-", " "})
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines[below + 1 :]]


def test_a_level_has_as_many_groups_as_its_devices_make() -> None:
    levels = (Level("node", 4, 4e11, 1e-6), Level("rack", 2, 5e10, 2e-6), Level("core", 3, 1e10, 3e-6))
    found = [row[2:5] for row in rows(topology_text(Cluster(levels, 80e9)))]
    assert found == [["4", "6", "4"], ["2", "3", "8"], ["3", "1", "24"]]


def test_the_first_group_of_a_level_is_named_by_its_ends() -> None:
    links = [(0, 4, 1e11, 1e-6), (1, 4, 1e11, 1e-6), (2, 5, 1e11, 1e-6), (3, 5, 1e11, 1e-6), (4, 5, 1e10, 1e-6)]
    network = reduce(link_graph([*"abcdst"], [True] * 4 + [False] * 2, links))
    assert [row[-1] for row in rows(topology_text(network))[:2]] == ["a to b", "a to d"]


def test_a_faster_plan_outside_the_space_is_faster_by_a_share_of_its_own_time() -> None:
    other = {
        "name": "today", "plan": {**PLAN, "batch_time": 1.6}, "relative": 0.8, "missing_bytes": 0.0,
        "within_problem": False, "fits": True, "reasons": [], "remarks": [], "bound": None, "told_apart": True,
    }  # fmt: skip
    text = comparison_text({"plan": PLAN, "others": [other]})
    assert "Outside that space, today is 25.0 % faster." in text


def test_each_further_plan_is_slower_by_a_share_of_the_first() -> None:
    plan = sample_plans()[0]
    slower = evolve(plan, batch_time=(plan.batch_time or 0.0) * 1.0123, micro_batches=1)
    text = shortlist_text([Entry(plan, 0.0, True, True), Entry(slower, 0.0123, True, True)])
    assert ["-" in row for row in rows(text)] == [True, False]
    assert ["1.2 %" in row for row in rows(text)] == [False, True]


def test_a_plan_that_is_not_the_best_is_slower_by_a_share_of_the_best() -> None:
    answer = {
        "status": "feasible", "batch_time": 2.0, "decided": DECIDED, "best_batch_time": 1.6,
        "best_decided": {**DECIDED, "pp": ["2"]},
    }  # fmt: skip
    assert "this one is 25.0 % slower" in explanation_section(answer, "best")


def test_the_samples_of_a_batch_are_the_product_of_what_is_counted() -> None:
    found = {
        "name": "batch", "global_batch": 96, "replicas": 3, "micro_batches": 4, "samples": 8, "micro_batch": 2,
        "padding": 0,
    }  # fmt: skip
    assert binding_text([found], WIDE).split("  ")[-1] == (
        "96 samples = 3 replicas x 4 micro-batches x 4 copies x 2 samples"
    )
    one = {**found, "global_batch": 24, "samples": 2}
    assert binding_text([one], WIDE).split("  ")[-1] == "24 samples = 3 replicas x 4 micro-batches x 2 samples"


@pytest.mark.parametrize(
    ("count", "told"), [(15 * 10**12, "15T"), (2_400_000_000, "2.4B"), (3_000_000, "3M"), (1500, "1.5k"), (999, "999")]
)
def test_tokens_have_the_letter_of_their_thousands(count: int, told: str) -> None:
    assert format_tokens(count) == told


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({"status": "proved"}, "Proved: no plan takes less than 2 s."),
        ({"status": "proved", "bound": None}, "Proved: no plan exists."),
        ({"status": "open"}, "Not proved: the time was up. Lower bound 2 s, gap 5.0 %."),
        ({"status": "open", "gap": None}, "Not proved: the time was up."),
        ({"status": "refuted", "better_batch_time": 3.0}, "Refuted: a better plan takes 3 s."),
        (
            {"status": "refuted", "better_batch_time": 3.0, "gap": 1e-6},
            "Refuted: a better plan takes 3 s. It is optimal to a relative 1e-06.",
        ),
    ],
)
def test_what_a_proof_says(found: dict[str, Any], told: str) -> None:
    assert verdict_text({**PROOF, **found}).splitlines()[0] == told
