"""At which values another plan becomes the best, as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from nest.report.decisions import Decided, difference, whole
from nest.report.paragraph import paragraph
from nest.report.screen import Screen
from nest.report.table import table
from nest.units import format_bytes, format_seconds

Told = Mapping[str, Any]

HEADER = ("what", "now", "with", "factor", "the plan then", "a batch then")
NUMBERS = (1, 2, 3, 5)
"""Columns that are flush right."""

UNPROVED = "not searched to the end"
"""What is said of plans that a time limit cut short."""

_UNITS = {"bytes/s": (1e9, "GB/s"), "FLOP/s": (1e12, "TFLOP/s")}
"""Units in which people give what is varied, with what they are in SI units."""

DEALT_ANEW = 5e-4
"""Share of the batch time from which on it is told that only layers dealt anew keep the plan the best."""

_MARK = "*"
"""Marks what was not searched to the end."""


def flips_text(flips: Sequence[Told], best: Decided, screen: Screen) -> list[str]:
    """Where `nest.whatif.breakpoints` found that the answer changes, and where it does not.

    Args:
        flips: as `Breakpoint.to_dict` gives them.
        best: what the best plan decides; nothing: there is none.
        screen: where they are shown.
    """
    changing = [each for each in flips if each["changed_at"] is not None]
    lines = [table(HEADER, [_row(each, best) for each in changing], NUMBERS, screen)] if changing else []
    notes = []
    if any(not each["proved"] for each in changing):
        notes.append(f"{_MARK} {UNPROVED}")
    if not all(each["precise"] for each in changing):
        notes.append("Of two values the first has the same answer, the second another: searching in between was ended.")
    if best and any(map(_is_dealt_anew, flips)):
        notes.append("Dealt anew: the best plan there decides the same, but for which stages have which layers.")
    stays: dict[str, list[str]] = {}
    for each in flips:
        if each["changed_at"] is None:
            way = "down" if each["direction"] == "less" else "up"
            proof = "" if each["proved"] else f" ({UNPROVED})"
            anew = ", dealt anew" if best and _is_dealt_anew(each) else ""
            end = f"{way} to {_amount(each['same_at'], each['unit'])} ({_times(each, 'same_at')}{anew}){proof}"
            stays.setdefault(each["parameter"], []).append(end)
    if stays:
        told = [f"{name} {' and '.join(ends)}" for name, ends in stays.items()]
        notes.append(f"{'No change' if best else 'No plan either'}: {'; '.join(told)}")
    return with_notes(lines, notes, screen)


def with_notes(lines: Sequence[str], notes: Sequence[str], screen: Screen) -> list[str]:
    """A table, if there is one, with what there is to say below it."""
    return [*lines, *([""] if lines and notes else []), *(paragraph(note, screen, indent=2) for note in notes)]


def _row(each: Told, best: Decided) -> list[str]:
    found = each["outcome"]
    if found["plan"] is None:
        then = "no plan fits"
    elif not best:
        then = whole(found["decided"])
    else:
        then = difference(best, found["decided"]) + ("" if each["kept"] is not None else "; this one no longer fits")
    return [
        each["parameter"],
        _amount(each["value"], each["unit"]),
        _bound(each, found=not best) + (", dealt anew" if best and _is_dealt_anew(each) else ""),
        _times(each, "changed_at" if not best or _is_counted(each) else "same_at"),
        then + ("" if each["proved"] else _MARK),
        "" if found["batch_time"] is None else format_seconds(found["batch_time"]),
    ]


def _is_dealt_anew(each: Told) -> bool:
    """Whether the plan's decisions stay the best up to there only with its layers on other stages."""
    return each["same_kept"] is None or each["same_kept"] > DEALT_ANEW


def _is_counted(each: Told) -> bool:
    return bool(each["unit"] == "samples")


def _bound(each: Told, *, found: bool) -> str:
    """From where on the plan is another one; `found`: there is a plan only then."""
    same, changed = (_amount(each[side], each["unit"]) for side in ("same_at", "changed_at"))
    if _is_counted(each):
        return changed
    if not each["precise"]:
        return f"{same} to {changed}"
    if found:
        return f">= {changed}" if each["direction"] == "more" else f"<= {changed}"
    return f"{'<' if each['direction'] == 'less' else '>'} {same}"


def _times(each: Told, side: str) -> str:
    """A value as a multiple of what the problem has."""
    return f"{each[side] / each['value']:.3g}x"


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return format_bytes(value)
    size, name = _UNITS.get(unit, (1.0, unit))
    return f"{value / size:.4g} {name}"
