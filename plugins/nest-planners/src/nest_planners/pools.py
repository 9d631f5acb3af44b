"""Two common rules that plan clusters of several kinds of device without search."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, permutations, product

import numpy
from attrs import evolve

from nest.hooks.planning import PlannerContext, Proposal
from nest.instance import Array, Candidate, Instance, Pools, Solution, StageDecision, chunks_of
from nest_planners.shapes import Units, modes, units
from nest_planners.views import usual_order

Team = tuple[int, ...]
"""A candidate of each pool, all of the same degrees and samples."""


class SlowestDevice:
    """All devices taken for the slowest kind there is: the exact search, with its times and its memory in every pool.

    So plan those whose tool knows one kind of device. The plan is then run, and priced, on what there is.
    """

    name = "slowest-device"
    summary = "the exact search of a planner that takes every device for the slowest kind"
    on_pools = True

    def plan(self, instance: Instance, context: PlannerContext) -> Proposal:
        """The fastest plan of a cluster of slow devices."""
        result = context.search(instance if instance.pools is None else _all_slow(instance, instance.pools))
        if result.solution is None or result.batch_time is None:
            return Proposal(None, (result.diagnosis or "it finds no plan.",))
        return Proposal(
            result.solution, (f"it predicts {result.batch_time:.4g} s with all devices of the slowest kind.",)
        )


class Proportional:
    """The same degrees in every pool, all devices used, layers in proportion to the speed of the stage's device.

    What is alike for all stages (replicas, degrees, micro-batch, recomputation, ZeRO) and which pool comes first are
    tried out, and the fastest that fits is taken. So Megatron-LM's uneven pipelines are set up by hand.
    """

    name = "proportional"
    summary = "the same degrees in every pool, and layers in proportion to the speed of its devices"
    on_pools = True

    def plan(self, instance: Instance, context: PlannerContext) -> Proposal:
        """The fastest of such plans that fits; else the one that is short of the least memory."""
        fitting: tuple[float, Solution] | None = None
        closest: tuple[float, Solution] | None = None
        for solution in _in_proportion(instance):
            seen = context.assess(solution)
            if seen.priced is None:
                continue
            if not seen.admitted:
                closest = min([each for each in (closest, (seen.missing, solution)) if each], key=lambda each: each[0])
            elif fitting is None or seen.priced.batch_time < fitting[0]:
                fitting = seen.priced.batch_time, solution
        if fitting is not None:
            return Proposal(fitting[1])
        if closest is not None:
            return Proposal(closest[1], ("no split in proportion fits into memory; this is the closest.",))
        return Proposal(None, ("no degrees that every pool can have give each stage a layer.",))


def _seconds(candidate: Candidate) -> float:
    """Of one device for all layers of a sample."""
    return float((candidate.forward + candidate.backward).sum()) * candidate.width / candidate.samples


def _all_slow(instance: Instance, pools: Pools) -> Instance:
    """The instance with the slowest pool's figures in all; candidates without a counterpart there keep their own."""
    of_pool: dict[int, list[Candidate]] = {}
    for index, each in enumerate(instance.candidates):
        of_pool.setdefault(instance.pool_of(index), []).append(each)
    slowest = max(of_pool, key=lambda pool: min(map(_seconds, of_pool[pool])))
    counterparts = {_shape(each): each for each in of_pool[slowest]}
    candidates = []
    for own in instance.candidates:
        slow = counterparts.get(_shape(own))
        alike = slow is not None and (slow.busy is None or own.busy is None or len(slow.busy) == len(own.busy))
        candidates.append(evolve(slow, name=own.name, pool=own.pool) if slow is not None and alike else own)
    memory = pools.members[slowest].cluster.memory
    members = tuple(
        evolve(each, cluster=evolve(each.cluster, memory=min(memory, each.cluster.memory))) for each in pools.members
    )
    return evolve(
        instance, cluster=members[0].cluster, candidates=tuple(candidates), pools=evolve(pools, members=members)
    )


