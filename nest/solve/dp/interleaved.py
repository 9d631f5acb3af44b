"""Interleaved plans: bounds that mostly decide, and the recurrence over places where they do not."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy
from attrs import define, evolve
from numpy.typing import NDArray

from nest.instance import Array, ParameterGroup, chunks_of
from nest.solve.dp.bounds import sharded
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.diagnosis import LeastMemory
from nest.solve.dp.nodes import PlanSearch
from nest.solve.dp.pareto import Floor, least_batch_time
from nest.solve.dp.recurrence import Partition, PlacedStage, boundary_times
from nest.solve.dp.sums import CandidateSums, candidate_sums
from nest.solve.dp.virtual_stages import (
    Best,
    InterleavedStages,
    Places,
    Split,
    Splits,
    interleaved_stages,
    stage_times,
)
from nest.solve.search import Bounded, Incumbent
from nest.tolerances import TIE


@define(eq=False)
class InterleavedSearch(PlanSearch):
    """Plans of several model chunks a stage.

    Attributes:
        splits: the even splits.
    """

    splits: Splits

    def compute_bounds(self, configuration: Configuration) -> Array:
        """Lower bounds on the step time for each of the configuration's stage counts, from compute alone."""
        return numpy.array([self._first_bound(configuration, count) for count in configuration.stage_counts])

    def branch(
        self, configuration: Configuration, counts: tuple[int, ...], limit: float, pruned: Counter[str]
    ) -> list[Bounded]:
        """One leaf per number of stages, with bounds from what its stages cost at least."""
        nodes = []
        for count in counts:
            leaf = self._leaf(configuration, count, limit)
            if isinstance(leaf, str):
                pruned[leaf] += 1
            else:
                nodes.append(leaf)
        return nodes

    def _leaf(self, configuration: Configuration, count: int, limit: float) -> Bounded | str:
        """The leaf of so many stages, or what prunes it; cheap bounds come first."""
        if self._first_bound(configuration, count) > limit:
            return "bound from compute"
        least = self._least_times(configuration, count)
        if not numpy.isfinite(least).all():
            return "memory of a stage, or a stage too slow"
        objective = self.objective(configuration, count)
        if objective.of(self._cheap_floor(configuration, count, least)) > limit:
            return "bound from partitions"
        stages = self._stages(configuration, count)
        self.meter.count(stages.memory.size)
        if not stages.possible:
            return "memory of a stage, or a stage too slow"
        times, _, _ = stages.anywhere(self._places(configuration, count), numpy.inf)
        floor = _floor(times, float(stages.sync.min(axis=0).max()))
        bound = objective.of(floor)
        return "bound from partitions" if bound > limit else self.bounded(bound, configuration, (count,), floor)

    def quick(self, configuration: Configuration, stages: int, floor: Floor) -> Incumbent | None:
        """The fastest choices, their blocks side by side."""
        costs, places = self._stages(configuration, stages), self._places(configuration, stages)
        placed = _side_by_side(places, costs, numpy.inf)
        return self._incumbent(configuration, self.objective(configuration, stages).of(placed), placed, costs)

    def solve(
        self, configuration: Configuration, stages: int, floor: Floor, limit: float, pruned: Counter[str]
    ) -> Incumbent | None:
        """The best plan of so many stages if it beats `limit`, exactly."""
        objective = self.objective(configuration, stages)
        costs, places = self._stages(configuration, stages), self._places(configuration, stages)
        value, best = least_batch_time(partial(_anywhere, places, costs), objective, floor, limit)
        if best is None:
            pruned["recurrence without places"] += 1
            return None
        # With the choices that are best where boundaries cost least, side by side: where that is no dearer, it is best.
        gapless = _side_by_side(places, costs, best.largest_sync)
        if objective.of(gapless) <= value * (1 + TIE):
            pruned["recurrence without places"] += 1
            return self._incumbent(configuration, objective.of(gapless), gapless, costs)
        value, best = least_batch_time(partial(_placed, places, costs), objective, floor, limit)
        pruned["recurrence"] += 1
        return None if best is None else self._incumbent(configuration, value, best, costs)

    def least_memory(self) -> LeastMemory | None:
        """The plan that needs the least memory on its fullest device; None where there is no interleaved plan."""
        names = [candidate.name for candidate in self.instance.candidates]

        def needed(each: Configuration, count: int) -> LeastMemory:
            fullest = float(self._stages(each, count).memory.min(axis=0).max())
            return LeastMemory(fullest, count, each.replicas, names[each.candidate])

        every = (needed(each, count) for each in self.configurations for count in each.stage_counts)
        return LeastMemory.least(every)

    def _incumbent(
        self, configuration: Configuration, value: float, placed: Partition, stages: InterleavedStages
    ) -> Incumbent:
        split, used = self._split(configuration, len(placed.stages)), configuration.candidate
        width, numbered = self.instance.candidates[used].width, enumerate(placed.stages)
        decided = ((split.stage(i), used, stages.choices[each.choice], each.slot * width) for i, each in numbered)
        return self.incumbent(configuration, value, decided)

    def _split(self, configuration: Configuration, count: int) -> Split:
        split = self.splits.of(count, chunks_of(configuration.schedule))
        assert split is not None, "configurations have stage counts with even splits only"
        return split

    def _first_bound(self, configuration: Configuration, count: int) -> float:
        """Lower bound on the step time from compute alone, shared by all that decide the rest otherwise."""

        def made() -> float:
            computing, busy = self._compute(configuration.candidate, self._split(configuration, count))
            return self.objective(configuration, count).of(_floor(numpy.maximum(computing, busy)))

        return self.once(("first bound", count, *_shape(configuration)), made)

    def _compute(self, candidate: int, split: Split) -> tuple[Array, Array]:
        """Seconds per micro-batch for which each stage computes, and its busiest port is busy, shape `(stages,)`."""

        def made() -> tuple[Array, Array]:
            used = self.instance.candidates[candidate]
            busy = numpy.zeros(split.stages)
            for row in () if used.busy is None else used.busy:
                busy = numpy.maximum(busy, split.stage_sums(row))
            return split.stage_sums(used.forward + used.backward), busy

        return self.once(("compute", candidate, split), made)

    def _cheap_floor(self, configuration: Configuration, count: int, computing: Array) -> Floor:
        """What stages take that compute for so long, with boundaries at their cheapest and nothing to synchronise."""
        arriving = self._places(configuration, count).crossing.min(axis=0)
        busy = self._compute(configuration.candidate, self._split(configuration, count))[1]
        return _floor(numpy.maximum(stage_times(computing, arriving, numpy.roll(arriving, -1)), busy))

    def _least_times(self, configuration: Configuration, count: int) -> Array:
        """Seconds per micro-batch for which each stage computes at least, shape `(stages,)`.

        Each stage recomputes as little as it has room for with its state sharded as far as it may be; the time is
        infinite where it has none. A look at few numbers, ahead of the stages' tables: most interleaved plans that
        need too much memory fail it (6,774 of 7,304 with Llama 3 70B on 128 H100; 2026-11-23).
        """

        def made() -> Array:
            split = self._split(configuration, count)
            further = numpy.array(self.in_flight(configuration, count)[::-1]) - 1
            room = self.room - self._least_state(configuration, split)
            modes = (self._mode(configuration.candidate, name, split) for name in configuration.modes)
            times = [numpy.where(first + further * more <= room, extra, numpy.inf) for first, more, extra in modes]
            computing: Array = self._compute(configuration.candidate, split)[0] + numpy.min(times, axis=0)
            return computing

        key = ("least times", count, *_shape(configuration), configuration.zero_degree, configuration.choices)
        return self.once(key, made)

    def _mode(self, candidate: int, mode: str, split: Split) -> tuple[Array, Array, Array]:
        """Of a recompute mode: bytes held of one micro-batch in flight, of each further one, and seconds it adds."""

        def made() -> tuple[Array, Array, Array]:
            recompute = self.instance.candidates[candidate].mode(mode)
            return (
                split.stage_sums(recompute.first),
                split.stage_sums(recompute.more),
                split.stage_sums(recompute.extra),
            )

        return self.once(("mode", candidate, mode, split), made)

    def _least_state(self, configuration: Configuration, split: Split) -> Array:
        """Bytes of state of each stage, sharded as far as a choice allows, shape `(stages,)`."""
        groups = self.instance.candidates[configuration.candidate].state

        def made() -> list[tuple[ParameterGroup, Array, Array, Array]]:
            sums = split.stage_sums
            return [(each, sums(each.weights), sums(each.gradients), sums(each.optimizer)) for each in groups]

        key = ("state", configuration.candidate, split)
        return sharded(self.once(key, made), configuration, split.stages)

    def _crossing(self, candidate: int, split: Split) -> Array:
        """Bytes that enter each chunk, shape `(chunks, stages)`."""
        key = ("crossing", candidate, split)
        return self.once(key, lambda: split.crossing(self.instance, self.instance.candidates[candidate]))

    def _sums(self, candidate: int, split: Split) -> CandidateSums:
        """Sums over the stages."""

        def made() -> CandidateSums:
            sums = candidate_sums(self.instance, self.instance.candidates[candidate], split.stage_sets())
            # Stages stash the inputs of all their chunks.
            entering = self._crossing(candidate, split).sum(axis=0)[::-1]
            return evolve(sums, cut=numpy.concatenate([[0.0], entering]))

        return self.once(("sums", candidate, split), made)

    def _stages(self, configuration: Configuration, count: int) -> InterleavedStages:
        split, flying = self._split(configuration, count), self.in_flight(configuration, count)
        return interleaved_stages(
            self.instance, configuration, split, self._sums(configuration.candidate, split), flying
        )

    def _places(self, configuration: Configuration, count: int) -> Places:
        """Where stages may lie, with the seconds of their boundaries at each level that occurs."""
        here, levels = self.slots(configuration), self.instance.cluster.levels
        entering = self._crossing(configuration.candidate, self._split(configuration, count))
        crossing = numpy.array([boundary_times(entering, levels[level]).sum(axis=0) for level in here.levels])
        return Places(crossing, numpy.searchsorted(here.levels, here.steps), here.levels, self.meter)


