"""A plan as tables a person can act on, and what a proof by another solver found, as a record and in sentences."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from attrs import asdict

from nest.deployment.deployment import chunks_of_stages
from nest.report.decisions import chunk_ranges, decisions_text, is_mixed, is_simplest
from nest.report.other_plans import ON_NETWORK, runner_up_text
from nest.report.plan_summary import (
    COPIES,
    SHARE_NAMES,
    collectives_text,
    coverage_text,
    level_name,
    memory_capacity,
    trained_text,
    upper_memory,
)
from nest.report.text.layout import WIDE, Screen, Tone, figures, opening, paragraph, table
from nest.spec import PlanDocument, StageRecord
from nest.tolerances import SIMPLER
from nest.units import format_bytes, format_seconds, listed

MOST_ROWS = 24
"""Stages shown one by one; of more, neighbours that are alike share a row."""

MEMORY_NAMES = {"communication": "buffers", "activations": "activations in flight"}
"""What texts call parts of memory that go by another name in `MemoryBreakdown`."""


def summary(plan: PlanDocument, screen: Screen = WIDE) -> str:
    """The plan in words and two tables, fitted to a screen; for an infeasible one its diagnosis."""
    if plan.status == "infeasible":
        return opening("No feasible plan.", Tone.BAD, f" {plan.diagnosis}", screen)
    batch_time = plan.batch_time or 0.0
    lines = [_headline(plan, screen), "", _figures(plan, screen), "", _stages(plan, screen)]
    if plan.lower_bound is None:  # What the memory of a plan is made of is asked of plans that are decided.
        parts = _memory(plan, screen)
        lines += ["", parts] if parts else []
    if shares := plan.summary.get("time_shares"):
        lines += ["", paragraph(_shares(shares, batch_time), screen)]
    if inside := collectives_text(plan.summary, batch_time):
        lines.append(paragraph(inside, screen))
    if measured := coverage_text(plan.summary):
        lines += ["", paragraph(measured, screen)]
    notes = [COPIES] if plan.summary.get("copies", 1) > 1 else []
    if plan.placement is not None:
        notes.append(ON_NETWORK)
    searched = plan.lower_bound is not None and plan.problem.get("model") is not None
    if plan.runs_on is not None and searched and plan.fits:
        notes.append(_runs_on(plan.runs_on))
    if coarser := plan.statistics.get("block_batch_time"):
        notes.append(_coarser(coarser, plan.lower_bound or 0.0))
    if plan.runner_up is not None:
        notes.append(runner_up_text(plan.runner_up))
    for text in notes:
        lines += ["", paragraph(text, screen)]
    for text in plan.violates:
        lines += ["", opening("Constraint violated:", Tone.BAD, f" {text}", screen)]
    if not plan.fits:
        begin, rest = _overfull(plan)
        lines += ["", opening(begin, Tone.BAD, rest, screen)]
    return "\n".join(lines)


def _coarser(seconds: float, bound: float) -> str:
    """What a plan that is proved costs, where cuts between layers leave a gap."""
    price = f", {seconds / bound - 1:.2%} above what no plan is faster than" if bound > 0 else ""
    return (
        f"With search.granularity: block, which parts no branched region, the best plan is proved: it takes "
        f"{format_seconds(seconds)}{price}."
    )


FEW_NAMES = 2
"""Devices of a network that are named one by one in a table."""


def _headline(plan: PlanDocument, screen: Screen) -> str:
    proof, tone = ("Optimal plan", Tone.GOOD) if plan.status == "optimal" else ("Best plan found", Tone.FAIR)
    if plan.space is not None and plan.status == "optimal":
        proof = f"Optimal among {plan.space}"
    if is_simplest(plan):
        proof, tone = f"Simplest plan within {SIMPLER:.1%} of the best", Tone.GOOD
    if plan.lower_bound is None:
        proof, tone = "Plan as decided", Tone.HEADING
    return opening(f"{proof}:", tone, f" {decisions_text(plan)}, rank order {plan.rank_order}", screen)


def _overfull(plan: PlanDocument) -> tuple[str, str]:
    """That the plan does not fit, and by which of the two estimates of memory."""
    if any(stage.memory > (_capacity(plan, stage) or 0.0) for stage in plan.stages):
        return "This plan does not fit:", " a stage needs more memory than a device has."
    if plan.fit_probability is None or plan.problem["training"].get("memory_margin") is not None:
        return "This plan may not fit:", " with training.memory_margin a stage needs more memory than a device has."
    return (
        "This plan may not fit:",
        f" that is {plan.fit_probability:.0%} likely, less than training.memory_risk asks for.",
    )


def _runs_on(names: tuple[str, ...]) -> str:
    """For which frameworks the plan's files are written."""
    if not names:
        return "Can be exported to no framework; `nest export PLAN --to NAME` says why and what is nearest."
    return f"Can be exported to {listed(names)}."


