"""A plan on one screen: problem, layout, step time, shares of time, other plans."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from nest.formulate.risk import RISK, likely_enough, took_even_odds
from nest.report.framework_words import chosen_as, launch_texts, layout_text, near_enough, other_plan_texts
from nest.report.plan_summary import SHARE_NAMES, UNCALIBRATED, memory_capacity, trained_text
from nest.report.subject import accelerator, subject
from nest.report.text.layout import WIDE, Screen, Tone, figures, opening, paragraph
from nest.spec import PlanDocument
from nest.spec.problem import NO_TARGET
from nest.units import format_bytes, format_seconds, likelihood, percent, three_digits

MOST_LINES = 22  # Lines of the first screen: a terminal of 24 has room for the command and the next one, too.
MOST_WAITING = 0.05  # Least share of a step told as waiting for hosts: the spread of repeated runs of one plan.
LEAST_SHARE = 5e-4  # Least share of the step time that shows in one decimal place of a per cent.
BESIDE = len("time goes to") + 2  # Columns of the names of figures.


def first_screen(plan: PlanDocument, screen: Screen = WIDE, following: str = "", *, whole: bool = False) -> str:
    """Return the answer of `nest solve`, with at most `MOST_LINES` lines on 80 columns.

    Args:
        plan: found by a search, decided, or infeasible.
        following: a sentence on the next command.
        whole: wrap lines that are cut short otherwise.
    """
    if plan.status == "infeasible":
        head = [paragraph(subject(plan), screen)]
        blocks = [head, [opening("No feasible plan.", Tone.BAD, f" {plan.diagnosis}", screen)], []]
    else:
        width = None if whole else screen.width
        blocks = [_head(plan, screen), [_figures(plan, screen, width)], _alternatives(plan, screen, width)]
    blocks.append([paragraph(following, screen)] if following else [])
    texts = ["\n".join(block) for block in blocks if block]
    text = "\n\n".join(texts)
    return text if whole or text.count("\n") < MOST_LINES else "\n".join(texts)


def _head(plan: PlanDocument, screen: Screen) -> list[str]:
    begin, tone, rest = _status(plan)
    lines = [paragraph(subject(plan), screen), paragraph(layout_text(plan), screen), opening(begin, tone, rest, screen)]
    unlikely = unlikely_text(plan)
    return lines if unlikely is None else [paragraph(unlikely, screen), *lines]


def unlikely_text(plan: PlanDocument) -> str | None:
    """Note that no plan is as likely to fit as a search asks by default, with its likelihood; None: one is."""
    if not took_even_odds(plan) or plan.fit_probability is None:
        return None
    return f"No plan is {percent(1 - RISK, 0)} likely to fit; this one is {likelihood(plan.fit_probability)}."


def _status(plan: PlanDocument) -> tuple[str, Tone, str]:
    """Return what is proved of a plan: the highlighted words, and the rest of the sentence."""
    if plan.lower_bound is None:
        return "Plan as given, not searched.", Tone.HEADING, ""
    if plan.status == "optimal":
        return f"Optimal among {plan.space}." if plan.space is not None else "Optimal.", Tone.GOOD, ""
    if not plan.lower_bound:
        return "Best plan found.", Tone.FAIR, " The search was stopped; a faster plan may exist."
    bound = format_seconds(plan.lower_bound)
    if plan.status == "near-optimal":
        return (
            f"{chosen_as(plan)} plan within {near_enough(plan)}",
            Tone.GOOD,
            f" of the fastest possible step ({bound}).",
        )
    gap = (plan.batch_time or 0.0) / plan.lower_bound - 1
    most = f"at most {percent(gap)}" if gap >= LEAST_SHARE else f"less than {percent(2 * LEAST_SHARE)}"
    return "Best plan found:", Tone.FAIR, f" {most} slower than the fastest possible step ({bound})."


def _figures(plan: PlanDocument, screen: Screen, width: int | None) -> str:
    """Return step time, throughput, memory, shares of time, and figures the problem asks for."""
    span, summary = plan.batch_time_range, plan.summary
    time = format_seconds(plan.batch_time or 0.0)
    if span is not None:
        between = f"{format_seconds(span.low)} to {format_seconds(span.high)}"
        known = UNCALIBRATED if plan.uncalibrated else ""
        time += f" ({percent(span.probability, 0)} likely {between}{known})"
    verdict, tone, memory = memory_verdict(plan)
    shares = _shares(summary.get("time_shares", {}), plan.batch_time or 0.0, width)
    rows = [
        ("step time", time),
        ("throughput", ", ".join(_throughput(plan))),
        ("memory", f"{verdict}{memory}" if memory else ""),
        ("time goes to", shares),
        ("host", _launching(summary, plan.batch_time or 0.0)),
        ("devices", _devices(summary)),
        ("trained", trained_text(summary["trained"]) if "trained" in summary else ""),
        ("training", _training(summary.get("training"), accelerator(plan.problem["cluster"]))),
        ("cost", _cost(summary.get("cost"))),
    ]
    text = figures([row for row in rows if row[1]], screen)
    return text.replace(f"  {verdict}", f"  {screen.paint(verdict, tone)}", 1) if memory else text


def _launching(summary: Mapping[str, Any], batch_time: float) -> str:
    """Describe the wait of devices for kernel launches, and a remedy; "": almost none."""
    share = summary.get("launching", 0.0) / batch_time if batch_time else 0.0
    if share < MOST_WAITING:
        return ""
    return f"launches kernels late {percent(share, 0)} of the time; larger micro-batches or CUDA graphs help"


def _throughput(plan: PlanDocument) -> Iterator[str]:
    """Yield tokens (samples, if they have none) per second and device, and the share of the peak."""
    summary, device = plan.summary, accelerator(plan.problem["cluster"])
    for what in ("tokens", "samples"):
        if (speed := summary.get(f"{what}_per_second_per_device")) is not None:
            yield f"{three_digits(speed)} {what}/s per {device}"
            break
    else:
        yield f"{three_digits(plan.throughput or 0.0)} samples/s"
    if "model_flops_utilisation" in summary:
        yield f"MFU {percent(summary['model_flops_utilisation'])}"


def memory_verdict(plan: PlanDocument) -> tuple[str, Tone, str]:
    """Return the verdict on the fullest stage, its tone, and its bytes; "": a device's memory is unknown."""
    capacities = [memory_capacity(plan.summary, stage.pool) for stage in plan.stages]
    shares = [stage.memory / capacity for stage, capacity in zip(plan.stages, capacities, strict=True) if capacity]
    if len(shares) < len(capacities):
        return "", Tone.GOOD, ""
    fullest = shares.index(max(shares))
    where = f" on stage {fullest + 1}" if len(plan.stages) > 1 else ""
    needed = format_bytes(plan.stages[fullest].memory)
    text = f": {needed} of {format_bytes(capacities[fullest] or 0.0)}{where}"
    likely = None if "profile" in plan.problem else plan.fit_probability  # Candidates of a profile state their bytes.
    by_margin = plan.problem["training"].get("memory_margin") is not None
    text += "" if likely is None else f", {likelihood(likely)} likely to fit"
    if not plan.fits:
        margin = " without training.memory_margin" if max(shares) <= 1 and by_margin else ""
        return "does not fit", Tone.BAD, f"{text}{margin}"
    return ("fits", Tone.GOOD, text) if by_margin or likely_enough(likely) else ("tight", Tone.FAIR, text)


