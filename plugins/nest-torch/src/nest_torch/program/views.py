"""PyTorch's views: how the dimensions of what they show follow from those of what they look at."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nest_torch.program.axes import Atom, Dim, aligned, fresh, part, reshape, size

Dims = tuple[Dim, ...]
Shown = Callable[[Dims, Sequence[Any], Sequence[int]], Dims]
"""The dimensions a view shows, from those it looks at, its further arguments and its sizes."""


def _reshaped(dims: Dims, _: Sequence[Any], sizes: Sequence[int]) -> Dims:
    return reshape(dims, sizes)


def _same(dims: Dims, _: Sequence[Any], __: Sequence[int]) -> Dims:
    return dims


def _transposed(dims: Dims, arguments: Sequence[Any], _: Sequence[int]) -> Dims:
    one, other = arguments[0], arguments[1]
    moved = list(dims)
    moved[one], moved[other] = moved[other], moved[one]
    return tuple(moved)


def _permuted(dims: Dims, arguments: Sequence[Any], _: Sequence[int]) -> Dims:
    return tuple(dims[index] for index in arguments[0])


def _reversed(dims: Dims, _: Sequence[Any], __: Sequence[int]) -> Dims:
    return tuple(reversed(dims))


def _last_swapped(dims: Dims, _: Sequence[Any], __: Sequence[int]) -> Dims:
    return (*dims[:-2], dims[-1], dims[-2])


def _moved(dims: Dims, arguments: Sequence[Any], _: Sequence[int]) -> Dims:
    sources, targets = ([each] if isinstance(each, int) else list(each) for each in arguments[:2])
    places = {target % len(dims): source % len(dims) for source, target in zip(sources, targets, strict=True)}
    rest = (index for index in range(len(dims)) if index not in places.values())
    return tuple(dims[places[index] if index in places else next(rest)] for index in range(len(dims)))


def _expanded(dims: Dims, _: Sequence[Any], sizes: Sequence[int]) -> Dims:
    """Turn repetition into an axis of its own, which takes no memory."""
    offset = len(sizes) - len(dims)
    shown = []
    for index, length in enumerate(sizes):
        own = dims[index - offset] if index >= offset else ()
        shown.append(own if own or length == 1 else (Atom(length, repeated=True),))
    return tuple(shown)


def _cut(dims: Dims, arguments: Sequence[Any], sizes: Sequence[int]) -> Dims:
    """`slice` and `narrow` along one dimension."""
    along = (arguments[0] if arguments else 0) % len(dims)
    return tuple(part(dim, sizes[index]) if index == along else dim for index, dim in enumerate(dims))


def _selected(dims: Dims, arguments: Sequence[Any], _: Sequence[int]) -> Dims:
    along = arguments[0] % len(dims)
    return (*dims[:along], *dims[along + 1 :])


def _diagonal(dims: Dims, _: Sequence[Any], sizes: Sequence[int]) -> Dims:
    return tuple(fresh(length) for length in sizes)


VIEWS: Mapping[str, Shown] = {
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze"), _reshaped),
    **dict.fromkeys(("view_as", "reshape_as", "ravel", "_reshape_alias"), _reshaped),
    **dict.fromkeys(("alias", "detach", "detach_", "contiguous", "clone", "lift_fresh_copy", "positive"), _same),
    **dict.fromkeys(("requires_grad_", "view_of", "_conj", "resolve_conj", "resolve_neg"), _same),
    **dict.fromkeys(("transpose", "swapaxes", "swapdims"), _transposed),
    **dict.fromkeys(("t", "numpy_T"), _reversed),
    **dict.fromkeys(("mT", "mH", "adjoint"), _last_swapped),
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), _expanded),
    **dict.fromkeys(("slice", "narrow"), _cut),
    "permute": _permuted,
    "movedim": _moved,
    "moveaxis": _moved,
    "select": _selected,
    "diagonal": _diagonal,
}
"""Views of one tensor, by name. A `contiguous` or `clone` is taken for one: the kernels around it read any layout."""

SPLITS = ("split", "split_with_sizes", "chunk", "tensor_split", "unbind", "unsafe_split", "unsafe_chunk")
"""Views that show several tensors."""


def pieces(target: str, dims: Dims, arguments: Sequence[Any], shapes: Sequence[Sequence[int]]) -> list[Dims]:
    """The dimensions of each tensor that a split shows; equal runs share the atoms of one run.

    Args:
        target: one of `SPLITS`.
        dims: of what is split.
        arguments: of the call, without the tensor.
        shapes: sizes of what comes out.
    """
    position = 0 if target == "unbind" else 1
    along = (arguments[position] if len(arguments) > position else 0) % len(dims)
    if target == "unbind":
        return [(*dims[:along], *dims[along + 1 :])] * len(shapes)
    lengths = [shape[along] for shape in shapes]
    if len(set(lengths)) == 1:
        inner = [part(dims[along], lengths[0])] * len(lengths)
    else:
        inner = [fresh(length) for length in lengths]
    return [(*dims[:along], each, *dims[along + 1 :]) for each in inner]


def joined(parts: Sequence[Dims], along: int, sizes: Sequence[int]) -> Dims:
    """The dimensions of tensors laid one behind the other along one dimension."""
    along %= len(sizes)
    lengths = [size(dims[along]) for dims in parts]
    equal = len(set(lengths)) == 1 and len(parts) > 1
    inner = (*fresh(len(parts)), *parts[0][along]) if equal else fresh(sizes[along])
    rest = [[inner if index == along else dim for index, dim in enumerate(dims)] for dims in parts]
    return aligned((), sizes, rest)
