"""Other plans beside the one that is explained, as rows of tables for text and HTML."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nest.report.decisions import Decided, decision_text, difference, differs, in_usual_order, values_of, whole
from nest.report.plan_summary import SHARE_NAMES
from nest.report.runner_up import causes
from nest.units import format_seconds

Answer = Mapping[str, Any]
"""A record of `nest.whatif` as `to_dict` has it."""

UNPROVED = "not searched to the end"
"""What is said of plans that a time limit cut short."""

UNSHOWN = 5e-5
"""Relative differences of step times below this would be shown as 0.00%."""

FREEING = ("without", "instead", "there is a plan", "a step then")
"""Header of `freeing_rows`."""


def freeing_rows(prices: Sequence[Answer]) -> list[tuple[str, str, str, str]]:
    """Restrictions without which there is a plan, where with all of them there is none."""
    return [
        (restriction(each), each["instead"] or "nothing", whole(each["decided"]), format_seconds(each["batch_time"]))
        for each in prices
        if each["plan"] is not None
    ]


def restriction(each: Answer) -> str:
    """A restriction as the problem has it."""
    return f"`{each['written']}`" if each["place"].startswith("constraints[") else f"{each['place']} {each['written']}"


def alternative_rows(alternatives: Sequence[Answer], asked: Decided) -> list[tuple[str, str, str, str]]:
    """The best plans that decide one thing otherwise, the closest first; a plan that answers several questions once.

    Args:
        alternatives: as `nest.whatif.alternatives.Alternative.to_dict` has them.
        asked: what the plan asked about decides.

    Returns:
        What is decided instead, how much slower that is, what else is decided then, and why it is slower.
    """
    plans: dict[str, list[Answer]] = {}
    for each in sorted((each for each in alternatives if each["plan"]), key=lambda each: each["relative"]):
        plans.setdefault(f"{each['decided']} {each['batch_time']}", []).append(each)
    rows = []
    for same in plans.values():
        first, names = same[0], [each["decision"] for each in same]
        independent = [name for name in names if differs(name, asked, first["decided"])] or names
        instead = (decision_text(name, values_of(first["decided"], name)) for name in in_usual_order(independent))
        slower = slower_by(first, proved=all(each["proved"] for each in same))
        rows.append(
            (", ".join(instead), slower, difference(asked, first["decided"], independent) or "-", because(first))
        )
    return rows


def alternative_notes(alternatives: Sequence[Answer], least: float) -> list[str]:
    """What rows of alternatives do not say; those slower by less than `least` cannot be told from the plan."""
    notes = []
    if any(not each["proved"] for each in alternatives if each["plan"]):
        notes.append(f"At most: {UNPROVED}.")
    if any(each["reason"] is not None and each["relative"] < least for each in alternatives if each["plan"]):
        notes.append(f"Less than {least:.0%} slower cannot be told from this plan by prediction: measure both.")
    return notes


def without_alternative(alternatives: Sequence[Answer]) -> list[tuple[str, str, bool]]:
    """What no plan decides otherwise, why, and whether that was found by a search."""
    none = [each for each in alternatives if each["plan"] is None and each["asked"]]
    unasked = [each for each in alternatives if not each["asked"]]
    return [
        (decision, why, searched)
        for searched, some in ((True, none), (False, unasked))
        for why, decision in by_refusal(some, lambda each: decision_text(each["decision"], [each["value"]]))
    ]


def by_refusal(refused: Sequence[Answer], name: Callable[[Answer], str]) -> list[tuple[str, str]]:
    """Each reason why there is no plan, with all that it is the reason for."""
    reasons: dict[str, list[str]] = {}
    for each in refused:
        reasons.setdefault(each["refusal"], []).append(name(each))
    return [(why, " or ".join(names)) for why, names in reasons.items()]


def slower_by(each: Answer, *, proved: bool = True) -> str:
    """By how much another plan is slower; it may be less where that is not `proved`."""
    return "as fast" if each["reason"] is None else relative_text(each["relative"], "" if proved else "at most ")


def relative_text(relative: float, begin: str) -> str:
    """A relative difference of step times; `begin` says that it is a bound."""
    if abs(relative) < UNSHOWN:
        return "less than 0.01%" if relative > 0 else "faster, by less than 0.01%"
    return f"{begin}{relative:.2%}"


def because(each: Answer) -> str:
    """The parts of the step time that make the difference, as shares of it."""
    if each["reason"] is None:
        return ""
    parts = causes(each["grown"], slower=each["relative"] > 0)
    return ", ".join(f"{SHARE_NAMES[name]} {share:.2%} {word}" for name, share, word in parts)
