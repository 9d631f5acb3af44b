"""The cases that bounds leave open, listed and bounded in one process or in several.

Cases are bounded one by one, whatever the others, so that it does not matter where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Any, TypeVar

from attrs import define, evolve, field

from nest.errors import InputError, InternalError
from nest.instance import Instance, chunks_of
from nest.solve.cpsat.cases import Case, OpenCase, cases_of, orders, parts_alike, told_apart
from nest.solve.cpsat.compute_bound import ComputeBound
from nest.solve.cpsat.families import Families, Together
from nest.solve.cpsat.room_bound import RoomBound
from nest.solve.effort import Deadline

NEAR = 1.01
"""Bounds settle a case by themselves when they are above the target by this factor; what is nearer is
for CP-SAT, unless that does not answer with its first effort."""

PARTS = 64
"""Parts into which cases are cut, so that processes end within a hundredth of the work of each other."""

ALONE = 0.5
"""Seconds for which this process goes on alone: many a proof is done by then."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")

Beside = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""What a function makes of each item, as they come, in this process and in others that are forked from it."""


@define(eq=False)
class OpenCases:
    """The cases that bounds leave.

    Attributes:
        instance: the problem.
        most_stages: more stages than this no plan has.
        bound: seconds no plan of a case is below, as far as that matters for some seconds.
        near: seconds; a case whose bound is above is settled.
        deadline: after which nothing is bounded.
        beside: other processes; None: this one is alone.
        count: how many cases there were; where compute settles a number of replicas and stages with a schedule, each
            order of ranks counts as one.
    """

    instance: Instance
    most_stages: int
    bound: Callable[[Case, float], float]
    near: float
    deadline: Deadline
    beside: Beside | None = None
    count: int = field(init=False, default=0)
    _compute: ComputeBound = field(init=False)
    _room: RoomBound = field(init=False)
    _families: Families = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._compute, self._room = ComputeBound(self.instance), RoomBound(self.instance)
        self._families = Families(self.instance, self.most_stages)

    def listed(self) -> list[OpenCase] | None:
        """The cases that what layers compute, and what stages have room for, leave; None: the time was up."""
        waiting: list[OpenCase] = []
        # Equal only to itself, a schedule that came from another process is none that anything is known of.
        own = {(each.name, chunks_of(each)): each for each in self.instance.space.schedules}
        for answer in answers(self._of_families, _parts(list(self._families.together())), self.beside):
            if answer is None:
                return None
            self.count += answer[0]
            for each in answer[1]:
                used = each.case.schedule
                each.case = evolve(each.case, schedule=own[used.name, chunks_of(used)])
                waiting.append(each)
        return waiting

    def _of_families(self, every: Sequence[Together]) -> tuple[int, list[OpenCase]] | None:
        """How many cases some families have, and those left; None: the time was up."""
        count, waiting = 0, []
        for together in every:
            if self.deadline.passed:
                return None
            family = self._families.of(together)
            left = family.only(self._compute.of_rows(family) <= self.near)
            count += (len(family.rows) - len(left.rows)) * len(orders(self.instance))
            for case in cases_of(self.instance, left, apart=False):
                count += 1
                bound = self._compute.of(case)
                if bound <= self.near and not self._room.excludes(case, self._compute.slowest_limit(case, self.near)):
                    waiting.append(OpenCase(case, bound, NEAR))
        return count, waiting

    def best_first(self, waiting: Sequence[OpenCase]) -> list[OpenCase]:
        """Those of some cases that further bounds leave, most promising first.

        They are bounded as they are listed: those one behind the other mostly share what stages cost.
        """
        left = self._left(waiting)
        if parts_alike(self.instance):
            apart = [OpenCase(case, each.bound, NEAR) for each in left for case in told_apart(self.instance, each.case)]
            self.count += len(apart) - len(left)
            left = self._left(apart)
        return sorted(left, key=lambda each: each.bound)

    def _left(self, waiting: Sequence[OpenCase]) -> list[OpenCase]:
        """Those of some cases that further bounds leave."""
        left = []
        bounds = (bound for part in answers(self._bounded, _parts(waiting), self.beside) for bound in part)
        for each, bound in zip(waiting, bounds, strict=True):
            each.bound = max(each.bound, bound)
            if each.bound <= self.near and each.bound < inf:
                left.append(each)
        return left

    def _bounded(self, every: Sequence[OpenCase]) -> list[float]:
        return [each.bound if self.deadline.passed else self.bound(each.case, self.near) for each in every]


def _parts(items: Sequence[Item]) -> list[Sequence[Item]]:
    size = -(-len(items) // PARTS) or 1
    return [items[start : start + size] for start in range(0, len(items), size)]


def answers(function: Callable[[Item], Answer], items: Sequence[Item], beside: Beside | None) -> list[Answer]:
    """What a function makes of each item, in their order, in several processes where it takes long."""
    known: dict[int, Answer] = {}

    def numbered(place: int) -> tuple[int, Answer]:
        return place, function(items[place])

    started = monotonic()
    for place in range(len(items)):
        if beside is not None and monotonic() - started > ALONE and place + 1 < len(items):
            # Where another process cannot answer, this one says what is wrong.
            with suppress(InputError, InternalError):
                known.update(beside(numbered, range(place, len(items))))
            beside = None
        if place not in known:
            known[place] = function(items[place])
    return [known[place] for place in range(len(items))]
