"""A plan as a table a person can act on."""

from collections.abc import Callable
from itertools import groupby
from typing import Any

from nest.report.decisions import degrees_text, listed
from nest.report.evaluation import SHARE_NAMES, collectives_text
from nest.report.memory import memory_table
from nest.report.paragraph import figures, opening, paragraph
from nest.report.runner_up import other_risk_text, runner_up_text
from nest.report.screen import WIDE, Screen, Tone
from nest.report.table import ranges, table
from nest.report.whole_training import training_rows
from nest.spec import PlacementRecord, PlanDocument, StageRecord
from nest.tolerances import SIMPLER
from nest.units import format_bytes, format_seconds

MOST_ROWS = 24
"""Stages shown one by one; of more, neighbours that are alike share a row."""


def summary(plan: PlanDocument, screen: Screen = WIDE) -> str:
    """The plan in words and two tables, fitted to a screen; for an infeasible one its diagnosis."""
    if plan.status == "infeasible":
        return opening("No feasible plan.", Tone.BAD, f" {plan.diagnosis}", screen)
    level_names = tuple(plan.summary.get("levels", ()))
    lines = [_headline(plan, screen), "", _figures(plan, screen), "", _stages(plan, level_names, screen)]
    if plan.lower_bound is None:  # What the memory of a plan is made of is asked of plans that are decided.
        parts = memory_table(plan.stages, MOST_ROWS, plan.summary.get("memory_capacity"), screen)
        lines += ["", parts] if parts else []
    shares = plan.summary.get("time_shares")
    if shares:
        lines += ["", paragraph(_shares(shares, plan.batch_time or 0.0), screen)]
    if inside := collectives_text(plan.summary, plan.batch_time or 0.0):
        lines.append(paragraph(inside, screen))
    if plan.placement is not None:
        lines += ["", paragraph(_placement(plan.placement, plan.batch_time or 0.0), screen)]
    if plan.runs_on is not None and plan.problem.get("model") is not None and plan.lower_bound is not None:
        lines += ["", paragraph(_runs_on(plan.runs_on), screen)]
    if plan.runner_up is not None:
        lines += ["", paragraph(runner_up_text(plan.runner_up), screen)]
    for other in plan.other_risks:
        lines += ["", paragraph(other_risk_text(other), screen)]
    for text in plan.violates:
        lines += ["", opening("Constraint violated:", Tone.BAD, f" {text}", screen)]
    if not plan.fits:
        begin, rest = _overfull(plan)
        lines += ["", opening(begin, Tone.BAD, rest, screen)]
    return "\n".join(lines)


def _overfull(plan: PlanDocument) -> tuple[str, str]:
    """That the plan does not fit, and by which of the two estimates of memory."""
    capacity = plan.summary.get("memory_capacity", 0.0)
    if any(stage.memory > capacity for stage in plan.stages):
        return "This plan does not fit:", " a stage needs more memory than a device has."
    if plan.fit_probability is None or plan.problem["training"].get("memory_margin") is not None:
        return "This plan may not fit:", " with training.memory_margin a stage needs more memory than a device has."
    return (
        "This plan may not fit:",
        f" that is {plan.fit_probability:.0%} likely, less than training.memory_risk asks for.",
    )


def _runs_on(names: tuple[str, ...]) -> str:
    """Whose frameworks can run the plan."""
    if not names:
        return "No framework can run this plan as it is; `nest export PLAN --to NAME` says why and what is nearest."
    return f"Runs as it is on {listed(names)}."


def _placement(placement: PlacementRecord, by_levels: float) -> str:
    """How the plan does on a network that is no hierarchy."""
    if placement.status == "optimal":
        proof = "proved optimal for this plan"
    else:
        gap = placement.batch_time / placement.lower_bound - 1 if placement.lower_bound > 0 else 0.0
        proof = f"no placement of this plan takes less than {format_seconds(placement.lower_bound)} (gap {gap:.2%})"
        if placement.method == "exchanges":
            proof += "; too large for CP-SAT, so only exchanges of devices were tried"
    found = format_seconds(placement.batch_time)
    return f"On the network itself: {found}, {proof}; levels said {format_seconds(by_levels)}."


def _headline(plan: PlanDocument, screen: Screen) -> str:
    proof, tone = ("Optimal plan", Tone.GOOD) if plan.status == "optimal" else ("Best plan found in time", Tone.FAIR)
    if is_simplest(plan):
        proof, tone = f"Simplest plan within {SIMPLER:.1%} of the best", Tone.GOOD
    if plan.lower_bound is None:
        proof, tone = "Plan as decided", Tone.HEADING
    return opening(f"{proof}:", tone, f" {decisions_text(plan)}, rank order {plan.rank_order}", screen)


def is_simplest(plan: PlanDocument) -> bool:
    """Whether a plan is the simplest of those that are hardly slower than the best, which it is known not to be."""
    asked = plan.problem.get("search", {}).get("prefer") == "simplest"
    within = (plan.batch_time or 0.0) <= (plan.lower_bound or 0.0) * (1 + SIMPLER)
    return asked and within and plan.status == "feasible"


def decisions_text(plan: PlanDocument) -> str:
    """What is decided for all stages of a feasible plan, but for the order of ranks."""
    assert plan.candidate is not None
    degrees = degrees_text([plan.candidate.degrees])
    if _mixed(plan):
        degrees = [f"{len({stage.candidate for stage in plan.stages})} candidates mixed"]
    parts = [
        *degrees,
        f"pp {len(plan.stages)}",
        f"replicas {plan.data_parallel}",
        *([] if plan.zero_degree is None else [f"shard groups of {plan.zero_degree}"]),
        f"micro-batch {plan.candidate.micro_batch or plan.candidate.samples} x {plan.micro_batches}",
        f"schedule {plan.schedule}" + (f" of {plan.chunks} chunks" if (plan.chunks or 1) > 1 else ""),
    ]
    return ", ".join(parts)


