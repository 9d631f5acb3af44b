"""Lower bounds of what stages of several chunks take: whatever they hold, and with any number of units each."""

from collections.abc import Hashable, Sequence
from itertools import accumulate, pairwise
from math import inf
from typing import Any

import numpy
from attrs import define, frozen
from numpy.typing import NDArray

from nest.instance import Array, fullest_moments, least_held
from nest.instance.schedule import Moment
from nest.solve.dp.beside_compute import FirstBounds
from nest.solve.dp.choices import Choice
from nest.solve.dp.chunk_stages import StagePrices, corners
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.nodes import PlanSearch
from nest.solve.dp.pairs import distinct
from nest.solve.dp.units import Splits, border_bytes, mask_of
from nest.tolerances import LIMIT_SLACK, SUM_ERROR


@frozen(eq=False, repr=False)
class LeanUnits:
    """What units between the first and the last of all take and need at least: those of each run, then any.

    Attributes:
        count: how many there are. Shape `(runs + 1,)`, as that of runs below.
        seconds: of one that computes, recomputes and communicates for ZeRO, per micro-batch. Shape `(choices, runs)`.
        first: bytes of its state and of one micro-batch. Shape `(choices, runs)`.
        more: bytes of each further one. Shape `(choices, runs)`.
        ends: the same three of the first unit of all and of the last. Shape `(3, choices, 2)`.
        peak: transient bytes, at least.
    """

    count: NDArray[numpy.int64]
    seconds: Array
    first: Array
    more: Array
    ends: Array
    peak: float

    def room(self, held: Array, spread: Array, room: float, homes: tuple[int, int]) -> Array:
        """How many units there is memory for, by choice, run and stage; infinite where none takes memory.

        Shape `(choices, runs, stages)`. They are in the chunk that holds the fewest micro-batches, but for one in each
        other.

        Args:
            held: micro-batches that every chunk of a stage holds at one moment, at least. Shape `(stages, moments)`.
            spread: micro-batches that the other chunks hold beyond these, together. Shape `(stages, moments)`.
            room: bytes of a device.
            homes: the stages that hold the first unit of all and the last.
        """
        needed = self.first[..., None, None] + (held - 1) * self.more[..., None, None]
        needed[:, -1] = needed[:, :-1].min(axis=1)
        left = room - self.peak - spread * self.more[:, -1, None, None]
        for home, first, more in zip(homes, self.ends[1].T, self.ends[2].T, strict=True):
            left[:, home] -= first[:, None] + (held[home] - 1) * more[:, None]
        left = numpy.maximum(left, 0.0)[:, None]
        with numpy.errstate(divide="ignore", invalid="ignore"):
            # Where a chunk holds less than one micro-batch, its inputs and the ends may count below zero.
            found: Array = numpy.where((needed > 0) & (held >= 1), left / needed, inf).min(axis=3)
        return found

    def hold(self, room: Array, time: Array, homes: tuple[int, int]) -> bool:
        """Whether stages that take so long at most, shape `(stages,)`, and have such `room` hold all units.

        Those of `homes` hold the first unit of all and the last besides.
        """
        seconds = self.seconds[..., None]
        left = numpy.repeat(time[None] * (1 + LIMIT_SLACK), len(self.seconds), axis=0)
        for home, end in zip(homes, self.ends[0].T, strict=True):
            left[:, home] -= end
        with numpy.errstate(divide="ignore", invalid="ignore"):
            fast = numpy.where(seconds > 0, numpy.maximum(left, 0.0)[:, None] / seconds, inf)
        each = numpy.floor(numpy.minimum(room, fast) * (1 + LIMIT_SLACK))
        return bool((each.max(axis=0).sum(axis=1) >= self.count).all())


@frozen(eq=False, repr=False)
class LeastHeld:
    """What every chunk of a stage holds at least, told apart by identity.

    Attributes:
        held: micro-batches. Shape `(stages, 1)`.
        homes: the stages that hold the first unit of all and the last.
    """

    held: Array
    homes: tuple[int, int]


