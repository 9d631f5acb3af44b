"""Cases of several chunks: the layers are dealt evenly, so only modes and places are left to decide.

PROBLEM.md section 4, `interleaved`: every chunk pays its own boundaries, and the last stage sends back to the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy
from attrs import define, field, frozen

from nest.instance import Instance, Solution, StageDecision, chunks_of
from nest.solve.cpsat.cases import Case
from nest.solve.cpsat.cuts import Floats, Integers
from nest.solve.cpsat.even import even_chunks
from nest.solve.cpsat.network import peers, point_to_point, slots
from nest.solve.cpsat.placement import SlotPlacement
from nest.solve.cpsat.ports import StagePorts
from nest.solve.cpsat.scaling import Scale
from nest.solve.cpsat.stages import Parts, StageCosts, priced, rows_of
from nest.tolerances import LIMIT_SLACK, SUM_ERROR

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ortools.sat.python.cp_model import CpModel, IntVar

    from nest.solve.cpsat.placement import Term

TooLarge = tuple[int, int]
"""A stage and a mode, by index, that do not fit."""


@frozen(eq=False)
class Dealt:
    """One case of several chunks in numbers.

    Attributes:
        stage_of: for each layer, the index of its stage. Shape `(layers,)`.
        costs: of the stages; arrays of shape `(modes, stages)`.
        rows: the modes a stage may use, as rows of `costs`.
        memory: bytes, the reserve included. Shape `(modes, stages)`.
        crossing: seconds to bring what crosses the boundaries in front of all chunks of a stage over each level of the
            cluster; in front of the first stage is the last. Shape `(levels, stages)`.
        possible: the levels that boundaries can have.
    """

    stage_of: Integers
    costs: StageCosts
    rows: tuple[int, ...]
    memory: Floats
    crossing: Floats
    possible: tuple[int, ...]

    def fits(self, instance: Instance, too_large: Collection[TooLarge] = ()) -> list[list[int]]:
        """For each stage, the rows of the modes that fit, as far as known."""
        room = instance.cluster.memory * (1 + LIMIT_SLACK)
        return [
            [row for row in self.rows if self.memory[row, stage] <= room and (stage, row) not in too_large]
            for stage in range(self.memory.shape[1])
        ]

    def bound(self, instance: Instance, case: Case) -> float:
        """Seconds no plan of the case is below: every boundary at its cheapest, every stage's modes as if two.

        A stage takes as long as its busiest port is occupied without messages; what waits for ports is forgotten.
        """
        fitting = self.fits(instance)
        if not all(fitting):
            return numpy.inf
        cheapest = self.crossing[list(self.possible)].min(axis=0)
        times = []
        for stage, rows in enumerate(fitting):
            messages = float(cheapest[stage] + cheapest[(stage + 1) % case.stages])
            alone = ((self.costs.time[row, stage] + messages, self.costs.busiest[row, stage]) for row in rows)
            times.append(min(float(max(each)) for each in alone))
        sync = max(min(float(self.costs.sync[row, stage]) for row in rows) for stage, rows in enumerate(fitting))
        return (case.weights[0] * max(times) + case.weights[1] * sum(times) + sync) * (1 - SUM_ERROR)


@define(eq=False)
class DealtBook:
    """The cases of several chunks of an instance in numbers."""

    instance: Instance
    _parts: dict[tuple[int, int, int], tuple[Integers, Parts, Floats]] = field(factory=dict)

    def of(self, case: Case) -> Dealt:
        """The numbers of a case."""
        (candidate,), (modes,) = case.candidates, case.modes
        stage_of, parts, crossing = self._summed(candidate, case.stages, chunks_of(case.schedule))
        costs = priced(self.instance, parts, peers(self.instance, case, candidate))
        flying = numpy.array([case.in_flight(stage) for stage in range(1, case.stages + 1)])
        levels = len(self.instance.cluster.levels)
        apart = slots(self.instance, case, self.instance.candidates[candidate].width).closest(levels)
        return Dealt(
            stage_of,
            costs,
            tuple(costs.rows(modes)),
            costs.one + (flying - 1) * costs.more,
            numpy.array(
                [point_to_point(self.instance.cluster, crossing, level).sum(axis=0) for level in range(levels)]
            ),
            tuple(level for level in range(levels) if apart[level]),
        )

    def _summed(self, candidate: int, stages: int, chunks: int) -> tuple[Integers, Parts, Floats]:
        """The stage of each layer, costs summed over stages, and bytes in front of each chunk, by turn and stage."""
        key = (candidate, stages, chunks)
        if key not in self._parts:
            chunk = even_chunks(self.instance, stages, chunks)
            assert chunk is not None, "cases have numbers of stages with even splits only"
            crossing = _crossing(self.instance, candidate, chunk, stages * chunks).reshape(chunks, stages)
            parts = _stage_parts(self.instance, candidate, chunk % stages, crossing.sum(axis=0))
            self._parts[key] = (chunk % stages, parts, crossing)
        return self._parts[key]


def _crossing(instance: Instance, candidate: int, chunk: Integers, chunks: int) -> Floats:
    """Bytes over the cut in front of each chunk. Shape `(chunks,)`."""
    found = numpy.zeros(chunks)
    sizes = instance.candidates[candidate].tensor_bytes
    for (producer, consumers), size in zip(instance.graph.tensors, sizes, strict=True):
        # Made in one chunk and read in a later one, a tensor crosses every cut between.
        last = max((int(chunk[consumer]) for consumer in consumers), default=-1)
        found[int(chunk[producer]) + 1 : last + 1] += size
    return found


def _stage_parts(instance: Instance, index: int, stage: Integers, stashed: Floats) -> Parts:
    """A candidate's costs summed over stages, `stashed` being the bytes that enter all chunks of each."""
    candidate = instance.candidates[index]
    count = len(stashed)

    def sums(values: Floats) -> Floats:
        return numpy.array([float(values[stage == each].sum()) for each in range(count)])

    recompute = {}
    for mode in candidate.recompute:
        peak = numpy.array([float(mode.peak[stage == each].max()) for each in range(count)])
        recompute[mode.name] = {
            "extra": sums(mode.extra),
            "one": sums(mode.first) + peak,
            "more": sums(mode.more) + (stashed if mode.stash_inputs else 0.0),
            "busy": rows_of(mode.busy, sums),
        }
    names = ("weights", "gradients", "optimizer", "update")
    state = tuple({name: sums(getattr(group, name)) for name in names} for group in candidate.state)
    busy = rows_of(candidate.busy, sums)
    return Parts(candidate, sums(candidate.forward + candidate.backward), busy, state, recompute, stashed)


