"""Lower bounds of what stages of several chunks take: whatever they hold, and with any number of units each."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from math import inf
from typing import NamedTuple

import numpy
from attrs import define, field, frozen

from nest.instance import Array, Weights, fullest_moments, least_held
from nest.instance.schedule import Moment
from nest.solve.dp.chunk_memory import corners
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.lean_units import (
    LeanPlan,
    UnitBytes,
    UnitLayers,
    UnitRows,
    UnitSeconds,
    in_time,
    unit_seconds,
)
from nest.solve.dp.nodes import PlanSearch
from nest.solve.dp.units import Splits, border_bytes, mask_of
from nest.tolerances import LIMIT_SLACK


@frozen(eq=False, repr=False)
class LeastHeld:
    """What every chunk of a stage holds at least, told apart by identity.

    Attributes:
        held: micro-batches. Shape `(stages, 1)`.
        homes: the stages of the first chunk and of the last.
    """

    held: Array
    homes: tuple[int, int]


class Worthwhile(NamedTuple):
    """Numbers of stages of a configuration whose stages may hold the whole model.

    Attributes:
        room: those with memory for it.
        time: those of them that have time for it as well where they are as fast as a plan that beats a limit needs.
    """

    room: tuple[int, ...]
    time: tuple[int, ...]


NEITHER = Worthwhile((), ())


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
    _held: dict[tuple[int, int, int], LeastHeld] = field(factory=dict, init=False)

    def before_patterns(self, configuration: Configuration, count: int) -> BeforePatterns:
        """Bounds from what plans take before any stage is looked at, and from messages between chunks."""
        return self._before(configuration)(configuration, count)

    def _before(self, configuration: Configuration) -> Callable[[Configuration, int], BeforePatterns]:
        """As `before_patterns`, of configurations that schedules alone tell from this one."""
        used, beside = configuration.candidate, self.first_bounds.beside(configuration)
        message = self._least_message(used, self.slots(configuration).levels)
        alone, seconds = self.first_bounds.total_of(used), self.first_bounds.whole(used)[1]

        def before(each: Configuration, count: int) -> BeforePatterns:
            weights, crossed, shown = self._crossed(each, count)
            received = shown * message
            rest = alone(weights) + weights.of_messages(message, message) * crossed + beside.rest(weights, count)
            slowest = (seconds + float(received.sum()) + beside.seconds) / count
            return BeforePatterns(weights.slowest * slowest + rest, rest, received)

        return before

    def _crossed(self, configuration: Configuration, count: int) -> tuple[Weights, int, Array]:
        """Weights, how many borders between chunks lie between stages, and how many of each stage do not hide."""
        schedule = configuration.schedule

        def made() -> tuple[Weights, int, Array]:
            homes = self.splits.homes(schedule, count)
            crossed = [each for each in pairwise(homes) if each[0] != each[1]]
            ends = numpy.bincount([stage for each in crossed for stage in each], minlength=count)
            shown = ends.astype(numpy.float64) * (0.0 if self.instance.space.hides(schedule.name) else 1.0)
            return self.weights(configuration, count), len(crossed), shown

        return self.once_scheduled(("borders of stages", *configuration.scheduled, count), made)

    def _least_message(self, candidate: int, levels: tuple[int, ...]) -> float:
        """Seconds that any border between two chunks takes at least, one way."""
        units = self.splits.units

        def made() -> Array:
            behind = list(accumulate((mask_of(unit) for unit in reversed(units)), initial=0))[1:-1]
            least: Array = border_bytes(self.instance, self.instance.candidates, behind).min(axis=1, initial=inf)
            return least

        def seconds() -> float:
            size = float(self.once_shared("least crossing", made)[candidate])
            links = [self.instance.cluster.levels[level] for level in levels] if 0 < size < inf else []
            return min((link.latency + size / link.bandwidth for link in links), default=0.0)

        return self.once_shared(("least message", candidate, levels), seconds)

    def holds_units(self, configuration: Configuration, count: int, limit: float, least: BeforePatterns) -> bool:
        """Whether stages as fast as a plan that beats `limit` needs have time and memory for the whole model.

        Each recomputes as little as it has room for. A look at few numbers, ahead of any pattern: without it Llama 3
        70B on 128 H100 takes several times as long.
        """
        if len(self.splits.units) <= 2:
            return True
        longest = self.objective(configuration, count).time_limit(limit, least.rest) - least.received
        room, homes = self._units_in_memory(configuration, count), self._end_homes(configuration, count)
        plan = LeanPlan(self._unit_seconds(configuration), room, longest, homes)
        return in_time(self._unit_layers.count, [plan])[0]

    def worthwhile(self, configurations: Iterable[Configuration], limit: float) -> dict[int, Worthwhile]:
        """What `holds_units` says by order, of less: as if chunks held no more than what each of a stage holds.

        It is asked of all plans ahead of their search: Llama 3 70B on 128 H100 has room for few of them.
        """
        if len(self.splits.units) <= 2:
            return {each.order: Worthwhile(each.stage_counts, each.stage_counts) for each in configurations}
        alike: dict[Hashable, list[Configuration]] = {}
        copies: dict[int, int] = {}
        for each in configurations:
            schedule = id(each.schedule)
            if schedule not in copies:
                copies[schedule] = each.copies
            decided = (each.members, each.replicas, each.rank_order, each.zero_degree, copies[schedule])
            alike.setdefault(decided, []).append(each)
        found: dict[int, Worthwhile] = {}
        plans: list[tuple[Configuration, int, LeanPlan]] = []
        for group in alike.values():
            self.meter.watch()
            found.update((each.order, NEITHER) for each in group)
            plans += self._with_room(group, limit)
        fast = in_time(self._unit_layers.count, [plan for *_, plan in plans])
        for (each, count, _), enough in zip(plans, fast, strict=True):
            before = found[each.order]
            time = (*before.time, count) if enough else before.time
            found[each.order] = Worthwhile((*before.room, count), time)
        return found

    def _with_room(
        self, configurations: Sequence[Configuration], limit: float
    ) -> Iterator[tuple[Configuration, int, LeanPlan]]:
        """Numbers of stages with memory for all units, of configurations whose units are alike and lie alike."""
        first = configurations[0]
        needed = self._unit_bytes(first)
        known: dict[tuple[UnitBytes, LeastHeld], Array | None] = self.once_in_room(self.scheduled, "with room", dict)
        possible: list[tuple[Configuration, int, LeastHeld, Array]] = []
        for each in configurations:
            for count in each.stage_counts:
                least = self._alike(each, count)
                key = needed, least
                if key not in known:
                    held, some = least.held, self.room * (1 + LIMIT_SLACK)
                    room = needed.room(held, numpy.zeros_like(held), some, least.homes)
                    known[key] = room if needed.fit(room) else None
                if (found := known[key]) is not None:
                    possible.append((each, count, least, found))
        if possible:
            units, before = self._unit_seconds(first), self._before(first)
            for each, count, least, room in possible:
                bounds = before(each, count)
                longest = self.objective(each, count).time_limit(limit, bounds.rest)
                yield each, count, LeanPlan(units, room, longest - bounds.received, least.homes)

    def _alike(self, configuration: Configuration, count: int) -> LeastHeld:
        """Most numbers of chunks have it in common: they share one object."""
        schedule, micro_batches = configuration.schedule, configuration.micro_batches
        # A schedule is told by its place in memory, for less than by its name.
        key = id(schedule), micro_batches, count
        if key not in self._held:

            def made() -> LeastHeld:
                held, homes = least_held(schedule, count, micro_batches), self._end_homes(configuration, count)
                return self.once_scheduled(("held", held, homes), lambda: LeastHeld(numpy.array(held)[:, None], homes))

            self._held[key] = self.once_scheduled(("least held", *configuration.scheduled, count), made)
        return self._held[key]

    def room_for_units(self, configuration: Configuration, count: int, most: float) -> bool:
        """Whether stages of less than `most` bytes may hold the whole model."""
        if most == inf or len(self.splits.units) <= 2:
            return True
        held, spread = self._held_apart(configuration, count)
        room = (most - self.instance.cluster.reserve) * (1 + LIMIT_SLACK)
        units = self._unit_bytes(configuration)
        return units.fit(units.room(held, spread, room, self._end_homes(configuration, count)))

    def _units_in_memory(self, configuration: Configuration, count: int) -> Array:
        """As `UnitBytes.room`, in the memory that there is."""
        units = self._unit_bytes(configuration)

        def made() -> Array:
            held, spread = self._held_apart(configuration, count)
            homes = self._end_homes(configuration, count)
            return units.room(held, spread, self.room * (1 + LIMIT_SLACK), homes)

        return self.once(("room", units, *configuration.scheduled, count), made)

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

    @property
    def _unit_layers(self) -> UnitLayers:
        return self.once_scheduled("unit layers", lambda: UnitLayers.of(self.splits))

    def _unit_bytes(self, configuration: Configuration) -> UnitBytes:
        """Of candidates whose speed alone differs, as on other links, the same."""
        used = configuration.candidate

        def rows() -> UnitRows:
            found = UnitRows.of(self._unit_layers, self.instance.candidates[used])
            return self.once_scheduled(("unit rows", found.decided), lambda: found)

        shared = self.once_shared(("unit rows", used), rows)
        decided = (configuration.choices, configuration.replicas, configuration.zero_degree, configuration.copies)
        return self.once_scheduled(("unit bytes", shared, *decided), lambda: shared.of_configuration(configuration))

    def _unit_seconds(self, configuration: Configuration) -> UnitSeconds:
        choices, degrees = configuration.choices, (configuration.replicas, configuration.zero_degree)
        placed = configuration.rank_order if any(each.zero >= 2 for each in choices) else ""
        return self.once_shared(
            ("unit seconds", configuration.candidate, choices, *degrees, placed),
            lambda: unit_seconds(self._unit_layers, self.first_bounds, configuration),
        )

    def moments(self, configuration: Configuration, count: int, stage: int) -> tuple[Moment, ...]:
        """Micro-batches in flight of a stage, from 0, at the moments that may be the fullest."""
        schedule, micro_batches = configuration.schedule, configuration.micro_batches
        key = ("moments", *configuration.scheduled, count, stage)
        return self.once_scheduled(key, lambda: corners(fullest_moments(schedule, stage + 1, count, micro_batches)))
