"""Rows as a table, and what planners come to over all problems."""

from collections.abc import Sequence
from typing import Any

from benchmarks.planners.judge import Row
from nest.report.text.layout import Screen
from nest_whatif.text.ratios import ratios_text, total


def by_planner(rows: Sequence[Row]) -> dict[str, dict[str, float | str]]:
    """The ratio of each planner to the optimum of each problem, or why it has no plan."""
    found: dict[str, dict[str, float | str]] = {}
    for row in rows:
        found.setdefault(row.planner, {})[row.problem] = (row.reason or "") if row.ratio is None else row.ratio
    return found


def summaries(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Of each planner, the geometric mean and the largest of its ratios, and how many problems it has no plan of."""
    names = ("planner", "mean", "worst", "failures")
    return [dict(zip(names, (name, *total(own)), strict=True)) for name, own in by_planner(rows).items()]


def text(rows: Sequence[Row], screen: Screen) -> str:
    """The table, and below it why planners have no plan."""
    return ratios_text(by_planner(rows), screen)
