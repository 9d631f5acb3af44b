"""Paths from no units to all, one stage's content per step: joint lower bounds on stages of several chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf

import numpy
from attrs import frozen

from nest_cpsat.cuts import Booleans, Floats, Integers


@frozen(eq=False)
class ContentPaths:
    """Steps between states; a state counts the units of each class in the stages so far.

    `contents` has for each stage the content between two states, or the number of contents where there is none; shape
    `(states before, states after)`.
    """

    contents: tuple[Integers, ...]

    @classmethod
    def through(cls, between: Integers, possible: Sequence[Booleans]) -> ContentPaths | None:
        """Paths through the possible contents of each stage; None: there are none.

        Args:
            between: content between two states, or the number of contents. Shape `(states, states)`.
            possible: by stage, a mask of contents. Shape `(contents,)`.
        """
        # No content is the last, and impossible.
        can = [numpy.append(each, False) for each in possible]
        ahead = [numpy.array([0])]
        for each in can[:-1]:
            ahead.append(numpy.flatnonzero(each[between[ahead[-1]]].any(axis=0)))
        behind = [numpy.array([len(between) - 1])]
        for each, states in zip(reversed(can), reversed(ahead), strict=True):
            behind.append(states[each[between[numpy.ix_(states, behind[-1])]].any(axis=1)])
        states = behind[::-1]
        if not all(map(len, states)):
            return None
        return cls(tuple(between[numpy.ix_(front, rear)] for front, rear in pairwise(states)))

    def steps(self, values: Sequence[Floats]) -> list[Floats]:
        """Turn values by content into values by step, infinite where there is no content."""
        return [numpy.append(own, inf)[each] for own, each in zip(values, self.contents, strict=True)]

    def around(self, stage: int, front: Floats, rear: Floats, count: int) -> Floats:
        """Least sum of all other stages, by content of one stage. Shape `(count,)`."""
        least = numpy.full(count + 1, inf)
        numpy.minimum.at(least, self.contents[stage].ravel(), (front[:, None] + rear[None, :]).ravel())
        return least[:-1]


def forward(steps: Sequence[Floats], join: Callable[[Floats, Floats], Floats] = numpy.add) -> list[Floats]:
    """Least cost of reaching each state, by number of stages; `join` combines costs."""
    reached = [numpy.zeros(1)]
    for step in steps:
        reached.append(join(reached[-1][:, None], step).min(axis=0))
    return reached


def backward(steps: Sequence[Floats]) -> list[Floats]:
    """Least cost from each state to the end, by number of stages before it."""
    reached = [numpy.zeros(1)]
    for step in reversed(steps):
        reached.append((step + reached[-1][None, :]).min(axis=1))
    return reached[::-1]
