"""Tables and bounds of configurations, made when first asked for and shared among those that agree."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

import numpy
from attrs import field, frozen

from nest.instance import Array, Instance, Schedule, Solution, StageDecision
from nest.solve.dp.bounds import PartitionBounds, compute_bounds, partition_bounds
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.downsets import Downsets
from nest.solve.dp.pareto import Floor, Objective, walk
from nest.solve.dp.placement import Slots, slots
from nest.solve.dp.recurrence import Boundaries, Partition, Recurrence, boundaries
from nest.solve.dp.stages import CandidateTables, StageTables, candidate_tables, stage_tables, zero_tables

T = TypeVar("T")
TABLE_BYTES = 256 * 2**20
"""Most bytes of tables kept for later use."""


@frozen
class Found:
    """A plan the search priced.

    Attributes:
        value: batch time, seconds.
        configuration: its configuration.
        partition: its stages.
        tables: what its stages' choices mean.
    """

    value: float
    configuration: Configuration
    partition: Partition
    tables: StageTables

    def solution(self, downsets: Downsets, width: int) -> Solution:
        """The decisions, for others to price."""
        stages = []
        for stage in self.partition.stages:
            choice = self.tables.choices[stage.choice]
            stages.append(
                StageDecision(
                    downsets.between(stage.larger, stage.smaller),
                    self.configuration.candidate,
                    choice.recompute,
                    choice.zero,
                    stage.slot * width,
                )
            )
        configuration = self.configuration
        return Solution(configuration.replicas, configuration.rank_order, configuration.schedule.name, tuple(stages))


@frozen(eq=False)
class Search:
    """What is known of one instance while it is searched.

    Attributes:
        instance: the problem.
        downsets: the cuts of its layer graph.
    """

    instance: Instance
    downsets: Downsets
    _kept: OrderedDict[Hashable, object] = field(factory=OrderedDict)
    _small: dict[Hashable, object] = field(factory=dict)

    def _keep(self, key: Hashable, size: int, make: Callable[[], T]) -> T:
        """`make()`, kept while there is room for about `size` matrices over pairs of downsets."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]  # type: ignore[return-value]
        while len(self._kept) * size * 8 * self.downsets.count**2 > TABLE_BYTES:
            self._kept.popitem(last=False)
        made = make()
        self._kept[key] = made
        return made

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        """`make()`, kept for good."""
        if key not in self._small:
            self._small[key] = make()
        return self._small[key]  # type: ignore[return-value]

    def candidate(self, index: int) -> CandidateTables:
        """Tables of a candidate."""
        return self._keep(
            ("candidate", index),
            24,
            lambda: candidate_tables(self.instance, self.instance.candidates[index], self.downsets),
        )

    def tables(self, configuration: Configuration) -> StageTables:
        """Tables of every choice of every stage."""

        def make() -> StageTables:
            candidate = self.candidate(configuration.candidate)
            zeros = zero_tables(
                self.instance,
                candidate,
                configuration.replicas,
                configuration.rank_order,
                sorted({choice.zero for choice in configuration.choices}),
            )
            return stage_tables(self.instance, self.downsets, candidate, zeros, configuration.choices)

        key = ("tables", configuration.candidate, configuration.replicas, configuration.rank_order)
        return self._keep((*key, configuration.choices), 24, make)

    def slots(self, configuration: Configuration) -> Slots:
        """Where blocks may sit."""
        width = self.instance.candidates[configuration.candidate].width
        return self._once(
            ("slots", width, configuration.replicas, configuration.rank_order),
            lambda: slots(self.instance.cluster, width, configuration.replicas, configuration.rank_order),
        )

    def boundaries(self, configuration: Configuration) -> Boundaries:
        """Boundary times at every level that occurs."""
        cut = self.candidate(configuration.candidate).cut
        key = ("boundaries", configuration.candidate, configuration.replicas, configuration.rank_order)
        return self._keep(key, 1, lambda: boundaries(cut, self.slots(configuration), self.instance.cluster.levels))

    def in_flight(self, schedule: Schedule, micro_batches: int, stages: int) -> tuple[int, ...]:
        """Micro-batches in flight of each stage, counted from the last."""
        return self._once(
            ("in flight", schedule.name, micro_batches, stages),
            lambda: tuple(schedule.in_flight(stages - j + 1, stages, micro_batches) for j in range(1, stages + 1)),
        )

    def objective(self, configuration: Configuration, stages: int) -> Objective:
        """Weights of the schedule for `stages` stages."""
        schedule, micro_batches = configuration.schedule, configuration.micro_batches
        return self._once(
            ("objective", schedule.name, micro_batches, stages),
            lambda: Objective(*schedule.weights(micro_batches, stages)),
        )

    def first_bounds(self, configuration: Configuration) -> Array:
        """Lower bound on the batch time for each of the configuration's stage counts, from compute alone."""
        stages = numpy.array(configuration.stage_counts, dtype=numpy.float64)
        candidate = self.instance.candidates[configuration.candidate]
        slowest, total = compute_bounds(candidate, stages)
        weights = [self.objective(configuration, count) for count in configuration.stage_counts]
        return numpy.array([w.slowest for w in weights]) * slowest + numpy.array([w.total for w in weights]) * total

    def floors(self, configuration: Configuration, counts: tuple[int, ...]) -> list[Floor]:
        """Lower bounds of the three terms for each of `counts` stages, every boundary at its cheapest level."""
        schedule, micro_batches = configuration.schedule, configuration.micro_batches
        longest = self.in_flight(schedule, micro_batches, counts[-1])
        shared = self._partition_bounds(configuration, longest)
        floors = []
        for count in counts:
            own = self.in_flight(schedule, micro_batches, count)
            bounds = shared if own == longest[:count] else self._partition_bounds(configuration, own)
            floors.append(_floor(bounds, count))
        return floors

    def _partition_bounds(self, configuration: Configuration, in_flight: tuple[int, ...]) -> PartitionBounds:
        """Partition bounds, shared by the schedules that hold as many micro-batches in flight."""
        key = ("bounds", configuration.candidate, configuration.replicas, configuration.rank_order)
        return self._once(
            (*key, configuration.choices, in_flight),
            lambda: partition_bounds(self.tables(configuration), self.boundaries(configuration).relaxed, in_flight),
        )

    def best(self, configuration: Configuration, stages: int, floor: Floor, limit: float) -> Found | None:
        """The best plan of `stages` stages if it beats `limit` seconds, exactly."""
        tables, boundary = self.tables(configuration), self.boundaries(configuration)
        places = self.slots(configuration)
        objective = self.objective(configuration, stages)
        flying = self.in_flight(configuration.schedule, configuration.micro_batches, stages)
        straight = numpy.zeros(max(stages - 1, 0), dtype=numpy.int64)
        relaxed = Recurrence(tables, flying, boundary.relaxed[None, :], straight)
        choice_of_places = len(boundary.times) > 1 and places.count > stages
        if choice_of_places and walk(relaxed.run, objective, floor, limit)[1] is None:
            return None
        exact = relaxed
        if len(boundary.times) > 1:
            exact = Recurrence(tables, flying, boundary.times, boundary.steps)
        value, partition = walk(exact.run, objective, floor, limit)
        return None if partition is None else Found(value, configuration, partition, tables)


def _floor(bounds: PartitionBounds, stages: int) -> Floor:
    return Floor(
        float(bounds.largest_time[stages - 1]),
        float(bounds.total_time[stages - 1]),
        float(bounds.largest_sync[stages - 1]),
    )