@frozen(eq=False, repr=False)
class BeforePatterns:
    """What plans of so many stages take at least, whatever their chunks hold.

    Attributes:
        bound: step time, seconds.
        rest: seconds of it beside the slowest stage.
        received: of each stage, seconds of messages that do not hide. Shape `(stages,)`.
    """

    bound: float
    rest: float
    received: Array


@define(eq=False, repr=False)
class ChunkBounds(PlanSearch):
    """Bounds of plans of several chunks a stage, ahead of what each chunk holds.

    Attributes:
        splits: the sizes that chunks may have.
    """

    splits: Splits

    def before_patterns(self, configuration: Configuration, count: int) -> BeforePatterns:
        """Bounds from what plans take before any stage is looked at, and from messages between chunks."""
        weighed, received, added = self._messages(configuration, count)
        rest = self.least_rest(configuration, count) + weighed
        slowest = self.first_bounds.slowest(configuration, count) + added / count
        return BeforePatterns(self.weights(configuration, count).slowest * slowest + rest, rest, received)

    def _messages(self, configuration: Configuration, count: int) -> tuple[float, Array, float]:
        """Seconds of a step that messages between chunks take at least, and of a micro-batch, by stage and in all."""
        schedule, used, levels = configuration.schedule, configuration.candidate, self.slots(configuration).levels

        def made() -> tuple[float, Array, float]:
            weights, homes = self.weights(configuration, count), self.splits.homes(schedule, count)
            crossed = [each for each in pairwise(homes) if each[0] != each[1]]
            message = self._least_message(used, levels)
            ends = numpy.bincount([stage for each in crossed for stage in each], minlength=count)
            received = ends.astype(numpy.float64) * (0.0 if self.instance.space.hides(schedule.name) else message)
            return weights.of_messages(message, message) * len(crossed), received, float(received.sum())

        return self.once_shared(("messages", *configuration.scheduled, count, used, levels), made)

    def _least_message(self, candidate: int, levels: tuple[int, ...]) -> float:
        """Seconds that any border between two chunks takes at least, one way."""
        units = self.splits.units

        def made() -> Array:
            behind = list(accumulate((mask_of(unit) for unit in reversed(units)), initial=0))[1:-1]
            least: Array = border_bytes(self.instance, self.instance.candidates, behind).min(axis=1, initial=inf)
            return least

        size = float(self.once_shared("least crossing", made)[candidate])
        links = [self.instance.cluster.levels[level] for level in levels] if 0 < size < inf else []
        return min((link.latency + size / link.bandwidth for link in links), default=0.0)

    def holds_units(self, configuration: Configuration, count: int, limit: float, least: BeforePatterns) -> bool:
        """Whether stages as fast as a plan that beats `limit` needs have time and memory for the whole model.

        Each recomputes as little as it has room for. A look at few numbers, ahead of any pattern: without it Llama 3
        70B on 128 H100 takes several times as long.
        """
        if len(self.splits.units) <= 2:
            return True
        longest = self.objective(configuration, count).time_limit(limit, least.rest)
        room = self._units_in_memory(configuration, count)
        homes = self._end_homes(configuration, count)
        return self._lean_units(configuration).hold(room, longest - least.received, homes)

    def counts_with_room(self, configuration: Configuration) -> tuple[int, ...]:
        """Its numbers of stages with memory for the whole model if chunks held no more than what each of a stage holds.

        It is asked of all plans ahead of any time: Llama 3 70B on 128 H100 has room for few of them.
        """
        counts = configuration.stage_counts
        if len(self.splits.units) <= 2:
            return counts
        units = self._lean_units(configuration)
        key = ("least held", *configuration.scheduled, counts)
        every = self.once_scheduled(key, lambda: [self._alike(configuration, each) for each in counts])
        known_room: dict[tuple[LeanUnits, LeastHeld], bool] = self.once_in_room("with room", dict)
        with_room = []
        for count, alike in zip(counts, every, strict=True):
            known = known_room.get((units, alike))
            if known is None:
                held, homes = alike.held, alike.homes
                room = units.room(held, numpy.zeros_like(held), self.room * (1 + LIMIT_SLACK), homes)
                known = units.hold(room, numpy.full(count, inf), homes)
                known_room[units, alike] = known
            if known:
                with_room.append(count)
        return counts if len(with_room) == len(counts) else tuple(with_room)

    def _alike(self, configuration: Configuration, count: int) -> LeastHeld:
        """What every chunk of a stage holds at least: most numbers of chunks have that in common, and share it."""
        held = least_held(configuration.schedule, count, configuration.micro_batches)
        homes = self._end_homes(configuration, count)
        return self.once_scheduled(("held", held, homes), lambda: LeastHeld(numpy.array(held)[:, None], homes))

    def room_for_units(self, configuration: Configuration, count: int, most: float) -> bool:
        """Whether stages of less than `most` bytes may hold the whole model."""
        if most == inf or len(self.splits.units) <= 2:
            return True
        held, spread = self._held_apart(configuration, count)
        room = (most - self.instance.cluster.reserve) * (1 + LIMIT_SLACK)
        units, homes = self._lean_units(configuration), self._end_homes(configuration, count)
        return units.hold(units.room(held, spread, room, homes), numpy.full(count, inf), homes)

    def _units_in_memory(self, configuration: Configuration, count: int) -> Array:
        """As `LeanUnits.room`, in the memory that there is."""

        def made() -> Array:
            held, spread = self._held_apart(configuration, count)
            homes = self._end_homes(configuration, count)
            return self._lean_units(configuration).room(held, spread, self.room * (1 + LIMIT_SLACK), homes)

        return self.once(("room", *self._lean_key(configuration), *configuration.scheduled, count), made)

    def _held_apart(self, configuration: Configuration, count: int) -> tuple[Array, Array]:
        """What every chunk of a stage holds at each moment at least, and the others beyond that.

        Shape `(stages, moments)`. The first chunk and the last may hold an end alone, and are not among the others.
        """
        schedule = configuration.schedule

        def made() -> tuple[Array, Array]:
            every = [
                fullest_moments(schedule, stage, count, configuration.micro_batches) for stage in range(1, count + 1)
            ]
            homes, shape = self.splits.homes(schedule, count), (count, max(map(len, every)))
            held, spread = numpy.zeros(shape), numpy.zeros(shape)
            for stage, moments in enumerate(every):
                inner = slice(int(stage == homes[0]), -1 if stage == homes[-1] else None)
                rows = [(min(moment), sum(moment[inner]) - min(moment) * len(moment[inner])) for moment in moments]
                # Where a stage has fewer moments than another, its first one stands for those it lacks.
                held[stage], spread[stage] = zip(*(rows + rows[:1] * (shape[1] - len(rows))), strict=True)
            return held, spread

        key = ("held apart", *configuration.scheduled, count)
        return self.once_scheduled(key, made)

    def _end_homes(self, configuration: Configuration, count: int) -> tuple[int, int]:
        """The stages of the first chunk and of the last."""
        homes = self.splits.homes(configuration.schedule, count)
        return homes[0], homes[-1]

    def _lean_units(self, configuration: Configuration) -> LeanUnits:
        def shared() -> LeanUnits:
            key = ("lean", *self._lean_key(configuration))
            return self.once_shared(key, lambda: lean_units(self.first_bounds, self.splits, configuration))

        # A configuration is told by its place in the list, for less than by all that decides its units.
        return self.once(("lean", configuration.order), shared)

    def _lean_key(self, configuration: Configuration) -> tuple[Hashable, ...]:
        """What decides the lean units of a configuration."""
        decided = (configuration.choices, configuration.zero_degree, configuration.copies, configuration.replicas)
        placed = configuration.rank_order if any(each.zero >= 2 for each in configuration.choices) else ""
        return configuration.candidate, *decided, placed

    def moments(self, configuration: Configuration, count: int, stage: int) -> tuple[Moment, ...]:
        """Micro-batches in flight of a stage, from 0, at the moments that may be the fullest."""
        schedule, micro_batches = configuration.schedule, configuration.micro_batches
        key = ("moments", *configuration.scheduled, count, stage)
        return self.once_scheduled(key, lambda: corners(fullest_moments(schedule, stage + 1, count, micro_batches)))


