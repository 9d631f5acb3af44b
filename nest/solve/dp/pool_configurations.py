"""Plans on several pools before their stages are decided: the list, and bounds from compute alone."""

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

Candidates = tuple[int, ...]  # A candidate of each used pool, in the order of the pools.

Quick = tuple[int, int, tuple[int, ...], list[int], float]
"""Replicas, micro-batches, slots of a replica in each pool, numbers of stages, and a lower bound (s)."""


@frozen(eq=False, repr=False)
class Compute:
    """Compute of plans with one candidate of each used pool, in seconds per micro-batch."""

    longest: float  # Of the longest layer, each on its fastest pool.
    share: float  # Sum of the layers' shares of the model, each on the pool where it is least.
    whole: tuple[float, ...]  # Of all layers in each pool.
    least: float  # Of all layers, each on its fastest pool.
    parts: Array  # Same for forward passes, input gradients and weight gradients, by row.

    @classmethod
    def of(cls, instance: Instance, candidates: Candidates) -> "Compute":
        """Compute of these candidates."""
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

        A stage of `t` seconds has at most `t / whole` of the model. The stages' shares sum to at least the layers'
        least; most if each pool has one stage and the fastest the others.
        """
        speeds = sorted(((1 / each if each > 0 else inf, own) for each, own in zip(self.whole, slots, strict=True)))
        added = [speed for speed, _ in speeds[::-1]]
        added += [speed for speed, own in speeds[::-1] for _ in range(own - 1)]
        together = numpy.cumsum(added)[numpy.array(counts) - 1]
        slowest: Array = numpy.maximum(self.share / together, self.longest)
        return slowest

    def total(self, weights: Weights) -> float:
        """Least part of the step from the sum over stages, seconds."""
        if weights.uniform:
            return weights.forward * self.least
        return float(numpy.array([weights.of_parts(*rows) for rows in self.parts]).min(axis=0).sum())


@define(eq=False, repr=False)
class PoolListing:
    """Lists the configurations of plans that use at least `fewest` pools, in the documented order of ties."""

    instance: Instance
    most_stages: int  # Most stages of the layer graph.
    exclusions: Exclusions  # Counts refusals with their reasons.
    watch: Callable[[], None] = lambda: None  # Called every few milliseconds; may raise `OutOfTime`.
    limit: float = inf  # Step time (s); configurations excluded by compute alone are skipped.
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
        """Pools of the cluster."""
        assert self.instance.pools is not None
        return self.instance.pools

    def listed(self) -> list[tuple[float, Configuration]]:
        """Every configuration with a lower bound (s)."""
        found: list[tuple[float, Configuration]] = []
        for candidates in self._candidates():
            self.watch()
            for bound, each in self._of(candidates, len(found)):
                found.append((bound, each))
        return found

    def _candidates(self) -> Iterator[Candidates]:
        """One candidate of each of some connected pools, with equal samples."""
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
        """Replicas and micro-batches with plans that may be fast enough by compute alone.

        `blocks` are the most of each pool, shape `(pools,)`.
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
        """Least weight of the slowest stage for any number of stages."""
        key = (schedule.name, chunks_of(schedule), micro_batches)
        if key not in self._least_weights:
            counts = self._admitted.among(schedule, micro_batches, range(1, self.most_stages + 1))
            weights = (self.instance.space.weights(schedule, micro_batches, count).slowest for count in counts)
            self._least_weights[key] = min(weights, default=inf)
        return self._least_weights[key]

    def _bounds(
        self, compute: Compute, schedule: Schedule, micro_batches: int, slots: Sequence[int], counts: Sequence[int]
    ) -> Array:
        """Lower bounds (s) for each of `counts` stages, from compute alone."""
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
        """Apply constraints to configurations that differ in choices and numbers of stages."""
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
        """Values of names for a candidate, and the choices of its stages for any number of stages."""
        replicas, micro_batches, rank_order, schedule = shared
        values = plan_values(self.instance.candidates[index], replicas, micro_batches, rank_order, schedule, degree)
        return values, self._rules.left(index, values)


def _joined(pools: Pools, used: Sequence[int]) -> bool:
    """True if links connect these pools without others."""
    reached = {used[0]}
    while True:
        further = {pool for pool in used if any(pools.link(pool, each) for each in reached)} - reached
        if not further:
            return len(reached) == len(used)
        reached |= further


def _shards_evenly(instance: Instance, index: int, replicas: int, degree: int | None) -> bool:
    counts = [replicas * len(group.ranks) for group in instance.candidates[index].state]
    return degree is None or not any(count > degree and count % degree for count in counts)
