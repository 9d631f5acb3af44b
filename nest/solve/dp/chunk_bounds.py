"""Lower bounds on stages of several chunks, for any contents and any number of units each."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from math import inf
from typing import NamedTuple

import numpy
from attrs import define, frozen

from nest.instance import Array, fullest_moments, least_held
from nest.instance.schedule import Moment
from nest.solve.dp.beside_compute import BesideCompute
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.lean_units import LeanUnits, UnitRows
from nest.solve.dp.nodes import PlanSearch
from nest.solve.dp.units import Splits
from nest.tolerances import LIMIT_SLACK

MOST_NUMBERS = 2**20  # Most numbers of units for which plans are examined together.


@frozen(eq=False, repr=False)
class LeastHeld:
    """Minimum number of micro-batches in flight for each chunk of a stage; compared by identity."""

    held: Array  # Micro-batches. Shape `(stages, 1)`.
    homes: tuple[int, int]  # Stages of the first and last chunk.


class Worthwhile(NamedTuple):
    """Numbers of stages of a configuration that may hold the whole model."""

    room: tuple[int, ...]  # Those with enough memory.
    time: tuple[int, ...]  # Those that also have time, at the speed of a plan below a limit.


NEITHER = Worthwhile((), ())


@define(eq=False, repr=False)
class ChunkBounds(PlanSearch):
    """Bounds on plans of several chunks per stage, whatever each chunk holds; `splits` gives the sizes of chunks."""

    splits: Splits

    def worthwhile(self, configurations: Iterable[Configuration], limit: float) -> dict[int, Worthwhile]:
        """Numbers of stages with time and memory for the whole model in plans below `limit`, by order.

        Each stage recomputes as little as fits, as if all chunks held the least of their stage. Checked for all plans
        before their search: Llama 3 70B on 128 H100 has room for few of them.
        """
        if len(self.splits.units) <= 2:
            return {each.order: Worthwhile(each.stage_counts, each.stage_counts) for each in configurations}
        alike: dict[Hashable, list[Configuration]] = {}
        for each in configurations:
            decided = (each.members, each.replicas, each.rank_order, each.zero_degree, each.copies)
            alike.setdefault(decided, []).append(each)
        self.first_bounds.learn(group[0] for group in alike.values())
        found: dict[int, Worthwhile] = {}
        for group in alike.values():
            self.meter.watch()
            found.update(self._worthwhile(group, limit))
        return found

    def _worthwhile(self, configurations: Sequence[Configuration], limit: float) -> Iterator[tuple[int, Worthwhile]]:
        """Same for configurations with equal units and levels."""
        units = self._lean_units(configurations[0])
        rooms: dict[LeastHeld, Array | None] = {}
        with_room: list[tuple[Configuration, int, LeastHeld, Array]] = []
        for each in configurations:
            for count in each.stage_counts:
                held = self._alike(each, count)
                if held not in rooms:
                    rooms[held] = self._room(units, held)
                if (room := rooms[held]) is not None:
                    with_room.append((each, count, held, room))
        possible: dict[int, Worthwhile] = {}
        if with_room:
            sharing = self.first_bounds.beside(configurations[0])
            in_time = self._in_time(units, sharing, with_room, limit)
            for (each, count, *_), enough in zip(with_room, in_time, strict=True):
                before = possible.get(each.order, NEITHER)
                time = (*before.time, count) if enough else before.time
                possible[each.order] = Worthwhile((*before.room, count), time)
        for each in configurations:
            yield each.order, possible.get(each.order, NEITHER)

    def _room(self, units: LeanUnits, least: LeastHeld) -> Array | None:
        """`LeanUnits.room` in the available memory; None: too little, however long stages take."""
        # Units of candidates whose speed alone differs, as on other links, need as much.
        known: dict[Hashable, Array | None] = self.once_in_room(self.scheduled, "with room", dict)
        key = *units.needed, least
        if key not in known:
            room = units.room(least.held, numpy.zeros_like(least.held), self.room * (1 + LIMIT_SLACK), least.homes)
            ever = numpy.full((1, len(least.held)), inf)
            known[key] = room if units.hold(room[None], ever, numpy.array([least.homes]))[0] else None
        return known[key]

    def _in_time(
        self,
        units: LeanUnits,
        sharing: BesideCompute,
        plans: Sequence[tuple[Configuration, int, LeastHeld, Array]],
        limit: float,
    ) -> list[bool]:
        """Check for each plan whether its stages have time for all units."""
        if limit == inf:
            return [True] * len(plans)
        total, found = self.first_bounds.total_of(plans[0][0].candidate), list[bool]()
        # Stages that a plan has fewer than others hold no units.
        stages = max(count for _, count, *_ in plans)
        most = max(MOST_NUMBERS // (units.seconds.size * stages), 1)
        for first in range(0, len(plans), most):
            some = plans[first : first + most]
            rooms, time = numpy.zeros((len(some), *units.seconds.shape, stages)), numpy.zeros((len(some), stages))
            for place, (configuration, count, _, room) in enumerate(some):
                weights = self.weights(configuration, count)
                longest = self.objective(configuration, count).time_limit(
                    limit, total(weights) + sharing.rest(weights, count)
                )
                rooms[place, ..., :count], time[place, :count] = room, longest
            found += units.hold(rooms, time, numpy.array([least.homes for *_, least, _ in some])).tolist()
        return found

    def _alike(self, configuration: Configuration, count: int) -> LeastHeld:
        """Share one object among numbers of chunks with the same least."""
        schedule, micro_batches = configuration.schedule, configuration.micro_batches

        def made() -> LeastHeld:
            held, homes = least_held(schedule, count, micro_batches), self._end_homes(configuration, count)
            return self.once_scheduled(("held", held, homes), lambda: LeastHeld(numpy.array(held)[:, None], homes))

        return self.once_scheduled(("least held", *configuration.scheduled, count), made)

    def room_for_units(self, configuration: Configuration, count: int, most: float) -> bool:
        """True if stages of less than `most` bytes may hold the whole model."""
        if most == inf or len(self.splits.units) <= 2:
            return True
        held, spread = self._held_apart(configuration, count)
        room = (most - self.instance.cluster.reserve) * (1 + LIMIT_SLACK)
        units, homes = self._lean_units(configuration), self._end_homes(configuration, count)
        in_room, ever = units.room(held, spread, room, homes), numpy.full((1, count), inf)
        return bool(units.hold(in_room[None], ever, numpy.array([homes]))[0])

    def _held_apart(self, configuration: Configuration, count: int) -> tuple[Array, Array]:
        """Least that each chunk of a stage holds by moment, and the excess of the others. Shape `(stages, moments)`.

        The first and last chunk may hold only an end, and are not among the others.
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

        return self.once_scheduled(("held apart", *configuration.scheduled, count), made)

    def _end_homes(self, configuration: Configuration, count: int) -> tuple[int, int]:
        homes = self.splits.homes(configuration.schedule, count)
        return homes[0], homes[-1]

    def _lean_units(self, configuration: Configuration) -> LeanUnits:
        def made() -> LeanUnits:
            used = configuration.candidate
            rows = self.once_shared(("unit rows", used), lambda: UnitRows.of(self.instance, self.splits, used))
            return rows.lean(self.first_bounds, configuration)

        return self.once_shared(("lean", *self._lean_key(configuration)), made)

    def _lean_key(self, configuration: Configuration) -> tuple[Hashable, ...]:
        decided = (configuration.choices, configuration.zero_degree, configuration.copies, configuration.replicas)
        placed = configuration.rank_order if any(each.zero >= 2 for each in configuration.choices) else ""
        return configuration.candidate, *decided, placed

    def moments(self, configuration: Configuration, count: int, stage: int) -> tuple[Moment, ...]:
        """Micro-batches in flight of a stage, from 0, at the possibly fullest moments."""
        schedule, micro_batches = configuration.schedule, configuration.micro_batches
        key = ("moments", *configuration.scheduled, count, stage)
        return self.once_scheduled(key, lambda: fullest_moments(schedule, stage + 1, count, micro_batches))
