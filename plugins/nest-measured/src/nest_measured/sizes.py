"""Sizes of an operator: the named numbers by which measurements are looked up."""

from collections.abc import Mapping
from math import prod

from nest.graph import Operator, axis_size, elements, has_axis

PRODUCT = ("rows", "columns", "contracted", "groups")
"""Sizes of a product of `rows` by `contracted` and `contracted` by `columns`; `groups` (experts) share the rows."""

ATTENTION = ("batch", "heads", "sequence", "keys", "head", "value")
"""Sizes of a fused attention kernel: channels of queries and keys per head, and of values."""

MOVED = ("bytes",)
"""The size of any other operator: bytes it reads and writes, parameters apart; of a loss those of the logits."""

PRODUCT_KINDS = ("matmul", "router")


def size_names(kind: str) -> tuple[str, ...]:
    """Names of the sizes operators of `kind` have."""
    if kind in PRODUCT_KINDS:
        return PRODUCT
    return ATTENTION if kind == "attention" else MOVED


def completed(kind: str, sizes: Mapping[str, int]) -> dict[str, int]:
    """`sizes` with those that may be left out: one group; values as wide as keys."""
    usual: dict[str, int] = {}
    if kind in PRODUCT_KINDS:
        usual = {"groups": 1}
    elif kind == "attention" and "head" in sizes:
        usual = {"value": sizes["head"]}
    return {**usual, **sizes}


def work(kind: str, sizes: Mapping[str, int]) -> float:
    """Quantity that time is proportional to: FLOP of a product or of attention, bytes of anything else."""
    if kind in PRODUCT_KINDS:
        return float(sizes["rows"] * sizes["columns"] * sizes["contracted"])
    if kind == "attention":
        pairs = sizes["batch"] * sizes["heads"] * sizes["sequence"] * sizes["keys"]
        return float(pairs * (sizes["head"] + sizes["value"]))
    return float(sizes["bytes"])


def sizes_of(operator: Operator) -> dict[str, int] | None:
    """The sizes of one rank's share; None for what no single kernel does, such as attention that stores its scores."""
    if operator.kind in PRODUCT_KINDS:
        return _product(operator)
    if operator.kind == "attention":
        return _attention(operator)
    moved = round(operator.inputs[0].bytes if operator.kind == "loss" else operator.bytes_read + operator.bytes_written)
    return {"bytes": moved} if moved else None


def _product(operator: Operator) -> dict[str, int] | None:
    if not operator.parameters:
        return None
    weight = operator.parameters[0].shape
    contracted = prod(size for axis, size in operator.space if axis in operator.contracted)
    columns = prod(size for axis, size in weight if axis not in (*operator.contracted, "experts"))
    rows = elements(operator.space) // (contracted * columns)
    groups = axis_size(weight, "experts") if operator.kind == "matmul" else 1
    if operator.kind == "router":  # Its columns are the experts.
        rows, columns = rows // axis_size(weight, "experts"), axis_size(weight, "experts")
    if rows * columns * contracted != elements(operator.space):
        return None  # A product of another form, from an operator graph of somebody's own.
    return {"rows": rows, "columns": columns, "contracted": contracted, "groups": groups}


def _attention(operator: Operator) -> dict[str, int] | None:
    stored = len(operator.inputs) < 3 or any(has_axis(tensor.shape, "keys") for tensor in operator.outputs)
    if stored or not operator.outputs or not has_axis(operator.space, "keys"):
        return None
    space = operator.space
    names = ("batch", "heads", "sequence", "keys", "head")
    return {**{name: axis_size(space, name) for name in names}, "value": operator.outputs[0].shape[-1][1]}
