"""Replays with randomly and systematically slower tasks, on every replica."""

from __future__ import annotations  # NumPy loads its random numbers when they are named.

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
from attrs import field, frozen
from numpy.typing import NDArray

from nest.errors import InputError
from nest.instance import Pass
from nest.instance.schedule import Places
from nest.simulate.stage_tasks import COLLECTIVES, COMPUTE, Piece, StageWork
from nest.simulate.timeline import (
    REPORT_EVERY,
    Message,
    Progress,
    Span,
    Task,
    Timeline,
    awaited,
    recorded,
    sent,
    under_way,
)
from nest.units import displayed, whole_number

Times = NDArray[numpy.float64]  # Seconds; shape `(runs, replicas)`.
AT_ONCE = 8192  # Runs times replicas replayed together: GPipe's messages between two stages then take tens of MB.
MOST_JITTER = 10.0  # Above this, a task's factor may overflow.
MOST_SLOWER = 1e9  # Above this, times may overflow, or exceed the range of a trace.

PERCENTILES = (5, 50, 90, 95, 99)


@frozen
class SlowDevice:
    """A device, and so its block, with slower compute than planned."""

    stage: int  # From 0.
    replica: int  # From 0.
    factor: float  # On compute times, at most `MOST_SLOWER`; communication is unaffected.


@frozen
class Disturbance:
    """Deviations from the planned times.

    Raises:
        InputError: a number is out of its range.
    """

    jitter: float = 0.0  # Standard deviation of the logarithm of each task's factor, whose mean is 1; 0: none.
    seed: int = 0  # Of the random numbers.
    runs: int = 1  # Batches replayed.
    slow: tuple[SlowDevice, ...] = ()  # Slower devices.

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.jitter <= MOST_JITTER:
            raise InputError(f"jitter must be a number from 0 to {MOST_JITTER:g}, is {self.jitter:g}.")
        if self.seed < 0:
            raise InputError(f"the seed must be at least 0, is {self.seed}.")
        if self.runs < 1:
            raise InputError(f"there must be at least 1 run, not {self.runs}.")
        for each in self.slow:
            if not 0 < each.factor <= MOST_SLOWER:
                raise InputError(
                    f"a slow device's factor must be a number above 0, at most {MOST_SLOWER:g}, is {each.factor:g}."
                )
        twice = [
            place for place, count in Counter((each.stage, each.replica) for each in self.slow).items() if count > 1
        ]
        if twice:
            raise InputError(f"stage {twice[0][0] + 1} of replica {twice[0][1]} is named twice as slow; name it once.")


@frozen
class StragglersAndJitter:
    """Effect of a disturbance."""

    disturbance: Disturbance
    planned: float  # Seconds of the batch without it.
    batch_times: tuple[float, ...] = field(repr=False)  # Seconds of each run.
    # For each stage, seconds that a replica waits for the slowest before gradients are reduced, on average over
    # replicas and runs.
    waits: tuple[float, ...]
    # First run, of the replica with the first slow device, or of the first replica.
    timeline: Timeline = field(repr=False)

    def percentile(self, share: float) -> float:
        """Seconds that `share` percent of the runs do not exceed."""
        return float(numpy.percentile(self.batch_times, share))

    def to_dict(self) -> dict[str, Any]:
        """Convert all but the timeline to plain mappings, lists and numbers."""
        given = self.disturbance
        return {
            "jitter": given.jitter,
            "seed": given.seed,
            "runs": given.runs,
            "slow_devices": [
                {"stage": each.stage + 1, "replica": each.replica, "factor": each.factor} for each in given.slow
            ],
            "mean": float(numpy.mean(self.batch_times)),
            "least": min(self.batch_times),
            "most": max(self.batch_times),
            "percentiles": {str(share): self.percentile(share) for share in PERCENTILES},
            "waits": list(self.waits),
        }


