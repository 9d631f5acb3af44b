"""Tables and bounds of configurations, made when first asked for and shared among those that agree."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

import numpy
from attrs import define, field, frozen

from nest.instance import Array, Instance, Schedule, Solution, StageDecision
from nest.solve.dp.bounds import PartitionBounds, compute_bounds, partition_bounds
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.downsets import Downsets
from nest.solve.dp.pareto import Floor, Objective, walk
from nest.solve.dp.placement import Slots, slots
from nest.solve.dp.recurrence import Boundaries, Partition, Recurrence, boundaries
from nest.solve.dp.stages import CandidateSums, StageTables, candidate_sums, stage_tables, zero_tables

T = TypeVar("T")
ROUNDING = 1e-9
"""Relative slack on limits that only leave out what is too slow: sums are taken in different orders."""

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


@define(eq=False)
class Search:
    """What is known of one instance while it is searched.

    Attributes:
        instance: the problem.
        downsets: the cuts of its layer graph.
    """

    instance: Instance
    downsets: Downsets
    _tables: OrderedDict[Hashable, tuple[float, StageTables]] = field(factory=OrderedDict)
    _table_bytes: int = 0
    _small: dict[Hashable, object] = field(factory=dict)

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        """`make()`, kept for good."""
        if key not in self._small:
            self._small[key] = make()
        return self._small[key]  # type: ignore[return-value]

    def sums(self, index: int) -> CandidateSums:
        """Sums of a candidate over downsets."""
        candidate = self.instance.candidates[index]
        return self._once(("sums", index), lambda: candidate_sums(self.instance, candidate, self.downsets))

    def tables(self, configuration: Configuration, time_limit: float) -> StageTables:
        """Tables of the stages that fit memory and take at most `time_limit` seconds per micro-batch."""
        key = (
            configuration.candidate,
            configuration.replicas,
            configuration.rank_order,
            configuration.choices,
        )
        limit, known = self._tables.get(key, (-numpy.inf, None))
        if known is None or limit < time_limit:
            made = self._make_tables(configuration, time_limit).within(time_limit)
            self._keep(key, time_limit, made)
            return made
        self._tables.move_to_end(key)
        return known.within(time_limit)

    def _keep(self, key: Hashable, time_limit: float, tables: StageTables) -> None:
        """Keep `tables`, and drop those used longest ago while all together exceed `TABLE_BYTES`."""
        if key in self._tables:
            self._table_bytes -= self._tables.pop(key)[1].bytes
        self._tables[key] = (time_limit, tables)
        self._table_bytes += tables.bytes
        while self._table_bytes > TABLE_BYTES and len(self._tables) > 1:
            _, (_, oldest) = self._tables.popitem(last=False)
            self._table_bytes -= oldest.bytes

    def all_tables(self, configuration: Configuration) -> StageTables:
        """Tables of every stage, whether memory allows it or not."""
        return self._make_tables(configuration, numpy.inf)

    def _make_tables(self, configuration: Configuration, time_limit: float) -> StageTables:
        """Tables of the stages whose computation alone takes at most `time_limit` seconds."""
        sums, pairs = self.sums(configuration.candidate), self.downsets.pairs
        if time_limit < numpy.inf:
            pairs = pairs.only(pairs.differences(sums.compute) <= time_limit)
        zeros = zero_tables(
            self.instance,
            sums,
            pairs,
            configuration.replicas,
            configuration.rank_order,
            sorted({choice.zero for choice in configuration.choices}),
        )
        return stage_tables(self.instance, self.downsets, sums, pairs, zeros, configuration.choices)

    def slots(self, configuration: Configuration) -> Slots:
        """Where blocks may sit."""
        width = self.instance.candidates[configuration.candidate].width
        return self._once(
            ("slots", width, configuration.replicas, configuration.rank_order),
            lambda: slots(self.instance.cluster, width, configuration.replicas, configuration.rank_order),
        )

    def boundaries(self, configuration: Configuration) -> Boundaries:
        """Boundary times at every level that occurs."""
        cut = self.sums(configuration.candidate).cut
        return self._once(
            ("boundaries", configuration.candidate, configuration.replicas, configuration.rank_order),
            lambda: boundaries(cut, self.slots(configuration), self.instance.cluster.levels),
        )

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

    def floors(self, configuration: Configuration, counts: tuple[int, ...], limit: float) -> list[Floor]:
        """Lower bounds of the three terms for each of `counts` stages, every boundary at its cheapest level.

        They hold for the plans that take at most `limit` seconds: stages too slow for that are left out.
        """
        schedule, micro_batches = configuration.schedule, configuration.micro_batches
        slowest = min(self.objective(configuration, count).slowest for count in counts)
        time_limit = limit / slowest * (1 + ROUNDING) if slowest > 0 else numpy.inf
        longest = self.in_flight(schedule, micro_batches, counts[-1])
        shared = self._partition_bounds(configuration, longest, time_limit)
        floors = []
        for count in counts:
            own = self.in_flight(schedule, micro_batches, count)
            same = own == longest[:count]
            bounds = shared if same else self._partition_bounds(configuration, own, time_limit)
            floors.append(_floor(bounds, count))
        return floors

    def _partition_bounds(
        self, configuration: Configuration, in_flight: tuple[int, ...], time_limit: float
    ) -> PartitionBounds:
        """Partition bounds, shared by the schedules that hold as many micro-batches in flight."""
        key = ("bounds", configuration.candidate, configuration.replicas, configuration.rank_order)
        return self._once(
            (*key, configuration.choices, in_flight, time_limit),
            lambda: partition_bounds(
                self.tables(configuration, time_limit), self.boundaries(configuration).relaxed, in_flight
            ),
        )

    def gapless(self, configuration: Configuration, stages: int, floor: Floor) -> Found | None:
        """A plan that is quickly found: the partition of the least slowest stage, its blocks side by side.

        Its batch time bounds the optimum from above.
        """
        time_limit = floor.largest_time * (1 + ROUNDING)
        tables, boundary = self.tables(configuration, time_limit), self.boundaries(configuration)
        relaxed = self._relaxed(configuration, stages, tables)
        partition = relaxed.run(time_limit, numpy.inf)
        if partition is None:
            return None
        placed = relaxed.placed_side_by_side(partition, boundary)
        return Found(self.objective(configuration, stages).of(placed), configuration, placed, tables)

    def best(self, configuration: Configuration, stages: int, floor: Floor, limit: float) -> Found | None:
        """The best plan of `stages` stages if it beats `limit` seconds, exactly."""
        objective = self.objective(configuration, stages)
        time_limit = numpy.inf
        if objective.slowest > 0:
            rest = objective.total * floor.total_time + floor.largest_sync
            time_limit = (limit - rest) / objective.slowest * (1 + ROUNDING)
        tables, boundary = self.tables(configuration, time_limit), self.boundaries(configuration)
        relaxed = self._relaxed(configuration, stages, tables)
        choice_of_places = len(boundary.times) > 1 and self.slots(configuration).count > stages
        if choice_of_places and walk(relaxed.run, objective, floor, limit)[1] is None:
            return None
        exact = relaxed
        if len(boundary.times) > 1:
            exact = Recurrence(tables, relaxed.in_flight, boundary.times, boundary.steps)
        value, partition = walk(exact.run, objective, floor, limit)
        return None if partition is None else Found(value, configuration, partition, tables)

    def _relaxed(self, configuration: Configuration, stages: int, tables: StageTables) -> Recurrence:
        """The recurrence over `tables` with every boundary at its cheapest level."""
        flying = self.in_flight(configuration.schedule, configuration.micro_batches, stages)
        boundary = self.boundaries(configuration).relaxed[None, :]
        return Recurrence(tables, flying, boundary, numpy.zeros(stages - 1, dtype=numpy.int64))


def _floor(bounds: PartitionBounds, stages: int) -> Floor:
    return Floor(
        float(bounds.largest_time[stages - 1]),
        float(bounds.total_time[stages - 1]),
        float(bounds.largest_sync[stages - 1]),
    )
