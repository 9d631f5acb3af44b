"""The trade between the slowest stage, the sum of stages and gradient reduction, in boxes of the first and the last.

The batch takes `A * max t + B * sum t + max y` (PROBLEM.md section 4). The recurrence minimises the sum under limits on
the other two. A box holds the partitions whose slowest stage and gradient reduction lie within bounds of both kinds:
the recurrence at its upper limits gives a partition, and a sum that nothing in the box beats. The box that could hold
the best is taken first, solved, and cut; boxes that cannot beat the incumbent are pruned.
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

WORTH_ANOTHER = 0.7
"""What is left of a box's range of times, at most, for its joint bound to be asked for once more."""

NARROW = 0.01
"""Share of the step time to beat up to which the range that is left to the slowest stage is looked at at once."""


FEW_ALIKE = 3
"""Numbers of stages of one configuration from which on their joint bound is asked for at once."""


class PlacedStage(NamedTuple):
    """One stage of a partition found.

    Attributes:
        larger: index of its downset `D`.
        smaller: index of the downset of the stages after it.
        slot: where its block sits; an offset in mixed plans.
        choice: index of its choice in the stage tables.
        cost: its part of what plans are to have the least sum of: `time`, or what the schedule weighs apart.
        time: seconds per micro-batch while the pipeline is full.
        sync: seconds once per batch.
        member: which of a mixed plan's candidates it uses.
    """

    larger: int
    smaller: int
    slot: int
    choice: int
    cost: float
    time: float
    sync: float
    member: int = 0


@frozen(eq=False, repr=False, slots=False)
class Partition(Record):
    """Stages in pipeline order, with the sums the objective needs (seconds)."""

    stages: tuple[PlacedStage, ...]

    @cached_property
    def largest_time(self) -> float:
        """Time of the slowest stage per micro-batch."""
        return max(stage.time for stage in self.stages)

    @cached_property
    def total_time(self) -> float:
        """Sum of stage times per micro-batch, or of what the schedule weighs apart."""
        return sum(stage.cost for stage in self.stages)

    @cached_property
    def largest_sync(self) -> float:
        """Longest gradient reduction, once per batch."""
        return max(stage.sync for stage in self.stages)


class Floor(NamedTuple):
    """Lower bounds of the three terms, seconds."""

    largest_time: float
    total_time: float
    largest_sync: float

    @classmethod
    def of(cls, terms: Sequence[float], weights: Weights | None) -> "Floor":
        """From those of the parts of times, where the `weights` are not None."""
        if weights is None or math.inf in terms:
            return cls(terms[0], terms[1], terms[-1])
        slowest, forward, inputs, gradients, rest, sync = terms
        # With `Bw` below 0 the sum is that of `Bf f + (Bb + Bw) b - Bw (b - w)`: no weight is negative.
        less = min(weights.weight_gradients, 0.0)
        total = weights.forward * forward + (weights.input_gradients + less) * inputs
        total += (weights.weight_gradients - less) * gradients - less * rest
        # Messages are among the passes that wait for them, and may weigh less than these.
        pairs = (weights.arriving, weights.forward), (weights.returning, weights.input_gradients)
        share = min((message / passes for message, passes in pairs if passes > 0), default=1.0)
        return cls(slowest, total * min(share, 1.0) * (1 - SUM_ERROR), sync)


class Objective(NamedTuple):
    """Weights of a schedule.

    Attributes:
        slowest: `A`, weight of the slowest stage.
        total: `B`, weight of the sum of stages.
    """

    slowest: float
    total: float

    def time_limit(self, limit: float, rest: float) -> float:
        """Most seconds of the slowest stage of a plan that beats `limit` when all else takes `rest` at least."""
        return (limit - rest) / self.slowest * (1 + LIMIT_SLACK) if self.slowest > 0 else math.inf

    def of(self, terms: Partition | Floor) -> float:
        """Batch time of a partition, or the one that no partition above a floor can beat, seconds."""
        return self.slowest * terms.largest_time + self.total * terms.total_time + terms.largest_sync


Joint = Callable[[float, float], float]
"""Seconds that no partition beats whose largest time and gradient reduction keep limits."""


