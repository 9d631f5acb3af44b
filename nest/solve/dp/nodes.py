"""Common parts of the searches of plain, mixed and interleaved plans: nodes, schedule weights, plans."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from math import inf
from typing import Any, TypeVar

from attrs import define, field, frozen

from nest.instance import Array, Instance, Solution, StageDecision, Weights, chunks_of
from nest.reuse import once
from nest.solve.dp.beside_compute import FirstBounds
from nest.solve.dp.choices import Choice
from nest.solve.dp.configurations import Configuration, Slots, slots
from nest.solve.dp.downsets import Downsets, classified_pairs, even_pairs
from nest.solve.dp.pairs import Pairs
from nest.solve.dp.pareto import Floor, Objective, in_flight_from_last
from nest.solve.dp.parts import candidate_sums
from nest.solve.dp.sums import CandidateSums, PartSums, part_sums
from nest.solve.search import Best, Bounded, Incumbent, Meter, PlanKind, Price, TieBreak
from nest.tolerances import LIMIT_SLACK

T = TypeVar("T")


Decided = tuple[tuple[int, ...], int, Choice, int, tuple[tuple[int, ...], ...]]
"""Layers, candidate, choice, offset and chunks of a stage; empty chunks for a single one."""


@frozen(eq=False, repr=False)
class _Node:
    """A configuration with some of its numbers of stages: a `nest.solve.search.Node`."""

    search: "PlanSearch"
    configuration: Configuration
    counts: tuple[int, ...]  # Open numbers of stages, ascending.
    floor: Floor | None = None  # Bounds of the three terms for a single count; None: only early bounds are known.
    rough: bool = False  # Bounds without `PlanSearch.closer_bounds`: most nodes are never expanded.
    relaxed: bool = False  # Its stages may differ in choices they should share, so it gives a bound and no plan.

    @property
    def combinations(self) -> int:
        return len(self.counts)

    @property
    def leaf(self) -> bool:
        return self.floor is not None and not self.relaxed

    @property
    def quickly(self) -> bool:
        return self.floor is not None

    def only(self, kind: PlanKind) -> bool:
        candidates, replicas = tuple(index for index, _ in self.configuration.members), self.configuration.replicas
        # Mixed plans may use some of their candidates only, so none is known to be of a kind.
        return len(candidates) == 1 and all(kind == (candidates, replicas, count) for count in self.counts)

    def first(self) -> Incumbent | None:
        return None if self.rough else self.search.first(self.configuration)

    def branch(self, limit: float, pruned: Counter[str]) -> list[Bounded]:
        if self.rough:
            bound = float(self.search.closer_bounds(self.configuration).min())
            if bound > limit:
                pruned["bound from compute"] += len(self.counts)
                return []
            return [self.search.bounded(bound, self.configuration, self.counts)]
        if self.floor is not None:
            return self.search.tightened(self.configuration, self.counts[0], self.floor, limit, pruned)
        return self.search.branch(self.configuration, self.counts, limit, pruned)

    def quick(self) -> Incumbent | None:
        assert self.floor is not None
        return self.search.quick(self.configuration, self.counts[0], self.floor)

    def solve(self, limit: float, pruned: Counter[str]) -> Incumbent | None:
        assert self.floor is not None
        return self.search.solve(self.configuration, self.counts[0], self.floor, limit, pruned)

    def by_price(self, known: Incumbent, limit: float, price: Price) -> Best:
        assert self.floor is not None
        return self.search.by_price(self.configuration, self.counts[0], self.floor, known, limit, price)


@define(eq=False, repr=False)
class InstanceSearch:
    """Knowledge of an instance while plans of some configurations are searched."""

    instance: Instance
    configurations: list[Configuration]  # Decisions before stages.
    meter: Meter = field(factory=Meter, kw_only=True)
    shared: dict[Hashable, Any] = field(factory=dict, kw_only=True)  # Cache shared with searches of similar problems.
    # Cache of what depends on schedules but not on costs.
    scheduled: dict[Hashable, Any] = field(factory=dict, kw_only=True)
    # Lower bound (s) on plans left unsearched; infinite if there are none.
    left: float = field(default=inf, init=False)
    refused: Counter[str] = field(factory=Counter, init=False)
    _known: dict[Hashable, Any] = field(factory=dict, init=False)

    def incumbent(self, configuration: Configuration, value: float, stages: Iterable["Decided"]) -> Incumbent:
        """Build a plan of the configuration.

        Args:
            value: step time, seconds.
            stages: layers, candidate, choice, offset and chunks of each, in pipeline order.
        """
        decided = tuple(
            StageDecision(layers, candidate, choice.recompute, choice.zero, offset, chunks)
            for layers, candidate, choice, offset, chunks in stages
        )
        solution = Solution(
            configuration.replicas,
            configuration.rank_order,
            configuration.schedule.name,
            decided,
            chunks_of(configuration.schedule),
            configuration.zero_degree,
        )
        used = sum(self.instance.candidates[stage.candidate].width for stage in decided)
        tie_break = (configuration.replicas * used, len(decided), configuration.order, configuration.place)
        return Incumbent(value, tie_break, solution)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Cache `make()` forever."""
        return once(self._known, key, make)

    def once_shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """Cache `make()` forever; independent of constraints, memory and batch size."""
        return once(self.shared, key, make)

    def once_scheduled(self, key: Hashable, make: Callable[[], T]) -> T:
        """Cache `make()` forever; also independent of costs."""
        return once(self.scheduled, key, make)

    def once_in_room(self, tables: dict[Hashable, Any], key: Hashable, make: Callable[[], T]) -> T:
        """Cache `make()` in some tables until the memory changes."""
        cluster = self.instance.cluster
        room, known = (cluster.memory, cluster.reserve), tables.get(key)
        if known is None or known[0] != room:
            known = tables[key] = room, make()
        found: T = known[1]
        return found

    @property
    def room(self) -> float:
        """Bytes of a device that a stage may need, with slack for rounding."""
        cluster = self.instance.cluster
        return cluster.memory * (1 + LIMIT_SLACK) - cluster.reserve

    def objective(self, configuration: Configuration, stages: int) -> Objective:
        """Weights of the schedule for `stages` stages."""
        key = ("objective", *configuration.scheduled, stages)

        def made() -> Objective:
            weights = self.weights(configuration, stages)
            return Objective(weights.slowest, weights.forward if weights.uniform else 1.0)

        return self.once_scheduled(key, made)

    def parted(self, configuration: Configuration) -> bool:
        """True if stage times are needed by parts: separate weights, or hidden messages."""
        if self.instance.space.hides(configuration.schedule.name):
            return True
        counts = configuration.stage_counts
        return self.once_scheduled(
            ("parted", *configuration.scheduled, counts),
            lambda: not all(self.weights(configuration, count).uniform for count in counts),
        )

    def weights(self, configuration: Configuration, stages: int) -> Weights:
        """Weights of the schedule for so many stages."""
        schedule, micro_batches = configuration.schedule, configuration.micro_batches
        key = ("weights", *configuration.scheduled, stages)
        return self.once_scheduled(key, lambda: self.instance.space.weights(schedule, micro_batches, stages))

    def apart(self, configuration: Configuration, stages: int) -> Weights | None:
        """Weights of the parts of a stage's time in the sum; None: the sum of the times."""
        if not self.parted(configuration):
            return None
        weights = self.weights(configuration, stages)
        return Weights(weights.slowest, 1.0, 1.0, 1.0) if weights.uniform else weights

    def in_flight(self, configuration: Configuration, stages: int) -> tuple[float, ...]:
        """Micro-batches in flight of each stage, counted from the last."""
        schedule, micro_batches = configuration.schedule, configuration.micro_batches
        key = ("in flight", *configuration.scheduled, stages)
        return self.once_scheduled(key, lambda: in_flight_from_last(schedule, stages, micro_batches))

    def for_counts(
        self, configuration: Configuration, counts: Sequence[int], make: Callable[[tuple[float, ...]], T]
    ) -> Iterator[T]:
        """Apply `make` to the micro-batches in flight with each of `counts` stages, ascending.

        One pass from the last stage on serves all counts with the same micro-batches as the largest.
        """
        longest = self.in_flight(configuration, counts[-1])
        shared = make(longest)
        for count in counts:
            own = self.in_flight(configuration, count)
            yield shared if own == longest[:count] else make(own)

    def slots(self, configuration: Configuration) -> Slots:
        """Places of blocks of equal width."""
        width = self.instance.candidates[configuration.candidate].width
        decided = (width, configuration.replicas, configuration.rank_order)
        return self.once_shared(("slots", *decided), lambda: slots(self.instance.cluster, *decided))


