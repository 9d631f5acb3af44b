"""Operator graphs of PyTorch modules, traced with `torch.export`, without numbers and without memory for weights."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from nest.errors import InputError
from nest.graph import OperatorGraph
from nest_torch.lengths import LENGTHS, at_length
from nest_torch.program.axes import Atom, Dim, fresh, leaves
from nest_torch.program.axis_names import BATCH, name_axes
from nest_torch.program.fusion import fused as together
from nest_torch.program.graph import graph_of
from nest_torch.program.layers import layering
from nest_torch.program.loss import with_loss
from nest_torch.program.makers import MAKERS
from nest_torch.program.scans import scans
from nest_torch.program.unfused import mark_attention
from nest_torch.program.values import CONSTANT, INPUT, PARAMETER, Recorded, Stored, Value
from nest_torch.repeats import Repeat, UnrolledError, left_out, repeats
from nest_torch.tracing import TRACED_BATCH, exported
from nest_torch.walking import Walker

SEQUENCE = "sequence"

Axes = Sequence[str]
"""Names of the dimensions of one input; empty: no name."""


def capture(
    module: Any,
    example_inputs: Sequence[Any],
    *,
    keywords: Mapping[str, Any] | None = None,
    axes: Sequence[Axes] | None = None,
    family: str = "",
    fused: bool = True,
    loss: str = "unfused",
) -> OperatorGraph:
    """The operator graph of a module for one sample.

    Args:
        module: a `torch.nn.Module`, with its weights on any device; on the meta device they take no memory. It is
            traced in the mode, training or evaluation, that it is in.
        example_inputs: positional arguments of its forward pass. Of tensors only sizes, data type and device count.
        keywords: arguments by keyword.
        axes: names of the dimensions of each tensor among the arguments, positional ones first: `batch`, `sequence`,
            ...; left out, the first dimension of each is the batch, and the second the sequence where there are two
            of whole numbers or three of others.
        family: name for reports; empty: that of the module's class.
        fused: whether operators are those that compilers and the kernels of frameworks make of the program: attention
            written out, norms, rotary embeddings, gated activations, loops along the sequence are one operator each.
            Else each call is one.
        loss: what a program that ends with logits gets of cross-entropy, as in training: `unfused`, from a copy in
            single precision, `fused`, from the logits as they are, or `none`.

    Raises:
        InputError: the module cannot be traced, no dimension is the batch, or an operator loses it.
    """
    asked = {**_without_cache(module), **(keywords or {})}
    known: list[tuple[Repeat, ...]] = []  # Of one short sequence, and so of all.

    def captured(length: int | None) -> OperatorGraph:
        named = _Inputs(axes, length)
        positional = tuple(named.traced(each) for each in example_inputs)
        by_name = {name: named.traced(each) for name, each in asked.items()}
        if not named.has_batch:
            raise InputError("no dimension of the inputs is called batch, so nest cannot tell one sample from another.")
        whole = named.sequence if length is None and named.sequence and named.sequence > max(LENGTHS) else None
        alike = known[0] if known else repeats(module, positional, by_name, whole)
        known[:] = [alike] if length is not None else []
        operators = _operators(module, positional, by_name, named, alike, fused)
        name_axes(operators)
        if loss != "none":
            operators = with_loss(operators, fused=loss == "fused")
        return graph_of(operators, layering(operators), family or type(module).__name__)

    try:
        return captured(None)
    except UnrolledError as error:
        return at_length(captured, error.length)


def _without_cache(module: Any) -> dict[str, bool]:
    """Keep models of transformers from returning keys and values for later calls, of no use in training."""
    return {"use_cache": False} if "use_cache" in inspect.signature(module.forward).parameters else {}


def _operators(
    module: Any,
    positional: tuple[Any, ...],
    keywords: dict[str, Any],
    named: "_Inputs",
    alike: Sequence[Repeat],
    fused: bool,
) -> list[Recorded]:
    """Operators of a module; `fused`: as kernels run them."""
    with left_out(module, alike):
        program = exported(module, positional, keywords)
    recorder = Walker(MAKERS, fused=fused, repeats=alike)
    recorder.run(program.graph_module, _given(program, module, named))
    operators = recorder.operators
    if not operators:
        raise InputError("the module computes nothing from its inputs.")
    _check_batch(operators)
    mark_attention(operators)
    return together(scans(operators)) if fused else operators


class _Inputs:
    """The tensors a module is called with: what is traced in their place, and their axes."""

    def __init__(self, axes: Sequence[Axes] | None, length: int | None) -> None:
        self._axes = list(axes) if axes is not None else None
        self.length = length
        self.sequence: int | None = None
        self._atoms: dict[str, Atom] = {}
        self.dims: list[tuple[Dim, ...]] = []

    @property
    def has_batch(self) -> bool:
        """True if a dimension was called batch."""
        return BATCH in self._atoms

    def traced(self, given: Any) -> Any:
        """A tensor without numbers in place of `given`, for the traced number of samples; other things as they are."""
        if not isinstance(given, torch.Tensor):
            return given
        names = self._names(given)
        lengths = [int(length) for length in given.shape]
        for name, length in zip(names, lengths, strict=True):
            self.sequence = length if name == SEQUENCE else self.sequence
        sizes = [self._traced_size(name, length) for name, length in zip(names, lengths, strict=True)]
        dims = tuple(self._dim(name, length) for name, length in zip(names, sizes, strict=True))
        self.dims.append(dims)
        return torch.zeros(sizes, dtype=given.dtype, device=given.device)

    def _traced_size(self, name: str, length: int) -> int:
        """Sizes are those of the example, but few samples, and a shorter sequence where that was asked for."""
        if name == BATCH:
            return TRACED_BATCH
        return self.length if name == SEQUENCE and self.length is not None else length

    def _names(self, given: Any) -> Sequence[str]:
        index, rank = len(self.dims), given.dim()
        if self._axes is not None:
            if index >= len(self._axes) or len(self._axes[index]) != rank:
                raise InputError(f"axes must name the {rank} dimensions of tensor {index} among the inputs.")
            return self._axes[index]
        sequence = rank == (3 if given.is_floating_point() else 2)
        usual = [BATCH, SEQUENCE if sequence else ""]
        return [*usual, *[""] * rank][:rank]

    def _dim(self, name: str, length: int) -> Dim:
        if not name:
            return fresh(length)
        atom = self._atoms.setdefault(name, Atom(length, name, fixed=True))
        if atom.size != length:
            raise InputError(f"axis {name} of the inputs is {atom.size} long in one place and {length} in another.")
        return (atom,) if length > 1 else ()


def _given(program: Any, module: Any, inputs: _Inputs) -> list[Any]:
    """Parameters, constants and inputs for the placeholders of a program; one value for all names of a parameter."""
    dims = iter(inputs.dims)
    named = {name: id(each) for name, each in module.named_parameters(remove_duplicate=False)}
    shared: dict[int | str, Value] = {}
    values = []
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    for spec, node in zip(program.graph_signature.input_specs, placeholders, strict=True):
        held = node.meta.get("val")
        if not isinstance(held, torch.Tensor):
            values.append(held)
            continue
        origin = {"PARAMETER": PARAMETER, "USER_INPUT": INPUT}.get(spec.kind.name, CONSTANT)
        shape = next(dims) if origin == INPUT else tuple(fresh(int(length)) for length in held.shape)
        learned = origin == PARAMETER
        stored = Stored(str(spec.target or node.name), origin, shape, int(held.dtype.itemsize), learned)
        values.append(shared.setdefault(named.get(stored.name, node.name), Value(stored, shape, stored.itemsize)))
    return values


def _check_batch(operators: Sequence[Recorded]) -> None:
    """Every product of what comes with the data must know which axis is the batch: else it is counted several times."""
    batched: set[int] = set()
    for operator in operators:
        reads = any(
            id(stored) in batched or (stored.origin == INPUT and _has_batch(stored.dims)) for stored in operator.inputs
        )
        if not reads:
            continue
        batched.update(id(each) for stored in operator.outputs for each in (stored, *stored.whole()))
        if operator.flops_per_point and not any(_has_batch((extent.dim,)) for extent in operator.space):
            raise InputError(
                f"in {operator.path or 'the module'} ({operator.target}) the batch can no longer be told apart. "
                "Keep it the first dimension there."
            )


def _has_batch(dims: Sequence[Dim]) -> bool:
    return any(leaf.name == BATCH for dim in dims for leaf in leaves(dim))
