"""What the time of a plan is made of: operators of each layer, collectives inside layers, and how much was measured."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from attrs import frozen

from nest.errors import InputError
from nest.formulate.formulation import Formulation
from nest.formulate.operator_costs import Direction, PricedLayer, PricedOperator, Timing
from nest.formulate.pricing import Pricing, priced_layers
from nest.formulate.recompute import recompute_modes
from nest.graph import Block
from nest.hooks.protocols import MeasuredOperator
from nest.hooks.registry import Registry
from nest.instance import Instance, Solution, recompute_words
from nest.plan.evaluate import PricedPlan
from nest.spec import Problem


@frozen
class LayerBreakdown:
    """One class of layers.

    Attributes:
        rows: its operators, priced.
        again: names of those that run again in the plan's recompute mode.
    """

    rows: tuple[PricedOperator, ...]
    again: frozenset[str]


@frozen(eq=False, repr=False)
class CostBreakdown:
    """A decided plan and what it is made of.

    Attributes:
        problem: whose plan it is.
        instance: of it.
        solution: its decisions.
        pricing: what priced the operators.
        layers: one of each class.
        stages: for each stage, in pipeline order, how many layers of each class it has.
    """

    problem: Problem
    instance: Instance
    solution: Solution
    pricing: Pricing
    layers: tuple[LayerBreakdown, ...]
    stages: tuple[Counter[int], ...]


def breakdown(problem: Problem, known: Registry) -> CostBreakdown:
    """The plan that `problem.fixed` describes, taken apart.

    Raises:
        InputError: the decisions do not make a plan, or the problem has no model to take apart.
    """
    if problem.model is None:
        raise InputError("profile: only runs of a `model` can be calibrated to; a profile states its times.")
    if problem.cluster.pools is not None:
        raise InputError("cluster.pools: only runs on devices of one kind can be calibrated to.")
    if problem.search.granularity == "operator":
        raise InputError("search.granularity: calibration takes plans of whole layers; leave it out.")
    from nest.formulate.fixed_plan import decide, evaluation  # Calibration needs it; a search does not.

    instance, formulation = evaluation(problem, known)
    pricing, classes = formulation.pricing, formulation.classes
    assert pricing is not None
    assert classes is not None
    if len(pricing.device.engines) > 1:
        raise InputError(
            f"cluster.device: {pricing.device.name!r} has several engines; only devices with one can be calibrated."
        )
    solution, layers = decide(instance, problem, known), []
    stage = solution.stages[0]
    for priced, repeated in priced_layers(formulation.sharded[stage.candidate], classes, pricing):
        modes = recompute_modes([row.operator for row in priced.rows], problem.training.selected, repeated)
        if stage.recompute not in modes:
            mode = recompute_words(stage.recompute)
            raise InputError(f"fixed.recompute: runs in the mode {mode!r} cannot be calibrated to.")
        again = frozenset(operator.name for operator in modes[stage.recompute].again)
        layers.append(LayerBreakdown(priced.rows, again))
    stages = tuple(Counter(classes.class_of[layer] for layer in each.layers) for each in solution.stages)
    return CostBreakdown(problem, instance, solution, pricing, tuple(layers), stages)


Place = tuple[str, int]
"""The axis whose ranks take part, and the outermost level between them."""


def collectives_inside(formulation: Formulation, solution: Solution, priced: PricedPlan) -> list[dict[str, Any]]:
    """Seconds of a batch that collectives inside layers of a model take on the slowest stage.

    What collectives add to a layer is divided among them in proportion to what a framework does not hide of each, and
    what is more than that, as where a layer takes as long as its collectives, to what it hides. Those that
    recomputation runs again are left out: they are part of `recompute`.

    Returns:
        For each strategy (the axis of its ranks) and the outermost level its ranks span, by name: `seconds` in all, and
        what of them is `shown` and `hidden`.
    """
    block, pricing, layers, counts = _slowest_stage(formulation, solution, priced)
    seconds_by_place: dict[Place, list[float]] = defaultdict(lambda: [0.0, 0.0])
    part = 0
    for layer in layers:
        for rows in layer.parts:
            if counts[part]:
                for place, seconds, exposed in _of_part(layer, rows, block, pricing):
                    seconds_by_place[place][0] += counts[part] * seconds
                    seconds_by_place[place][1] += counts[part] * exposed
            part += 1
    return [
        {
            "strategy": axis,
            "level": pricing.cluster.levels[level].name,
            "seconds": priced.micro_batches * seconds,
            "shown": priced.micro_batches * exposed,
            "hidden": priced.micro_batches * max(seconds - exposed, 0.0),
        }
        for (axis, level), (seconds, exposed) in sorted(seconds_by_place.items())
        if seconds > 0
    ]


def launching(formulation: Formulation, solution: Solution, priced: PricedPlan) -> float | None:
    """Seconds of a batch for which the slowest stage waits for its host to launch kernels; None: it does not.

    What layers that run again wait for is left out: it is part of `recompute`.
    """
    _, pricing, layers, counts = _slowest_stage(formulation, solution, priced)
    waiting, part = 0.0, 0
    for layer in layers:
        seconds = sum(layer.waiting(direction, pricing.timing) for direction in Direction)
        waiting += sum(counts[part + index] for index in range(len(layer.parts))) / len(layer.parts) * seconds
        part += len(layer.parts)
    return priced.micro_batches * waiting if waiting > 0 else None


def _slowest_stage(
    formulation: Formulation, solution: Solution, priced: PricedPlan
) -> tuple[Block, Pricing, list[PricedLayer], Counter[int]]:
    """The slowest stage's block and prices, all layers priced for it, and how many of each class it has."""
    classes = formulation.classes
    assert classes is not None
    slowest = max(range(len(priced.stages)), key=lambda index: priced.stages[index].time)
    stage = solution.stages[slowest]
    block, pricing = formulation.sharded[stage.candidate], formulation.pricing_of(stage.candidate)
    assert pricing is not None
    layers = [layer for layer, _ in priced_layers(block, classes, pricing)]
    return block, pricing, layers, Counter(classes.class_of[layer] for layer in stage.layers)


