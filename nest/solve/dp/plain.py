"""Plans of one candidate with one model chunk per stage: tables and bounds, made on demand and shared."""

from collections import Counter
from collections.abc import Hashable, Iterator
from math import inf

import numpy
from attrs import define, evolve, field
from numpy.typing import NDArray

from nest.instance import Array, partial
from nest.solve.dp.bounds import LeastTimes, Packing, partition_bounds
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.downsets import StageRange
from nest.solve.dp.members import Boundaries, Member, boundaries, side_by_side
from nest.solve.dp.nodes import CutSearch, Decided, PlanSearch
from nest.solve.dp.pairs import Pairs
from nest.solve.dp.pareto import FEW_ALIKE, Floor, Joint, Objective, Partition, least_batch_time
from nest.solve.dp.recurrence import Recurrence, of_slots
from nest.solve.dp.rules import by_count
from nest.solve.dp.stages import RecentTables, StageTables, stage_tables
from nest.solve.dp.sums import Sums, grid_parts
from nest.solve.search import Best, Bounded, Incumbent, Price
from nest.tolerances import LIMIT_SLACK, SUM_ERROR

MANY_CUTS = 500
"""Downsets from which on a plan is sought before bounds: 1,000 different layers take 1.3 times as long on 2**20 devices
without it, and three times the memory (2026-11-27)."""

ABOVE_THE_MEAN = (1.25, 2.0, 4.0, 8.0)  # Factors over the mean for the slowest stage of a first plan, tried in turn.

Solved = tuple[str, tuple[float, tuple[Decided, ...]] | None]
"""The reason that settled a number of stages, with step time and stages of its best plan if below a limit."""


