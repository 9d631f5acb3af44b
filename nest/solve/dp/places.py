"""Possible places of the stages of a plan: a graph with a layer of places for each stage.

Costs do not change it. Places with equal surroundings share entries of a recurrence.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise, product
from typing import Any, Protocol

import numpy
from attrs import frozen

from nest.solve.dp.configurations import Offsets, State, Tally

NONE = -1  # Row of a missing link, or slot of a missing block.
Counts = tuple[int, ...]  # Stages in each pool.
Place = Any  # Place of a stage, with what it leaves to those behind. Places are sortable; ties go to the first.

Step = tuple[int, int, Sequence[Place]]
"""Rows of a boundary for the stage in front and the one behind, and possible places of the latter."""

Way = tuple[int, tuple[int, ...]]
"""Row of the boundary behind a stage, and numbers of the next stage's possible surroundings."""

Surroundings = tuple[int, int, tuple[Way, ...]]
"""Possible blocks, row of the boundary in front (0 for the first stage), and ways behind."""

NOTHING: tuple[Way, ...] = ((0, (0,)),)  # Behind the last stage.

ALONE: tuple[Surroundings, ...] = ((0, 0, NOTHING),)
"""Surroundings of stages with one slot each and boundaries of one level."""


class Places(Protocol):
    """Possible places of stages, counted from the last."""

    def first(self) -> Iterable[Place]:
        """Places of the first stage."""

    def following(self, place: Place, stage: int) -> Iterable[Step]:
        """Places of the stage behind `stage`; hashable sequences."""

    def last(self, place: Place) -> bool:
        """True if the last stage may be there."""

    def at(self, place: Place) -> tuple[int, int]:
        """Possible blocks there, and their slot or offset."""


class Graph:
    """Graph of possible places.

    Attributes:
        places: successors of each.
        surroundings: of each stage, counted from the last, each once.
        numbers: of each stage's surroundings, by place and row of the boundary in front, if the last stage is
            reachable.
    """

    def __init__(self, places: Places, stages: int) -> None:
        self.places, self.stages = places, stages
        self.surroundings: list[tuple[Surroundings, ...]] = []
        self.numbers: list[dict[tuple[Place, int], int]] = []
        fronts, ahead = [{(place, 0) for place in places.first()}], list[dict[Place, tuple[Step, ...]]]()
        for stage in range(stages, 1, -1):
            ahead.append({place: tuple(places.following(place, stage)) for place in {place for place, _ in fronts[-1]}})
            # Places have most of their followers in common.
            steps = {step for every in ahead[-1].values() for step in every}
            fronts.append({(place, row) for _, row, some in steps for place in some})
        for stage, front in enumerate(reversed(fronts), start=1):
            self._number(stage, sorted(front), ahead[-stage + 1] if stage > 1 else {})

    def _number(self, stage: int, front: Sequence[tuple[Place, int]], ahead: dict[Place, tuple[Step, ...]]) -> None:
        """Add surroundings of one more stage in front, with these places and rows of boundaries."""
        every, numbers = dict[Surroundings, int](), dict[tuple[Place, int], int]()
        known, ways = dict[tuple[int, Sequence[Place]], frozenset[int]](), dict[Place, tuple[Way, ...]]()
        for place, row in front:
            if place not in ways:
                end = NOTHING if self.places.last(place) else ()
                ways[place] = end if stage == 1 else self._ways(ahead[place], stage, known)
            if ways[place]:
                surroundings = self.places.at(place)[0], row, ways[place]
                numbers[place, row] = every.setdefault(surroundings, len(every))
        self.surroundings.append(tuple(every))
        self.numbers.append(numbers)

    def _ways(
        self, steps: Iterable[Step], stage: int, known: dict[tuple[int, Sequence[Place]], frozenset[int]]
    ) -> tuple[Way, ...]:
        behind, found = self.numbers[stage - 2], dict[int, frozenset[int]]()
        for out, row, some in steps:
            if (row, some) not in known:
                known[row, some] = frozenset(behind[each, row] for each in some if (each, row) in behind)
            found[out] = found.get(out, frozenset()) | known[row, some]
        return tuple((out, tuple(sorted(numbers))) for out, numbers in sorted(found.items()) if numbers)

    def first(self) -> list[tuple[Place, int]]:
        """Possible places of the first stage, in order, with the number of their surroundings."""
        return [(place, number) for (place, _), number in self.numbers[-1].items()]

    def following(self, place: Place, stage: int) -> Iterator[tuple[int, int, Place, int]]:
        """Rows of the boundary behind a stage, and places of the next with their surroundings' number."""
        for out, row, some in self.places.following(place, stage):
            for each in some:
                if (each, row) in self.numbers[stage - 2]:
                    yield out, row, each, self.numbers[stage - 2][each, row]


