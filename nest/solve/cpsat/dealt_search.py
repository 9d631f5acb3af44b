"""How a case of several chunks is settled: by its bound, or by a model of modes and places."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from nest.solve.cpsat.dealt import DealtBook, DealtModel, TooLarge
from nest.solve.cpsat.scaling import TERMS

if TYPE_CHECKING:
    from nest.instance import Instance
    from nest.solve.cpsat.cases import Case
    from nest.solve.cpsat.search import Open, Search


@define(eq=False)
class DealtCases:
    """The cases of several chunks of a search.

    Attributes:
        instance: the problem.
    """

    instance: Instance
    _book: DealtBook = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._book = DealtBook(self.instance)

    def bound(self, case: Case) -> float:
        """Seconds no plan of the case is below; infinite where nothing fits."""
        return self._book.of(case).bound(self.instance, case)

    def settles(self, search: Search, each: Open, effort: float) -> bool:
        """Whether the case is settled: it holds no better plan, or its best is now the one to beat."""
        dealt, too_large = self._book.of(each.case), set[TooLarge]()
        while True:
            fitting = dealt.fits(self.instance, too_large)
            if not all(fitting):
                return True
            scaled, limit = search.scaled(each.case, TERMS)
            model = DealtModel(self.instance, each.case, dealt, fitting, scaled, limit, ordered=search.ordered)
            answer = search.judged(each, model.model, model.solution, scaled, effort)
            if isinstance(answer, bool):
                return answer
            too_large |= answer