@define(eq=False, slots=False, repr=False)
class PlanSearch(InstanceSearch, ABC):
    """Plans whose nodes are configurations with some numbers of stages.

    Without slots, so that a class can combine it with `CutSearch`. `first_bounds` are those of the instance, as known.
    """

    first_bounds: FirstBounds = field(kw_only=True)

    @first_bounds.default
    def _first_bounds(self) -> FirstBounds:
        return FirstBounds(self.instance)

    def nodes(self, limit: float) -> list[Bounded]:
        """Every configuration with its bounds from compute, closer for those that may beat `limit`; cached."""
        # Nodes hold their search: one that kept them would only be freed when Python looks for garbage.
        return [self.first_node(*each) for each in self.once("nodes", lambda: list(self._nodes(limit)))]

    def _nodes(self, limit: float) -> Iterator[tuple[Configuration, float]]:
        for configuration in self.configurations:
            self.meter.watch()
            yield configuration, 0.0

    def first_bound(self, configuration: Configuration) -> float:
        """Lower bound (s) on a configuration from its listing, else from compute alone."""
        if configuration.bound is not None:
            return configuration.bound
        return float(self.compute_bounds(configuration).min())

    def first_node(self, configuration: Configuration, least: float) -> Bounded:
        """Node of a configuration with its first bound, at least `least`; refined when its turn comes."""
        bound = max(self.first_bound(configuration), least)
        return self.bounded(bound, configuration, configuration.stage_counts, rough=True)

    def narrow(self, configurations: Iterable[Configuration]) -> None:
        """Restrict the search to these configurations."""
        self.configurations = list(configurations)
        self._known.pop("nodes", None)
        self.refused.clear()

    def compute_bounds(self, configuration: Configuration) -> Array:
        """Lower bounds on the step time for each of the configuration's stage counts, from compute and ports alone."""
        decided = (configuration.candidate, configuration.schedule, configuration.micro_batches)
        return self.first_bounds.of(*decided, configuration.stage_counts)

    def early_bounds(self, configuration: Configuration) -> Array:
        """Lower bounds on the step time for each of the configuration's stage counts, before any stage is examined."""
        return self.first_bounds.of_configuration(configuration)

    def closer_bounds(self, configuration: Configuration) -> Array:
        """Same as `early_bounds`, refined when the turn of a configuration comes."""
        return self.early_bounds(configuration)

    def least_rest(self, configuration: Configuration, stages: int) -> float:
        """Lower bound (s) on a step beside its slowest stage, for plans of one candidate and so many stages."""
        return self.first_bounds.rest(configuration, self.weights(configuration, stages), stages)

    def first(self, configuration: Configuration) -> Incumbent | None:
        """Some plan of a configuration, if found faster than bounds; None: unknown."""
        return None

    @abstractmethod
    def branch(
        self, configuration: Configuration, counts: tuple[int, ...], limit: float, pruned: Counter[str]
    ) -> list[Bounded]:
        """A leaf for each number of stages with plans that may beat `limit`."""

    def tightened(
        self, configuration: Configuration, stages: int, floor: Floor, limit: float, pruned: Counter[str]
    ) -> list[Bounded]:
        """Leaves of a relaxed node that may beat `limit`, one for each shared choice."""
        raise NotImplementedError

    @abstractmethod
    def quick(self, configuration: Configuration, stages: int, floor: Floor) -> Incumbent | None:
        """Some plan of so many stages, found quickly; None: there is none within the floor's largest time."""

    @abstractmethod
    def solve(
        self, configuration: Configuration, stages: int, floor: Floor, limit: float, pruned: Counter[str]
    ) -> Incumbent | None:
        """Best plan of so many stages below `limit`, exactly."""

    @abstractmethod
    def by_price(
        self, configuration: Configuration, stages: int, floor: Floor, known: Incumbent, limit: float, price: Price
    ) -> Best:
        """Plan of so many stages with a price below `limit`; `known` has the least closed form."""

    def bounded(
        self,
        bound: float,
        configuration: Configuration,
        counts: tuple[int, ...],
        floor: Floor | None = None,
        *,
        rough: bool = False,
        relaxed: bool = False,
    ) -> Bounded:
        """Node with the best rank among ties: devices, stages, then the configuration's order."""
        candidates, members = self.instance.candidates, configuration.members
        alone = candidates[members[0][0]].width
        narrowest = alone if len(members) == 1 else min(candidates[index].width for index, _ in members)
        least = configuration.tally.least(narrowest * counts[0])
        tie_break: TieBreak = (configuration.replicas * least, counts[0], configuration.order, configuration.place)
        return Bounded(bound, tie_break, _Node(self, configuration, counts, floor, rough, relaxed))


