"""Models of cases of several chunks: layers are interleaved evenly, so only modes and places are left to decide.

PROBLEM.md section 4, `interleaved`: every chunk pays its own boundaries, and the last stage sends back to the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
from attrs import define, field, frozen

from nest.instance import Instance, Solution, StageDecision, chunks_of
from nest.solve.cpsat.cases import Case, LimitOf, OpenCase
from nest.solve.cpsat.cuts import Floats, Integers, even_chunks
from nest.solve.cpsat.placement import SlotPlacement, point_to_point, slots
from nest.solve.cpsat.ports import StagePorts
from nest.solve.cpsat.scaling import TERMS, Limit, Scale
from nest.solve.cpsat.stages import Parts, StageCosts, data_parallel_groups, priced
from nest.tolerances import LIMIT_SLACK, SUM_ERROR

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ortools.sat.python.cp_model import CpModel, IntVar

    from nest.solve.cpsat.placement import Term

Overfull = tuple[int, int]
"""A stage and a mode, by index, that do not fit."""


@frozen(eq=False)
class InterleavedCosts:
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

    def fitting(self, instance: Instance, overfull: Collection[Overfull] = ()) -> list[list[int]]:
        """For each stage, the rows of the modes that fit, as far as known."""
        room = instance.cluster.memory * (1 + LIMIT_SLACK)
        return [
            [row for row in self.rows if self.memory[row, stage] <= room and (stage, row) not in overfull]
            for stage in range(self.memory.shape[1])
        ]


@define(eq=False)
class InterleavedModels:
    """Models of cases of several chunks.

    Attributes:
        instance: the problem.
    """

    instance: Instance
    _parts: dict[tuple[int, int, int], tuple[Integers, Parts, Floats]] = field(factory=dict)

    def bound(self, case: Case, target: float) -> float:
        """Seconds no plan of the case is below; infinite where nothing fits.

        Every boundary is at its cheapest, and each stage's modes are as if two. A stage takes as long as its busiest
        port is occupied without messages; what waits for ports is forgotten.
        """
        numbers = self._costs(case)
        fitting = numbers.fitting(self.instance)
        if not all(fitting):
            return numpy.inf
        costs, cheapest = numbers.costs, numbers.crossing[list(numbers.possible)].min(axis=0)
        times = []
        for stage, rows in enumerate(fitting):
            messages = float(cheapest[stage] + cheapest[(stage + 1) % case.stages])
            alone = ((costs.time[row, stage] + messages, costs.busiest[row, stage]) for row in rows)
            times.append(min(float(max(each)) for each in alone))
        sync = max(min(float(costs.sync[row, stage]) for row in rows) for stage, rows in enumerate(fitting))
        return (case.weights[0] * max(times) + case.weights[1] * sum(times) + sync) * (1 - SUM_ERROR)

    def model(
        self, each: OpenCase, target: float, overfull: Sequence[Any], limit_of: LimitOf, *, ordered: bool
    ) -> InterleavedModel | None:
        """The model of a case without what is `overfull`; None: nothing fits a stage."""
        numbers = self._costs(each.case)
        fitting = numbers.fitting(self.instance, overfull)
        if not all(fitting):
            return None
        limit = limit_of(each.case, TERMS)
        return InterleavedModel(self.instance, each.case, numbers, fitting, limit, ordered=ordered)

    def _costs(self, case: Case) -> InterleavedCosts:
        (candidate,), (modes,) = case.candidates, case.modes
        stage_of, parts, crossing = self._summed(candidate, case.stages, chunks_of(case.schedule))
        costs = priced(self.instance, parts, data_parallel_groups(self.instance, case, candidate))
        flying = numpy.array([case.in_flight(stage) for stage in range(1, case.stages + 1)])
        levels = range(len(self.instance.cluster.levels))
        apart = slots(self.instance, case, self.instance.candidates[candidate].width).closest(len(levels))
        return InterleavedCosts(
            stage_of,
            costs,
            tuple(costs.rows(modes)),
            costs.one + (flying - 1) * costs.more,
            numpy.array([point_to_point(self.instance.cluster, crossing, level).sum(axis=0) for level in levels]),
            tuple(level for level in levels if apart[level]),
        )

    def _summed(self, candidate: int, stages: int, chunks: int) -> tuple[Integers, Parts, Floats]:
        """The stage of each layer, costs summed over stages, and bytes in front of each chunk, by turn and stage."""
        key = (candidate, stages, chunks)
        if key not in self._parts:
            chunk = even_chunks(self.instance, stages, chunks)
            assert chunk is not None, "cases have numbers of stages with even splits only"
            crossing = _crossing(self.instance, candidate, chunk, stages * chunks).reshape(chunks, stages)
            layers = [chunk % stages == stage for stage in range(stages)]
            entering = crossing.sum(axis=0)
            parts = Parts.of(
                self.instance.candidates[candidate],
                lambda values: numpy.array([float(values[own].sum()) for own in layers]),
                lambda values: numpy.array([float(values[own].max()) for own in layers]),
                entering,
                entering,
            )
            self._parts[key] = (chunk % stages, parts, crossing)
        return self._parts[key]


def _crossing(instance: Instance, candidate: int, chunk: Integers, chunks: int) -> Floats:
    """Bytes over the cut in front of each chunk. Shape `(chunks,)`."""
    seconds = numpy.zeros(chunks)
    sizes = instance.candidates[candidate].tensor_bytes
    for (producer, consumers), size in zip(instance.graph.tensors, sizes, strict=True):
        # Made in one chunk and read in a later one, a tensor crosses every cut between.
        last = max((int(chunk[consumer]) for consumer in consumers), default=-1)
        seconds[int(chunk[producer]) + 1 : last + 1] += size
    return seconds


class InterleavedModel:
    """One case of several chunks: the mode of each stage and where its block lies.

    Attributes:
        model: of OR-Tools.
        limit: on the step time, which is minimised; None: any plan is asked for.
    """

    def __init__(
        self,
        instance: Instance,
        case: Case,
        numbers: InterleavedCosts,
        fitting: list[list[int]],
        limit: Limit | None,
        *,
        ordered: bool,
    ) -> None:
        """Build the model.

        Args:
            instance: the problem.
            case: what the stages share.
            numbers: of the case.
            fitting: for each stage, the rows of the modes it may use.
            limit: on the step time; None: times do not matter.
            ordered: whether blocks lie in pipeline order (monotone placement).
        """
        from ortools.sat.python import cp_model

        self.model: CpModel = cp_model.CpModel()
        self._case, self._numbers = case, numbers
        self._taken = [
            {row: self.model.new_bool_var(f"mode {row} of {stage}") for row in rows}
            for stage, rows in enumerate(fitting)
        ]
        for row in self._taken:
            self.model.add_exactly_one(row.values())
        width = instance.candidates[case.candidates[0]].width
        places = slots(instance, case, width)
        self._placement = SlotPlacement(self.model, places, width, case.stages, ordered=ordered, ring=True)
        self.limit = limit
        if limit is not None:
            self._times_count(*limit)

    def _times_count(self, scale: Scale, limit: int) -> None:
        """`A * max t + B * sum t + max y`, each stage with its transfers over the levels of its boundaries."""
        count, costs = self._case.stages, self._numbers.costs
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
            own = (scale.sync_ticks(float(costs.sync[row, stage])) * each for row, each in modes.items())
            self.model.add(sync >= sum(own))
        batch = self.model.new_int_var(0, limit, "batch")
        self.model.add(batch == scale.slowest * slowest + scale.total * sum(taken) + scale.sync * sync)
        self.model.minimize(batch)

    def _crossing(self, boundary: int, scale: Scale) -> Term:
        """Ticks that either stage beside a boundary spends on it, by its level."""
        receiver = (boundary + 1) % self._case.stages
        return sum(
            scale.ticks(float(self._numbers.crossing[level, receiver])) * literal
            for level, literal in self._placement.levels[boundary].items()
        )

    def _stage_ports(self, stage: int, scale: Scale) -> StagePorts:
        costs, modes, count = self._numbers.costs, self._taken[stage], self._case.stages
        assert costs.ports is not None
        rows = numpy.array(list(modes))
        boundaries = []
        for boundary in ((stage - 1) % count, stage):
            near, seconds = self._placement.levels[boundary], self._numbers.crossing[:, (boundary + 1) % count]
            boundaries.append((near, {level: numpy.full(len(rows), seconds[level]) for level in near}))
        ports = costs.ports.at(rows, numpy.full(len(rows), stage))
        taken, time, sync = list(modes.values()), costs.time[rows, stage], costs.sync[rows, stage]
        return StagePorts(self.model, scale, self._case.micro_batches, taken, time, sync, ports, boundaries)

    def solution(self, value: Callable[[IntVar], int]) -> tuple[Solution, tuple[Overfull, ...]]:
        """The decisions of a solution, and for each stage which row it uses."""
        case, numbers = self._case, self._numbers
        rows = [next(row for row, literal in modes.items() if value(literal)) for modes in self._taken]
        stages = [
            StageDecision(
                tuple(numpy.flatnonzero(numbers.stage_of == stage).tolist()),
                case.candidates[0],
                *numbers.costs.modes[row],
                offset,
            )
            for stage, (row, offset) in enumerate(zip(rows, self._placement.offsets(value), strict=True))
        ]
        return case.plan(stages), tuple(enumerate(rows))
