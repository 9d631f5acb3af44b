"""Pipeline schedules (PROBLEM.md section 4): the protocol of plug-ins, and functions that read it.

A schedule must have `name`, `weights` and `in_flight`. All else is optional and defaults to 1F1B. Only the functions
below read the optional members.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy
from attrs import field, frozen
from numpy.typing import NDArray

FORWARD = "forward"
BACKWARD = "backward"
INPUT_GRADIENTS = "input-gradients"
WEIGHT_GRADIENTS = "weight-gradients"

PASSES = (FORWARD, BACKWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS)
"""Kinds of passes. The stage before waits for input gradients only (arXiv 2401.10241, section 2)."""

WHOLE, PARTS = (FORWARD, BACKWARD), (FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS)
"""Passes of a micro-batch in a chunk, in this order."""

ROUND, V = "round", "v"
"""Named placements. Round: chunk `j` of `0, 1, ...` is on stage `j mod s`, so that the last stage sends back to the
first. V: chunks go down the stages and up again, down, ..., so that a turn stays on its stage."""


@frozen
class Pass:
    """One run of a chunk of layers over a micro-batch.

    Attributes:
        kind: one of `PASSES`.
        micro_batch: of the replica, from 0.
        chunk: of the stage, from 0.
        overlapped: it runs together with the next pass. Both take as long as one after the other, begin once the inputs
            of both are there, and send once both are done (DualPipe's `F&B`, PyTorch's `OVERLAP_F_B`).
    """

    kind: str
    micro_batch: int
    chunk: int = 0
    overlapped: bool = False


Weighted = tuple[float, float] | tuple[float, float, float, float]
"""`(A, B)` or `(A, Bf, Bb, Bw)`."""

Held = float | Sequence[float] | Sequence[Sequence[float]]
"""Micro-batches in flight: of every chunk, of each chunk, or of each chunk at each of the fullest moments."""


@runtime_checkable
class Schedule(Protocol):
    """A pipeline schedule (PROBLEM.md section 4).

    Optional:
        chunks: runs of layers of each stage (`v`), numbered in pipeline order from 0; default 1.
        with_chunks: `with_chunks(chunks)`: same schedule with so many chunks per stage; the search then decides it.
        placement: `"round"` (default) or `"v"`, see `ROUND`; or a method `placement(stages)` that returns the stage,
            from 1, of each of the `s v` chunks in pipeline order. Every stage has `v` of them.
        copies: copies of a stage's parameters per device, 1 (default) or 2. With 2, a second pipeline runs against the
            first: the device of stage `i` also holds stage `s + 1 - i`, for the second half of the micro-batches.
            Memory for state is multiplied by it.
        admits: `admits(stages, micro_batches, chunks)`: whether there is such a plan; default: yes.
        order: `order(stage, stages, micro_batches)`, see `OrderedSchedule`.
        least_held: `least_held(stages, micro_batches)`, by stage the most micro-batches that all of its chunks hold at
            one moment of `in_flight`; a faster way to compute it.
        fills: if true, each stage holds at some moment at least one micro-batch in each of its chunks, as if the first
            one passes all chunks before any backward pass; by default, `in_flight` of every stage decides.
        staggered: if true, optimizer steps do not wait for other stages, so a batch takes as long as the longest stage,
            from its first pass to its step; for replays and prices.
        closed_form: if true, `training.price: closed-form` keeps its closed form.
        suffices: `suffices(forward, backward)`: whether no replay of stages with such passes exceeds the weights.
    """

    @property
    def name(self) -> str:
        """Unique name among its kind."""

    def weights(self, micro_batches: int, stages: int) -> Weighted:
        """`(A, B)` or `(A, Bf, Bb, Bw)`.

        The batch takes `A max t + sum (Bf f + Bb b + Bw w) + max y`, with `f`, `b` and `w` a stage's seconds per
        micro-batch of forward passes, input gradients and weight gradients. A pair weights all three with `B`. `Bw` may
        be below 0, as weight gradients fill what others leave, but `Bb + Bw` may not.
        """

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> Held:
        """Micro-batches whose activations stage `stage` (from 1) of `stages` holds at its fullest.

        One number applies to every chunk, at least 1. With several chunks it may be a number for each chunk, or several
        such rows, one for each possibly fullest moment: the memory of the stage is the largest of them.
        """


@runtime_checkable
class ChunkedSchedule(Schedule, Protocol):
    """A schedule that can have several chunks per stage (`Schedule.with_chunks`)."""

    @property
    def chunks(self) -> int:
        """Chunks of each stage (`v`)."""

    def with_chunks(self, chunks: int) -> "ChunkedSchedule":
        """Same schedule with so many chunks per stage, at least 2."""


@runtime_checkable
class OrderedSchedule(Schedule, Protocol):
    """A schedule with an order of passes for every stage, so that its plans can be replayed.

    The member is optional: plans of other schedules are priced, but `nest simulate` refuses them.
    """

    def order(self, stage: int, stages: int, micro_batches: int) -> Sequence[Pass]:
        """Passes of the device of stage `stage` (from 1) of `stages`, in order.

        Each micro-batch runs forward once through each of the stage's chunks, then backward, whole or in two parts.
        With two copies, the second half of the micro-batches run through the mirrored stage.
        """


@frozen
class Weights:
    """Weights of a batch's time (PROBLEM.md section 4).

    Attributes:
        slowest: `A`, of the slowest stage.
        forward: `Bf`, of the sum of forward passes.
        input_gradients: `Bb`, of the sum of input gradients.
        weight_gradients: `Bw`, of the sum of weight gradients.
        arriving: of the sum of messages with activations; default: as of forward passes, which wait for them.
        returning: of the sum of messages with gradients; default: as of input gradients.
    """

    slowest: float
    forward: float
    input_gradients: float
    weight_gradients: float
    arriving: float = field()
    returning: float = field()

    @arriving.default
    def _with_forward_passes(self) -> float:
        return self.forward

    @returning.default
    def _with_input_gradients(self) -> float:
        return self.input_gradients

    @property
    def uniform(self) -> bool:
        """True if all parts of a stage's time have equal weights, so that only their sum counts."""
        return len({self.forward, self.input_gradients, self.weight_gradients, self.arriving, self.returning}) == 1

    @property
    def waiting(self) -> float:
        """Weight of waits for ports: half in forward passes, half in input gradients."""
        return (self.forward + self.input_gradients) / 2

    def of_parts(self, forward: Any, input_gradients: Any, weight_gradients: Any) -> Any:
        """`Bf f + Bb b + Bw w`, of numbers or arrays of seconds."""
        return (
            self.forward * forward + self.input_gradients * input_gradients + self.weight_gradients * weight_gradients
        )

    def of_messages(self, arriving: Any, returning: Any) -> Any:
        """Messages' part of the sum, of numbers or arrays of seconds."""
        return self.arriving * arriving + self.returning * returning


