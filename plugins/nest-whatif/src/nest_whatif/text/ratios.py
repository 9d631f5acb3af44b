"""Planners over several problems: step times over the least, planners below each other, problems side by side."""

from collections.abc import Mapping
from statistics import geometric_mean
from typing import Any

from nest.public.layout import WIDE, Screen, paragraph, table
from nest.units import format_bytes, listed
from nest_whatif.text.comparison import OURS

Ratios = Mapping[str, float | str]  # By problem: a step time over the least, or why a planner has no plan.


def total(ratios: Ratios) -> tuple[float | None, float | None, int]:
    """Return geometric mean and largest of a planner's ratios, None without any, and the problems without a plan."""
    known = [each for each in ratios.values() if not isinstance(each, str)]
    return geometric_mean(known) if known else None, max(known, default=None), len(ratios) - len(known)


def ratios_to_ours(comparisons: Mapping[str, Mapping[str, Any]]) -> dict[str, Ratios]:
    """Return the ratios of all planners to nest's plan, from `nest_whatif.compare.Comparison.to_dict()` by problem."""
    others = {name: {each["name"]: each for each in found["others"]} for name, found in comparisons.items()}
    planners = dict.fromkeys(name for each in others.values() for name in each)
    ours: dict[str, float | str] = {
        name: 1.0 if found["plan"]["batch_time"] else found["plan"]["diagnosis"] for name, found in comparisons.items()
    }
    rows = {each: {name: _ratio(own.get(each)) for name, own in others.items()} for each in planners}
    return {OURS: ours, **rows}


def _ratio(entry: Mapping[str, Any] | None) -> float | str:
    """Return the ratio of a plan that counts, else why there is none."""
    if entry is None:
        return "it does not support this cluster."
    if entry["missing_bytes"]:
        return f"its plan needs {format_bytes(entry['missing_bytes'])} too much memory."
    if entry["plan"] is None or not entry["within_problem"] or entry["relative"] is None:
        return " ".join((*entry["reasons"], *entry["remarks"])) or "nest has no plan to compare with."
    return float(entry["relative"])


def ratios_text(planners: Mapping[str, Ratios], screen: Screen = WIDE) -> str:
    """Write the table, and below it why planners have no plan; all planners have the same problems."""
    problems = next(iter(planners.values()), {})
    header, rows, reasons = ("planner", *problems, "mean", "worst", "no plan"), [], dict[tuple[str, str], list[str]]()
    for planner, ratios in planners.items():
        mean, worst, failures = total(ratios)
        rows.append((planner, *map(_number, (*ratios.values(), mean, worst)), str(failures)))
        for problem, each in ratios.items():
            if isinstance(each, str):
                reasons.setdefault((planner, each), []).append(problem)
    lines = [table(header, rows, range(1, len(header)), screen), *([""] if reasons else [])]
    lines += [paragraph(f"{name}, {listed(own)}: {why}", screen, indent=2) for (name, why), own in reasons.items()]
    return "\n".join(lines)


def _number(ratio: float | str | None) -> str:
    return f"{ratio:.3f}" if isinstance(ratio, float) else "-"
