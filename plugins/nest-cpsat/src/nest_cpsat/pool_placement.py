"""Model of the placement of a replica's blocks on several pools, and the links between them (PROBLEM.md section 8).

Each pool counts its own blocks along its slots; a boundary uses a level of one pool, or the link between two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy

from nest.instance import Instance
from nest_cpsat.cases import Case, seen_by
from nest_cpsat.cuts import Integers
from nest_cpsat.links import links_of
from nest_cpsat.placement import Slots, exactly, slots

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, IntVar

    from nest_cpsat.placement import Literals, Term


class PoolPlacement:
    """Blocks along the slots of each pool.

    Attributes:
        levels: for each boundary, indicators of its possible links, by number (`Links`).
    """

    def __init__(
        self,
        model: CpModel,
        instance: Instance,
        case: Case,
        offered: Sequence[Sequence[tuple[int, IntVar]]],
        chosen: Term,
        *,
        ordered: bool,
    ) -> None:
        """Place the blocks of a case.

        Args:
            offered: candidates of each stage with their variables.
            chosen: 1 if the plan is of the case.
            ordered: blocks of a pool keep pipeline order (monotone placement).
        """
        self._candidates = case.candidates
        self._widths = [instance.candidates[each].width for each in case.candidates]
        links = links_of(instance, case)
        self.levels: list[dict[int, Term]] = [{} for _ in range(case.stages - 1)]
        self._own = []
        for candidate, width in zip(case.candidates, self._widths, strict=True):
            used = [model.new_bool_var(f"stage {i} of {candidate}") for i in range(case.stages)]
            for literal, choices in zip(used, offered, strict=True):
                model.add(sum(taken for each, taken in choices if each == candidate) == literal)
            model.add(sum(used) >= chosen)
            pool = PoolSlots(model, slots(*seen_by(instance, case, candidate), width), used, ordered=ordered)
            self._own.append(pool)
            for near, between in zip(self.levels, pool.levels, strict=True):
                near.update({links.own[candidate][level]: literal for level, literal in between.items()})
        if case.block_devices is not None:
            sizes = zip(self._widths, self._own, strict=True)
            model.add(sum(width * sum(pool.used) for width, pool in sizes) == case.block_devices * chosen)
        for (one, here), (two, there) in combinations(zip(case.candidates, self._own, strict=True), 2):
            number = links.between.get((one, two))
            for i, near in enumerate(self.levels):
                crossings = [(here.used[i], there.used[i + 1]), (there.used[i], here.used[i + 1])]
                if number is None:
                    for before, behind in crossings:
                        model.add(before + behind <= 1)
                else:
                    near[number] = sum(both(model, *each) for each in crossings)

    def offsets(self, value: Callable[[IntVar], int]) -> list[int]:
        """First device of each block relative to its replica; `value` evaluates a variable."""
        return [
            next(
                int(value(pool.slots[stage])) * width
                for pool, width in zip(self._own, self._widths, strict=True)
                if value(pool.used[stage])
            )
            for stage in range(len(self.levels) + 1)
        ]


class PoolSlots:
    """Blocks of one pool, of one width.

    Attributes:
        used: indicates the stages in the pool.
        slots: slot of each stage in the pool.
        levels: for each boundary, indicators of its possible levels inside the pool.
    """

    def __init__(self, model: CpModel, places: Slots, used: Sequence[IntVar], *, ordered: bool) -> None:
        self._model, self.used, self._ordered = model, used, ordered
        self.slots = [model.new_int_var(-1, places.count - 1, f"slot {i}") for i in range(len(used))]
        model.add(sum(used) <= places.count)
        if ordered:
            # The last slot that is taken up to each stage; -1 before the first.
            before: Term = -1
            for slot, here in zip(self.slots, used, strict=True):
                model.add(slot >= before + here)
                model.add(slot <= before + places.count * here)
                before = slot
        else:
            for slot, here in zip(self.slots, used, strict=True):
                model.add(slot >= 0).only_enforce_if(here)
            for one, two in combinations(range(len(used)), 2):
                model.add(self.slots[one] != self.slots[two]).only_enforce_if(used[one], used[two])
        inside = [both(model, *each) for each in pairwise(used)]
        within = [self._within(group, inside) for group in places.groups]
        self.levels: list[Literals] = [
            exactly([level[boundary] for level in within]) for boundary in range(len(inside))
        ]

    def _within(self, group: Integers, inside: Sequence[IntVar]) -> Sequence[Term]:
        """Indicators, by boundary, that its blocks share a group of a level in the pool."""
        model = self._model
        if int(group[-1]) == 0:
            return inside
        if int(group[-1]) == len(group) - 1:
            return [0 for _ in inside]
        homes = [model.new_int_var(-1, int(group[-1]), "") for _ in self.slots]
        for slot, home in zip(self.slots, homes, strict=True):
            model.add_element(slot + 1, [-1, *group.tolist()], home)
        terms = []
        for boundary, (here, there) in zip(inside, pairwise(homes), strict=True):
            together = model.new_bool_var("")
            model.add_implication(together, boundary)
            model.add(here == there).only_enforce_if(together)
            apart = here < there if self._ordered else here != there
            model.add(apart).only_enforce_if(boundary, ~together)
            terms.append(together)
        # Of all blocks, no more than these in a group; each further group is entered once.
        largest = int(numpy.bincount(group).max())
        model.add(largest * sum(terms) <= (largest - 1) * sum(self.used))
        return terms


def both(model: CpModel, one: IntVar, other: IntVar) -> IntVar:
    """Conjunction of two variables."""
    literal = model.new_bool_var("")
    model.add_implication(literal, one)
    model.add_implication(literal, other)
    model.add(literal >= one + other - 1)
    return literal
