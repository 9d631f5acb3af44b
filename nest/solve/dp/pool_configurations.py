"""Plans on several pools, before their stages are decided: what is listed, and what compute alone says of it."""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product
from math import inf

import numpy
from attrs import define, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Instance, Pools, Schedule, Weights, chunks_of
from nest.solve.dp.choices import Choice, part_rows
from nest.solve.dp.configurations import Configuration, Tally
from nest.solve.dp.listing import Admitted, batches_of, stage_counts, zero_degrees
from nest.solve.dp.rules import Exclusions, MixedRules, plan_values
from nest.spec.constraints import Value

Candidates = tuple[int, ...]
"""A candidate of each pool that plans use, in the order of the pools."""

Quick = tuple[int, int, tuple[int, ...], list[int], float]
"""Replicas, micro-batches, slots of a replica in each pool, numbers of stages, and a step time that no plan beats."""


@frozen(eq=False, repr=False)
class Compute:
    """What compute alone says of plans with these candidates, one of each pool that they use.

    Attributes:
        longest: seconds per micro-batch of the layer that takes longest on the pool where it is fastest.
        share: least share of the model that its layers are, each as a share of its pool's seconds for all of them.
        whole: seconds per micro-batch of all layers in each pool.
        least: of all layers, each on the pool where it is fastest.
        parts: the same of forward passes, gradients of inputs and of weights, each row apart.
    """

    longest: float
    share: float
    whole: tuple[float, ...]
    least: float
    parts: Array

    @classmethod
    def of(cls, instance: Instance, candidates: Candidates) -> "Compute":
        """Of these candidates."""
        every = [instance.candidates[index] for index in candidates]
        times = numpy.array([each.forward + each.backward for each in every])
        whole = times.sum(axis=1)
        fastest = times.min(axis=0)
        shares = (times / numpy.where(whole > 0, whole, 1.0)[:, None]).min(axis=0)
        return cls(
            float(fastest.max()),
            float(shares.sum()),
            tuple(whole.tolist()),
            float(fastest.sum()),
            numpy.array([part_rows(each) for each in every]),
        )

    def slowest(self, slots: Sequence[int], counts: Sequence[int]) -> Array:
        """Least seconds of the slowest stage for each of `counts` stages, on so many slots of each pool.

        A stage of `t` seconds has at most `t / whole` of the model. All of it is shared out, so that the stages' shares
        add up to what the layers are at least; most where each pool has one stage and the fastest the others.
        """
        speeds = sorted(((1 / each if each > 0 else inf, own) for each, own in zip(self.whole, slots, strict=True)))
        added = [speed for speed, _ in speeds[::-1]]
        added += [speed for speed, own in speeds[::-1] for _ in range(own - 1)]
        together = numpy.cumsum(added)[numpy.array(counts) - 1]
        slowest: Array = numpy.maximum(self.share / together, self.longest)
        return slowest

    def total(self, weights: Weights) -> float:
        """What the sum over stages adds to the step at least, seconds."""
        if weights.uniform:
            return weights.forward * self.least
        return float(numpy.array([weights.of_parts(*rows) for rows in self.parts]).min(axis=0).sum())


