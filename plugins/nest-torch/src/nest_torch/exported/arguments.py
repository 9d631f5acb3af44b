"""Arguments that files leave out, told from the sizes of what goes in and what comes out."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

from nest_torch.program.makers import MAKERS
from nest_torch.program.targets import DROPOUTS, LINEAR, PRODUCTS_OF_NUMBERS, REDUCTIONS
from nest_torch.program.views import SPLITS, VIEWS

Sizes = Sequence[int]

GATHERING = ("index", "gather", "scatter", "index_select", "index_put", "index_add", "scatter_add", "take_along_dim")
"""Calls whose results do not lie in line with their operands even where the sizes agree."""

POINTWISE = (
    *("abs", "bernoulli", "bincount", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "ceil"),
    *("clamp", "clamp_max", "clamp_min", "clip", "cos", "cumprod", "diff", "empty_like", "eq", "erf"),
    *("erfinv", "exp", "exp2", "expm1", "floor", "floor_divide", "fmod", "frac", "full_like", "ge", "gt"),
    *("histc", "isinf", "isnan", "le", "log", "log10", "log1p", "log2", "logical_and", "logical_not"),
    *("logical_or", "logical_xor", "lt", "maximum", "minimum", "nan_to_num", "ne", "nonzero", "one_hot"),
    *("ones_like", "pow", "rand_like", "randn_like", "reciprocal", "remainder", "round", "rsqrt", "sign"),
    *("sin", "sort", "sqrt", "square", "tan", "topk", "argsort", "trunc", "zeros_like", "__and__", "__or__"),
    "__xor__",
)
"""Calls that do little with each number; nothing but the bytes they move takes time."""

KNOWN = frozenset(
    (*MAKERS, *VIEWS, *SPLITS, *LINEAR, *PRODUCTS_OF_NUMBERS, *REDUCTIONS, *DROPOUTS, *GATHERING, *POINTWISE)
)
"""Calls of which something is known beside their sizes."""


def arguments(target: str, read: Sequence[Sizes], written: Sequence[Sizes]) -> list[Any]:
    """Arguments of a call behind its tensors, as far as `nest_torch.program` needs them.

    An eager `dropout` is taken for one that drops nothing: whether it does is an argument, and what really drops
    is exported as `native_dropout`.

    Args:
        target: PyTorch's name of the call.
        read: sizes of each tensor that goes in.
        written: sizes of each tensor that comes out.
    """
    source, result = (read[0] if read else ()), (written[0] if written else ())
    if target in ("transpose", "swapaxes", "swapdims"):
        moved = [index for index, place in enumerate(permutation(source, result)) if index != place]
        return moved[:2] if len(moved) >= 2 else [-2, -1]
    if target == "permute":
        return [list(permutation(source, result))]
    if target in ("slice", "narrow", "cat", "concat", "stack"):
        return [_changed(source, result)]
    if target == "select":
        return [_lost(source, result)[0]] if len(source) == len(result) + 1 else [0]
    if target in ("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk"):
        return [0, _changed(source, result)]
    if target == "unbind":
        return [_lost(source, result)[0]] if len(source) == len(result) + 1 else [0]
    if target in REDUCTIONS and len(result) < len(source):
        return [_lost(source, result)]
    if target in DROPOUTS and target != "native_dropout":
        return [0.0]
    return []


def permutation(source: Sizes, result: Sizes) -> tuple[int, ...]:
    """Source of each dimension of the result: of the orders the sizes allow, the one that moves fewest.

    Nobody permutes without moving anything, so the identity is the last guess; of equals, the one that moves inner
    dimensions.
    """
    count = len(source)
    if sorted(source) != sorted(result):
        return tuple(range(count))
    if count > 6:  # 720 orders are quickly tried; nothing has more dimensions and more than one order.
        left = list(range(count))
        return tuple(left.pop(next(i for i, index in enumerate(left) if source[index] == size)) for size in result)
    fitting = [
        order
        for order in permutations(range(count))
        if all(source[place] == size for place, size in zip(order, result, strict=True))
    ]

    def moved(order: tuple[int, ...]) -> tuple[bool, int, tuple[int, ...]]:
        places = [index for index, place in enumerate(order) if index != place]
        return not places, len(places), tuple(-index for index in reversed(places))

    return min(fitting, key=moved)


def _changed(source: Sizes, result: Sizes) -> int:
    """The last dimension whose size is another."""
    if len(source) != len(result):
        return -1
    return next((index for index in reversed(range(len(source))) if source[index] != result[index]), -1)


def _lost(source: Sizes, result: Sizes) -> list[int]:
    """The dimensions that a result lacks, the innermost where several would do."""
    left = list(result)
    gone = []
    for index, size in enumerate(source):
        if left and left[0] == size:
            left.pop(0)
        else:
            gone.append(index)
    return gone


def in_line(target: str, read: Sequence[Sizes], written: Sequence[Sizes]) -> bool:
    """Return whether every number of the result comes from those at its place in the operands."""
    if target in GATHERING or target in REDUCTIONS or target in ("cat", "concat", "stack") or len(written) != 1:
        return False
    return all(_broadcasts(sizes, written[0]) for sizes in read)


def _broadcasts(sizes: Sizes, result: Sizes) -> bool:
    if len(sizes) > len(result):
        return False
    return all(one in (1, other) for one, other in zip(reversed(sizes), reversed(result), strict=False))
