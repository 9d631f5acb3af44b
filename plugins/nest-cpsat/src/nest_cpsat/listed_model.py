"""Model of a case over listed cuts, without stages that no plan below the target can have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any

import numpy
from attrs import define

from nest.instance import Instance, Solution, StageDecision
from nest.reuse import remembered
from nest.tolerances import LIMIT_SLACK, SUM_ERROR
from nest_cpsat.bounds import Choices, Relaxation, least_times, time_limit, value
from nest_cpsat.cases import Case, LimitOf, Path, replica_devices
from nest_cpsat.cuts import Booleans, Cuts, Floats, Integers
from nest_cpsat.first_blocks import rivals
from nest_cpsat.path_model import PathModel
from nest_cpsat.placement import boundary_levels, point_to_point
from nest_cpsat.scaling import TERMS
from nest_cpsat.stage_cost_cache import StageCostCache
from nest_cpsat.stages import StageCosts

WALK = 200  # Plans with ever faster slowest stages that are tried for a first one.

Overfull = tuple[int, int, tuple[str, int], int]
"""A stage that exact pricing found too large: index, candidate, mode, index in `Cuts`."""


@define(eq=False, slots=False)
class ListedStages:
    """Stages between listed cuts, separately for each stage number.

    `cuts` lists the cuts boundary by boundary, so that a cut's place tells the number of stages before it; `relaxation`
    has the costs.
    """

    instance: Instance
    case: Case
    cuts: Cuts
    relaxation: Relaxation

    @classmethod
    def of(cls, instance: Instance, case: Case, cuts: Cuts) -> ListedStages:
        """Stages between these cuts."""
        return cls(instance, case, cuts, Relaxation(instance, cuts, StageCostCache(instance, cuts)))

    def model(
        self,
        target: float,
        limit_of: LimitOf,
        overfull: Sequence[Overfull],
        paths: Sequence[Path] = (),
        excluded: Sequence[Any] = (),
    ) -> PathModel | None:
        """Build the `PathModel` of plans below `target`; None: there are none.

        Raises:
            TooManyChoicesError: too many variables.
            TooManyPlacesError: blocks of several widths have too many places.
        """
        choices = self._narrowed(target, overfull)
        if choices is None:
            return None
        return PathModel(
            self.relaxation, self.case, choices, limit_of(self.case, TERMS), paths=paths, excluded=excluded
        )

    def plans(self, target: float, overfull: Sequence[Overfull]) -> Iterator[Solution]:
        """Good plans: least sums of times under falling limits on the slowest stage, with blocks side by side."""
        choices = self._narrowed(target, overfull)
        if choices is None:
            return
        times = [self._with_transfers(each)[0] for each in choices]
        limit = inf
        for _ in range(WALK):
            path = self._least_sum([each.only(time < limit) for each, time in zip(choices, times, strict=True)])
            if path is None:
                return
            limit = max(time for _, _, time in path)
            plan = self._side_by_side([(choice, row) for choice, row, _ in path])
            if plan is not None:
                yield plan

    def _least_sum(self, choices: Sequence[Choices]) -> list[tuple[Choices, int, float]] | None:
        """Choices by stage, with row and seconds of each in the plan with the least sum; None: no plan."""
        reached, steps = self._ends(0), []
        for each in choices:
            time, _ = self._with_transfers(each)
            first, last = self.cuts.first[each.stage], self.cuts.last[each.stage]
            total = reached[first] + time
            order = numpy.argsort(-total, kind="stable")
            come_from = numpy.full(self.cuts.count, -1, dtype=numpy.int64)
            come_from[last[order]] = order  # Of several the last one written stays: the least.
            reached = numpy.full(self.cuts.count, inf)
            reached[last[order]] = total[order]
            steps.append((each, time, come_from))
        if reached[-1] == inf:
            return None
        path, cut = [], self.cuts.count - 1
        for each, time, come_from in reversed(steps):
            row = int(come_from[cut])
            path.append((each, row, float(time[row])))
            cut = int(self.cuts.first[each.stage[row]])
        return path[::-1]

    def _side_by_side(self, path: Sequence[tuple[Choices, int]]) -> Solution | None:
        """Plan with blocks as far forward as possible; None: they do not fit, or none is the widest."""
        stages, end = [], 0
        for choices, row in path:
            candidate, stage = int(choices.candidate[row]), int(choices.stage[row])
            width = self.instance.candidates[candidate].width
            offset = -(-end // width) * width
            end = offset + width
            recompute, zero = self.relaxation.book.costs(self.case, candidate).modes[int(choices.mode[row])]
            layers = tuple(numpy.flatnonzero(self.cuts.stage_layers[stage]).tolist())
            stages.append(StageDecision(layers, candidate, recompute, zero, offset))
        widths = [self.instance.candidates[each.candidate].width for each in stages]
        fits = end <= replica_devices(self.instance, self.case) and max(widths) == self.case.widest
        counted = self.case.block_devices in (None, sum(widths))
        return self.case.plan(stages) if fits and counted else None

    def _narrowed(self, target: float, overfull: Sequence[Overfull]) -> list[Choices] | None:
        """Choices of each stage in plans below the target, by bounds on sums and largest times."""
        case, stage_of = self.case, self._stage_numbers()
        choices = [self._fitting(number, stage_of, overfull) for number in range(case.stages)]
        fewest = sum(map(len, choices)) + 1
        while sum(map(len, choices)) < fewest:
            fewest = sum(map(len, choices))
            times, added = ([each[part] for each in map(self._with_transfers, choices)] for part in range(2))
            before, after = self._sums(choices, added)
            slowest = self._least_largest(choices, times)
            total, sync = float(before[-1][-1]), self._least_largest(choices, [each.sync for each in choices])
            if inf in (total, slowest, sync):
                return None
            slowest = max(slowest, float(self._sums(choices, times)[0][-1][-1]) / case.stages)
            if value(case, slowest, total, sync) > target:
                return None
            limit = time_limit(case, target, total, sync)
            for number, (each, time, add) in enumerate(zip(choices, times, added, strict=True)):
                first, last = self.cuts.first[each.stage], self.cuts.last[each.stage]
                through = before[number][first] + add + after[number + 1][last]
                reached = numpy.isfinite(through)
                least = case.weights.slowest * numpy.maximum(slowest, time) + numpy.maximum(sync, each.sync)
                least += numpy.where(reached, through, 0.0)
                choices[number] = each.only(reached & (time <= limit) & (least * (1 - SUM_ERROR) <= target))
        return choices

    def _stage_numbers(self) -> Integers:
        return self._boundary_of[self.cuts.first]

    def _fitting(self, number: int, stage_of: Integers, overfull: Sequence[Overfull]) -> Choices:
        """Undominated choices of a stage that fit its memory."""
        case, capacity = self.case, self.instance.cluster.memory * (1 + LIMIT_SLACK)
        flying, own = case.in_flight(number + 1), stage_of == number
        rows = []
        for candidate, modes in zip(case.candidates, case.modes, strict=True):
            costs = self.relaxation.book.costs(case, candidate)
            fits = (costs.one + (flying - 1) * costs.more <= capacity) & own
            for _, _, mode, stage in (each for each in overfull if each[:2] == (number, candidate)):
                fits[costs.modes.index(mode), stage] = False
            for row in costs.rows(modes):
                stages = numpy.flatnonzero(_needed(costs, row, costs.rows(modes), fits, case))
                same = numpy.full(len(stages), 1)
                rows.append((same * candidate, same * row, stages, costs.time[row, stages], costs.sync[row, stages]))
        return Choices(*(numpy.concatenate(column) for column in zip(*rows, strict=True)))

    def _with_transfers(self, choices: Choices) -> tuple[Floats, Floats]:
        """`t` and `u` of each choice with its tensors sent over the cheapest levels."""
        time, added = numpy.zeros((2, len(choices)))
        for candidate in self.case.candidates:
            own = choices.candidate == candidate
            cheapest, stage = self._transfers(candidate), choices.stage[own]
            around = cheapest[self.cuts.first[stage]], cheapest[self.cuts.last[stage]]
            costs = self.relaxation.book.costs(self.case, candidate)
            time[own], added[own] = least_times(self.case, costs, (choices.mode[own], stage), *around)
        return time, added

    @remembered
    def _transfers(self, candidate: int) -> Floats:
        """Seconds to transfer the tensors of each cut over the cheapest possible level."""
        crossing = self.relaxation.book.costs(self.case, candidate).bytes
        cheapest = numpy.zeros(self.cuts.count)
        for boundary, levels in enumerate(boundary_levels(self.instance, self.case)):
            here = self._boundary_of == boundary
            every = [point_to_point(self.instance.cluster, crossing[here], level) for level in levels]
            cheapest[here] = numpy.minimum.reduce(every) if every else 0.0
        return cheapest

    @property
    def _boundary_of(self) -> Integers:
        """Stages before each cut; -1: no plan has it."""
        numbers = numpy.full(self.cuts.count, -1, dtype=numpy.int64)
        numbers[0] = 0
        for number in range(self.case.stages):
            numbers[self.cuts.last[numbers[self.cuts.first] == number]] = number + 1
        return numbers

    def _sums(self, choices: Sequence[Choices], times: Sequence[Floats]) -> tuple[list[Floats], list[Floats]]:
        """Least sums of stages before each cut and behind it, by number of stages before it."""
        before, after = [self._ends(0)], [self._ends(self.cuts.count - 1)]
        for each, time in zip(choices, times, strict=True):
            before.append(self._step(before[-1], each, time, numpy.add))
        for each, time in zip(reversed(choices), reversed(times), strict=True):
            reached = numpy.full(self.cuts.count, inf)
            numpy.minimum.at(reached, self.cuts.first[each.stage], time + after[-1][self.cuts.last[each.stage]])
            after.append(reached)
        return before, after[::-1]

    def _least_largest(self, choices: Sequence[Choices], values: Sequence[Floats]) -> float:
        reached = self._ends(0)
        for each, own in zip(choices, values, strict=True):
            reached = self._step(reached, each, own, numpy.maximum)
        return float(reached[-1])

    def _ends(self, cut: int) -> Floats:
        reached = numpy.full(self.cuts.count, inf)
        reached[cut] = 0.0
        return reached

    def _step(
        self, reached: Floats, choices: Choices, values: Floats, join: Callable[[Floats, Floats], Floats]
    ) -> Floats:
        following = numpy.full(self.cuts.count, inf)
        stage = choices.stage
        numpy.minimum.at(following, self.cuts.last[stage], join(reached[self.cuts.first[stage]], values))
        return following


def _needed(costs: StageCosts, row: int, rows: Sequence[int], fits: Booleans, case: Case) -> Booleans:
    """Mask of stages for which no fitting mode dominates mode `row`."""
    needed: Booleans = fits[row].copy()
    for other in rivals(costs.modes, row, rows):
        wins = costs.as_fast(other, row, case)
        if other > row:
            wins = wins & ~costs.as_fast(row, other, case)
        needed &= ~(fits[other] & wins)
    return needed
