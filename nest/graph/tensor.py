"""Tensors with named axes, as one rank of a block holds them."""

from collections.abc import Collection
from math import prod

from attrs import evolve, field, frozen

Shape = tuple[tuple[str, int], ...]
"""Named axes with their sizes, outermost first: `(("batch", 1), ("sequence", 4096), ("hidden", 8192))`."""


def elements(shape: Shape) -> int:
    """Number of points in `shape`."""
    product = 1
    for _, size in shape:  # A third of the time of `prod` over a generator; pricing asks very often.
        product *= size
    return product


def axis_size(shape: Shape, axis: str) -> int:
    """Size of `axis` in `shape`; 1 when the shape has no such axis."""
    return prod(size for name, size in shape if name == axis)


def has_axis(shape: Shape, axis: str) -> bool:
    """Whether `shape` has such an axis, of whatever size."""
    return any(name == axis for name, _ in shape)


def divide(shape: Shape, axis: str, degree: int) -> Shape:
    """`shape` with `axis` split over `degree` ranks, rounded up: the largest share any rank holds."""
    return divide_axes(shape, (axis,), degree)


def divide_axes(shape: Shape, axes: Collection[str], degree: int) -> Shape:
    """`shape` with each of `axes` split so; the same object where it has none of them."""
    if not any(name in axes for name, _ in shape):
        return shape
    return tuple((name, -(-size // degree) if name in axes else size) for name, size in shape)


def scale(shape: Shape, axis: str, factor: int) -> Shape:
    """`shape` with `axis` made `factor` times as long."""
    return tuple((name, size * factor if name == axis else size) for name, size in shape)


@frozen
class Tensor:
    """A value that flows between operators.

    Attributes:
        name: unique in its graph; two operators that name the same tensor share it.
        shape: axes and sizes on one rank.
        itemsize: bytes per element (0.5 for 4-bit formats).
        differentiable: whether a gradient of the same shape flows back (token ids and labels have none).
    """

    name: str
    shape: Shape
    itemsize: float = field(default=2.0)
    differentiable: bool = True

    @property
    def bytes(self) -> float:
        """Bytes one rank holds of the tensor."""
        return elements(self.shape) * self.itemsize

    def divided(self, axis: str, degree: int) -> "Tensor":
        """The share one of `degree` ranks holds when `axis` is split over them."""
        return evolve(self, shape=divide(self.shape, axis, degree))


@frozen
class Parameter:
    """A learned tensor of one operator.

    Attributes:
        name: unique in its operator.
        shape: axes and sizes on one rank.
        group: the parameter group it belongs to (`dense`, `expert`, ...): groups differ in the ranks that hold
            the same parameters, so their gradients are reduced apart (PROBLEM.md section 2, `state`).
        tied: names of the operators whose parameter this one repeats; it takes memory, but the model counts
            it once.
    """

    name: str
    shape: Shape
    group: str = "dense"
    tied: bool = False

    @property
    def count(self) -> int:
        """Number of scalars one rank holds."""
        return elements(self.shape)
