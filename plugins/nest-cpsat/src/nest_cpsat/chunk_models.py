"""Models of cases of several chunks, with their bound and the small model tried before."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from attrs import define, field

from nest.instance import Instance, chunks_of
from nest_cpsat.chunk_model import ChunkModel
from nest_cpsat.chunk_stages import ChunkCases
from nest_cpsat.content_model import content_model
from nest_cpsat.path_model import MOST_CHOICES
from nest_cpsat.placement import TooManyChoicesError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ortools.sat.python.cp_model import CpModel

    from nest_cpsat.cases import Case, LimitOf, OpenCase


@define(eq=False)
class ChunkModels:
    """Models of cases of several chunks."""

    instance: Instance
    _cases: ChunkCases = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._cases = ChunkCases(self.instance)

    def bound(self, case: Case, target: float) -> float:
        """Lower bound of a case in seconds, as precise as `target` requires.

        Every boundary uses its cheapest link, and contents add up to all units, whatever the chunks.
        """
        try:
            narrowed = self._cases.of(case).narrowed(target)
        except TooManyChoicesError:
            return 0.0
        # With choices left out, the bound covers only plans up to the target.
        return inf if narrowed is None else min(narrowed[1], target)

    def outline(self, each: OpenCase, target: float, limit_of: LimitOf) -> CpModel | None:
        """Model of a case without chunk borders; None: there is none, or any plan is better."""
        try:
            numbers = self._cases.of(each.case)
            narrowed = numbers.narrowed(target)
        except TooManyChoicesError:
            return None
        limit = limit_of(each.case, 1)
        if narrowed is None or limit is None or sum(map(len, narrowed[0])) > MOST_CHOICES:
            return None
        return content_model(numbers.contents, [numbers.needed(own) for own in narrowed[0]], limit)

    def model(
        self, each: OpenCase, target: float, overfull: Sequence[Any], limit_of: LimitOf, *, ordered: bool
    ) -> ChunkModel | None:
        """Model of a case without `overfull` stages; None: no plan is below the target.

        Raises:
            TooManyChoicesError: too many variables.
        """
        numbers = self._cases.of(each.case)
        narrowed = numbers.narrowed(target)
        if narrowed is None:
            return None
        choices, bound = [numbers.needed(own) for own in narrowed[0]], narrowed[1]
        each.bound = max(each.bound, min(bound, target))
        if sum(map(len, choices)) > MOST_CHOICES:
            raise TooManyChoicesError(f"the stages have more than {MOST_CHOICES} choices")
        # The stage itself, and what each of its chunks sends and receives.
        limit = limit_of(each.case, 1 + 2 * chunks_of(each.case.schedule))
        return ChunkModel(numbers, choices, overfull, limit, each, ordered=ordered)