def _batch_time(plan: PlanDocument) -> str:
    """Seconds of a batch, and between which times it will likely lie."""
    told, span = format_seconds(plan.batch_time or 0.0), plan.batch_time_range
    if span is None:
        return told
    return f"{told} ({span.probability:.0%} likely {format_seconds(span.low)} to {format_seconds(span.high)})"


def _fullest(plan: PlanDocument, capacity: float) -> str:
    """What the fullest stage is estimated to need, and how likely it is that it has it."""
    fullest = max(range(len(plan.stages)), key=lambda index: plan.stages[index].memory)
    where = f" on stage {fullest + 1}" if len(plan.stages) > 1 else ""
    told = f"{format_bytes(plan.stages[fullest].memory)} of {format_bytes(capacity)}{where}"
    likely = plan.fit_probability
    # Candidates of a profile state their bytes.
    return told if likely is None or "profile" in plan.problem else f"{told}, {likely:.0%} likely to fit"


def _mixed(plan: PlanDocument) -> bool:
    """Whether stages use different candidates."""
    return len({stage.candidate for stage in plan.stages}) > 1


def _figures(plan: PlanDocument, screen: Screen) -> str:
    found = plan.summary
    rows = [("batch time", _batch_time(plan))]
    if plan.throughput is not None:
        rows.append(("throughput", f"{plan.throughput:.4g} samples/s"))
    if plan.status == "feasible" and plan.lower_bound:
        gap = (plan.batch_time or 0.0) / plan.lower_bound - 1
        rows.append(("no plan is faster than", f"{format_seconds(plan.lower_bound)} (gap {gap:.2%})"))
    if "tokens_per_second_per_device" in found:
        rows.append(("tokens per second and device", f"{found['tokens_per_second_per_device']:.4g}"))
        rows.append(("model FLOP utilisation (MFU)", f"{found['model_flops_utilisation']:.1%}"))
    if "idle_share" in found:
        rows.append(("idle share", f"{found['idle_share']:.1%}"))
    if "devices_used" in found:
        rows.append(("devices used", f"{found['devices_used']} of {found['devices']}"))
    if capacity := found.get("memory_capacity"):
        rows.append(("memory", _fullest(plan, capacity)))
    if training := found.get("training"):
        rows += training_rows(training)
    return figures(rows, screen)


def _stages(plan: PlanDocument, level_names: tuple[str, ...], screen: Screen) -> str:
    capacity = plan.summary.get("memory_capacity")
    runs = _runs(plan.stages) if len(plan.stages) > MOST_ROWS else [[index] for index in range(len(plan.stages))]
    rows = [_row(run, [plan.stages[index] for index in run], capacity, level_names) for run in runs]
    header = [
        "stage", "layers", "devices", "recompute", "ZeRO", "time", "sync", "memory", "of capacity", "link behind",
    ]  # fmt: skip
    right = (4, 5, 6, 7, 8)
    if _mixed(plan):
        header.insert(2, "candidate")
        for run, row in zip(runs, rows, strict=True):
            row.insert(2, plan.stages[run[0]].candidate)
        right = (5, 6, 7, 8, 9)
    memory = header.index("memory")
    full = [
        index for index, run in enumerate(runs) if capacity and any(plan.stages[each].memory > capacity for each in run)
    ]
    tones = {(index, column): Tone.BAD for index in full for column in (memory, memory + 1)}
    return table(header, rows, right, screen, tones)


def _runs(stages: tuple[StageRecord, ...]) -> list[list[int]]:
    """Neighbouring stages with as many layers of the same kinds and the same choices, as lists of indices."""
    keys = [
        (tuple(name.rpartition(".")[0] or name for name in stage.layers), stage.candidate, stage.recompute, stage.zero)
        for stage in stages
    ]
    return [[index for index, _ in run] for _, run in groupby(enumerate(keys), key=lambda numbered: numbered[1])]


def _row(run: list[int], stages: list[StageRecord], capacity: float | None, level_names: tuple[str, ...]) -> list[str]:
    first, last = stages[0].devices[0], stages[-1].devices[0] + stages[-1].devices[1] - 1
    shares = [stage.memory / capacity for stage in stages] if capacity else []
    links = dict.fromkeys(level_names[stage.level_out] if stage.level_out >= 0 else "-" for stage in stages)
    return [
        f"{run[0] + 1}-{run[-1] + 1}" if len(run) > 1 else str(run[0] + 1),
        ranges([layer for stage in stages for layer in stage.layers]),
        f"{first}-{last}" if last > first else str(first),
        stages[0].recompute,
        str(stages[0].zero),
        _span([stage.time for stage in stages], format_seconds),
        _span([stage.sync_time for stage in stages], format_seconds),
        _span([stage.memory for stage in stages], format_bytes),
        _span(shares, lambda share: f"{share:.1%}") if shares else "",
        ", ".join(links),
    ]


def _span(values: list[float], shown: Callable[[float], str]) -> str:
    """One value, or the least and the greatest of several."""
    least, most = shown(min(values)), shown(max(values))
    return least if least == most else f"{least} to {most}"


def _shares(shares: dict[str, Any], batch_time: float) -> str:
    if batch_time <= 0:
        return ""
    parts = [
        f"{SHARE_NAMES.get(name, name)} {seconds / batch_time:.1%}"
        for name, seconds in shares.items()
        if abs(seconds) > 5e-4 * batch_time
    ]
    return "Batch time: " + ", ".join(parts)
