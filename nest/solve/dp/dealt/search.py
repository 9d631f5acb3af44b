"""Plans of several chunks: bounds that mostly decide, and the recurrence over places where they do not."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import numpy
from attrs import define, field

from nest.instance import Array, Instance, ParameterGroup, Schedule, Solution, StageDecision, chunks_of
from nest.solve.dp.candidate_sums import CandidateSums
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.dealt.places import Placed, Places, stage_times
from nest.solve.dp.dealt.split import Split, Splits
from nest.solve.dp.dealt.stages import Best, DealtStages, dealt_stages, split_sums
from nest.solve.dp.diagnose import LeastMemory
from nest.solve.dp.found import Found, Rank
from nest.solve.dp.meter import Meter
from nest.solve.dp.packing import sharded
from nest.solve.dp.pareto import Floor, Objective, walk
from nest.solve.dp.placement import Slots, slots
from nest.solve.dp.recurrence import boundary_times
from nest.solve.dp.run import Bounded
from nest.solve.dp.search import Search, Task
from nest.tolerances import LIMIT_SLACK, TIE

T = TypeVar("T")


@define(eq=False)
class DealtSearch:
    """The plans of several chunks, and what is known of them while they are searched.

    Attributes:
        instance: the problem.
        configurations: those with schedules of several chunks.
        splits: the even splits.
        meter: counts the work.
    """

    instance: Instance
    configurations: list[Configuration]
    splits: Splits
    meter: Meter = field(factory=Meter)
    _known: dict[Hashable, object] = field(factory=dict)

    def families(self) -> list[Bounded[Task]]:
        """Every configuration, by its bounds from compute; the same for a second run."""
        return self._once("families", lambda: list(self._families()))

    def _families(self) -> Iterator[Bounded[Task]]:
        for configuration in self.configurations:
            self.meter.watch()
            task = Task(configuration, configuration.stage_counts)
            bound = min(self._first_bound(configuration, count) for count in task.counts)
            yield Bounded(bound, self._rank(task), task)

    def split(self, family: Task, limit: float, dropped: Counter[str]) -> list[Bounded[Task]]:
        """One task per number of stages, with bounds from what its stages cost at least."""
        configuration, found = family.configuration, []
        for count in family.counts:
            if self._first_bound(configuration, count) > limit:
                dropped["bound from compute"] += 1
                continue
            least = self._least_times(configuration, count)
            if not numpy.isfinite(least).all():
                dropped["memory of a stage, or a stage too slow"] += 1
                continue
            if self._objective(configuration, count).bound(self._cheap_floor(configuration, count, least)) > limit:
                dropped["bound from partitions"] += 1
                continue
            stages = self._stages(configuration, count)
            self.meter.count(stages.memory.size)
            if not stages.possible:
                dropped["memory of a stage, or a stage too slow"] += 1
                continue
            times, _, _ = stages.anywhere(self._places(configuration, count), numpy.inf)
            floor = _floor(times, float(stages.sync.min(axis=0).max()))
            bound = self._objective(configuration, count).bound(floor)
            if bound > limit:
                dropped["bound from partitions"] += 1
            else:
                task = Task(configuration, (count,), floor)
                found.append(Bounded(bound, self._rank(task), task))
        return found

    def quick(self, family: Task) -> Found | None:
        """The fastest choices, their blocks side by side."""
        stages, places = self._parts(family)
        placed = _side_by_side(places, stages, numpy.inf)
        return self._found(family, self._objective(family.configuration, family.counts[0]).of(placed), placed, stages)

    def solve(self, family: Task, limit: float, dropped: Counter[str]) -> Found | None:
        """The best plan of one number of stages if it beats `limit`, exactly."""
        assert family.floor is not None
        objective = self._objective(family.configuration, family.counts[0])
        stages, places = self._parts(family)
        value, best = walk(partial(_anywhere, places, stages), objective, family.floor, limit)
        if best is None:
            dropped["recurrence without places"] += 1
            return None
        # With the choices that are best where boundaries cost least, side by side: where that is no dearer, it is best.
        gapless = _side_by_side(places, stages, best.largest_sync)
        if objective.of(gapless) <= value * (1 + TIE):
            dropped["recurrence without places"] += 1
            return self._found(family, objective.of(gapless), gapless, stages)
        value, best = walk(partial(_placed, places, stages), objective, family.floor, limit)
        dropped["recurrence"] += 1
        return None if best is None else self._found(family, value, best, stages)

    def least_memory(self) -> LeastMemory | None:
        """The plan that needs the least memory on its fullest device; None where there is none of several chunks."""
        best: LeastMemory | None = None
        for configuration in self.configurations:
            for count in configuration.stage_counts:
                needed = float(self._stages(configuration, count).memory.min(axis=0).max())
                if needed < (numpy.inf if best is None else best.bytes):
                    name = self.instance.candidates[configuration.candidate].name
                    best = LeastMemory(needed, count, configuration.replicas, name)
        return best

    def _found(self, family: Task, value: float, placed: Placed, stages: DealtStages) -> Found:
        configuration, split = family.configuration, self._split(family.configuration, family.counts[0])
        width = self.instance.candidates[configuration.candidate].width
        decided = tuple(
            StageDecision(
                split.stage(index),
                configuration.candidate,
                stages.choices[choice].recompute,
                stages.choices[choice].zero,
                slot * width,
            )
            for index, (slot, choice) in enumerate(zip(placed.slots, placed.choices, strict=True))
        )
        schedule = configuration.schedule
        solution = Solution(
            configuration.replicas,
            configuration.rank_order,
            schedule.name,
            decided,
            chunks_of(schedule),
            configuration.zero_degree,
        )
        return Found(value, self._rank(family), solution)

    def _rank(self, task: Task) -> Rank:
        """Where the best of a task could stand among ties: devices, stages, then the configuration's order."""
        width, count = self.instance.candidates[task.configuration.candidate].width, task.counts[0]
        return (task.configuration.replicas * width * count, count, task.configuration.order)

    def _parts(self, family: Task) -> tuple[DealtStages, Places]:
        configuration, count = family.configuration, family.counts[0]
        return self._stages(configuration, count), self._places(configuration, count)

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        """`make()`, kept for good."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]  # type: ignore[return-value]

    def _split(self, configuration: Configuration, count: int) -> Split:
        split = self.splits.of(count, chunks_of(configuration.schedule))
        assert split is not None, "configurations have stage counts with even splits only"
        return split

    def _objective(self, configuration: Configuration, count: int) -> Objective:
        return Objective(*configuration.schedule.weights(configuration.micro_batches, count))

    def _first_bound(self, configuration: Configuration, count: int) -> float:
        """Lower bound on the batch time from compute alone, shared by all that decide the rest otherwise."""
        key = ("first bound", count, *_shape(configuration))
        if key not in self._known:
            computing, busy = self._compute(configuration.candidate, self._split(configuration, count))
            self._known[key] = self._objective(configuration, count).bound(_floor(numpy.maximum(computing, busy)))
        return self._known[key]  # type: ignore[return-value]

    def _compute(self, candidate: int, split: Split) -> tuple[Array, Array]:
        """Seconds per micro-batch for which each stage computes, and its busiest port is busy, shape `(stages,)`."""

        def made() -> tuple[Array, Array]:
            used = self.instance.candidates[candidate]
            busy = numpy.zeros(split.stages)
            for row in () if used.busy is None else used.busy:
                busy = numpy.maximum(busy, split.stage_sums(row))
            return split.stage_sums(used.forward + used.backward), busy

        return self._once(("compute", candidate, split.stages, len(split.chunks)), made)

    def _cheap_floor(self, configuration: Configuration, count: int, computing: Array) -> Floor:
        """What stages take that compute for so long, with boundaries at their cheapest and nothing to synchronise."""
        arriving = self._places(configuration, count).crossing.min(axis=0)
        busy = self._compute(configuration.candidate, self._split(configuration, count))[1]
        return _floor(numpy.maximum(stage_times(computing, arriving, numpy.roll(arriving, -1)), busy))

    def _least_times(self, configuration: Configuration, count: int) -> Array:
        """Seconds per micro-batch for which each stage computes at least, shape `(stages,)`.

        Each stage recomputes as little as it has room for with its state sharded as far as it may be; the time is
        infinite where it has none. A look at few numbers, ahead of the stages' tables: most plans of several chunks
        that need too much memory fail it (6,774 of 7,304 with Llama 3 70B on 128 H100; 2026-11-23).
        """
        key = ("least times", count, *_shape(configuration), configuration.zero_degree, configuration.choices)
        return self._once(key, lambda: self._made_least_times(configuration, count))

    def _made_least_times(self, configuration: Configuration, count: int) -> Array:
        split, schedule = self._split(configuration, count), configuration.schedule
        further = numpy.array(self._in_flight(schedule, configuration.micro_batches, count)) - 1
        cluster = self.instance.cluster
        room = cluster.memory * (1 + LIMIT_SLACK) - cluster.reserve - self._least_state(configuration, split)
        modes = (self._mode(configuration.candidate, name, split) for name in configuration.modes)
        times = [numpy.where(first + further * more <= room, extra, numpy.inf) for first, more, extra in modes]
        computing: Array = self._compute(configuration.candidate, split)[0] + numpy.min(times, axis=0)
        return computing

    def _in_flight(self, schedule: Schedule, micro_batches: int, count: int) -> tuple[float, ...]:
        return self._once(
            ("in flight", schedule.name, chunks_of(schedule), micro_batches, count),
            lambda: tuple(schedule.in_flight(stage, count, micro_batches) for stage in range(1, count + 1)),
        )

    def _mode(self, candidate: int, mode: str, split: Split) -> tuple[Array, Array, Array]:
        """Of a recompute mode: bytes held of one micro-batch in flight, of each further one, and seconds it adds."""

        def made() -> tuple[Array, Array, Array]:
            found = self.instance.candidates[candidate].mode(mode)
            return split.stage_sums(found.first), split.stage_sums(found.more), split.stage_sums(found.extra)

        return self._once(("mode", candidate, mode, split.stages, len(split.chunks)), made)

    def _least_state(self, configuration: Configuration, split: Split) -> Array:
        """Bytes of state of each stage, sharded as far as a choice allows, shape `(stages,)`."""
        groups = self.instance.candidates[configuration.candidate].state

        def made() -> list[tuple[ParameterGroup, Array, Array, Array]]:
            sums = split.stage_sums
            return [(each, sums(each.weights), sums(each.gradients), sums(each.optimizer)) for each in groups]

        key = ("state", configuration.candidate, split.stages, len(split.chunks))
        return sharded(self._once(key, made), configuration, split.stages)

    def _crossing(self, candidate: int, split: Split) -> Array:
        """Bytes that enter each chunk, shape `(chunks, stages)`."""
        key = ("crossing", candidate, split.stages, len(split.chunks))
        return self._once(key, lambda: split.crossing(self.instance, self.instance.candidates[candidate]))

    def _sums(self, candidate: int, split: Split) -> CandidateSums:
        key = ("sums", candidate, split.stages, len(split.chunks))
        return self._once(key, lambda: split_sums(self.instance, candidate, split, self._crossing(candidate, split)))

    def _stages(self, configuration: Configuration, count: int) -> DealtStages:
        split = self._split(configuration, count)
        return dealt_stages(self.instance, configuration, split, self._sums(configuration.candidate, split))

    def _slots(self, configuration: Configuration) -> Slots:
        width = self.instance.candidates[configuration.candidate].width
        key = ("slots", width, configuration.replicas, configuration.rank_order)
        return self._once(
            key, lambda: slots(self.instance.cluster, width, configuration.replicas, configuration.rank_order)
        )

    def _places(self, configuration: Configuration, count: int) -> Places:
        """Where stages may lie, with the seconds of their boundaries at each level that occurs."""
        here, levels = self._slots(configuration), self.instance.cluster.levels
        entering = self._crossing(configuration.candidate, self._split(configuration, count))
        crossing = numpy.array([boundary_times(entering, levels[level]).sum(axis=0) for level in here.levels])
        return Places(crossing, numpy.searchsorted(here.levels, here.steps), here.levels, self.meter)


def _floor(times: Array, sync: float = 0.0) -> Floor:
    """The terms of the batch time of stages that take these seconds per micro-batch and once per batch."""
    return Floor(float(times.max()), float(times.sum()), sync)


def _shape(configuration: Configuration) -> tuple[Hashable, ...]:
    """What decides how much a device computes and holds, beside choices: not the order of ranks."""
    schedule = configuration.schedule
    return configuration.candidate, configuration.replicas, schedule.name, chunks_of(schedule)


def _anywhere(places: Places, stages: DealtStages, time_limit: float, sync_limit: float) -> Placed | None:
    """The stages within limits, as if every boundary were at its cheapest level."""
    times, syncs, choices = stages.anywhere(places, sync_limit)
    if times.max() > time_limit or times.max() == numpy.inf:
        return None
    return Placed((), tuple(choices.tolist()), tuple(times.tolist()), tuple(syncs.tolist()))


def _placed(places: Places, stages: DealtStages, time_limit: float, sync_limit: float) -> Placed | None:
    """The stages of least total time within limits, with their places."""
    every = stages.everywhere(places, sync_limit)
    slots = places.least(every[0], time_limit)
    return None if slots is None else _in_slots(places, every, slots)


def _side_by_side(places: Places, stages: DealtStages, sync_limit: float) -> Placed:
    """The stages' fastest choices within a limit on synchronisation, in the first slots.

    Times are infinite where no choice keeps the limit there.
    """
    return _in_slots(places, stages.everywhere(places, sync_limit), range(places.stages))


def _in_slots(places: Places, every: Best, slots: Sequence[int]) -> Placed:
    """Stages with their best choices, which are given for all levels, in these slots."""
    here = (*places.around(slots), numpy.arange(places.stages))
    times, syncs, choices = (each[here] for each in every)
    return Placed(tuple(slots), tuple(choices.tolist()), tuple(times.tolist()), tuple(syncs.tolist()))


@define(eq=False)
class WithDealt:
    """A search of plans of one chunk for each stage together with those of several, best bound of all first.

    Attributes:
        plain: searches plans without chunks.
        dealt: searches the others.
        meter: counts the work of both.
    """

    plain: Search
    dealt: DealtSearch
    meter: Meter

    def families(self) -> Iterator[Bounded[Task]]:
        """Every configuration, by its bounds from compute."""
        yield from self.plain.families()
        yield from self.dealt.families()

    def split(self, family: Task, limit: float, dropped: Counter[str]) -> list[Bounded[Task]]:
        """One task per number of stages."""
        return self._searcher(family).split(family, limit, dropped)

    def quick(self, family: Task) -> Found | None:
        """Some plan of one number of stages."""
        return self._searcher(family).quick(family)

    def solve(self, family: Task, limit: float, dropped: Counter[str]) -> Found | None:
        """The best plan of one number of stages if it beats `limit`, exactly."""
        return self._searcher(family).solve(family, limit, dropped)

    def _searcher(self, family: Task) -> Search | DealtSearch:
        return self.dealt if chunks_of(family.configuration.schedule) > 1 else self.plain
