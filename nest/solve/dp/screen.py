"""Which plans bounds ahead of stages, and the memory of all stages together, leave before any is listed."""

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

    def some(self, chosen: NDArray[Any]) -> _Options:
        """Those that are chosen, by place or by whether they are."""
        return _Options(self.schedule[chosen], self.count[chosen], self.rows[chosen], self.copies[chosen])

    @classmethod
    def together(cls, every: Sequence[_Options]) -> _Options:
        """The options of each, one after the other."""
        names = ("schedule", "count", "rows", "copies")
        return cls(*(numpy.concatenate([getattr(each, name) for each in every]) for name in names))


TOGETHER = 1 << 16
"""Options that are screened together, or few more: with 12 sets of choices they take 6 MB an array."""

NOTHING = (0.0, 0.0)
"""Seconds beside compute that are known before stages choose."""

Bounds = dict[int, float]
"""Step times that no plan with so many stages beats, seconds, by number of stages."""

NO_BOUNDS: Bounds = {}
"""Where there is no plan that is worth it."""


class Worth(NamedTuple):
    """Numbers of stages of a schedule with which there may be a plan that is worth it.

    Attributes:
        by_set: with those of the sets that uniform choices part them into, by place, with which there may be one.
        set_of: the place of the set of a choice.
    """

    by_set: Mapping[int, Bounds]
    set_of: Mapping[Choice, int]

    @property
    def counts(self) -> tuple[int, ...]:
        """With any choices of stages, ascending."""
        return tuple(sorted(set().union(*self.by_set.values())))

    def of(self, choices: tuple[Choice, ...]) -> Bounds:
        """Those with which there may be a plan whose stages have such choices, all of one set."""
        return self.by_set.get(self.set_of[choices[0]], NO_BOUNDS)


class Replicas(NamedTuple):
    """Plans with a candidate and a number of replicas.

    Attributes:
        candidate: index of it.
        replicas: how many.
        micro_batches: of each.
        size: devices of a replica.
        slots: for device groups of a replica.
    """

    candidate: int
    replicas: int
    micro_batches: int
    size: int
    slots: int


class Screened(NamedTuple):
    """Options of several plans that are left, one after the other.

    Attributes:
        owner: the place of the plans of each option. Shape `(options,)`.
        options: schedules and numbers of stages.
    """

    owner: NDArray[numpy.int64]
    options: _Options

    def of(self, plans: Sequence[int]) -> Screened:
        """Those of some plans, each as often as it is met."""
        ends = self.owner.searchsorted(numpy.arange(max(plans, default=-1) + 2)).tolist()
        spans = [numpy.arange(ends[place], ends[place + 1]) for place in plans]
        owner = numpy.arange(len(plans)).repeat([len(each) for each in spans])
        return Screened(owner, self.options.some(numpy.concatenate(spans)))

    def some(self, chosen: NDArray[numpy.bool_]) -> Screened:
        """Those that are chosen."""
        return Screened(self.owner[chosen], self.options.some(chosen))


class _Bounded(NamedTuple):
    """Bounds of options of plans with one order of ranks, by the sets that uniform choices part choices into.

    Attributes:
        order: the place of the order of ranks.
        screened: the options.
        held: whether there may be memory. Shape `(sets, options)`.
        bound: seconds that no plan beats. Shape `(sets, options)`.
    """

    order: int
    screened: Screened
    held: NDArray[numpy.bool_]
    bound: Array


