"""Least paths through the cuts, a stage a step (PROBLEM.md sections 3 and 8).

Stages are of teams: of one, or on pools of one for each pool, which has room for so many and takes part with one at
least. What a step costs is a table for each team, by the cuts in front of the stage and behind it.
"""

from collections.abc import Callable, Sequence
from itertools import product
from math import inf

import numpy
from attrs import frozen

from nest.solve.cpsat.cuts import Booleans, Floats, Integers

Step = Sequence[Floats]
"""For each team, what a stage of it costs by the cuts in front and behind; shape `(cuts, cuts)`."""

Use = tuple[int, ...]
"""So many stages of each team."""

Reached = dict[Use, Floats]
"""By the stages of each team, a value for each cut."""


@frozen
class Paths:
    """Paths of stages of some teams.

    Attributes:
        rooms: for each team, how many stages it has at most.
    """

    rooms: Use

    def forward(self, steps: Sequence[Step], join: Callable[[Floats, Floats], Floats] = numpy.add) -> list[Reached]:
        """By number of stages, the least cost of so many up to each cut.

        Args:
            steps: for each stage, its cost.
            join: how the costs of stages come together.
        """
        start = numpy.full(len(steps[0][0]), inf)
        start[0] = 0.0
        result: list[Reached] = [{(0,) * len(self.rooms): start}]
        for step in steps:
            result.append(self._further(result[-1], step, lambda own, table: join(own[:, None], table).min(axis=0)))
        return result

    def backward(self, steps: Sequence[Step]) -> list[Reached]:
        """By number of stages in front, the least sum of the stages from each cut on."""
        result = [self.end(len(steps[0][0]))]
        for step in reversed(steps):
            result.append(self.in_front(result[-1], step))
        return result[::-1]

    def end(self, cuts: int) -> Reached:
        """What no stage costs: nothing from the last of so many cuts on."""
        start = numpy.full(cuts, inf)
        start[-1] = 0.0
        return {(0,) * len(self.rooms): start}

    def in_front(self, behind: Reached, step: Step, join: Callable[[Floats, Floats], Floats] = numpy.add) -> Reached:
        """The least cost from each cut on with one stage more, in front of those behind."""
        return self._further(behind, step, lambda own, table: join(table, own[None, :]).min(axis=1))

    def _further(self, reached: Reached, step: Step, through: Callable[[Floats, Floats], Floats]) -> Reached:
        """What is reached with one stage more."""
        following: Reached = {}
        for use, own in reached.items():
            for team, table in enumerate(step):
                more = _one_more(use, team)
                if more[team] <= self.rooms[team]:
                    values = through(own, table)
                    following[more] = numpy.minimum(following[more], values) if more in following else values
        return following

    def least(self, steps: Sequence[Step], join: Callable[[Floats, Floats], Floats] = numpy.add) -> float:
        """The least cost of all stages."""
        return least(self.forward(steps, join)[-1])

    def around(self, before: Reached, behind: Reached, team: int, first: Integers, last: Integers) -> Floats:
        """The least that the stages in front of stages of a team and those behind add up to.

        Args:
            before: of `forward`, for the stages in front.
            behind: of `backward`, for those behind.
            team: of the stages.
            first: the cut in front of each stage. Shape `(stages,)`.
            last: the cut behind it. Shape `(stages,)`.
        """
        best = numpy.full(len(first), inf)
        for (one, front), (other, rear) in product(before.items(), behind.items()):
            used = _one_more(tuple(a + b for a, b in zip(one, other, strict=True)), team)
            if all(0 < number <= room for number, room in zip(used, self.rooms, strict=True)):
                best = numpy.minimum(best, front[first] + rear[last])
        return best


def least(reached: Reached, cut: int = -1) -> float:
    """The least cost of a path to a cut, else the last, on which every team has a stage."""
    return min((float(values[cut]) for use, values in reached.items() if all(use)), default=inf)


def kept_only(step: Step, kept: Sequence[Booleans]) -> list[Floats]:
    """The costs of stages that are kept, infinite for others."""
    return [numpy.where(own, table, inf) for table, own in zip(step, kept, strict=True)]


def _one_more(use: Use, team: int) -> Use:
    return (*use[:team], use[team] + 1, *use[team + 1 :])
