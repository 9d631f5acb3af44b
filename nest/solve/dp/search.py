"""Plans of one candidate each: tables and bounds, made when first asked for and shared among those that agree."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import TypeVar

import numpy
from attrs import define, field, frozen

from nest.instance import Array, Instance, Schedule, Solution, StageDecision
from nest.solve.dp.bounds import PartitionBounds, compute_bounds, partition_bounds
from nest.solve.dp.candidate_sums import CandidateSums, candidate_sums
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.downsets import Downsets
from nest.solve.dp.even import stage_pairs
from nest.solve.dp.first_bounds import FirstBounds
from nest.solve.dp.found import Found, Kind, Rank
from nest.solve.dp.meter import Meter
from nest.solve.dp.packing import Packing, fewest_in_total
from nest.solve.dp.pairs import Pairs
from nest.solve.dp.pareto import Floor, Objective, walk
from nest.solve.dp.placement import Slots, replica_size, slots
from nest.solve.dp.ports import UNKNOWN
from nest.solve.dp.recurrence import Boundaries, Partition, Recurrence, boundaries
from nest.solve.dp.run import Bounded
from nest.solve.dp.stages import StageTables, stage_tables
from nest.solve.dp.sums import Sums
from nest.solve.dp.zero import zero_tables
from nest.tolerances import LIMIT_SLACK

T = TypeVar("T")
TABLE_BYTES = 256 * 2**20
"""Most bytes of tables kept for later use."""


@frozen(order=False)
class Task:
    """A part of the search: a configuration with some of its stage counts.

    Attributes:
        configuration: what is decided.
        counts: numbers of stages still open, ascending.
        floor: bounds of the three terms when a single count is left; None while only compute bounds are known.
    """

    configuration: Configuration
    counts: tuple[int, ...]
    floor: Floor | None = None

    @property
    def members(self) -> int:
        """How many numbers of stages are open."""
        return len(self.counts)

    @property
    def solvable(self) -> bool:
        """Whether a single number of stages is left, with its bounds."""
        return self.floor is not None

    def only(self, kind: Kind) -> bool:
        """Whether all its plans are of that kind."""
        configuration = self.configuration
        return all(kind == ((configuration.candidate,), configuration.replicas, count) for count in self.counts)


@define(eq=False)
class Search:
    """The plans of one candidate each, and what is known of them while they are searched.

    Attributes:
        instance: the problem.
        downsets: the cuts of its layer graph.
        configurations: what may be decided before stages are.
        meter: counts the work.
        held_up: whether ports hold up what is sent once per batch (PROBLEM.md section 4); if not, plans may be priced
            too low.
    """

    instance: Instance
    downsets: Downsets
    configurations: list[Configuration]
    meter: Meter = field(factory=Meter)
    held_up: bool = True
    _tables: OrderedDict[Hashable, tuple[float, StageTables]] = field(factory=OrderedDict)
    _table_bytes: int = 0
    _small: dict[Hashable, object] = field(factory=dict)
    _first_bounds: FirstBounds = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._first_bounds = FirstBounds(self.instance)

    def families(self) -> list[Bounded[Task]]:
        """Every configuration, by its bounds from compute; the same for a second run."""
        return self._once("families", lambda: list(self._families()))

    def _families(self) -> Iterator[Bounded[Task]]:
        for configuration in self.configurations:
            self.meter.watch()
            task = Task(configuration, configuration.stage_counts)
            yield Bounded(float(self.first_bounds(configuration).min()), self._rank(task), task)

    def split(self, family: Task, limit: float, dropped: Counter[str]) -> list[Bounded[Task]]:
        """One task per number of stages, with bounds from partitions."""
        cheap = self.first_bounds(family.configuration)
        quick = tuple(count for count, bound in zip(family.counts, cheap, strict=True) if bound <= limit)
        sums = self.sums(family.configuration.candidate)
        fewest = fewest_in_total(sums, family.configuration, self._room) if quick else 0
        held = tuple(count for count in quick if fewest <= count <= self.downsets.most_stages)
        counts = self._packed(family.configuration, held, limit) if held else ()
        found = []
        if counts:
            for count, floor in zip(counts, self.floors(family.configuration, counts, limit), strict=True):
                bound = self.objective(family.configuration, count).bound(floor)
                if numpy.isfinite(bound):
                    task = Task(family.configuration, (count,), floor)
                    found.append(Bounded(bound, self._rank(task), task))
        dropped["bound from compute"] += len(family.counts) - len(quick)
        dropped["memory in total"] += len(quick) - len(held)
        dropped["memory of a stage, or a stage too slow"] += len(held) - len(found)
        return found

    def stage_ranges(self, limit: float) -> dict[int, tuple[float, float]]:
        """For each candidate that may beat `limit`, the least and most seconds one of its stages may compute."""
        found: dict[int, tuple[float, float]] = {}
        for configuration in self.configurations:
            bounds = self.first_bounds(configuration)
            counts = [c for c, bound in zip(configuration.stage_counts, bounds, strict=True) if bound <= limit]
            if counts:
                candidate = self.instance.candidates[configuration.candidate]
                total = compute_bounds(candidate)[1]
                longest = min(self._time_limit(configuration, tuple(counts), limit), total * (1 + LIMIT_SLACK))
                least = (total - (counts[-1] - 1) * longest) * (1 - LIMIT_SLACK)
                before = found.get(configuration.candidate, (numpy.inf, 0.0))
                found[configuration.candidate] = min(before[0], least), max(before[1], longest)
        return found

    def _time_limit(self, configuration: Configuration, counts: tuple[int, ...], limit: float) -> float:
        """Most seconds per micro-batch of a stage of a plan with one of `counts` stages that beats `limit`."""
        total = compute_bounds(self.instance.candidates[configuration.candidate])[1]
        weights = [self.objective(configuration, count) for count in counts]
        return max(
            (limit - each.total * total) / each.slowest * (1 + LIMIT_SLACK) if each.slowest > 0 else numpy.inf
            for each in weights
        )

    @property
    def _room(self) -> float:
        """Bytes of a device that a stage may need, rounding allowed for."""
        cluster = self.instance.cluster
        return cluster.memory * (1 + LIMIT_SLACK) - cluster.reserve

    def _packed(self, configuration: Configuration, counts: tuple[int, ...], limit: float) -> tuple[int, ...]:
        """Those of `counts` that are stages enough for a plan that beats `limit`, as far as a quick look can tell."""
        chain = self.downsets.chain
        if chain is None:
            return counts
        packing = self._once("packing", lambda: Packing(chain))
        sums = self.sums(configuration.candidate)
        time_limit = self._time_limit(configuration, counts, limit)
        schedule, micro_batches = configuration.schedule, configuration.micro_batches
        longest = self.in_flight(schedule, micro_batches, counts[-1])
        shared = packing.fewest(sums, configuration, longest, time_limit, self._room)
        found = []
        for count in counts:
            own = self.in_flight(schedule, micro_batches, count)
            alike = own == longest[:count]
            if count >= (shared if alike else packing.fewest(sums, configuration, own, time_limit, self._room)):
                found.append(count)
        return tuple(found)

    def quick(self, family: Task) -> Found | None:
        """The partition of the least slowest stage, its blocks side by side: it bounds the optimum from above."""
        assert family.floor is not None
        configuration, stages = family.configuration, family.counts[0]
        time_limit = family.floor.largest_time * (1 + LIMIT_SLACK)
        tables, boundary = self.tables(configuration, time_limit), self.boundaries(configuration)
        relaxed = self._relaxed(configuration, stages, tables)
        partition = relaxed.run(time_limit, numpy.inf)
        if partition is None:
            return None
        placed = relaxed.placed_side_by_side(partition, boundary)
        return self._found(family, self.objective(configuration, stages).of(placed), placed, tables)

    def solve(self, family: Task, limit: float, dropped: Counter[str]) -> Found | None:
        """The best plan of one number of stages if it beats `limit`, exactly."""
        assert family.floor is not None
        configuration, stages, floor = family.configuration, family.counts[0], family.floor
        objective = self.objective(configuration, stages)
        time_limit = numpy.inf
        if objective.slowest > 0:
            rest = objective.total * floor.total_time + floor.largest_sync
            time_limit = (limit - rest) / objective.slowest * (1 + LIMIT_SLACK)
        tables, boundary = self.tables(configuration, time_limit), self.boundaries(configuration)
        relaxed = self._relaxed(configuration, stages, tables)
        choice_of_places = len(boundary.times) > 1 and self.slots(configuration).count > stages
        if choice_of_places and walk(relaxed.run, objective, floor, limit, first_will_do=True)[1] is None:
            dropped["recurrence without places"] += 1
            return None
        exact = relaxed
        if len(boundary.times) > 1 or tables.ports:
            # With one level places do not matter, but ports do.
            steps = boundary.steps if len(boundary.times) > 1 else relaxed.steps
            exact = Recurrence(tables, relaxed.in_flight, boundary.times, steps, boundary.levels, self.meter)
        value, partition = walk(exact.run, objective, floor, limit)
        dropped["recurrence"] += 1
        return None if partition is None else self._found(family, value, partition, tables)

    def _found(self, family: Task, value: float, partition: Partition, tables: StageTables) -> Found:
        configuration = family.configuration
        width = self.instance.candidates[configuration.candidate].width
        stages = tuple(
            StageDecision(
                self.downsets.between(stage.larger, stage.smaller),
                configuration.candidate,
                tables.choices[stage.choice].recompute,
                tables.choices[stage.choice].zero,
                stage.slot * width,
            )
            for stage in partition.stages
        )
        solution = Solution(
            configuration.replicas,
            configuration.rank_order,
            configuration.schedule.name,
            stages,
            zero_degree=configuration.zero_degree,
        )
        return Found(value, self._rank(family), solution)

    def _rank(self, task: Task) -> Rank:
        """Where the best of a task could stand among ties: devices, stages, then the configuration's order."""
        width = self.instance.candidates[task.configuration.candidate].width
        stages = task.counts[0]
        return (task.configuration.replicas * width * stages, stages, task.configuration.order)

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
            configuration.stage_counts[-1],
            configuration.zero_degree,
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
        sums = self.sums(configuration.candidate)
        pairs = self._useful_pairs(sums.compute, configuration.stage_counts[-1], time_limit)
        zeros = zero_tables(
            self.instance,
            sums,
            pairs.distinct,
            configuration.replicas,
            configuration.rank_order,
            replica_size(self.instance.cluster, sums.candidate.width, configuration.replicas),
            sorted({choice.zero for choice in configuration.choices}),
            configuration.zero_degree,
        )
        # Candidate and replicas decide the micro-batches, so that tables may be known by the former.
        micro_batches = configuration.micro_batches if self.held_up else None
        return stage_tables(self.instance, sums, pairs, zeros, configuration.choices, micro_batches)

    def _useful_pairs(self, compute: Sums, most_stages: int, time_limit: float) -> Pairs:
        """Those that compute for `time_limit` seconds at most, and leave the other stages no more than that each."""
        count = most_stages if self.instance.space.even else 0
        pairs = self._once(("pairs", count), lambda: stage_pairs(self.instance, self.downsets, count))
        if most_stages <= 2:
            first, last = pairs.larger == self.downsets.count - 1, pairs.smaller == 0
            pairs = pairs.only(first & last if most_stages == 1 else first | last)
        if time_limit == numpy.inf:
            return pairs
        seconds = compute.over(pairs.distinct)
        kept = seconds <= time_limit
        least = compute.whole[-1] - (most_stages - 1) * time_limit
        if least > 0:
            kept &= seconds >= least * (1 - LIMIT_SLACK)
        return pairs.only_kinds(kept)

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

    def in_flight(self, schedule: Schedule, micro_batches: int, stages: int) -> tuple[float, ...]:
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
        """Lower bound on the batch time for each of the configuration's stage counts, from compute and ports alone."""
        decided = (configuration.candidate, configuration.schedule, configuration.micro_batches)
        return self._first_bounds.of(*decided, configuration.stage_counts)

    def floors(self, configuration: Configuration, counts: tuple[int, ...], limit: float) -> list[Floor]:
        """Lower bounds of the three terms for each of `counts` stages, every boundary at its cheapest level.

        They hold for the plans that take at most `limit` seconds: stages too slow for that are left out.
        """
        schedule, micro_batches = configuration.schedule, configuration.micro_batches
        time_limit = self._time_limit(configuration, counts, limit)
        longest = self.in_flight(schedule, micro_batches, counts[-1])
        shared = self._partition_bounds(configuration, longest, time_limit)
        floors = []
        for count in counts:
            own = self.in_flight(schedule, micro_batches, count)
            same = own == longest[:count]
            bounds = shared if same else self._partition_bounds(configuration, own, time_limit)
            floors.append(bounds.floor(count))
        return floors

    def _partition_bounds(
        self, configuration: Configuration, in_flight: tuple[float, ...], time_limit: float
    ) -> PartitionBounds:
        """Partition bounds, shared by the schedules that hold as many micro-batches in flight."""
        key = ("bounds", configuration.candidate, configuration.replicas, configuration.rank_order)
        return self._once(
            (
                *key,
                configuration.zero_degree,
                configuration.choices,
                configuration.stage_counts[-1],
                in_flight,
                time_limit,
            ),
            lambda: partition_bounds(
                self.tables(configuration, time_limit),
                self.boundaries(configuration).relaxed,
                in_flight,
                time_limit,
                self.meter,
            ),
        )

    def _relaxed(self, configuration: Configuration, stages: int, tables: StageTables) -> Recurrence:
        """The recurrence over `tables` with every boundary at its cheapest level."""
        flying = self.in_flight(configuration.schedule, configuration.micro_batches, stages)
        boundary, steps = self.boundaries(configuration).relaxed[None, :], numpy.zeros(stages - 1, dtype=numpy.int64)
        return Recurrence(tables, flying, boundary, steps, (UNKNOWN,), self.meter)