class DealtModel:
    """One case of several chunks: the mode of each stage and where its block lies.

    Attributes:
        model: of OR-Tools.
        batch_ticks: the batch time in integers; None when only a plan, not a better one, is asked for.
    """

    def __init__(
        self,
        instance: Instance,
        case: Case,
        dealt: Dealt,
        fitting: list[list[int]],
        scale: Scale | None,
        limit: int | None,
        *,
        ordered: bool,
    ) -> None:
        """Build the model.

        Args:
            instance: the problem.
            case: what the stages share.
            dealt: its numbers.
            fitting: for each stage, the rows of the modes it may use.
            scale: how seconds become integers; None: times do not matter.
            limit: the batch time in integers must not exceed it.
            ordered: whether blocks lie in pipeline order (monotone placement).
        """
        from ortools.sat.python import cp_model

        self.model: CpModel = cp_model.CpModel()
        self._case, self._dealt, self._fitting = case, dealt, fitting
        self._taken = [
            {row: self.model.new_bool_var(f"mode {row} of {stage}") for row in rows}
            for stage, rows in enumerate(fitting)
        ]
        for row in self._taken:
            self.model.add_exactly_one(row.values())
        width = instance.candidates[case.candidates[0]].width
        places = slots(instance, case, width)
        self._placement = SlotPlacement(self.model, places, width, case.stages, ordered=ordered, ring=True)
        self.batch_ticks: IntVar | None = None
        if scale is not None and limit is not None:
            self._times_count(scale, limit)

    def _times_count(self, scale: Scale, limit: int) -> None:
        """`A * max t + B * sum t + max y`, each stage with its transfers over the levels of its boundaries."""
        count, costs = self._case.stages, self._dealt.costs
        largest = limit // max(scale.slowest, scale.total, 1)
        slowest = self.model.new_int_var(0, largest, "slowest")
        sync = self.model.new_int_var(0, limit // scale.sync, "sync")
        taken = [self.model.new_int_var(0, largest, f"time {stage}") for stage in range(count)]
        for stage, (time, modes) in enumerate(zip(taken, self._taken, strict=True)):
            computed = sum(scale.ticks(float(costs.time[row, stage])) * literal for row, literal in modes.items())
            # Boundary `i` is behind stage `i`; the last leads back to the first.
            arriving = self._crossing((stage - 1) % count, scale)
            returning = self._crossing(stage, scale)
            waited = self._stage_ports(stage, scale).waits(sync) if costs.ports is not None else 0
            self.model.add(time == computed + arriving + returning + waited)
            self.model.add(slowest >= time)
            synchronised = (scale.sync_ticks(float(costs.sync[row, stage])) * each for row, each in modes.items())
            self.model.add(sync >= sum(synchronised))
        self.batch_ticks = self.model.new_int_var(0, limit, "batch")
        self.model.add(self.batch_ticks == scale.slowest * slowest + scale.total * sum(taken) + scale.sync * sync)
        self.model.minimize(self.batch_ticks)

    def _crossing(self, boundary: int, scale: Scale) -> Term:
        """Ticks that either stage beside a boundary spends on it, by its level."""
        receiver = (boundary + 1) % self._case.stages
        return sum(
            scale.ticks(float(self._dealt.crossing[level, receiver])) * literal
            for level, literal in self._placement.levels[boundary].items()
        )

    def _stage_ports(self, stage: int, scale: Scale) -> StagePorts:
        costs, modes, count = self._dealt.costs, self._taken[stage], self._case.stages
        assert costs.ports is not None
        rows = numpy.array(list(modes))
        boundaries = []
        for boundary in ((stage - 1) % count, stage):
            near, seconds = self._placement.levels[boundary], self._dealt.crossing[:, (boundary + 1) % count]
            boundaries.append((near, {level: numpy.full(len(rows), seconds[level]) for level in near}))
        ports = costs.ports.at(rows, numpy.full(len(rows), stage))
        taken, time, sync = list(modes.values()), costs.time[rows, stage], costs.sync[rows, stage]
        return StagePorts(self.model, scale, self._case.micro_batches, taken, time, sync, ports, boundaries)

    def solution(self, value: Callable[[IntVar], int]) -> tuple[Solution, tuple[TooLarge, ...]]:
        """The decisions of a solution, and for each stage which row it uses."""
        case, dealt = self._case, self._dealt
        rows = [next(row for row, literal in modes.items() if value(literal)) for modes in self._taken]
        stages = tuple(
            StageDecision(
                tuple(numpy.flatnonzero(dealt.stage_of == stage).tolist()),
                case.candidates[0],
                *dealt.costs.modes[row],
                offset,
            )
            for stage, (row, offset) in enumerate(zip(rows, self._placement.offsets(value), strict=True))
        )
        schedule = case.schedule
        chunks = chunks_of(schedule)
        decided = Solution(case.replicas, case.rank_order, schedule.name, stages, chunks, case.zero_degree)
        return decided, tuple(enumerate(rows))
