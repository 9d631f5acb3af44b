"""Compared plans side by side: ours and those of other planners."""

from collections.abc import Mapping
from typing import Any

from nest.instance import recompute_words
from nest.public.changes import degrees_text
from nest.public.layout import WIDE, Screen, Tone, opening, paragraph, table
from nest.tolerances import AGREEMENT
from nest.units import format_bytes, format_seconds, likelihood, listed, percent

HEADER = (
    "planner",
    "step time",
    "vs nest",
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
    """Write the plans of `nest_whatif.compare.Comparison.to_dict()` below each other, with notes on each."""
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
            lines.append(paragraph(f"Too close to call: nest's plan and {listed(close)}. Measure them.", screen))
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
    splits = dict.fromkeys(stage["candidate"].removeprefix(f"{stage.get('pool')}-") for stage in stages)
    degrees = " ".join(each.replace(" ", "") for each in degrees_text([candidate["degrees"]])) or "-"
    return (
        name,
        format_seconds(plan["batch_time"]),
        "" if relative is None else f"{relative:.3f}",
        f"{plan['throughput']:.4g}" if plan["throughput"] else "",
        degrees if len(splits) == 1 else listed([*splits]),
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
    return f"{likelihood(plan['fit_probability'])} likely" if plan["fits"] else f"no, by {format_bytes(missing)}"