def least_batch_time(
    run: Callable[[float, float], Partition | None],
    objective: Objective,
    floor: Floor,
    limit: float,
    first_will_do: bool = False,
    joint: Joint | None = None,
) -> tuple[float, Partition | None]:
    """The best partition that beats `limit`, exactly.

    Args:
        run: partition of least total time under limits on the largest time and on gradient reduction.
        objective: weights of the three terms.
        floor: lower bounds of the three terms.
        limit: step time to beat, seconds.
        first_will_do: stop at the first partition that beats it, which need not be the best.
        joint: under the same limits as `run`, what `B sum t + max y` is at least; None: nobody knows.

    Returns:
        Its step time and the partition; `limit` and None when none beats it.
    """
    boxes = _Boxes(run, objective, floor, limit, first_will_do, joint)
    boxes.search()
    return boxes.value, boxes.best


class _Box(NamedTuple):
    """Partitions whose largest time and gradient reduction lie within limits, in seconds, the limits included.

    Attributes:
        least: lower bounds of the three terms.
        most_time: upper limit of the largest time.
        most_sync: upper limit of gradient reduction.
        left: whether it is all that was left of another behind the best partition.
    """

    least: Floor
    most_time: float
    most_sync: float
    left: bool = False


@define(eq=False, repr=False)
class _Boxes:
    """What is left of the search, the box of least bound first.

    Attributes:
        run: the recurrence.
        objective: weights of the three terms.
        floor: lower bounds of the three terms, of every partition.
        value: step time to beat, seconds.
        first_will_do: whether the search ends with the first partition that beats it.
        joint: as for `least_batch_time`.
        best: the partition that takes it, once one is found.
    """

    # `_beside` is what all but the slowest stage take at least, by the joint bound of the boxes that are left.
    run: Callable[[float, float], Partition | None]
    objective: Objective
    floor: Floor
    value: float
    first_will_do: bool
    joint: Joint | None = None
    best: Partition | None = None
    _beside: float = 0.0
    _queue: list[tuple[float, int, _Box]] = field(factory=list)
    _runs: list[tuple[float, float, Partition | None]] = field(factory=list)
    _pushed: int = 0

    def search(self) -> None:
        """Solve the boxes that could hold the best, and cut them, until there is none."""
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
        """What the bound of a box must be below to be worth a run: what only rounding could better is not."""
        return self.value if self.best is None else self.value * (1 - TIE)

    def _within_others(self, box: _Box) -> _Box | None:
        """The part of the box that may hold something better by what was found within wider limits; None: nothing."""
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
        """The partition of least sum within the limits, kept when it is the best."""
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
        """Seconds that no partition beats which is above these lower bounds."""
        return max(self.objective.of(least), self.objective.slowest * least.largest_time + self._beside)

    def _push(self, box: _Box) -> None:
        bound = self._bound(box.least)
        within = box.least.largest_time <= box.most_time and box.least.largest_sync <= box.most_sync
        if within and bound < self._threshold:
            self._pushed += 1
            heapq.heappush(self._queue, (bound, self._pushed, box))

    def _trimmed(self, box: _Box) -> _Box:
        """The part of the box that may hold something better than the best."""
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
        """The part of the box that may hold something better by its joint bound; None: no part of it may.

        What beats the best has a slowest stage no slower than what that bound leaves. With that as the limit the bound
        is higher, and so on while it leaves much less.
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
        """The parts of `box` with something better than `partition`, whose sum is the least in it.

        What is better is faster in its slowest stage, or no faster there and quicker to synchronise.
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
        """The box cut in two where it is longest, by what that is worth in step time.

        Its limit on gradient reduction may be far above what any partition takes: up to `usual_sync` it is cut.
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
    """What is less by more than rounding."""
    return min(value * (1 - TIE), math.nextafter(value, -math.inf))


def in_flight_from_last(schedule: Schedule, stages: int, micro_batches: int) -> tuple[float, ...]:
    """`in_flight` of each stage's `fullest_moments`, counted from the last. Shape `(stages,)`."""
    behind = range(stages, 0, -1)
    every: list[Any] = [schedule.in_flight(stage, stages, micro_batches) for stage in behind]
    if all(type(held) is int for held in every):
        return tuple(map(float, every))
    return tuple(in_flight(fullest_moments(schedule, stage, stages, micro_batches)) for stage in behind)
