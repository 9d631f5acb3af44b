"""What each boundary of a plan below some step time must be like: limits that follow from each other.

Boundary `i` of `s` stages has `i` stages in front of it. None takes longer than the slowest may, and each pays for what
crosses its boundaries; so the layers in front, with what crosses, have limited time, and those behind as well. How
little can cross one boundary within these limits is a small question to CP-SAT (one boolean for each layer). Each
answer leaves less time to the layers, which tightens the limits of all boundaries. Where the least that crosses all of
them takes too long, there is no such plan.
"""

from __future__ import annotations

from itertools import accumulate
from math import ceil, floor
from typing import TYPE_CHECKING

import numpy
from attrs import define, field, frozen

from nest.instance import Instance
from nest.solve.cpsat.cases import Case
from nest.solve.cpsat.cuts import Floats, inseparable_layers
from nest.solve.cpsat.least_costs import LeastCosts
from nest.solve.cpsat.scaling import LARGEST_COEFFICIENT, floors
from nest.solve.inseparable import homes
from nest.tolerances import SUM_ERROR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ortools.sat.python.cp_model import CpModel

    from nest.solve.cpsat.placement import Term
    from nest.solve.cpsat.solver import Effort

PRECISION = 2**26
"""Ticks of the time, and units of the bytes, of all layers: rounding a thousand layers down loses a ten-thousandth of a
stage at most, and no sum comes near what CP-SAT gets wrong."""

ROUNDS = 4
"""How often the limits of all boundaries are drawn tighter by each other; more hardly ever changes anything."""

GROWTH = 0.05
"""Share of the way from the bound to the step time that a round must close for another one to be worth its time."""

EFFORT = 0.3
"""CP-SAT's deterministic seconds for one boundary; what it has proved by then counts."""


@frozen(eq=False)
class Limits:
    """What holds at each boundary of every plan of a case that is below a step time; boundary 0 and the last are ends.

    Attributes:
        slowest: seconds that no stage takes longer.
        front: seconds that the layers in front compute at most. Shape `(stages + 1,)`.
        behind: seconds that the layers behind compute at most. Shape `(stages + 1,)`.
        least: seconds that what crosses takes at least. Shape `(stages + 1,)`.
        most: seconds that what crosses takes at most. Shape `(stages + 1,)`.
        bound: seconds that no plan of the case takes less, or none that is below the step time.
    """

    slowest: float
    front: Floats
    behind: Floats
    least: Floats
    most: Floats
    bound: float


def limits_of(costs: LeastCosts, case: Case, target: float, least: Floats, *, relayed: bool = True) -> Limits | None:
    """The limits that follow from what crosses each boundary at least; None: no plan is below `target`.

    What is not `relayed` is paid for by its maker and a reader, however many boundaries it crosses.
    """
    stages, total = case.stages, costs.total + 2 * float(least.sum() if relayed else least.max())
    bound = costs.step_time(case, total)
    if bound > target:
        return None
    slowest = min(costs.slowest_limit(case, target, total), costs.total_limit(case, target, total))
    together = min(costs.total_limit(case, target, total), stages * slowest)
    # What is left over for all boundaries, each of which is paid for on both sides.
    spare = max((together - total) / 2, 0.0) * (1 + SUM_ERROR) + SUM_ERROR * total
    most = least + spare if relayed else numpy.full(stages + 1, float(least.max()) + spare)
    most[0] = most[-1] = 0.0
    numbers = numpy.arange(stages + 1)
    crossed = numpy.array([0.0, *accumulate(least.tolist() if relayed else [0.0] * (stages + 1))])
    # In front of boundary i are i stages, which pay for boundaries 1 to i - 1 twice and for boundary i once.
    front = numbers * slowest - 2 * crossed[numbers] - least
    behind = (stages - numbers) * slowest - 2 * (crossed[-1] - crossed[numbers + 1]) - least
    return Limits(slowest, front, behind, least, most, bound)


