"""Plans with different candidates by stage: bounds, exact solution, and the first of the fastest."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import numpy
from attrs import define, evolve, field

from nest.instance import Array, Candidate, Instance, Weights
from nest.solve.dp.blocks import MemberTimes
from nest.solve.dp.bounds import partition_bounds
from nest.solve.dp.choices import part_rows
from nest.solve.dp.configurations import Configuration, Offsets, offsets
from nest.solve.dp.members import Member, boundary_times
from nest.solve.dp.nodes import CutSearch, PlanSearch
from nest.solve.dp.pareto import Floor, Partition, least_batch_time
from nest.solve.dp.places import Graph, OffsetPlaces
from nest.solve.dp.recurrence import Recurrence
from nest.solve.dp.stages import stage_tables
from nest.solve.search import Best, BestFirst, Bounded, Incumbent, Price
from nest.tolerances import TIE

REMEMBERED = 4  # Sets of tables kept for recent configurations.


@define(eq=False, repr=False)
class MixedSearch(CutSearch, PlanSearch):
    """Mixed plans."""

    # Step times of the plans found, each with its configuration restricted to its number of stages.
    priced: list[tuple[float, Configuration]] = field(factory=list, init=False)
    _members: dict[int, tuple[float, tuple[Member, ...]]] = field(factory=dict, init=False)

    def compute_bounds(self, configuration: Configuration) -> Array:
        """Lower bounds on the step time for each of the configuration's stage counts, from compute alone."""
        slowest, added = self._compute(configuration)
        weights = [self.objective(configuration, count).slowest for count in configuration.stage_counts]
        return numpy.array(weights) * slowest + added

    def early_bounds(self, configuration: Configuration) -> Array:
        """Same."""
        return self.compute_bounds(configuration)

    def _compute(self, configuration: Configuration) -> tuple[Array, Array]:
        """Least slowest stage and least part of the sum in the step time by number of stages, from compute alone.

        A layer keeps `width` devices busy for its time; the slowest stage takes at least this work divided by the
        usable devices of a replica, the layers' least times divided by the stages, and the longest layer.
        """
        candidates = [self.instance.candidates[index] for index, _ in configuration.members]
        times = numpy.array([candidate.forward + candidate.backward for candidate in candidates])
        widths = numpy.array([candidate.width for candidate in candidates])[:, None]
        least, work = times.min(axis=0), float((times * widths).min(axis=0).sum())
        counts = numpy.array(configuration.stage_counts, dtype=numpy.float64)
        total = float(least.sum())
        devices = max(configuration.tally.most(configuration.size), 1)
        slowest = numpy.maximum(total / counts, max(float(least.max()), work / devices))
        weights = [self.weights(configuration, count) for count in configuration.stage_counts]
        return slowest, numpy.array([w.forward * total if w.uniform else _least_sum(candidates, w) for w in weights])

    def branch(
        self, configuration: Configuration, counts: tuple[int, ...], limit: float, pruned: Counter[str]
    ) -> list[Bounded]:
        """One leaf per number of stages, with bounds from partitions and from packing blocks."""
        slowest, added = self._compute(configuration)
        rest = dict(zip(counts, added.tolist(), strict=True))
        least = {
            count: float(seconds)
            for count, seconds, bound in zip(counts, slowest, self.early_bounds(configuration), strict=True)
            if bound <= limit and count <= self.downsets.most_stages
        }
        pruned["bound from compute"] += len(counts) - len(least)
        nodes = []
        if least:
            time_limit = max(self.objective(configuration, each).time_limit(limit, rest[each]) for each in least)
            for count, floor in self._floors(configuration, least, time_limit).items():
                better = floor._replace(largest_time=max(floor.largest_time, least[count]))
                bound = self.objective(configuration, count).of(better)
                if numpy.isfinite(bound):
                    nodes.append(self.bounded(bound, configuration, (count,), better))
        pruned["memory of a stage, or a stage too slow"] += len(least) - len(nodes)
        return nodes

    def quick(self, configuration: Configuration, stages: int, floor: Floor) -> Incumbent | None:
        """None: the best plan of one candidate is known before mixed plans are searched."""
        return None

    def solve(
        self, configuration: Configuration, stages: int, floor: Floor, limit: float, pruned: Counter[str]
    ) -> Incumbent | None:
        """Best plan of so many stages below `limit`, exactly."""
        objective = self.objective(configuration, stages)
        time_limit = objective.time_limit(limit, objective.total * floor.total_time + floor.largest_sync)
        members = self._placeable(configuration, stages, time_limit)
        if not members:
            pruned["room of a stage"] += 1
            return None
        exact = self._recurrence(configuration, stages, members, self.offsets(configuration))
        value, partition = least_batch_time(exact.run, objective, floor, limit)
        pruned["recurrence"] += 1
        if partition is None:
            return None
        self.priced.append((value, evolve(configuration, stage_counts=(stages,))))
        return self._plan(configuration, value, partition, members)

    def by_price(
        self, configuration: Configuration, stages: int, floor: Floor, known: Incumbent, limit: float, price: Price
    ) -> Best:
        """Plan with the least price below `limit`, by replay."""
        from nest.solve.dp.stage_prices import best_by_price

        def members() -> tuple[Member, ...]:
            key = ("every choice", configuration.order)
            return self.once(
                key, lambda: self._make_members(configuration, numpy.inf, fitting=False, every_choice=True)
            )

        def plan(value: float, partition: Partition) -> Incumbent:
            return self._plan(configuration, value, partition, members())

        def offered() -> Recurrence:
            return self._recurrence(configuration, stages, members(), self.offsets(configuration))

        return best_by_price(self, configuration, stages, floor, known, limit, price, offered, plan)

    def _recurrence(
        self, configuration: Configuration, stages: int, members: Sequence[Member], places: Offsets
    ) -> Recurrence:
        widths = [member.width for member in members]
        placed = Graph(OffsetPlaces(places, tuple(sorted(set(widths))), configuration.tally), stages)
        flying, weights = self.in_flight(configuration, stages), self.apart(configuration, stages)
        return Recurrence(members, widths, flying, placed, self.meter, weights)

    def _plan(
        self, configuration: Configuration, value: float, partition: Partition, members: Sequence[Member]
    ) -> Incumbent:
        placed = ((members[stage.member], stage) for stage in partition.stages)
        return self.incumbent(
            configuration,
            value,
            (
                (
                    self.downsets.between(at.larger, at.smaller),
                    used.candidate,
                    used.tables.choices[at.choice],
                    at.slot,
                    (),
                )
                for used, at in placed
            ),
        )

    def _placeable(self, configuration: Configuration, stages: int, time_limit: float) -> list[Member]:
        members = self.members(configuration, time_limit)
        times = MemberTimes.of_members([member.without_levels() for member in members])
        room = configuration.size, configuration.tally
        masks = times.placeable(self.in_flight(configuration, stages), time_limit, *room)
        return [
            evolve(member, tables=member.tables.only(mask))
            for member, mask in zip(members, masks, strict=True)
            if mask.any()
        ]

    def offsets(self, configuration: Configuration) -> Offsets:
        """Devices of a replica."""
        size, replicas, order = configuration.size, configuration.replicas, configuration.rank_order
        return self.once(
            ("offsets", size, replicas, order), lambda: offsets(self.instance.cluster, size, replicas, order)
        )

    def members(self, configuration: Configuration, time_limit: float) -> tuple[Member, ...]:
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

    def all_members(self, configuration: Configuration, *, every_choice: bool = False) -> tuple[Member, ...]:
        """Tables of every stage, fitting or not; with choices that help no closed form, too."""
        return self._make_members(configuration, numpy.inf, fitting=False, every_choice=every_choice)

    def _make_members(
        self, configuration: Configuration, time_limit: float, *, fitting: bool = True, every_choice: bool = False
    ) -> tuple[Member, ...]:
        sums = [self.sums(index) for index, _ in configuration.members]
        fastest = numpy.array([each.candidate.forward + each.candidate.backward for each in sums]).min(axis=0)
        quickest = self.downsets.sums(fastest)
        made, levels = [], self.instance.cluster.levels
        for each, (index, choices) in zip(sums, configuration.members, strict=True):
            pairs = self.pairs(configuration)
            if time_limit < numpy.inf:
                pairs = pairs.only_classes(each.compute.over(pairs.distinct) <= time_limit)
            tables = stage_tables(
                self.instance,
                configuration,
                each,
                pairs,
                choices,
                held_up=self.held_up,
                quickest=quickest,
                part_sums=self.part_sums(configuration, index),
                every_choice=every_choice,
            )
            tables = tables.within(time_limit) if fitting else tables
            times = numpy.array([boundary_times(each.cut, level) for level in levels])
            made.append(Member(index, each.candidate.width, tables, times, tuple(range(len(levels)))))
        return tuple(made)

    def _floors(self, configuration: Configuration, least: dict[int, float], time_limit: float) -> dict[int, Floor]:
        """Lower bounds of the three terms for each number of stages, all links at their cheapest.

        `least` has the least seconds of its slowest stage.
        """
        times = MemberTimes.of_members([member.without_levels() for member in self.members(configuration, time_limit)])
        longest = self.in_flight(configuration, max(least))
        shared = self._bounds(configuration, times, longest, time_limit, least)
        floors = {}
        for count in least:
            own = self.in_flight(configuration, count)
            same = own == longest[:count]
            bounds = shared if same else self._bounds(configuration, times, own, time_limit, (count,))
            floors[count] = self.floor(configuration, count, bounds[:, count - 1].tolist())
        return floors

    def _bounds(
        self,
        configuration: Configuration,
        times: MemberTimes,
        in_flight: tuple[float, ...],
        time_limit: float,
        counts: Collection[int],
    ) -> Array:
        bounds = partition_bounds(times, in_flight, time_limit, self.meter)
        # Of the slowest stage, what fits into the replica tells more than partitions do.
        room = configuration.size, configuration.tally, self.meter
        for count, slowest in times.least_limits(in_flight, counts, time_limit, *room).items():
            bounds[0, count - 1] = slowest
        return bounds