def _shares(shares: Mapping[str, float], batch_time: float, width: int | None) -> str:
    """Return the shares of time, largest first, in one line of that width; the rest together."""
    least = LEAST_SHARE * batch_time
    parts = sorted(((each, name) for name, each in shares.items() if each >= least > 0), reverse=True)
    texts = [f"{SHARE_NAMES[name]} {percent(seconds / batch_time)}" for seconds, name in parts]
    text, told = ", ".join(texts), len(parts)
    while width is not None and len(text) + BESIDE > width and told > 1:
        told -= 1
        rest = sum(seconds for seconds, _ in parts[told:])
        text = ", ".join([*texts[:told], f"other {percent(rest / batch_time)}"])
    return text


def _devices(summary: Mapping[str, Any]) -> str:
    used, total = summary.get("devices_used"), summary.get("devices")
    pools = [f"{each['devices_used']} of {each['devices']} {each['name']}" for each in summary.get("pools", ())]
    return f"{', '.join(pools)} used" if pools else f"{used} of {total} used" if used != total else ""


def _cost(cost: Mapping[str, float] | None) -> str:
    if cost is None:
        return ""
    egress = f" ({percent(cost['egress'] / cost['step'])} between zones)" if cost.get("egress") else ""
    text = f"{three_digits(cost['step'])} per step{egress}"
    return text + (f", {three_digits(cost['token'] * 1e6)} per million tokens" if "token" in cost else "")


def _training(whole: Mapping[str, Any] | None, device: str) -> str:
    """Describe `summary.training`; "": the problem states no number of tokens."""
    if whole is None:
        return ""
    steps = "1 step" if whole["steps"] == 1 else f"{whole['steps']:,} steps"
    time = format_seconds(whole["time"])
    if "low" in whole:
        time += f" ({format_seconds(whole['low'])} to {format_seconds(whole['high'])})"
    text = (
        f"{time} for {format_tokens(whole['tokens'])} tokens in {steps}, {_whole(whole['device_hours'])} {device} hours"
    )
    if "cost" in whole:
        text += f", cost {_whole(whole['cost'])}"
        if "cost_low" in whole:
            text += f" ({_whole(whole['cost_low'])} to {_whole(whole['cost_high'])})"
        text += ", in the currency of cluster.price"
    return text


def _whole(number: float) -> str:
    """Format a large number with three significant digits: `1,230,000`."""
    return three_digits(number) if number >= 1 else f"{number:.3g}"


def format_tokens(count: int) -> str:
    """Format a number of tokens: `15T`, `2.4B`."""
    for factor, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= factor:
            return f"{count / factor:.4g}{letter}"
    return str(count)


def _alternatives(plan: PlanDocument, screen: Screen, width: int | None) -> list[str]:
    rows = [*other_plan_texts(plan, width), *launch_texts(plan)]
    beside = max((len(name) for name, _ in rows), default=0) + 2
    return [paragraph(f"{name:{beside}}{text}", screen, beside) for name, text in rows]


def next_command(plan: PlanDocument, output: Path | None) -> str:
    """Suggest a command for the answer of `nest solve`, which is in the file `output` or in none."""
    if output is None:
        return "Next: add `--output plan.json`, then `nest explain plan.json`; or `--stages`."
    file = quote(str(output))
    if plan.status == "infeasible":
        return f"Next: `nest explain {file}` shows changes that make a plan fit."
    target, runs_on = plan.problem.get("search", {}).get("target", NO_TARGET), plan.runs_on or ()
    framework = target if target in runs_on else next(iter(runs_on), None)
    export = f", or `nest export {file} --to {framework}`" if framework is not None else ""
    measure = f"`nest shortlist {file}`, " if plan.to_measure else ""
    return f"Next: {measure}`nest explain {file}`{export}."