def weights_of(schedule: Schedule, micro_batches: int, stages: int, *, hides: bool = False) -> Weights:
    """Weights of a schedule; `hides`: messages between stages hide under compute in a full pipeline.

    Each then shows once, whatever else the schedule fills: the first micro-batch crosses every boundary on its way in
    and the last one on its way out.
    """
    slowest, *parts = (float(each) for each in schedule.weights(micro_batches, stages))
    messages = (1.0, 1.0) if hides else ()
    return Weights(slowest, *(parts * 3 if len(parts) == 1 else parts), *messages)


def chunks_of(schedule: Schedule) -> int:
    """Chunks of each stage; 1 by default."""
    return int(getattr(schedule, "chunks", 1))


def least_held(schedule: Schedule, stages: int, micro_batches: int, counted: bool = False) -> tuple[float, ...]:
    """Least micro-batches held by every chunk of a stage at one moment, by stage; `counted` from `in_flight`."""
    known = None if counted else getattr(schedule, "least_held", None)
    if known is not None:
        return tuple(float(each) for each in known(stages, micro_batches))
    every = (fullest_moments(schedule, stage, stages, micro_batches) for stage in range(1, stages + 1))
    return tuple(max(map(min, moments)) for moments in every)


def always_fills(schedule: Schedule) -> bool:
    """True if `fills` holds for any numbers of stages and micro-batches."""
    return chunks_of(schedule) == 1 or bool(getattr(schedule, "fills", False))  # In one chunk each has one.


