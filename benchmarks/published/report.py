"""What was found, as Markdown."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median

from benchmarks.published.measure import Outcome, decisions, inside
from benchmarks.published.runs import PublishedRun
from nest.spec import PlanDocument

Rows = Sequence[Sequence[str]]

PARTS = ("where nest sees the time", "published", "nest's best")

NOTHING = 1e-9
"""Seconds up to which a part of a step is none: what is left of differences."""


def table(header: Sequence[str], rows: Rows) -> list[str]:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(each) + " |" for each in lines]


def layout(plan: PlanDocument) -> str:
    """The decisions of a plan in a line, but for degrees of 1."""
    told = decisions(plan)
    degrees = [f"{name} {told[name]}" for name in ("tp", "cp", "ep", "etp", "pp", "dp") if told[name] != "1"]
    chunks = f" of {told['chunks']} chunks" if told["chunks"] != "1" else ""
    sp = ["sp"] if told["sp"] == "yes" else []
    rest = [f"micro-batch {told['micro-batch']}", f"ZeRO {told['ZeRO']}", f"recompute {told['recompute']}"]
    return ", ".join([*degrees, *sp, *rest, told["schedule"] + chunks, told["rank order"]])


def prices(outcomes: Sequence[Outcome]) -> list[str]:
    """The published step times and layouts beside nest's prices."""
    header = ("run", "published", "step time", "nest's price of it", "error", "fits", "tp over NVLink")
    rows = [
        (
            each.run.title,
            each.run.told,
            seconds(each.run.batch_time),
            seconds(each.priced.batch_time),
            f"{100 * each.error:+.1f} %",
            "yes" if each.priced.fits else "no",
            "yes" if inside(each.priced, each.run) else "no",
        )
        for each in outcomes
    ]
    off = [abs(each.error) for each in outcomes]
    mean, half = (f"{100 * value:.1f} %" for value in (fmean(off), median(off)))
    return [*table(header, rows), "", f"Absolute errors of {len(off)} runs: mean {mean}, median {half}."]


def optima(outcomes: Sequence[Outcome]) -> list[str]:
    """The best plans and what they are said to save."""
    header = ("run", "nest's best", "faster than its price of the published layout", "search", "tp over NVLink")
    return table(
        header,
        [
            (
                each.run.title,
                seconds(None if each.best is None else each.best.batch_time),
                "-" if each.faster is None else f"{100 * each.faster:.1f} %",
                search(each),
                "-" if each.best is None or each.faster is None else "yes" if inside(each.best, each.run) else "no",
            )
            for each in outcomes
        ],
    )


def search(each: Outcome) -> str:
    """How the search ended."""
    best = each.best
    if best is None:
        return "no answer in time"
    if best.status != "feasible" or best.batch_time is None or best.lower_bound is None:
        return str(best.status)
    return f"ended early, at most {100 * (1 - best.lower_bound / best.batch_time):.1f} % from the best"


def differences(each: Outcome) -> list[str]:
    """The layouts, and the decisions that differ."""
    lines = [f"### {each.run.title}", "", f"Published: {layout(each.priced)}."]
    if each.best is None or each.faster is None:
        return [*lines, "", f"nest's best: {search(each)}. {each.best.diagnosis or '' if each.best else ''}".rstrip()]
    lines += ["", f"nest's best: {layout(each.best)}.", ""]
    lines += table(("decision", "published", "nest's best"), each.changed)
    ours, theirs = each.best.summary["time_shares"], each.priced.summary["time_shares"]
    parts = [(name, theirs[name], ours[name]) for name in theirs if max(theirs[name], ours[name]) > NOTHING]
    return [*lines, "", *table(PARTS, [(name, seconds(one), seconds(other)) for name, one, other in parts])]


def sources(runs: Sequence[PublishedRun]) -> list[str]:
    """Where the figures are from."""
    lines = []
    for run in runs:
        told = [f"* **{run.title}**: {run.told}."]
        told += [f"{run.formula[0].upper()}{run.formula[1:]}."] if run.formula else []
        told += [f"Assumed: {run.assumed}.", f"[Problem](problems/{run.name}.yaml); sources: {'; '.join(run.sources)}."]
        lines.append(" ".join(told))
    return lines


def page(outcomes: Sequence[Outcome], command: str, facts: Mapping[str, str]) -> str:
    """All of it, with where it ran."""
    lines = ["# Published runs", "", "How to read this: [Published runs](../../README.md#published-runs).", ""]
    lines += [f"`{command}`", "", *(f"* {name}: {value}" for name, value in facts.items())]
    lines += ["* searches: " + ", ".join(f"{each.seconds:.0f} s ({each.run.name})" for each in outcomes), ""]
    lines += [
        "## The published layouts, priced",
        "",
        *prices(outcomes),
        "",
        "## The best plans",
        "",
        *optima(outcomes),
        "",
    ]
    lines += ["## What differs", ""]
    for each in outcomes:
        lines += [*differences(each), ""]
    return "\n".join(lines)


def seconds(value: float | None) -> str:
    """A time with three digits and its unit."""
    return "-" if value is None else f"{0.0 if abs(value) <= NOTHING else value:.4g} s"
