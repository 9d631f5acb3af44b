"""Model of one case: the choice and block of each stage, and the resulting step time.

`PathModel` lists the decisions and constraints in order.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy
from attrs import evolve

from nest.instance import Instance, Solution, StageDecision, route
from nest.instance.schedule import FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS
from nest.tolerances import SUM_ERROR
from nest_cpsat.bounds import Choices, Relaxation
from nest_cpsat.cases import Case, Path, has_ports
from nest_cpsat.cuts import Integers
from nest_cpsat.placement import ListedPlacement, SlotPlacement, TooManyChoicesError, place
from nest_cpsat.pool_placement import PoolPlacement
from nest_cpsat.ports import StagePorts, together
from nest_cpsat.replay import Passes, step_time
from nest_cpsat.scaling import Limit, Scale, largest_slowest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ortools.sat.python.cp_model import CpModel, IntVar

    from nest_cpsat.cuts import Floats
    from nest_cpsat.placement import Literals, Term
    from nest_cpsat.stages import StageCosts

MOST_CHOICES = 300_000  # Most choices of all stages in one model, limited by the memory of a small machine.


PARTS_OF_STAGES: dict[str, Callable[[StageCosts], Floats]] = {
    # What differences of sums may have lost is taken off.
    FORWARD: lambda costs: costs.forward,
    INPUT_GRADIENTS: lambda costs: costs.inputs - SUM_ERROR * costs.time,
    WEIGHT_GRADIENTS: lambda costs: costs.weight_gradients + costs.scattered - SUM_ERROR * costs.shared,
}
"""Seconds of each part of a stage's passes. Shape `(modes, stages)`."""