def _figures(plan: PlanDocument, screen: Screen) -> str:
    plan_figures, batch_time, span = plan.summary, plan.batch_time or 0.0, plan.batch_time_range
    text = format_seconds(batch_time)
    if span is not None:
        text += f" ({span.probability:.0%} likely {format_seconds(span.low)} to {format_seconds(span.high)})"
    rows = [("step time", text)]
    if plan.throughput is not None:
        rows.append(("throughput", f"{plan.throughput:.4g} samples/s"))
    if plan.status == "feasible" and plan.lower_bound:
        gap = batch_time / plan.lower_bound - 1
        rows.append(("no plan is faster than", f"{format_seconds(plan.lower_bound)} (gap {gap:.2%})"))
    for what in ("tokens", "samples"):
        if f"{what}_per_second_per_device" in plan_figures:
            rows.append((f"{what} per second and device", f"{plan_figures[f'{what}_per_second_per_device']:.4g}"))
    if "model_flops_utilisation" in plan_figures:
        rows.append(("model FLOP utilisation (MFU)", f"{plan_figures['model_flops_utilisation']:.1%}"))
    if trained := plan_figures.get("trained"):
        rows.append(("trained", trained_text(trained)))
    if "idle_share" in plan_figures:
        rows.append(("idle share", f"{plan_figures['idle_share']:.1%}"))
    if "devices_used" in plan_figures:
        rows.append(("devices used", f"{plan_figures['devices_used']} of {plan_figures['devices']}"))
    for pool in plan_figures.get("pools", ()):
        rows.append((f"devices used of {pool['name']}", f"{pool['devices_used']} of {pool['devices']}"))
    if plan.stages and _capacity(plan, plan.stages[0]):
        rows.append(("memory", _fullest(plan)))
    if cost := plan_figures.get("cost"):
        rows += _cost(cost)
    if training := plan_figures.get("training"):
        rows += _training(training)
    return figures(rows, screen)


def _cost(cost: Mapping[str, float]) -> list[tuple[str, str]]:
    """`summary.cost` for people."""
    egress = f", {cost['egress'] / cost['step']:.1%} of it between zones" if cost.get("egress") else ""
    rows = [("cost of a step", f"{cost['step']:.4g}{egress}")]
    if "token" in cost:
        rows.append(("cost of a million tokens", f"{cost['token'] * 1e6:.4g}"))
    return rows


def _capacity(plan: PlanDocument, stage: StageRecord) -> float | None:
    """Bytes of a device of a stage; None: the document does not say."""
    return memory_capacity(plan.summary, stage.pool)


def _fullest(plan: PlanDocument) -> str:
    """What the fullest stage is estimated to need, and how likely it is that it has it."""
    shares = [stage.memory / (_capacity(plan, stage) or 1.0) for stage in plan.stages]
    fullest = shares.index(max(shares))
    capacity = _capacity(plan, plan.stages[fullest]) or 0.0
    where = f" on stage {fullest + 1}" if len(plan.stages) > 1 else ""
    text = f"{format_bytes(plan.stages[fullest].memory)} of {format_bytes(capacity)}{where}"
    likely = plan.fit_probability
    # Candidates of a profile state their bytes.
    return text if likely is None or "profile" in plan.problem else f"{text}, {likely:.0%} likely to fit"


def _training(whole: Mapping[str, Any]) -> list[tuple[str, str]]:
    """`summary.training` for people: what the whole training takes and costs, as names and figures."""
    steps = "1 step" if whole["steps"] == 1 else f"{whole['steps']:,} steps"
    time = f"{format_seconds(whole['time'])} for {format_tokens(whole['tokens'])} tokens in {steps}"
    if "low" in whole:
        time += f" ({format_seconds(whole['low'])} to {format_seconds(whole['high'])})"
    rows = [("time to train", time), ("device hours", f"{whole['device_hours']:,.0f}")]
    if "cost" in whole:
        cost = f"{whole['cost']:,.0f}"
        if "cost_low" in whole:
            cost += f" ({whole['cost_low']:,.0f} to {whole['cost_high']:,.0f})"
        rows.append(("cost", f"{cost}, in the currency of cluster.price"))
    return rows


def format_tokens(count: int) -> str:
    """A number of tokens as people say it: `15T`, `2.4B`."""
    for factor, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= factor:
            return f"{count / factor:.4g}{letter}"
    return str(count)


