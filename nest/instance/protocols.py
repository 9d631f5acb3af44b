"""What an instance asks of collective models and pipeline schedules, which plug-ins provide and solvers only call."""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy
from attrs import frozen

from nest.instance.candidate import Array
from nest.instance.cluster import Level

FORWARD, BACKWARD = "forward", "backward"
INPUT_GRADIENTS, WEIGHT_GRADIENTS = "input-gradients", "weight-gradients"

PASSES = (FORWARD, BACKWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS)
"""Kinds of passes. A backward pass is whole, or runs in two parts: the gradients of inputs, which the stage in front
waits for, and those of weights, which nobody does (arXiv 2401.10241, section 2)."""

WHOLE, PARTS = (FORWARD, BACKWARD), (FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS)
"""What a schedule may run of a micro-batch in a chunk, in this order."""


@frozen
class Pass:
    """One run of a chunk of layers over a micro-batch.

    Attributes:
        kind: one of `PASSES`.
        micro_batch: which of the replica's, from 0.
        chunk: which of the stage's, from 0.
    """

    kind: str
    micro_batch: int
    chunk: int = 0


@runtime_checkable
class CollectiveModel(Protocol):
    """Prices collectives (PROBLEM.md section 1).

    No model is called with zero bytes, which cost nothing. Methods of plug-ins may lack the parameter `members`.

    Optional:
        times: `times(kind, bytes, shape, levels, members=None)`, `time` for an array of `bytes`: seconds, of the same
            shape. Searches are faster with it.
        by_level: `by_level(kind, bytes, shape, levels, members=None)`, for an array of `bytes` the seconds for which a
            member's port at each level is occupied, of shape `(levels, *bytes.shape)`; at no level more than `time`.
            Of a model without it the outermost level of the set is occupied all the time (`port_seconds`).
    """

    @property
    def name(self) -> str:
        """Unique among its kind; what people write to choose it."""

    def time(
        self,
        kind: str,
        bytes: float,  # noqa: A002
        shape: Sequence[int],
        levels: Sequence[Level],
        members: int | None = None,
    ) -> float:
        """Seconds that `kind` takes on a set of devices.

        Args:
            kind: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all` or `point_to_point`.
            bytes: the full (unsharded) buffer; for `all_to_all` what each member holds.
            shape: members per level-0 group, level-0 groups per level-1 group, ...
            levels: the network, innermost first, as long as `shape`.
            members: devices in the set, fewer than the product of `shape` where it is uneven; None: as many as that.
        """


@runtime_checkable
class Schedule(Protocol):
    """A pipeline schedule (PROBLEM.md section 4).

    Optional:
        staggered: when true, optimizer steps do not wait for those of other stages, so that a batch takes as long as
            the stage that is at it for longest, from its first pass to its step; only replays read it.
    """

    @property
    def name(self) -> str:
        """Unique among its kind; what people write to choose it."""

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float]:
        """`(A, B)`: the batch takes `A * max t + B * sum t + max y`."""

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> float:
        """Micro-batches whose activations stage `stage` (1 is the first) of `stages` holds at its fullest.

        At least 1; a fraction where a stage holds some micro-batches with a part of its layers only.
        """


@runtime_checkable
class ChunkedSchedule(Schedule, Protocol):
    """A schedule with several chunks of consecutive layers for each stage (PROBLEM.md section 4, `interleaved`).

    Both members are optional: a schedule without them gives each stage one run of layers. Stage `i` of `s` gets chunks
    `i, i + s, i + 2s, ...`; every chunk has the same number of transformer blocks, and the last stage sends back to the
    first. What a problem names is one object, from which others are made.
    """

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
        """Passes of stage `stage` (1 is the first) of `stages`, one after the other (`nest.hooks.protocols.Pass`).

        Each micro-batch runs forward once through each of the stage's chunks, then backward, whole or in two parts.
        """


def port_seconds(
    model: CollectiveModel, kind: str, sizes: Array, shape: Sequence[int], levels: Sequence[Level], members: int
) -> Array:
    """Seconds for which one collective occupies a device's port at each level (PROBLEM.md section 4, Ports).

    Args:
        model: the collective model.
        kind: as `CollectiveModel.time`.
        sizes: bytes, of any shape; no bytes take none.
        shape: as `CollectiveModel.time`.
        levels: the network, innermost first.
        members: devices in the set.

    Returns: shape `(levels, *sizes.shape)`.
    """
    seconds = numpy.zeros((len(levels), *sizes.shape))
    some = sizes > 0
    if members == 1 or not some.any():
        return seconds
    by_level = getattr(model, "by_level", None)
    if by_level is not None:
        seconds[:, some] = by_level(kind, sizes[some], shape, levels, members=members)
        return seconds
    outermost = max(level for level, count in enumerate(shape) if count > 1)
    price = model.time
    seconds[outermost, some] = [price(kind, float(size), shape, levels, members=members) for size in sizes[some]]
    return seconds


def chunks_of(schedule: Schedule) -> int:
    """Chunks of each stage; 1 for one that knows no chunks."""
    return int(getattr(schedule, "chunks", 1))


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
            runs = ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).items())
            return (
                f"of micro-batch {micro_batch} in chunk {chunk}, counted from 0, it runs {runs}; a forward pass comes "
                "first, then one backward pass, or input-gradients and weight-gradients"
            )
    return None