class PathModel:
    """Model of one case as a path through the cuts.

    Attributes:
        chosen: 1 if the plan is of this case; constant in a model of one case.
        limit: on the step time, which is minimised; None: any plan will do.
        inexact: reason why a plan may take longer than modelled; empty: it does not.
    """

    inexact = ""
    near: Sequence[Literals] = ()  # For each boundary, a variable for each possible link.
    passes: Passes | None = None  # Times of the passes of a plan; None: it is not replayed.

    def __init__(
        self,
        relaxation: Relaxation,
        case: Case,
        choices: Sequence[Choices],
        limit: Limit | None,
        *,
        ordered: bool = True,
        joint: CpModel | None = None,
        paths: Sequence[Path] = (),
        excluded: Sequence[Any] = (),
    ) -> None:
        """Build the model.

        Args:
            ordered: blocks keep pipeline order (monotone placement).
            joint: a model of several cases to choose from; None: a new model of this case.
            paths: lower bounds on replays.
            excluded: excluded plans: choices of stages, and links of boundaries.

        Raises:
            TooManyChoicesError: too many variables.
            TooManyPlacesError: blocks of several widths have too many places.
        """
        from ortools.sat.python import cp_model

        if sum(map(len, choices)) > MOST_CHOICES:
            raise TooManyChoicesError(f"the stages have more than {MOST_CHOICES} choices")
        self._relaxation, self._case, self._choices, self._paths = relaxation, case, choices, paths
        self._instance: Instance = relaxation.instance
        self.model: CpModel = cp_model.CpModel() if joint is None else joint
        self.chosen: Term = 1 if joint is None else self.model.new_bool_var("chosen")
        self._taken = [
            [self.model.new_bool_var(f"{i}:{j}") for j in range(len(each))] for i, each in enumerate(choices)
        ]
        self._every_stage_takes_one_choice()
        self._stages_follow_each_other()
        self._place(ordered=ordered)
        for each in excluded:
            self._exclude(*each)
        self.limit = limit
        if limit is not None:
            self._times_count(*limit)

    def _place(self, *, ordered: bool) -> None:
        offered = [
            list(zip(each.candidate.tolist(), row, strict=True))
            for each, row in zip(self._choices, self._taken, strict=True)
        ]
        self._placement: SlotPlacement | ListedPlacement | PoolPlacement
        if self._instance.pools is not None:
            self._placement = PoolPlacement(
                self.model, self._instance, self._case, offered, self.chosen, ordered=ordered
            )
        else:
            self._placement = place(
                self.model, self._instance, self._case, offered, ordered=ordered, chosen=self.chosen
            )
        self.near = self._placement.levels

    def _every_stage_takes_one_choice(self) -> None:
        for row in self._taken:
            self.model.add(sum(row) == self.chosen)

    def _stages_follow_each_other(self) -> None:
        """Identify the cut after each stage with the cut before the next."""
        cuts = self._relaxation.cuts
        self._cut_at: list[dict[int, IntVar]] = []
        for i in range(len(self._choices) - 1):
            self._cut_at.append({})
            ending = self._by(i, cuts.last[self._choices[i].stage])
            starting = self._by(i + 1, cuts.first[self._choices[i + 1].stage])
            for cut in sorted({*ending, *starting}):
                here = self._cut_at[i][cut] = self.model.new_bool_var(f"cut {i}:{cut}")
                self.model.add(sum(ending.get(cut, [])) == here)
                self.model.add(sum(starting.get(cut, [])) == here)

    @property
    def _alone(self) -> bool:
        return isinstance(self.chosen, int)

    def _by(self, index: int, keys: Integers) -> dict[int, list[IntVar]]:
        groups: dict[int, list[IntVar]] = defaultdict(list)
        for literal, key in zip(self._taken[index], keys.tolist(), strict=True):
            groups[key].append(literal)
        return groups

    def _times_count(self, scale: Scale, limit: int) -> None:
        """Constrain `A * max t + sum u + max y`, with transfers over the levels of the boundaries."""
        if self._case.apart:
            self._parts_count(scale, limit)
            return
        times = [self._weighed(i, [scale.ticks(t) for t in each.time.tolist()]) for i, each in enumerate(self._choices)]
        messages: tuple[list[Term], list[Term]] = [0] * len(times), [0] * len(times)
        waits: list[Term] = [0] * len(times)
        for boundary in range(len(self._choices) - 1):
            cuts = self._relaxation.cuts
            returning = self._crossing(boundary, boundary, cuts.last, scale.ticks)
            alone = len(self._case.candidates) == 1
            arriving = returning if alone else self._crossing(boundary, boundary + 1, cuts.first, scale.ticks)
            messages[0][boundary + 1], messages[1][boundary] = arriving, returning
        times = [sum(each) for each in zip(times, *messages, strict=True)]
        sync = self.model.new_int_var(0, limit // scale.sync, "sync")
        if has_ports(self._instance, self._case):
            waits = [self._stage_ports(i, scale).waits(sync) for i in self._every]
            times = [sum(each) for each in zip(times, waits, strict=True)]
        largest = limit // max(scale.slowest, scale.total, 1)
        slowest = self.model.new_int_var(0, largest, "slowest")
        taken = [self.model.new_int_var(0, largest, f"time {i}") for i in range(len(times))]
        for variable, time in zip(taken, times, strict=True):
            # Variables of their own, so that no weight multiplies the coefficients of a time.
            self.model.add(variable == time)
            self.model.add(slowest >= variable)
        for i, each in enumerate(self._choices):
            self.model.add(sync >= self._weighed(i, [scale.sync_ticks(y) for y in each.sync.tolist()]))
        self._passes_take(scale, *messages, waits)
        self._minimise(scale.slowest * slowest + scale.total * sum(taken) + scale.sync * sync, sync, scale, limit)

    def _parts_count(self, scale: Scale, limit: int) -> None:
        """Constrain the step time where `u` exceeds `B * t`: unequal weights, or hidden messages."""
        model, case, weights = self.model, self._case, self._case.weights
        sync = model.new_int_var(0, limit // scale.sync, "sync")
        slowest = model.new_int_var(0, largest_slowest(scale, limit), "slowest")
        messages: tuple[list[Term], list[Term]] = [0] * case.stages, [0] * case.stages
        added: list[Term] = [
            self._ticks(i, lambda costs: costs.weighed(weights), scale.sync_ticks) for i in self._every
        ]
        for boundary in range(case.stages - 1):
            for index, ends, weight, way in (
                (boundary, self._relaxation.cuts.last, weights.returning, 1),
                (boundary + 1, self._relaxation.cuts.first, weights.arriving, 0),
            ):
                crossing = partial(self._crossing, boundary, index, ends)
                messages[way][index] = crossing(scale.ticks)
                added.append(crossing(partial(scale.weighed_ticks, weight)))
        waited: list[Term] = [0] * case.stages
        if has_ports(self._instance, case):
            waited = [self._stage_ports(i, scale).waits(sync) for i in self._every]
        for i in self._every:
            own = self._ticks(i, lambda costs: costs.time, scale.ticks)
            beside = self._ticks(i, lambda costs: costs.shared, scale.ticks) if case.hiding else own
            # What hides is at most the compute, and all of it where that is longer.
            model.add(slowest >= beside + messages[0][i] + messages[1][i] + waited[i])
            model.add(slowest >= own + waited[i])
            model.add(sync >= self._ticks(i, lambda costs: costs.sync, scale.sync_ticks))
        self._passes_take(scale, *messages, waited)
        once = sum(added, start=sync) * scale.sync
        self._minimise(scale.slowest * slowest + once + scale.total * sum(waited), sync, scale, limit)

    @property
    def _every(self) -> range:
        return range(len(self._choices))

    def _ticks(self, index: int, of: Callable[[StageCosts], Floats], ticks: Callable[[float], int]) -> Term:
        return self._weighed(index, [ticks(each) for each in self._of_choices(index, of).tolist()])

    def _of_choices(self, index: int, of: Callable[[StageCosts], Floats]) -> Floats:
        """Costs of the choices of a stage, from arrays of shape `(modes, stages)`."""
        choices = self._choices[index]
        values = numpy.zeros(len(choices))
        for candidate in self._case.candidates:
            own = choices.candidate == candidate
            costs = self._relaxation.book.costs(self._case, candidate)
            values[own] = of(costs)[choices.mode[own], choices.stage[own]]
        return values

    def _minimise(self, closed_form: Term, sync: IntVar, scale: Scale, limit: int) -> None:
        """Minimise the closed form, or the longest path through the passes if that is longer."""
        batch = step_time(self.model, closed_form, self.passes, self._paths, scale, sync, limit)
        if self._alone:
            self.model.minimize(batch)

    def _passes_take(
        self, scale: Scale, arriving: Sequence[Term], returning: Sequence[Term], waits: Sequence[Term]
    ) -> None:
        """Set the times of the passes of each stage, with ZeRO communication."""
        if not (self._case.replayed and self._alone):
            return
        terms: dict[tuple[str, int], Term] = {}
        for i in self._every:
            terms |= {("arriving", i): arriving[i], ("returning", i): returning[i]}
            for kind, of in PARTS_OF_STAGES.items():
                terms[kind, i] = self._ticks(i, of, scale.ticks)
        homes = route(self._case.schedule, self._case.stages)
        self.passes = Passes(homes, terms, waits, self._case.hiding)

    def _exclude(self, names: Sequence[tuple[int, int, tuple[str, int], int]], over: Sequence[int]) -> None:
        found = [near.get(number, 0) for near, number in zip(self.near, over, strict=True)]
        for index, candidate, mode, stage in names:
            choices, row = self._choices[index], self._relaxation.book.costs(self._case, candidate).modes.index(mode)
            same = (choices.candidate == candidate) & (choices.mode == row) & (choices.stage == stage)
            found += [self._taken[index][place] for place in numpy.flatnonzero(same).tolist()]
        self.model.add(sum(found) < len(names) + len(over))

    def _stage_ports(self, index: int, scale: Scale) -> StagePorts:
        choices, case, cuts = self._choices[index], self._case, self._relaxation.cuts
        links = self._relaxation.links(case)
        around = [(each, ends) for each, ends in ((index - 1, cuts.first), (index, cuts.last)) if each >= 0]
        around = [(each, ends) for each, ends in around if each < len(self._choices) - 1]
        sizes = [numpy.zeros(len(choices)) for _ in around]
        parts = []
        for candidate in case.candidates:
            costs, own = self._relaxation.book.costs(case, candidate), choices.candidate == candidate
            parts.append((own, costs.ports and costs.ports.at(choices.mode[own], choices.stage[own])))
            for size, (_, ends) in zip(sizes, around, strict=True):
                size[own] = costs.bytes[ends[choices.stage[own]]]
        boundaries = []
        for size, (boundary, _) in zip(sizes, around, strict=True):
            near = self._placement.levels[boundary]
            messages = {number: (self._port(number), links.seconds(size, number)) for number in near}
            boundaries.append((near, messages))
        ports = together(parts, self._port_levels + 1)
        shared = self._of_choices(index, lambda costs: costs.shared) if case.hiding else None
        return StagePorts(
            self.model,
            scale,
            case.micro_batches,
            self._taken[index],
            choices.time,
            choices.sync,
            ports,
            boundaries,
            shared,
        )

    @property
    def _port_levels(self) -> int:
        """Number of port levels; messages between pools have the next level and occupy no port."""
        return max(len(own) for own in self._relaxation.links(self._case).own.values())

    def _port(self, number: int) -> int:
        """Level of the port that messages over a link occupy."""
        links = self._relaxation.links(self._case)
        levels = (links.level(candidate, number) for candidate in self._case.candidates)
        return next((level for level in levels if level is not None), self._port_levels)

    def _weighed(self, index: int, values: list[int]) -> Term:
        from ortools.sat.python.cp_model import LinearExpr

        return LinearExpr.weighted_sum(self._taken[index], values)

    def _crossing(self, boundary: int, index: int, ends: Integers, count: Callable[[float], int]) -> Term:
        """Ticks of stage `index` for a boundary, by its cut and level; `count` converts seconds to ticks."""
        levels, links = self._placement.levels[boundary], self._relaxation.links(self._case)
        near = {each: [number for number in levels if number in links.numbers(each)] for each in self._case.candidates}
        groups: dict[tuple[tuple[int, int], ...], list[IntVar]] = defaultdict(list)
        choices = self._choices[index]
        for literal, candidate, stage in zip(
            self._taken[index], choices.candidate.tolist(), choices.stage.tolist(), strict=True
        ):
            size = float(self._relaxation.book.costs(self._case, candidate).bytes[ends[stage]])
            spending = ((number, count(float(links.seconds(size, number)))) for number in near[candidate])
            groups[tuple(spending)].append(literal)
        spent: Term = 0
        at_link: dict[int, list[IntVar]] = defaultdict(list)
        alike = [len({ticks for _, ticks in times}) == 1 for times in groups]
        for (times, literals), same in sorted(zip(groups.items(), alike, strict=True), key=lambda item: item[0][0]):
            if same:
                spent = spent + times[0][1] * sum(literals)
                continue
            if len(groups) == 1 and self._alone:
                return sum(ticks * levels[number] for number, ticks in times)
            both = [self.model.new_bool_var("") for _ in times]
            self.model.add(sum(both) == sum(literals))
            spent = spent + sum(ticks * literal for (_, ticks), literal in zip(times, both, strict=True))
            for (number, _), literal in zip(times, both, strict=True):
                at_link[number].append(literal)
        for number, literals in at_link.items():
            # Cuts that cost alike over all links have no literals here, and cases that are not chosen use none.
            some = not self._alone or any(alike)
            self.model.add(sum(literals) <= levels[number] if some else sum(literals) == levels[number])
        return spent

    def solution(
        self, value: Callable[[IntVar], int]
    ) -> tuple[Solution, tuple[tuple[int, int, tuple[str, int], int], ...]]:
        """Decode a solution; also name each stage's choice for `bounds.Overfull`."""
        decisions, names = self._decided(value)
        offsets = self._placement.offsets(value)
        placed = [evolve(each, offset=offset) for each, offset in zip(decisions, offsets, strict=True)]
        return self._case.plan(placed), names

    def _decided(
        self, value: Callable[[IntVar], int]
    ) -> tuple[list[StageDecision], tuple[tuple[int, int, tuple[str, int], int], ...]]:
        """Decode stages with consecutive blocks, and their names."""
        stages, names, offset = [], [], 0
        case, relaxation = self._case, self._relaxation
        for index, (row, choices) in enumerate(zip(self._taken, self._choices, strict=True)):
            taken = next(j for j, literal in enumerate(row) if value(literal))
            candidate, stage = int(choices.candidate[taken]), int(choices.stage[taken])
            mode = relaxation.book.costs(case, candidate).modes[int(choices.mode[taken])]
            layers = tuple(numpy.nonzero(relaxation.cuts.stage_layers[stage])[0].tolist())
            stages.append(StageDecision(layers, candidate, mode[0], mode[1], offset))
            names.append((index, candidate, mode, stage))
            offset += self._instance.candidates[candidate].width
        return stages, tuple(names)
