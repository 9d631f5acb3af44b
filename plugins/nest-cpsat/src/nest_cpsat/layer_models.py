"""Models over layers for all cases of an instance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from nest.instance import Instance
from nest_cpsat.cases import Case, LimitOf, OpenCase
from nest_cpsat.layer_model import LayerModel
from nest_cpsat.placement import TooManyPlacesError
from nest_cpsat.skip_connections import DirectModel


@frozen(eq=False)
class LayerModels:
    """Models of cases with too many stages to list, for graphs with many branches."""

    instance: Instance

    @property
    def most_stages(self) -> int:
        """Upper bound on the stages of a plan."""
        return len(self.instance.graph.layers)

    def bound(self, case: Case, target: float) -> float:
        """Lower bound of a case; none cheap is known."""
        return 0.0

    def model(
        self, each: OpenCase, target: float, overfull: Sequence[Any], limit_of: LimitOf, *, ordered: bool
    ) -> LayerModel:
        """Model of a case without `overfull` stages.

        Raises:
            TooManyPlacesError: blocks of several widths have too many places, or use pools.
        """
        if self.instance.pools is not None:
            raise TooManyPlacesError("the layer graph has too many cuts to list for pools")
        kind = DirectModel if self.instance.space.direct else LayerModel
        model = kind(self.instance, each.case, limit_of(each.case, self._terms(each.case)), ordered=ordered)
        for choice in overfull:
            model.forbid([choice])
        for plan in each.excluded:
            model.forbid(*plan)
        return model

    def _terms(self, case: Case) -> int:
        """Terms of one stage's time that are rounded down separately."""
        instance = self.instance
        states = [instance.candidates[each].state for each in case.candidates]
        # Computation, what it hides, and what goes in pieces, layer by layer.
        pieces = any(group.pieces is not None for state in states for group in state)
        layers = len(instance.graph.layers) * (1 + instance.space.hiding + 3 * pieces)
        return layers + 2 * len(instance.graph.tensors) + 4 * max(map(len, states)) + 2