@lru_cache(maxsize=64)
def graph(places: Places, stages: int) -> Graph:
    """Graph of so many stages, cached: many candidates share it."""
    return Graph(places, stages)


@frozen(slots=False)
class SlotPlaces:
    """Slots of blocks of one width, one for each stage; `steps` indexes the level between neighbouring slots."""

    steps: tuple[int, ...]
    stages: int

    @cached_property
    def ends(self) -> list[list[int]]:
        """By level and slot, the last slot reachable without a boundary above the level."""
        found = []
        for level in range(max(self.steps, default=0) + 1):
            ends = [len(self.steps)]
            for place in range(len(self.steps) - 1, -1, -1):
                ends.append(ends[-1] if self.steps[place] <= level else place)
            found.append(ends[::-1])
        return found

    @cached_property
    def _regular(self) -> bool:
        """True if all groups of a level have equal numbers of slots; the last may have fewer."""
        steps = numpy.array(self.steps, dtype=numpy.int64)
        for level in range(1, max(self.steps, default=0) + 1):
            sizes = numpy.diff(numpy.flatnonzero(numpy.concatenate([[True], steps >= level, [True]])))
            if (sizes[:-1] != sizes[0]).any() or sizes[-1] > sizes[0]:
                return False
        return True

    def first(self) -> range:
        """See `Places.first`."""
        return range(1 if self._regular else len(self.steps) + 2 - self.stages)

    def following(self, place: int, stage: int) -> list[tuple[int, int, range]]:
        """See `Places.following`; by level of the boundary.

        With equal groups that is the first: with slots numbered by group and inner group, a boundary of some level
        leads to any later group of that level and any slot inside. Whatever can follow another slot can follow the
        first at the same levels, with no higher number.
        """
        first, most, found = place + 1, len(self.steps) + 2 - stage, list[tuple[int, int, range]]()
        for level, ends in enumerate(self.ends):
            stop = min(ends[place], most) + 1
            if first < stop:
                found.append((level, level, range(first, first + 1 if self._regular else stop)))
                first = stop
        return found

    def last(self, place: int) -> bool:
        """See `Places.last`."""
        return True

    def at(self, place: int) -> tuple[int, int]:
        """See `Places.at`."""
        return 0, place


@frozen(slots=False)
class ReturnPlaces:
    """Slots with a way back from the last stage to the first over level `back`, the highest between neighbours.

    Each slot carries whether that level is still to come.
    """

    slots: SlotPlaces
    back: int

    def first(self) -> list[tuple[bool, int]]:
        """See `Places.first`."""
        return [(True, slot) for slot in self.slots.first()]

    def following(self, place: tuple[bool, int], stage: int) -> Iterator[Step]:
        """See `Places.following`."""
        missing, slot = place
        for level, _, some in self.slots.following(slot, stage):
            if level < self.back:
                yield level, level, tuple((missing, each) for each in some)
            elif level == self.back and missing:
                # It may come again.
                yield level, level, tuple(product((False, True), some))

    def last(self, place: tuple[bool, int]) -> bool:
        """See `Places.last`."""
        return not place[0]

    def at(self, place: tuple[bool, int]) -> tuple[int, int]:
        """See `Places.at`."""
        return 0, place[1]


