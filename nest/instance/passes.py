"""Passes: what a schedule puts in order, and what makes an order one that a stage can run."""

from collections import Counter
from collections.abc import Sequence

from attrs import frozen

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
            told = ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).items())
            return (
                f"of micro-batch {micro_batch} in chunk {chunk}, counted from 0, it runs {told}; a forward pass comes "
                "first, then one backward pass, or input-gradients and weight-gradients"
            )
    return None
