"""First blocks of each chunk, in the model of a case of several chunks (PROBLEM.md section 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy
from attrs import define

from nest.instance import partial
from nest.reuse import remembered
from nest_cpsat.layer_choices import FirstLayers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ortools.sat.python.cp_model import CpModel, IntVar

    from nest_cpsat.chunk_stages import ChunkCase, ChunkChoices
    from nest_cpsat.placement import Term


@define(eq=False, slots=False)
class ChunkParts:
    """The first blocks of each chunk, as many as its stage recomputes.

    `behind` has the units behind each boundary, outer ends included.
    """

    model: CpModel
    numbers: ChunkCase
    chunks: Sequence[Sequence[int]]
    behind: Sequence[Sequence[Term]]

    @remembered
    def count(self, stage: int) -> IntVar:
        """Blocks of each chunk that a stage recomputes, if it recomputes parts."""
        return self.model.new_int_var(1, len(self.numbers.instance.space.units), "first blocks")

    @remembered
    def inside(self, chunk: int) -> dict[tuple[int, int], IntVar]:
        """By unit and block in it, whether the block is among the first of a chunk."""
        counts = {count for row in self.numbers.rows for count in self.numbers.counts(row)}
        return self._of_any(chunk) if len(counts) > 1 else self._of_so_many(chunk, min(counts))

    def _of_any(self, chunk: int) -> dict[tuple[int, int], IntVar]:
        """Same, if stages may recompute different numbers of blocks."""
        stage = next(stage for stage, own in enumerate(self.chunks) if chunk in own)
        every = [(*each, self.runs(chunk, each[0])) for each in self.numbers.contents.blocks.places]
        held = {each[:2]: each[2] for each in every if not isinstance(each[2], int) or each[2]}
        places, terms = list(held), list(held.values())
        units = [(number,) for number in range(len(places))]
        first = FirstLayers.of(self.model, units, terms.__getitem__, self.count(stage))
        return {places[number]: literal for number, literal in first.inside.items()}

    def _of_so_many(self, chunk: int, count: int) -> dict[tuple[int, int], IntVar]:
        """Same, for a fixed number: the chunk does not hold the unit of the block `count` places earlier."""
        (ahead, after), places, inside = self.behind[chunk : chunk + 2], self.numbers.contents.blocks.places, {}
        for number, (unit, place) in enumerate(places):
            if isinstance(held := self.runs(chunk, unit), int) and not held:
                continue
            near = ahead[unit] - (ahead[places[number - count][0]] if number >= count else 0)
            inside[unit, place] = self.model.new_bool_var("")
            self.model.add(inside[unit, place] >= near - after[unit])
            self.model.add(inside[unit, place] <= near)
            self.model.add(inside[unit, place] <= 1 - after[unit])
        return inside

    def runs(self, chunk: int, unit: int) -> Term:
        """1 if a chunk holds a unit."""
        return self.behind[chunk][unit] - self.behind[chunk + 1][unit]

    def over(self, chunk: int, values: Sequence[Sequence[int]]) -> Term:
        """Sum over a chunk's units of values by unit and number of its first blocks."""
        whole = sum((own[0] * self.runs(chunk, unit) for unit, own in enumerate(values) if own[0]), start=0)
        if all(len({*own}) == 1 for own in values):
            return whole
        inside = self.inside(chunk).items()
        return whole + sum(
            (values[unit][place + 1] - values[unit][place]) * literal for (unit, place), literal in inside
        )

    def bind(self, stage: int, choices: ChunkChoices, taken: Sequence[IntVar]) -> None:
        """Tie a stage's first blocks and their number to its content, where it recomputes parts."""
        from ortools.sat.python.cp_model import Domain, LinearExpr

        contents, modes = self.numbers.contents, self.numbers.costs.modes
        for row in sorted({*choices.mode.tolist()}):
            places = numpy.flatnonzero(choices.mode == row).tolist()
            counts = self.numbers.counts(row)
            if partial(modes[row][0]) is None:
                continue
            own, used = [taken[place] for place in places], self.model.new_bool_var("")
            self.model.add(sum(own) == used)
            self.model.add_linear_expression_in_domain(self.count(stage), Domain.from_values(counts)).only_enforce_if(
                used
            )
            first = contents.first[choices.content[places]]
            for each in range(first.shape[1]):
                for place in range(first.shape[2]):
                    found = [
                        literal
                        for chunk in self.chunks[stage]
                        for (unit, its), literal in self.inside(chunk).items()
                        if its == place and contents.unit_class[unit] == each
                    ]
                    held = LinearExpr.weighted_sum(own, first[:, each, place].tolist())
                    self.model.add(held == sum(found)).only_enforce_if(used)
