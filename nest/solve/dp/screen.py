"""Screen: drop plans by early bounds and by the memory of all stages together, before any is listed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
from attrs import define, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Instance, Schedule, always_fills, chunks_of, copies_of, fills
from nest.reuse import once
from nest.solve.dp.choices import Choice, layer_modes
from nest.solve.dp.compute_bounds import apart
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
    """Schedules and numbers of stages for so many micro-batches and slots; arrays of shape `(options,)`."""

    schedule: NDArray[numpy.int64]  # Index.
    count: NDArray[numpy.int64]  # Number of stages.
    rows: Array  # Weights of the step time, from `ComputeBounds.rows`. Shape `(options, 6)`.
    copies: NDArray[numpy.int64]  # Of the parameters on a device.

    def some(self, chosen: NDArray[Any]) -> _Options:
        return _Options(self.schedule[chosen], self.count[chosen], self.rows[chosen], self.copies[chosen])

    @classmethod
    def together(cls, every: Sequence[_Options]) -> _Options:
        names = ("schedule", "count", "rows", "copies")
        return cls(*(numpy.concatenate([getattr(each, name) for each in every]) for name in names))


TOGETHER = 1 << 16  # Options screened together, roughly: with 12 sets of choices they take 6 MB an array.
NOTHING = (0.0, 0.0)  # Known seconds beside compute before stages choose.
Bounds = dict[int, float]  # Lower bound (s) by number of stages.
NO_BOUNDS: Bounds = {}  # Without any plan that may win.


class Worth(NamedTuple):
    """Numbers of stages of a schedule with plans that may win."""

    by_set: Mapping[int, Bounds]  # Bounds by place of the set of uniform choices.
    set_of: Mapping[Choice, int]  # Place of the set of each choice.

    @property
    def counts(self) -> tuple[int, ...]:
        """For any choices of stages, ascending."""
        return tuple(sorted(set().union(*self.by_set.values())))

    def of(self, choices: tuple[Choice, ...]) -> Bounds:
        """Numbers for plans whose stages have such choices, all of one set."""
        return self.by_set.get(self.set_of[choices[0]], NO_BOUNDS)


class Replicas(NamedTuple):
    """Plans with a candidate and a number of replicas."""

    candidate: int  # Index.
    replicas: int
    micro_batches: int  # Per replica.
    size: int  # Devices of a replica.
    slots: int  # For device groups of a replica.


class Screened(NamedTuple):
    """Remaining options of several plans; `owner` has the place of each option's plans, shape `(options,)`."""

    owner: NDArray[numpy.int64]
    options: _Options

    def of(self, plans: Sequence[int]) -> Screened:
        """Options of some plans, repeated as these are."""
        ends = self.owner.searchsorted(numpy.arange(max(plans, default=-1) + 2)).tolist()
        spans = [numpy.arange(ends[place], ends[place + 1]) for place in plans]
        owner = numpy.arange(len(plans)).repeat([len(each) for each in spans])
        return Screened(owner, self.options.some(numpy.concatenate(spans)))

    def some(self, chosen: NDArray[numpy.bool_]) -> Screened:
        """Select options."""
        return Screened(self.owner[chosen], self.options.some(chosen))


class _Bounded(NamedTuple):
    """Bounds of options with one rank order, by set of uniform choices; shape `(sets, options)`."""

    order: int  # Place of the rank order.
    screened: Screened
    held: NDArray[numpy.bool_]  # There may be enough memory.
    bound: Array  # Lower bound in seconds.


