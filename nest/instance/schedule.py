"""Pipeline schedules (PROBLEM.md section 4): what plug-ins say of one, and what solvers, pricing and replays read.

A schedule must have `name`, `weights` and `in_flight`. All else is optional; what it leaves out is as in one forward,
one backward. Nothing but the functions below reads the optional members.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy
from attrs import field, frozen
from numpy.typing import NDArray

FORWARD, BACKWARD = "forward", "backward"
INPUT_GRADIENTS, WEIGHT_GRADIENTS = "input-gradients", "weight-gradients"

PASSES = (FORWARD, BACKWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS)
"""Kinds of passes. A backward pass is whole, or runs in two parts: the gradients of inputs, which the stage in front
waits for, and those of weights, which nobody does (arXiv 2401.10241, section 2)."""

WHOLE, PARTS = (FORWARD, BACKWARD), (FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS)
"""What a schedule may run of a micro-batch in a chunk, in this order."""

ROUND, V = "round", "v"
"""Placements with a name. Round: chunk `j` of `0, 1, ...` is on stage `j mod s`, so that the last stage sends back to
the first. V: chunks go down the stages and up again, down, ..., so that a turn stays on its stage."""


@frozen
class Pass:
    """One run of a chunk of layers over a micro-batch.

    Attributes:
        kind: one of `PASSES`.
        micro_batch: which of the replica's, from 0.
        chunk: which of the stage's, from 0.
        overlapped: whether it runs at the same time as the pass after it. Both together take as long as one after the
            other, begin once what either needs is there, and send once both are done (DualPipe's `F&B`, PyTorch's
            `OVERLAP_F_B`).
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
        chunks: runs of layers of each stage (`v`), numbered in pipeline order from 0; left out, 1.
        with_chunks: `with_chunks(chunks)`: the same schedule with so many chunks a stage; then the search decides it.
        placement: `"round"` (left out) or `"v"`, see `ROUND`; or a method `placement(stages)` that returns the stage,
            from 1, of each of the `s v` chunks in pipeline order. Every stage has `v` of them.
        copies: how many times a device holds its stages' parameters, 1 (left out) or 2. With 2 a second pipeline runs
            against the first: the device of stage `i` also holds stage `s + 1 - i`, for the second half of the
            micro-batches. State in memory is multiplied by it.
        admits: `admits(stages, micro_batches, chunks)`: whether there is such a plan; left out, there is.
        order: `order(stage, stages, micro_batches)`, see `OrderedSchedule`.
        least_held: `least_held(stages, micro_batches)`, for each stage how many micro-batches all of its chunks hold at
            one moment, of those of `in_flight` where that is most: what follows from it, in less time.
        fills: when true, each stage holds, at some moment, one micro-batch or more in each of its chunks, as where the
            first one passes all chunks before anything goes back; left out, `in_flight` of every stage says.
        staggered: when true, optimizer steps do not wait for those of other stages, so that a batch takes as long as
            the stage that is at it for longest, from its first pass to its step; replays and prices read it.
        closed_form: when true, `training.price: closed-form` leaves it at that.
        suffices: `suffices(forward, backward)`: whether no replay of stages with such passes exceeds the weights.
    """

    @property
    def name(self) -> str:
        """Unique among its kind; what people write to choose it."""

    def weights(self, micro_batches: int, stages: int) -> Weighted:
        """`(A, B)` or `(A, Bf, Bb, Bw)`.

        The batch takes `A max t + sum (Bf f + Bb b + Bw w) + max y`, with `f`, `b` and `w` a stage's seconds per
        micro-batch of forward passes, gradients of inputs and gradients of weights. A pair weighs all three with `B`.
        `Bw` may be below 0, as gradients of weights fill what others leave: `Bb + Bw` may not.
        """

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> Held:
        """Micro-batches whose activations stage `stage` (1 is the first) of `stages` holds at its fullest.

        One number: so many in every chunk, at least 1. With several chunks also a number for each chunk, or several
        such rows, one for each moment that may be the fullest: the memory of the stage is the most of them.
        """


@runtime_checkable
class ChunkedSchedule(Schedule, Protocol):
    """A schedule of which others with several chunks a stage are made (`Schedule.with_chunks`)."""

    @property
    def chunks(self) -> int:
        """Chunks of each stage (`v`)."""

    def with_chunks(self, chunks: int) -> "ChunkedSchedule":
        """The same schedule with so many chunks for each stage, 2 or more."""


@runtime_checkable
class OrderedSchedule(Schedule, Protocol):
    """A schedule that says in which order every stage works, so that its plans can be replayed pass by pass.

    The member is optional: plans of a schedule without it are priced, but `nest simulate` refuses them.
    """

    def order(self, stage: int, stages: int, micro_batches: int) -> Sequence[Pass]:
        """Passes of the device of stage `stage` (1 is the first) of `stages`, one after the other.

        Each micro-batch runs forward once through each of the stage's chunks, then backward, whole or in two parts.
        With two copies, the second half of the micro-batches run through the stage that is mirrored.
        """


@frozen
class Weights:
    """What a batch's time is made of (PROBLEM.md section 4).

    Attributes:
        slowest: `A`, of the slowest stage.
        forward: `Bf`, of the sum of forward passes.
        input_gradients: `Bb`, of the sum of gradients of inputs.
        weight_gradients: `Bw`, of the sum of gradients of weights.
        arriving: of the sum of messages with activations; left out, that of the forward passes that wait for them.
        returning: of the sum of messages with gradients; left out, that of the gradients of inputs.
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
        """Whether the parts of a stage's time weigh the same, so that only its sum counts."""
        return len({self.forward, self.input_gradients, self.weight_gradients, self.arriving, self.returning}) == 1

    @property
    def waiting(self) -> float:
        """Weight of what ports make a stage wait for: half of it in forward passes, half in gradients of inputs."""
        return (self.forward + self.input_gradients) / 2

    def of_parts(self, forward: Any, input_gradients: Any, weight_gradients: Any) -> Any:
        """`Bf f + Bb b + Bw w`, of numbers or arrays of seconds."""
        return (
            self.forward * forward + self.input_gradients * input_gradients + self.weight_gradients * weight_gradients
        )

    def of_messages(self, arriving: Any, returning: Any) -> Any:
        """What messages add to the sum, of numbers or arrays of seconds."""
        return self.arriving * arriving + self.returning * returning