@define(eq=False, repr=False)
class PlainSearch(CutSearch, PlanSearch):
    """Plans of one candidate each."""

    _tables: RecentTables[StageTables] = field(factory=RecentTables, init=False)
    _floored: dict[int, dict[int, Floor]] = field(factory=dict, init=False)
    _joints: dict[tuple[int, int], tuple[float, tuple[float, ...]]] = field(factory=dict, init=False)

    def branch(
        self, configuration: Configuration, counts: tuple[int, ...], limit: float, pruned: Counter[str]
    ) -> list[Bounded]:
        """One leaf per number of stages, with bounds from partitions."""
        cheap = self.closer_bounds(configuration)
        quick = tuple(count for count, bound in zip(counts, cheap, strict=True) if bound <= limit)
        held = tuple(count for count in quick if count <= self.downsets.most_stages)
        left = self._packed(configuration, held, limit) if held else ()
        nodes = []
        for count, floor in zip(left, self._floors(configuration, left, limit) if left else (), strict=True):
            bound = self.objective(configuration, count).of(floor)
            if numpy.isfinite(bound):
                nodes.append(self.bounded(bound, configuration, (count,), floor, relaxed=self.relaxes(configuration)))
                self._floored.setdefault(configuration.order, {})[count] = floor
        pruned["bound from compute"] += len(counts) - len(quick)
        pruned["memory in total"] += len(quick) - len(held)
        pruned["memory of a stage, or a stage too slow"] += len(held) - len(nodes)
        return nodes

    def relaxes(self, configuration: Configuration) -> bool:
        """True if all stages must recompute the same, still open number of blocks."""
        one, *others = configuration.choices
        alike = any(each.uniform == "recompute" for each in self.instance.space.constraints)
        return alike and any(each.recompute != one.recompute for each in others)

    def tightened(
        self, configuration: Configuration, stages: int, floor: Floor, limit: float, pruned: Counter[str]
    ) -> list[Bounded]:
        """See `PlanSearch.tightened`; one for each number of recomputed blocks.

        If no plan with different numbers beats `limit`, none does, so numbers are separated only after that.
        """
        decided_by, best = self._solved(configuration, stages, floor, limit)
        if best is None:
            pruned[decided_by] += 1
            return []
        nodes, time_limit = [], self.longest(configuration, (stages,), limit)
        every = self.tables(evolve(configuration, stage_counts=(stages,)), time_limit)
        # Of equals the lighter one comes first.
        for place, choices in enumerate(by_count(configuration.choices)):
            members = ((configuration.candidate, choices),)
            part = evolve(configuration, members=members, stage_counts=(stages,), place=place)
            if (chosen := every.choosing(choices)) is not None:
                tables = chosen.within(time_limit)
                self._tables.keep(self._priced(part), time_limit, tables, tables.bytes)
            elif len(choices) == 1:
                continue  # With another number no stage is worse off.
            (least,) = self._floors(part, (stages,), limit)
            bound = max(best[0] * (1 - SUM_ERROR), self.objective(part, stages).of(least))
            if bound <= limit:
                nodes.append(self.bounded(bound, part, (stages,), least))
        if not nodes:
            pruned["memory of a stage, or a stage too slow"] += 1
        return nodes

    def _nodes(self, limit: float) -> Iterator[tuple[Configuration, float]]:
        self.first_bounds.learn(each for each in self.configurations if self.first_bound(each) <= limit)
        return super()._nodes(limit)

    def closer_bounds(self, configuration: Configuration) -> Array:
        """Lower bounds on the step time for each number of stages, with the cheapest boundaries.

        All cuts differ, so the boundaries take at least the sum of as many cheapest ones, each twice, for both of its
        stages.
        """
        return self.once(("closer", configuration.order), lambda: self._closer_bounds(configuration))

    def _closer_bounds(self, configuration: Configuration) -> Array:
        if self.parted(configuration) or self.downsets.empty_stages:
            return self.early_bounds(configuration)
        cheapest = numpy.sort(self.boundaries(configuration).relaxed[1:-1])
        sums = 2 * numpy.concatenate([[0.0], cheapest.cumsum()]) * (1 - SUM_ERROR)
        sums = sums.take(numpy.array(configuration.stage_counts) - 1, mode="clip")
        return self.first_bounds.of_configuration(configuration, sums + self.first_bounds.beside(configuration).seconds)

    def longest(self, configuration: Configuration, counts: tuple[int, ...], limit: float) -> float:
        """Most seconds per micro-batch of a stage of a plan below `limit` with one of `counts` stages."""
        return max(
            self.objective(configuration, count).time_limit(limit, self.least_rest(configuration, count))
            for count in counts
        )

    def stage_ranges(self, members: NDArray[numpy.bool_], limit: float) -> list[StageRange]:
        """Limits on the compute of stages between downsets with these layers, for candidates that may beat `limit`."""
        found: dict[int, tuple[float, float]] = {}
        for configuration in self.configurations:
            bounds = self.early_bounds(configuration)
            counts = [c for c, bound in zip(configuration.stage_counts, bounds, strict=True) if bound <= limit]
            if counts:
                total = self.first_bounds.whole(configuration.candidate)[1]
                longest = min(self.longest(configuration, tuple(counts), limit), total * (1 + LIMIT_SLACK))
                # With all others as long as they may be, this much is left to one.
                least = (total - (counts[-1] - 1) * longest) * (1 - LIMIT_SLACK)
                before = found.get(configuration.candidate, (inf, 0.0))
                found[configuration.candidate] = min(before[0], least), max(before[1], longest)
        ranges = []
        for index, within in found.items():
            candidate = self.instance.candidates[index]
            parts = [part[0] for _, part in grid_parts((candidate.forward + candidate.backward)[None])]
            ranges.append(StageRange(numpy.sum([members @ part for part in parts], axis=0), *within))
        return ranges

    def _packed(self, configuration: Configuration, counts: tuple[int, ...], limit: float) -> tuple[int, ...]:
        """Drop `counts` with too few stages for a plan below `limit`, by a quick check."""
        chain = self.downsets.chain
        if chain is None:
            return counts
        packing = self.once_shared("packing", lambda: Packing(chain))
        sums = self.sums(configuration.candidate)
        time_limit, relaxed = self.longest(configuration, counts, limit), self.relaxes(configuration)

        def needed(flying: tuple[float, ...]) -> int:
            asked = (sums, configuration, flying, time_limit, self.room)
            return min(packing.fewest_alike(*asked).values()) if relaxed else packing.fewest(*asked)

        fewest = self.for_counts(configuration, counts, needed)
        return tuple(count for count, least in zip(counts, fewest, strict=True) if count >= least)

    def first(self, configuration: Configuration) -> Incumbent | None:
        """Plan with the number of stages of the least bound, none much longer than the mean.

        Bounds of all numbers of stages without a plan would need all stages, also slow ones.
        """
        if self.downsets.count < MANY_CUTS or self.relaxes(configuration):
            return None
        count = configuration.stage_counts[int(self.closer_bounds(configuration).argmin())]
        mean = self.first_bounds.slowest(configuration, count)
        found = (self.quick(configuration, count, Floor(mean * factor, 0.0, 0.0)) for factor in ABOVE_THE_MEAN)
        return next((each for each in found if each is not None), None)

    def quick(self, configuration: Configuration, stages: int, floor: Floor) -> Incumbent | None:
        """Partition with the least slowest stage, blocks side by side: an upper bound."""
        if self.relaxes(configuration):
            return self._quick_of_whole_stages(configuration, stages)
        time_limit = floor.largest_time * (1 + LIMIT_SLACK)
        tables = self.tables(configuration, time_limit)
        relaxed = self._relaxed(configuration, stages, tables)
        partition = relaxed.run(time_limit, numpy.inf)
        if partition is None:
            return None
        placed = side_by_side([self.member(configuration, tables)], partition, relaxed.weights)
        value = self.objective(configuration, stages).of(placed)
        return self.incumbent(configuration, value, self.decided(configuration, placed, tables))

    def _quick_of_whole_stages(self, configuration: Configuration, stages: int) -> Incumbent | None:
        """Same with the lightest mode for all layers that fits memory."""
        for choices in by_count(configuration.choices):
            if partial(choices[0].recompute) is None:
                whole = evolve(configuration, members=((configuration.candidate, choices),), stage_counts=(stages,))
                (floor,) = self._floors(whole, (stages,), inf)
                found = self.quick(whole, stages, floor) if numpy.isfinite(floor.largest_time) else None
                if found is not None:
                    return found
        return None

    def solve(
        self, configuration: Configuration, stages: int, floor: Floor, limit: float, pruned: Counter[str]
    ) -> Incumbent | None:
        """Best plan of so many stages below `limit`, exactly."""
        objective = self.objective(configuration, stages)
        if objective.slowest * floor.largest_time + self._least_beside(configuration, stages, limit) >= limit:
            pruned["recurrence without places"] += 1
            return None
        decided_by, best = self._solved(configuration, stages, floor, limit)
        pruned[decided_by] += 1
        return None if best is None else self.incumbent(configuration, *best)

    def _solved(self, configuration: Configuration, stages: int, floor: Floor, limit: float) -> Solved:
        objective = self.objective(configuration, stages)
        time_limit = objective.time_limit(limit, objective.total * floor.total_time + floor.largest_sync)
        tables = self.tables(configuration, time_limit)
        used, relaxed = self.member(configuration, tables), self._relaxed(configuration, stages, tables)
        joint = self._joint(configuration, stages, tables, objective)
        choice_of_places = used.own > 1 and used.slots > stages
        # With every boundary at its cheapest no plan is slower than it is: where none beats the limit, none does.
        if choice_of_places:
            some = least_batch_time(relaxed.run, objective, floor, limit, first_will_do=True, joint=joint)[1]
            if some is None:
                return "recurrence without places", None
        exact = relaxed
        if used.own > 1 or tables.ports:  # With one level places do not matter, but ports do.
            exact = of_slots(used, relaxed.in_flight, self.meter, relaxed.weights)
        value, partition = least_batch_time(exact.run, objective, floor, limit, joint=joint)
        best = None if partition is None else (value, self.decided(configuration, partition, tables))
        return "recurrence", best

    def _least_beside(self, configuration: Configuration, stages: int, limit: float) -> float:
        """Lower bound (s) on a step beside its slowest stage, for plans below `limit`; 0: unknown."""
        every = self._floored.get(configuration.order, {})
        floors = {count: floor for count, floor in every.items() if count in configuration.stage_counts}
        if len(floors) < FEW_ALIKE or self.parted(configuration):
            return 0.0
        from nest.solve.dp.line import least_beside

        def tables(time_limit: float) -> StageTables:
            return self.tables(configuration, time_limit)

        boundary = self.boundaries(configuration).relaxed
        return least_beside(self, tables, boundary, configuration, stages, limit, floors, self._joints)

    def _joint(
        self, configuration: Configuration, stages: int, tables: StageTables, objective: Objective
    ) -> Joint | None:
        """Joint bound on times and gradient reduction; None: separate weights."""
        if self.parted(configuration) or not tables.in_line:
            return None
        from nest.solve.dp.line import JointSums

        relaxed, flying = self.boundaries(configuration).relaxed, self.in_flight(configuration, stages)
        return JointSums(tables, relaxed, flying, objective.total, self.meter).least

    def decided(self, configuration: Configuration, partition: Partition, tables: StageTables) -> tuple[Decided, ...]:
        """Stages of a partition."""
        used, width = configuration.candidate, self.instance.candidates[configuration.candidate].width
        return tuple(
            (self.downsets.between(each.larger, each.smaller), used, tables.choices[each.choice], each.slot * width, ())
            for each in partition.stages
        )

    def tables(self, configuration: Configuration, time_limit: float) -> StageTables:
        """Tables of the stages that fit memory and take at most `time_limit` seconds per micro-batch."""

        def made() -> tuple[StageTables, int]:
            tables = self._make_tables(configuration, time_limit).within(time_limit)
            return tables, tables.bytes

        tables, only = self._tables.of(self._priced(configuration), time_limit, made)
        return tables if only else tables.within(time_limit)

    def _priced(self, configuration: Configuration) -> tuple[Hashable, ...]:
        """Key of the tables of stages, besides the time limit."""
        decided = *configuration.members[0], configuration.placed, configuration.zero_degree
        return *decided, configuration.stage_counts[-1], *self._priced_alike(configuration)

    def _priced_alike(self, configuration: Configuration) -> tuple[Hashable, ...]:
        """Part of that key from the schedule."""
        hides = self.instance.space.hides(configuration.schedule.name)
        return configuration.copies, self.parted(configuration), hides

    def all_tables(self, configuration: Configuration) -> StageTables:
        """Tables of every stage, fitting or not."""
        return self._make_tables(configuration, inf)

    def every_table(self, configuration: Configuration) -> StageTables:
        """Tables of every stage and choice, even without use for a closed form."""
        key = ("every choice", *self._priced(configuration))
        return self.once(key, lambda: self._make_tables(configuration, inf, every_choice=True))

    def by_price(
        self, configuration: Configuration, stages: int, floor: Floor, known: Incumbent, limit: float, price: Price
    ) -> Best:
        """Plan with the least price below `limit`, by replay."""
        from nest.solve.dp.stage_prices import best_by_price

        def offered() -> Recurrence:
            member = self.member(configuration, self.every_table(configuration))
            return of_slots(member, self.in_flight(configuration, stages), self.meter, None)

        def plan(value: float, partition: Partition) -> Incumbent:
            decided = self.decided(configuration, partition, self.every_table(configuration))
            return self.incumbent(configuration, value, decided)

        return best_by_price(self, configuration, stages, floor, known, limit, price, offered, plan)

    def _make_tables(
        self, configuration: Configuration, time_limit: float, *, every_choice: bool = False
    ) -> StageTables:
        """Tables of the stages that compute for at most `time_limit` seconds, fitting or not."""
        sums = self.sums(configuration.candidate)
        pairs = self._useful_pairs(configuration, sums.compute, time_limit)
        # Candidate and replicas decide the micro-batches, so that tables may be known by the former.
        return stage_tables(
            self.instance,
            configuration,
            sums,
            pairs,
            configuration.choices,
            held_up=self.held_up,
            part_sums=self.part_sums(configuration, configuration.candidate),
            every_choice=every_choice,
        )

    def _useful_pairs(self, configuration: Configuration, compute: Sums, time_limit: float) -> Pairs:
        """Pairs that compute for at most `time_limit` seconds and leave no more than that to each other stage."""
        pairs = whole = self.pairs(configuration)
        if (most_stages := configuration.stage_counts[-1]) <= 2:
            pairs = self.once_shared(("pairs", "few", most_stages), lambda: whole.of_few(most_stages))
        if time_limit == numpy.inf:
            return pairs
        seconds = compute.over(pairs.distinct)
        mask = seconds <= time_limit
        least = compute.whole[-1] - (most_stages - 1) * time_limit
        if least > 0:
            mask &= seconds >= least * (1 - LIMIT_SLACK)
        return pairs.only_classes(mask)

    def boundaries(self, configuration: Configuration) -> Boundaries:
        """Boundary times at every level that occurs."""
        cut = self.sums(configuration.candidate).cut
        return self.once_shared(
            ("boundaries", configuration.candidate, configuration.placed),
            lambda: boundaries(cut, self.slots(configuration), self.instance.cluster.levels),
        )

    def _floors(self, configuration: Configuration, counts: tuple[int, ...], limit: float) -> list[Floor]:
        """Lower bounds of the three terms for each of `counts` stages, with the cheapest boundaries.

        They hold for plans of at most `limit` seconds: stages too slow for that are left out.
        """
        time_limit = self.longest(configuration, counts, limit)

        def bounds(in_flight: tuple[float, ...]) -> Array:
            tables, relaxed = self.tables(configuration, time_limit), self.boundaries(configuration).relaxed
            return partition_bounds(LeastTimes(tables, relaxed, False), in_flight, time_limit, self.meter)

        every = self.for_counts(configuration, counts, bounds)
        rows = ((count, terms[:, count - 1].tolist()) for count, terms in zip(counts, every, strict=True))
        return [self.floor(configuration, count, terms) for count, terms in rows]

    def _relaxed(self, configuration: Configuration, stages: int, tables: StageTables) -> Recurrence:
        """Recurrence over `tables` with the cheapest boundaries."""
        used, flying = self.member(configuration, tables).without_levels(), self.in_flight(configuration, stages)
        return of_slots(used, flying, self.meter, self.apart(configuration, stages))

    def member(self, configuration: Configuration, tables: StageTables) -> Member:
        """Member with these tables."""
        (times, _, steps, levels), used = self.boundaries(configuration), configuration.candidate
        return Member(used, self.instance.candidates[used].width, tables, times, levels, steps)
