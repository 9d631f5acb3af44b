"""Plans on a non-hierarchical network: places of blocks, repriced candidates, and link loads.

PROBLEM.md section 1, "Arbitrary network". Times of single messages and collectives are in `nest.plan.layout` and
`nest.plan.zero`.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from operator import mul

import numpy
from attrs import evolve, frozen
from numpy.typing import NDArray

from nest.instance import Array, Instance, Level, NetworkModel, Ring, Solution, stage_mode
from nest.plan.layout import counterparts, crossing, cut_bytes, in_order, stages_of_chunks
from nest.plan.zero import DataParallelGroup, pieces_of, ring_seconds

REFERENCE_MESSAGE = 2.0**20
"""Bytes for choosing the ring of a collective inside a block: at 50 GB/s they take 21 us, so that bandwidth decides and
latencies of microseconds still count."""


def on_devices(instance: Instance, solution: Solution) -> tuple[Instance, Solution]:
    """A plan with every block on devices of the network, and an instance with candidates priced there.

    Each stage has its own candidate. On levels both stay. Unplaced blocks follow the order of their ranks.
    """
    network = instance.network
    if network is None:
        return instance, solution
    placement = in_order(instance, solution) if solution.placement is None else solution.placement
    candidates = []
    for index, stage in enumerate(solution.stages):
        blocks = [replica[index] for replica in placement]
        levels = block_levels(network.model, network.factors[stage.candidate], blocks)
        candidates.append(network.repriced(stage.candidate, levels) if levels else instance.candidates[stage.candidate])
    stages = tuple(evolve(stage, candidate=index) for index, stage in enumerate(solution.stages))
    network = evolve(network, factors=tuple(network.factors[stage.candidate] for stage in solution.stages))
    instance = evolve(instance, candidates=tuple(candidates), network=network)
    return instance, evolve(solution, stages=stages, placement=placement)


def block_levels(model: NetworkModel, factors: Sequence[int], blocks: Sequence[Sequence[int]]) -> tuple[Level, ...]:
    """A level for each factor of a block, as slow as the slowest ring over its rank sets in all replicas.

    Args:
        factors: sizes of the rank sets, innermost first; their product is the width.
        blocks: devices of each replica's block, in the order of ranks.
    """
    levels = []
    for index, sets in enumerate(_rank_sets(factors)):
        rings = [_usual_ring(model, [block[rank] for rank in ranks]) for block in blocks for ranks in sets]
        bandwidth, latency = min(ring.bandwidth for ring in rings), max(ring.latency for ring in rings)
        levels.append(Level(f"ranks of factor {index}", factors[index], bandwidth, latency))
    return tuple(levels)


def _rank_sets(factors: Sequence[int]) -> Iterator[list[range]]:
    """For each factor, the sets of ranks that differ only in it."""
    for factor, stride in zip(factors, accumulate(factors, mul, initial=1), strict=False):
        width = int(numpy.prod(factors))
        firsts = [rank for rank in range(width) if rank // stride % factor == 0]
        yield [range(first, first + factor * stride, stride) for first in firsts]


def _usual_ring(model: NetworkModel, members: Sequence[int]) -> Ring:
    """Fastest ring for a message of usual size."""
    share = (len(members) - 1) / len(members)
    return min(
        model.rings(members),
        key=lambda ring: (len(members) - 1) * ring.latency + share * REFERENCE_MESSAGE / ring.bandwidth,
    )


@frozen(eq=False)
class LinkLoads:
    """Loads of a network's links in a micro-batch."""

    seconds: Array  # Of each directed link, for all traffic of all stages and replicas.
    used: tuple[NDArray[numpy.bool_], ...]  # Mask of each stage's links.

    def least_time(self, stage: int) -> float:
        """Lower bound (s per micro-batch) on a stage: its fullest link."""
        return float(self.seconds[self.used[stage]].max(initial=0.0))


