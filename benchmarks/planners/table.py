"""Rows as a table: planners below each other, problems side by side."""

from collections.abc import Sequence
from statistics import geometric_mean
from typing import Any

from benchmarks.planners.judge import Row
from nest.report.text.layout import Screen, paragraph, table
from nest.units import listed

NO_PLAN = "-"


def summaries(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Of each planner, the geometric mean and the largest of its ratios, and how many problems it has no plan of."""
    found = []
    for name in dict.fromkeys(row.planner for row in rows):
        ratios = [row.ratio for row in rows if row.planner == name and row.ratio is not None]
        failures = sum(row.planner == name and row.ratio is None for row in rows)
        mean = geometric_mean(ratios) if ratios else None
        found.append({"planner": name, "mean": mean, "worst": max(ratios, default=None), "failures": failures})
    return found


def text(rows: Sequence[Row], screen: Screen) -> str:
    """The table, and below it why planners have no plan."""
    problems = list(dict.fromkeys(row.problem for row in rows))
    cells = []
    for summary in summaries(rows):
        own = {row.problem: row.ratio for row in rows if row.planner == summary["planner"]}
        ratios = [_number(own[problem]) for problem in problems]
        end = (_number(summary["mean"]), _number(summary["worst"]), str(summary["failures"]))
        cells.append((summary["planner"], *ratios, *end))
    header = ("planner", *problems, "mean", "worst", "no plan")
    lines = [table(header, cells, range(1, len(header)), screen)]
    failed = [f"{planner}, {listed(names)}: {reason}" for (planner, reason), names in _failures(rows).items()]
    return "\n".join([*lines, *([""] if failed else []), *(paragraph(each, screen, indent=2) for each in failed)])


def _failures(rows: Sequence[Row]) -> dict[tuple[str, str], list[str]]:
    """The problems of which a planner has no plan, by planner and reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.reason is not None:
            found.setdefault((row.planner, row.reason), []).append(row.problem)
    return found


def _number(ratio: float | None) -> str:
    return NO_PLAN if ratio is None else f"{ratio:.3f}"
