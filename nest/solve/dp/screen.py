"""Which plans bounds ahead of stages, and the memory of all stages together, leave before any is listed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

import numpy
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Instance, ParameterGroup, Schedule, chunks_of, copies_of, fullest_moments
from nest.solve.dp.choices import Choice
from nest.solve.dp.rules import uniform_sets
from nest.solve.dp.state import sharded
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


@frozen(eq=False)
class _Bytes:
    """Bytes of all layers of a candidate.

    Attributes:
        state: its parameter groups, each with its weights, gradients and optimizer.
        first: of one micro-batch in flight, by sets of recompute modes, each layer in its leanest.
    """

    state: Sequence[tuple[ParameterGroup, Array, Array, Array]]
    first: dict[tuple[str, ...], float] = field(factory=dict)


@frozen(eq=False)
class Worth:
    """Numbers of stages with which there may be a plan that is worth it.

    Attributes:
        counts: with any choices of stages, ascending.
        by_set: with each of the sets that uniform choices part them into.
        set_of: the place of the set of a choice.
    """

    counts: Sequence[int]
    by_set: Sequence[Sequence[int]]
    set_of: Mapping[Choice, int]

    def among(self, choices: tuple[Choice, ...], counts: tuple[int, ...]) -> tuple[int, ...]:
        """Those of `counts` with which there may be a plan whose stages have such choices, all of one set."""
        left = self.by_set[self.set_of[choices[0]]]
        return tuple(count for count in counts if count in left)


NONE = Worth((), (), {})
"""No number of stages."""


@define(eq=False)
class Screen:
    """Which schedules and numbers of stages are worth a listing.

    All of them are judged at once: to list Llama 3 70B's on 128 H100 one by one takes 0.4 s for 34,000 of which some
    hundred are left.

    Attributes:
        instance: the problem.
        bounds: of the instance.
        counts: numbers of stages a schedule may have.
        uniform: names of what all stages must choose alike.
        limit: step time, seconds, of a plan that is worth it.
        slow: how many compute for too long.
        large: how many of the others have no memory for the model.
    """

    instance: Instance
    bounds: FirstBounds
    counts: Counts
    uniform: Collection[str]
    limit: float
    slow: int = 0
    large: int = 0
    _options: dict[tuple[int, int], _Options] = field(factory=dict)
    _parts: dict[Hashable, _Options] = field(factory=dict)
    _quick: dict[tuple[int, int], _Options] = field(factory=dict)
    _known: dict[Hashable, Sequence[Worth]] = field(factory=dict)
    _parted: dict[tuple[Choice, ...], list[tuple[Choice, ...]]] = field(factory=dict)
    _bytes: dict[int, _Bytes] = field(factory=dict)
    _state: dict[Hashable, float] = field(factory=dict)
    _held: dict[Hashable, NDArray[numpy.bool_]] = field(factory=dict)
    _full: dict[Hashable, bool] = field(factory=dict)

    def worth(self, schedule: int, plans: Configuration, slots: int) -> Worth:
        """The numbers of stages of a schedule, by its place, with which there may be a plan.

        Args:
            schedule: its place among those of the problem.
            plans: what else is decided, with all choices that its stages may have.
            slots: for device groups of a replica.
        """
        key = (plans.candidate, plans.rank_order, plans.replicas, plans.zero_degree)
        if key not in self._known:
            self._known[key] = self._worth(plans, self._fast(plans, slots))
        return self._known[key][schedule]

    def _worth(self, plans: Configuration, options: _Options) -> Sequence[Worth]:
        """As `worth`, of each schedule."""
        places, sets = range(len(self.instance.space.schedules)), self._sets(plans.choices)
        rows = self._holding(plans, options, sets)
        if not rows.any():
            return [NONE for _ in places]
        nothing: list[tuple[int, ...]] = [() for _ in places]
        every = [
            self._left(evolve(plans, members=((plans.candidate, each),)), options, row) if row.any() else nothing
            for each, row in zip(sets, rows, strict=True)
        ]
        set_of = {choice: place for place, each in enumerate(sets) for choice in each}
        parts = ([each[place] for each in every] for place in places)
        return [Worth(tuple(sorted(set().union(*counts))), counts, set_of) for counts in parts]

    def _sets(self, choices: tuple[Choice, ...]) -> list[tuple[Choice, ...]]:
        """The choices of a stage, parted by what all stages must choose alike."""
        if choices not in self._parted:
            self._parted[choices] = [members[0][1] for members in uniform_sets({0: choices}, self.uniform)]
        return self._parted[choices]

    def _fast(self, plans: Configuration, slots: int) -> _Options:
        """The options that compute leaves, whatever else is decided; the same for both rank orders."""
        key = (plans.candidate, plans.replicas)
        if key not in self._quick:
            options = self._of(plans.micro_batches, slots)
            fast = self.bounds.least(plans.candidate, options.rows, options.count) <= self.limit
            self.slow += len(fast) - int(fast.sum())
            self._quick[key] = options.some(fast)
        return self._quick[key]

    def _left(self, plans: Configuration, options: _Options, held: NDArray[numpy.bool_]) -> list[tuple[int, ...]]:
        """As `worth`, of each schedule, of plans whose stages have some of the choices and of the options held."""
        beside = self.bounds.beside(plans)
        bound = self.bounds.least(plans.candidate, options.rows, options.count, (beside.seconds, beside.sync))
        left = held & (bound <= self.limit)
        self.slow += int(held.sum()) - int(left.sum())
        found: list[list[int]] = [[] for _ in self.instance.space.schedules]
        for schedule, count in zip(options.schedule[left].tolist(), options.count[left].tolist(), strict=True):
            found[schedule].append(count)
        return [tuple(counts) for counts in found]

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
                needed = numpy.array([self._needed(plans, each) for each in sets])[..., None] * (1 - LIMIT_SLACK)
                state, total = needed[:, 0] * options.copies, room * options.count
                held = state <= total
                full = held & (state + needed[:, 1] > total)
                places = numpy.flatnonzero(full.any(axis=0))
                full[:, [place for place in places.tolist() if not self._filled(options, place, plans)]] = False
                held &= ~full
            self.large += int(held.size - held.sum())
            self._held[key] = held
        return self._held[key]

    def _needed(self, plans: Configuration, choices: tuple[Choice, ...]) -> tuple[float, float]:
        """Bytes of one copy of the state, and of one micro-batch, of all layers at least."""
        index, candidate = plans.candidate, self.instance.candidates[plans.candidate]
        modes, zero = tuple(dict.fromkeys(each.recompute for each in choices)), max(each.zero for each in choices)
        if index not in self._bytes:
            sums = [(each, each.weights.sum(), each.gradients.sum(), each.optimizer.sum()) for each in candidate.state]
            self._bytes[index] = _Bytes(sums)
        known = self._bytes[index]
        if modes not in known.first:
            known.first[modes] = float(numpy.min([candidate.mode(name).first for name in modes], axis=0).sum())
        key = (index, plans.replicas, zero, plans.zero_degree)
        if key not in self._state:
            state = sharded(known.state, 1, replicas=plans.replicas, zero=zero, zero_degree=plans.zero_degree)
            self._state[key] = float(state[0])
        return self._state[key], known.first[modes]

    def _filled(self, options: _Options, place: int, plans: Configuration) -> bool:
        """Whether each stage has at some moment one micro-batch or more in flight in each of its chunks."""
        schedule, count = self.instance.space.schedules[options.schedule[place]], int(options.count[place])
        micro_batches = plans.micro_batches
        if chunks_of(schedule) == 1:
            return True
        key = (schedule.name, chunks_of(schedule), count, micro_batches)
        if key not in self._full:
            every = (fullest_moments(schedule, stage, count, micro_batches) for stage in range(1, count + 1))
            self._full[key] = all(max(map(min, moments), default=-inf) >= 1 for moments in every)
        return self._full[key]

    def _of(self, micro_batches: int, slots: int) -> _Options:
        key = (micro_batches, slots)
        if key not in self._options:
            every = list(self._each(micro_batches, slots))
            names = ("schedule", "count", "rows", "copies")
            self._options[key] = _Options(
                *(numpy.concatenate([getattr(each, name) for each in every]) for name in names)
            )
        return self._options[key]

    def _each(self, micro_batches: int, slots: int) -> Iterator[_Options]:
        """The options of each schedule."""
        for place, schedule in enumerate(self.instance.space.schedules):
            counts = tuple(self.counts(schedule, micro_batches, slots))
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
