"""Trade-off between slowest stage, sum of stages and gradient reduction, in boxes of the first and last.

The batch takes `A * max t + B * sum t + max y` (PROBLEM.md section 4). The recurrence minimises the sum under limits on
the other two. A box holds the partitions with slowest stage and gradient reduction within bounds: the recurrence at its
upper limits gives a partition, and a lower bound on sums in the box. The box with the best bound is solved and cut;
boxes that cannot beat the incumbent are pruned.
"""

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from attrs import define, field, frozen

from nest.instance import Schedule, Weights, fullest_moments, in_flight
from nest.records import Record
from nest.tolerances import LIMIT_SLACK, SUM_ERROR, TIE

WORTH_ANOTHER = 0.7  # Most of a box's range of times that may be left to compute its joint bound again.

NARROW = 0.01
"""Share of the step time to beat below which the remaining range of the slowest stage is searched at once."""


FEW_ALIKE = 3  # Numbers of stages of one configuration from which on their joint bound is computed at once.


class PlacedStage(NamedTuple):
    """One stage of a partition found."""

    larger: int  # Index of its downset `D`.
    smaller: int  # Index of the downset of the stages after it.
    slot: int  # Of its block; an offset in mixed plans.
    choice: int  # Index in the stage tables.
    cost: float  # Part of the minimised sum: `time`, or its weighted parts.
    time: float  # Seconds per micro-batch in a full pipeline.
    sync: float  # Seconds per batch.
    member: int = 0  # Index of its candidate in a mixed plan.


@frozen(eq=False, repr=False, slots=False)
class Partition(Record):
    """Stages in pipeline order, with the sums of the objective (seconds)."""

    stages: tuple[PlacedStage, ...]

    @cached_property
    def largest_time(self) -> float:
        """Time of the slowest stage per micro-batch."""
        return max(stage.time for stage in self.stages)

    @cached_property
    def total_time(self) -> float:
        """Sum of stage times per micro-batch, or of their weighted parts."""
        return sum(stage.cost for stage in self.stages)

    @cached_property
    def largest_sync(self) -> float:
        """Longest gradient reduction per batch."""
        return max(stage.sync for stage in self.stages)


class Floor(NamedTuple):
    """Lower bounds of the three terms, seconds."""

    largest_time: float
    total_time: float
    largest_sync: float

    @classmethod
    def of(cls, terms: Sequence[float], weights: Weights | None) -> "Floor":
        """Floor from the parts of times if `weights` are given."""
        if weights is None or math.inf in terms:
            return cls(terms[0], terms[1], terms[-1])
        slowest, forward, inputs, gradients, rest, sync = terms
        # With `Bw` below 0 the sum is `Bf f + (Bb + Bw) b - Bw (b - w)`: no weight is negative.
        less = min(weights.weight_gradients, 0.0)
        total = weights.forward * forward + (weights.input_gradients + less) * inputs
        total += (weights.weight_gradients - less) * gradients - less * rest
        # Messages are among the passes that wait for them, and may weigh less than these.
        pairs = (weights.arriving, weights.forward), (weights.returning, weights.input_gradients)
        share = min((message / passes for message, passes in pairs if passes > 0), default=1.0)
        return cls(slowest, total * min(share, 1.0) * (1 - SUM_ERROR), sync)


class Objective(NamedTuple):
    """Weights of a schedule: `A` for the slowest stage, `B` for the sum of stages."""

    slowest: float
    total: float

    def time_limit(self, limit: float, rest: float) -> float:
        """Most seconds of the slowest stage of a plan below `limit`, if the rest takes at least `rest`."""
        return (limit - rest) / self.slowest * (1 + LIMIT_SLACK) if self.slowest > 0 else math.inf

    def of(self, terms: Partition | Floor) -> float:
        """Step time (s) of a partition, or a lower bound on partitions above a floor."""
        return self.slowest * terms.largest_time + self.total * terms.total_time + terms.largest_sync


Joint = Callable[[float, float], float]
"""Lower bound (s) on partitions within limits on the largest time and gradient reduction."""


