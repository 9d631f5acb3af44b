"""Where the stages of a plan may be: a graph with a layer of places for each stage.

What stages cost does not change it. Places whose surroundings are equal have the same entries in a recurrence.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise, product
from typing import Any, Protocol

import numpy
from attrs import frozen

from nest.solve.dp.configurations import Offsets, State, Tally

NONE = -1
"""Row of a link that there is not, or the slot of a block that there is not."""

Counts = tuple[int, ...]
"""Stages in each pool."""

Place = Any
"""Where a stage is, with what that leaves to those behind it. Places of a stage can be sorted: of equals the first."""

Step = tuple[int, int, Sequence[Place]]
"""Rows of a boundary, as the stage in front of it has it and the one behind, and where the latter may be there."""

Way = tuple[int, tuple[int, ...]]
"""The row of a boundary behind a stage, and which surroundings the next one may have there, as they are numbered."""

Surroundings = tuple[int, int, tuple[Way, ...]]
"""Which blocks may be there, the row of the boundary in front (0 of the first stage), and what may lie behind."""

NOTHING: tuple[Way, ...] = ((0, (0,)),)
"""Behind the last stage."""

ALONE: tuple[Surroundings, ...] = ((0, 0, NOTHING),)
"""Those of stages of which each has one slot, and all boundaries one level."""


class Places(Protocol):
    """Where stages may be; they are counted from the last."""

    def first(self) -> Iterable[Place]:
        """Those of the first stage."""

    def following(self, place: Place, stage: int) -> Iterable[Step]:
        """Those of the stage behind `stage`. Their sequences can be hashed."""

    def last(self, place: Place) -> bool:
        """Whether the last stage may be there."""

    def at(self, place: Place) -> tuple[int, int]:
        """Which blocks may be there, and their slot or offset."""


class Graph:
    """The places that stages may have.

    Attributes:
        places: which follow which.
        stages: how many there are.
        surroundings: of each stage, counted from the last, those it may have, each once.
        numbers: of each stage which of these it has, by its place and the row of the boundary in front; those from
            which the last stage is reached.
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
        """Note the surroundings of one more stage in front, with these places and rows of boundaries."""
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
        """Where the first stage may be, in order, with the number of the surroundings there."""
        return [(place, number) for (place, _), number in self.numbers[-1].items()]

    def following(self, place: Place, stage: int) -> Iterator[tuple[int, int, Place, int]]:
        """The rows of the boundary behind a stage, and where the one behind may be, with its surroundings' number."""
        for out, row, some in self.places.following(place, stage):
            for each in some:
                if (each, row) in self.numbers[stage - 2]:
                    yield out, row, each, self.numbers[stage - 2][each, row]


@lru_cache(maxsize=64)
def graph(places: Places, stages: int) -> Graph:
    """That of so many stages, remembered: many candidates have the same."""
    return Graph(places, stages)


@frozen(slots=False)
class SlotPlaces:
    """The slots of blocks of one width, one for each stage.

    Attributes:
        steps: index of the level between neighbouring slots; slots are one more.
        stages: how many there are.
    """

    steps: tuple[int, ...]
    stages: int

    @cached_property
    def ends(self) -> list[list[int]]:
        """For each level and slot the last one that it reaches without crossing a boundary above the level."""
        found = []
        for level in range(max(self.steps, default=0) + 1):
            ends = [len(self.steps)]
            for place in range(len(self.steps) - 1, -1, -1):
                ends.append(ends[-1] if self.steps[place] <= level else place)
            found.append(ends[::-1])
        return found

    @cached_property
    def _regular(self) -> bool:
        """Whether all groups of a level hold as many slots, but for the last one, which may hold fewer."""
        steps = numpy.array(self.steps, dtype=numpy.int64)
        for level in range(1, max(self.steps, default=0) + 1):
            sizes = numpy.diff(numpy.flatnonzero(numpy.concatenate([[True], steps >= level, [True]])))
            if (sizes[:-1] != sizes[0]).any() or sizes[-1] > sizes[0]:
                return False
        return True

    def first(self) -> range:
        """As `Places.first`."""
        return range(1 if self._regular else len(self.steps) + 2 - self.stages)

    def following(self, place: int, stage: int) -> list[tuple[int, int, range]]:
        """As `Places.following`, by level of the boundary.

        Where groups are alike that is the first: with slots numbered by group, group inside it and so on, a boundary of
        some level leads to any later group of that level and any slot inside. What can follow another slot can follow
        the first, too, at the same levels: number for number it comes no later.
        """
        first, most, found = place + 1, len(self.steps) + 2 - stage, list[tuple[int, int, range]]()
        for level, ends in enumerate(self.ends):
            stop = min(ends[place], most) + 1
            if first < stop:
                found.append((level, level, range(first, first + 1 if self._regular else stop)))
                first = stop
        return found

    def last(self, place: int) -> bool:
        """As `Places.last`."""
        return True

    def at(self, place: int) -> tuple[int, int]:
        """As `Places.at`."""
        return 0, place


