"""Plans with stages in several pools: bounds and exact solution (PROBLEM.md section 8)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf

import numpy
from attrs import define, field, frozen

from nest.instance import Array
from nest.solve.dp.bounds import LeastTimes
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.members import Member, side_by_side
from nest.solve.dp.pareto import Floor, Partition, least_batch_time
from nest.solve.dp.places import Counts, PoolPlaces, SlotPlaces, graph
from nest.solve.dp.pool_bounds import least_excess, term_bounds
from nest.solve.dp.pool_configurations import Candidates, Compute
from nest.solve.dp.pool_tables import Curves, PoolTables, most_covered, powers_of_two
from nest.solve.dp.recurrence import Recurrence
from nest.solve.search import Best, Bounded, Incumbent, PlanKind, Price, TieBreak
from nest.tolerances import LIMIT_SLACK

ENTRY_BYTES = 400 * 2**20
"""Most bytes of entries of a recurrence; larger ones are left unsearched, and the answer says so."""

STEPS = 32  # Parts of a range of times that is searched for the slowest stage's.
FEW_PAIRS = 2**16  # Most stages whose least times are all kept while bounds are computed.


@frozen(order=False)
class PoolNode:
    """A configuration with some numbers of stages, or with those of each pool: a `nest.solve.search.Node`."""

    search: "PoolSearch"
    configuration: Configuration
    counts: tuple[int, ...]  # Open numbers of stages, ascending.
    split: Counts = ()  # Stages in each pool; empty: open.
    floor: Floor | None = None  # Bounds of the three terms, once decided.
    combinations: int = 1  # See `Node`; of the splits of a number of stages the last one counts for all.
    screened: bool = False  # Its bound includes the stages' possible shares of the model.

    @property
    def leaf(self) -> bool:
        """True if the node is solved next."""
        return self.floor is not None

    @property
    def quickly(self) -> bool:
        """True if some plan is found quickly."""
        return self.leaf

    def only(self, kind: PlanKind) -> bool:
        """True if all its plans are of that kind."""
        candidates = tuple(sorted(index for index, _ in self.configuration.members))
        return all(kind == (candidates, self.configuration.replicas, count) for count in self.counts)

    def first(self) -> Incumbent | None:
        """None: its bounds need no plan."""
        return None

    def branch(self, limit: float, pruned: Counter[str]) -> list[Bounded]:
        """Branch into a node for each number of stages, then a leaf for each split that may beat `limit`."""
        if not self.screened:
            return self.search.screened(self.configuration, self.counts, limit, pruned)
        return self.search.split(self.configuration, self.counts, limit, pruned)

    def quick(self) -> Incumbent | None:
        """Some plan with blocks side by side."""
        assert self.floor is not None
        return self.search.quick_plan(self.configuration, self.split, self.floor)

    def solve(self, limit: float, pruned: Counter[str]) -> Incumbent | None:
        """Best plan below `limit`."""
        assert self.floor is not None
        return self.search.best_plan(self.configuration, self.split, self.floor, limit, pruned)

    def by_price(self, known: Incumbent, limit: float, price: Price) -> Best:
        """Plan with the least price below `limit`, by replay."""
        assert self.floor is not None
        return self.search.by_price(self.configuration, self.split, self.floor, known, limit, price)


@define(eq=False, repr=False)
class PoolSearch(PoolTables):
    """Plans in at least two pools."""

    bounds: Sequence[float] = ()  # Lower bound (s) of each configuration.
    compute: dict[Candidates, Compute] = field(factory=dict)  # Of plans with the candidates of configurations.

    def nodes(self, limit: float) -> list[Bounded]:
        """Every configuration with its bound from compute."""
        return [
            self._bounded(bound, PoolNode(self, each, each.stage_counts, combinations=len(each.stage_counts)))
            for bound, each in zip(self.bounds, self.configurations, strict=True)
        ]

    def _bounded(self, bound: float, node: PoolNode) -> Bounded:
        """Node with the best rank among ties: devices, stages, pools, then the order listed."""
        configuration, widths = node.configuration, self._widths(node.configuration)
        if node.split:
            devices = sum(width * count for width, count in zip(widths, node.split, strict=True))
        else:
            devices = sum(widths) + min(widths) * (node.counts[0] - len(widths))
            devices = configuration.tally.least(devices)
        tie_break: TieBreak = (configuration.replicas * devices, node.counts[0], len(widths), configuration.order)
        return Bounded(bound, (*tie_break, *node.split), node)

    def screened(
        self, configuration: Configuration, counts: tuple[int, ...], limit: float, pruned: Counter[str]
    ) -> list[Bounded]:
        """A node for each number of stages that may beat `limit`, by the possible shares of its stages."""
        compute, room = self._compute_of(configuration), self._room(configuration)
        least = self._least_compute(configuration, counts)
        limits = self._limits(configuration, counts, least, limit, pruned)
        if asked := tuple(count for count in limits if least[count] < inf):
            between = min(least[count] for count in asked), max(limits.values())
            curves = [self._lean(configuration, place) for place in range(len(room))]
            found = self._least_slowest(configuration, asked, curves, room, between, compute.share)
            for count, seconds in zip(asked, found, strict=True):
                least[count] = max(least[count], seconds) if seconds <= limits[count] else inf
        least = {count: least[count] for count in limits if least[count] < inf}
        pruned["shares of the model that stages can have"] += len(limits) - len(least)
        nodes = []
        for count, seconds in least.items():
            bound = self.objective(configuration, count).slowest * seconds
            bound += compute.total(self.weights(configuration, count))
            nodes.append(self._bounded(bound, PoolNode(self, configuration, (count,), screened=True)))
        return nodes

    def split(
        self, configuration: Configuration, counts: tuple[int, ...], limit: float, pruned: Counter[str]
    ) -> list[Bounded]:
        """One leaf for each number of stages in each pool, with bounds from partitions."""
        limits = self._limits(configuration, counts, self._least_compute(configuration, counts), limit, pruned)
        if not limits:
            return []
        time_limit = max(limits.values())
        members = self.members(configuration, time_limit)
        leaves, found = [], self._floors(configuration, members, tuple(limits), time_limit)
        widths = self._widths(configuration)
        for count in limits:
            of_count = [
                (self.objective(configuration, count).of(floor), split, floor)
                for split, floor in found.items()
                if sum(split) == count and self._allowed(configuration, widths, split)
            ]
            of_count.sort(key=lambda each: each[:2])
            leaves += [
                self._bounded(
                    bound, PoolNode(self, configuration, (count,), split, floor, int(place == len(of_count) - 1))
                )
                for place, (bound, split, floor) in enumerate(of_count)
            ]
            pruned["memory of a stage, or a stage too slow"] += not of_count
        return leaves

    def _compute_of(self, configuration: Configuration) -> Compute:
        return self.compute[tuple(index for index, _ in configuration.members)]

    def _room(self, configuration: Configuration) -> list[int]:
        return [self._slots(configuration, index).count for index, _ in configuration.members]

    def _least_compute(self, configuration: Configuration, counts: Sequence[int]) -> dict[int, float]:
        """Least compute of the slowest of so many stages, in seconds."""
        slowest = self._compute_of(configuration).slowest(self._room(configuration), counts)
        return dict(zip(counts, slowest.tolist(), strict=True))

    def _limits(
        self,
        configuration: Configuration,
        counts: Sequence[int],
        least: Mapping[int, float],
        limit: float,
        pruned: Counter[str],
    ) -> dict[int, float]:
        """Most seconds of a stage, for numbers of stages that compute does not exclude below `limit`."""
        compute, limits = self._compute_of(configuration), dict[int, float]()
        for count in counts:
            objective, total = self.objective(configuration, count), compute.total(self.weights(configuration, count))
            if objective.slowest * least[count] + total <= limit and count <= self.downsets.most_stages:
                limits[count] = objective.time_limit(limit, total)
        pruned["bound from compute"] += len(counts) - len(limits)
        return limits

    def _least_slowest(
        self,
        configuration: Configuration,
        counts: tuple[int, ...],
        curves: Sequence[Curves],
        room: Sequence[int],
        between: tuple[float, float],
        share: float,
    ) -> list[float]:
        """Least seconds of the slowest stage for each of `counts`, so that fitting stages hold so much.

        Searched `between` two times; infinite if stages of the longer time hold less.
        """
        # Where any time will do, it is only asked whether memory does.
        times = numpy.linspace(*between, STEPS + 1) if between[1] < inf else numpy.array(between)

        def covered(in_flight: tuple[float, ...]) -> Array:
            flying, places = numpy.unique(powers_of_two(sorted(in_flight)), return_inverse=True)
            held = [numpy.array([own.largest(each, times) for each in flying.tolist()])[places] for own in curves]
            return most_covered(held, room)

        seconds = []
        for count, rows in zip(counts, self.for_counts(configuration, counts, covered), strict=True):
            enough = numpy.flatnonzero(rows[count] >= share * (1 - LIMIT_SLACK))
            seconds.append(float(times[max(enough[0] - 1, 0)]) if len(enough) else inf)
        return seconds

    @staticmethod
    def _allowed(configuration: Configuration, widths: Sequence[int], split: Counts) -> bool:
        totals = configuration.tally.totals
        return totals is None or sum(w * n for w, n in zip(widths, split, strict=True)) in totals

    def _floors(
        self, configuration: Configuration, members: Sequence[Member], counts: tuple[int, ...], time_limit: float
    ) -> dict[Counts, Floor]:
        """Lower bounds of the three terms for each number of stages in each pool, with the cheapest boundaries."""
        few = sum(len(member.tables.pairs) for member in members) <= FEW_PAIRS
        least = [LeastTimes(member.tables, member.times.min(axis=0), few) for member in members]
        most = tuple(min(member.slots, counts[-1] - len(members) + 1) for member in members)

        def bounds(in_flight: tuple[float, ...]) -> dict[Counts, tuple[float, ...]]:
            return term_bounds(least, most, in_flight, time_limit, self.meter)

        floors: dict[Counts, Floor] = {}
        for count, terms in zip(counts, self.for_counts(configuration, counts, bounds), strict=True):
            for split, values in terms.items():
                if sum(split) == count:
                    floors[split] = self.floor(configuration, count, values)
        return floors

    def quick_plan(self, configuration: Configuration, split: Counts, floor: Floor) -> Incumbent | None:
        """Partition with the least slowest stage, blocks side by side: an upper bound."""
        time_limit, stages = floor.largest_time * (1 + LIMIT_SLACK), sum(split)
        members = self.members(configuration, time_limit)
        partition = self._relaxed(configuration, split, members).run(time_limit, inf)
        if partition is None:
            return None
        placed = side_by_side(members, partition, self.apart(configuration, stages))
        value = self.objective(configuration, stages).of(placed)
        return self._plan(configuration, split, value, placed, members)

    def best_plan(
        self, configuration: Configuration, split: Counts, floor: Floor, limit: float, pruned: Counter[str]
    ) -> Incumbent | None:
        """Best plan with so many stages in each pool below `limit`, exactly."""
        objective = self.objective(configuration, sum(split))
        time_limit = objective.time_limit(limit, objective.total * floor.total_time + floor.largest_sync)
        members = self.members(configuration, time_limit)
        exact = self._recurrence(configuration, split, members)
        value, partition = limit, None
        if all(member.own == 1 for member in members):
            value, partition = least_batch_time(exact.run, objective, floor, limit)
        else:
            relaxed = self._relaxed(configuration, split, members)
            if least_batch_time(relaxed.run, objective, floor, limit, first_will_do=True)[1] is None:
                pruned["recurrence without places"] += 1
                return None
            if exact.bytes > ENTRY_BYTES:
                pruned["places that do not fit into memory"] += 1
                self.left = min(self.left, objective.of(floor))
                return self._relaxed_plan(configuration, split, members, relaxed, floor, limit)
            value, partition = least_batch_time(exact.run, objective, floor, limit)
        pruned["recurrence"] += 1
        return None if partition is None else self._plan(configuration, split, value, partition, members)

    def by_price(
        self, configuration: Configuration, split: Counts, floor: Floor, known: Incumbent, limit: float, price: Price
    ) -> Best:
        """See `PoolNode.by_price`."""
        from nest.solve.dp.stage_prices import best_by_price

        def members() -> tuple[Member, ...]:
            key = ("every choice", configuration.order)
            return self.once(key, lambda: self.all_members(configuration, every_choice=True))

        def plan(value: float, partition: Partition) -> Incumbent:
            return self._plan(configuration, split, value, partition, members())

        def offered() -> Recurrence:
            return self._recurrence(configuration, split, members())

        return best_by_price(self, configuration, sum(split), floor, known, limit, price, offered, plan)

    def _relaxed_plan(
        self,
        configuration: Configuration,
        split: Counts,
        members: Sequence[Member],
        relaxed: Recurrence,
        floor: Floor,
        limit: float,
    ) -> Incumbent | None:
        """Best plan with the cheapest boundaries, priced with blocks side by side."""
        objective = self.objective(configuration, sum(split))
        _, partition = least_batch_time(relaxed.run, objective, floor, limit)
        if partition is None:
            return None
        placed = side_by_side(members, partition, self.apart(configuration, sum(split)))
        return self._plan(configuration, split, objective.of(placed), placed, members)

    def _relaxed(self, configuration: Configuration, split: Counts, members: Sequence[Member]) -> Recurrence:
        """Recurrence with the cheapest boundaries inside pools."""
        alike = [member if member.own == 1 else member.without_levels() for member in members]
        return self._recurrence(configuration, split, alike)

    def _recurrence(self, configuration: Configuration, split: Counts, members: Sequence[Member]) -> Recurrence:
        stages = sum(split)
        slots = [SlotPlaces(tuple(own.steps.tolist()), count) for own, count in zip(members, split, strict=True)]
        placed = graph(PoolPlaces(tuple(slots), tuple(member.links for member in members)), stages)
        flying, weights = self.in_flight(configuration, stages), self.apart(configuration, stages)
        return Recurrence(members, range(len(members)), flying, placed, self.meter, weights)

    def _plan(
        self, configuration: Configuration, split: Counts, value: float, partition: Partition, members: Sequence[Member]
    ) -> Incumbent:
        decided = []
        for stage in partition.stages:
            used = members[stage.member]
            layers = self.downsets.between(stage.larger, stage.smaller)
            decided.append((layers, used.candidate, used.tables.choices[stage.choice], stage.slot * used.width, ()))
        plan = self.incumbent(configuration, value, decided)
        devices, stages, order, _ = plan.tie_break
        return plan._replace(tie_break=(devices, stages, len(members), order, *split))

    def excess(self, configuration: Configuration) -> dict[Counts, float]:
        """Least bytes by which the fullest stage exceeds its device, for each number of stages in each pool."""
        members = self.all_members(configuration)
        tables = [member.tables for member in members]
        capacity = [self.instance.cluster_of(index).memory for index, _ in configuration.members]
        counts = [count for count in configuration.stage_counts if count <= self.downsets.most_stages]
        found: dict[Counts, float] = {}
        if not counts:
            return found
        most = tuple(min(member.slots, counts[-1] - len(members) + 1) for member in members)
        widths = self._widths(configuration)

        def least(in_flight: tuple[float, ...]) -> dict[Counts, tuple[float, ...]]:
            return least_excess(tables, capacity, most, in_flight, self.meter)

        for count, terms in zip(counts, self.for_counts(configuration, counts, least), strict=True):
            for split, (excess,) in terms.items():
                if sum(split) == count and self._allowed(configuration, widths, split):
                    found[split] = excess
        return found

    def fullest(self, configuration: Configuration, stages: int, excess: float) -> int:
        """Candidate of a stage that exceeds its device by so many bytes, among plans of so many stages."""
        for member in self.all_members(configuration):
            capacity = self.instance.cluster_of(member.candidate).memory
            for flying in dict.fromkeys(self.in_flight(configuration, stages)):
                if (member.tables.least_memory(flying) - capacity == excess).any():
                    return member.candidate
        raise ValueError(f"no stage exceeds its device by {excess} bytes")
