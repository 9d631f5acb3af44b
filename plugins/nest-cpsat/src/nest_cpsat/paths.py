"""Least paths through the cuts with one stage per step (PROBLEM.md sections 3 and 8).

Stages belong to teams: one, or on pools one per pool, with limited room and at least one stage. The cost of a step is a
table for each team, by the cuts before and after the stage.
"""

from collections.abc import Callable, Sequence
from itertools import product
from math import inf

import numpy
from attrs import frozen

from nest_cpsat.cuts import Booleans, Floats, Integers

Step = Sequence[Floats]  # For each team, the cost of a stage by the cuts before and after it; shape `(cuts, cuts)`.
Use = tuple[int, ...]  # Number of stages of each team.
Reached = dict[Use, Floats]  # Value of each cut by the stages of each team.


@frozen
class Paths:
    """Paths of stages of some teams; `rooms` are the most stages of each."""

    rooms: Use

    def forward(self, steps: Sequence[Step], join: Callable[[Floats, Floats], Floats] = numpy.add) -> list[Reached]:
        """Least cost up to each cut, by number of stages; `join` combines the costs of stages."""
        start = numpy.full(len(steps[0][0]), inf)
        start[0] = 0.0
        result: list[Reached] = [{(0,) * len(self.rooms): start}]
        for step in steps:
            result.append(self._further(result[-1], step, lambda own, table: join(own[:, None], table).min(axis=0)))
        return result

    def backward(self, steps: Sequence[Step]) -> list[Reached]:
        """Least sum of the stages from each cut on, by number of stages before it."""
        result = [self.end(len(steps[0][0]))]
        for step in reversed(steps):
            result.append(self.in_front(result[-1], step))
        return result[::-1]

    def end(self, cuts: int) -> Reached:
        """Cost of no stages: 0 from the last of so many cuts on."""
        start = numpy.full(cuts, inf)
        start[-1] = 0.0
        return {(0,) * len(self.rooms): start}

    def in_front(self, behind: Reached, step: Step, join: Callable[[Floats, Floats], Floats] = numpy.add) -> Reached:
        """Least cost from each cut on with one more stage before."""
        return self._further(behind, step, lambda own, table: join(table, own[None, :]).min(axis=1))

    def _further(self, reached: Reached, step: Step, through: Callable[[Floats, Floats], Floats]) -> Reached:
        following: Reached = {}
        for use, own in reached.items():
            for team, table in enumerate(step):
                more = _one_more(use, team)
                if more[team] <= self.rooms[team]:
                    values = through(own, table)
                    following[more] = numpy.minimum(following[more], values) if more in following else values
        return following

    def least(self, steps: Sequence[Step], join: Callable[[Floats, Floats], Floats] = numpy.add) -> float:
        """Least cost of all stages."""
        return least(self.forward(steps, join)[-1])

    def around(self, before: Reached, behind: Reached, team: int, first: Integers, last: Integers) -> Floats:
        """Least sum of all stages around each of some stages of a team.

        Args:
            before: from `forward`.
            behind: from `backward`.
            first: cut before each stage. Shape `(stages,)`.
            last: cut after it. Shape `(stages,)`.
        """
        best = numpy.full(len(first), inf)
        for (one, front), (other, rear) in product(before.items(), behind.items()):
            used = _one_more(tuple(a + b for a, b in zip(one, other, strict=True)), team)
            if all(0 < number <= room for number, room in zip(used, self.rooms, strict=True)):
                best = numpy.minimum(best, front[first] + rear[last])
        return best


def least(reached: Reached, cut: int = -1) -> float:
    """Least cost of a path to a cut, by default the last, with a stage of every team."""
    return min((float(values[cut]) for use, values in reached.items() if all(use)), default=inf)


def kept_only(step: Step, kept: Sequence[Booleans]) -> list[Floats]:
    """Costs of the kept stages, infinite for others."""
    return [numpy.where(own, table, inf) for table, own in zip(step, kept, strict=True)]


def _one_more(use: Use, team: int) -> Use:
    return (*use[:team], use[team] + 1, *use[team + 1 :])