@frozen
class PoolPlaces:
    """Slots in several pools: a stage's pool, the remaining stages of each, and their next slots."""

    pools: tuple[SlotPlaces, ...]  # Slots of each.
    links: tuple[tuple[int, ...], ...]  # By pair of pools, row of the link, or `NONE`.

    def first(self) -> Iterable[tuple[int, Counts, Counts]]:
        """See `Places.first`."""
        left = tuple(pool.stages for pool in self.pools)
        every = [tuple(pool.first()) for pool in self.pools]
        return ((pool, left, at) for pool in range(len(left)) for at in product(*every))

    def following(self, place: tuple[int, Counts, Counts], stage: int) -> Iterator[Step]:
        """See `Places.following`."""
        pool, left, at = place
        behind = _with(left, pool, left[pool] - 1)
        own = self.pools[pool].following(at[pool], left[pool]) if behind[pool] else []
        for out, _, slots in own:
            yield out, out, tuple((pool, behind, _with(at, pool, slot)) for slot in slots)
        later = [slot for _, _, slots in own for slot in slots] or [NONE]
        for other, out in enumerate(self.links[pool]):
            if out != NONE and behind[other]:
                yield out, self.links[other][pool], tuple((other, behind, _with(at, pool, slot)) for slot in later)

    def last(self, place: tuple[int, Counts, Counts]) -> bool:
        """See `Places.last`."""
        return True

    def at(self, place: tuple[int, Counts, Counts]) -> tuple[int, int]:
        """See `Places.at`."""
        return place[0], place[2][place[0]]


def _with(numbers: Counts, place: int, number: int) -> Counts:
    return (*numbers[:place], number, *numbers[place + 1 :])


@frozen(eq=False, slots=False)
class OffsetPlaces:
    """Offsets of blocks of several widths: width, sum of those in front, and offset.

    Devices are counted from the first stage: counted from the last, each total would have its own places.
    """

    offsets: Offsets  # Devices of a replica.
    widths: tuple[int, ...]  # Of blocks, ascending.
    tally: Tally  # Required totals.

    @cached_property
    def _regular(self) -> bool:
        """True if groups of a level are equal except the last, and blocks fill groups, or groups blocks."""
        size, starts = self.offsets.size, numpy.arange(self.offsets.size)
        ends = [each for each in self.offsets.ends if (each > starts).any()]
        lengths = [int(each[0]) for each in ends]
        if 0 in lengths:
            return False
        alike = all(
            bool((each == numpy.minimum((starts // length + 1) * length, size)).all())
            for each, length in zip(ends, lengths, strict=True)
        )
        nested = all(more % less == 0 or more == size for less, more in pairwise(lengths))
        aligned = all(width % length == 0 or length % width == 0 for width in self.widths for length in lengths)
        return alike and nested and aligned and all(size % width == 0 for width in self.widths)

    def first(self) -> Iterator[tuple[int, State, int]]:
        """See `Places.first`."""
        for width in self.widths:
            yield from ((width, (0, True), offset) for offset in self._some(0, self.offsets.size - width, width))

    def following(self, place: tuple[int, State, int], stage: int) -> Iterator[Step]:
        """See `Places.following`; with equal groups the first offset of each width and level suffices."""
        width, state, offset = place
        behind, most = self.tally.behind(state, width), self.offsets.size - (stage - 2) * self.widths[0]
        for other in self.widths:
            begin = offset + width
            for level, end in enumerate(self.offsets.ends[:, offset].tolist()):
                some = self._some(-(-begin // other) * other, min(end, most) - other, other)
                if some:
                    for each in behind:
                        yield level, level, tuple((other, each, start) for start in some)
                # From there on a block ends outside the group.
                begin = max(begin, end // other * other)

    def _some(self, first: int, last: int, width: int) -> range:
        return range(first, min(first, last) + 1 if self._regular else last + 1, width)

    def last(self, place: tuple[int, State, int]) -> bool:
        """See `Places.last`."""
        ends = self.tally.behind(place[1], place[0])
        return any(self.tally.accepts((used, due == self.tally.start[1])) for used, due in ends)

    def at(self, place: tuple[int, State, int]) -> tuple[int, int]:
        """See `Places.at`."""
        return place[0], place[2]
