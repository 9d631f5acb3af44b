"""Arrays of settings: the replicas, stages and schedules possible for given candidates.

A cluster of thousands of devices has tens of millions of settings. Arrays allow listing and bounding them
(`nest_cpsat.compute_bound`) before any object is made (PROBLEM.md section 3).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations, product

import numpy
from attrs import define, frozen

from nest.instance import Instance, admits, chunks_of
from nest.reuse import remembered
from nest_cpsat.cuts import Booleans, Floats, Integers, chunk_units
from nest_cpsat.scaling import least_compute_weight


@frozen(eq=False)
class Rows:
    """Settings without candidates and rank order; arrays of shape `(rows,)`."""

    replicas: Integers  # `d`.
    micro_batches: Integers  # Per replica (`M`).
    schedule: Integers  # Index in `Space.schedules`.
    stages: Integers  # `s`.
    slowest: Floats  # `A`, weight of the slowest stage.
    least: Floats  # Least that a second of compute adds to the sum.

    def __len__(self) -> int:
        return len(self.stages)

    def only(self, rows: Booleans) -> Rows:
        """Select rows."""
        replicas, micro_batches = self.replicas[rows], self.micro_batches[rows]
        schedule, stages = self.schedule[rows], self.stages[rows]
        return Rows(replicas, micro_batches, schedule, stages, self.slowest[rows], self.least[rows])


Together = tuple[tuple[int, ...], int, bool]
"""Common key of a family: candidates, widest width, and whether stages have chunks."""


@frozen(eq=False)
class Family:
    """Settings (`rows`) of some candidates."""

    candidates: tuple[int, ...]  # Indices; on pools one for each pool in use.
    widest: int  # Width of the widest block.
    rows: Rows

    def only(self, rows: Booleans) -> Family:
        """Select rows."""
        return Family(self.candidates, self.widest, self.rows.only(rows))


@define(slots=False)
class Families:
    """All settings of an instance with at most `most_stages` stages."""

    instance: Instance
    most_stages: int

    def __iter__(self) -> Iterator[Family]:
        return map(self.of, self.together())

    def together(self) -> Iterator[Together]:
        """Keys of all families."""
        schedules = self.instance.space.schedules
        if any(chunks_of(each) == 1 for each in schedules):
            for candidates, widest in _together(self.instance, mixed=self.instance.space.mixed):
                yield candidates, widest, False
        # Plans of several chunks have one candidate.
        if any(chunks_of(each) > 1 for each in schedules):
            for candidates, widest in _together(self.instance, mixed=False):
                yield candidates, widest, True

    def of(self, together: Together) -> Family:
        """Build the family of a key."""
        candidates, widest, chunked = together
        instance, fewest = self.instance, 1
        rows = self._of_samples(instance.candidates[candidates[0]].samples, chunked=chunked)
        if instance.pools is not None:
            room: Integers = numpy.sum(rooms(instance, candidates, rows.replicas), axis=0)
            most = min(instance.cluster_of(each).size // instance.candidates[each].width for each in candidates)
            fewest = len(candidates)
        else:
            narrowest = min(instance.candidates[each].width for each in candidates)
            most = instance.cluster.size // widest
            room = widest * (instance.cluster.size // (rows.replicas * widest)) // narrowest
        fitting = (rows.replicas <= most) & (rows.stages >= fewest) & (rows.stages <= room)
        return Family(candidates, widest, rows.only(fitting))

    @remembered
    def _of_samples(self, samples: int, *, chunked: bool) -> Rows:
        """Settings of candidates of so many samples, as far as they are independent of widths."""
        instance, space = self.instance, self.instance.space
        own = [index for index, each in enumerate(instance.candidates) if each.samples == samples]
        example = instance.candidates[own[0]]
        narrowest = min(instance.candidates[each].width for each in own)
        # Pools add up: blocks of a replica lie in all of them.
        size = instance.size
        split = cache(lambda parts: chunk_units(instance, parts) is not None)
        listed, weighed = [], []
        for replicas in range(1, min(size // narrowest, space.global_batch // samples) + 1):
            count = instance.micro_batches(example, replicas)
            if count is None:
                continue
            for number, schedule in enumerate(space.schedules):
                chunks = chunks_of(schedule)
                if (chunks > 1) != chunked:
                    continue
                for stages in self._stages(size // (replicas * narrowest), chunked=chunked):
                    if (chunks == 1 or split(stages * chunks)) and admits(schedule, stages, count):
                        weights = space.weights(schedule, count, stages)
                        listed.append((replicas, count, number, stages))
                        weighed.append((weights.slowest, least_compute_weight(weights)))
        integers = numpy.array(listed, dtype=numpy.int64).reshape(-1, 4).T
        floats = numpy.array(weighed, dtype=numpy.float64).reshape(-1, 2).T
        return Rows(integers[0], integers[1], integers[2], integers[3], floats[0], floats[1])

    def _stages(self, room: int, *, chunked: bool) -> Sequence[int]:
        space = self.instance.space
        if chunked:
            numbers = [*range(2, min(room, len(space.blocks)) + 1)]
        else:
            numbers = [*range(1, min(room, self.most_stages) + 1)]
            if space.even:
                numbers = [stages for stages in numbers if len(space.blocks) % stages == 0]
        if space.partition is not None:
            numbers = [stages for stages in numbers if len(space.partition) == stages]
        return numbers


def rooms(instance: Instance, candidates: Sequence[int], replicas: int | Integers) -> tuple[int, ...]:
    """Blocks of a replica that fit each candidate's pool, elementwise in `replicas`."""
    every = ((instance.cluster_of(each).size, instance.candidates[each].width) for each in candidates)
    return tuple(size // (replicas * width) for size, width in every)  # type: ignore[misc]


def _together(instance: Instance, *, mixed: bool) -> Iterator[tuple[tuple[int, ...], int]]:
    """Sets of candidates for the stages of one plan, each with its widest width."""
    if instance.pools is not None:
        yield from _across_pools(instance)
        return
    usable = [(index, each) for index, each in enumerate(instance.candidates) if instance.cluster.admits(each.width)]
    if not mixed:
        for index, each in usable:
            yield (index,), each.width
        return
    for samples, width in sorted({(each.samples, each.width) for _, each in usable}):
        indices = (index for index, each in usable if each.samples == samples and each.width <= width)
        yield tuple(indices), width


def _across_pools(instance: Instance) -> Iterator[tuple[tuple[int, ...], int]]:
    """Candidates of equal samples, one for each of some pools, with the widest width."""
    by_samples: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, each in enumerate(instance.candidates):
        if instance.cluster_of(index).admits(each.width):
            by_samples[each.samples][instance.pool_of(index)].append(index)
    for _, of_pool in sorted(by_samples.items()):
        for count in range(1, len(of_pool) + 1):
            for pools in combinations(sorted(of_pool), count):
                for candidates in product(*(of_pool[pool] for pool in pools)) if _joined(instance, pools) else ():
                    used = [instance.candidates[each] for each in candidates]
                    if not instance.space.alike or all(each.split == used[0].split for each in used):
                        yield candidates, max(each.width for each in used)


def _joined(instance: Instance, pools: Sequence[int]) -> bool:
    """True if links connect these pools."""
    assert instance.pools is not None
    reached, waiting = {pools[0]}, [pools[0]]
    while waiting:
        here = waiting.pop()
        near = {each for each in pools if each not in reached and instance.pools.link(here, each) is not None}
        reached |= near
        waiting += near
    return len(reached) == len(pools)
