"""Limits of frameworks, as data, and their violations by plans, in words."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import field, frozen

from nest.deployment.deployment import BLOCK, ENDS, Deployment, deployment, measured_candidate, unpooled_name
from nest.instance import recompute_words
from nest.records import Record
from nest.spec import PlanDocument, StageRecord
from nest.spec.constraints import Constraint, Value, parse
from nest.spec.problem import OFFLOAD

if TYPE_CHECKING:
    from fractions import Fraction


@frozen(eq=False, repr=False)
class Limits(Record):
    """Limits of a framework; omitted ones do not apply.

    Attributes:
        strategies: names of supported strategies; others keep degree 1. None: any.
        schedules: names of supported pipeline schedules; None: any.
        zero: supported ZeRO stages.
        recompute: supported recompute modes; None: any.
        partial_recompute: supported pairs of recompute modes: for the first blocks of a stage and, lighter, for the
            others.
        offload: what it can keep in the host's memory (`training.offload`).
        rank_orders: supported rank orders; None: any.
        zero_degrees: whether ZeRO may shard over fewer ranks than hold the same parameters.
        mixed: whether stages may differ in their candidates.
        even_stages: whether stages must have equal numbers of transformer blocks, with the embedding in the first and
            the head in the last; without transformer blocks, of layers.
        all_devices: whether it must use every device of the cluster.
        trainable: whether it can train a part of the model only (`training.trainable`).
        stored: formats of frozen weights that its files can name (`training.trainable.stored`).
        usual_zero: ZeRO stage of its own recipes; None: the first that a problem lists.
        usual_rank_order: its default rank order; None: `dp-inner`, the most common.
        constraints: expressions of docs/reference/constraints.md that its plans satisfy, each with the reason: a clause
            after "because", such as "Megatron-LM has one recompute policy for all stages". Layers of `same_stage` that
            a model lacks are ignored.
    """

    strategies: tuple[str, ...] | None = None
    schedules: tuple[str, ...] | None = None
    zero: tuple[int, ...] = (0, 1, 2, 3)
    recompute: tuple[str, ...] | None = None
    partial_recompute: tuple[tuple[str, str], ...] = ()
    offload: tuple[str, ...] = ()
    rank_orders: tuple[str, ...] | None = None
    zero_degrees: bool = False
    mixed: bool = False
    even_stages: bool = False
    all_devices: bool = False
    trainable: bool = False
    stored: tuple[str, ...] = ()
    usual_zero: int | None = None
    usual_rank_order: str | None = None
    constraints: Mapping[str, str] = field(factory=dict)


DEGREE = re.compile(r"(?:^|-)(.*?\D)(\d+)(?=-|$)")
"""A degree in the name of a model's candidate, such as `tp8` in `tp8-sp8-mb1` (docs/reference/plan.md)."""


def violations(plan: PlanDocument, limits: Limits, target: str) -> list[str]:
    """List the limits that the plan exceeds, a sentence each without its full stop; empty: `target` can run it.

    Args:
        plan: feasible.
        limits: of the framework.
        target: its name in sentences.

    Raises:
        InputError: the plan is infeasible, or a constraint of the limits is invalid or cannot be computed.
    """
    shape = deployment(plan)
    return [
        *_strategies(plan, limits, target),
        *_choices(plan, shape, limits, target),
        *_stages(plan, shape, limits, target),
        *_constraints(plan, shape, limits),
    ]


def _strategies(plan: PlanDocument, limits: Limits, target: str) -> Iterator[str]:
    if limits.strategies is None:
        return
    used: dict[str, list[int]] = defaultdict(list)
    for stage in plan.stages:
        for name, degree in degrees_of(plan, stage).items():
            if degree > 1 and name not in limits.strategies:
                used[name].append(degree)
    for name, degrees in used.items():
        yield f"{name!r} has degree {_listed(degrees)}, but {target} has {_known(limits.strategies)}"


