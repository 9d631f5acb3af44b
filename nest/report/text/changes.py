"""Nearby runs with a few changed flags, as a diff of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from nest.report.text.layout import WIDE, Screen, paragraph
from nest.units import format_bytes, format_seconds, likelihood, percent


def changes_text(
    fits: bool, risk: float | None, changes: Sequence[Mapping[str, Any]], now: float, screen: Screen = WIDE
) -> str:
    """Describe changes of a run of `now` seconds a step: the nearest that fit or, if it fits, those that gain.

    Args:
        risk: accepted probability that a change does not fit; None: bytes or a margin decide.
    """
    likely = "fits" if risk is None else f"is {likelihood(1 - risk)} likely to fit"
    if not changes and fits:
        return paragraph(f"nest knows no single change that {likely} and gains more than 1 %.", screen)
    if not changes:
        told = f"nest knows no change of up to three flags that {likely}."
        return paragraph(f"{told} Run `nest solve`, or use more devices.", screen)
    head = "Single changes that gain more than 1 %:" if fits else "Nearest changes that fit:"
    return "\n".join([head, *(line for each in changes for line in _lines(each, now if fits else None, screen))])


def _lines(change: Mapping[str, Any], now: float | None, screen: Screen) -> list[str]:
    seconds, likely = change["batch_time"], change["fit_probability"]
    gain = "" if now is None else f" ({percent(1 - seconds / now)} less)"
    risk = "" if likely is None else f", {likelihood(likely)} likely to fit"
    told = f"  {format_seconds(seconds)} per step{gain}, {format_bytes(change['memory'])}{risk}"
    flags = (("-", change["flags"]["removed"]), ("+", change["flags"]["added"]))
    joint = {
        sign: f"\n    {sign} " if any(mark in line for line in lines for mark in (": ", " = ")) else " "
        for sign, lines in flags
    }
    return [paragraph(told, screen, 2), *(f"    {sign} {joint[sign].join(lines)}" for sign, lines in flags if lines)]
