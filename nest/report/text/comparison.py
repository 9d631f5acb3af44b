"""Plans side by side: the best of a problem, ours and those of other planners, a plan and its nearest."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from nest.instance import recompute_words
from nest.report.decisions import degrees_text
from nest.report.framework_words import layout_difference, layout_text
from nest.report.text.layout import WIDE, Screen, Tone, opening, paragraph, table
from nest.spec import PlanDocument
from nest.tolerances import AGREEMENT
from nest.units import format_bytes, format_seconds, listed, percent


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
                "-" if plan.fit_probability is None else percent(plan.fit_probability, 0),
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


HEADER = (
    "planner",
    "step time",
    "of ours",
    "samples/s",
    "degrees",
    "pp",
    "replicas",
    "micro-batch",
    "ZeRO",
    "recompute",
    "memory",
    "fits",
)
NUMBERS = (1, 2, 3, 5, 6, 10, 12)  # Columns that are flush right.
SEARCH = "search"  # Name of the column of search times, if asked for.

OURS = "nest"


def comparison_text(comparison: Mapping[str, Any], screen: Screen = WIDE) -> str:
    """Write the plans of `nest.whatif.compare.Comparison.to_dict()` below each other, with notes on each."""
    ours = comparison["plan"]
    header = (*HEADER, SEARCH) if "seconds" in comparison else HEADER
    rows = [_row(OURS, ours, 1.0, 0.0, True)]
    notes = [] if ours["batch_time"] is not None else [f"{OURS}: no feasible plan. {ours['diagnosis']}"]
    for each in comparison["others"]:
        rows.append(_row(each["name"], each["plan"], each["relative"], each["missing_bytes"], each["within_problem"]))
        texts = (*each["reasons"], *each["remarks"])
        notes += [f"{each['name']}: {text[:1].lower()}{text[1:]}" for text in texts]
        if each["bound"] is not None:
            notes.append(f"{each['name']}: its own lower bound is {format_seconds(each['bound'])}.")
    plans = [ours, *(each["plan"] for each in comparison["others"])]
    full = [index for index, plan in enumerate(plans) if plan is not None and plan["batch_time"] and not plan["fits"]]
    tones = {(index, HEADER.index("fits")): Tone.BAD for index in full}
    if header != HEADER:
        taken = [comparison["seconds"], *(each["seconds"] for each in comparison["others"])]
        rows = [(*row, format_seconds(seconds)) for row, seconds in zip(rows, taken, strict=True)]
    lines = [table(header, rows, [each for each in NUMBERS if each < len(header)], screen, tones)]
    lines += [""] if notes else []
    lines += [paragraph(each, screen, indent=2) for each in notes]
    if comparison.get("by_levels"):
        lines += ["", paragraph(comparison["by_levels"], screen)]
    if ours["batch_time"] is not None:
        lines += ["", *_claim(comparison, screen), *_outside(comparison, screen)]
        close = [each["name"] for each in comparison["others"] if each["told_apart"] is False]
        if close:
            lines.append(paragraph(f"Too close to nest's plan to call: {listed(close)}. Measure them.", screen))
    return "\n".join(lines)


def _claim(comparison: Mapping[str, Any], screen: Screen) -> list[str]:
    ours = comparison["plan"]
    if ours["status"] == "optimal":
        claim = " no fitting plan in nest's search space is faster."
        return [opening("Optimal plan:", Tone.GOOD, claim, screen)]
    least = f"o plan in nest's search space takes less than {format_seconds(ours['lower_bound'])}."
    if ours["status"] == "near-optimal":
        return [opening("Near-optimal plan:", Tone.GOOD, f" n{least}", screen)]
    faster = [
        each["name"]
        for each in comparison["others"]
        if each["within_problem"]
        and not each["missing_bytes"]
        and each["relative"] is not None
        and each["relative"] < 1 - AGREEMENT
    ]
    if not faster:
        return [opening("Best plan found:", Tone.FAIR, f" n{least}", screen)]
    who = f"{listed(faster)} {'is' if len(faster) == 1 else 'are'}"
    claim = " nest's search was stopped; give it more time."
    return [opening(f"{who} faster:", Tone.FAIR, claim, screen), paragraph(f"N{least}", screen)]


def _outside(comparison: Mapping[str, Any], screen: Screen) -> list[str]:
    """Describe faster plans that fit with a decision outside nest's search; their notes name it."""
    lines = []
    for each in comparison["others"]:
        relative = each["relative"]
        if not each["within_problem"] and each["fits"] and relative is not None and relative < 1 - AGREEMENT:
            told = f"Outside that space, {each['name']} is {percent(1 / relative - 1)} faster."
            lines.append(paragraph(told, screen))
    return lines


def _row(
    name: str, plan: Mapping[str, Any] | None, relative: float | None, missing: float, within: bool
) -> tuple[str, ...]:
    if plan is None or plan["batch_time"] is None:
        return (name, "no plan", *("",) * (len(HEADER) - 2))
    stages, candidate = plan["stages"], plan["candidate"]
    mixed = len({stage["candidate"] for stage in stages})
    degrees = " ".join(each.replace(" ", "") for each in degrees_text([candidate["degrees"]])) or "-"
    return (
        name,
        format_seconds(plan["batch_time"]),
        "" if relative is None else f"{relative:.3f}",
        f"{plan['throughput']:.4g}" if plan["throughput"] else "",
        degrees if mixed == 1 else f"{mixed} candidates mixed",
        str(len(stages)),
        str(plan["data_parallel"]),
        f"{candidate['micro_batch'] or candidate['samples']} x {plan['micro_batches']}",
        _each(stages, "zero"),
        ", ".join(dict.fromkeys(map(_recomputed, stages))),
        format_bytes(max(stage["memory"] for stage in stages)),
        _fits(plan, missing) + ("" if within else ", outside the problem"),
    )


def _each(stages: list[Mapping[str, Any]], key: str) -> str:
    return ", ".join(dict.fromkeys(str(stage[key]) for stage in stages))


def _recomputed(stage: Mapping[str, Any]) -> str:
    part = stage.get("recompute_layers"), stage.get("recompute_rest")
    name = stage["recompute"] if part[0] is None else ":".join(map(str, (stage["recompute"], *part)))
    return recompute_words(name)


def _fits(plan: Mapping[str, Any], missing: float) -> str:
    """Describe whether a search admits the plan, and if not, its likelihood to fit or its excess."""
    if not missing:
        return "yes"
    return f"{percent(plan['fit_probability'], 0)} likely" if plan["fits"] else f"no, by {format_bytes(missing)}"


def nearest_text(nearest: Mapping[str, Any]) -> str:
    """Describe a nearest plan (`nest.whatif.nearest_plan.Nearest.to_dict`): why, changes and their cost."""
    target = nearest["target"]
    lines = [f"{target} cannot run this plan: {reason}." for reason in nearest["reasons"]]
    lines += [f"{each['name']}: {each['before']} -> {each['now']}" for each in nearest["changes"]]
    sentence = f"exported the nearest plan: {format_seconds(nearest['batch_time'])} per step, {_loss(nearest['loss'])}."
    if nearest["best_batch_time"] is not None:
        sentence += (
            f" The best plan for {target} takes {format_seconds(nearest['best_batch_time'])}; "
            f"the nearest is {_loss(nearest['best_loss'])}."
        )
    return "\n".join([*lines, sentence])


def _loss(share: float) -> str:
    return f"{percent(abs(share))} {'faster' if share < 0 else 'slower'}"
