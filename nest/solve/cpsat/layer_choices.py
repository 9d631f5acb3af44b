"""What stages choose in models over layers, and which layers are in their first blocks (PROBLEM.md section 3)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from attrs import frozen

from nest.instance import Partial, partial
from nest.solve.cpsat.first_blocks import pair_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ortools.sat.python.cp_model import CpModel, IntVar

    from nest.solve.cpsat.cases import Case
    from nest.solve.cpsat.placement import Term


@frozen
class Choice:
    """A candidate and the modes a stage runs it in.

    Attributes:
        candidate: its index.
        recompute: name of its recompute mode; of parts of stages what they have in common (`pair_of`).
        zero: ZeRO stage.
        counts: numbers of first blocks that the stage may recompute; none: it recomputes as a whole.
    """

    candidate: int
    recompute: str
    zero: int
    counts: tuple[int, ...] = ()

    @property
    def part(self) -> Partial | None:
        """The modes of the first blocks and of the others; None: all are in one."""
        return partial(self.recompute)

    @classmethod
    def of(cls, case: Case) -> list[Choice]:
        """What each stage of a case may choose."""
        counts = defaultdict[tuple[int, str, int], list[int]](list)
        for candidate, usable in zip(case.candidates, case.modes, strict=True):
            for recompute, zero in usable:
                part = partial(recompute)
                counts[candidate, pair_of(recompute), zero] += [] if part is None else [part.layers]
        return [cls(*each, tuple(sorted(own))) for each, own in counts.items()]


@frozen(eq=False)
class FirstLayers:
    """Which layers of a stage are in its first blocks.

    Attributes:
        count: how many blocks are first; a stage may hold fewer.
        inside: of each layer in a block, whether the stage runs it and it is in one of them.
    """

    count: IntVar
    inside: dict[int, IntVar]

    @classmethod
    def of(
        cls, model: CpModel, units: Sequence[tuple[int, ...]], runs: Callable[[int], Term], count: IntVar
    ) -> FirstLayers:
        """Those of a stage of a model.

        Args:
            model: is added to.
            units: layers of each block in pipeline order.
            runs: whether the stage runs a layer.
            count: how many blocks are first.
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