def _of_part(
    layer: PricedLayer, rows: tuple[PricedOperator, ...], block: Block, pricing: Pricing
) -> Iterator[tuple[Place, float, float]]:
    """Each call of a part of a layer: where, seconds in all, and those exposed."""
    for direction in Direction:
        shares = _exposed_shares(layer, direction, pricing.timing)
        for row in rows:
            made = row.operator.collective
            if made is None:
                continue
            calls = made.forward if direction is Direction.FORWARD else made.backward
            each = [call.count * pricing.call_seconds(call, block) for call in calls]
            exposed, hidden = _parts(row, direction)
            whole = sum(each)
            for call, seconds in zip(calls, each, strict=True):
                share = seconds / whole if whole else 0.0
                level = max((_outermost(shape) for shape in pricing.shapes(call.axis, block)), default=0)
                yield (call.axis, level), seconds, share * (shares[0] * exposed + shares[1] * hidden)


def _parts(row: PricedOperator, direction: Direction) -> tuple[float, float]:
    """Seconds of an operator's collectives that are exposed, and that a framework hides."""
    _, exposed, hidden = row.times(direction)
    return exposed, hidden + row.hidden[direction]


def _exposed_shares(layer: PricedLayer, direction: Direction, timing: Timing) -> tuple[float, float]:
    """Which shares are exposed of what a framework exposes and of what it hides, so that both are what it adds."""
    added = sum(layer.seconds(direction, timing)) - sum(layer.seconds(direction, timing, silent=True))
    parts = [_parts(row, direction) for row in layer.rows]
    exposed, hidden = (sum(each) for each in zip(*parts, strict=True)) if parts else (0.0, 0.0)
    if added <= exposed:
        return (max(added, 0.0) / exposed if exposed else 0.0), 0.0
    return 1.0, min((added - exposed) / hidden, 1.0) if hidden else 0.0


def _outermost(shape: tuple[int, ...]) -> int:
    return max((level for level, members in enumerate(shape) if members > 1), default=0)


MOST_SIZES = 20
"""Most sizes that are told one by one with those of the measurement nearest to them."""


def coverage(formulation: Formulation, solution: Solution) -> dict[str, Any] | None:
    """The share of what operators compute that was measured; None: they compute nothing.

    The share is of the seconds of all layers of all stages, forward and backward once each: without collectives,
    optimizer steps and what runs again. A backward pass that follows a measured forward one in proportion counts as
    computed.

    Returns:
        `measured`, the share that was measured; `at_its_sizes`, what was at the operator's own sizes; `nearest`, what
        was taken from measurements at other sizes, the largest first: `kind`, `sizes`, `measured_at` and `share`, and
        `more`, how many are left out there; `computed`, the rest by `kind` with its `share`. All shares are of all.
    """
    exact, whole = 0.0, 0.0
    nearest: dict[tuple[str, MeasuredOperator], float] = defaultdict(float)
    computed: dict[str, float] = defaultdict(float)
    for count, row in _operators(formulation, solution):
        cost, kind = row.cost, row.operator.kind
        known, seconds = cost.measured, count * (cost.forward + cost.backward)
        taken = 0.0 if known is None else count * (cost.forward + (cost.backward if known.backward else 0.0))
        whole += seconds
        computed[kind] += seconds - taken
        if known is not None and known.sizes == known.measured_at:
            exact += taken
        elif known is not None:
            nearest[kind, known] += taken
    if not whole:
        return None
    largest = sorted(nearest.items(), key=lambda each: (-each[1], each[0][0], each[0][1].sizes))
    told = [
        {
            "kind": kind,
            "sizes": dict(known.sizes),
            "measured_at": dict(known.measured_at),
            "share": seconds / whole,
        }
        for (kind, known), seconds in largest[:MOST_SIZES]
    ]
    rest = sorted(computed.items(), key=lambda each: (-each[1], each[0]))
    return {
        "measured": (exact + sum(nearest.values())) / whole,
        "at_its_sizes": exact / whole,
        "nearest": told,
        "more": len(largest) - len(told),
        "computed": [{"kind": kind, "share": seconds / whole} for kind, seconds in rest if seconds > 0],
    }


def _operators(formulation: Formulation, solution: Solution) -> Iterator[tuple[int, PricedOperator]]:
    """The operators that compute in all stages, each with how many layers of the stage have it."""
    assert formulation.classes is not None
    for stage in solution.stages:
        pricing = formulation.pricing_of(stage.candidate)
        assert pricing is not None
        counts = Counter(formulation.classes.class_of[layer] for layer in stage.layers)
        layers = priced_layers(formulation.sharded[stage.candidate], formulation.classes, pricing)
        parts = [rows for layer, _ in layers for rows in layer.parts]
        for index, rows in enumerate(parts):
            if counts[index]:
                yield from ((counts[index], row) for row in rows if row.operator.collective is None)