@frozen(slots=False)
class ReturnPlaces:
    """Slots where the last stage sends back to the first over a level that is the highest between neighbours.

    Whether that level is still to come goes with each slot.

    Attributes:
        slots: of all stages.
        back: that level.
    """

    slots: SlotPlaces
    back: int

    def first(self) -> list[tuple[bool, int]]:
        """As `Places.first`."""
        return [(True, slot) for slot in self.slots.first()]

    def following(self, place: tuple[bool, int], stage: int) -> Iterator[Step]:
        """As `Places.following`."""
        missing, slot = place
        for level, _, some in self.slots.following(slot, stage):
            if level < self.back:
                yield level, level, tuple((missing, each) for each in some)
            elif level == self.back and missing:
                # It may come again.
                yield level, level, tuple(product((False, True), some))

    def last(self, place: tuple[bool, int]) -> bool:
        """As `Places.last`."""
        return not place[0]

    def at(self, place: tuple[bool, int]) -> tuple[int, int]:
        """As `Places.at`."""
        return 0, place[1]


@frozen
class PoolPlaces:
    """Slots in several pools: the pool of a stage, how many each still has from it on, and where their next ones lie.

    Attributes:
        pools: slots of each.
        links: of each for each the row of the link to it, or `NONE`.
    """

    pools: tuple[SlotPlaces, ...]
    links: tuple[tuple[int, ...], ...]

    def first(self) -> Iterable[tuple[int, Counts, Counts]]:
        """As `Places.first`."""
        left = tuple(pool.stages for pool in self.pools)
        every = [tuple(pool.first()) for pool in self.pools]
        return ((pool, left, at) for pool in range(len(left)) for at in product(*every))

    def following(self, place: tuple[int, Counts, Counts], stage: int) -> Iterator[Step]:
        """As `Places.following`."""
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
        """As `Places.last`."""
        return True

    def at(self, place: tuple[int, Counts, Counts]) -> tuple[int, int]:
        """As `Places.at`."""
        return place[0], place[2][place[0]]


def _with(numbers: Counts, place: int, number: int) -> Counts:
    return (*numbers[:place], number, *numbers[place + 1 :])


@frozen(eq=False, slots=False)
class OffsetPlaces:
    """Offsets of blocks of several widths: the width, what those in front add up to, and the offset.

    Devices are counted from the first stage on: counted from the last, each total would have places of its own.

    Attributes:
        offsets: the devices of a replica.
        widths: of blocks, ascending.
        tally: what the stages must add up to.
    """

    offsets: Offsets
    widths: tuple[int, ...]
    tally: Tally

    @cached_property
    def _regular(self) -> bool:
        """Whether groups of a level are alike, but for the last one, and blocks fill groups, or groups blocks."""
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
        """As `Places.first`."""
        for width in self.widths:
            yield from ((width, (0, True), offset) for offset in self._some(0, self.offsets.size - width, width))

    def following(self, place: tuple[int, State, int], stage: int) -> Iterator[Step]:
        """As `Places.following`.

        As in `SlotPlaces`, where groups are alike the first offset of each width and level will do.
        """
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
        """As `Places.last`."""
        ends = self.tally.behind(place[1], place[0])
        return any(self.tally.accepts((used, due == self.tally.start[1])) for used, due in ends)

    def at(self, place: tuple[int, State, int]) -> tuple[int, int]:
        """As `Places.at`."""
        return place[0], place[2]
