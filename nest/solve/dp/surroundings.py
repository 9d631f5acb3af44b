"""What lies around a stage in a slot: the levels of the boundaries in front of it and behind, and what may follow.

What stages cost does not change it. Stages whose surroundings are equal have the same entries in a recurrence.
"""

from collections.abc import Iterable
from functools import lru_cache

import numpy
from numpy.typing import NDArray

Way = tuple[int, tuple[int, ...]]
"""The level of a boundary behind a stage, and which surroundings the next one may have there, as they are numbered."""

Surroundings = tuple[int, tuple[Way, ...]]
"""The level of the boundary in front of a stage, and what may lie behind it; 0 in front of the first stage."""

NOTHING: tuple[Way, ...] = ((0, (0,)),)
"""Behind the last stage."""

ALONE: tuple[Surroundings, ...] = ((0, NOTHING),)
"""Those of stages of which each has one slot, and all boundaries one level."""


class Placements:
    """The slots that stages may have.

    Attributes:
        steps: index of the level between neighbouring slots; slots are one more.
        stages: how many there are.
        surroundings: of each stage, counted from the last, those it may have, each once.
        numbers: of each stage which of these it has, by its slot and the level in front of it.
    """

    def __init__(self, steps: tuple[int, ...], stages: int) -> None:
        self.steps, self.stages = steps, stages
        self.surroundings: list[tuple[Surroundings, ...]] = []
        self.numbers: list[dict[tuple[int, int], int]] = []
        levels = range(max(self.steps, default=0) + 1)
        self._ends = [_group_ends(steps, level) for level in levels]
        self._regular = _regular(numpy.array(steps, dtype=numpy.int64))
        fronts = [{(slot, 0) for slot in range(1 if self._regular else len(self.steps) + 2 - self.stages)}]
        for stage in range(self.stages, 1, -1):
            # Slots of a group have most of their followers in common.
            ways = {way for slot in {slot for slot, _ in fronts[-1]} for way in self.followers(slot, stage)}
            fronts.append({(slot, level) for level, slots in ways for slot in slots})
        for front in reversed(fronts):
            self._number(sorted(front))

    def _number(self, front: Iterable[tuple[int, int]]) -> None:
        """Note the surroundings of one more stage in front, with these slots and levels of boundaries."""
        every, numbers, known = dict[Surroundings, int](), dict[tuple[int, int], int](), dict[tuple[int, range], Way]()
        stage = len(self.numbers) + 1
        for slot, level in front:
            followers = self.followers(slot, stage) if stage > 1 else []
            for out, slots in followers:
                if (out, slots) not in known:
                    known[out, slots] = out, tuple(sorted({self.numbers[-1][each, out] for each in slots}))
            ways = tuple(known[way] for way in followers) or NOTHING
            numbers[slot, level] = every.setdefault((level, ways), len(every))
        self.surroundings.append(tuple(every))
        self.numbers.append(numbers)

    def followers(self, slot: int, stage: int) -> list[tuple[int, range]]:
        """By level of the boundary behind `stage` in some slot, the slots that the next one may have.

        Where groups are alike that is the first: with slots numbered by group, group inside it and so on, a boundary of
        some level leads to any later group of that level and any slot inside. What can follow another slot can follow
        the first, too, at the same levels: number for number it comes no later.
        """
        first, most, result = slot + 1, len(self.steps) + 2 - stage, list[tuple[int, range]]()
        for level, ends in enumerate(self._ends):
            stop = min(ends[slot], most) + 1
            if first < stop:
                result.append((level, range(first, first + 1 if self._regular else stop)))
                first = stop
        return result


def _group_ends(steps: tuple[int, ...], level: int) -> list[int]:
    """For each slot the last one that it reaches without crossing a boundary above a level."""
    ends = [len(steps)]
    for place in range(len(steps) - 1, -1, -1):
        ends.append(ends[-1] if steps[place] <= level else place)
    return ends[::-1]


def _regular(steps: NDArray[numpy.int64]) -> bool:
    """Whether all groups of a level hold as many slots, but for the last one, which may hold fewer."""
    for level in range(1, int(steps.max(initial=0)) + 1):
        sizes = numpy.diff(numpy.flatnonzero(numpy.concatenate([[True], steps >= level, [True]])))
        if (sizes[:-1] != sizes[0]).any() or sizes[-1] > sizes[0]:
            return False
    return True


@lru_cache(maxsize=64)
def placements(steps: tuple[int, ...], stages: int) -> Placements:
    """Those of so many stages, remembered: many candidates have the same."""
    return Placements(steps, stages)
