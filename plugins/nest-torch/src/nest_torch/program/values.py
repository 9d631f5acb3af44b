"""Contents of a traced program: stored tensors, views of them, and the operators that make them."""

from math import prod

from attrs import define, field

from nest_torch.program.axes import Dim, size

INPUT, PARAMETER, CONSTANT, MADE = "input", "parameter", "constant", "made"
"""Origins of stored tensors."""


@define(eq=False)
class Stored:
    """A tensor in memory.

    Attributes:
        name: unique among those of its origin.
        origin: `INPUT`, `PARAMETER`, `CONSTANT` or `MADE` by an operator.
        dims: its dimensions.
        itemsize: bytes of an element.
        differentiable: whether a gradient flows back to it.
        pieces: the tensors that take its place, where the program does nothing with it but split it.
    """

    name: str
    origin: str
    dims: tuple[Dim, ...]
    itemsize: int
    differentiable: bool
    pieces: "list[Stored]" = field(factory=list)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(map(size, self.dims))

    def whole(self) -> "list[Stored]":
        """The tensors that are in memory in its place: itself unless it was split."""
        return [each for piece in self.pieces for each in piece.whole()] if self.pieces else [self]


@define(eq=False)
class Value:
    """A tensor of the program: some stored tensor, seen through views.

    Attributes:
        stored: what holds its numbers.
        dims: its dimensions.
        itemsize: bytes of an element.
    """

    stored: Stored
    dims: tuple[Dim, ...]
    itemsize: int

    @property
    def known(self) -> bool:
        """True if it depends on an input or on a parameter."""
        return self.stored.origin != CONSTANT

    def seen_as(self, dims: tuple[Dim, ...]) -> "Value":
        """The same numbers through a view."""
        return Value(self.stored, dims, self.itemsize)


@define(eq=False)
class Extent:
    """One dimension of an iteration space.

    Attributes:
        dim: its atoms.
        label: the name of the axis; empty: its atoms tell.
        contracted: whether it is summed over.
    """

    dim: Dim
    label: str = ""
    contracted: bool = False


@define(eq=False)
class Recorded:
    """An operator of the program.

    Attributes:
        target: what PyTorch calls it: `linear`, `add`, ...
        path: of the module it runs in: `layers.3.attention`.
        kind: as in nest's operator graphs.
        inputs: tensors it reads, without parameters.
        parameters: learned tensors it reads.
        outputs: tensors it writes.
        space: axes of its iteration space; empty: those of its first output.
        reduced: axes along which it needs whole rows, such as those of a norm.
        flops_per_point: as executed.
        model_flops_per_point: as the model asks for.
        backward_flops_ratio: backward FLOP over forward FLOP.
        saves: tensors the backward pass needs.
        experts: the dimension of its parameters that tells experts apart; None: they are no experts'.
        passes: times that its kernel goes over what it reads and writes.
    """

    target: str
    path: str
    kind: str
    inputs: list[Stored]
    parameters: list[Stored]
    outputs: list[Stored]
    space: list[Extent] = field(factory=list)
    reduced: list[Dim] = field(factory=list)
    flops_per_point: float = 0.0
    model_flops_per_point: float | None = None
    backward_flops_ratio: float = 2.0
    saves: list[Stored] = field(factory=list)
    experts: Dim | None = None
    passes: int = 1