def _floor(times: Array, sync: float = 0.0) -> Floor:
    """The terms of the step time of stages that take these seconds per micro-batch and once per batch."""
    return Floor(float(times.max()), float(times.sum()), sync)


def _shape(configuration: Configuration) -> tuple[object, ...]:
    """What decides how much a device computes and holds, beside choices: not the order of ranks."""
    schedule = configuration.schedule
    return configuration.candidate, configuration.replicas, schedule.name, chunks_of(schedule)


def _anywhere(places: Places, stages: InterleavedStages, time_limit: float, sync_limit: float) -> Partition | None:
    """The stages within limits, as if every boundary were at its cheapest level."""
    times, syncs, choices = stages.anywhere(places, sync_limit)
    if times.max() > time_limit or times.max() == numpy.inf:
        return None
    return _partition(range(places.stages), times, syncs, choices)  # Whatever the slots.


def _placed(places: Places, stages: InterleavedStages, time_limit: float, sync_limit: float) -> Partition | None:
    """The stages of least total time within limits, with their places."""
    every = stages.everywhere(places, sync_limit)
    slots = places.least(every[0], time_limit)
    return None if slots is None else _in_slots(places, every, slots)


def _side_by_side(places: Places, stages: InterleavedStages, sync_limit: float) -> Partition:
    """The stages' fastest choices within a limit on gradient reduction, in the first slots.

    Times are infinite where no choice keeps the limit there.
    """
    return _in_slots(places, stages.everywhere(places, sync_limit), range(places.stages))


def _in_slots(places: Places, every: Best, slots: Sequence[int]) -> Partition:
    """Stages with their best choices, which are given for all levels, in these slots."""
    here = (*places.around(slots), numpy.arange(places.stages))
    times, syncs, choices = every
    return _partition(slots, times[here], syncs[here], choices[here])


def _partition(slots: Sequence[int], times: Array, syncs: Array, choices: NDArray[numpy.int64]) -> Partition:
    """Stages as `Split.stage_sets` counts them."""
    behind = range(len(slots) - 1, -1, -1)
    rows = zip(behind, slots, choices.tolist(), times.tolist(), times.tolist(), syncs.tolist(), strict=True)
    return Partition(tuple(PlacedStage(place + 1, place, *figures) for place, *figures in rows))
