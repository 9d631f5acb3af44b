"""Attention that stores its scores: recognised by the softmax between two products without weights."""

from collections.abc import Callable, Iterator, Sequence

from nest_torch.program.axes import leaves
from nest_torch.program.values import Recorded, Stored

ATTENTION = "attention"


def mark_attention(operators: Sequence[Recorded]) -> None:
    """Say of the operators between scores and weighted sum that they are attention, and what its heads are.

    So selective recomputation drops scores and probabilities (arXiv 2205.05198, section 5), as in nest's own models.
    """
    makers = {each: operator for operator in operators for stored in operator.outputs for each in stored.whole()}
    readers: dict[Stored, list[Recorded]] = {}
    for operator in operators:
        for stored in operator.inputs:
            for each in stored.whole():
                readers.setdefault(each, []).append(operator)
    for softmax in operators:
        if softmax.kind != "softmax":
            continue
        before = list(_through(softmax, lambda operator: [makers[t] for t in _read(operator) if t in makers]))
        behind = list(_through(softmax, lambda operator: [r for t in _written(operator) for r in readers.get(t, [])]))
        if _is_product(before[-1:]) and _is_product(behind[-1:]):
            for operator in (*before, softmax, *behind):
                operator.kind = ATTENTION
            _name_heads(before[-1])


def _read(operator: Recorded) -> Iterator[Stored]:
    for stored in operator.inputs:
        yield from stored.whole()


def _written(operator: Recorded) -> Iterator[Stored]:
    for stored in operator.outputs:
        yield from stored.whole()


def _through(start: Recorded, following: Callable[[Recorded], list[Recorded]]) -> Iterator[Recorded]:
    """Follow `start` through operators that only change every number, up to the first that does more."""
    operator = start
    while True:
        found = list(dict.fromkeys(each for each in following(operator)))
        products = [each for each in found if each.kind == "matmul"]
        if not found or len(products or found) > 1:
            return
        operator = (products or found)[0]
        yield operator
        if operator.kind != "elementwise":
            return


def _is_product(operators: Sequence[Recorded]) -> bool:
    return any(operator.kind in ("matmul", ATTENTION) and not operator.parameters for operator in operators)


def _name_heads(scores: Recorded) -> None:
    """The axis in front of the rows and columns of the scores, where it is one."""
    dims = scores.outputs[0].dims
    found = leaves(dims[-3]) if len(dims) > 3 else ()
    if len(found) == 1 and not found[0].name:
        found[0].name = "heads"