def _stages(plan: PlanDocument, screen: Screen) -> str:
    runs = _runs(plan) if len(plan.stages) > MOST_ROWS else [[index] for index in range(len(plan.stages))]
    held = chunks_of_stages(plan)
    rows = [_row(plan, [plan.stages[index] for index in run], _devices(plan, run)) for run in runs]
    for run, row in zip(runs, rows, strict=True):
        row[:0] = [_numbers(run), chunk_ranges([held[index] for index in run])]
    header = [
        "stage", "layers", "devices", "recompute", "ZeRO", "time", "sync", "memory", "of capacity", "link behind",
    ]  # fmt: skip
    pooled = any(stage.pool is not None for stage in plan.stages)
    for column in ("candidate",) * is_mixed(plan) + ("pool",) * pooled:
        header.insert(2, column)
        for run, row in zip(runs, rows, strict=True):
            row.insert(2, str(getattr(plan.stages[run[0]], column)))
    first, memory = header.index("ZeRO"), header.index("memory")
    full = [index for index, run in enumerate(runs) if any(_is_overfull(plan, plan.stages[each]) for each in run)]
    tones = {(index, column): Tone.BAD for index in full for column in (memory, memory + 1)}
    return table(header, rows, range(first, first + 5), screen, tones)


def _is_overfull(plan: PlanDocument, stage: StageRecord) -> bool:
    capacity = _capacity(plan, stage)
    return bool(capacity) and stage.memory > (capacity or 0.0)


def _runs(plan: PlanDocument) -> list[list[int]]:
    """Neighbouring stages with as many layers of the same kinds and the same choices, as lists of indices."""
    keys = [
        (
            tuple(tuple(name.rpartition(".")[0] or name for name in chunk) for chunk in chunks),
            stage.candidate,
            stage.recompute,
            stage.zero,
        )
        for stage, chunks in zip(plan.stages, chunks_of_stages(plan), strict=True)
    ]
    return [list(run) for _, run in groupby(range(len(keys)), key=keys.__getitem__)]


def _devices(plan: PlanDocument, run: list[int]) -> str:
    """The first and the last device of neighbouring stages in the first replica; on a network by name."""
    if plan.placement is not None:
        blocks = plan.placement.replicas[0]
        names = [name for index in run for name in blocks[index]]
        return ", ".join(names) if len(names) <= FEW_NAMES else f"{names[0]}, ..., {names[-1]}"
    stages = [plan.stages[index] for index in run]
    first, last = stages[0].devices[0], stages[-1].devices[0] + stages[-1].devices[1] - 1
    return f"{first}-{last}" if last > first else str(first)


def _row(plan: PlanDocument, stages: list[StageRecord], devices: str) -> list[str]:
    """The cells behind numbers and layers."""
    links = dict.fromkeys(level_name(plan.summary, stage.pool, stage.level_out) for stage in stages)
    shares = [stage.memory / (_capacity(plan, stage) or 1.0) for stage in stages]
    return [
        devices,
        stages[0].recompute,
        str(stages[0].zero),
        _span([stage.time for stage in stages], format_seconds),
        _span([stage.sync_time for stage in stages], format_seconds),
        _span([stage.memory for stage in stages], format_bytes),
        _span(shares, lambda share: f"{share:.1%}") if _capacity(plan, stages[0]) else "",
        ", ".join(links),
    ]


def _numbers(run: Sequence[int]) -> str:
    """The stages of a run, counted from 1."""
    return f"{run[0] + 1}-{run[-1] + 1}" if len(run) > 1 else str(run[0] + 1)


def _span(values: list[float], formatted: Callable[[float], str]) -> str:
    """One value, or the least and the greatest of several."""
    least, most = formatted(min(values)), formatted(max(values))
    return least if least == most else f"{least} to {most}"


def _memory(plan: PlanDocument, screen: Screen) -> str:
    """What memory is made of: a row for each stage, of many one for neighbours with the same memory.

    Parts that no stage has are left out. "": plans of older versions do not say.
    """
    stages = plan.stages
    parts = {index: asdict(stage.memory_breakdown) for index, stage in enumerate(stages) if stage.memory_breakdown}
    if not parts:
        return ""
    runs = [[index] for index in parts]
    if len(parts) > MOST_ROWS:
        runs = [list(run) for _, run in groupby(parts, key=lambda index: format_bytes(stages[index].memory))]
    names = [name for name in next(iter(parts.values())) if any(each[name] > 0 for each in parts.values())]
    rows: list[list[str]] = []
    tones: dict[tuple[int, int], Tone] = {}
    for run in runs:
        stage = stages[run[0]]
        sizes = [*(parts[run[0]][name] for name in names), stage.memory, upper_memory(stage)]
        for column in (len(sizes) - 1, len(sizes)):
            if (capacity := _capacity(plan, stage)) is not None and sizes[column - 1] > capacity:
                tones[len(rows), column] = Tone.BAD
        rows.append([_numbers(run), *map(format_bytes, sizes)])
    header = ["stage", *(MEMORY_NAMES.get(name, name) for name in names), "memory", "taken to need"]
    return table(header, rows, range(1, len(header)), screen, tones)


