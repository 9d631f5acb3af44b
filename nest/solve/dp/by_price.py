"""Plans in the order of their closed forms, so that those worth a replay are replayed (PROBLEM.md section 5).

The price of a plan is no less than its closed form: once the closed form of the next plan reaches the least price so
far, that one is the best.
"""

import heapq
from collections.abc import Callable, Hashable, Iterator, Sequence
from math import inf
from typing import Any, NamedTuple

from attrs import define, field

from nest.solve.dp.pareto import Floor, Objective


class Option(NamedTuple):
    """What a stage may be.

    Attributes:
        following: the state in which it leaves those behind it.
        cost: its part of the sum of stages, seconds.
        time: seconds per micro-batch.
        sync: seconds per batch.
        decided: what that is.
    """

    following: Hashable
    cost: float
    time: float
    sync: float
    decided: Any


class Way(NamedTuple):
    """Some options of every stage, and the closed form of a plan of them, seconds."""

    seconds: float
    stages: tuple[Any, ...]


class TooMany(Exception):  # noqa: N818 - the search goes on without
    """There are more options than are looked at."""


@define(eq=False)
class Ways:
    """The ways through the stages of a leaf, by their closed form.

    Attributes:
        stages: how many there are.
        first: the state in front of the first stage.
        last: that behind the last one.
        options: of a stage, from 0, in some state.
        objective: weights of the schedule.
        floor: bounds of the three terms.
        spend: called with how many options are looked at; may raise `TooMany`.
    """

    stages: int
    first: Hashable
    last: Hashable
    options: Callable[[int, Hashable], Sequence[Option]]
    objective: Objective
    floor: Floor
    spend: Callable[[int], None]
    _known: dict[tuple[int, Hashable], tuple[float, Sequence[Option]]] = field(factory=dict, init=False)

    def within(self, limit: Callable[[], float]) -> Iterator[Way]:
        """Those below a limit, which may sink meanwhile; the least first.

        Raises:
            TooMany: there are more options than are looked at.
        """
        rest = self._rest(0, self.first)
        queue = [(self._bound(0.0, 0.0, 0.0, rest), 0, 0, self.first, 0.0, 0.0, 0.0, ())]
        pushed = 0
        while queue and queue[0][0] < limit():
            bound, _, stage, state, cost, time, sync, taken = heapq.heappop(queue)
            if stage == self.stages:
                yield Way(bound, taken)
                continue
            for each in self._known[stage, state][1]:
                rest = self._rest(stage + 1, each.following)
                terms = cost + each.cost, max(time, each.time), max(sync, each.sync)
                seconds = self._bound(*terms, rest)
                if seconds < limit():
                    pushed += 1
                    heapq.heappush(queue, (seconds, pushed, stage + 1, each.following, *terms, (*taken, each.decided)))
            self.spend(len(self._known[stage, state][1]))

    def _bound(self, cost: float, time: float, sync: float, rest: float) -> float:
        if rest == inf:
            return inf
        terms = max(time, self.floor.largest_time), cost + rest, max(sync, self.floor.largest_sync)
        return self.objective.of(Floor(*terms))

    def _rest(self, stage: int, state: Hashable) -> float:
        """The least sum of the stages from one on; infinite where none lead to the end."""
        if stage == self.stages:
            return 0.0 if state == self.last else inf
        key = stage, state
        if key not in self._known:
            every = self.options(stage, state)
            self.spend(len(every))
            rests = [each.cost + self._rest(stage + 1, each.following) for each in every]
            possible = [each for each, rest in zip(every, rests, strict=True) if rest < inf]
            self._known[key] = min(rests, default=inf), possible
        return self._known[key][0]