@define(eq=False, repr=False)
class ScreenTables:
    """Shared tables of screens for problems that differ only in constraints, memory or batch size."""

    instance: Instance  # One of the problems.
    bounds: FirstBounds
    scheduled: dict[Hashable, Any] = field(factory=dict)  # Cache of what depends on schedules but not on costs.
    _first: dict[tuple[int, tuple[str, ...]], float] = field(factory=dict, init=False)

    def needed(self, every: Sequence[Configuration], sets: Sequence[tuple[Choice, ...]]) -> tuple[Array, Array]:
        """Least bytes of one copy of all layers' state, and of one micro-batch. Shape `(sets, plans)` both."""
        zeros = [max(each.zero for each in choices) for choices in sets]
        replicas, degrees = numpy.array([(each.replicas, each.zero_degree or numpy.inf) for each in every]).T
        groups = self.bounds.groups(every)
        state = [(ranks, weights, gradients, optimizer) for weights, gradients, optimizer, *_, ranks in groups]
        known = {zero: sharded(state, len(every), replicas=replicas, zero=zero, zero_degree=degrees) for zero in zeros}
        modes = [layer_modes(choices) for choices in sets]
        used, place = apart([each.candidate for each in every])
        first = numpy.array([[self._micro_batch(index, names) for names in modes] for index in used])
        return numpy.array([known[zero] for zero in zeros]), first[place].T

    def _micro_batch(self, index: int, modes: tuple[str, ...]) -> float:
        """Least bytes of one micro-batch of all layers with some recompute modes."""
        key = (index, modes)
        if key not in self._first:
            candidate = self.instance.candidates[index]
            self._first[key] = float(numpy.minimum.reduce([candidate.mode(name).first for name in modes]).sum())
        return self._first[key]

    def filled(self, place: int, count: int, micro_batches: int) -> bool:
        """True if each chunk of each stage has at some moment a micro-batch in flight."""
        schedule = self.instance.space.schedules[place]
        key = ("filled", schedule.name, chunks_of(schedule), count, micro_batches)
        return once(self.scheduled, key, lambda: fills(schedule, count, micro_batches))

    def options(self, counts: Counts, micro_batches: int, slots: int) -> _Options:
        """All schedules and numbers of stages; `counts` is equal for all these problems."""
        key = ("options", micro_batches, slots)
        return once(self.scheduled, key, lambda: _Options.together(list(self._each(counts, micro_batches, slots))))

    def _each(self, counts_of: Counts, micro_batches: int, slots: int) -> Iterator[_Options]:
        for place, schedule in enumerate(self.instance.space.schedules):
            counts = tuple(counts_of(schedule, micro_batches, slots))
            key, size = ("rows", place, micro_batches, counts), len(counts)
            if key not in self.scheduled:
                self.scheduled[key] = self.bounds.rows(schedule, micro_batches, counts)
            places, stages = numpy.full(size, place), numpy.array(counts, dtype=numpy.int64)
            yield _Options(places, stages, self.scheduled[key], numpy.full(size, copies_of(schedule)))


