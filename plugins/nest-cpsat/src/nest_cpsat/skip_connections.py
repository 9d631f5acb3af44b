"""Model over layers with tensors sent directly from their stage to the stages that read them.

Received tensors depend on the stage that made them, so there are variables by stage and tensor (`search.tensors:
direct` in docs/explanation/problem.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nest.reuse import remembered
from nest_cpsat.layer_model import LayerModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ortools.sat.python.cp_model import IntVar

    from nest_cpsat.placement import Literals, Term
    from nest_cpsat.scaling import Scale


class DirectModel(LayerModel):
    """Model of one case over layers, with tensors sent directly."""

    def _entering(self, stage: int) -> Sequence[Term]:
        return self._read(stage)

    def _messages(self, scale: Scale, most: int) -> list[tuple[dict[int, Term], dict[int, Term]]]:
        """Ticks of received activations and gradients, by stage and level."""
        levels = self._levels if self._case.stages > 1 else []
        return [
            (
                {level: self._spent(stage, self._read_over(stage, level), level, scale, most) for level in levels},
                {level: self._spent(stage, self._sent_over(stage, level), level, scale, most) for level in levels},
            )
            for stage in range(self._case.stages)
        ]

    @property
    def _levels(self) -> list[int]:
        return sorted({level for near in self._placement.levels for level in near})

    def _spent(self, stage: int, over: Sequence[Term], level: int, scale: Scale, most: int) -> Term:
        """Ticks of a stage for one message of these tensors over a level."""
        spent, link = self.model.new_int_var(0, most, ""), self._instance.cluster.levels[level]
        for candidate in self._case.candidates:
            sizes = self._instance.candidates[candidate].tensor_bytes.tolist()
            used = sum(literal for choice, literal in self._taken[stage].items() if choice.candidate == candidate)
            ticks = [scale.ticks(size / link.bandwidth) for size in sizes]
            some, this = self.model.new_bool_var(""), self.model.new_bool_var("")
            self.model.add(this >= used)
            for size, each in zip(sizes, over, strict=True):
                if size > 0:
                    self.model.add(some >= each)
            total = scale.ticks(link.latency) * some + sum(t * each for t, each in zip(ticks, over, strict=True))
            self.model.add(spent >= total).only_enforce_if(this)
        return spent

    @remembered
    def _read(self, stage: int) -> list[IntVar]:
        terms = []
        for producer, consumers in self._instance.graph.tensors:
            reads = self.model.new_bool_var("")
            for consumer in consumers:
                self.model.add(reads >= self._runs(stage, consumer) - self.behind[stage][producer])
            terms.append(reads)
        return terms

    @remembered
    def _sent(self, stage: int) -> list[IntVar]:
        terms, after = [], self.behind[stage + 1]
        for producer, consumers in self._instance.graph.tensors:
            sends = self.model.new_bool_var("")
            for consumer in consumers:
                self.model.add(sends >= after[consumer] + self._runs(stage, producer) - 1)
            terms.append(sends)
        return terms

    def _read_over(self, stage: int, level: int) -> list[IntVar]:
        """Tensors that a stage reads over a level."""
        if len(self._levels) == 1:
            return self._read(stage)
        terms = []
        for index, (producer, consumers) in enumerate(self._instance.graph.tensors):
            comes = self.model.new_bool_var("")
            for maker in range(stage) if consumers else ():
                apart = self._apart(maker, stage).get(level, 0)
                self.model.add(comes >= self._read(stage)[index] + self._runs(maker, producer) + apart - 2)
            terms.append(comes)
        return terms

    def _sent_over(self, stage: int, level: int) -> list[IntVar]:
        """Tensors of a stage with their last reader at a level."""
        if len(self._levels) == 1:
            return self._sent(stage)
        terms = []
        for index, (producer, consumers) in enumerate(self._instance.graph.tensors):
            goes = self.model.new_bool_var("")
            for reader in range(stage + 1, self._case.stages) if consumers else ():
                last = self._read_behind(index, reader) - self._read_behind(index, reader + 1)
                apart = self._apart(stage, reader).get(level, 0)
                self.model.add(goes >= self._runs(stage, producer) + last + apart - 2)
            terms.append(goes)
        return terms

    @remembered
    def _read_behind(self, tensor: int, boundary: int) -> Term:
        """1 if a reader of a tensor is behind a boundary."""
        row, (_, consumers) = self.behind[boundary], self._instance.graph.tensors[tensor]
        if boundary == self._case.stages:
            return 0
        some = self.model.new_bool_var("")
        self.model.add_max_equality(some, [row[consumer] for consumer in consumers])
        return some

    @remembered
    def _apart(self, one: int, other: int) -> Literals:
        """Indicators of the level between two stages: the outermost of the boundaries between them."""
        if other == one + 1:
            return self._placement.levels[one]
        within: list[Term] = []
        for level in self._levels:
            inside = self.model.new_bool_var("")
            each = [
                sum((literal for own, literal in self._placement.levels[boundary].items() if own <= level), start=0)
                for boundary in range(one, other)
            ]
            for literal in each:
                self.model.add(inside <= literal)
            self.model.add(inside >= sum(each) - len(each) + 1)
            within.append(inside)
        return {level: within[place] - (within[place - 1] if place else 0) for place, level in enumerate(self._levels)}