def fills(schedule: Schedule, stages: int, micro_batches: int) -> bool:
    """True if each stage holds, at some moment, at least one micro-batch in each of its chunks."""
    if always_fills(schedule):
        return True
    return all(each >= 1 for each in least_held(schedule, stages, micro_batches))


def copies_of(schedule: Schedule) -> int:
    """Copies of a stage's parameters on a device."""
    return int(getattr(schedule, "copies", 1))


def admits(schedule: Schedule, stages: int, micro_batches: int) -> bool:
    """True if the schedule has plans of so many stages and micro-batches."""
    chunks = chunks_of(schedule)
    if chunks > 1 and stages < 2:
        return False
    admitting = getattr(schedule, "admits", None)
    return admitting is None or bool(admitting(stages, micro_batches, chunks))


def route(schedule: Schedule, stages: int) -> tuple[int, ...]:
    """Stage, from 0, of each chunk in pipeline order. Shape `(s v,)`."""
    chunks, placement = chunks_of(schedule), getattr(schedule, "placement", ROUND)
    if callable(placement):
        return tuple(stage - 1 for stage in placement(stages))
    down = range(stages)
    turns = [down if placement == ROUND or turn % 2 == 0 else reversed(down) for turn in range(chunks)]
    return tuple(stage for turn in turns for stage in turn)


@frozen
class Places:
    """Places of a schedule's passes in the pipeline. Stages, devices and chunks count from 0.

    Attributes:
        stages: of the pipeline, one per device.
        micro_batches: `M`.
        route: stage of each chunk in pipeline order, see `route`.
        copies: see `copies_of`.
        chunks: for each stage the numbers of its chunks in the pipeline.
    """

    stages: int
    micro_batches: int
    route: tuple[int, ...]
    copies: int = 1
    chunks: tuple[tuple[int, ...], ...] = field(init=False, eq=False)

    def __attrs_post_init__(self) -> None:
        own: list[list[int]] = [[] for _ in range(self.stages)]
        for place, stage in enumerate(self.route):
            own[stage].append(place)
        object.__setattr__(self, "chunks", tuple(tuple(each) for each in own))

    def mirrored(self, stage: int, micro_batch: int) -> int:
        """Device of a stage for a micro-batch, or stage of a device: the same function."""
        second = self.copies == 2 and 2 * micro_batch >= self.micro_batches
        return self.stages - 1 - stage if second else stage

    def place(self, device: int, step: Pass) -> int:
        """Number in the pipeline of the chunk of a device's pass."""
        return self.chunks[self.mirrored(device, step.micro_batch)][step.chunk]

    def device(self, place: int, micro_batch: int) -> int:
        """Device of a chunk of the pipeline for a micro-batch."""
        return self.mirrored(self.route[place], micro_batch)


def places_of(schedule: Schedule, stages: int, micro_batches: int) -> Places:
    """Places of a schedule's passes."""
    return Places(stages, micro_batches, route(schedule, stages), copies_of(schedule))


Step = tuple[str, int]
"""A kind of pass and a chunk."""


def numbered(steps: Iterable[Step | tuple[Step, Step]]) -> tuple[Pass, ...]:
    """Passes of these kinds and chunks, each over the first micro-batch without one of its kind in its chunk.

    A pair of steps is overlapped.
    """
    following: Counter[Step] = Counter()
    order = []
    for each in steps:
        pair: Any = each if isinstance(each[0], tuple) else (each,)
        for left, (kind, chunk) in zip(range(len(pair))[::-1], pair, strict=True):
            half = INPUT_GRADIENTS if kind == BACKWARD else kind
            order.append(Pass(kind, following[half, chunk], chunk, overlapped=left > 0))
            following[half, chunk] += 1
            if kind == BACKWARD:
                following[WEIGHT_GRADIENTS, chunk] += 1
    return tuple(order)


def runs(order: Sequence[Pass]) -> list[tuple[Pass, ...]]:
    """Passes of an order, overlapped ones grouped."""
    together: list[tuple[Pass, ...]] = []
    begun: tuple[Pass, ...] = ()
    for step in order:
        begun = (*begun, step)
        if not step.overlapped:
            together.append(begun)
            begun = ()
    return [*together, begun] if begun else together