def lean_units(bounds: FirstBounds, splits: Splits, configuration: Configuration) -> LeanUnits:
    """The lean units of a configuration's candidate, for each of its choices; `bounds` of its instance."""
    instance, units = bounds.instance, splits.units
    candidate, space = instance.candidates[configuration.candidate], instance.space
    inner = [[unit for unit in run.units if unit not in (units[0], units[-1])] for run in splits.runs]
    runs = [each for each in inner if each]
    shown = [*(each[0] for each in runs), units[0], units[-1]]

    def of_units(row: Array) -> Array:
        return numpy.array([row[list(each)].sum() for each in shown])

    groups = [
        (group, of_units(group.weights), of_units(group.gradients), of_units(group.optimizer))
        for group in candidate.state
    ]
    zeros = {each.zero for each in configuration.choices}
    state = {zero: configuration.state(groups, len(shown), zero) for zero in zeros}
    often = {zero: of_units(bounds.often(configuration, zero)) * (1 - SUM_ERROR) for zero in zeros}
    modes = {name: candidate.mode(name) for name in configuration.modes}
    alone = of_units(candidate.forward + candidate.backward)
    working = {name: alone + of_units(mode.extra) for name, mode in modes.items()}
    first = {name: of_units(mode.first) for name, mode in modes.items()}
    more = {name: of_units(mode.more) for name, mode in modes.items()}

    def seconds(choice: Choice) -> Array:
        """What hides under work shows at least a share, and what is longer than all work.

        Of the two one is taken for all units: both add up over those of a stage.
        """
        work, sent = working[choice.recompute], often[choice.zero]
        shown_seconds = work + space.often_exposed * sent
        return sent if space.hiding and sent.sum() > shown_seconds.sum() else shown_seconds

    figures = [
        (seconds(each), state[each.zero] + first[each.recompute], more[each.recompute])
        for each in configuration.choices
    ]
    every = numpy.array(figures).swapaxes(0, 1)
    between, ends = every[..., :-2], every[..., -2:]
    with_any = numpy.concatenate([between, between.min(axis=2, keepdims=True)], axis=2)
    return LeanUnits(
        count=numpy.array([*map(len, runs), len(units) - 2]),
        seconds=with_any[0],
        first=with_any[1],
        more=with_any[2],
        ends=ends,
        peak=min(float(mode.peak[list(each[0])].max()) for mode in modes.values() for each in runs),
    )


