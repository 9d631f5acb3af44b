"""Which of many candidates are priced at all: those that may beat a first plan, by what their operators compute."""

from collections.abc import Callable, Sequence

import numpy
from attrs import evolve

from nest.formulate.operator_costs import Direction, engine_of
from nest.formulate.price import FirstPlan, Formulation
from nest.formulate.pricing import Pricing, priced_layers
from nest.graph import Block, Operator
from nest.hooks.calls import Guarded
from nest.hooks.registry import Registry
from nest.instance import Array
from nest.solve.dp.attempt import SLOWER
from nest.solve.effort import Deadline, least_first
from nest.spec import Problem
from nest.tolerances import LIMIT_SLACK

FEW, TRIED = 256, 32
"""Blocks that are priced to begin with, the less they compute the more of them; and of how many of these, those that
take the least with what they send, a first plan is looked for."""


def can_be_worth(problem: Problem, registry: Registry) -> bool:
    """Whether compute says which candidates cannot have a plan as fast as another.

    All stages of a plan must have one candidate, and layers and steps take no less than all that one engine computes:
    of models of layer times and schedules of plug-ins nobody knows.
    """
    read = (*registry.layer_times().values(), *registry.schedules().values())
    search = problem.search
    plain = search.granularity != "operator" and not search.mixed and search.tensors != "direct"
    return plain and not any(isinstance(each, Guarded) for each in read)


def worth(
    made: Formulation,
    blocks: Sequence[Block],
    global_batch: int,
    with_priced: Callable[[Sequence[Block]], Formulation],
    first_plan: Callable[[Formulation], FirstPlan | None],
    deadline: Deadline,
    watch: Callable[[], None],
) -> Formulation:
    """The formulation with those candidates that may be as fast as a first plan, or hardly slower; else with all.

    Each micro-batch is computed once, so that a step of `B` samples on `P` devices takes at least `B / P` times the
    device seconds that a candidate computes for a sample, whatever the schedule (PROBLEM.md section 4): recomputation,
    bubbles, collectives and devices left idle come on top.

    Args:
        made: without candidates.
        blocks: of all candidates.
        global_batch: samples of a step.
        with_priced: the formulation with some blocks priced.
        first_plan: a plan of a formulation's candidates; None: there is none.
        deadline: when whoever waits has said that the time is up, the first plan is the answer.
        watch: called after each block; may raise what ends it.

    Raises:
        NoPlanYet: the time is up before there is a first plan.
    """
    assert made.pricing is not None
    work = _work(made, blocks, made.pricing, watch)
    few = [blocks[index] for index in least_first(work, FEW)]
    order = numpy.argsort([_device_seconds(made, block) for block in few], kind="stable").tolist()
    tried = evolve(with_priced([few[index] for index in sorted(order[:TRIED])]), complete=False)
    known = first_plan(tried)
    if known is None:
        return with_priced(blocks)
    # A search looks for a runner-up up to `SLOWER` times a plan that it knows.
    most = known[1] * SLOWER * made.pricing.cluster.size / global_batch * (1 + LIMIT_SLACK)
    left = []
    for block, each in zip(blocks, work.tolist(), strict=True):
        if deadline.passed:
            return evolve(tried, first=known)
        watch()
        if each <= most and _device_seconds(made, block) <= most:
            left.append(block)
    result = with_priced(left)
    if not result.complete:
        return evolve(tried, first=known)
    place = {each.name: index for index, each in enumerate(result.candidates)}
    names = [tried.candidates[stage.candidate].name for stage in known[0].stages]
    stages = [evolve(each, candidate=place[name]) for each, name in zip(known[0].stages, names, strict=True)]
    return evolve(result, first=(evolve(known[0], stages=tuple(stages)), known[1]))


def _device_seconds(made: Formulation, block: Block) -> float:
    """Device seconds that all layers of a block take for a sample, with what they send."""
    assert made.classes is not None
    assert made.pricing is not None
    counts, timing = numpy.bincount(made.classes.class_of).tolist(), made.pricing.timing
    layers = [layer for layer, _ in priced_layers(block, made.classes, made.pricing)]
    seconds = [sum(sum(layer.seconds(direction, timing)) for direction in Direction) for layer in layers]
    whole = sum(count * each for count, each in zip(counts, seconds, strict=True))
    return float(block.width / block.samples * whole)


def _work(made: Formulation, blocks: Sequence[Block], pricing: Pricing, watch: Callable[[], None]) -> Array:
    """Device seconds that the layers of each block compute for a sample at least, shape `(blocks,)`."""
    assert made.classes is not None
    counts, known = numpy.bincount(made.classes.class_of).tolist(), dict[tuple[int, ...], float]()
    work = []
    for block in blocks:
        watch()
        whole = 0.0
        for count, operators in zip(counts, block.graph.by_layer, strict=True):
            key = tuple(map(id, operators))
            if key not in known:
                known[key] = _least(operators, pricing)
            whole += count * known[key]
        work.append(block.width / block.samples * whole)
    return numpy.array(work)


def _least(operators: Sequence[Operator], pricing: Pricing) -> float:
    """Seconds of a layer in both directions at least: its busiest engine's."""
    forward, backward = dict[str, float](), dict[str, float]()
    for operator in operators:
        if operator.collective is None:
            engine, cost = engine_of(operator, pricing.device.engines), pricing.cost(operator)
            forward[engine] = forward.get(engine, 0.0) + cost.forward
            backward[engine] = backward.get(engine, 0.0) + cost.backward
    return max(forward.values(), default=0.0) + max(backward.values(), default=0.0)
