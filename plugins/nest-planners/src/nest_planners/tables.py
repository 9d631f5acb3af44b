"""Costs of every run of units as a stage: the tables that planners of splits search."""

from collections.abc import Callable

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance import Array, Candidate, Instance, RecomputeMode, Schedule, chunks_of
from nest.tolerances import MEMORY_SLACK
from nest_planners.shapes import Units

InFlight = Callable[[int], float]
"""Micro-batches in flight of the first of so many last stages."""


@frozen(eq=False)
class StageTable:
    """Stages of one candidate, recompute mode and ZeRO stage; entry `[i, j]` is the run of units `i` to `j - 1`.

    Entries without a unit, `j <= i`, are infinitely slow. What crosses boundaries and what is sent once per batch is
    not in them, nor what ZeRO sends in every micro-batch: who counts that adds it.

    Attributes:
        time: seconds per micro-batch of forward, backward and recomputation, shape `(units + 1, units + 1)`.
        fixed: bytes with one micro-batch in flight, the reserve included, of the same shape.
        further: bytes of each further one, of the same shape.
        capacity: bytes of a device.
    """

    time: Array
    fixed: Array
    further: Array
    capacity: float

    def fits(self, in_flight: float) -> NDArray[numpy.bool_]:
        """Runs that fit with so many micro-batches in flight (PROBLEM.md section 4)."""
        needed = self.fixed + (max(in_flight, 1.0) - 1.0) * self.further
        fitting: NDArray[numpy.bool_] = needed <= self.capacity * (1 + MEMORY_SLACK)
        return fitting


def stage_table(
    instance: Instance,
    pieces: Units,
    candidate: Candidate,
    mode: RecomputeMode,
    zero: int,
    replicas: int,
    beside: Array | float = 0.0,
) -> StageTable:
    """The table of a candidate whose state is sharded over its replicas as the ZeRO stage says (PROBLEM.md section 4).

    `beside` is what a planner adds to the time of each layer, seconds per micro-batch, shape `(layers,)`.
    """
    stage = instance.space.effective_zero(zero)
    state = sharded_state(candidate, replicas, stage)
    time = _sums(pieces, candidate.forward + candidate.backward + mode.extra + beside)
    empty = numpy.tri(len(pieces) + 1, dtype=bool)
    gathered = candidate.gathered if stage >= 3 else 0.0
    fixed = _sums(pieces, state + mode.first) + _largest(pieces, mode.peak) + gathered + instance.cluster.reserve
    further = _sums(pieces, mode.more)
    if mode.stash_inputs:
        further = further + cut_bytes(instance, pieces, candidate)[:, None]
    return StageTable(numpy.where(empty, numpy.inf, time), fixed, further, instance.cluster.memory)


def sharded_state(candidate: Candidate, replicas: int, zero: int, zero_degree: int | None = None) -> Array:
    """Bytes of each layer's state on a device, sharded by a ZeRO stage (PROBLEM.md section 4). Shape `(layers,)`."""
    state = numpy.zeros(len(candidate.forward))
    for group in candidate.state:
        ranks = replicas * len(group.ranks)
        shards = min(ranks, zero_degree or ranks)
        state += group.weights / (shards if zero >= 3 else 1)
        state += group.gradients / (shards if zero >= 2 else 1)
        state += group.optimizer / (shards if zero >= 1 else 1)
    return state


def _sums(pieces: Units, values: Array) -> Array:
    """The sum over the layers of each run. Shape `(units + 1, units + 1)`."""
    endless = numpy.isinf(values)  # A layer that cannot run in a mode needs infinitely many bytes.

    def sums(of_layers: Array) -> Array:
        ends = numpy.concatenate([[0.0], numpy.cumsum([of_layers[list(unit)].sum() for unit in pieces])])
        runs: Array = ends[None, :] - ends[:, None]
        return runs

    found = sums(numpy.where(endless, 0.0, values))
    return numpy.where(sums(endless.astype(numpy.float64)) > 0, numpy.inf, found) if endless.any() else found


def _largest(pieces: Units, values: Array) -> Array:
    """The largest value in each run; 0 where it has no unit."""
    count = len(pieces)
    most = [float(values[list(unit)].max()) for unit in pieces]
    found = numpy.zeros((count + 1, count + 1))
    for start in range(count):
        found[start, start + 1 :] = numpy.maximum.accumulate(most[start:])
    return found


def cut_bytes(instance: Instance, pieces: Units, candidate: Candidate) -> Array:
    """Bytes per device and micro-batch that cross the cut in front of each unit (PROBLEM.md section 4).

    Returns: shape `(units + 1,)`.
    """
    place = {layer: index for index, unit in enumerate(pieces) for layer in unit}
    found = numpy.zeros(len(pieces) + 1)
    for (producer, consumers), size in zip(instance.graph.tensors, candidate.tensor_bytes, strict=True):
        found[place[producer] + 1 : max(place[each] for each in consumers) + 1] += size
    return found


def touching_bytes(instance: Instance, pieces: Units, candidate: Candidate) -> Array:
    """Bytes per device and micro-batch of what a run makes for others or reads from them, once for each that reads it.

    Returns: shape `(units + 1, units + 1)`, as `StageTable.time`.
    """
    place = {layer: index for index, unit in enumerate(pieces) for layer in unit}
    found = numpy.zeros((len(pieces) + 1, len(pieces) + 1))
    for (producer, consumers), size in zip(instance.graph.tensors, candidate.tensor_bytes, strict=True):
        made = place[producer]
        for reader in (place[each] for each in consumers):
            found[: made + 1, made + 1 : reader + 1] += size
            found[made + 1 : reader + 1, reader + 1 :] += size
    return found


def in_flight_from_end(schedule: Schedule, micro_batches: int) -> InFlight:
    """Micro-batches in flight by the stages from here to the end, as of a pipeline that starts here.

    Exact for schedules whose stages hold what their distance from the end asks for (`1f1b`, `nest`) and for `gpipe`.
    """

    def held(stages: int) -> float:
        found = schedule.in_flight(1, stages, micro_batches)
        return float(found) if isinstance(found, int | float) else float(numpy.max(numpy.asarray(found)))

    return held


def plain_schedules(instance: Instance) -> tuple[Schedule, ...]:
    """Schedules of one chunk a stage, preferred first; all where there is none."""
    plain = tuple(each for each in instance.space.schedules if chunks_of(each) == 1)
    return plain or instance.space.schedules