@define(eq=False, repr=False)
class CutSearch(InstanceSearch):
    """Plans whose stages lie between two cuts of the layer graph."""

    downsets: Downsets  # Cuts.
    # Ports delay communication once per batch (PROBLEM.md section 4); if not, prices may be too low.
    held_up: bool = True

    def sums(self, index: int) -> CandidateSums:
        """Sums of a candidate over downsets."""
        candidate = self.instance.candidates[index]
        return self.once_shared(("sums", index), lambda: candidate_sums(self.instance, candidate, self.downsets))

    def part_sums(self, configuration: Configuration, index: int) -> PartSums | None:
        """Sums of a candidate's times by parts; None: not needed."""
        if not self.parted(configuration):
            return None
        return self.once_shared(("parts", index), lambda: part_sums(self.instance.candidates[index], self.downsets))

    def floor(self, configuration: Configuration, stages: int, terms: Sequence[float]) -> Floor:
        """Bounds of the three terms from those of `nest.solve.dp.bounds.partition_bounds`."""
        return Floor.of(terms, self.apart(configuration, stages))

    def pairs(self, configuration: Configuration) -> Pairs:
        """Stages of its plans."""
        space, count = self.instance.space, configuration.stage_counts[-1]
        every = self.once_shared("pairs", lambda: classified_pairs(self.instance, self.downsets))
        if not space.even:
            return every
        return self.once_shared(("pairs", count), lambda: even_pairs(every, space.blocks, self.downsets, count))
