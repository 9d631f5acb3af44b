"""Plans side by side: the best of a problem, a plan and its nearest."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from nest.report.framework_words import layout_difference, layout_text
from nest.report.text.layout import WIDE, Screen, paragraph, table
from nest.spec import PlanDocument
from nest.tolerances import AGREEMENT
from nest.units import format_seconds, likelihood, percent


@frozen
class Entry:
    """One plan of a shortlist."""

    plan: PlanDocument  # Its document; of all but the best `feasible`, with the lower bound of the best.
    slower_by: float  # Share of the best plan's step time that it takes more.
    told_apart: bool  # Predictions are accurate enough to call the best plan faster; true of the best.
    proved: bool  # Every plan that could rank ahead of it is known to be slower; else time ran out.
    replayed: float | None = None  # Seconds of a step in a replay pass by pass; None: not possible.


def shortlist_document(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the JSON of a shortlist: the documents of the plans, and their ranking."""
    names = ("slower_by", "told_apart", "proved", "replayed")
    return {
        "nest": 1,
        "plans": [entry.plan.to_dict() for entry in entries],
        "shortlist": [{name: getattr(entry, name) for name in names} for entry in entries],
    }


def shortlist_text(entries: Sequence[Entry], screen: Screen = WIDE) -> str:
    """Write the plans as a table, the changes of their replay, and those that predictions cannot tell from the best."""
    rows = []
    replayed = [entry.replayed for entry in entries]
    told = any(
        seconds is not None and abs(seconds - (entry.plan.batch_time or 0.0)) > AGREEMENT * seconds
        for entry, seconds in zip(entries, replayed, strict=True)
    )
    for place, entry in enumerate(entries, 1):
        plan = entry.plan
        rows.append(
            (
                str(place),
                layout_text(plan) if place == 1 else ", ".join(layout_difference(entries[0].plan, plan)),
                format_seconds(plan.batch_time or 0.0),
                "-" if place == 1 else percent(entry.slower_by),
                "-" if plan.fit_probability is None else likelihood(plan.fit_probability),
                *(["-" if entry.replayed is None else format_seconds(entry.replayed)] if told else []),
            )
        )
    header = ("plan", "layout, then differences", "step time", "slower by", "likely to fit")
    lines = [table((*header, *(["replayed"] if told else [])), rows, (0, 2, 3, 4, *([5] if told else [])), screen)]
    known = [(seconds, place) for place, seconds in enumerate(replayed, 1) if seconds is not None]
    if known and replayed[0] is not None and min(known)[0] < replayed[0] * (1 - AGREEMENT):
        least, place = min(known)
        text = (
            f"Simulated pass by pass, plan {place} is the fastest, by {percent(replayed[0] / least - 1)}. The order of "
            "the plans follows the formula."
        )
        lines += ["", paragraph(text, screen)]
    close = [place for place, entry in enumerate(entries, 1) if not entry.told_apart]
    if close:
        between = " and " if len(close) == 2 else " to "
        which = f"Plan {close[0]}" if len(close) == 1 else f"Plans {close[0]}{between}{close[-1]}"
        lines += ["", paragraph(f"{which}: too close to plan 1 to call. Measure them.", screen)]
    if not all(entry.proved for entry in entries):
        lines += ["", paragraph("Time ran out: unlisted plans may be faster.", screen)]
    return "\n".join(lines)


def nearest_text(nearest: Mapping[str, Any]) -> str:
    """Describe a nearest plan (`nest.whatif.nearest_plan.Nearest.to_dict`): why, changes and their cost."""
    target, loss = nearest["target"], _loss(nearest["loss"])
    lines = [f"{target} cannot run this plan: {reason}." for reason in nearest["reasons"]]
    lines += [f"{each['name']}: {each['before']} -> {each['now']}" for each in nearest["changes"]]
    sentence = f"exported the nearest plan: {format_seconds(nearest['batch_time'])} per step, {loss} than this plan."
    if nearest["best_batch_time"] is not None:
        sentence += (
            f" The best plan for {target} takes {format_seconds(nearest['best_batch_time'])}; "
            f"the nearest is {_loss(nearest['best_loss'])}."
        )
    return "\n".join([*lines, sentence])


def _loss(share: float) -> str:
    return f"{percent(abs(share))} {'faster' if share < 0 else 'slower'}"