def _choices(plan: PlanDocument, shape: Deployment, limits: Limits, target: str) -> Iterator[str]:
    """Violations of lists of choices."""
    if limits.schedules is not None and shape.schedule not in limits.schedules:
        yield f"the pipeline schedule is {shape.schedule!r}, but {target} has {_known(limits.schedules)}"
    if limits.rank_orders is not None and shape.rank_order not in limits.rank_orders:
        yield f"the rank order is {shape.rank_order!r}, but {target} has {_known(limits.rank_orders)}"
    for stage in dict.fromkeys(shape.zero):
        if stage not in limits.zero:
            yield f"ZeRO stage {stage} is used, but {target} has {_known(limits.zero)}"
    for mode in dict.fromkeys(shape.recompute):
        if mode == OFFLOAD:
            if "activations" not in limits.offload:
                yield f"the plan offloads activations, which {target} does not support"
        elif limits.recompute is not None and mode not in limits.recompute:
            yield f"recompute mode {mode!r} is used, but {target} has {_known(limits.recompute)}"
    yield from _parts(plan, limits, target)
    # What ZeRO shards over matters only where it shards; more ranks than hold the same parameters are all of them.
    within = shape.zero_degree is not None and shape.zero_degree < shape.data_parallel * shape.cp
    if within and not limits.zero_degrees and any(shape.zero):
        yield (
            f"ZeRO shards over {shape.zero_degree} ranks (zero_degree), but {target} shards over all data-parallel "
            "ranks"
        )
    trainable = plan.problem["training"].get("trainable")
    if not limits.trainable and trainable not in (None, "all", ["all"]):
        yield f"part of the model is frozen (training.trainable), but {target} trains all of it"
    stored = trainable.get("stored") if isinstance(trainable, Mapping) else None
    if stored is not None and stored not in limits.stored:
        yield f"frozen weights are in {stored}, but {target} has {_known(limits.stored)}"
    if "optimizer" in (plan.problem["training"].get("offload") or ()) and "optimizer" not in limits.offload:
        yield f"training.offload keeps the optimizer state on the host, which {target} does not support"


def _parts(plan: PlanDocument, limits: Limits, target: str) -> Iterator[str]:
    """Violations by partial recomputation, the first of each pair of modes."""
    partial = [(number, each) for number, each in enumerate(plan.stages, 1) if each.recompute_layers is not None]
    firsts = {(each.recompute, each.recompute_rest): (number, each) for number, each in reversed(partial)}
    for (mode, rest), (number, stage) in reversed(firsts.items()):
        each = f"stage {number} recomputes {stage.recompute_layers} of its blocks"
        if not limits.partial_recompute:
            yield f"{each}, but {target} recomputes all or none"
        elif (mode, rest) not in limits.partial_recompute:
            pairs = _listed(f"{one!r} beside {other!r}" for one, other in limits.partial_recompute)
            yield f"{each} ({mode!r} beside {rest!r}), but {target} has {pairs} only"


def _stages(plan: PlanDocument, shape: Deployment, limits: Limits, target: str) -> Iterator[str]:
    if shape.mixed and not limits.mixed:
        names = _listed(stage.candidate for stage in plan.stages)
        yield f"stages differ in their parallelism ({names}), but {target} needs equal stages"
    if limits.even_stages:
        counts = [_counted(stage) for stage in plan.stages]
        rule = f"but {target} needs equally many transformer blocks per stage"
        if len(set(counts)) > 1:
            yield f"the stages hold {', '.join(map(str, counts))} transformer blocks, {rule}"
        for name, index in zip(ENDS, (0, -1), strict=True):
            if any(name in stage.layers for stage in plan.stages) and name not in plan.stages[index].layers:
                end = "first" if index == 0 else "last"
                yield f"layer {name!r} is not on the {end} stage, {rule}, the {name} with the {end}"
    used = (plan.data_parallel or 1) * sum(stage.devices[1] for stage in plan.stages)
    if limits.all_devices and used != plan.summary["devices"]:
        yield f"{used} of {plan.summary['devices']} devices are used, but {target} uses all devices of a cluster"


def _counted(stage: StageRecord) -> int:
    """Blocks of a stage: its layers without the ends, operators of one layer counted once."""
    return len({name.partition("/")[0] for name in stage.layers} - set(ENDS))


def _constraints(plan: PlanDocument, shape: Deployment, limits: Limits) -> Iterator[str]:
    # Stages that are split and choose alike have the same values.
    apart = {(each.candidate, each.pool, each.devices[1], each.zero, each.recompute_name): each for each in plan.stages}
    values = [_values(plan, shape, stage) for stage in apart.values()] if limits.constraints else []
    for text, reason in limits.constraints.items():
        constraint = parse(text)
        if not _holds(constraint, plan, values):
            condition = f" (`{constraint.text}`)" if constraint.expression is not None else ""
            yield f"{_actual(constraint, plan, values)}, but {reason}{condition}"


def _holds(constraint: Constraint, plan: PlanDocument, values: Sequence[Mapping[str, Value]]) -> bool:
    if constraint.same_stage:
        return len(homes(constraint, plan)) <= 1
    if constraint.uniform is not None:
        return len({_decided(stage, constraint.uniform) for stage in plan.stages}) == 1
    return all(constraint.holds(each) for each in values)


