"""The best plans of a problem, side by side."""

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from nest.report.paragraph import paragraph
from nest.report.screen import WIDE, Screen
from nest.report.summary import decisions_text
from nest.report.table import table
from nest.spec import PlanDocument
from nest.units import format_seconds


@frozen
class Entry:
    """One plan of a shortlist.

    Attributes:
        plan: its document; of all but the best `feasible`, with the lower bound of the best.
        slower_by: share of the best plan's batch time that it takes more.
        told_apart: whether predictions are sure enough to say that the best plan is the faster one; true of the best.
        proved: whether every plan that could stand ahead of it is known to be slower; else time ran out.
    """

    plan: PlanDocument
    slower_by: float
    told_apart: bool
    proved: bool


def shortlist_document(entries: Sequence[Entry]) -> dict[str, Any]:
    """The JSON of a shortlist: the documents of the plans, and how each stands to the best."""
    names = ("slower_by", "told_apart", "proved")
    return {
        "nest": 1,
        "plans": [entry.plan.to_dict() for entry in entries],
        "shortlist": [{name: getattr(entry, name) for name in names} for entry in entries],
    }


def shortlist_text(entries: Sequence[Entry], screen: Screen = WIDE) -> str:
    """The plans as a table, and which of them predictions do not tell from the best."""
    rows = [_row(place, entry) for place, entry in enumerate(entries, 1)]
    header = ("plan", "decisions", "recompute", "ZeRO", "batch time", "slower by", "likely to fit")
    lines = [table(header, rows, (0, 4, 5, 6), screen)]
    close = [place for place, entry in enumerate(entries, 1) if not entry.told_apart]
    if close:
        between = " and " if len(close) == 2 else " to "
        which = f"Plan {close[0]}" if len(close) == 1 else f"Plans {close[0]}{between}{close[-1]}"
        lines += ["", paragraph(f"{which} cannot be told from plan 1 by prediction: measure them.", screen)]
    if not all(entry.proved for entry in entries):
        told = "Time ran out: plans that are not listed may be faster than some of these."
        lines += ["", paragraph(told, screen)]
    return "\n".join(lines)


def _row(place: int, entry: Entry) -> tuple[str, ...]:
    plan = entry.plan

    def values(each: Sequence[object]) -> str:
        return "/".join(map(str, sorted(set(each), key=str)))

    return (
        str(place),
        decisions_text(plan),
        values([stage.recompute for stage in plan.stages]),
        values([stage.zero for stage in plan.stages]),
        format_seconds(plan.batch_time or 0.0),
        "-" if place == 1 else f"{entry.slower_by:.2%}",
        "-" if plan.fit_probability is None else f"{plan.fit_probability:.0%}",
    )