def weights_of(schedule: Schedule, micro_batches: int, stages: int, *, hides: bool = False) -> Weights:
    """The weights of a schedule; `hides`: messages between stages hide under compute while the pipeline is full.

    Then each shows once, whatever else the schedule fills: the first micro-batch crosses every boundary on its way in
    and the last one on its way out.
    """
    slowest, *parts = (float(each) for each in schedule.weights(micro_batches, stages))
    messages = (1.0, 1.0) if hides else ()
    return Weights(slowest, *(parts * 3 if len(parts) == 1 else parts), *messages)


def chunks_of(schedule: Schedule) -> int:
    """Chunks of each stage; 1 for one that knows no chunks."""
    return int(getattr(schedule, "chunks", 1))


def least_held(schedule: Schedule, stages: int, micro_batches: int, counted: bool = False) -> tuple[float, ...]:
    """How many micro-batches every chunk of a stage holds at one moment, by stage; `counted` from `in_flight`."""
    known = None if counted else getattr(schedule, "least_held", None)
    if known is not None:
        return tuple(float(each) for each in known(stages, micro_batches))
    every = (fullest_moments(schedule, stage, stages, micro_batches) for stage in range(1, stages + 1))
    return tuple(max(map(min, moments)) for moments in every)


def always_fills(schedule: Schedule) -> bool:
    """Whether `fills` holds for any numbers of stages and micro-batches."""
    return chunks_of(schedule) == 1 or bool(getattr(schedule, "fills", False))  # In one chunk each has one.


def fills(schedule: Schedule, stages: int, micro_batches: int) -> bool:
    """Whether each stage holds, at some moment, one micro-batch or more in each of its chunks."""
    if always_fills(schedule):
        return True
    return all(each >= 1 for each in least_held(schedule, stages, micro_batches))


def copies_of(schedule: Schedule) -> int:
    """How many times a device holds the parameters of its stages."""
    return int(getattr(schedule, "copies", 1))


def admits(schedule: Schedule, stages: int, micro_batches: int) -> bool:
    """Whether the schedule has plans of so many stages and micro-batches."""
    chunks = chunks_of(schedule)
    if chunks > 1 and stages < 2:
        return False
    admitting = getattr(schedule, "admits", None)
    return admitting is None or bool(admitting(stages, micro_batches, chunks))


def route(schedule: Schedule, stages: int) -> tuple[int, ...]:
    """The stage, from 0, of each chunk in pipeline order. Shape `(s v,)`."""
    chunks, placement = chunks_of(schedule), getattr(schedule, "placement", ROUND)
    if callable(placement):
        return tuple(stage - 1 for stage in placement(stages))
    down = range(stages)
    turns = [down if placement == ROUND or turn % 2 == 0 else reversed(down) for turn in range(chunks)]
    return tuple(stage for turn in turns for stage in turn)