def _least_sum(candidates: Sequence[Candidate], weights: Weights) -> float:
    """Least part of the step time from compute of all layers, each on its best candidate."""
    return float(numpy.array([weights.of_parts(*part_rows(each)) for each in candidates]).min(axis=0).sum())


def first_of_ties(
    best: Incumbent, least: float, searcher: MixedSearch, begin: Callable[[Incumbent], BestFirst]
) -> Incumbent:
    """First mixed plan by tie-break among the fastest: fewest devices, then fewest stages.

    The search finds one of the fastest plans of a configuration and a number of stages, on any devices. Configurations
    that tie with the best plan are searched again with limited devices: first for fewer than the best plan until there
    is none, then for as many. All others are pruned: they have no equally fast plan, or none that could come first.

    Args:
        best: one of the fastest.
        least: their step time in seconds.
        searcher: has searched all mixed plans.
        begin: starts a search from a given plan.
    """
    tied = [configuration for value, configuration in searcher.priced if value <= least * (1 + TIE)]

    def among(devices: range) -> Incumbent:
        searcher.narrow(_using(devices, searcher.instance, tied))
        search = begin(best)
        search.limit = least
        search.find_best()
        return search.best or best

    while (fewer := among(range(1, best.tie_break[0]))) is not best:
        best = fewer
    return among(range(best.tie_break[0], best.tie_break[0] + 1))


def _using(devices: range, instance: Instance, configurations: Iterable[Configuration]) -> Iterator[Configuration]:
    for each in configurations:
        narrowest = min(instance.candidates[index].width for index, _ in each.members)
        totals = each.tally.totals or range(narrowest * each.stage_counts[0], each.size + 1)
        totals_left = frozenset(total for total in totals if total * each.replicas in devices)
        if totals_left:
            yield evolve(each, tally=evolve(each.tally, totals=totals_left))
