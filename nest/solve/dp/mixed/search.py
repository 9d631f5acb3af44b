"""Plans whose stages use different candidates: their bounds and their exact solution."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import TypeVar

import numpy
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Instance, Solution, StageDecision
from nest.solve.dp.bounds import PartitionBounds, least_of_pairs
from nest.solve.dp.candidate_sums import CandidateSums, candidate_sums
from nest.solve.dp.downsets import Downsets
from nest.solve.dp.even import stage_pairs
from nest.solve.dp.found import Found, Kind, Rank
from nest.solve.dp.meter import Meter
from nest.solve.dp.mixed.configurations import MixedConfiguration
from nest.solve.dp.mixed.packing import packable
from nest.solve.dp.mixed.places import Places, places
from nest.solve.dp.mixed.recurrence import Member, MixedRecurrence
from nest.solve.dp.pareto import Floor, Objective, walk
from nest.solve.dp.recurrence import Partition, boundary_times
from nest.solve.dp.run import Bounded
from nest.solve.dp.stages import stage_tables
from nest.solve.dp.zero import zero_tables
from nest.tolerances import LIMIT_SLACK

T = TypeVar("T")

HALVINGS = 6
"""How often the range of the slowest stage is halved to bound it."""

REMEMBERED = 4
"""Sets of tables kept for the configurations solved last."""


@frozen(order=False)
class MixedTask:
    """A part of the search: a configuration with some of its stage counts.

    Attributes:
        configuration: what is decided.
        counts: numbers of stages still open, ascending.
        floor: bounds of the three terms when a single count is left; None while only compute bounds are known.
    """

    configuration: MixedConfiguration
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
        """Never: plans of one task mix candidates in many ways."""
        return False


@define(eq=False)
class MixedSearch:
    """The mixed plans of an instance, and what is known of them while they are searched.

    Attributes:
        instance: the problem.
        downsets: the cuts of its layer graph.
        configurations: what may be decided before stages are.
        meter: counts the work.
        held_up: as `nest.solve.dp.search.Search`.
        met: batch times of the plans found, each with its configuration, of its number of stages only.
    """

    instance: Instance
    downsets: Downsets
    configurations: list[MixedConfiguration]
    meter: Meter = field(factory=Meter)
    held_up: bool = True
    met: list[tuple[float, MixedConfiguration]] = field(factory=list)
    _known: dict[Hashable, object] = field(factory=dict)
    _members: dict[int, tuple[float, tuple[Member, ...]]] = field(factory=dict)

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        """`make()`, kept for good."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]  # type: ignore[return-value]

    def families(self) -> Iterator[Bounded[MixedTask]]:
        """Every configuration, by its bounds from compute."""
        for configuration in self.configurations:
            self.meter.watch()
            task = MixedTask(configuration, configuration.stage_counts)
            yield Bounded(float(self.first_bounds(configuration)[2].min()), self._rank(task), task)

    def first_bounds(self, configuration: MixedConfiguration) -> tuple[Array, float, Array]:
        """From compute alone: least slowest stage for each number of stages, least sum, and the batch time they give.

        A layer keeps `width` devices of a replica busy for its time; the slowest stage is no shorter than all this
        work shared by all devices of the replica that a plan may use, than the layers' least times shared by the
        stages, and than the longest layer.
        """
        candidates = [self.instance.candidates[index] for index, _ in configuration.members]
        times = numpy.array([candidate.forward + candidate.backward for candidate in candidates])
        widths = numpy.array([candidate.width for candidate in candidates])[:, None]
        least, work = times.min(axis=0), float((times * widths).min(axis=0).sum())
        counts = numpy.array(configuration.stage_counts, dtype=numpy.float64)
        total = float(least.sum())
        devices = max(configuration.tally.most(configuration.size), 1)
        slowest = numpy.maximum(total / counts, max(float(least.max()), work / devices))
        weights = [self.objective(configuration, count) for count in configuration.stage_counts]
        bounds = numpy.array([w.slowest for w in weights]) * slowest + numpy.array([w.total for w in weights]) * total
        return slowest, total, bounds

    def split(self, family: MixedTask, limit: float, dropped: Counter[str]) -> list[Bounded[MixedTask]]:
        """One task per number of stages, with bounds from partitions and from packing the stages' blocks."""
        configuration = family.configuration
        slowest, total, bounds = self.first_bounds(configuration)
        kept = [
            (count, float(least))
            for count, least, bound in zip(family.counts, slowest, bounds, strict=True)
            if bound <= limit and count <= self.downsets.most_stages
        ]
        dropped["bound from compute"] += len(family.counts) - len(kept)
        found = []
        if kept:
            counts = tuple(count for count, _ in kept)
            time_limit = max(self._time_limit(self.objective(configuration, c), limit, total) for c in counts)
            for (count, least), floor in zip(kept, self._floors(configuration, counts, kept, time_limit), strict=True):
                better = Floor(max(floor.largest_time, least), floor.total_time, floor.largest_sync)
                bound = self.objective(configuration, count).bound(better)
                if numpy.isfinite(bound):
                    task = MixedTask(configuration, (count,), better)
                    found.append(Bounded(bound, self._rank(task), task))
        dropped["memory of a stage, or a stage too slow"] += len(kept) - len(found)
        return found

    def quick(self, family: MixedTask) -> Found | None:
        """None: the best plan of one candidate is known before mixed plans are searched."""
        return None

    def solve(self, family: MixedTask, limit: float, dropped: Counter[str]) -> Found | None:
        """The best plan of one number of stages if it beats `limit`, exactly."""
        assert family.floor is not None
        configuration, stages, floor = family.configuration, family.counts[0], family.floor
        objective = self.objective(configuration, stages)
        rest = objective.total * floor.total_time + floor.largest_sync
        time_limit = self._time_limit(objective, limit - rest, 0.0)
        members = self.members(configuration, time_limit)
        in_flight = self.in_flight(configuration, stages)
        where = self.places(configuration)
        tally = configuration.tally
        alike = MixedRecurrence(
            [member.without_levels() for member in members],
            in_flight,
            where.without_levels(),
            tally,
            self.downsets.count,
            self.meter,
        )
        if walk(alike.run, objective, floor, limit, first_will_do=True)[1] is None:
            dropped["recurrence without levels"] += 1
            return None
        exact = MixedRecurrence(members, in_flight, where, tally, self.downsets.count, self.meter)
        value, partition = walk(exact.run, objective, floor, limit)
        dropped["recurrence"] += 1
        if partition is None:
            return None
        self.met.append((value, evolve(configuration, stage_counts=family.counts)))
        return self._found(family, value, partition, members)

    def _found(self, family: MixedTask, value: float, partition: Partition, members: tuple[Member, ...]) -> Found:
        configuration = family.configuration
        stages = []
        for stage in partition.stages:
            member = members[stage.member]
            choice = member.tables.choices[stage.choice]
            layers = self.downsets.between(stage.larger, stage.smaller)
            stages.append(StageDecision(layers, member.candidate, choice.recompute, choice.zero, stage.slot))
        solution = Solution(
            configuration.replicas,
            configuration.rank_order,
            configuration.schedule.name,
            tuple(stages),
            zero_degree=configuration.zero_degree,
        )
        used = sum(members[stage.member].width for stage in partition.stages)
        return Found(value, (configuration.replicas * used, len(stages), configuration.order), solution)

    def _rank(self, task: MixedTask) -> Rank:
        """Where the best of a task could stand among ties."""
        configuration = task.configuration
        narrowest = min(self.instance.candidates[index].width for index, _ in configuration.members)
        stages = task.counts[0]
        least = configuration.tally.least(narrowest * stages)
        return (configuration.replicas * least, stages, configuration.order)

    def objective(self, configuration: MixedConfiguration, stages: int) -> Objective:
        """Weights of the schedule for `stages` stages."""
        schedule, micro_batches = configuration.schedule, configuration.micro_batches
        return self._once(
            ("objective", schedule.name, micro_batches, stages),
            lambda: Objective(*schedule.weights(micro_batches, stages)),
        )

    def in_flight(self, configuration: MixedConfiguration, stages: int) -> tuple[float, ...]:
        """Micro-batches in flight of each stage, counted from the last."""
        schedule, micro_batches = configuration.schedule, configuration.micro_batches
        return self._once(
            ("in flight", schedule.name, micro_batches, stages),
            lambda: tuple(schedule.in_flight(stages - j + 1, stages, micro_batches) for j in range(1, stages + 1)),
        )

    def places(self, configuration: MixedConfiguration) -> Places:
        """The devices of a replica."""
        size, replicas, order = configuration.size, configuration.replicas, configuration.rank_order
        return self._once(
            ("places", size, replicas, order), lambda: places(self.instance.cluster, size, replicas, order)
        )

    def sums(self, index: int) -> CandidateSums:
        """Sums of a candidate over downsets."""
        return self._once(
            ("sums", index), lambda: candidate_sums(self.instance, self.instance.candidates[index], self.downsets)
        )

    @staticmethod
    def _time_limit(objective: Objective, limit: float, total: float) -> float:
        """Most seconds of a stage of a plan that beats `limit` when its stages take `total` seconds at least."""
        if objective.slowest <= 0:
            return float("inf")
        return (limit - objective.total * total) / objective.slowest * (1 + LIMIT_SLACK)

    def members(self, configuration: MixedConfiguration, time_limit: float) -> tuple[Member, ...]:
        """Tables of every candidate's stages that fit memory and take at most `time_limit` seconds per micro-batch."""
        limit, known = self._members.pop(configuration.order, (-numpy.inf, ()))
        if limit < time_limit:
            limit, known = time_limit, self._make_members(configuration, time_limit)
        self._members[configuration.order] = limit, known
        while len(self._members) > REMEMBERED:
            del self._members[next(iter(self._members))]
        if limit == time_limit:
            return known
        return tuple(evolve(member, tables=member.tables.within(time_limit)) for member in known)

    def all_members(self, configuration: MixedConfiguration) -> tuple[Member, ...]:
        """Tables of every stage, whether memory allows it or not."""
        return self._make_members(configuration, numpy.inf, fitting=False)

    def _make_members(
        self, configuration: MixedConfiguration, time_limit: float, *, fitting: bool = True
    ) -> tuple[Member, ...]:
        sums = [self.sums(index) for index, _ in configuration.members]
        fastest = numpy.array([each.candidate.forward + each.candidate.backward for each in sums]).min(axis=0)
        quickest = self.downsets.sums(fastest)
        made, levels = [], self.instance.cluster.levels
        micro_batches = configuration.micro_batches if self.held_up else None
        count = configuration.stage_counts[-1] if self.instance.space.even else 0
        for each, (index, choices) in zip(sums, configuration.members, strict=True):
            pairs = self._once(("pairs", count), lambda: stage_pairs(self.instance, self.downsets, count))
            if time_limit < numpy.inf:
                pairs = pairs.only_kinds(each.compute.over(pairs.distinct) <= time_limit)
            zeros = zero_tables(
                self.instance,
                each,
                pairs.distinct,
                configuration.replicas,
                configuration.rank_order,
                configuration.size,
                sorted({choice.zero for choice in choices}),
                configuration.zero_degree,
            )
            tables = stage_tables(self.instance, each, pairs, zeros, choices, micro_batches, quickest)
            tables = tables.within(time_limit) if fitting else tables
            times = numpy.array([boundary_times(each.cut, level) for level in levels])
            made.append(Member(index, each.candidate.width, tables, times, tuple(range(len(levels)))))
        return tuple(made)

    def _floors(
        self,
        configuration: MixedConfiguration,
        counts: tuple[int, ...],
        kept: list[tuple[int, float]],
        time_limit: float,
    ) -> list[Floor]:
        """Lower bounds of the three terms for each of `counts`, all links at their cheapest."""
        members = tuple(member.without_levels() for member in self.members(configuration, time_limit))
        longest = self.in_flight(configuration, counts[-1])
        shared = self._bounds(configuration, members, longest, time_limit, dict(kept))
        floors = []
        for count, least in kept:
            own = self.in_flight(configuration, count)
            same = own == longest[:count]
            bounds = shared if same else self._bounds(configuration, members, own, time_limit, {count: least})
            floors.append(bounds.floor(count))
        return floors

    def _bounds(
        self,
        configuration: MixedConfiguration,
        members: tuple[Member, ...],
        in_flight: tuple[float, ...],
        time_limit: float,
        least: dict[int, float],
    ) -> PartitionBounds:
        times = _Times(members, in_flight)
        total, sync = self._separate_bounds(members, times, in_flight, time_limit)

        def feasible(limit: float) -> NDArray[numpy.bool_]:
            return packable(
                members,
                len(in_flight),
                configuration.size,
                configuration.tally,
                self.downsets.count,
                lambda member, stage: times.of(member, stage)[0] <= limit,
                lambda member, stage: members[member].tables.window(stage - 1, len(in_flight) - stage, limit),
                self.meter,
            )

        slowest = numpy.full(len(in_flight), numpy.inf)
        lowest = min(least.values())
        bounds = _bisect(feasible, lowest, time_limit, sorted(least))
        for count, bound in bounds.items():
            slowest[count - 1] = bound
        return PartitionBounds(slowest, total, sync)

    def _separate_bounds(
        self, members: tuple[Member, ...], times: "_Times", in_flight: tuple[float, ...], time_limit: float
    ) -> tuple[Array, Array]:
        """Least sum of stage times and least synchronisation for every number of stages, wherever blocks sit."""
        before = numpy.full((2, self.downsets.count), numpy.inf)
        before[:, 0] = 0.0
        found = numpy.full((2, len(in_flight)), numpy.inf)
        for stage in range(1, len(in_flight) + 1):
            after = numpy.full((2, self.downsets.count), numpy.inf)
            for index, member in enumerate(members):
                rows = member.tables.window(stage - 1, len(in_flight) - stage, time_limit)
                if len(rows):
                    time, sync = times.of(index, stage)
                    smaller = member.tables.pairs.smaller[rows.pairs]
                    rows.lower(after[0], time[rows.pairs] + before[0, smaller])
                    rows.lower(after[1], numpy.maximum(sync[rows.pairs], before[1, smaller]))
                    self.meter.count(len(rows))
            found[:, stage - 1] = after[:, -1]
            before = after
        return found[0], found[1]


