"""Matrix products: how their dimensions and tiles keep them below the matrix peak."""

from functools import lru_cache
from math import ceil, prod

from attrs import frozen

from nest.graph import Operator, Shape

TILES = ((128, 256), (256, 128), (128, 128), (64, 128))
"""Rows and columns of the result that one multiprocessor computes at a time: the sizes CUTLASS and cuBLAS take for
large products (NVIDIA, Matrix Multiplication Background User's Guide, section 4.1)."""

FED = 1.0 / 3.0
"""How much slower a tile runs per operand byte it loads beyond those of the largest: a tile of `a` by `b` loads
`1/a + 1/b` elements per multiplication. An assumption: it decides only between tiles that fill a device badly."""

NARROWEST = min(1 / a + 1 / b for a, b in TILES)


@frozen
class Product:
    """A batch of equal matrix products `(rows, contracted) @ (contracted, columns)`.

    Attributes:
        count: products in the batch.
        rows: of the left operand, which comes with the data.
        columns: of the right one.
        contracted: elements summed over.
    """

    count: float
    rows: float
    columns: float
    contracted: float

    @property
    def backward(self) -> tuple["Product", "Product"]:
        """The products that give the gradients of the left and of the right operand."""
        return (
            Product(self.count, self.rows, self.contracted, self.columns),
            Product(self.count, self.columns, self.contracted, self.rows),
        )


def product(operator: Operator) -> Product | None:
    """The matrix product an operator is; None for one that contracts nothing or has no second operand.

    Axes of both operands that are not contracted count products. A weight with one matrix per expert makes one product
    per expert, on an even share of the rows; an attention that stores its scores one per sample and head.
    """
    contracted, space = set(operator.contracted), operator.space
    if not contracted:
        return None
    if operator.kind == "attention":
        return _product(space, contracted, {"sequence"}, {"batch", "heads"}, 1)
    operands = [tensor.shape for tensor in operator.inputs[:2]]
    if operator.parameters:
        operands = [*operands[:1], max(operator.parameters, key=lambda parameter: parameter.count).shape]
    if len(operands) < 2:
        return None
    left, right = ({axis for axis, _ in shape} for shape in operands)
    experts = prod(size for axis, size in operands[1] if axis not in {name for name, _ in space})
    shared = (left & right) - contracted
    rows = {axis for axis, _ in space} - right - contracted
    return _product(space, contracted, rows, shared, experts)


def _product(space: Shape, contracted: set[str], rows: set[str], counted: set[str], experts: int) -> Product:
    """The product over `space`; its axes that are none of those named are columns."""

    def size(axes: set[str]) -> int:
        return prod(size for axis, size in space if axis in axes)

    return Product(
        count=size(counted) * experts,
        rows=max(size(rows) / experts, 1.0),
        columns=size({axis for axis, _ in space} - contracted - rows - counted),
        contracted=size(contracted),
    )


@lru_cache(maxsize=65_536)
def padding(count: float, rows: float, columns: float, multiprocessors: int) -> float:
    """Time of products on whole tiles in whole waves over that of their FLOP alone: at least 1.

    A result is computed in tiles, as many at a time as there are multiprocessors; the last ones of a row, a column and
    of the whole work in vain where sizes do not divide (NVIDIA, Matrix Multiplication Background User's Guide, sections
    4.2 and 4.3: tile and wave quantisation). The library is taken to choose the best of `TILES`.
    """
    return min(_padded(count, rows, columns, tile, multiprocessors) for tile in TILES)


def _padded(count: float, rows: float, columns: float, tile: tuple[int, int], multiprocessors: int) -> float:
    high, wide = tile
    tiles = count * ceil(rows / high) * ceil(columns / wide)
    work = ceil(tiles / multiprocessors) * multiprocessors * high * wide
    feeding = 1 + FED * ((1 / high + 1 / wide) / NARROWEST - 1)
    return work * feeding / (count * rows * columns)