@define(eq=False, repr=False, slots=False)
class Screen:
    """Screen for schedules and numbers of stages worth listing, evaluated as arrays.

    Listing Llama 3 70B's on 128 H100 one by one takes 0.4 s for 34,000, of which some hundred are left.
    """

    instance: Instance
    tables: ScreenTables  # Of similar problems.
    counts: Counts  # Numbers of stages of a schedule.
    uniform: Collection[str]  # Names of choices that all stages must share.
    limit: float  # Step time (s) of a plan worth listing.
    one_chunk: bool = False  # Skip schedules of several chunks.
    slow: int = 0  # Number with too much compute.
    large: int = 0  # Number of others without memory for the model.
    _known: dict[tuple[Choice, ...], list[tuple[Choice, ...]]] = field(factory=dict, init=False)

    def fast(self, every: Sequence[Replicas]) -> Iterator[Screened]:
        """Yield options that compute allows, in parts; equal for all rank orders and shard groups.

        Owners are places in `every`.
        """
        candidates, options, size = [each.candidate for each in every], list[_Options](), 0
        for place, each in enumerate(every):
            options.append(self.tables.options(self.counts, each.micro_batches, each.slots))
            size += len(options[-1].count)
            if size < TOGETHER and place + 1 < len(every):
                continue
            owner = numpy.arange(place + 1 - len(options), place + 1).repeat([len(each.count) for each in options])
            screened = Screened(owner, _Options.together(options))
            fast = self._bounds(candidates, screened, NOTHING) <= self.limit
            self.slow += len(fast) - int(fast.sum())
            if self.one_chunk:
                fast &= self._of_one_chunk[screened.options.schedule]
            if fast.any():
                yield screened.some(fast)
            options, size = [], 0

    def worth(
        self, every: Sequence[Sequence[Configuration]], screened: Screened
    ) -> Iterator[tuple[int, int, int, Worth]]:
        """Yield numbers of stages that may win, by places of the plans, rank order and schedule.

        Arguments as in `_bounded`.
        """
        sets = self._sets(every[0][0].choices)
        set_of = {choice: place for place, each in enumerate(sets) for choice in each}
        schedules = len(self.instance.space.schedules)
        for each in self._bounded(every, screened):
            left = each.held & (each.bound <= self.limit)
            self.slow += int(each.held.sum()) - int(left.sum())
            rows, places = numpy.nonzero(left)
            if not len(rows):
                continue
            owner, options = each.screened
            # Runs of one number of stages after the other, with each schedule of some plans, and each set.
            runs = (owner[places] * schedules + options.schedule[places]) * len(sets) + rows
            order = runs.argsort(kind="stable")
            runs, numbers = runs[order], options.count[places][order].tolist()
            seconds, first = each.bound[left][order].tolist(), numpy.flatnonzero(numpy.diff(runs, prepend=-1))
            columns = first.tolist(), [*first[1:].tolist(), len(runs)], runs[first].tolist()
            found: dict[int, dict[int, Bounds]] = {}
            for begin, end, run in zip(*columns, strict=True):
                plans, row = divmod(run, len(sets))
                found.setdefault(plans, {})[row] = dict(zip(numbers[begin:end], seconds[begin:end], strict=True))
            for plans, by_set in found.items():
                place, schedule = divmod(plans, schedules)
                yield place, each.order, schedule, Worth(by_set, set_of)

    def least(self, every: Sequence[Sequence[Configuration]], screened: Screened) -> Iterator[tuple[int, float]]:
        """Yield candidates that may fit memory with lower bounds (s), perhaps repeatedly.

        Arguments as in `_bounded`.
        """
        candidates = numpy.array([plans[0].candidate for plans in every])
        for each in self._bounded(every, screened):
            bound, used = numpy.where(each.held, each.bound, numpy.inf).min(axis=0), candidates[each.screened.owner]
            first = numpy.flatnonzero(numpy.diff(used, prepend=-1))
            yield from zip(used[first].tolist(), numpy.minimum.reduceat(bound, first).tolist(), strict=True)

    def _bounded(self, every: Sequence[Sequence[Configuration]], screened: Screened) -> Iterator[_Bounded]:
        """Yield options that may fit memory with their bounds, by rank order.

        `every` has plans that differ only in rank order, with equal choices of stages; their schedules are not read.
        `screened` are their options that compute allows.
        """
        sets, first = self._sets(every[0][0].choices), [plans[0] for plans in every]
        held = self._holding(first, screened, sets)
        some: NDArray[numpy.bool_] = numpy.logical_or.reduce(held)
        if not some.any():
            return
        held, screened = held[:, some], screened.some(some)
        candidates = [plans.candidate for plans in first]
        for order in range(len(every[0])):
            # What stages choose decides no more of the bound than what they take beside compute.
            more, sync = self.tables.bounds.beside_each([plans[order] for plans in every], sets)[..., screened.owner]
            yield _Bounded(order, screened, held, self._bounds(candidates, screened, (more, sync)))

    def _bounds(
        self, candidates: Sequence[int], screened: Screened, beside: tuple[Array | float, Array | float]
    ) -> Array:
        """Lower bounds (s) by option; `candidates` are those of the owners."""
        used, place = apart(candidates)
        rows, counts = screened.options.rows, screened.options.count
        return self.tables.bounds.least_each(list(used), place[screened.owner], rows, counts, beside)

    def _sets(self, choices: tuple[Choice, ...]) -> list[tuple[Choice, ...]]:
        if choices not in self._known:
            every = uniform_sets({0: choices}, self.uniform, by_count=False)
            self._known[choices] = [members[0][1] for members in every]
        return self._known[choices]

    def _holding(
        self, every: Sequence[Configuration], screened: Screened, sets: Sequence[tuple[Choice, ...]]
    ) -> NDArray[numpy.bool_]:
        """Mask of options whose stages together hold all layers at the leanest choice. Shape `(sets, options)`.

        One micro-batch counts if all chunks of each stage have at least one in flight at some moment.
        """
        cluster, (owner, options) = self.instance.cluster, screened
        room = cluster.memory * (1 + LIMIT_SLACK) - cluster.reserve
        held = numpy.ones((len(sets), len(owner)), dtype=numpy.bool_)
        if room > 0 and sets:
            state, first = (each[:, owner] * (1 - LIMIT_SLACK) for each in self.tables.needed(every, sets))
            state, total = state * options.copies, room * options.count
            held = state <= total
            full = held & (state + first > total)
            for place in numpy.flatnonzero(full.any(axis=0) & self._unsure[options.schedule]).tolist():
                micro_batches = every[owner[place]].micro_batches
                if not self.tables.filled(int(options.schedule[place]), int(options.count[place]), micro_batches):
                    full[:, place] = False
            held &= ~full
        self.large += int(held.size - held.sum())
        return held

    @property
    def _of_one_chunk(self) -> NDArray[numpy.bool_]:
        """Mask of schedules with one chunk per stage. Shape `(schedules,)`."""
        return numpy.array([chunks_of(each) == 1 for each in self.instance.space.schedules])

    @property
    def _unsure(self) -> NDArray[numpy.bool_]:
        """Mask of schedules that need a check whether stages hold a micro-batch in each chunk. Shape `(schedules,)`."""
        return numpy.array([not always_fills(each) for each in self.instance.space.schedules])
