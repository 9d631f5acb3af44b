"""Which plans bounds ahead of stages, and the memory of all stages together, leave before any is listed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy
from attrs import define, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Instance, ParameterGroup, Schedule, chunks_of, copies_of, fills
from nest.solve.dp.choices import Choice
from nest.solve.dp.rules import uniform_sets
from nest.solve.dp.zero import sharded
from nest.tolerances import LIMIT_SLACK

if TYPE_CHECKING:
    from nest.solve.dp.beside_compute import FirstBounds
    from nest.solve.dp.configurations import Configuration

Counts = Callable[[Schedule, int, int], Sequence[int]]
"""Numbers of stages of a schedule, for so many micro-batches and slots."""


@frozen(eq=False)
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


NOTHING = (0.0, 0.0)
"""Seconds beside compute that are known before stages choose."""

Bounds = dict[int, float]
"""Step times that no plan with so many stages beats, seconds, by number of stages."""


@frozen(eq=False)
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


@define(eq=False)
class ScreenTables:
    """What screens of problems share that differ in constraints or memory alone.

    Attributes:
        instance: one of the problems.
        bounds: of the instance.
    """

    instance: Instance
    bounds: FirstBounds
    _options: dict[tuple[int, int], _Options] = field(factory=dict, init=False)
    _parts: dict[Hashable, _Options] = field(factory=dict, init=False)
    _held: dict[Hashable, list[tuple[int, float]]] = field(factory=dict, init=False)
    _sums: dict[int, list[tuple[ParameterGroup, Array, Array, Array]]] = field(factory=dict, init=False)
    _state: dict[Hashable, float] = field(factory=dict, init=False)
    _needed: dict[Hashable, Array] = field(factory=dict, init=False)
    _alone: dict[Hashable, Array] = field(factory=dict, init=False)
    _full: dict[Hashable, bool] = field(factory=dict, init=False)

    def needed(self, plans: Configuration, sets: Sequence[tuple[Choice, ...]]) -> Array:
        """Bytes of one copy of the state, and of one micro-batch, of all layers at least. Shape `(sets, 2)`."""
        key = (plans.candidate, plans.replicas, plans.zero_degree, *sets)
        if key not in self._needed:
            first = self._first(plans.candidate, tuple(sets))
            self._needed[key] = numpy.array([(self._state_with(plans, zero), held) for zero, held in first])
        return self._needed[key]

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

    def _state_with(self, plans: Configuration, zero: int) -> float:
        """Bytes of one copy of the state of all layers, with a ZeRO stage."""
        index = plans.candidate
        if index not in self._sums:
            state = self.instance.candidates[index].state
            self._sums[index] = [
                (each, each.weights.sum(), each.gradients.sum(), each.optimizer.sum()) for each in state
            ]
        key = (index, plans.replicas, zero, plans.zero_degree)
        if key not in self._state:
            one = sharded(self._sums[index], 1, replicas=plans.replicas, zero=zero, zero_degree=plans.zero_degree)
            self._state[key] = float(one[0])
        return self._state[key]

    def alone(self, plans: Configuration, slots: int, options: _Options) -> Array:
        """Seconds that no plan beats, from compute alone, by schedule and number of stages. Shape `(options,)`."""
        key = (plans.candidate, plans.micro_batches, slots)
        if key not in self._alone:
            self._alone[key] = self.bounds.least(plans.candidate, options.rows, options.count, NOTHING)
        return self._alone[key]

    def filled(self, options: _Options, place: int, plans: Configuration) -> bool:
        """Whether each stage has at some moment one micro-batch or more in flight in each of its chunks."""
        schedule, count = self.instance.space.schedules[options.schedule[place]], int(options.count[place])
        key = (schedule.name, chunks_of(schedule), count, plans.micro_batches)
        if key not in self._full:
            self._full[key] = fills(schedule, count, plans.micro_batches)
        return self._full[key]

    def options(self, counts: Counts, micro_batches: int, slots: int) -> _Options:
        """All schedules and numbers of stages; `counts` says the same of all these problems."""
        key = (micro_batches, slots)
        if key not in self._options:
            every = list(self._each(counts, micro_batches, slots))
            names = ("schedule", "count", "rows", "copies")
            self._options[key] = _Options(
                *(numpy.concatenate([getattr(each, name) for each in every]) for name in names)
            )
        return self._options[key]

    def _each(self, counts_of: Counts, micro_batches: int, slots: int) -> Iterator[_Options]:
        """The options of each schedule."""
        for place, schedule in enumerate(self.instance.space.schedules):
            counts = tuple(counts_of(schedule, micro_batches, slots))
            key = (place, micro_batches, counts)
            if key not in self._parts:
                size = len(counts)
                self._parts[key] = _Options(
                    numpy.full(size, place),
                    numpy.array(counts, dtype=numpy.int64),
                    self.bounds.rows(schedule, micro_batches, counts),
                    numpy.full(size, copies_of(schedule)),
                )
            yield self._parts[key]


@define(eq=False)
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
    _quick: dict[tuple[int, int], _Options] = field(factory=dict, init=False)
    _parted: dict[tuple[Choice, ...], list[tuple[Choice, ...]]] = field(factory=dict, init=False)
    _held: dict[Hashable, NDArray[numpy.bool_]] = field(factory=dict, init=False)

    def worth(self, plans: Configuration, slots: int) -> list[tuple[int, Worth]]:
        """Schedules, by their places, of which there may be a plan that is worth it, and its numbers of stages.

        Args:
            plans: what else is decided, with all choices that its stages may have; its schedule is not read.
            slots: for device groups of a replica.
        """
        options = self._fast(plans, slots)
        if not len(options.count):
            return []
        sets = self._sets(plans.choices)
        held = self._holding(plans, options, sets)
        some = numpy.flatnonzero(held.any(axis=1)).tolist()
        if not some:
            return []
        bound = self._bound(plans, options, sets, some)
        left = held[some] & (bound <= self.limit)
        self.slow += int(held.sum()) - int(left.sum())
        by_schedule: dict[int, list[Bounds]] = {}
        for row, option in numpy.argwhere(left).tolist():
            schedule, count = int(options.schedule[option]), int(options.count[option])
            by_set = by_schedule.setdefault(schedule, [{} for _ in sets])
            by_set[some[row]][count] = float(bound[row, option])
        set_of = {choice: place for place, each in enumerate(sets) for choice in each}
        return [(schedule, Worth(by_set, set_of)) for schedule, by_set in by_schedule.items()]

    def least(self, plans: Configuration, slots: int) -> float:
        """Seconds that no plan beats that there may be memory for; infinite where there is none. Arguments as above."""
        options, sets = self._fast(plans, slots), self._sets(plans.choices)
        held = self._holding(plans, options, sets)
        if not held.any():
            return numpy.inf
        return float(self._bound(plans, options, sets, range(len(sets))).min(where=held, initial=numpy.inf))

    def _bound(
        self, plans: Configuration, options: _Options, sets: Sequence[tuple[Choice, ...]], some: Sequence[int]
    ) -> Array:
        """Seconds that no plan beats, by what its stages may choose from: some of the sets. Shape `(some, options)`."""
        # What stages choose decides no more of the bound than what they take beside compute.
        more, sync = (each[some, None] for each in self.tables.bounds.beside_each(plans, tuple(sets)))
        return self.tables.bounds.least(plans.candidate, options.rows, options.count, (more, sync))

    def _sets(self, choices: tuple[Choice, ...]) -> list[tuple[Choice, ...]]:
        """The choices of a stage, parted by what all stages must choose alike."""
        if choices not in self._parted:
            self._parted[choices] = [members[0][1] for members in uniform_sets({0: choices}, self.uniform)]
        return self._parted[choices]

    def _fast(self, plans: Configuration, slots: int) -> _Options:
        """The options that compute leaves, whatever else is decided; the same for both rank orders."""
        key = (plans.candidate, plans.replicas)
        if key not in self._quick:
            options = self.tables.options(self.counts, plans.micro_batches, slots)
            fast = self.tables.alone(plans, slots, options) <= self.limit
            self.slow += len(fast) - int(fast.sum())
            self._quick[key] = options.some(fast)
        return self._quick[key]

    def _holding(
        self, plans: Configuration, options: _Options, sets: Sequence[tuple[Choice, ...]]
    ) -> NDArray[numpy.bool_]:
        """Whether all stages together have room for all layers, each as lean as one of the choices allows.

        Of one micro-batch where each stage has, at some moment, one or more in flight in all its chunks. Shape
        `(sets, options)`; the same for both rank orders.
        """
        key = (plans.candidate, plans.replicas, plans.zero_degree)
        if key not in self._held:
            cluster = self.instance.cluster
            room = cluster.memory * (1 + LIMIT_SLACK) - cluster.reserve
            held = numpy.ones((len(sets), len(options.count)), dtype=numpy.bool_)
            if room > 0 and held.size:
                needed = self.tables.needed(plans, sets)[..., None] * (1 - LIMIT_SLACK)
                state, total = needed[:, 0] * options.copies, room * options.count
                held = state <= total
                full = held & (state + needed[:, 1] > total)
                places = numpy.flatnonzero(full.any(axis=0))
                full[:, [place for place in places.tolist() if not self.tables.filled(options, place, plans)]] = False
                held &= ~full
            self.large += int(held.size - held.sum())
            self._held[key] = held
        return self._held[key]