@define(eq=False)
class Boundaries:
    """The questions about single boundaries of an instance.

    Attributes:
        instance: the problem.
        effort: how CP-SAT may work.
    """

    instance: Instance
    effort: Effort
    _home: list[int] = field(init=False)
    _latest: dict[Case, tuple[float, Limits | None]] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self._home = homes(self.instance.graph, inseparable_layers(self.instance))

    def limits(self, costs: LeastCosts, case: Case, target: float) -> Limits | None:
        """The tightest limits found for plans of a case below `target`; None: there is no such plan.

        Those of the latest target of each case are remembered.
        """
        known = self._latest.get(case)
        if known is None or known[0] != target:
            known = self._latest[case] = target, self._tightened(costs, case, target)
        return known[1]

    def _tightened(self, costs: LeastCosts, case: Case, target: float) -> Limits | None:
        least, relayed = numpy.zeros(case.stages + 1), not self.instance.space.direct
        limits = limits_of(costs, case, target, least, relayed=relayed)
        for _ in range(ROUNDS if case.stages > 1 else 0):
            if limits is None or self.effort.deadline.passed:
                return limits
            before = limits.bound
            for boundary in range(1, case.stages):
                crossing = self._least_crossing(costs, case, limits, boundary)
                if crossing is None:
                    return None
                least[boundary] = max(least[boundary], crossing)
                limits = limits_of(costs, case, target, least, relayed=relayed)
                if limits is None:
                    return None
            if limits.bound - before <= (target - before) * GROWTH:
                break
        return limits

    def _least_crossing(self, costs: LeastCosts, case: Case, limits: Limits, boundary: int) -> float | None:
        """Seconds that what crosses a boundary takes at least within the limits; None: nothing keeps them."""
        from ortools.sat.python import cp_model

        model = cp_model.CpModel()
        own = [model.new_bool_var("") for _ in self._home]
        row = [own[home] for home in self._home]
        crossing = crossing_tensors(model, self.instance, row)
        add_closure(model, self.instance, row)
        cost, tick = restrict(model, costs, limits, case, boundary, row, crossing)
        model.minimize(cost)
        solver, status = self.effort.ask_once(model, EFFORT)
        if status == "INFEASIBLE":
            return None
        if status not in ("OPTIMAL", "FEASIBLE", "UNKNOWN"):
            return 0.0
        return max(solver.best_objective_bound, 0.0) * tick * (1 - SUM_ERROR)


def add_closure(model: CpModel, instance: Instance, row: Sequence[Term]) -> None:
    """What reads from a layer behind a boundary lies behind it; neither side is empty."""
    model.add(sum(row) >= 1)
    model.add(sum(row) <= len(row) - 1)
    for producer, consumers in instance.graph.tensors:
        for consumer in consumers:
            if row[producer] is not row[consumer]:
                model.add(row[producer] <= row[consumer])


def crossing_tensors(model: CpModel, instance: Instance, row: Sequence[Term]) -> list[Term]:
    """Which tensors cross a boundary, at least: made in front, read behind."""
    terms: list[Term] = []
    for producer, consumers in instance.graph.tensors:
        crosses = model.new_bool_var("")
        for consumer in consumers:
            if row[producer] is not row[consumer]:
                model.add(crosses >= row[consumer] - row[producer])
        terms.append(crosses)
    return terms


def restrict(
    model: CpModel,
    costs: LeastCosts,
    limits: Limits,
    case: Case,
    boundary: int,
    row: Sequence[Term],
    crossing: Sequence[Term],
) -> tuple[Term, float]:
    """Keep a boundary within the limits; what crosses it, in ticks rounded down, and the seconds of a tick.

    Args:
        model: is added to.
        costs: of the case.
        limits: to be kept.
        case: the case.
        boundary: its number, from 1.
        row: whether each layer lies behind it.
        crossing: whether each tensor crosses it.
    """
    tick = (max(costs.total, float(limits.most[boundary])) or 1.0) / PRECISION
    sends, work = floors(costs.sends(boundary), tick), floors(costs.work, tick)
    spent: Term = sum((size * each for size, each in zip(sends, crossing, strict=True) if size), start=0)
    late = floors(costs.latency[[boundary]], tick)[0]
    if late and any(sends):
        some = model.new_bool_var("")
        for size, each in zip(costs.sizes.tolist(), crossing, strict=True):
            if size > 0:
                model.add(some >= each)
        spent = spent + late * some
    model.add(spent <= ceiling(limits.most[boundary], tick))
    model.add(_over(work, row, 1) + spent <= ceiling(limits.behind[boundary] + limits.least[boundary], tick))
    model.add(_over(work, row, 0) + spent <= ceiling(limits.front[boundary] + limits.least[boundary], tick))
    unit = (float(costs.rooms.sum()) or 1.0) / PRECISION
    held = floors(costs.held, unit)
    for side, room in enumerate((float(costs.rooms[:boundary].sum()), float(costs.rooms[boundary:].sum()))):
        if sum(held) > ceiling(room, unit):
            model.add(_over(held, row, side) <= ceiling(room, unit))
    return spent, tick


def _over(values: Sequence[int], row: Sequence[Term], side: int) -> Term:
    """What the layers behind a boundary add up to (1), or those in front of it (0)."""
    return sum((v * (each if side else 1 - each) for v, each in zip(values, row, strict=True) if v), start=0)


def ceiling(value: float, unit: float) -> int:
    """A limit in whole units, rounded up; no sum of what is limited exceeds the largest."""
    ticks = value / unit * (1 + SUM_ERROR) if value > 0 else value / unit
    if ticks >= LARGEST_COEFFICIENT * 4.0:
        return LARGEST_COEFFICIENT * 4
    return ceil(ticks) if ticks > floor(ticks) else int(ticks)
