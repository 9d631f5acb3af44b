"""Variables for the stage and mode of each layer, shared by models over layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from nest.instance import Candidate, Instance, RecomputeMode
from nest.reuse import remembered
from nest_cpsat.cases import Case
from nest_cpsat.cuts import even_stages, inseparable_layers
from nest_cpsat.layer_choices import Choice, FirstLayers

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, IntVar

    from nest_cpsat.placement import Term


class LayerStages:
    """Stages of a case by layer.

    Attributes:
        behind: for each boundary, outer ends included, the layers behind it.
        crossing: for each boundary between stages, the tensors across it.
    """

    def __init__(self, instance: Instance, case: Case) -> None:
        from ortools.sat.python import cp_model

        self._instance, self._case = instance, case
        self.model: CpModel = cp_model.CpModel()
        self._count = len(instance.graph.layers)
        self.behind = self._boundaries()
        self._choices = Choice.of(case)
        self._taken = [
            {choice: self.model.new_bool_var(f"{i}:{choice}") for choice in self._choices} for i in range(case.stages)
        ]
        for stage, row in enumerate(self._taken):
            self.model.add_exactly_one(row.values())
            for choice, taken in row.items() if any(each.counts for each in row) else ():
                counts = cp_model.Domain.from_values(choice.counts or [1])
                self.model.add_linear_expression_in_domain(self._first(stage).count, counts).only_enforce_if(taken)
        self.crossing = [self._tensors_across(i) for i in range(1, case.stages)]

    def _boundaries(self) -> list[list[Term]]:
        """Layers behind each boundary, outer ends included."""
        stages, model = self._case.stages, self.model
        inner: list[list[IntVar]] = [
            [model.new_bool_var(f"{layer} behind {i}") for layer in range(self._count)] for i in range(1, stages)
        ]
        terms: list[list[Term]] = [[1] * self._count]
        terms += [[*row] for row in inner]
        terms.append([0] * self._count)
        for ahead, after in pairwise(terms):
            for one, two in zip(ahead, after, strict=True):
                if not (isinstance(one, int) or isinstance(two, int)):
                    model.add(two <= one)
            model.add(sum(ahead) - sum(after) >= 1)
        for row in inner:
            for producer, consumers in self._instance.graph.tensors:
                for consumer in consumers:
                    model.add_implication(row[producer], row[consumer])
            for group in inseparable_layers(self._instance):
                first, *others = sorted(group)
                for other in others:
                    model.add(row[first] == row[other])
        fixed = [(i, layer) for i, layers in enumerate(self._instance.space.partition or ()) for layer in layers]
        if self._instance.space.even:
            fixed += [(int(i), layer) for layer, i in enumerate(even_stages(self._instance, stages))]
        for i, layer in fixed:
            model.add(terms[i][layer] - terms[i + 1][layer] == 1)
        return terms

    def _runs(self, stage: int, layer: int) -> Term:
        return self.behind[stage][layer] - self.behind[stage + 1][layer]

    @remembered
    def _first(self, stage: int) -> FirstLayers:
        units = self._instance.space.units
        count = self.model.new_int_var(1, len(units), "first blocks")
        return FirstLayers.of(self.model, units, partial(self._runs, stage), count)

    def _in_modes(self, stage: int, choice: Choice) -> list[tuple[RecomputeMode, list[Term]]]:
        """Recompute modes of a choice, each with variables for the layers that run in it."""
        used, whole = self._candidate(choice), [self._runs(stage, layer) for layer in range(self._count)]
        if choice.part is None:
            return [(used.mode(choice.recompute), whole)]
        inside = self._first(stage).inside
        first: list[Term] = [inside.get(layer, 0) for layer in range(self._count)]
        others = [one - other for one, other in zip(whole, first, strict=True)]
        return [(used.mode(choice.part.mode), first), (used.mode(choice.part.rest), others)]

    def _by_mode(self, stage: int, choice: Choice, count: Callable[[RecomputeMode], Sequence[int]]) -> Term:
        every = ((count(mode), terms) for mode, terms in self._in_modes(stage, choice))
        return sum((v * term for values, terms in every for v, term in zip(values, terms, strict=True) if v), start=0)

    def _over(self, stage: int, values: Sequence[int]) -> Term:
        return sum((v * self._runs(stage, layer) for layer, v in enumerate(values) if v), start=0)

    def _tensors_across(self, boundary: int) -> list[IntVar]:
        """Tensors made before a boundary and read behind it."""
        row, terms = self.behind[boundary], []
        for producer, consumers in self._instance.graph.tensors:
            crosses = self.model.new_bool_var("")
            for consumer in consumers:
                self.model.add(crosses >= row[consumer] - row[producer])
            terms.append(crosses)
        return terms

    def _candidate(self, choice: Choice) -> Candidate:
        return self._instance.candidates[choice.candidate]
