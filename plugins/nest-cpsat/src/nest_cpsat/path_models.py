"""Models of cases whose stages can all be listed, and one model of several cases."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from attrs import define, field

from nest.instance import Instance
from nest_cpsat.bounds import ReducedCase, Relaxation, reduce
from nest_cpsat.cases import Case, LimitOf, OpenCase
from nest_cpsat.cuts import Cuts
from nest_cpsat.path_model import PathModel
from nest_cpsat.placement import TooManyPlacesError
from nest_cpsat.scaling import TERMS
from nest_cpsat.stage_cost_cache import StageCostCache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ortools.sat.python.cp_model import CpModel

FEW_CHOICES = 4_000  # Most choices of all cases in one joint model without bounds.


@define(eq=False)
class PathModels:
    """Models of cases whose stages can all be listed: chains, and graphs with few branches."""

    instance: Instance
    cuts: Cuts
    _relaxation: Relaxation = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._relaxation = Relaxation(self.instance, self.cuts, StageCostCache(self.instance, self.cuts))

    @property
    def most_stages(self) -> int:
        """Upper bound on the stages of a plan."""
        return self.cuts.longest

    def bound(self, case: Case, target: float) -> float:
        """Lower bound (s) of a case over paths, as precise as `target` requires."""
        return self._relaxation.of(case, target)

    def model(
        self, each: OpenCase, target: float, overfull: Sequence[Any], limit_of: LimitOf, *, ordered: bool
    ) -> PathModel | None:
        """Model of a case without `overfull` choices; None: no plan is below the target.

        Raises:
            TooManyChoicesError: too many variables.
            TooManyPlacesError: blocks of several widths have too many places.
        """
        reduced = reduce(self._relaxation, each.case, target, overfull)
        if reduced is None:
            return None
        # The bound covers only plans up to the margin.
        each.bound = max(each.bound, reduced.bound)
        limit = limit_of(each.case, TERMS)
        decided = self._relaxation, each.case, reduced.choices, limit
        return PathModel(*decided, ordered=ordered, paths=each.paths, excluded=each.excluded)

    def joint_model(
        self, every: Sequence[Case], limit_of: LimitOf, *, ordered: bool
    ) -> tuple[CpModel, list[PathModel]] | None:
        """One model of few cases with all their plans; None: too large."""
        from ortools.sat.python import cp_model

        # No bound but memory takes part.
        possible = [(case, reduce(self._relaxation, case, inf)) for case in every]
        reduced: list[tuple[Case, ReducedCase]] = [(case, left) for case, left in possible if left is not None]
        if sum(len(each) for _, left in reduced for each in left.choices) > FEW_CHOICES:
            return None
        model, parts = cp_model.CpModel(), []
        try:
            for case, left in reduced:
                limit = limit_of(case, TERMS)
                parts.append(PathModel(self._relaxation, case, left.choices, limit, ordered=ordered, joint=model))
        except TooManyPlacesError:
            return None
        model.add(sum(part.chosen for part in parts) == 1)
        return model, parts
