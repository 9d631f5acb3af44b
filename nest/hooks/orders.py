"""What makes an order of passes one that a stage can run."""

from collections import Counter
from collections.abc import Sequence

from nest.instance import Pass

WHOLE, PARTS = ("forward", "backward"), ("forward", "input-gradients", "weight-gradients")
"""What a schedule may run of a micro-batch in a chunk, in this order."""


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