def disturb(
    works: Sequence[StageWork],
    spans: Sequence[Span],
    places: Places,
    replicas: int,
    staggered: bool,
    planned: float,
    disturbance: Disturbance,
    progress: Progress | None = None,
) -> StragglersAndJitter:
    """Replay the passes in the same order on every replica, with changed task times.

    Collectives begin when the last replica arrives, so the slowest delays the others: all at the gradient reduction,
    those of its shard group with ZeRO 2 and 3 in every micro-batch.

    Args:
        works: of each stage.
        spans: passes as planned; sorted so that awaited ones come first.
        places: of the passes in the pipeline.
        replicas: `d`.
        staggered: of the schedule.
        planned: seconds of the batch as planned.
        progress: called regularly with the share done.

    Raises:
        InputError: a slow device is on an unknown stage or replica.
    """
    for each in disturbance.slow:
        if each.stage not in range(len(works)) or each.replica not in range(replicas):
            raise InputError(
                f"there is no stage {each.stage + 1} of replica {each.replica}: stages are numbered from 1 to "
                f"{len(works)}, replicas from 0 to {replicas - 1}."
            )
    draw = numpy.random.Generator(numpy.random.PCG64(disturbance.seed))
    replica = disturbance.slow[0].replica if disturbance.slow else 0
    at_once = max(AT_ONCE // replicas, 1)
    result: list[_Runs] = []
    for first in range(0, disturbance.runs, at_once):
        shape = (min(at_once, disturbance.runs - first), replicas)
        runs = _Runs(works, places, shape, staggered, disturbance, draw)
        runs.go(spans, replica if first == 0 else None, progress, (first, disturbance.runs))
        result.append(runs)
    times = numpy.concatenate([runs.batch_times for runs in result])
    waits = [float(numpy.concatenate([runs.waits[stage] for runs in result]).mean()) for stage in range(len(works))]
    return StragglersAndJitter(
        disturbance,
        planned,
        tuple(times.tolist()),
        tuple(waits),
        recorded(works, replica, result[0].spans, result[0].tasks, places),
    )


class _Runs:
    """Several runs of all replicas, in arrays."""

    def __init__(
        self,
        works: Sequence[StageWork],
        places: Places,
        shape: tuple[int, int],
        staggered: bool,
        disturbance: Disturbance,
        draw: numpy.random.Generator,
    ) -> None:
        self._works = works
        self._places = places
        self._shape = shape
        self._staggered = staggered
        self._sigma = disturbance.jitter
        self._draw = draw
        self._slow: dict[int, Times] = {}
        for each in disturbance.slow:
            factors = self._slow.setdefault(each.stage, numpy.ones((1, shape[1])))
            factors[0, each.replica] *= each.factor
        self._free = [numpy.zeros(shape) for _ in works]
        self._begun: dict[int, Times] = {}
        self._shown: int | None = None
        self.spans: list[Span] = []
        self.tasks: list[Task] = []

    def go(self, spans: Sequence[Span], replica: int | None, progress: Progress | None, among: tuple[int, int]) -> None:
        """Run all passes and the optimizer steps; the first run of replica `replica` is recorded."""
        self._shown = replica
        arrived: dict[Message, Times] = {}
        together: tuple[Span, ...] = ()
        for number, span in enumerate(spans):
            together = (*together, span)
            if not span.run.overlapped:
                self._run(together, arrived)
                together = ()
            if progress is not None and number % REPORT_EVERY == 0:
                progress("disturbing", (among[0] + self._shape[0] * number / len(spans)) / among[1])
        # Gradients are reduced once the last replica has come.
        done = numpy.stack([self._together(free, self._shape[1]) for free in self._free])
        self.waits = done - numpy.stack(self._free)
        ready = done if self._staggered else numpy.broadcast_to(done.max(axis=0), done.shape)
        at_work = ready - numpy.stack([self._begun[stage] for stage in range(len(ready))]) if self._staggered else ready
        steps = []
        for stage, work in enumerate(self._works):
            clock = ready[stage]
            for piece in work.optimizer_step:
                clock = self._piece(stage, piece, clock, None)
            steps.append(clock - ready[stage])
        self.batch_times = at_work.max(axis=(0, 2)) + numpy.stack(steps).max(axis=(0, 2))

    def _run(self, together: Sequence[Span], arrived: dict[Message, Times]) -> None:
        """Run a pass, or two overlapped ones."""
        device, places = together[0].stage, self._places
        clock = self._free[device]
        for span in together:
            need = awaited(span.run, device, places)
            clock = clock if need is None else numpy.maximum(clock, arrived.pop(need))
        self._begun.setdefault(device, clock)
        for span in together:
            step, begun = span.run, clock
            for piece in self._works[places.mirrored(device, step.micro_batch)].passes[step.kind, step.chunk]:
                clock = self._piece(device, piece, clock, step)
            if self._shown is not None:
                self.spans.append(Span(device, step, float(begun[0, self._shown]), float(clock[0, self._shown])))
        self._free[device] = clock
        for span in together:
            message = sent(span.run, device, places)
            if message is not None:
                arrived[message] = clock + under_way(self._works, message, places)

    def _piece(self, stage: int, piece: Piece, clock: Times, step: Pass | None) -> Times:
        """End of a piece that may begin at `clock`."""
        start = clock
        if piece.kind in COLLECTIVES:
            # Gradients are summed over all replicas once per batch, else what is shared is shared in shard groups.
            everywhere = step is None and piece.kind == "reduce-gradients"
            start = self._together(clock, self._shape[1] if everywhere else self._works[stage].in_step)
        seconds: Times | float = piece.seconds
        if piece.kind in COMPUTE and stage in self._slow:
            seconds = seconds * self._slow[stage]
        if self._sigma:
            factors = numpy.exp(self._sigma * self._draw.standard_normal(self._shape) - self._sigma**2 / 2)
            seconds = seconds * factors
        end = start + seconds
        if self._shown is not None:
            begun, ended = float(start[0, self._shown]), float(end[0, self._shown])
            run, micro_batch, chunk = (None, None, 0) if step is None else (step.kind, step.micro_batch, step.chunk)
            self.tasks.append(Task(stage, piece.kind, run, micro_batch, chunk, begun, ended))
        return end

    def _together(self, clock: Times, replicas: int) -> Times:
        """Arrival of the last of so many neighbouring replicas, for each of them."""
        if replicas == 1:
            return clock
        groups = clock.reshape(self._shape[0], -1, replicas)
        return numpy.broadcast_to(groups.max(axis=2, keepdims=True), groups.shape).reshape(self._shape)


USUAL_RUNS = 100  # Default number of runs with jitter.


def disturbance(jitter: float, seed: int, runs: int | None, slow_devices: Mapping[str, float]) -> Disturbance | None:
    """Build a disturbance; None: there is none.

    Args:
        jitter: standard deviation of the logarithm of each task's factor; 0: none.
        seed: of the random numbers.
        runs: batches replayed with jitter; None: `USUAL_RUNS`.
        slow_devices: factors by `STAGE` or `STAGE/REPLICA`; stages count from 1, replicas from 0.

    Raises:
        InputError: a number is out of its range, or a device is invalid.
    """
    slow = tuple(_slow_device(place, factor) for place, factor in slow_devices.items())
    if runs is None:
        runs = USUAL_RUNS if jitter else 1
    disturbed = Disturbance(jitter, seed, runs, slow)
    return disturbed if jitter or slow else None


def _slow_device(place: str, factor: float) -> SlowDevice:
    stage, slash, replica = place.partition("/")
    number, copy = whole_number(stage), whole_number(replica) if slash else 0
    if not number or copy is None:
        raise InputError(
            f"a slow device is named by its stage, counted from 1, and its replica, counted from 0, such as 2/0; "
            f"got {displayed(place)}."
        )
    if isinstance(factor, bool) or not isinstance(factor, (int, float)):
        raise InputError(f"the factor of the slow device {place} must be a number above 0, is {displayed(factor)}.")
    return SlowDevice(number - 1, copy, float(factor))
