"""Parameters that a plan splits, and along which dimension: read off the operator graph of the module."""

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import torch
from attrs import field, frozen

from nest.errors import InputError
from nest.graph import Operator, OperatorGraph

TENSOR = ("heads", "kv_heads", "ffn", "vocab")
"""Axes that tensor parallelism splits (nest.strategies.tp)."""

EXPERTS, EXPERT_WIDTH = "experts", "expert_ffn"
"""Axes that expert parallelism and expert-tensor parallelism split."""


@frozen
class Cut:
    """One dimension of a parameter that ranks share.

    Attributes:
        dim: the dimension.
        axis: name of the axis that is split.
        size: of that axis.
        pieces: equal tensors that lie one behind the other along the dimension, as in fused queries, keys and values.
    """

    dim: int
    axis: str
    size: int
    pieces: int


@frozen
class Split:
    """Treatment of a module's parameters by tensor and expert parallelism.

    Attributes:
        path: of the module.
        kind: of its operator.
        contracted: whether the split axis is summed over, which leaves partial sums.
        cuts: by name of the parameter, the dimensions that are split.
        whole: names of the parameters that every rank holds.
        among_split: whether what those are used with is split.
        expert: whether they are routed experts'.
    """

    path: str
    kind: str
    contracted: bool = False
    cuts: Mapping[str, tuple[Cut, ...]] = field(factory=dict)
    whole: tuple[str, ...] = ()
    among_split: bool = False
    expert: bool = False


def splits(graph: OperatorGraph, module: Any) -> dict[str, Split]:
    """By path of a module with parameters of its own, what is split of them.

    Raises:
        InputError: a parameter of the graph is none of the module.
    """
    found: dict[str, Split] = {}
    readers: dict[str, list[Operator]] = {}
    for operator in graph.operators:
        for tensor in operator.inputs:
            readers.setdefault(tensor.name, []).append(operator)
    for operator in graph.operators:
        if not operator.parameters:
            continue
        path = _path(operator, module)
        own = dict(module.get_submodule(path).named_parameters(recurse=False))
        cuts: dict[str, tuple[Cut, ...]] = {}
        whole = []
        for parameter in operator.parameters:
            name = parameter.name
            if name not in own:  # A module that borrows another's parameter, as tied ones are.
                continue
            made = tuple(_cuts(parameter.shape, tuple(own[name].shape)))
            if made:
                cuts[name] = made
            else:
                whole.append(name)
        axes = {axis for cut in cuts.values() for each in cut for axis in (each.axis,)}
        before = found.get(path)
        split = Split(
            path,
            operator.kind,
            any(axis in operator.contracted for axis in axes) and operator.kind != "embedding",
            {**(before.cuts if before else {}), **cuts},
            (*(before.whole if before else ()), *whole),
            _among_split(operator, readers) or (before is not None and before.among_split),
            any(parameter.group == "expert" for parameter in operator.parameters),
        )
        found[path] = split
    return found


def _among_split(operator: Operator, readers: Mapping[str, Sequence[Operator]]) -> bool:
    """Return whether what an operator reads or writes is split.

    Of one that reads parameters only, as `1 + weight`, its readers tell.
    """
    tensors = (*operator.inputs, *operator.outputs)
    if any(axis in TENSOR for tensor in tensors for axis, _ in tensor.shape):
        return True
    following = (each for tensor in operator.outputs for each in readers.get(tensor.name, ()))
    return not operator.inputs and any(_among_split(each, readers) for each in following)


def _path(operator: Operator, module: Any) -> str:
    """The module of an operator, whose name is `layer/path` with a number where it is taken."""
    layer, _, inner = operator.name.partition("/")
    tries = [inner, inner.rpartition(".")[0], ""]
    for start in (f"{layer}.", ""):
        for each in tries:
            path = f"{start}{each}".strip(".")
            if _holds(module, path, operator):
                return path
    for start in (f"{layer}.", ""):
        below = f"{start}{inner.rpartition('.')[0]}.".lstrip(".")
        for path, _ in module.named_modules():  # A module's code may use the parameters of one below it.
            if path.startswith(below) and _holds(module, path, operator):
                return str(path)
    names = ", ".join(parameter.name for parameter in operator.parameters)
    raise InputError(f"the model has no module for the plan's operator {operator.name!r} with {names}.")


def _holds(module: Any, path: str, operator: Operator) -> bool:
    """Return whether a module has parameters of the operator, of as many numbers."""
    try:
        found = module.get_submodule(path)
    except AttributeError:
        return False
    own = {name: parameter.numel() for name, parameter in found.named_parameters(recurse=False)}
    return any(own.get(parameter.name) == parameter.count for parameter in operator.parameters)


def _cuts(shape: Sequence[tuple[str, int]], sizes: Sequence[int]) -> Iterator[Cut]:
    """The split dimensions of a parameter of `sizes` whose axes, outermost first, are `shape`."""
    axes = list(shape)
    for dim, size in enumerate(sizes):
        row: list[tuple[str, int]] = []
        while axes and prod(length for _, length in row) * axes[0][1] <= size and prod(n for _, n in row) < size:
            row.append(axes.pop(0))
        pieces = 1
        for axis, length in row:
            if axis in (*TENSOR, EXPERTS, EXPERT_WIDTH):
                yield Cut(dim, axis, length, pieces)
                break
            pieces *= length


def rank_by_rank(tensor: torch.Tensor, cut: Cut, ranks: int) -> torch.Tensor:
    """`tensor` with its pieces dealt to the ranks: equal parts along the dimension are what each rank holds of all."""
    if cut.pieces == 1:
        return tensor
    shape = tensor.shape
    inner = shape[cut.dim] // cut.pieces // ranks
    parts = tensor.unflatten(cut.dim, (cut.pieces, ranks, inner)).transpose(cut.dim, cut.dim + 1)
    return parts.reshape(shape).contiguous()
