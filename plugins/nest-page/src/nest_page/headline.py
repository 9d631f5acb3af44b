"""Subject, quality and decisions of a plan: in figures, and in the words of an engineer."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from nest.errors import InputError
from nest.hooks.registry import Registry
from nest.instance import Cluster, recompute_words
from nest.io import structure
from nest.public.layout import Tone
from nest.public.planning import load_model, overlap_words
from nest.public.text import (
    UNCALIBRATED,
    chosen_as,
    counted,
    layers_of,
    layout_text,
    memory_verdict,
    near_enough,
    time_shares,
)
from nest.spec import Overlap, PlanDocument, Problem
from nest.spec.problem import NO_TARGET
from nest.units import format_bytes, format_seconds, likelihood, listed, percent
from nest_page.records import Cell, Fact, PlanStatus, Section, Subject

SECONDS_PER_DAY = 86400


def headline(subject: Subject) -> Section:
    """The plan in words, and the figures that stand out."""
    plan = subject.plan
    decided = f"In short: {layout_text(plan)}."
    facts = tuple(_facts(subject))
    return Section("headline", "The plan", lead=plan_in_words(subject), paragraphs=(decided,), facts=facts)


def _facts(subject: Subject) -> Iterator[Fact]:
    """The figures, those that people decide by first."""
    plan, summary, batch_time = subject.plan, subject.summary, subject.batch_time
    span = plan.batch_time_range
    between = f"{_between(span.low, span.high)}, {percent(span.probability, 0)} likely" if span is not None else ""
    between += UNCALIBRATED if plan.uncalibrated else ""
    yield Fact("Step time", Cell.seconds(batch_time), between)
    if "model_flops_utilisation" in summary:
        yield Fact("Model FLOP utilisation (MFU)", Cell.share(summary["model_flops_utilisation"]))
    yield from _training(summary.get("training"))
    if cost := summary.get("cost"):
        egress = f"{percent(cost['egress'] / cost['step'])} of it between zones" if cost.get("egress") else ""
        yield Fact("Cost of a step", Cell(f"{cost['step']:.4g}", cost["step"]), egress)
    if trained := summary.get("trained"):
        yield Fact("Trained", Cell(f"{in_words(trained['parameters'])} parameters"), trained["what"])
    if coverage := summary.get("coverage"):
        own = f"{percent(coverage['at_its_sizes'])} at their own sizes, the rest at the nearest, scaled"
        yield Fact("Operator times measured", Cell.share(coverage["measured"]), own)
    if plan.throughput is not None:
        yield Fact("Throughput", Cell(f"{plan.throughput:.4g} samples/s", plan.throughput))
    if "tokens_per_second" in summary:
        each = summary["tokens_per_second_per_device"]
        a_day = f"{in_words(summary['tokens_per_second'] * SECONDS_PER_DAY)} a day in all"
        yield Fact("Tokens per second and device", Cell(f"{each:,.0f}", each), a_day)
    if "samples_per_second_per_device" in summary:
        each = summary["samples_per_second_per_device"]
        yield Fact("Samples per second and device", Cell(f"{each:,.4g}", each))
    fullest = max(stage.memory for stage in plan.stages)
    likely = "" if plan.fit_probability is None else f"{likelihood(plan.fit_probability)} likely to fit"
    memory = f"{format_bytes(fullest)} of {format_bytes(subject.priced.device_memory)}"
    yield Fact("Memory of the fullest stage", Cell(memory, fullest), likely)
    used = summary["devices_used"]
    yield Fact("Devices used", Cell(f"{used:,} of {summary['devices']:,}", float(used)))
    bubble = max(time_shares(subject.priced)["bubble"], 0.0) / batch_time if batch_time else 0.0
    yield Fact("Idle, average of stages", Cell.share(summary["idle_share"]), f"pipeline bubble {percent(bubble)}")


def _training(whole: Mapping[str, Any] | None) -> Iterator[Fact]:
    """Time and cost of the whole training, where the problem says how many tokens it takes."""
    if whole is None:
        return
    tokens, hours = f"{in_words(whole['tokens'])} tokens", whole["device_hours"]
    between = f"{_between(whole['low'], whole['high'])}; " if whole.get("low") is not None else ""
    yield Fact("Time to train", Cell.seconds(whole["time"]), f"{between}{tokens}")
    if whole.get("cost") is None:
        yield Fact("Device hours to train", Cell(in_words(hours), hours), tokens)
        return
    least, most = whole.get("cost_low"), whole.get("cost_high")
    between = f"{in_words(least)} to {in_words(most)}; " if least is not None and most is not None else ""
    cost = Cell(in_words(whole["cost"]), whole["cost"])
    yield Fact("Cost to train", cost, f"{between}{in_words(hours)} device hours")


def _between(low: float, high: float) -> str:
    return f"{format_seconds(low)} to {format_seconds(high)}"


def plan_status(plan: PlanDocument) -> PlanStatus:
    """The status of a plan and what is proved of it."""
    if plan.status == "infeasible":
        return PlanStatus("Infeasible", "bad", "No plan of this problem fits.")
    if plan.lower_bound is None:
        return PlanStatus("As given", "poor", "nest predicted this plan, and searched for no other.")
    status = ("Feasible", "poor")
    if plan.status == "optimal":
        target = plan.problem.get("search", {}).get("target")
        whose = "of this problem" if target in (None, NO_TARGET) else f"that {target} can run"
        status, proof = ("Optimal", "good"), f"No plan {whose} is faster."
    elif not plan.lower_bound:
        proof = "The search was stopped; a faster plan may exist."
    else:
        gap = (plan.batch_time or 0.0) / plan.lower_bound - 1
        proof = f"Lower bound {format_seconds(plan.lower_bound)}, gap {percent(gap)}."
    if plan.status == "near-optimal":
        status = (f"{chosen_as(plan)} within {near_enough(plan)}", "good")
    return PlanStatus(*status, f"{proof} {_verified(plan)}".strip())


STYLES = {Tone.GOOD: "good", Tone.FAIR: "poor", Tone.BAD: "bad"}


def statuses(plan: PlanDocument) -> tuple[PlanStatus, ...]:
    """The status of a plan, and whether its fullest stage fits into memory."""
    if plan.status == "infeasible":
        return (plan_status(plan),)
    verdict, tone, memory = memory_verdict(plan)
    fits = PlanStatus(verdict.capitalize(), STYLES[tone], f"Memory{memory}.")
    return (plan_status(plan), *([fits] if verdict else []))


def about(plan: PlanDocument) -> tuple[tuple[str, str], ...]:
    """The command that gives this plan, and its assumptions, in sentences."""
    verify = " --verify" if plan.verification is not None else ""
    if plan.lower_bound is None and plan.status != "infeasible":
        command = "`nest evaluate problem.json --output PLAN`"
    else:
        command = f"`nest solve problem.json{verify} --output PLAN`"
    return ("Command", f"{command}, for the problem at the end of this page."), (
        "Assumptions",
        " ".join(_assumed(plan)),
    )


def _assumed(plan: PlanDocument) -> Iterator[str]:
    problem, training = plan.problem, plan.problem["training"]
    if problem.get("profile") is not None:
        yield "Times and memory of layers come from the profile."
    else:
        overlap = structure(training.get("overlap") or {}, Overlap)
        schedules = overlap.pipeline if isinstance(overlap.pipeline, tuple) else ()
        software = f"{training['stack']}: " if training.get("stack") else ""
        yield f"{software}{overlap_words(overlap, schedules)}."
        yield f"Precision {training.get('precision', 'bf16')}, optimizer {training.get('optimizer', 'adam')}."
    if reserve := problem["cluster"].get("reserve"):
        yield f"{format_bytes(reserve)} of each device stays free."
    restricted = [
        f"{name} {listed([str(each) for each in values])}" for name, values in (problem.get("strategies") or {}).items()
    ]
    if only := [*problem.get("constraints", ()), *restricted]:
        yield f"Only plans with {', '.join(f'`{each}`' for each in only)}."
    if plan.uncalibrated:
        yield "No measured runs calibrate this device."


def _verified(plan: PlanDocument) -> str:
    """Put the verdict of the second solver into words."""
    verdict = plan.verification
    if verdict is None:
        return ""
    solver = verdict.get("solver", "a second solver")
    return {
        "proved": f"Proved a second time by {solver}.",
        "refuted": f"{solver} found it while proving another plan.",
        "open": f"{solver} did not prove it: {verdict.get('reason') or 'no reason given'}.",
    }.get(str(verdict.get("status")), "")


PARALLELISM = {"tp": "tensor", "sp": "sequence", "cp": "context", "ep": "expert", "etp": "expert-tensor"}
"""Kinds of parallelism by their degree; others are called by their name."""

SHARDED = {
    0: "Every data-parallel rank holds the whole optimizer state (ZeRO 0)",
    1: "The optimizer state is sharded over data-parallel ranks (ZeRO 1)",
    2: "Optimizer state and gradients are sharded over data-parallel ranks (ZeRO 2)",
    3: "Weights, gradients and optimizer state are sharded over data-parallel ranks (ZeRO 3)",
}

RECOMPUTED = {"none": "nothing is recomputed", "full": "every layer is recomputed in the backward pass"}

_NUMBERED = re.compile(r"\.[0-9]+$")


def plan_in_words(subject: Subject) -> str:
    """Describe the division of work and the saving of memory, in two sentences."""
    plan = subject.plan
    pipeline = _pipeline(plan)
    parts = [_inside(subject), *([pipeline] if pipeline else []), _replicas(plan)]
    divided = "; ".join(parts)
    return f"{divided[0].upper()}{divided[1:]}. {_saved(plan)}."


def choices(each: Sequence[str]) -> str:
    """Name the choice of all stages, or each choice with its number of stages."""
    counts = Counter(each)
    return (
        each[0]
        if len(counts) == 1
        else ", ".join(f"{choice} on {count}" for choice, count in counts.items()) + " stages"
    )


def _inside(subject: Subject) -> str:
    """Describe the work of the devices of one stage, and their distance."""
    plan = subject.plan
    assert plan.candidate is not None
    used = dict.fromkeys(stage.candidate for stage in plan.stages)
    if len(used) > 1:
        return f"stages use {len(used)} kinds of parallelism ({', '.join(used)})"
    kinds: dict[int, list[str]] = {}
    for name, degree in plan.candidate.degrees.items():
        if degree > 1 and not (name == "sp" and degree == plan.candidate.degrees.get("tp")):
            kinds.setdefault(degree, []).append(PARALLELISM.get(name, name))
    degrees = [f"{listed(names)} parallelism {degree}" for degree, names in kinds.items()]
    if not degrees:
        width = plan.candidate.width
        return "one device for each stage" if width == 1 else f"{width} devices for each stage"
    cluster = subject.instance.cluster_of(subject.solution.stages[0].candidate)
    levels, names = cluster.capacities, [level.name for level in cluster.levels]
    around = next((name for name, size in zip(names, levels, strict=True) if size >= plan.candidate.width), None)
    near = f" inside a {around}" if around and plan.placement is None else ""
    return listed(degrees) + near


def _pipeline(plan: PlanDocument) -> str:
    """Count stages and their layers; empty for a single stage."""
    if len(plan.stages) == 1:
        return ""
    blocks = [sum(_NUMBERED.search(layer) is not None for layer in stage.layers) for stage in plan.stages]
    counts = blocks if all(blocks) else [len(stage.layers) for stage in plan.stages]
    least, most = min(counts), max(counts)
    layers = f"{counted(most, 'layer')} each" if least == most else f"{least} to {most} layers"
    chunks = f" of {plan.chunks} chunks" if (plan.chunks or 1) > 1 else ""
    return f"{len(plan.stages)} pipeline stages of {layers}, schedule {plan.schedule}{chunks}"


def _replicas(plan: PlanDocument) -> str:
    assert plan.candidate is not None
    size = plan.candidate.micro_batch or plan.candidate.samples
    batch = f"{counted(plan.micro_batches or 0, 'micro-batch', 'es')} of {counted(size, 'sample')}"
    count = plan.data_parallel or 1
    return f"{count:,} replicas of {batch} each" if count > 1 else f"a single replica, {batch}"


def _saved(plan: PlanDocument) -> str:
    """Name what is sharded over data-parallel ranks, and what is recomputed."""
    zero = {stage.zero for stage in plan.stages}
    sharded = SHARDED[zero.pop()] if len(zero) == 1 else f"ZeRO {choices([str(stage.zero) for stage in plan.stages])}"
    groups = f", in groups of {plan.zero_degree}" if plan.zero_degree is not None else ""
    modes = choices([recompute_words(stage.recompute_name) for stage in plan.stages])
    return f"{sharded}{groups}; {RECOMPUTED.get(modes, f'recomputation: {modes}')}"


def model_size(problem: Problem, known: Registry) -> str:
    """Size of the model, as far as the problem says: `80 layers, 70.6 billion parameters`."""
    model = problem.to_dict().get("model")
    layers = layers_of(model) if isinstance(model, Mapping) else ""
    return ", ".join([*([layers] if layers else []), *_parameters(problem, known)])


def cluster_size(problem: Problem, cluster: Cluster) -> str:
    """The cluster level by level, `4 racks of 4 nodes of 8 devices`; empty: its network has no levels of its own."""
    if problem.cluster.topology is not None:
        return ""
    named = f"{problem.cluster.name}: " if problem.cluster.name else ""
    return named + levels_in_words(cluster)


def levels_in_words(cluster: Cluster) -> str:
    """`4 racks of 4 nodes of 8 devices`."""
    sizes = ["1 device" if cluster.levels[0].fanout == 1 else f"{cluster.levels[0].fanout} devices"]
    for inside, level in pairwise(cluster.levels):
        what = "group" if inside.name.startswith("level ") else inside.name
        sizes.insert(0, f"{level.fanout:,} {what}{'s' * (level.fanout != 1)}")
    return " of ".join(sizes)


def batch_size(problem: Problem) -> str:
    """Samples of a step: `1,024 samples of 8,192 tokens a step`."""
    training = problem.training
    tokens = f" of {training.sequence_length:,} tokens" if training.sequence_length and problem.model else ""
    return f"{training.global_batch:,} {'sample' if training.global_batch == 1 else 'samples'}{tokens} a step"


def _parameters(problem: Problem, known: Registry) -> tuple[str, ...]:
    """Parameters of the model, tied ones counted once; None if the model cannot be read here."""
    if problem.model is None:
        return ()
    try:
        graph = load_model(problem.model, problem.training, known)
    except InputError:  # Of a plan that says that nothing is feasible, all is shown that there is.
        return ()
    return (f"{in_words(graph.parameter_count)} parameters",)


def in_words(value: float) -> str:
    """A large number in words: `70.6 billion`."""
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{value / size:.3g} {word}"
    return f"{value:,.0f}"