class _Times:
    """Least time and least synchronisation of members' stages with their boundaries at the cheapest, as needed."""

    def __init__(self, members: tuple[Member, ...], in_flight: tuple[float, ...]) -> None:
        self.members = members
        self.in_flight = in_flight
        self.known: dict[tuple[int, float], tuple[Array, Array]] = {}

    def of(self, index: int, stage: int) -> tuple[Array, Array]:
        """Seconds per micro-batch and per batch of a member's stages as stage `stage` from the end."""
        member, flying = self.members[index], self.in_flight[stage - 1]
        key = (index, member.tables.same_fits(flying))
        if key not in self.known:
            pairs, boundary = member.tables.pairs, member.times[0]
            around = boundary[pairs.smaller] + boundary[pairs.larger]
            self.known[key] = least_of_pairs(member.tables, flying, boundary, around)
        return self.known[key]


def _bisect(
    feasible: Callable[[float], NDArray[numpy.bool_]], lowest: float, highest: float, counts: list[int]
) -> dict[int, float]:
    """For each count a time below which it is not feasible; infinite when it is not even at `highest`."""
    if highest == numpy.inf:
        possible = feasible(highest)
        return {count: lowest if possible[count - 1] else numpy.inf for count in counts}
    steps = 2**HALVINGS
    known: dict[int, NDArray[numpy.bool_]] = {}

    def at(step: int) -> NDArray[numpy.bool_]:
        if step not in known:
            known[step] = feasible(lowest + (highest - lowest) * step / steps)
        return known[step]

    found = {}
    for count in counts:
        if not at(steps)[count - 1]:
            found[count] = numpy.inf
            continue
        below, above = 0, steps
        while above - below > 1:
            middle = (below + above) // 2
            below, above = (below, middle) if at(middle)[count - 1] else (middle, above)
        found[count] = lowest + (highest - lowest) * below / steps
    return found
