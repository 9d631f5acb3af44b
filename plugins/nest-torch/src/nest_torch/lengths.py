"""Modules that loop along the sequence: captured at short lengths, from which the graph of the real one follows.

A loop of thousands of steps would be traced step by step. What is the same at three short lengths but for sizes that
grow evenly is the same at any.
"""

from collections.abc import Callable, Sequence

from attrs import evolve

from nest.errors import InputError
from nest.graph import Operator, OperatorGraph, Shape, Tensor

EXACT = 1e-9
"""Relative distance up to which two sums of the same sizes are one."""

LENGTHS = (5, 7, 11)
"""Lengths that are traced: short, and no factors of usual sizes."""


def at_length(captured: Callable[[int], OperatorGraph], length: int) -> OperatorGraph:
    """The graph of a module for sequences of `length`.

    Args:
        captured: gives that for a shorter sequence.
        length: of the sequence.

    Raises:
        InputError: the graphs of short sequences differ in more than sizes that grow evenly.
    """
    graphs = [captured(each) for each in LENGTHS]
    rows = [graph.operators for graph in graphs]
    if len({len(each) for each in rows}) > 1:
        counts = ", ".join(f"{len(row)} operators for {each} tokens" for row, each in zip(rows, LENGTHS, strict=True))
        raise InputError(
            f"the module does something else for each place of the sequence: {counts}. Capture a shorter sequence, or "
            "let loops be one operator (fused)."
        )
    operators = tuple(_operator(each, length) for each in zip(*rows, strict=True))
    return evolve(graphs[0], operators=operators)


def _operator(found: Sequence[Operator], length: int) -> Operator:
    first = found[0]
    same = [(each.name, each.kind, each.layer, each.parameters, each.saves, each.contracted) for each in found]
    if any(each != same[0] for each in same):
        raise _uneven(first)

    def tensors(which: Callable[[Operator], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        rows = [which(each) for each in found]
        if len({len(row) for row in rows}) > 1:
            raise _uneven(first)
        return tuple(
            evolve(row[0], shape=_shape(first, [each.shape for each in row], length)) for row in zip(*rows, strict=True)
        )

    model = [each.model_flops_per_point for each in found]
    counted = None if model[0] is None else _extended(first, [each or 0.0 for each in model], length)
    return evolve(
        first,
        space=_shape(first, [each.space for each in found], length),
        inputs=tensors(lambda each: each.inputs),
        outputs=tensors(lambda each: each.outputs),
        flops_per_point=_extended(first, [each.flops_per_point for each in found], length),
        model_flops_per_point=counted,
    )


def _shape(operator: Operator, shapes: Sequence[Shape], length: int) -> Shape:
    names = [tuple(name for name, _ in shape) for shape in shapes]
    if any(each != names[0] for each in names):
        raise _uneven(operator)
    sizes = [[size for _, size in shape] for shape in shapes]
    rows = (_extended(operator, [float(each) for each in row], length) for row in zip(*sizes, strict=True))
    return tuple(zip(names[0], map(round, rows), strict=True))


def _extended(operator: Operator, values: Sequence[float], length: int) -> float:
    """Extend values at short lengths to `length`: constant, or even in the length or in its inverse."""
    if len(set(values)) == 1:
        return values[0]
    one, two, three = (float(each) for each in LENGTHS)
    places: tuple[Callable[[float], float], ...] = (lambda each: each, lambda each: 1.0 / each)
    for place in places:
        slope = (values[1] - values[0]) / (place(two) - place(one))
        expected = values[0] + slope * (place(three) - place(one))
        if abs(expected - values[2]) <= EXACT * abs(values[2]):
            return float(values[0] + slope * (place(float(length)) - place(one)))
    raise _uneven(operator)


def _uneven(operator: Operator) -> InputError:
    return InputError(
        f"{operator.name} does not grow evenly with the sequence, so its loop cannot be told from shorter ones. "
        "Capture a part without it, or a shorter sequence."
    )