def link_loads(instance: Instance, solution: Solution, groups: Sequence[Sequence[DataParallelGroup]]) -> LinkLoads:
    """Link loads of a plan on devices (`on_devices`).

    Messages between stages, ZeRO communication in every micro-batch, and collectives inside blocks if candidates have
    them (`busy`). Communication once per batch does not count.

    Args:
        instance: with a candidate for each stage.
        solution: placed.
        groups: of each stage (`nest.plan.zero.data_parallel_groups`).
    """
    assert instance.network is not None
    model = instance.network.model
    count = len(solution.stages)
    carried = numpy.zeros((count, len(model.link_bandwidth)))
    used = numpy.zeros(carried.shape, dtype=bool)
    _add_messages(instance, solution, carried, used)
    for index in range(count):
        for links, load in (*_sharding(instance, solution, index, groups[index]), *_inside(instance, solution, index)):
            carried[index, links] += load
            used[index, links] = True
    return LinkLoads(carried.sum(axis=0) / model.link_bandwidth, tuple(used))


def _add_messages(instance: Instance, solution: Solution, carried: Array, used: NDArray[numpy.bool_]) -> None:
    """Add activations and gradients between neighbouring stages; both of them use the links."""
    assert instance.network is not None
    model = instance.network.model
    between = pairwise(stages_of_chunks(instance, solution))
    for (here, there), (front, _) in zip(between, crossing(instance, solution)[1:], strict=True):
        if here == there:
            continue
        senders, receivers = counterparts(solution, here, there)
        sent = (cut_bytes(instance.candidates[there], front), cut_bytes(instance.candidates[here], front))
        for stage, size, ways in ((there, sent[0], (senders, receivers)), (here, sent[1], (receivers, senders))):
            if size:
                _, links = model.paths(*ways)
                carried[stage] += size * numpy.bincount(links, minlength=len(model.link_bandwidth))
                used[here, links] = used[there, links] = True


Load = tuple[NDArray[numpy.int64], Array]  # Links, and bytes on each of them.


def _sharding(
    instance: Instance, solution: Solution, index: int, groups: Sequence[DataParallelGroup]
) -> Iterator[Load]:
    """ZeRO communication in every micro-batch (PROBLEM.md section 4, the table)."""
    stage, candidate = solution.stages[index], instance.candidates[index]
    zero, layers = instance.space.effective_zero(stage.zero), list(stage.layers)
    for parameters, group in zip(candidate.state, groups, strict=True):
        pieces = pieces_of(parameters, layers)
        weights, gradients = float(parameters.weights[layers].sum()), float(parameters.gradients[layers].sum())
        calls = [("reduce_scatter", gradients, 1.0)] if zero >= 2 else []
        calls += [("all_gather", weights, 2.0)] if zero >= 3 else []
        for kind, size, times in calls if group.shard_size > 1 else ():
            for rings in group.shards if size else ():
                assert isinstance(rings[0], Ring)
                _, ring = ring_seconds(instance, kind, size / pieces, rings, group.shard_size)
                yield ring.links, ring.shares * size * times


def _inside(instance: Instance, solution: Solution, index: int) -> Iterator[Load]:
    """Collectives inside the blocks of a stage, if its candidate has their port occupation."""
    assert instance.network is not None
    assert solution.placement is not None
    candidate, stage, model = instance.candidates[index], solution.stages[index], instance.network.model
    factors = () if candidate.busy is None else instance.network.factors[index]
    layers, mode = list(stage.layers), stage_mode(instance, stage)
    for level, sets in enumerate(_rank_sets(factors)):
        assert candidate.busy is not None
        seconds = float(candidate.busy[level][layers].sum())
        seconds += 0.0 if mode.busy is None else float(mode.busy[level][layers].sum())
        size = factors[level]
        for replica in solution.placement if seconds else ():
            for ranks in sets:
                ring = _usual_ring(model, [replica[index][rank] for rank in ranks])
                # A member sends `(k - 1) / k` of the buffer while its port is occupied.
                yield ring.links, ring.shares * (seconds * ring.bandwidth * size / (size - 1))
