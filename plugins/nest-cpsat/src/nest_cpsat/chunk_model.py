"""Models of cases of several chunks: first unit of each chunk, modes of its stage, and placement of blocks.

Chunks are runs of units on the stages of the schedule's placement (PROBLEM.md section 4); every chunk pays for its own
boundaries, except those with both sides on one stage.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

import numpy

from nest.instance import Solution, StageDecision, partial, route
from nest.tolerances import LIMIT_SLACK, SUM_ERROR
from nest_cpsat.chunk_messages import Message, together
from nest_cpsat.chunk_parts import ChunkParts
from nest_cpsat.chunk_passes import chunk_passes
from nest_cpsat.chunk_stages import ChunkCase, ChunkChoices, Sending, sendings
from nest_cpsat.placement import SlotPlacement, point_to_point, slots
from nest_cpsat.ports import StagePorts
from nest_cpsat.replay import step_time
from nest_cpsat.scaling import Limit, Scale, largest_slowest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ortools.sat.python.cp_model import CpModel, IntVar

    from nest.instance.schedule import Moment
    from nest_cpsat.cases import OpenCase
    from nest_cpsat.cuts import Floats
    from nest_cpsat.placement import Term
    from nest_cpsat.replay import Passes

UNITS = 2**24
"""Parts of a device's memory in which activations are counted: rounding a thousand units down loses less than 1e-4 of
it, and coefficients stay far below the range where CP-SAT errs."""

MOST_AROUND = 4_000  # Most combinations of a stage's messages for which waits at its ports are enumerated.

Overfull = tuple[int, tuple[int, ...], int, int]
"""A stage that does not fit: its index, first and last units of its chunks, and index of its content and mode."""


class ChunkModel:
    """Model of one case of several chunks.

    Attributes:
        limit: on the step time, which is minimised; None: any plan will do.
        inexact: reason why a plan may take longer than modelled; empty: it does not.
        near: for each two neighbouring or sending stages, whether they are apart by each level.
    """

    passes: Passes | None = None  # Times of the passes of a plan; None: it is not replayed.

    def __init__(
        self,
        numbers: ChunkCase,
        choices: Sequence[ChunkChoices],
        overfull: Sequence[Overfull],
        limit: Limit | None,
        known: OpenCase,
        *,
        ordered: bool,
    ) -> None:
        """Build the model.

        Args:
            overfull: stages that exact pricing found too large.
            limit: on the step time; None: times do not matter.
            known: has paths that bound replays, and excluded plans (stages, and levels between).
            ordered: blocks keep pipeline order (monotone placement).
        """
        from ortools.sat.python import cp_model

        self.model: CpModel = cp_model.CpModel()
        self._numbers, self._case, self._choices = numbers, numbers.case, choices
        self._instance, self._contents = numbers.instance, numbers.contents
        self._route = route(self._case.schedule, self._case.stages)
        self._chunks = [[j for j, home in enumerate(self._route) if home == i] for i in range(self._case.stages)]
        self._taken = [[self.model.new_bool_var(f"{i}:{j}") for j in range(len(own))] for i, own in enumerate(choices)]
        for row in self._taken:
            self.model.add_exactly_one(row)
        self._behind = self._boundaries()
        self._first = ChunkParts(self.model, numbers, self._chunks, self._behind)
        for stage, (taken, own) in enumerate(zip(self._taken, choices, strict=True)):
            self._first.bind(stage, own, taken)
        self._stages_hold_their_chunks()
        if self._instance.space.partition is None:
            self._chunks_are_alike()
        self._layers_are_where_they_must()
        self._memory_suffices()
        for each in overfull:
            self._forbid(*each)
        self._placement = self._place(ordered=ordered)
        self.near = list(self._placement.apart.values())
        for plan in known.excluded:
            self._exclude(*plan)
        self.inexact, self.limit, self._paths = "", limit, known.paths
        if limit is not None:
            self._times_count(*limit)

    def _boundaries(self) -> list[list[Term]]:
        """Units behind each boundary, outer ends included; no chunk is empty."""
        count = len(self._contents.layers)
        rows: list[list[Term]] = [[1] * count]
        for number, starts in enumerate(self._numbers.units.starts):
            row: list[Term] = []
            for unit in range(count):
                if unit < starts[0]:
                    row.append(0)
                elif unit >= starts[-1]:
                    row.append(1)
                else:
                    # Where no chunk may begin, a unit is on the side of the one in front of it.
                    row.append(self.model.new_bool_var(f"{unit} behind {number}") if unit in starts else row[-1])
            # At least one more unit is behind the previous boundary.
            for one, two in (*pairwise(row), *zip(row[1:], rows[-1], strict=False)):
                if one is not two:
                    self.model.add(one <= two)
            rows.append(row)
        return [*rows, [0] * count]

    def _begins(self, boundary: int, unit: int) -> Term:
        """1 if the chunk behind a boundary, from 0, begins with a unit."""
        row = self._behind[boundary + 1]
        return row[unit] - (row[unit - 1] if unit else 0)

    def _stages_hold_their_chunks(self) -> None:
        """Tie a stage's content to its chunks; all contents cover all units, which settles most models at once."""
        for each, total in enumerate(self._contents.totals.tolist()):
            units = numpy.flatnonzero(self._contents.unit_class == each).tolist()
            every: list[Term] = []
            for taken, choices, chunks in zip(self._taken, self._choices, self._chunks, strict=True):
                every.append(_weighed(taken, self._contents.counts[choices.content, each].tolist()))
                self.model.add(every[-1] == sum(self._first.runs(chunk, unit) for chunk in chunks for unit in units))
            self.model.add(sum(every) == total)

    def _chunks_are_alike(self) -> None:
        """Let chunks differ by at most one block; those with embedding and head may be smaller."""
        counted = self._numbers.units.blocks(self._instance)
        largest = self.model.new_int_var(1, sum(counted), "largest chunk")
        for chunk in range(len(self._route)):
            held = sum(self._first.runs(chunk, unit) for unit, blocks in enumerate(counted) if blocks)
            self.model.add(held <= largest)
            if 0 < chunk < len(self._route) - 1:
                self.model.add(held >= largest - 1)

    def _layers_are_where_they_must(self) -> None:
        """Keep `same_stage` layers together, and layers of a given partition on their stages."""
        graph, space = self._instance.graph, self._instance.space
        home = self._numbers.units.home(len(graph.layers)).tolist()
        index = {name: layer for layer, name in enumerate(graph.layers)}

        def on(stage: int, unit: int) -> Term:
            return sum((self._first.runs(chunk, unit) for chunk in self._chunks[stage]), start=0)

        for constraint in space.constraints:
            units = sorted({home[index[name]] for name in constraint.same_stage})
            for one, two in pairwise(units):
                for stage in range(self._case.stages):
                    self.model.add(on(stage, one) == on(stage, two))
        for stage, layers in enumerate(space.partition or ()):
            for unit in sorted({home[layer] for layer in layers}):
                self.model.add(on(stage, unit) == 1)

    def _memory_suffices(self) -> None:
        """Constrain memory that does not follow from a stage's content."""
        for stage, (taken, choices) in enumerate(zip(self._taken, self._choices, strict=True)):
            by_recompute: dict[tuple[str, bool], list[int]] = defaultdict(list)
            for place, (row, content) in enumerate(zip(choices.mode.tolist(), choices.content.tolist(), strict=True)):
                if not self._numbers.alike(stage, row):
                    name = self._numbers.costs.modes[row][0]
                    stashes = bool(self._contents.parts.recompute[name]["stashes"][content])
                    by_recompute[name, stashes].append(place)
            for recompute, places in sorted(by_recompute.items()):
                used = self.model.new_bool_var("")
                self.model.add(sum(taken[place] for place in places) == used)
                for moment in self._numbers.moments[stage]:
                    self._moment_fits(stage, recompute, places, used, moment)

    def _moment_fits(
        self, stage: int, recompute: tuple[str, bool], places: Sequence[int], used: IntVar, moment: Moment
    ) -> None:
        (name, stashes), memory, choices = recompute, self._instance.cluster.memory, self._choices[stage]
        unit = memory / UNITS
        room = int(memory * (1 + LIMIT_SLACK) / unit) + 1
        one = self._numbers.costs.one[choices.mode[places], choices.content[places]]
        total = _weighed([self._taken[stage][place] for place in places], _parts(one, unit))
        if min(moment) < 1 and max(map(numpy.max, (one, self._contents.unit_more[name]))) > memory * UNITS:
            return  # Numbers so large are left to exact pricing: what is cut off could not be taken away again.
        for chunk, held in zip(self._chunks[stage], moment, strict=True):
            more = [_parts((held - 1) * row, unit) for row in self._contents.unit_more[name]]
            total = total + self._first.over(chunk, more)
            if stashes and chunk > 0:
                stash = _parts((held - 1) * self._contents.border_bytes, unit)
                starts = self._numbers.units.starts[chunk - 1]
                total = total + sum(stash[place] * self._begins(chunk - 1, place) for place in starts)
        self.model.add(total <= room).only_enforce_if(used)

    def _forbid(self, stage: int, borders: tuple[int, ...], content: int, mode: int) -> None:
        own = (self._choices[stage].content == content) & (self._choices[stage].mode == mode)
        alike = self._numbers.alike(stage, mode)
        around = () if alike else zip(self._beside(stage), borders, strict=True)
        begun = [self._begins(boundary, unit) for boundary, unit in around]
        for place in numpy.flatnonzero(own).tolist():
            self.model.add(sum(begun) + self._taken[stage][place] <= len(begun))

    def _beside(self, stage: int) -> list[int]:
        every = {boundary for chunk in self._chunks[stage] for boundary in (chunk - 1, chunk)}
        return sorted(every & set(range(len(self._route) - 1)))

    def _place(self, *, ordered: bool) -> SlotPlacement:
        width, stages = self._numbers.candidate.width, self._case.stages
        pairs = sorted({(min(each.earlier, each.later), max(each.earlier, each.later)) for each in self._sendings})
        places = slots(self._instance, self._case, width)
        return SlotPlacement(self.model, places, width, stages, ordered=ordered, pairs=pairs)

    @property
    def _sendings(self) -> list[Sending]:
        return sendings(self._case)

    def _messages(self, sending: Sending) -> list[Message]:
        """Possible messages across a boundary; with equal sizes only the level matters."""
        pair = (min(sending.earlier, sending.later), max(sending.earlier, sending.later))
        near = self._placement.apart[pair]
        starts: dict[float, list[int]] = defaultdict(list)
        for unit in self._numbers.units.starts[sending.number]:
            starts[float(self._contents.border_bytes[unit])].append(unit)
        if len(starts) == 1:
            return [self._message(level, size, literal) for size in starts for level, literal in near.items()]
        messages, at_level = [], defaultdict[int, list["Term"]](list)
        for size, units in sorted(starts.items()):
            both = [self.model.new_bool_var("") for _ in near]
            self.model.add(sum(both) == sum(self._begins(sending.number, unit) for unit in units))
            for level, literal in zip(near, both, strict=True):
                messages.append(self._message(level, size, literal))
                at_level[level].append(literal)
        for level, literals in at_level.items():
            self.model.add(sum(literals) == near[level])
        return messages

    def _message(self, level: int, size: float, holds: Term) -> Message:
        return Message(level, float(point_to_point(self._instance.cluster, size, level)), holds)

    def _times_count(self, scale: Scale, limit: int) -> None:
        """Constrain `A * max t + sum u + max y` (PROBLEM.md section 4)."""
        model, costs, weights = self.model, self._numbers.costs, self._case.weights
        slowest = model.new_int_var(0, largest_slowest(scale, limit), "slowest")
        sync = model.new_int_var(0, limit // scale.sync, "sync")
        messages = [(each, self._messages(each)) for each in self._sendings]
        added: list[Term] = [sync]
        for _, possible in messages:
            # Activations one way, gradients the other.
            both = weights.arriving + weights.returning
            added += [scale.weighed_ticks(both, each.seconds) * each.holds for each in possible]
        waits: list[Term] = []
        for stage, (taken, choices) in enumerate(zip(self._taken, self._choices, strict=True)):
            own = self._ticks(stage, costs.time, scale.ticks)
            beside = self._ticks(stage, costs.shared, scale.ticks) if self._case.hiding else own
            around = [possible for each, possible in messages for end in (each.later, each.earlier) if end == stage]
            received = sum(scale.ticks(each.seconds) * each.holds for possible in around for each in possible)
            waited = self._waited(stage, around, scale, slowest, sync)
            # What hides is at most the compute, and all of it where that is longer.
            model.add(slowest >= beside + received + waited)
            model.add(slowest >= own + waited)
            model.add(sync >= _weighed(taken, [scale.sync_ticks(each) for each in choices.sync.tolist()]))
            added.append(self._ticks(stage, costs.weighed(weights), scale.sync_ticks))
            waits.append(waited)
        closed_form = scale.slowest * slowest + scale.sync * sum(added) + scale.total * sum(waits)
        if self._case.replayed:
            chosen = list(zip(self._choices, self._taken, strict=True))
            sent = [
                (each, sum(scale.ticks(one.seconds) * one.holds for one in possible)) for each, possible in messages
            ]
            longest = largest_slowest(scale, limit)
            self.passes = chunk_passes(
                model, self._numbers, self._route, chosen, self._first, sent, waits, scale, longest
            )
        model.minimize(step_time(model, closed_form, self.passes, self._paths, scale, sync, limit))

    def _exclude(self, names: Sequence[Overfull], over: Sequence[int]) -> None:
        found = [near.get(level, 0) for near, level in zip(self.near, over, strict=True)]
        ends: dict[int, int] = {}
        for stage, borders, content, mode in names:
            ends |= dict(zip(self._beside(stage), borders, strict=True))
            same = (self._choices[stage].content == content) & (self._choices[stage].mode == mode)
            found += [self._taken[stage][place] for place in numpy.flatnonzero(same).tolist()]
        found += [self._begins(boundary, unit) for boundary, unit in ends.items()]
        self.model.add(sum(found) < len(over) + len(names) + len(ends))

    def _ticks(self, stage: int, values: Floats, ticks: Callable[[float], int]) -> Term:
        """Ticks of a stage by its choice; `values` has shape `(modes, contents)`."""
        choices = self._choices[stage]
        own = values[choices.mode, choices.content].tolist()
        return _weighed(self._taken[stage], [ticks(each) for each in own])

    def _waited(
        self, stage: int, around: Sequence[Sequence[Message]], scale: Scale, slowest: IntVar, sync: IntVar
    ) -> Term:
        """Ticks that a stage waits for its ports; adds the wait per batch to `sync`."""
        costs, choices = self._numbers.costs, self._choices[stage]
        if costs.ports is None:
            return 0
        ports, around = costs.ports.at(choices.mode, choices.content), together(around)
        if prod(len(possible) for possible in around) > MOST_AROUND:
            self.inexact = "waiting for network ports has only a lower bound with several chunks"
            for level in range(len(self._instance.cluster.levels)):
                spent = [each for possible in around for each in possible if each.level == level]
                busy = _weighed(self._taken[stage], [scale.ticks(each) for each in ports.busy[:, level].tolist()])
                self.model.add(slowest >= busy + sum(scale.ticks(each.seconds) * each.holds for each in spent))
            return 0
        boundaries = [
            (
                {number: each.holds for number, each in enumerate(possible)},
                {number: (each.level, each.seconds) for number, each in enumerate(possible)},
            )
            for possible in around
        ]
        shared = costs.shared[choices.mode, choices.content] if self._case.hiding else None
        time = costs.time[choices.mode, choices.content]
        return StagePorts(
            self.model,
            scale,
            self._case.micro_batches,
            self._taken[stage],
            time,
            choices.sync,
            ports,
            boundaries,
            shared,
        ).waits(sync)

    def solution(self, value: Callable[[IntVar], int]) -> tuple[Solution, tuple[Overfull, ...]]:
        """Decode a solution; also return for each stage its entry for `overfull`."""
        rows = [[each if isinstance(each, int) else value(each) for each in row] for row in self._behind]  # type: ignore[arg-type]
        borders = [len(row) - sum(row) for row in rows]
        runs = list(pairwise(borders))
        layers = self._contents.layers
        stages, names = [], []
        for stage, offset in enumerate(self._placement.offsets(value)):
            place = next(place for place, literal in enumerate(self._taken[stage]) if value(literal))
            content, mode = int(self._choices[stage].content[place]), int(self._choices[stage].mode[place])
            own = [range(*runs[chunk]) for chunk in self._chunks[stage]]
            chunks = tuple(tuple(sorted(layer for unit in run for layer in layers[unit])) for run in own)
            every = tuple(sorted(layer for chunk in chunks for layer in chunk))
            names.append((stage, tuple(borders[each + 1] for each in self._beside(stage)), content, mode))
            recompute, zero = self._numbers.costs.modes[mode]
            if (part := partial(recompute)) is not None:
                recompute = part._replace(layers=value(self._first.count(stage))).name
            stages.append(StageDecision(every, self._case.candidates[0], recompute, zero, offset, chunks))
        return self._case.plan(stages), tuple(names)


def _weighed(literals: Sequence[IntVar], values: Sequence[int]) -> Term:
    from ortools.sat.python.cp_model import LinearExpr

    return LinearExpr.weighted_sum(literals, values)


def _parts(values: Floats, unit: float) -> list[int]:
    """Round down to whole units against floating-point error, and cap values that nothing has room for."""
    lowered = numpy.minimum(values, UNITS * 4 * unit)
    return [int(each) for each in numpy.floor((lowered - SUM_ERROR * abs(lowered)) / unit)]