@define(eq=False, repr=False)
class ScreenTables:
    """What screens of problems share that differ in constraints, memory or the size of the batch alone.

    Attributes:
        instance: one of the problems.
        bounds: of the instance.
        scheduled: what schedules make of their plans, whatever these cost.
    """

    instance: Instance
    bounds: FirstBounds
    scheduled: dict[Hashable, Any] = field(factory=dict)
    _first: dict[tuple[int, tuple[str, ...]], float] = field(factory=dict, init=False)

    def needed(self, every: Sequence[Configuration], sets: Sequence[tuple[Choice, ...]]) -> tuple[Array, Array]:
        """Bytes of one copy of the state of all layers at least, and of one micro-batch.

        Shape `(sets, plans)` both.
        """
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
        """Bytes of one micro-batch of all layers at least, with some recompute modes."""
        key = (index, modes)
        if key not in self._first:
            candidate = self.instance.candidates[index]
            self._first[key] = float(numpy.minimum.reduce([candidate.mode(name).first for name in modes]).sum())
        return self._first[key]

    def filled(self, place: int, count: int, micro_batches: int) -> bool:
        """Whether each stage of a schedule has at some moment a micro-batch or more in flight in each of its chunks."""
        schedule = self.instance.space.schedules[place]
        key = ("filled", schedule.name, chunks_of(schedule), count, micro_batches)
        return once(self.scheduled, key, lambda: fills(schedule, count, micro_batches))

    def options(self, counts: Counts, micro_batches: int, slots: int) -> _Options:
        """All schedules and numbers of stages; `counts` says the same of all these problems."""
        key = ("options", micro_batches, slots)
        return once(self.scheduled, key, lambda: _Options.together(list(self._each(counts, micro_batches, slots))))

    def _each(self, counts_of: Counts, micro_batches: int, slots: int) -> Iterator[_Options]:
        """The options of each schedule."""
        for place, schedule in enumerate(self.instance.space.schedules):
            counts = tuple(counts_of(schedule, micro_batches, slots))
            key, size = ("rows", place, micro_batches, counts), len(counts)
            if key not in self.scheduled:
                self.scheduled[key] = self.bounds.rows(schedule, micro_batches, counts)
            places, stages = numpy.full(size, place), numpy.array(counts, dtype=numpy.int64)
            yield _Options(places, stages, self.scheduled[key], numpy.full(size, copies_of(schedule)))


@define(eq=False, repr=False, slots=False)
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
        one_chunk: whether schedules of several chunks a stage are left out.
        slow: how many compute for too long.
        large: how many of the others have no memory for the model.
    """

    instance: Instance
    tables: ScreenTables
    counts: Counts
    uniform: Collection[str]
    limit: float
    one_chunk: bool = False
    slow: int = 0
    large: int = 0
    _known: dict[tuple[Choice, ...], list[tuple[Choice, ...]]] = field(factory=dict, init=False)

    def fast(self, every: Sequence[Replicas]) -> Iterator[Screened]:
        """The options that compute leaves, whatever else is decided, in parts.

        They are the same for all orders of ranks and shard groups. What owns them has its place in `every`.
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
        """Those of which there may be a plan that is worth it, with numbers of stages.

        By the places of the plans, of the order of ranks and of a schedule. Arguments are as for `_bounded`.
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
        """Candidates with seconds that no plan beats that there may be memory for, perhaps several times.

        Arguments are as for `_bounded`.
        """
        candidates = numpy.array([plans[0].candidate for plans in every])
        for each in self._bounded(every, screened):
            bound, used = numpy.where(each.held, each.bound, numpy.inf).min(axis=0), candidates[each.screened.owner]
            first = numpy.flatnonzero(numpy.diff(used, prepend=-1))
            yield from zip(used[first].tolist(), numpy.minimum.reduceat(bound, first).tolist(), strict=True)

    def _bounded(self, every: Sequence[Sequence[Configuration]], screened: Screened) -> Iterator[_Bounded]:
        """The options of plans, where there may be memory, with their bounds, for one order of ranks after the other.

        Args:
            every: plans that differ in the order of ranks alone, each, with all choices that their stages may have:
                the same for all. Their schedules are not read.
            screened: their options that compute leaves.
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
        """Seconds that no plan beats, by option; `candidates` are those of the plans that own them."""
        used, place = apart(candidates)
        rows, counts = screened.options.rows, screened.options.count
        return self.tables.bounds.least_each(list(used), place[screened.owner], rows, counts, beside)

    def _sets(self, choices: tuple[Choice, ...]) -> list[tuple[Choice, ...]]:
        """The choices of a stage, parted by what all stages must choose alike."""
        if choices not in self._known:
            every = uniform_sets({0: choices}, self.uniform, by_count=False)
            self._known[choices] = [members[0][1] for members in every]
        return self._known[choices]

    def _holding(
        self, every: Sequence[Configuration], screened: Screened, sets: Sequence[tuple[Choice, ...]]
    ) -> NDArray[numpy.bool_]:
        """Whether all stages together have room for all layers, each as lean as one of the choices allows.

        Of one micro-batch where each stage has, at some moment, one or more in flight in all its chunks. Shape
        `(sets, options)`.
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
        """Which schedules have one chunk a stage. Shape `(schedules,)`."""
        return numpy.array([chunks_of(each) == 1 for each in self.instance.space.schedules])

    @property
    def _unsure(self) -> NDArray[numpy.bool_]:
        """Of which schedules it takes a look whether stages hold a micro-batch in each chunk. Shape `(schedules,)`."""
        return numpy.array([not always_fills(each) for each in self.instance.space.schedules])
