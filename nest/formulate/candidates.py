"""Candidates of a problem with a model, sharded and priced on one kind of device."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from math import gcd, inf
from typing import NamedTuple

from attrs import evolve

from nest.catalogue import optimizer, precision, unknown_name
from nest.errors import InputError
from nest.formulate.candidate_costs import candidate
from nest.formulate.formulation import FirstPlan, Formulation, kept_together
from nest.formulate.layer_classes import layer_classes
from nest.formulate.model import load_model
from nest.formulate.options import Options
from nest.formulate.pricing import Pricing
from nest.formulate.recompute import host, short_name
from nest.graph import Block, OperatorGraph
from nest.hooks.protocols import StrategyContext
from nest.hooks.registry import Registry
from nest.instance import Candidate, Cluster, CollectiveModel, LayerGraph, SearchProgress
from nest.reuse import once
from nest.solve.effort import FEW, Waiting
from nest.spec import DeviceSpec, Training

MANY = 512
"""Blocks from which on a first plan is sought among few of them before the others are priced. Of DeepSeek-V3's 5,672 on
2,048 H100 one in seventeen is priced then (2026-11-27); with fewer a search has its own first plan as soon."""

PRICING = 0.35  # Share of the time for pricing candidates: bounding and searching their plans takes longer.


class Devices(NamedTuple):
    """Devices of one kind on which a model is priced."""

    cluster: Cluster
    device: DeviceSpec | None  # None: the problem names none.
    collectives: CollectiveModel
    pool: str | None = None  # Name of their pool, which candidates and their names carry.
    place: str = "cluster"  # Of the devices in the problem, for errors.


def from_model(
    options: Options,
    registry: Registry,
    devices: Devices,
    waiting: Waiting,
    first_plan: Callable[[Formulation], FirstPlan | None] | None = None,
    up_to: float = inf,
) -> Formulation:
    """Shard and price a model on one kind of device.

    Args:
        registry: offers importers; its plug-ins decide which bounds hold.
        waiting: gets the share of candidates priced, until its deadline.
        first_plan: finds a good plan of a few candidates, so that slower candidates need no prices
            (`nest.formulate.worth`). None: price all.
        up_to: device seconds per sample; of many candidates, slower ones need no prices.

    Raises:
        InputError: something in the problem cannot be used.
        NoPlanYet: the time is up before anything could be priced.
    """
    cluster, device, collectives, pool, place = devices
    if device is None:
        raise InputError(f"{place}.device is missing; name one that `nest devices` lists, or give its figures.")
    assert options.model is not None
    training = options.training
    pricing = Pricing(
        cluster=cluster,
        device=device,
        training=training,
        precision=precision(training.precision).trained(training),
        optimizer=optimizer(training.optimizer),
        costs=options.costs,
        collectives=collectives,
        layer_times=options.layer_times,
        host=host(device, training),
    )
    waiting = Waiting(waiting.deadline, waiting.progress)  # Who asks next of a model that is kept has another one.
    whole = load_model(options.model, training, registry)
    stacks = registry.stacks().values()
    usual = {tuple(each.training.selective or ()) for each in stacks if hasattr(each, "training")}
    _check_selective(training, whole, usual)
    by_operator = options.search.granularity == "operator"
    layers = registry.memoized("layer classes", (whole, by_operator), lambda: layer_classes(whole, by_operator))
    context = StrategyContext(cluster, training)
    sharded = options.sharded(layers.graph, context, waiting.check, pricing.blocks)

    known: dict[str, Candidate] = {}  # Those of the blocks that a wider formulation has in common.

    def price(block: Block) -> Candidate:
        name = _name(block, pool)
        return once(known, name, lambda: candidate(name, block, layers, pricing, pool=pool))

    graph = LayerGraph(layers.layers, tuple((each.producer, each.consumers) for each in layers.crossing))
    together = kept_together(options.search.granularity, graph)
    if by_operator:
        from nest.formulate.partition import inseparable_operators

        together = inseparable_operators(whole, layers, training.selected)
    made = Formulation(
        graph=graph,
        candidates=(),
        blocks=whole.blocks,
        experts=any(p.group == "expert" for operator in whole.operators for p in operator.parameters),
        operators=_operators(whole) if by_operator else {},
        together=together,
        classes=layers,
        pricing=pricing,
        flops=whole.model_flops,
    )

    def with_priced(some: Sequence[Block]) -> Formulation:
        priced = _priced(some, price, waiting)
        sharded = tuple(some[index] for index in priced)
        complete_to = inf if len(priced) == len(some) else 0.0
        return evolve(made, candidates=tuple(priced.values()), sharded=sharded, complete_to=complete_to)

    # In a time that is limited, some of all candidates are priced.
    if (first_plan is None and up_to == inf) or sharded.least < MANY or waiting.deadline.left < inf:
        return with_priced(sharded.every())
    from nest.formulate.worth import BoundedCandidates, can_be_worth

    if not can_be_worth(options.search, registry):
        return with_priced(sharded.every())
    bounded = BoundedCandidates(made, sharded, with_priced, waiting)
    if first_plan is None:
        return bounded.up_to(up_to, 0.0)
    return bounded.begun(first_plan, training.global_batch / cluster.size, cluster.memory)


def repriced(
    known: Formulation,
    options: Options,
    devices: Devices,
    waiting: Waiting,
    among: Collection[str] | None = None,
    other_blocks: bool = False,
    few: Formulation | None = None,
) -> Formulation:
    """Reprice a model on another network of as many levels, or another device, with the same graphs.

    Args:
        known: the priced model; its strategies and cost models read only which blocks a cluster admits.
        options: those of `known`, except for the cluster and what `other_blocks` allows.
        waiting: gets the share of candidates priced, until its deadline.
        among: names of the candidates to price; None: all.
        other_blocks: micro-batches, strategies or decisions may differ; common blocks are reused.
        few: known costs of some candidates there; None: unknown.

    Raises:
        InputError: no combination of strategies is left, or none of `among` exists.
        NoPlanYet: the time is up before anything could be priced.
    """
    before, layers, cluster, device = known.pricing, known.classes, devices.cluster, devices.device
    assert before is not None
    assert layers is not None
    assert device is not None  # A problem without one is like no other.
    pricing = before.on_cluster(cluster, device)
    same_device, same_network = device == before.device, cluster == before.cluster
    changed = pricing.innermost_changed_level(before)
    # Strategies made each block once (`Pricing.blocks`), so that its name tells it.
    every = {each.name: each for each in known.candidates}
    there = {} if few is None else {each.name: each for each in few.candidates}
    blocks, pool = known.sharded, known.candidates[0].pool
    lacking = known.complete_to < inf and (among is None or not {each.name for each in known.candidates} >= {*among})
    if other_blocks or lacking or cluster.capacities != before.cluster.capacities:
        context = StrategyContext(cluster, options.training)
        blocks = options.sharded(layers.graph, context, waiting.check, pricing.blocks).every()
    if among is not None:
        blocks = tuple(each for each in blocks if _name(each, pool) in among)
        if not blocks:
            raise InputError("the problem does not offer these candidates.")

    def price(block: Block) -> Candidate:
        name = _name(block, pool)
        if name in there:
            return there[name]
        its = every.get(name)
        if its is not None and same_device and pricing.is_unchanged(block, before, changed):
            return its
        same = {"same_device": same_device, "same_network": same_network}
        return candidate(name, block, layers, pricing, its, **same, pool=pool)

    priced = _priced(blocks, price, waiting)
    return evolve(
        known,
        candidates=tuple(priced.values()),
        sharded=tuple(blocks[index] for index in priced),
        pricing=pricing,
        complete_to=inf if len(priced) == len(blocks) else 0.0,
        bounded=None,
    )


def on_pools(every: Sequence[Devices], price: Callable[[Devices], Formulation]) -> Formulation:
    """Price a model on each kind of device.

    Raises:
        InputError: something in the problem cannot be used, or no pool has a candidate.
    """
    made: list[Formulation] = []
    refused: list[InputError] = []
    for devices in every:
        try:
            made.append(price(devices))
        except InputError as error:  # Its devices may be too few for the degrees that others can have.
            refused.append(error)
    if not made or any(each.device is None for each in every):
        raise refused[0]
    return evolve(
        made[0],
        candidates=tuple(each for part in made for each in part.candidates),
        sharded=tuple(each for part in made for each in part.sharded),
        of_pools={str(part.candidates[0].pool): part.pricing for part in made if part.pricing is not None},
        complete_to=min(part.complete_to for part in made),
    )


def _priced(blocks: Sequence[Block], price: Callable[[Block], Candidate], waiting: Waiting) -> dict[int, Candidate]:
    """Candidates by index of their block, ascending: all, or as many as time allows.

    A few are priced however late it is, and nearly finished work is finished.
    """
    progress, deadline = waiting.progress, waiting.deadline
    begun, left, candidates = time.monotonic(), deadline.left, dict[int, Candidate]()
    for index in _scattered(len(blocks)):
        share = len(candidates) / len(blocks)
        if len(candidates) >= FEW and deadline.beyond(PRICING + 0.1 * (share > 0.8), left):
            break
        deadline.check()
        if progress is not None:
            progress(SearchProgress(None, 0.0, 0.0, time.monotonic() - begun, share))
        candidates[index] = price(blocks[index])
    return dict(sorted(candidates.items()))


def _scattered(count: int) -> Iterator[int]:
    """Numbers below `count` in an order whose beginnings are evenly spread: golden-section steps."""
    step = max(round(count * 0.618), 1)
    while gcd(step, count) > 1:
        step += 1
    return (place * step % count for place in range(count))


def _operators(graph: OperatorGraph) -> dict[str, tuple[str, ...]]:
    names = (tuple(operator.name for operator in operators) for operators in graph.by_layer)
    return {layer: operator_names for layer, operator_names in zip(graph.layers, names, strict=True) if operator_names}


def _name(block: Block, pool: str | None) -> str:
    """Name of a candidate: pool, degrees above 1 and micro-batch size, such as `tp8-sp8-mb1`."""
    degrees = (f"{name}{degree}" for name, degree in block.degrees if degree > 1)
    return "-".join([*([] if pool is None else [pool]), *degrees, f"mb{block.micro_batch}"])


def _check_selective(training: Training, graph: OperatorGraph, usual: Collection[tuple[str, ...]]) -> None:
    """Check that `training.selective` names kinds of operator or operators; a stack's `usual` ones may be absent."""
    if training.selective is None or training.selective in usual:
        return
    blocks = frozenset(graph.blocks or graph.layers)
    known = {operator.kind for operator in graph.operators}
    known |= {short_name(operator) for operator in graph.operators if operator.layer in blocks}
    for name in training.selective:
        if name not in known:
            raise unknown_name("training.selective", "operator or kind of operator", name, known)