@define(eq=False, repr=False)
class PoolListing:
    """Lists the configurations of plans that use `fewest` pools or more, in the documented order of ties.

    Attributes:
        instance: the problem.
        most_stages: stages the layer graph can be cut into.
        exclusions: counts what is refused and why.
        watch: called after each step of a few milliseconds; may raise `OutOfTime`.
        limit: step time, seconds; what cannot take less, by its compute alone, is left out.
        fewest: pools.
    """

    instance: Instance
    most_stages: int
    exclusions: Exclusions
    watch: Callable[[], None] = lambda: None
    limit: float = inf
    fewest: int = 2
    compute: dict[Candidates, Compute] = field(factory=dict, init=False)
    _rules: MixedRules = field(init=False)
    _admitted: Admitted = field(init=False)
    _weights: dict[tuple[object, ...], tuple[Array, list[Weights]]] = field(factory=dict, init=False)
    _least_weights: dict[tuple[object, ...], float] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._rules = MixedRules(self.instance, self.exclusions)
        self._admitted = Admitted(self.exclusions)

    @property
    def pools(self) -> Pools:
        """Of the cluster."""
        assert self.instance.pools is not None
        return self.instance.pools

    def listed(self) -> list[tuple[float, Configuration]]:
        """Every configuration, with a step time that none of its plans beats."""
        found: list[tuple[float, Configuration]] = []
        for candidates in self._candidates():
            self.watch()
            for bound, each in self._of(candidates, len(found)):
                found.append((bound, each))
        return found

    def _candidates(self) -> Iterator[Candidates]:
        """One of each of some pools that are joined, all of the same samples."""
        instance = self.instance
        of_pool: dict[tuple[int, int], list[int]] = {}
        for index, candidate in enumerate(instance.candidates):
            of_pool.setdefault((candidate.samples, instance.pool_of(index)), []).append(index)
        for samples in sorted({samples for samples, _ in of_pool}):
            usable = sorted(pool for own, pool in of_pool if own == samples)
            for count in range(self.fewest, min(len(usable), instance.space.most_pools or len(usable)) + 1):
                for used in combinations(usable, count):
                    if _joined(self.pools, used):
                        every = product(*(of_pool[samples, pool] for pool in used))
                        yield from (each for each in every if not instance.space.alike or self._alike(each))

    def _alike(self, candidates: Candidates) -> bool:
        """Whether they are split alike."""
        return len({self.instance.candidates[index].split for index in candidates}) == 1

    def _of(self, candidates: Candidates, first_order: int) -> Iterator[tuple[float, Configuration]]:
        instance, order = self.instance, first_order
        every = [instance.candidates[index] for index in candidates]
        clusters = [instance.cluster_of(index) for index in candidates]
        most = min(cluster.size // each.width for cluster, each in zip(clusters, every, strict=True))
        compute = self.compute[candidates] = Compute.of(instance, candidates)
        batches = batches_of(instance, every[0], self.exclusions, most)
        blocks = numpy.array([own.size // each.width for own, each in zip(clusters, every, strict=True)])
        kept: dict[tuple[str, int], list[Quick]] = {}
        for schedule, rank_order in product(instance.space.schedules, instance.space.rank_orders):
            key = (schedule.name, chunks_of(schedule))
            if key not in kept:
                kept[key] = list(self._quick(compute, schedule, batches, blocks))
            for replicas, micro_batches, own_slots, counts, least in kept[key]:
                size = sum(count * each.width for count, each in zip(own_slots, every, strict=True))
                for degree in zero_degrees(instance, every, replicas, self.exclusions):
                    shared = (replicas, micro_batches, rank_order, schedule)
                    for members, tally, allowed in self._allowed(candidates, shared, degree, counts, size):
                        yield least, Configuration(order, members, *shared, size, allowed, degree, tally)
                        order += 1

    def _quick(
        self, compute: Compute, schedule: Schedule, batches: Sequence[tuple[int, int]], blocks: NDArray[numpy.int64]
    ) -> Iterator[Quick]:
        """Of these replicas and micro-batches those with plans that may be fast enough, by compute alone.

        Returns: with each the slots of a replica in each pool, numbers of stages, and a step time that no plan beats.
            `blocks` are all that a pool has room for, shape `(pools,)`.
        """
        if not batches:
            return
        pools, most = len(blocks), self.most_stages
        replicas = numpy.array([each for each, _ in batches])
        slots = blocks // replicas[:, None]
        stages = numpy.minimum(slots.sum(axis=1), most)
        together = (slots / numpy.maximum(compute.whole, numpy.finfo(float).tiny)).sum(axis=1)
        weights = numpy.array([self._least_weight(schedule, micro_batches) for _, micro_batches in batches])
        fast = weights * numpy.maximum(compute.share / together, compute.longest) <= self.limit
        self.exclusions.slow += int(numpy.maximum(stages - pools + 1, 0)[~fast].sum())
        for place in numpy.flatnonzero(fast).tolist():
            (own, micro_batches), room = batches[place], tuple(slots[place].tolist())
            counts: Sequence[int] = [
                count for count in stage_counts(self.instance, int(stages[place])) if count >= pools
            ]
            counts = self._admitted.among(schedule, micro_batches, counts)
            bounds = self._bounds(compute, schedule, micro_batches, room, counts)
            within = bounds <= self.limit
            self.exclusions.slow += len(counts) - int(within.sum())
            left = [count for count, quick in zip(counts, within.tolist(), strict=True) if quick]
            if left:
                yield own, micro_batches, room, left, float(bounds[within].min())

    def _least_weight(self, schedule: Schedule, micro_batches: int) -> float:
        """The least weight of the slowest stage, whatever the number of stages."""
        key = (schedule.name, chunks_of(schedule), micro_batches)
        if key not in self._least_weights:
            counts = self._admitted.among(schedule, micro_batches, range(1, self.most_stages + 1))
            weights = (self.instance.space.weights(schedule, micro_batches, count).slowest for count in counts)
            self._least_weights[key] = min(weights, default=inf)
        return self._least_weights[key]

    def _bounds(
        self, compute: Compute, schedule: Schedule, micro_batches: int, slots: Sequence[int], counts: Sequence[int]
    ) -> Array:
        """Step times that no plan of each of `counts` stages beats, by compute alone."""
        if not counts:
            return numpy.zeros(0)
        key = (schedule.name, chunks_of(schedule), micro_batches, counts[0], counts[-1], len(counts))
        if key not in self._weights:
            weights = [self.instance.space.weights(schedule, micro_batches, count) for count in counts]
            self._weights[key] = numpy.array([each.slowest for each in weights]), weights
        slowest, weights = self._weights[key]
        totals: dict[Weights, float] = {}
        for each in weights:
            if each not in totals:
                totals[each] = compute.total(each)
        bounds: Array = slowest * compute.slowest(slots, counts) + numpy.array([totals[each] for each in weights])
        return bounds

    def _allowed(
        self,
        candidates: Candidates,
        shared: tuple[int, int, str, Schedule],
        degree: int | None,
        counts: Sequence[int],
        size: int,
    ) -> Iterator[tuple[tuple[tuple[int, tuple[Choice, ...]], ...], Tally, tuple[int, ...]]]:
        """What constraints leave of configurations that differ in choices and numbers of stages."""
        self.exclusions.combinations += len(counts)
        values, left = {}, {}
        for index in candidates:
            if not _shards_evenly(self.instance, index, shared[0], degree):
                return
            values[index], left[index] = self._choices(index, shared, degree)
        if not all(left.values()):
            return
        for members, totals, every in self._rules.counted_among(left, values, shared[0], counts, size):
            # What is uniform may leave a pool without any choice: then no plan uses it.
            if len(members) == len(candidates):
                in_order = tuple(sorted(members, key=lambda each: candidates.index(each[0])))
                for allowed in ((count,) for count in every) if self.instance.space.even else (every,):
                    yield in_order, Tally(0, totals), tuple(allowed)

    def _choices(
        self, index: int, shared: tuple[int, int, str, Schedule], degree: int | None
    ) -> tuple[dict[str, Value], tuple[Choice, ...]]:
        """What names mean for a candidate, and what its stages may choose however many there are."""
        replicas, micro_batches, rank_order, schedule = shared
        values = plan_values(self.instance.candidates[index], replicas, micro_batches, rank_order, schedule, degree)
        return values, self._rules.left(index, values)


def _joined(pools: Pools, used: Sequence[int]) -> bool:
    """Whether links lead from each of these pools to every other, by way of them alone."""
    reached = {used[0]}
    while True:
        further = {pool for pool in used if any(pools.link(pool, each) for each in reached)} - reached
        if not further:
            return len(reached) == len(used)
        reached |= further


def _shards_evenly(instance: Instance, index: int, replicas: int, degree: int | None) -> bool:
    """Whether the ranks of every parameter group can be cut into shard groups."""
    counts = [replicas * len(group.ranks) for group in instance.candidates[index].state]
    return degree is None or not any(count > degree and count % degree for count in counts)