def homes(constraint: Constraint, plan: PlanDocument) -> set[int]:
    """Stages with layers that a constraint wants on one stage."""
    wanted = set(constraint.same_stage)
    return {
        index
        for index, stage in enumerate(plan.stages)
        if any(name in wanted or name.partition("/")[0] in wanted for name in stage.layers)
    }


def _actual(constraint: Constraint, plan: PlanDocument, values: Sequence[Mapping[str, Value]]) -> str:
    """The plan's value instead of the constraint's."""
    if constraint.same_stage:
        return f"layers {_listed(constraint.same_stage)} are on several stages"
    if constraint.uniform is not None:
        what = {"zero": "ZeRO stage", "recompute": "recompute mode"}.get(constraint.uniform, constraint.uniform)
        return f"stages differ in their {what} ({_listed(_decided(each, constraint.uniform) for each in plan.stages)})"
    broken = next(each for each in values if not constraint.holds(each))
    return ", ".join(f"{name} is {broken[name]}" for name in sorted(constraint.names()))


def _decided(stage: StageRecord, name: str) -> object:
    return recompute_words(stage.recompute_name) if name == "recompute" else getattr(stage, name)


def degrees_of(plan: PlanDocument, stage: StageRecord) -> Mapping[str, int]:
    """Degrees of a stage's candidate; of mixed plans, from the profile or the candidate's name."""
    assert plan.candidate is not None
    if stage.candidate == plan.candidate.name:
        return plan.candidate.degrees
    measured = measured_candidate(plan, stage)
    if measured is not None:
        degrees: Mapping[str, int] = measured["degrees"]
        return degrees
    return {name: int(degree) for name, degree in DEGREE.findall(unpooled_name(stage)) if name != "mb"}


def _copies(plan: PlanDocument, stage: StageRecord, inside: "Fraction") -> "Fraction":
    """Ranks of a stage's block with different samples; by default, all `inside` it."""
    from fractions import Fraction

    assert plan.candidate is not None
    samples, measured = plan.candidate.samples, measured_candidate(plan, stage)
    if measured is not None:
        said = measured.get("micro_batch")
        return inside if said is None else Fraction(samples, said)
    if stage.candidate == plan.candidate.name:
        return Fraction(samples, plan.candidate.micro_batch or samples)
    named = next((int(size) for name, size in DEGREE.findall(unpooled_name(stage)) if name == "mb"), samples)
    return Fraction(samples, named)


def _values(plan: PlanDocument, shape: Deployment, stage: StageRecord) -> dict[str, Value]:
    """Value of every constraint name for one stage (docs/reference/constraints.md)."""
    from fractions import Fraction

    degrees, width = degrees_of(plan, stage), stage.devices[1]
    inside = Fraction(width, degrees.get("tp", 1) * degrees.get("cp", 1))
    data_parallel, ranks = (
        each.numerator if each.denominator == 1 else float(each)
        for each in (shape.replicas * _copies(plan, stage, inside), shape.replicas * inside)
    )
    values: dict[str, Value] = defaultdict(lambda: 1)
    values.update(degrees)
    values.update(
        pp=shape.stages,
        dp=data_parallel,
        zero_degree=ranks if shape.zero_degree is None else shape.zero_degree,
        replicas=shape.replicas,
        micro_batch=shape.micro_batch,
        micro_batches=shape.micro_batches,
        devices=shape.replicas * sum(each.devices[1] for each in plan.stages),
        width=width,
        rank_order=shape.rank_order,
        schedule=shape.schedule,
        chunks=shape.chunks,
        zero=stage.zero,
        recompute=stage.recompute,
        recompute_layers=_recomputed_blocks(plan, stage),
    )
    return values


def _recomputed_blocks(plan: PlanDocument, stage: StageRecord) -> int:
    if stage.recompute_layers is not None or stage.recompute == "none":
        return stage.recompute_layers or 0
    names = {name.partition("/")[0] for each in plan.stages for name in each.layers}
    return sum(BLOCK.fullmatch(name) is not None for name in names) or len(names)


def _known(names: Iterable[object]) -> str:
    names_text = [repr(name) if isinstance(name, str) else name for name in names]
    return f"{_listed(names_text)} only" if names_text else "none"


def _listed(names: Iterable[object]) -> str:
    return ", ".join(str(name) for name in dict.fromkeys(names))