def least_batch_time(
    run: Callable[[float, float], Partition | None],
    objective: Objective,
    floor: Floor,
    limit: float,
    first_will_do: bool = False,
    joint: Joint | None = None,
) -> tuple[float, Partition | None]:
    """Best partition below `limit`, exactly, with its step time; `limit` and None if there is none.

    Args:
        run: finds the partition with the least total time under limits on the largest time and gradient reduction.
        limit: step time to beat, seconds.
        first_will_do: stop at the first partition below `limit`.
        joint: lower bound on `B sum t + max y` under the same limits; None: unknown.
    """
    boxes = _Boxes(run, objective, floor, limit, first_will_do, joint)
    boxes.search()
    return boxes.value, boxes.best


class _Box(NamedTuple):
    """Partitions with largest time and gradient reduction within inclusive limits, in seconds."""

    least: Floor  # Lower bounds of the three terms.
    most_time: float  # Upper limit of the largest time.
    most_sync: float  # Upper limit of gradient reduction.
    left: bool = False  # All that is left of another box behind the best partition.


@define(eq=False, repr=False)
class _Boxes:
    """Remaining boxes, least bound first."""

    # `_beside` is what all but the slowest stage take at least, by the joint bound of the boxes that are left.
    run: Callable[[float, float], Partition | None]  # The recurrence.
    objective: Objective
    floor: Floor  # Lower bounds of the three terms for every partition.
    value: float  # Step time to beat, seconds.
    first_will_do: bool  # Stop at the first partition below it.
    joint: Joint | None = None  # See `least_batch_time`.
    best: Partition | None = None  # Partition with that step time, if found.
    _beside: float = 0.0
    _queue: list[tuple[float, int, _Box]] = field(factory=list)
    _runs: list[tuple[float, float, Partition | None]] = field(factory=list)
    _pushed: int = 0

    def search(self) -> None:
        """Solve and cut boxes until none can hold the best."""
        whole = self._together(self._trimmed(_Box(self.floor, math.inf, math.inf)))
        if whole is None:
            return
        if not self.objective.slowest * (whole.most_time - self.floor.largest_time) <= NARROW * self.value:
            # A partition that keeps the least largest time is often the best, and bounds the rest.
            self._solve(self.floor.largest_time * (1 + TIE), math.inf)
        self._push(whole)
        while self._queue and self._queue[0][0] < self._threshold:
            if self.first_will_do and self.best is not None:
                return
            box = self._trimmed(heapq.heappop(self._queue)[2])
            left = self._within_others(box)
            if left is None:
                continue
            box = left
            partition = self._solve(box.most_time, box.most_sync)
            # Where the recurrence finds nothing within the box's limits, the box is empty.
            if partition is not None:
                for part in self._rest(box, partition):
                    self._push(part)

    @property
    def _threshold(self) -> float:
        """Bound below which a box is worth a run: better by more than rounding."""
        return self.value if self.best is None else self.value * (1 - TIE)

    def _within_others(self, box: _Box) -> _Box | None:
        """Part of the box that may hold something better, given results for wider limits; None: nothing."""
        wider = [each for *limits, each in self._runs if limits[0] >= box.most_time and limits[1] >= box.most_sync]
        if any(each is None for each in wider):
            return None
        total = max((each.total_time * (1 - TIE) for each in wider if each is not None), default=0.0)
        if total <= box.least.total_time:
            return box
        least = Floor(box.least.largest_time, total, box.least.largest_sync)
        if self._bound(least) >= self._threshold:
            return None
        return self._trimmed(_Box(least, box.most_time, box.most_sync, box.left))

    def _solve(self, time_limit: float, sync_limit: float) -> Partition | None:
        """Find the partition of least sum within the limits, and keep it if it is the best."""
        for most_time, most_sync, known in self._runs:
            wider = most_time >= time_limit and most_sync >= sync_limit
            if wider and known is not None and known.largest_time <= time_limit and known.largest_sync <= sync_limit:
                return known
        partition = self.run(time_limit, sync_limit)
        self._runs.append((time_limit, sync_limit, partition))
        if partition is not None and self.objective.of(partition) < self.value:
            self.value, self.best = self.objective.of(partition), partition
        return partition

    def _bound(self, least: Floor) -> float:
        """Lower bound (s) on partitions above these lower bounds."""
        return max(self.objective.of(least), self.objective.slowest * least.largest_time + self._beside)

    def _push(self, box: _Box) -> None:
        bound = self._bound(box.least)
        within = box.least.largest_time <= box.most_time and box.least.largest_sync <= box.most_sync
        if within and bound < self._threshold:
            self._pushed += 1
            heapq.heappush(self._queue, (bound, self._pushed, box))

    def _trimmed(self, box: _Box) -> _Box:
        """Part of the box that may hold something better than the best."""
        if math.isinf(self.value):
            return box
        # What beats the best spends no more above the least of one term than the best has above the least of all.
        room = self.value * (1 + TIE) - self.objective.of(box.least)
        most_time, most_sync = box.most_time, min(box.most_sync, box.least.largest_sync + room)
        if self.objective.slowest > 0:
            room = self.value * (1 + TIE) - self._bound(box.least)
            most_time = min(most_time, box.least.largest_time + room / self.objective.slowest)
        return _Box(box.least, most_time, most_sync, box.left)

    def _together(self, box: _Box) -> _Box | None:
        """Part of the box that may hold something better by its joint bound; None: nothing.

        Partitions better than the best have a limited slowest stage. That limit raises the bound, and so on while it
        shrinks much.
        """
        while self.joint is not None and math.isfinite(self.value):
            self._beside = self.joint(box.most_time, box.most_sync)
            bound = self.objective.slowest * box.least.largest_time + self._beside
            if bound >= self._threshold:
                return None
            if self.objective.slowest <= 0:
                break
            room = (self.value * (1 + TIE) - bound) / self.objective.slowest
            most_time, before = box.least.largest_time + room, box.most_time
            if most_time >= before:
                break
            box = _Box(box.least, most_time, box.most_sync)
            if room > WORTH_ANOTHER * (before - box.least.largest_time):
                break
        return box

    def _rest(self, box: _Box, partition: Partition) -> Iterator[_Box]:
        """Parts of `box` that may beat `partition`, which has the least sum in it.

        Better ones have a faster slowest stage, or an equally fast one and shorter gradient reduction.
        """
        low = box.least
        # The recurrence gave the least sum of the whole box, up to rounding.
        least = Floor(low.largest_time, max(low.total_time, partition.total_time * (1 - TIE)), low.largest_sync)
        # Behind the best there is mostly nothing left, which a single run tells; where there is, boxes are cut.
        left = not box.left and self.objective.of(partition) <= self.value
        faster, quicker = _below(partition.largest_time), _below(partition.largest_sync)
        if self.objective.slowest > 0:
            if partition.largest_time > low.largest_time:
                part = _Box(least, min(faster, box.most_time), box.most_sync, left)
                yield from self._halves(self._trimmed(part), partition.largest_sync)
            least = Floor(max(low.largest_time, faster), least.total_time, low.largest_sync)
        if partition.largest_sync > low.largest_sync:
            part = _Box(least, box.most_time, min(quicker, box.most_sync), left)
            yield from self._halves(self._trimmed(part), partition.largest_sync)

    def _halves(self, box: _Box, usual_sync: float) -> Iterator[_Box]:
        """Cut the box in two along the side worth most step time.

        Its limit on gradient reduction may far exceed any partition's: it is cut at `usual_sync`.
        """
        low = box.least
        time_range = box.most_time - low.largest_time
        sync_range = min(box.most_sync, usual_sync) - low.largest_sync
        if box.left or max(time_range, sync_range) <= 0:
            yield box
        elif self.objective.slowest > 0 and self.objective.slowest * time_range >= sync_range:
            middle = low.largest_time + time_range / 2
            yield _Box(low, middle, box.most_sync)
            yield _Box(Floor(middle, low.total_time, low.largest_sync), box.most_time, box.most_sync)
        else:
            middle = low.largest_sync + sync_range / 2
            yield _Box(low, box.most_time, middle)
            yield _Box(Floor(low.largest_time, low.total_time, middle), box.most_time, box.most_sync)


def _below(value: float) -> float:
    """Largest value that is less by more than rounding."""
    return min(value * (1 - TIE), math.nextafter(value, -math.inf))


def in_flight_from_last(schedule: Schedule, stages: int, micro_batches: int) -> tuple[float, ...]:
    """`in_flight` of each stage's `fullest_moments`, counted from the last. Shape `(stages,)`."""
    behind = range(stages, 0, -1)
    every: list[Any] = [schedule.in_flight(stage, stages, micro_batches) for stage in behind]
    if all(type(held) is int for held in every):
        return tuple(map(float, every))
    return tuple(in_flight(fullest_moments(schedule, stage, stages, micro_batches)) for stage in behind)
