"""Open cases: listed and bounded in one process or several, independently of each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Any, TypeVar

from attrs import define, evolve, field

from nest.errors import InputError, InternalError
from nest.instance import Instance, chunks_of
from nest.solve.effort import Deadline
from nest_cpsat.cases import Case, OpenCase, cases_of, orders, parts_alike, told_apart
from nest_cpsat.compute_bound import ComputeBound
from nest_cpsat.families import Families, Together
from nest_cpsat.room_bound import RoomBound

NEAR = 1.01
"""Factor over the target above which a bound settles a case; nearer ones go to CP-SAT unless its first effort fails."""

PARTS = 64  # Parts of the cases, so that processes end within a hundredth of the work of each other.
ALONE = 0.5  # Seconds before other processes help; many proofs end sooner.

Item = TypeVar("Item")
Answer = TypeVar("Answer")

Beside = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""Map a function over items, in this process and in forks of it; yields results in order."""


@define(eq=False)
class OpenCases:
    """Cases left open by bounds."""

    instance: Instance
    most_stages: int  # Upper bound on the stages of a plan.
    bound: Callable[[Case, float], float]  # Lower bound (s) of a case, as precise as the given seconds require.
    near: float  # Seconds; a case with a higher bound is settled.
    deadline: Deadline  # For bounding.
    beside: Beside | None = None  # Other processes; None: none.
    # Cases in all; a number of replicas and stages with a schedule that compute settles counts once per rank order.
    count: int = field(init=False, default=0)
    _compute: ComputeBound = field(init=False)
    _room: RoomBound = field(init=False)
    _families: Families = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._compute, self._room = ComputeBound(self.instance), RoomBound(self.instance)
        self._families = Families(self.instance, self.most_stages)

    def listed(self) -> list[OpenCase] | None:
        """List the cases that compute and room leave open; None: the deadline has passed."""
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
        """Count the cases of some families and list the open ones; None: the deadline has passed."""
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
        """Sort the cases that further bounds leave, most promising first.

        They are bounded in listing order, in which neighbours mostly share stage costs.
        """
        left = self._left(waiting)
        if parts_alike(self.instance):
            apart = [OpenCase(case, each.bound, NEAR) for each in left for case in told_apart(self.instance, each.case)]
            self.count += len(apart) - len(left)
            left = self._left(apart)
        return sorted(left, key=lambda each: each.bound)

    def _left(self, waiting: Sequence[OpenCase]) -> list[OpenCase]:
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
    """Map a function over items in order, in several processes if it takes long."""
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
