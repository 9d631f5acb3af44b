"""Operators and their tensors with named axes, as one rank holds them."""

from collections.abc import Collection
from math import prod

from attrs import field, frozen

from nest.records import Record

Shape = tuple[tuple[str, int], ...]
"""Named axes with their sizes, outermost first: `(("batch", 1), ("sequence", 4096), ("hidden", 8192))`."""

BATCH = "batch"
"""Axis of the micro-batch's samples."""

WHOLE_VOCAB = "whole_vocab"
"""Axis of logits that every tensor-parallel rank gathers."""

OTHER_SAMPLES = "other_samples"
"""Axis of the samples that each sample is compared with (contrastive losses)."""


def elements(shape: Shape) -> int:
    """Number of points in `shape`."""
    product = 1
    for _, size in shape:  # A third of the time of `prod` over a generator; pricing asks very often.
        product *= size
    return product


def axis_size(shape: Shape, axis: str) -> int:
    """Size of `axis` in `shape`; 1 without it."""
    return prod(size for name, size in shape if name == axis)


def has_axis(shape: Shape, axis: str) -> bool:
    """True if `shape` has such an axis, of any size."""
    return any(name == axis for name, _ in shape)


def divide(shape: Shape, axis: str, degree: int) -> Shape:
    """Split `axis` over `degree` ranks, rounded up: the largest share of any rank."""
    return divide_axes(shape, (axis,), degree)


