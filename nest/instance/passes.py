"""Passes: what a schedule puts in order."""

from attrs import frozen

FORWARD, BACKWARD = "forward", "backward"
INPUT_GRADIENTS, WEIGHT_GRADIENTS = "input-gradients", "weight-gradients"

PASSES = (FORWARD, BACKWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS)
"""Kinds of passes. A backward pass is whole, or runs in two parts: the gradients of inputs, which the stage in front
waits for, and those of weights, which nobody does (arXiv 2401.10241, section 2)."""


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