@frozen
class Places:
    """Where the passes of a schedule's orders lie in the pipeline. Stages, devices and chunks are counted from 0.

    Attributes:
        stages: of the pipeline, as many as it has devices.
        micro_batches: `M`.
        route: the stage of each chunk in pipeline order, as `route`.
        copies: as `copies_of`.
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
        """The device that runs a stage over a micro-batch, or the stage that a device does: the same either way."""
        second = self.copies == 2 and 2 * micro_batch >= self.micro_batches
        return self.stages - 1 - stage if second else stage

    def place(self, device: int, step: Pass) -> int:
        """The number in the pipeline of the chunk that a device's pass runs."""
        return self.chunks[self.mirrored(device, step.micro_batch)][step.chunk]

    def device(self, place: int, micro_batch: int) -> int:
        """The device that runs a chunk of the pipeline over a micro-batch."""
        return self.mirrored(self.route[place], micro_batch)


def places_of(schedule: Schedule, stages: int, micro_batches: int) -> Places:
    """Where the passes of a schedule's orders lie."""
    return Places(stages, micro_batches, route(schedule, stages), copies_of(schedule))


Step = tuple[str, int]
"""A kind of pass and a chunk."""


def numbered(steps: Iterable[Step | tuple[Step, Step]]) -> tuple[Pass, ...]:
    """Passes of these kinds and chunks, each over the first micro-batch that had none of its kind in its chunk.

    Two steps in place of one are overlapped.
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
    """The passes of an order, those that are overlapped together."""
    together: list[tuple[Pass, ...]] = []
    begun: tuple[Pass, ...] = ()
    for step in order:
        begun = (*begun, step)
        if not step.overlapped:
            together.append(begun)
            begun = ()
    return [*together, begun] if begun else together


Moment = tuple[float, ...]
"""Micro-batches that each chunk of a stage holds at one time."""


def fullest_moments(schedule: Schedule, stage: int, stages: int, micro_batches: int) -> tuple[Moment, ...]:
    """What the chunks of a stage (1 is the first) hold at the moments that may be the fullest. Shape `(moments, v)`."""
    held, chunks = schedule.in_flight(stage, stages, micro_batches), chunks_of(schedule)
    if not isinstance(held, Sequence):
        return ((float(held),) * chunks,)
    rows: Any = held if isinstance(held[0], Sequence) else (held,)
    return tuple(tuple(float(each) for each in row) for row in rows)


def in_flight(moments: Iterable[Moment]) -> float:
    """Micro-batches in flight at the fullest moment, a chunk of one counted as its share."""
    return max(sum(moment) / len(moment) for moment in moments)


def moments_of_order(order: Iterable[Pass], chunks: int) -> tuple[Moment, ...]:
    """The fullest moments of an order of passes: no other holds as many micro-batches in every chunk.

    A micro-batch is held from its forward pass to the end of its backward pass, the gradients of weights included.
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
    """The moments that no other has as a part, those that hold the most in all first. Shape `(moments, chunks)`."""
    # Asked for nothing but the rows, it loads masked arrays: a fiftieth of a solve with what is kept.
    distinct = numpy.unique(seen, axis=0, return_index=True)[0].astype(numpy.float64)
    left = distinct[numpy.argsort(-distinct.sum(axis=1), kind="stable")]
    kept = []
    while len(left):  # No moment after the first holds as much as that in all, so that none has it as a part.
        kept.append(tuple(left[0].tolist()))
        left = left[(left > left[0]).any(axis=1)]
    return tuple(kept)


class _RoundSchedule(Protocol):
    """A schedule whose stages repeat what they do, round after round."""

    @property
    def chunks(self) -> int: ...

    def __hash__(self) -> int: ...

    def order(self, stage: int, stages: int, micro_batches: int) -> Sequence[Pass]: ...


def moments_of_rounds(schedule: _RoundSchedule, stage: int, stages: int, micro_batches: int) -> tuple[Moment, ...]:
    """The fullest moments of a stage, those of four rounds of `s` micro-batches: more rounds hold no more."""
    return _moments_of_rounds(schedule, stage, stages, min(micro_batches, 4 * stages))


@lru_cache(maxsize=2**13)
def _moments_of_rounds(schedule: _RoundSchedule, stage: int, stages: int, micro_batches: int) -> tuple[Moment, ...]:
    return moments_of_order(schedule.order(stage, stages, micro_batches), schedule.chunks)


def order_fault(order: Sequence[Pass], micro_batches: int, chunks: int) -> str | None:
    """What is wrong with one stage's order, in words; None: nothing."""
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