Moment = tuple[float, ...]
"""Micro-batches of each chunk of a stage at one time."""


def fullest_moments(schedule: Schedule, stage: int, stages: int, micro_batches: int) -> tuple[Moment, ...]:
    """Contents of the chunks of a stage (from 1) at the possibly fullest moments. Shape `(moments, v)`."""
    held, chunks = schedule.in_flight(stage, stages, micro_batches), chunks_of(schedule)
    if not isinstance(held, Sequence):
        return ((float(held),) * chunks,)
    rows: Any = held if isinstance(held[0], Sequence) else (held,)
    return tuple(tuple(float(each) for each in row) for row in rows)


def in_flight(moments: Iterable[Moment]) -> float:
    """Micro-batches in flight at the fullest moment, a chunk of one counted as its share."""
    return max(sum(moment) / len(moment) for moment in moments)


def moments_of_order(order: Iterable[Pass], chunks: int) -> tuple[Moment, ...]:
    """Fullest moments of an order of passes: no other holds as many micro-batches in every chunk.

    A micro-batch is held from its forward pass to the end of its backward pass, with weight gradients.
    """
    now, seen = [0] * chunks, set()
    for step in order:
        if step.kind == FORWARD:
            now[step.chunk] += 1
            seen.add(tuple(now))
        elif step.kind != INPUT_GRADIENTS:
            now[step.chunk] -= 1
    return fullest(numpy.array(list(seen)).reshape(-1, chunks))


def fullest(seen: NDArray[Any]) -> tuple[Moment, ...]:
    """Undominated moments, those with most in all first. Shape `(moments, chunks)`."""
    # Asked for nothing but the rows, it loads masked arrays: a fiftieth of a solve with what is kept.
    distinct = numpy.unique(seen, axis=0, return_index=True)[0].astype(numpy.float64)
    left = distinct[numpy.argsort(-distinct.sum(axis=1), kind="stable")]
    kept = []
    while len(left):  # No moment after the first holds as much as that in all, so that none has it as a part.
        kept.append(tuple(left[0].tolist()))
        left = left[(left > left[0]).any(axis=1)]
    return tuple(kept)


class _RoundSchedule(Protocol):
    """A schedule whose stages repeat their work in rounds."""

    @property
    def chunks(self) -> int: ...

    def __hash__(self) -> int: ...

    def order(self, stage: int, stages: int, micro_batches: int) -> Sequence[Pass]: ...


def moments_of_rounds(schedule: _RoundSchedule, stage: int, stages: int, micro_batches: int) -> tuple[Moment, ...]:
    """Fullest moments of a stage, from four rounds of `s` micro-batches: more rounds hold no more."""
    return _moments_of_rounds(schedule, stage, stages, min(micro_batches, 4 * stages))


@lru_cache(maxsize=2**13)
def _moments_of_rounds(schedule: _RoundSchedule, stage: int, stages: int, micro_batches: int) -> tuple[Moment, ...]:
    return moments_of_order(schedule.order(stage, stages, micro_batches), schedule.chunks)


def order_fault(order: Sequence[Pass], micro_batches: int, chunks: int) -> str | None:
    """Fault of one stage's order, in words; None: there is none."""
    ran: dict[tuple[int, int], list[str]] = {}
    for step in order:
        ran.setdefault((step.micro_batch, step.chunk), []).append(step.kind)
    wanted = {(index, chunk) for index in range(micro_batches) for chunk in range(chunks)}
    for micro_batch, chunk in sorted(wanted ^ ran.keys()):
        verb = "never runs" if (micro_batch, chunk) in wanted else "runs a"
        return f"it {verb} micro-batch {micro_batch} of chunk {chunk}, counted from 0"
    for (micro_batch, chunk), kinds in ran.items():
        if tuple(kinds) not in (WHOLE, PARTS):
            found = ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).items())
            return (
                f"of micro-batch {micro_batch} in chunk {chunk}, counted from 0, it runs {found}; a forward pass comes "
                "first, then one backward pass, or input-gradients and weight-gradients"
            )
    for step, following in zip(order, [*order[1:], None], strict=True):
        if step.overlapped and (following is None or following.overlapped):
            return f"its {step.kind} pass over micro-batch {step.micro_batch} overlaps with no single pass after it"
    return None
