"""Parts of a plan's time: operators of each layer, collectives inside layers, and the share measured."""

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
    """One class of layers."""

    rows: tuple[PricedOperator, ...]  # Priced operators.
    again: frozenset[str]  # Names of those recomputed in the plan's mode.


@frozen(eq=False, repr=False)
class CostBreakdown:
    """A decided plan and its parts.

    Attributes:
        layers: one of each class.
        stages: layers of each class, for each stage in pipeline order.
    """

    problem: Problem
    instance: Instance
    solution: Solution
    pricing: Pricing
    layers: tuple[LayerBreakdown, ...]
    stages: tuple[Counter[int], ...]


def breakdown(problem: Problem, known: Registry) -> CostBreakdown:
    """Take the plan of `problem.fixed` apart.

    Raises:
        InputError: the decisions do not make a plan, or the problem has no model to take apart.
    """
    if problem.model is None:
        raise InputError("profile: calibration needs runs of a `model`.")
    if problem.cluster.pools is not None:
        raise InputError("cluster.pools: calibration supports one device type only.")
    if problem.search.granularity == "operator":
        raise InputError("search.granularity: calibration needs whole layers; leave it out.")
    from nest.formulate.fixed_plan import decide, evaluation  # Calibration needs it; a search does not.

    instance, formulation = evaluation(problem, known)
    pricing, classes = formulation.pricing, formulation.classes
    assert pricing is not None
    assert classes is not None
    if len(pricing.device.engines) > 1:
        raise InputError(
            f"cluster.device: {pricing.device.name!r} has several engines; calibration supports devices with one."
        )
    solution, layers = decide(instance, problem, known), []
    stage = solution.stages[0]
    for priced, repeated in priced_layers(formulation.sharded[stage.candidate], classes, pricing):
        modes = recompute_modes([row.operator for row in priced.rows], problem.training.selected, repeated)
        if stage.recompute not in modes:
            mode = recompute_words(stage.recompute)
            raise InputError(f"fixed.recompute: calibration does not support mode {mode!r}.")
        again = frozenset(operator.name for operator in modes[stage.recompute].again)
        layers.append(LayerBreakdown(priced.rows, again))
    stages = tuple(Counter(classes.class_of[layer] for layer in each.layers) for each in solution.stages)
    return CostBreakdown(problem, instance, solution, pricing, tuple(layers), stages)


Place = tuple[str, int]  # Axis of the participating ranks, and the outermost level between them.


def collectives_inside(formulation: Formulation, solution: Solution, priced: PricedPlan) -> list[dict[str, Any]]:
    """Seconds per batch of collectives inside layers of a model on the slowest stage.

    The time that collectives add to a layer is shared among them in proportion to their exposed seconds, and any excess
    (a layer as long as its collectives) to their hidden ones. Recomputed collectives count as `recompute`.

    Returns:
        By name, for each strategy (the axis of its ranks) and outermost level of its ranks: `seconds`, and the part
        `shown` and `hidden`.
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
    """Seconds per batch that the slowest stage waits for kernel launches of its host; None: none.

    Waits of recomputed layers count as `recompute`.
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
    """Block and prices of the slowest stage, its priced layers, and the number of each class."""
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
    """Calls of a part of a layer: place, seconds, and exposed seconds."""
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
    """Seconds of an operator's collectives: exposed, and hidden by a framework."""
    _, exposed, hidden = row.times(direction)
    return exposed, hidden + row.hidden[direction]


def _exposed_shares(layer: PricedLayer, direction: Direction, timing: Timing) -> tuple[float, float]:
    """Shares of exposed and of hidden collectives that make up the time they add."""
    added = sum(layer.seconds(direction, timing)) - sum(layer.seconds(direction, timing, silent=True))
    parts = [_parts(row, direction) for row in layer.rows]
    exposed, hidden = (sum(each) for each in zip(*parts, strict=True)) if parts else (0.0, 0.0)
    if added <= exposed:
        return (max(added, 0.0) / exposed if exposed else 0.0), 0.0
    return 1.0, min((added - exposed) / hidden, 1.0) if hidden else 0.0


def _outermost(shape: tuple[int, ...]) -> int:
    return max((level for level, members in enumerate(shape) if members > 1), default=0)


MOST_SIZES = 20  # Most sizes that are listed with their nearest measurement.


def coverage(formulation: Formulation, solution: Solution) -> dict[str, Any] | None:
    """Share of the operators' compute that was measured; None: there is no compute.

    Counts the seconds of all layers of all stages, forward and backward once each, without collectives, optimizer steps
    and recomputation. A backward pass scaled from a measured forward one counts as computed.

    Returns:
        `measured`, the measured share; `at_its_sizes`, the part at the operator's own sizes; `nearest`, the part from
        other sizes, largest first: `kind`, `sizes`, `measured_at` and `share`, with the number left out in `more`;
        `computed`, the rest by `kind` with its `share`. All shares are of the whole.
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
        {"kind": kind, "sizes": dict(known.sizes), "measured_at": dict(known.measured_at), "share": seconds / whole}
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
    """Computing operators of all stages, each with its number of layers in the stage."""
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
