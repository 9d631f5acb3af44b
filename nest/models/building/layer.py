"""Builder of a layer from the operators most layers are made of."""

from typing import Any

from attrs import Factory, define, evolve, field

from nest.graph import Operator, Parameter, Shape, Tensor
from nest.spec import Training

FP32 = 4.0  # Bytes of an element kept in single precision at any training precision.
INDEX = 8.0  # Bytes of a token id or label (PyTorch's int64).


def activation_itemsize(training: Training) -> float:
    """Return the bytes per activation element.

    Precisions of 8 and 4 bits are formats of matrix products: activations are sent and kept in bfloat16. Some
    frameworks keep inputs of products in 8 bits; ignoring that errs on the safe side.
    """
    return FP32 if training.precision == "fp32" else 2.0


@define(eq=False, repr=False)
class LayerBuilder:
    """The builder of one layer's operators.

    Tensors are `(batch, sequence, ...)` of one sample. FLOP are those of matrix products (2 for a multiply and an add);
    every other operator is bound by memory traffic and counts none.
    """

    name: str  # Of the layer; operators and tensors are called `name/...`.
    sequence: int  # Tokens per sample.
    itemsize: float  # Bytes per activation element.
    norm_bias: bool  # LayerNorm in place of RMSNorm.
    capacity: float = 1.0  # Room of an expert in tokens over its even share.
    kernels: str | None = None  # Whether operators between products are fused (`training.kernels`).
    operators: list[Operator] = field(factory=list)  # Added so far, in order.
    path: str = field(default=Factory(lambda self: self.name, takes_self=True))  # Start of names of what it adds.

    def inside(self, part: str) -> "LayerBuilder":
        """Return the builder of a part of this layer, whose operators and tensors are called `layer/part/...`."""
        return evolve(self, path=f"{self.path}/{part}")

    def another(self, name: str) -> "LayerBuilder":
        """Return the builder of another layer of the same model."""
        return evolve(self, name=name, path=name)

    def made(self, name: str) -> Tensor:
        """Return the tensor of this or an earlier layer called `name`."""
        return next(each for operator in reversed(self.operators) for each in operator.outputs if each.name == name)

    @property
    def tokens(self) -> Shape:
        """Return the first axes of every activation."""
        return (("batch", 1), ("sequence", self.sequence))

    def tensor(self, name: str, *axes: tuple[str, int], itemsize: float | None = None) -> Tensor:
        """Return a tensor of this layer with `axes` per token."""
        return Tensor(f"{self.path}/{name}", (*self.tokens, *axes), itemsize or self.itemsize)

    def indices(self, name: str) -> Tensor:
        """Return whole numbers of the data, one per token, without gradient."""
        return Tensor(name, self.tokens, INDEX, differentiable=False)

    def add(
        self,
        name: str,
        kind: str,
        inputs: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
        *,
        space: Shape | None = None,
        saves: tuple[Tensor, ...] = (),
        **details: Any,
    ) -> None:
        """Add any operator, with `details` of it; its space is the first output's shape unless given."""
        space = outputs[0].shape if space is None else space
        details |= {"name": f"{self.path}/{name}", "saves": tuple(tensor.name for tensor in saves)}
        self.operators.append(
            Operator(layer=self.name, kind=kind, space=space, inputs=inputs, outputs=outputs, **details)
        )

    def make(
        self, name: str, kind: str, inputs: tuple[Tensor, ...], *axes: tuple[str, int], output: str = "", **details: Any
    ) -> Tensor:
        """Add any operator with one result of `axes` per token, called `output` or like the operator."""
        result = self.tensor(output or name, *axes)
        self.add(name, kind, inputs, (result,), **details)
        return result

    def matmul(
        self,
        name: str,
        source: Tensor,
        columns: Shape,
        contracted: tuple[str, ...],
        outputs: tuple[Tensor, ...],
        *,
        bias: bool = False,
        tied: bool = False,
        experts: int = 0,
        kind: str = "matmul",
        parameters: tuple[Parameter, ...] | None = None,
    ) -> None:
        """Add a product of `source` with a weight of shape `columns` over contracted axes.

        The backward pass computes the gradients of input and weight, twice the forward FLOP, and needs the input. With
        `experts` the weight has one matrix per expert, and each row of `source` meets one. `parameters` replace it.
        """
        rows = tuple(axis for axis in source.shape if axis[0] not in contracted)
        inner = tuple(axis for axis in source.shape if axis[0] in contracted)
        routed: Shape = (("experts", experts),) if experts else ()
        group = "expert" if experts else "dense"
        if parameters is None:
            parameters = (Parameter("weight", (*routed, *columns, *inner), group, tied),)
            parameters += (Parameter("bias", (*routed, *columns), group),) if bias else ()
        flops = {"flops_per_point": 2.0 * (self.capacity if experts else 1.0), "model_flops_per_point": 2.0}
        details: Any = {"space": (*rows, *columns, *inner), "saves": (source,), "contracted": contracted, **flops}
        self.add(name, kind, (source,), outputs, parameters=parameters, **details)

    def project(
        self,
        name: str,
        source: Tensor,
        columns: Shape,
        contracted: tuple[str, ...] = ("hidden",),
        *,
        bias: bool = False,
        experts: int = 0,
    ) -> Tensor:
        """Add a matmul of the rows of `source` with `columns`; its one result is called `name`."""
        rows = tuple(axis for axis in source.shape if axis[0] not in contracted)
        output = Tensor(f"{self.path}/{name}", (*rows, *columns), source.itemsize if experts else self.itemsize)
        self.matmul(name, source, columns, contracted, (output,), bias=bias, experts=experts)
        return output

    def per_head(self, name: str, source: Tensor, output: Tensor, contracted: tuple[str, int]) -> Tensor:
        """Add a product of each head of `source` with its own matrix, over all or part of the last axis."""
        shape, learned = (*output.shape[2:], contracted), (Parameter("weight", (*output.shape[2:], contracted)),)
        space, summed = (*self.tokens, *shape), (contracted[0],)
        details: Any = {"space": space, "parameters": learned, "contracted": summed, "flops_per_point": 2.0}
        self.add(name, "matmul", (source,), (output,), saves=(source,), **details)
        return output

    def norm(
        self, name: str, source: Tensor, *, output: str = "", bias: bool | None = None, weights: Shape | None = None
    ) -> Tensor:
        """Add a norm of `source`, with weights (and perhaps biases) of the shape of its last axis or of `weights`.

        The backward pass needs the input; the statistics, a few bytes per token, are left out as in arXiv 2205.05198,
        section 4.1.
        """
        normed = Tensor(f"{self.path}/{output or name}", source.shape, source.itemsize)
        names = ("weight", "bias") if (self.norm_bias if bias is None else bias) else ("weight",)
        shape = source.shape[-1:] if weights is None else weights
        parameters = tuple(Parameter(each, shape) for each in names if shape)
        saved: tuple[Tensor, ...] = (source,)
        made: tuple[Tensor, ...] = (normed,)
        if self.kernels == "eager" and "bias" not in names:
            # Composed of operators it saves the input in single precision, of which squares and the quotient are
            # taken, and the quotient, for the gradient of the weight (transformers v5.17.0, LlamaRMSNorm). LayerNorm
            # is one kernel everywhere.
            wide = Tensor(f"{normed.name} in fp32", source.shape, FP32, differentiable=False)
            quotient = Tensor(f"{normed.name} unweighted", source.shape, source.itemsize, differentiable=False)
            saved = (wide, quotient) if shape else (wide,)
            made = (normed, *saved)
        self.add(name, "norm", (source,), made, parameters=parameters, saves=saved)
        return normed

    def residual(self, name: str, source: Tensor, *changes: Tensor, output: str | None = None) -> Tensor:
        """Add the sum of `source` and `changes`; the backward pass needs no inputs."""
        total = Tensor(f"{self.path}/{output or name}", source.shape, self.itemsize)
        self.add(name, "elementwise", (source, *changes), (total,))
        return total