def _shares(shares: dict[str, Any], batch_time: float) -> str:
    if batch_time <= 0:
        return ""
    parts = [
        f"{SHARE_NAMES.get(name, name)} {seconds / batch_time:.1%}"
        for name, seconds in shares.items()
        if abs(seconds) > 5e-4 * batch_time
    ]
    return "Step time: " + ", ".join(parts)


_TONES = {"proved": Tone.GOOD, "refuted": Tone.BAD, "open": Tone.FAIR}


class Verdict(NamedTuple):
    """The answer of `nest verify`.

    Attributes:
        verification: what a plan document states under `verification`.
        batch_time: seconds of the plan that was to be proved; None when it says that there is none.
        better: the best plan found, when refuted.
    """

    verification: dict[str, Any]
    batch_time: float | None
    better: PlanDocument | None = None

    @property
    def status(self) -> str:
        """`proved`, `refuted` or `open`."""
        return str(self.verification["status"])

    def to_dict(self) -> dict[str, Any]:
        """The verdict as plain mappings, lists and numbers."""
        better = None if self.better is None else self.better.to_dict()
        return {**self.verification, "batch_time": self.batch_time, "better": better}


def verdict_text(verification: Mapping[str, Any], screen: Screen = WIDE) -> str:
    """A proof's summary in sentences, fitted to a screen."""
    bound, better = verification["bound"], verification["better_batch_time"]
    effort = (
        f"CP-SAT of OR-Tools {verification['version']}: {verification['models']} models; bounds settled "
        f"{verification['pruned']} of {verification['cases']} cases; {verification['seconds']:.1f} s."
    )
    if verification["status"] == "proved":
        sentence = (
            "Proved: there is no plan."
            if bound is None
            else f"Proved: no plan is better by more than {verification['tolerance']:g} of the step time."
        )
    elif verification["status"] == "refuted":
        sentence = f"Refuted: a better plan takes {format_seconds(better)}."
        if verification["gap"] is not None and verification["gap"] <= 2 * verification["tolerance"]:
            sentence += f" No plan is better than that by more than {verification['tolerance']:g} of it."
    else:
        sentence = f"Open: {verification['reason']}."
        if verification["gap"] is not None:
            sentence += f" No plan takes less than {format_seconds(bound)}; the gap is {verification['gap']:.3%}."
    begin, _, rest = sentence.partition(":")
    lines = [opening(f"{begin}:", _TONES[verification["status"]], rest, screen), paragraph(effort, screen)]
    if verification.get("free") is not None:
        lines.insert(1, paragraph(_free(verification["free"]), screen))
    if verification.get("certificate") is not None:
        lines.append(paragraph(certificate_text(verification["certificate"]), screen))
    return "\n".join(lines)


def certificate_text(certificate: Mapping[str, Any]) -> str:
    """What a schedule's certificate says (`nest.plan.certificate.Certificate.to_dict`)."""
    name, stages = f"the schedule {certificate['schedule']!r}", certificate["stages"]
    if not certificate["computed"]:
        return f"Not replayed: {certificate['reason']}; what {name} says of times and memory is taken as it is."
    return (
        f"Replayed: M = {certificate['micro_batches']}, the step time of equal stages "
        f"({certificate['equal_stages']:.10g} times one's) and the micro-batches in flight in {stages} "
        f"stage{'s' * (stages != 1)} follow from the order of {name}."
    )


def _free(free: Mapping[str, Any]) -> str:
    """What keeping blocks in pipeline order costs."""
    if free["status"] == "proved":
        return "Blocks in pipeline order cost nothing: no plan with blocks anywhere, in any order, is better."
    if free["status"] == "refuted":
        least = "" if free["settled"] else "at least "
        time = format_seconds(free["better_batch_time"])
        return f"Blocks in pipeline order cost {least}{free['cost']:.3%}: with blocks anywhere a plan takes {time}."
    return f"What blocks in pipeline order cost is open: {free['reason']}."
