"""The loss of an exported forward pass that ends with logits."""

from collections.abc import Sequence

from nest_torch.program.axes import leaves
from nest_torch.program.values import INPUT, MADE, Extent, Recorded, Stored

FP32, INDEX = 4, 8
"""Bytes of an element in single precision, and of a label (PyTorch's int64)."""


def with_loss(operators: Sequence[Recorded], fused: bool) -> list[Recorded]:
    """`operators` with the cross-entropy of the logits they end with, where there is no loss yet.

    A model is trained by its loss, which an export of its forward pass lacks: logits in single precision, whose place
    the softmax takes for the backward pass, or, `fused`, the logits as they are, as in nest's own models.
    """
    read = {each for operator in operators for stored in operator.inputs for each in stored.whole()}
    ends = [each for operator in operators for s in operator.outputs for each in s.whole() if each not in read]
    logits = next((stored for stored in ends if _last_name(stored) == "vocab"), None)
    if logits is None or any(operator.kind == "loss" for operator in operators):
        return list(operators)
    rows = logits.dims[:-1]
    added = []
    if logits.itemsize != FP32 and not fused:
        wide = Stored("wide_logits", MADE, logits.dims, FP32, True)
        added.append(Recorded("widen", "", "elementwise", [logits], [], [wide]))
        logits = wide
    labels = Stored("labels", INPUT, rows, INDEX, False)
    loss = Stored("loss", MADE, rows, FP32, True)
    space = [*(Extent(dim) for dim in rows), Extent(logits.dims[-1], contracted=True)]
    # A fused loss goes over narrow logits until it has moved what a copy of them in single precision would.
    passes = round((logits.itemsize + FP32 + FP32) / logits.itemsize) if fused and logits.itemsize != FP32 else 1
    added.append(
        Recorded("loss", "", "loss", [logits, labels], [], [loss], space, saves=[logits, labels], passes=passes)
    )
    return [*operators, *added]


def _last_name(stored: Stored) -> str:
    found = leaves(stored.dims[-1]) if stored.dims else ()
    return found[0].found().name if len(found) == 1 else ""
