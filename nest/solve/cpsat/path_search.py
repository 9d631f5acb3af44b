"""The search where every stage can be listed: chains, and graphs with few branches."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from attrs import define, field

from nest.instance import chunks_of
from nest.solve.cpsat.bounds import Relaxation
from nest.solve.cpsat.cases import Case
from nest.solve.cpsat.cuts import Cuts
from nest.solve.cpsat.model import PathModel, TooManyChoicesError
from nest.solve.cpsat.narrow import Narrowed, Overfull, narrow
from nest.solve.cpsat.placement import TooManyPlacesError
from nest.solve.cpsat.scaling import TERMS
from nest.solve.cpsat.search import NEAR, Open, Search
from nest.solve.cpsat.stages import StageBook

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel

FEW_CHOICES = 4_000
"""Choices of the stages of all cases up to which one joint model asks about them, without any bounds."""

JOINT_EFFORT = 2.0
"""CP-SAT's deterministic seconds for a joint model; after them it is case by case."""


@define
class PathSearch(Search):
    """Asks for paths through the cuts.

    Attributes:
        cuts: every cut of the layer graph.
    """

    cuts: Cuts = field(kw_only=True)
    _relaxation: Relaxation = field(init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._relaxation = Relaxation(self.instance, self.cuts, StageBook(self.instance, self.cuts))

    def most_stages(self) -> int:
        """More stages than this no plan has."""
        return self.cuts.longest

    def bound(self, case: Case) -> float:
        """The bound over paths."""
        return self._relaxation.of(case, self.target * NEAR)

    def none_of_few(self, every: Sequence[Case]) -> bool:
        """Whether one model of all cases proves that there is no better plan; one that it finds is taken."""
        if any(chunks_of(case.schedule) > 1 for case in every):
            return False
        # Of all plans, however slow: no bound but memory takes part.
        possible = [(case, narrow(self._relaxation, case, inf)) for case in every]
        narrowed = [(case, found) for case, found in possible if found is not None]
        if sum(len(each) for _, found in narrowed for each in found.choices) > FEW_CHOICES:
            return False
        joint = self._joint_model(narrowed)
        if joint is None:
            return False
        model, parts = joint
        self._models += 1
        solver, status = self.effort.ask(model, JOINT_EFFORT)
        if status == "INFEASIBLE":
            return True
        if status in ("OPTIMAL", "FEASIBLE"):
            solution, _ = next(part.solution(solver.value) for part in parts if solver.value(part.chosen))
            price = self.pricing(solution)
            if not any(price.overfull):
                self.takes(solution, price)
        return False

    def _joint_model(self, narrowed: Sequence[tuple[Case, Narrowed]]) -> tuple[CpModel, list[PathModel]] | None:
        from ortools.sat.python import cp_model

        model, parts = cp_model.CpModel(), []
        try:
            for case, found in narrowed:
                scaled, limit = self.scaled(case, TERMS)
                part = PathModel(
                    self._relaxation, case, found.choices, scaled, limit, ordered=self.ordered, joint=model
                )
                parts.append(part)
        except TooManyPlacesError:
            return None
        model.add(sum(part.chosen for part in parts) == 1)
        return model, parts

    def settles(self, each: Open, effort: float) -> bool:
        """Whether the case is settled: it holds no better plan, or its best is now the one to beat."""
        overfull: Overfull = frozenset()
        while True:
            narrowed = narrow(self._relaxation, each.case, self.target * each.margin, overfull)
            if narrowed is None:
                self._pruned += not overfull
                return True
            # Below the margin the bound is that of plans up to there only; no more than the target is known of all.
            each.bound = max(each.bound, narrowed.bound)
            scaled, limit = self.scaled(each.case, TERMS)
            try:
                model = PathModel(self._relaxation, each.case, narrowed.choices, scaled, limit, ordered=self.ordered)
            except (TooManyChoicesError, TooManyPlacesError) as reason:
                each.stuck = str(reason)
                return False
            answer = self.judged(each, model.model, model.solution, scaled, effort)
            if isinstance(answer, bool):
                return answer
            overfull |= answer