def _shape(candidate: Candidate) -> tuple[object, ...]:
    """Common shape of candidates of different pools."""
    modes_known = tuple(mode.name for mode in candidate.recompute)
    return tuple(sorted(candidate.degrees.items())), candidate.samples, candidate.width, modes_known


def _in_proportion(instance: Instance) -> Iterator[Solution]:
    """Every plan of the same degrees in all pools whose stages hold layers in proportion to their device's speed."""
    space, pieces = instance.space, units(instance)
    order = usual_order(instance)
    schedule = next((each for each in space.schedules if chunks_of(each) == 1), None)
    if schedule is None:
        return
    for team in _teams(instance):
        first = instance.candidates[team[0]]
        most = min(instance.cluster_of(each).size // instance.candidates[each].width for each in team)
        for replicas in range(1, most + 1):
            if instance.micro_batches(first, replicas) is None:
                continue
            for along in permutations(team):
                split = _split(instance, pieces, along, replicas)
                if split is None:
                    continue
                for recompute, zero in product(modes(instance, first), sorted(set(space.zero))):
                    stages = tuple(
                        StageDecision(layers, candidate, recompute, zero, offset) for layers, candidate, offset in split
                    )
                    yield Solution(replicas, order, schedule.name, stages, zero_degree=space.zero_degrees[0])


def _teams(instance: Instance) -> Iterator[Team]:
    """A candidate of each pool, all alike."""
    by_shape: dict[tuple[object, ...], dict[int, int]] = {}
    for index, each in enumerate(instance.candidates):
        if instance.cluster_of(index).admits(each.width):
            by_shape.setdefault(_shape(each), {}).setdefault(instance.pool_of(index), index)
    pools = 1 if instance.pools is None else len(instance.pools.members)
    yield from (tuple(found.values()) for found in by_shape.values() if len(found) == pools)


def _split(
    instance: Instance, pieces: Units, along: Sequence[int], replicas: int
) -> list[tuple[tuple[int, ...], int, int]] | None:
    """Layers, candidate and offset of each stage, one pool behind the other; None: a stage would have no layer."""
    homes: list[tuple[int, int]] = []
    for candidate in along:
        width = instance.candidates[candidate].width
        slots = instance.cluster_of(candidate).size // (replicas * width)
        homes += [(candidate, place * width) for place in range(slots)]
    if len(homes) > len(pieces):
        return None
    weights = _relative_work(instance, pieces, along)
    speeds = numpy.array(
        [1 / max(_seconds(instance.candidates[candidate]), numpy.finfo(float).tiny) for candidate, _ in homes]
    )
    ends = _ends(weights, speeds / speeds.sum())
    starts = [0, *ends[:-1]]
    return [
        (tuple(sorted(layer for unit in pieces[start:end] for layer in unit)), *home)
        for start, end, home in zip(starts, ends, homes, strict=True)
    ]


def _relative_work(instance: Instance, pieces: Units, along: Sequence[int]) -> Array:
    """Share of each unit in the work of all, timed on the first pool."""
    own = instance.candidates[along[0]]
    times = own.forward + own.backward
    return numpy.array([float(times[list(unit)].sum()) for unit in pieces])


def _ends(weights: Array, shares: Array) -> list[int]:
    """End of each stage: nearest to its share of the work, no stage without a unit."""
    reached = numpy.concatenate([[0.0], numpy.cumsum(weights)]) / (weights.sum() or 1.0)
    ends: list[int] = []
    for place, share in enumerate(accumulate(shares.tolist())):
        nearest = int(numpy.abs(reached - share).argmin())
        least = (ends[-1] if ends else 0) + 1
        ends.append(min(max(nearest, least), len(weights) - (len(shares) - 1 - place)))
    ends[-1] = len(weights)
    return ends