def divide_axes(shape: Shape, axes: Collection[str], degree: int) -> Shape:
    """Split each of `axes` so; without any, the same object."""
    for name, _ in shape:  # Most shapes of most operators have none: a third of the time of `any` over a generator.
        if name in axes:
            return tuple([(name, -(-size // degree) if name in axes else size) for name, size in shape])
    return shape


def scale(shape: Shape, axis: str, factor: int) -> Shape:
    """Make `axis` `factor` times as long."""
    return tuple((name, size * factor if name == axis else size) for name, size in shape)


@frozen(eq=False, repr=False)
class Tensor(Record):
    """A value that flows between operators.

    Attributes:
        name: unique in its graph; operators that name the same tensor share it.
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
        """Bytes of the tensor on one rank."""
        return elements(self.shape) * self.itemsize

    def divided(self, axis: str, degree: int) -> "Tensor":
        """Share of one of `degree` ranks that split `axis`."""
        shape = divide(self.shape, axis, degree)
        if shape is self.shape:
            return self
        return Tensor(self.name, shape, self.itemsize, self.differentiable)  # A quarter of the time of `evolve`.


@frozen(repr=False)
class Parameter(Record):
    """A learned tensor of one operator.

    Attributes:
        name: unique in its operator.
        shape: axes and sizes on one rank.
        group: its parameter group (`dense`, `expert`, ...): groups differ in the ranks with equal parameters, so their
            gradients are reduced separately (PROBLEM.md section 2, `state`).
        tied: names of the operators whose parameter this one repeats; it takes memory, but the model counts it once.
        frozen: not trained: it has no gradient and no optimizer state.
        itemsize: bytes per scalar in a narrow format; None: as the training precision.
    """

    name: str
    shape: Shape
    group: str = "dense"
    tied: bool = False
    frozen: bool = False
    itemsize: float | None = None

    @property
    def count(self) -> int:
        """Number of scalars on one rank."""
        return elements(self.shape)


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "point_to_point")
"""Kinds of collective calls (PROBLEM.md section 1)."""

KINDS = (
    *("matmul", "attention", "norm", "activation", "elementwise", "softmax", "embedding", "router", "scan"),
    *("loss", "collective"),
)
"""Kinds of operators; plug-ins may add others under other names."""


@frozen(cache_hash=True, repr=False)
class Routing(Record):
    """Routing of tokens to experts.

    Attributes:
        copies: experts that a token visits, and so copies of it in an exchange without sharing.
        groups: groups of neighbouring experts that a token chooses from first; 1: it chooses from all at once.
        visited: groups that it keeps.
    """

    copies: int
    groups: int = 1
    visited: int = 1

    def reached(self, parts: int) -> float:
        """Average number of `parts` equal parts of the experts with some that a token visits.

        Assumes even and independent choices; of `groups`, `visited` are chosen first (node-limited routing,
        DeepSeek-V3, arXiv 2412.19437, section 2.1.2).
        """
        within = float(parts)
        if self.groups > 1:
            share = self.visited / self.groups
            within = parts * share if parts >= self.groups else parts * (1 - (1 - 1 / parts) ** self.visited)
        return within * (1 - (1 - 1 / within) ** self.copies) if within > 1 else 1.0


@frozen(cache_hash=True, repr=False)
class Communication(Record):
    """One collective call.

    Attributes:
        kind: one of `COLLECTIVES`.
        bytes: the full (unsharded) buffer; for `all_to_all` the buffer of each member (PROBLEM.md section 1).
        axis: axis of the block whose ranks take part.
        count: number of such calls, one after the other.
        routing: of an `all_to_all` of tokens to their experts; None: it carries something else.
    """

    kind: str
    bytes: float
    axis: str
    count: int = 1
    routing: Routing | None = None


@frozen(eq=False, repr=False)
class Collective(Record):
    """Calls of a communication operator in each direction.

    Attributes:
        forward: calls of the forward pass, one after the other.
        backward: calls of the backward pass.
        under: name of an operator of the same layer that runs at the same time; in each direction only the excess over
            its compute costs time. Empty: the calls hide under nothing.
        share: part of that compute under which the calls can run, 0 to 1.
        overlap: key of `training.overlap` for frameworks that hide the calls under the layer's compute; empty: none
            does.
        weight_gradients: number of calls of the backward pass, from the first, that serve only weight gradients.
    """

    forward: tuple[Communication, ...] = ()
    backward: tuple[Communication, ...] = ()
    under: str = ""
    share: float = 1.0
    overlap: str = "tensor"
    weight_gradients: int = 0

    def divided(self, degree: int) -> "Collective":
        """Calls for one of `degree` shares of their tensors."""

        def shares(calls: tuple[Communication, ...]) -> tuple[Communication, ...]:
            # A quarter of the time of `evolve`, here and below.
            every = [(each.kind, each.bytes / degree, each.axis, each.count, each.routing) for each in calls]
            return tuple([Communication(*each) for each in every])

        rest = (self.under, self.share, self.overlap, self.weight_gradients)
        return Collective(shares(self.forward), shares(self.backward), *rest)


@frozen(cache_hash=True, repr=False)
class Operator(Record):
    """One operator of a layer, as one rank of a block runs it for one micro-batch.

    Attributes:
        name: unique in its graph, `layer/operator` by convention.
        layer: its layer.
        kind: `matmul`, `attention`, `norm`, `activation`, `elementwise`, `softmax`, `embedding`, `router`, `scan`
            (steps along the sequence, one after the other), `loss` or `collective`; plug-ins may add kinds, which cost
            models treat as memory-bound.
        space: the iteration space. A matmul's is its (batch..., rows, columns, contracted) axes.
        flops_per_point: forward FLOP at each point of `space` (2 for a matmul, 0 for a copy).
        backward_flops_ratio: backward FLOP over forward FLOP (2 for a matmul with weights).
        inputs: tensors read, without parameters.
        outputs: tensors written.
        parameters: learned tensors.
        saves: names of the inputs or outputs that the backward pass needs.
        collective: calls of an operator of kind `collective`.
        contracted: axes of `space` that are summed over: splitting one leaves partial sums.
        model_flops_per_point: forward FLOP at each point of `space` that the model requires, for any kernel (the
            convention of utilisation figures: PaLM, arXiv 2204.02311, appendix B); None: `flops_per_point`.
        split: the strategies, or the axes, that divided its work over their ranks; the ranks of others repeat it.
        steps: kernels that do its work one after the other, each on an equal part of the contracted axes.
        routing: of the operator that hands tokens to routed experts.
        passes: passes of the kernel over all it reads and writes.
    """

    name: str
    layer: str
    kind: str
    space: Shape = ()
    flops_per_point: float = 0.0
    backward_flops_ratio: float = 2.0
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    saves: tuple[str, ...] = field(default=())
    collective: Collective | None = None
    contracted: tuple[str, ...] = ()
    model_flops_per_point: float | None = None
    split: tuple[str, ...] = ()
    steps: int = 1
    routing: Routing | None = None
    passes: int = 1

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Shapes of its iteration space, inputs, outputs and parameters."""
        tensors = (*self.inputs, *self.outputs)
        return (self.space, *(tensor.shape for tensor in tensors), *(p.shape for p in self.parameters))

    @property
    def calls(self) -> tuple[Communication, ...]:
        """Its calls of both directions."""
        return (*self.collective.forward, *self.collective.backward) if self.collective is not None else ()

    @property
    def flops(self) -> float:
        """Forward FLOP of one rank for one micro-batch, as executed by the kernel."""
        return self.flops_per_point * elements(self.space)

    @property
    def model_flops(self) -> float:
        """Forward FLOP of one rank for one micro-batch that count towards utilisation."""
        if self.model_flops_per_point is None:
            return self.flops
        return self.model_flops_per_point * elements(self.space)

    @property
    def backward_flops(self) -> float:
        """Backward FLOP of one rank for one micro-batch."""
        return self.flops * self.backward_flops_ratio

    @property
    def bytes_read(self) -> float:
        """Bytes of the input tensors (without parameters: their width depends on the precision)."""
        return sum([tensor.bytes for tensor in self.inputs])

    @property
    def bytes_written(self) -> float:
        """Bytes of the output tensors."""
        return sum([tensor.bytes for tensor in self.outputs])

    @property
    def parameter_count(self) -> int:
        """Scalars learned by this operator on one rank."""
        return sum([parameter.count for parameter in self.parameters])

    def weight_bytes(self, itemsize: float) -> float:
        """Bytes of its parameters on one rank, `itemsize` each unless they are narrower."""
        return sum([parameter.count * (parameter.itemsize or itemsize) for parameter in self.parameters])

    @property
    def trained_count(self) -> int:
        """Those of them that are trained."""
        return sum([parameter.count for parameter in self.parameters if not parameter.frozen])

    def trains_matrix(self, parameter: Parameter) -> bool:
        """Return whether `parameter` is the trained matrix of a product by an input, and not of the vocabulary."""
        multiplied = bool(self.inputs) and any(has_axis(parameter.shape, axis) for axis in self.contracted)
        return multiplied and not parameter.frozen and not has_axis(self.space, "vocab")

    def divided(self, axis: str, degree: int, strategy: str) -> "Operator":
        """Operator of one of `degree` ranks when `strategy` divides `axis` of all it reads and writes.

        Parameters stay whole. Its communication shrinks with the tensors; an operator that computes is marked as split
        by `strategy`. Without the axis the operator stays unchanged.
        """
        tensors = (*self.inputs, *self.outputs)
        shapes = (self.space, *[tensor.shape for tensor in tensors])
        if axis not in {name for shape in shapes for name, _ in shape}:
            return self
        divided = tuple([tensor.divided(axis, degree) for tensor in tensors])
        ends = len(self.inputs)
        return Operator(
            self.name,
            self.layer,
            self.kind,
            divide(self.space, axis, degree),
            self.flops_per_point,
            self.backward_flops_ratio,
            divided[:ends],
            divided[ends:],
            self.parameters,
            self.saves,
            None if self.collective is None else self.collective.divided(degree),
            self.contracted,
            self.model_flops_per_point,
            self.split if self.collective is not None else (*self.split, strategy),
            self.steps,
            self.routing,
            self.passes,
        )
