"""Necessary conditions on each stage boundary of a plan below some step time.

Boundary `i` of `s` stages has `i` stages before it. The slowest stage limits the compute on either side, each stage
pays for the tensors that cross its boundaries, and so the layers before and after a boundary have limited time. CP-SAT
finds the least that can cross one boundary within these limits (one boolean per layer). Each answer tightens the limits
of all boundaries. If the least crossings take too long in total, there is no such plan.
"""

from __future__ import annotations

from itertools import accumulate
from math import ceil, floor
from typing import TYPE_CHECKING

import numpy
from attrs import define, field, frozen

from nest.instance import Instance
from nest.solve.inseparable import homes
from nest.tolerances import SUM_ERROR
from nest_cpsat.cases import Case
from nest_cpsat.cuts import Floats, inseparable_layers
from nest_cpsat.least_costs import LeastCosts
from nest_cpsat.scaling import LARGEST_COEFFICIENT, floors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ortools.sat.python.cp_model import CpModel

    from nest_cpsat.placement import Term
    from nest_cpsat.solver import Effort

PRECISION = 2**26
"""Ticks of the time, and units of the bytes, of all layers: rounding a thousand layers down loses at most 1e-4 of a
stage, and no sum comes near the range where CP-SAT errs."""

ROUNDS = 4  # Rounds in which the boundaries tighten each other's limits; more hardly ever help.
GROWTH = 0.05  # Share of the gap between bound and step time that a round must close to be worth another.
EFFORT = 0.3  # CP-SAT's deterministic seconds per boundary; the bound proved by then counts.


@frozen(eq=False)
class Limits:
    """Limits at each boundary of every plan of a case below a step time; boundary 0 and the last are the ends.

    All in seconds, of shape `(stages + 1,)` unless said otherwise.
    """

    slowest: float  # Upper limit on any stage (scalar).
    front: Floats  # Upper limits on the compute before each boundary.
    behind: Floats  # Upper limits on the compute after it.
    least: Floats  # Lower limits on its transfer.
    most: Floats  # Upper limits on its transfer.
    bound: float  # Lower bound on plans of the case, or on those below the step time (scalar).


def limits_of(costs: LeastCosts, case: Case, target: float, least: Floats, *, relayed: bool = True) -> Limits | None:
    """Derive limits from the least transfer at each boundary; None: no plan is below `target`.

    Without `relayed`, sender and one reader pay for a tensor, however many boundaries it crosses.
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
    """Limits of the boundaries of an instance, found with CP-SAT."""

    instance: Instance
    effort: Effort
    _home: list[int] = field(init=False)
    _latest: dict[Case, tuple[float, Limits | None]] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self._home = homes(self.instance.graph, inseparable_layers(self.instance))

    def limits(self, costs: LeastCosts, case: Case, target: float) -> Limits | None:
        """Return the tightest limits found for plans below `target`; None: there is no such plan.

        The limits for the latest target of each case are kept.
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
        """Seconds of the cheapest crossing of a boundary within the limits; None: none is possible."""
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
    """Put every reader of a layer behind a boundary behind it too, and leave neither side empty."""
    model.add(sum(row) >= 1)
    model.add(sum(row) <= len(row) - 1)
    for producer, consumers in instance.graph.tensors:
        for consumer in consumers:
            if row[producer] is not row[consumer]:
                model.add(row[producer] <= row[consumer])


def crossing_tensors(model: CpModel, instance: Instance, row: Sequence[Term]) -> list[Term]:
    """Variables that are at least 1 for each tensor made before a boundary and read behind it."""
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
    """Keep a boundary within the limits; return its transfer in ticks, rounded down, and the seconds of a tick.

    `row` tells for each layer whether it is behind the boundary, `crossing` for each tensor whether it crosses;
    boundaries count from 1.
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
    """Sum over the layers behind a boundary (`side` 1) or before it (0)."""
    return sum((v * (each if side else 1 - each) for v, each in zip(values, row, strict=True) if v), start=0)


def ceiling(value: float, unit: float) -> int:
    """Round a limit up to whole units; it stays below the largest sum CP-SAT handles."""
    ticks = value / unit * (1 + SUM_ERROR) if value > 0 else value / unit
    if ticks >= LARGEST_COEFFICIENT * 4.0:
        return LARGEST_COEFFICIENT * 4
    return ceil(ticks) if ticks > floor(ticks) else int(ticks)
