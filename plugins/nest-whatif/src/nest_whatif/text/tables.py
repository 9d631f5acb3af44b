"""Tables of explanations, for text and HTML."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nest.public.changes import (
    SHARE_NAMES,
    Decided,
    causes,
    decision_text,
    difference,
    differs,
    in_usual_order,
    values_of,
    whole,
)
from nest.units import format_seconds, percent

Answer = Mapping[str, Any]
"""A record of `nest.whatif` in the form of its `to_dict`."""

UNPROVED = "search stopped early"  # Note on plans that a time limit cut short.
UNSHOWN = 5e-5  # Least relative difference of step times not shown as 0.00%.

FREEING = ("without", "instead", "plan", "step time")
"""Header of `freeing_rows`."""


def freeing_rows(prices: Sequence[Answer]) -> list[tuple[str, str, str, str]]:
    """Return the restrictions without which there is a plan, if with all of them there is none."""
    return [
        (restriction(each), each["instead"] or "nothing", whole(each["decided"]), format_seconds(each["batch_time"]))
        for each in prices
        if each["plan"] is not None
    ]


def restriction(each: Answer) -> str:
    """Return a restriction as written in the problem."""
    return f"`{each['written']}`" if each["place"].startswith("constraints[") else f"{each['place']} {each['written']}"


def alternative_rows(alternatives: Sequence[Answer], decided: Decided) -> list[tuple[str, str, str, str]]:
    """Return the best plans that decide one thing otherwise, the closest first, each plan once.

    Args:
        alternatives: of `nest_whatif.alternatives.Alternative.to_dict`.
        decided: decisions of the explained plan.

    Returns:
        the changed decision, time difference, further changes, and cause.
    """
    plans: dict[str, list[Answer]] = {}
    for each in sorted((each for each in alternatives if each["plan"]), key=lambda each: each["relative"]):
        plans.setdefault(f"{each['decided']} {each['batch_time']}", []).append(each)
    rows = []
    for same in plans.values():
        first, names = same[0], [each["decision"] for each in same]
        independent = [name for name in names if differs(name, decided, first["decided"])] or names
        instead = (decision_text(name, values_of(first["decided"], name)) for name in in_usual_order(independent))
        slower = slower_by(first, proved=all(each["proved"] for each in same))
        rows.append(
            (", ".join(instead), slower, difference(decided, first["decided"], independent) or "-", because(first))
        )
    return rows


def alternative_notes(alternatives: Sequence[Answer], least: float) -> list[str]:
    """Return notes below rows of alternatives; those slower by less than `least` cannot be told from the plan."""
    notes = []
    if any(not each["proved"] for each in alternatives if each["plan"]):
        notes.append(f"At most: {UNPROVED}.")
    if any(each["reason"] is not None and each["relative"] < least for each in alternatives if each["plan"]):
        notes.append(f"Differences below {percent(least, 0)} are within our error; measure both plans.")
    return notes


def without_alternative(alternatives: Sequence[Answer]) -> list[tuple[str, str, bool]]:
    """Return decisions without an alternative, why, and whether a search found that."""
    none = [each for each in alternatives if each["plan"] is None and each["asked"]]
    unasked = [each for each in alternatives if not each["asked"]]
    return [
        (decision, why, searched)
        for searched, some in ((True, none), (False, unasked))
        for why, decision in by_refusal(some, lambda each: decision_text(each["decision"], [each["value"]]))
    ]


def by_refusal(refused: Sequence[Answer], name: Callable[[Answer], str]) -> list[tuple[str, str]]:
    """Group by the reason why there is no plan."""
    reasons: dict[str, list[str]] = {}
    for each in refused:
        reasons.setdefault(each["refusal"], []).append(name(each))
    return [(why, " or ".join(names)) for why, names in reasons.items()]


def slower_by(each: Answer, *, proved: bool = True) -> str:
    """Return a plan's time difference; not `proved`, it is an upper bound."""
    relative = each["relative"]
    if each["reason"] is None:
        return "as fast"
    bound, way = ("at least ", "faster") if relative < 0 else ("at most ", "slower")
    return f"{'' if proved or abs(relative) < UNSHOWN else bound}{percent(abs(relative))} {way}"


def because(each: Answer) -> str:
    """Name the parts of the step time that make the difference, as shares of it."""
    if each["reason"] is None:
        return ""
    parts = causes(each["grown"], slower=each["relative"] > 0)
    return ", ".join(f"{SHARE_NAMES[name]} {percent(share)} {word}" for name, share, word in parts)
