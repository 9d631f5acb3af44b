"""Choices of stages in models over layers, and layers in their first blocks (PROBLEM.md section 3)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from attrs import frozen

from nest.instance import Partial, partial
from nest_cpsat.first_blocks import pair_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ortools.sat.python.cp_model import CpModel, IntVar

    from nest_cpsat.cases import Case
    from nest_cpsat.placement import Term


@frozen
class Choice:
    """A candidate with the modes of a stage."""

    candidate: int  # Index.
    recompute: str  # Recompute mode; for partial ones their common part (`pair_of`).
    zero: int  # ZeRO stage.
    counts: tuple[int, ...] = ()  # Allowed numbers of first blocks; empty: all blocks are recomputed.

    @property
    def part(self) -> Partial | None:
        """Modes of first and other blocks; None: all blocks use one mode."""
        return partial(self.recompute)

    @classmethod
    def of(cls, case: Case) -> list[Choice]:
        """Possible choices of the stages of a case."""
        counts = defaultdict[tuple[int, str, int], list[int]](list)
        for candidate, usable in zip(case.candidates, case.modes, strict=True):
            for recompute, zero in usable:
                part = partial(recompute)
                counts[candidate, pair_of(recompute), zero] += [] if part is None else [part.layers]
        return [cls(*each, tuple(sorted(own))) for each, own in counts.items()]


@frozen(eq=False)
class FirstLayers:
    """Layers in the first blocks of a stage."""

    count: IntVar  # Number of first blocks; a stage may hold fewer.
    inside: dict[int, IntVar]  # For each layer in a block, whether the stage runs it in a first block.

    @classmethod
    def of(
        cls, model: CpModel, units: Sequence[tuple[int, ...]], runs: Callable[[int], Term], count: IntVar
    ) -> FirstLayers:
        """Add the first layers of a stage to a model.

        `units` has the layers of each block in pipeline order; `runs` tells whether the stage runs a layer.
        """
        ahead, inside = list["Term"](), dict[int, "IntVar"]()
        for unit in units:
            held, first = model.new_bool_var(""), model.new_bool_var("")
            ahead.append(held)
            for layer in unit:
                model.add(held >= runs(layer))
                inside[layer] = model.new_bool_var("")
                model.add(inside[layer] <= runs(layer))
                model.add(inside[layer] <= first)
                model.add(inside[layer] >= first + runs(layer) - 1)
            model.add(held <= sum(runs(layer) for layer in unit))
            model.add_implication(first, held)
            # The stage holds so many blocks up to this one.
            model.add(sum(ahead) <= count).only_enforce_if(first)
            model.add(sum(ahead) > count).only_enforce_if(held, ~first)
        return cls(count, inside)
