"""Which plans bounds ahead of stages, and the memory of all stages together, leave before any is listed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
from attrs import define, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Instance, ParameterGroup, Schedule, always_fills, chunks_of, copies_of, fills
from nest.solve.dp.choices import Choice
from nest.solve.dp.rules import uniform_sets
from nest.solve.dp.zero import sharded
from nest.tolerances import LIMIT_SLACK

if TYPE_CHECKING:
    from nest.solve.dp.beside_compute import FirstBounds
    from nest.solve.dp.configurations import Configuration

Counts = Callable[[Schedule, int, int], Sequence[int]]
"""Numbers of stages of a schedule, for so many micro-batches and slots."""


@frozen(eq=False, repr=False)
class _Options:
    """Schedules and numbers of stages that so many micro-batches and slots allow, one after the other.

    Attributes:
        schedule: place of the schedule. Shape `(options,)`, as those below.
        count: number of stages.
        rows: weights of the step time, as `ComputeBounds.rows` has them. Shape `(options, 6)`.
        copies: how often devices hold the parameters.
    """

    schedule: NDArray[numpy.int64]
    count: NDArray[numpy.int64]
    rows: Array
    copies: NDArray[numpy.int64]

    def some(self, chosen: NDArray[numpy.bool_]) -> _Options:
        """Those that are chosen."""
        return _Options(self.schedule[chosen], self.count[chosen], self.rows[chosen], self.copies[chosen])

    @classmethod
    def together(cls, every: Sequence[_Options]) -> _Options:
        """The options of each, one after the other."""
        names = ("schedule", "count", "rows", "copies")
        return cls(*(numpy.concatenate([getattr(each, name) for each in every]) for name in names))


KEPT = 1_024
"""Options up to which bounds are kept for other problems: of 1,000 blocks on 2**20 devices they would take 400 MB."""

NOTHING = (0.0, 0.0)
"""Seconds beside compute that are known before stages choose."""

Bounds = dict[int, float]
"""Step times that no plan with so many stages beats, seconds, by number of stages."""


@frozen(eq=False, repr=False)
class Worth:
    """Numbers of stages of a schedule with which there may be a plan that is worth it.

    Attributes:
        by_set: with each of the sets that uniform choices part them into.
        set_of: the place of the set of a choice.
    """

    by_set: Sequence[Bounds]
    set_of: Mapping[Choice, int]

    @property
    def counts(self) -> tuple[int, ...]:
        """With any choices of stages, ascending."""
        return tuple(sorted(set().union(*self.by_set)))

    def among(self, choices: tuple[Choice, ...], counts: tuple[int, ...]) -> Bounds:
        """Those of `counts` with which there may be a plan whose stages have such choices, all of one set."""
        left = self.by_set[self.set_of[choices[0]]]
        return {count: left[count] for count in counts if count in left}


class Unscheduled(NamedTuple):
    """Plans whose choices and schedule are open.

    Attributes:
        place: of the plans in the order of ties.
        plans: what is decided, with all choices that stages may have; the schedule is not read.
        slots: for device groups of a replica.
    """

    place: tuple[int, int, int]
    plans: Configuration
    slots: int


@frozen(eq=False, repr=False)
class _LookedAt:
    """Options of plans of one candidate, one after the other.

    Attributes:
        plans: by place, those that have any.
        sets: what uniform choices part the choices of stages into.
        options: schedules and numbers of stages.
        owner: the place of the plans of each option. Shape `(options,)`.
        held: whether there may be memory. Shape `(sets, options)`.
        bound: seconds that no plan beats. Shape `(sets, options)`.
    """

    plans: Mapping[int, Unscheduled]
    sets: Sequence[tuple[Choice, ...]]
    options: _Options
    owner: NDArray[Any]
    held: NDArray[numpy.bool_]
    bound: Array


@define(eq=False, repr=False)
class ScreenTables:
    """What screens of problems share that differ in constraints or memory alone.

    Attributes:
        instance: one of the problems.
        bounds: of the instance.
        scheduled: what schedules make of their plans, whatever these cost.
    """

    instance: Instance
    bounds: FirstBounds
    scheduled: dict[Hashable, Any] = field(factory=dict)
    _held: dict[Hashable, list[tuple[int, float]]] = field(factory=dict, init=False)
    _sums: dict[int, list[tuple[ParameterGroup, Array, Array, Array]]] = field(factory=dict, init=False)
    _state: dict[Hashable, float] = field(factory=dict, init=False)
    _alone: dict[Hashable, Array] = field(factory=dict, init=False)

    def needed(self, every: Sequence[Configuration], sets: Sequence[tuple[Choice, ...]]) -> tuple[Array, Array]:
        """Bytes of one copy of the state of all layers at least, and of one micro-batch.

        Of plans of one candidate. Shape `(sets, plans)` and `(sets, 1)`.
        """
        first = self._first(every[0].candidate, tuple(sets))
        known = {zero: self._state_with(every, zero) for zero in {zero for zero, _ in first}}
        return numpy.array([known[zero] for zero, _ in first]), numpy.array([[held] for _, held in first])

    def _first(self, index: int, sets: tuple[tuple[Choice, ...], ...]) -> list[tuple[int, float]]:
        """Of each set the highest ZeRO stage, and the bytes of one micro-batch of all layers at least."""
        key = (index, sets)
        if key not in self._held:
            candidate = self.instance.candidates[index]
            self._held[key] = [
                (
                    max(each.zero for each in choices),
                    float(numpy.min([candidate.mode(each.recompute).first for each in choices], axis=0).sum()),
                )
                for choices in sets
            ]
        return self._held[key]

    def _state_with(self, every: Sequence[Configuration], zero: int) -> Array:
        """Bytes of one copy of the state of all layers, with a ZeRO stage. Shape `(plans,)`."""
        index = every[0].candidate
        if index not in self._sums:
            state = self.instance.candidates[index].state
            self._sums[index] = [
                (each, each.weights.sum(), each.gradients.sum(), each.optimizer.sum()) for each in state
            ]
        shared = [(index, plans.replicas, zero, plans.zero_degree) for plans in every]
        if any(key not in self._state for key in shared):
            for key, plans in zip(shared, every, strict=True):
                one = sharded(self._sums[index], 1, replicas=plans.replicas, zero=zero, zero_degree=plans.zero_degree)
                self._state[key] = float(one[0])
        return numpy.array([self._state[key] for key in shared])

    def alone(self, candidate: int, micro_batches: int, slots: int, options: _Options) -> Array:
        """Seconds that no plan beats, from compute alone, by schedule and number of stages. Shape `(options,)`."""
        key = (candidate, micro_batches, slots)
        found = self._alone.get(key)
        if found is None:
            found = self.bounds.least(candidate, options.rows, options.count, NOTHING)
            if len(found) <= KEPT:
                self._alone[key] = found
        return found

    def filled(self, place: int, count: int, micro_batches: int) -> bool:
        """Whether each stage of a schedule has at some moment a micro-batch or more in flight in each of its chunks."""
        schedule = self.instance.space.schedules[place]
        key = ("filled", schedule.name, chunks_of(schedule), count, micro_batches)
        if key not in self.scheduled:
            self.scheduled[key] = fills(schedule, count, micro_batches)
        full: bool = self.scheduled[key]
        return full

    def options(self, counts: Counts, micro_batches: int, slots: int) -> _Options:
        """All schedules and numbers of stages; `counts` says the same of all these problems."""
        key = ("options", micro_batches, slots)
        if key not in self.scheduled:
            self.scheduled[key] = _Options.together(list(self._each(counts, micro_batches, slots)))
        options: _Options = self.scheduled[key]
        return options

    def _each(self, counts_of: Counts, micro_batches: int, slots: int) -> Iterator[_Options]:
        """The options of each schedule."""
        for place, schedule in enumerate(self.instance.space.schedules):
            counts = tuple(counts_of(schedule, micro_batches, slots))
            key = ("options of one", place, micro_batches, counts)
            if key not in self.scheduled:
                size = len(counts)
                self.scheduled[key] = _Options(
                    numpy.full(size, place),
                    numpy.array(counts, dtype=numpy.int64),
                    self.bounds.rows(schedule, micro_batches, counts),
                    numpy.full(size, copies_of(schedule)),
                )
            yield self.scheduled[key]


@define(eq=False, repr=False)
class Screen:
    """Which schedules and numbers of stages are worth a listing.

    All of them are judged at once: to list Llama 3 70B's on 128 H100 one by one takes 0.4 s for 34,000 of which some
    hundred are left.

    Attributes:
        instance: the problem.
        tables: of problems like this one.
        counts: numbers of stages a schedule may have.
        uniform: names of what all stages must choose alike.
        limit: step time, seconds, of a plan that is worth it.
        slow: how many compute for too long.
        large: how many of the others have no memory for the model.
    """

    instance: Instance
    tables: ScreenTables
    counts: Counts
    uniform: Collection[str]
    limit: float
    slow: int = 0
    large: int = 0
    _quick: dict[tuple[int, int], _Options | None] = field(factory=dict, init=False)
    _parted: dict[tuple[Choice, ...], list[tuple[Choice, ...]]] = field(factory=dict, init=False)

    def worth(self, every: Sequence[Unscheduled]) -> Iterator[tuple[Unscheduled, int, Worth]]:
        """Those of which there may be a plan that is worth it: with a schedule, by its place, and numbers of stages.

        Args:
            every: plans of one candidate, with all choices that their stages may have; their schedules are not read.
        """
        for looked_at in self._looked_at(every):
            held, bound = looked_at.held, looked_at.bound
            left = held & (bound <= self.limit)
            self.slow += int(held.sum()) - int(left.sum())
            if not left.any():
                continue
            options, sets = looked_at.options, looked_at.sets
            set_of = {choice: place for place, each in enumerate(sets) for choice in each}
            found: dict[tuple[int, int], list[Bounds]] = {}
            rows, places = numpy.nonzero(left)
            columns = (looked_at.owner[places], options.schedule[places], options.count[places], bound[left])
            for row, *decided, count, least in zip(rows.tolist(), *(each.tolist() for each in columns), strict=True):
                by_set = found.get((decided[0], decided[1]))
                if by_set is None:
                    by_set = found[decided[0], decided[1]] = [{} for _ in sets]
                by_set[row][count] = least
            for (owner, schedule), by_set in found.items():
                yield looked_at.plans[owner], schedule, Worth(by_set, set_of)

    def least(self, every: Sequence[Unscheduled]) -> float:
        """Seconds that no plan of one candidate beats that there may be memory for; infinite where there is none."""
        looked_at = self._looked_at(every)
        return min((float(each.bound.min(where=each.held, initial=numpy.inf)) for each in looked_at), default=numpy.inf)

    def _looked_at(self, every: Sequence[Unscheduled]) -> Iterator[_LookedAt]:
        """The options that compute leaves plans of one candidate, where there may be memory, with their bounds.

        Plans that differ in the order of ranks alone have the same options: they come in turns.
        """
        alike: dict[Hashable, list[Unscheduled]] = {}
        for each in every:
            alike.setdefault((each.plans.replicas, each.plans.zero_degree), []).append(each)
        left = []
        for group in alike.values():
            first = group[0].plans
            options = self.fast(first.candidate, first.replicas, first.micro_batches, group[0].slots)
            if options is not None:
                left.append((group, options))
        if not left:
            return
        sets = self._sets(left[0][0][0].plans.choices)
        owner = numpy.repeat(numpy.arange(len(left)), [len(options.count) for _, options in left])
        options = _Options.together([options for _, options in left])
        held = self._holding([group[0].plans for group, _ in left], owner, options, sets)
        some: NDArray[numpy.bool_] = numpy.logical_or.reduce(held)
        if not some.any():
            return
        held, owner, options = held[:, some], owner[some], options.some(some)
        candidate = left[0][0][0].plans.candidate
        for turn in range(len(left[0][0])):
            plans = {
                place: left[place][0][turn] for place in dict.fromkeys(owner.tolist()) if turn < len(left[place][0])
            }
            beside = numpy.full((2, len(sets), len(left)), numpy.inf)
            for place, each in plans.items():
                # What stages choose decides no more of the bound than what they take beside compute.
                beside[:, :, place] = self.tables.bounds.beside_each(each.plans, tuple(sets))
            more, sync = beside[:, :, owner]
            bound = self.tables.bounds.least(candidate, options.rows, options.count, (more, sync))
            yield _LookedAt(plans, sets, options, owner, held, bound)

    def _sets(self, choices: tuple[Choice, ...]) -> list[tuple[Choice, ...]]:
        """The choices of a stage, parted by what all stages must choose alike."""
        if choices not in self._parted:
            self._parted[choices] = [members[0][1] for members in uniform_sets({0: choices}, self.uniform)]
        return self._parted[choices]

    def fast(self, candidate: int, replicas: int, micro_batches: int, slots: int) -> _Options | None:
        """The options that compute leaves, whatever else is decided; None: it leaves none.

        They are the same for all rank orders and shard groups.
        """
        key = (candidate, replicas)
        if key not in self._quick:
            options = self.tables.options(self.counts, micro_batches, slots)
            fast = self.tables.alone(candidate, micro_batches, slots, options) <= self.limit
            left = int(fast.sum())
            self.slow += len(fast) - left
            self._quick[key] = options.some(fast) if left else None
        return self._quick[key]

    def _holding(
        self, every: Sequence[Configuration], owner: NDArray[Any], options: _Options, sets: Sequence[tuple[Choice, ...]]
    ) -> NDArray[numpy.bool_]:
        """Whether all stages together have room for all layers, each as lean as one of the choices allows.

        Of one micro-batch where each stage has, at some moment, one or more in flight in all its chunks. Shape
        `(sets, options)`.
        """
        cluster = self.instance.cluster
        room = cluster.memory * (1 + LIMIT_SLACK) - cluster.reserve
        held = numpy.ones((len(sets), len(options.count)), dtype=numpy.bool_)
        if room > 0 and held.size:
            state, first = (each * (1 - LIMIT_SLACK) for each in self.tables.needed(every, sets))
            state, total = state[:, owner] * options.copies, room * options.count
            held = state <= total
            full = held & (state + first > total)
            for place in numpy.flatnonzero(full.any(axis=0) & self._unsure[options.schedule]).tolist():
                micro_batches = every[owner[place]].micro_batches
                if not self.tables.filled(int(options.schedule[place]), int(options.count[place]), micro_batches):
                    full[:, place] = False
            held &= ~full
        self.large += int(held.size - held.sum())
        return held

    @cached_property
    def _unsure(self) -> NDArray[numpy.bool_]:
        """Of which schedules it takes a look whether stages hold a micro-batch in each chunk. Shape `(schedules,)`."""
        return numpy.array([not always_fills(each) for each in self.instance.space.schedules])