def chunks_of_stages(homes: Sequence[int]) -> list[list[int]]:
    """The chunks of each stage."""
    found: list[list[int]] = [[] for _ in range(max(homes) + 1)]
    for chunk, home in enumerate(homes):
        found[home].append(chunk)
    return found


def least_of(
    prices: StagePrices, fits: NDArray[numpy.bool_] | None, seconds: Array, worth: Array
) -> tuple[tuple[Array, Array], tuple[Array, Array], float]:
    """What a stage takes and synchronises at least, by point, and its least cost beyond what further units are worth.

    With either comes what it computes of these units.
    """
    further = numpy.array(prices.further, dtype=numpy.float64)
    where: Any = True if fits is None else fits
    time, cost, sync = (each.min(axis=0, where=where, initial=inf) for each in prices.at(None))
    return (time, further @ seconds), (sync, further @ seconds), float((cost - further @ worth).min())


def least_largest(stages: Sequence[tuple[Array, Array]], needed: float) -> float:
    """The least limit on all stages that leaves room for `needed`; infinite where none does.

    `stages` have for each point what it takes and what it adds.
    """
    every: dict[tuple[int, int], tuple[Array, Array, int]] = {}
    for values, added in stages:
        key = (id(values), id(added))
        every[key] = values, added, every.get(key, (values, added, 0))[2] + 1
    limits = distinct(numpy.concatenate([values for values, _, _ in every.values()]))
    limits = limits[numpy.isfinite(limits)]

    def room(limit: float) -> float:
        return sum(
            times * float(added.max(where=values <= limit, initial=-inf)) for values, added, times in every.values()
        )

    if not len(limits) or room(float(limits[-1])) < needed:
        return inf
    low, high = 0, len(limits) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if room(float(limits[middle])) >= needed else (middle + 1, high)
    return float(limits[low])
