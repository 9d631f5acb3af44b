"""Paths from no units to all, with a stage's content a step: what stages of several chunks take together at least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf

import numpy
from attrs import frozen

from nest.solve.cpsat.cuts import Booleans, Floats, Integers


@frozen(eq=False)
class ContentPaths:
    """Steps between the states that paths go through; a state says how many units of each class stages so far hold.

    Attributes:
        contents: for each stage, the content between a state in front and a state behind, or the number of contents
            where there is none. Shape `(states in front, states behind)`.
    """

    contents: tuple[Integers, ...]

    @classmethod
    def through(cls, between: Integers, possible: Sequence[Booleans]) -> ContentPaths | None:
        """The paths of contents that each stage can have; None: there is none.

        Args:
            between: by two states the content between them, or the number of contents. Shape `(states, states)`.
            possible: for each stage, which contents. Shape `(contents,)`.
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
        """For each stage, its value between two states, infinite where there is no content; `values` are by content."""
        return [numpy.append(own, inf)[each] for own, each in zip(values, self.contents, strict=True)]

    def around(self, stage: int, front: Floats, rear: Floats, count: int) -> Floats:
        """By content of a stage, the least that the stages in front of it and behind it add up to. Shape `(count,)`."""
        least = numpy.full(count + 1, inf)
        numpy.minimum.at(least, self.contents[stage].ravel(), (front[:, None] + rear[None, :]).ravel())
        return least[:-1]


def forward(steps: Sequence[Floats], join: Callable[[Floats, Floats], Floats] = numpy.add) -> list[Floats]:
    """By number of stages, the least cost of so many up to each state; `join` says how costs come together."""
    reached = [numpy.zeros(1)]
    for step in steps:
        reached.append(join(reached[-1][:, None], step).min(axis=0))
    return reached


def backward(steps: Sequence[Floats]) -> list[Floats]:
    """By number of stages in front, the least sum of the others from each state on."""
    reached = [numpy.zeros(1)]
    for step in reversed(steps):
        reached.append((step + reached[-1][None, :]).min(axis=1))
    return reached[::-1]
