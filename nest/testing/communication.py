"""Declared collectives agree with the shapes around them, and nothing that must be communicated is forgotten."""

from collections.abc import Iterator
from math import isclose, isfinite

from nest.graph import COLLECTIVES, Block, Communication, Operator, Tensor, divide
from nest.tolerances import AGREEMENT


def bad_axes(block: Block) -> Iterator[str]:
    """Calls along axes the block has not, and parameter groups declared as replicated along such."""
    for operator in block.graph.operators:
        if (operator.kind == "collective") != (operator.collective is not None):
            yield f"operator {operator.name!r} must be of kind 'collective' and have one, or neither"
        for call in _calls(operator):
            ranks = block.ranks(call.axis)
            if len(ranks) < 2:
                yield f"operator {operator.name!r} communicates along {call.axis!r}, but the block has no ranks there"
            elif not all(0 <= rank < block.width for rank in ranks):
                yield f"the ranks of {call.axis!r} reach outside a block of {block.width} devices"
    axes = {axis.name for axis in block.axes} | {fold.name for fold in block.folds}
    for group, axis in block.replicated:
        if axis not in axes:
            yield f"`replicated` says that group {group!r} is held alike along {axis!r}, an axis the block has not"


def bad_calls(block: Block) -> Iterator[str]:
    """Calls whose bytes are not those of the tensors they stand for."""
    for operator in block.graph.operators:
        for call in _calls(operator):
            if call.kind not in COLLECTIVES:
                yield f"operator {operator.name!r} calls {call.kind!r}; collectives are {', '.join(COLLECTIVES)}"
            elif type(call.count) is not int or call.count < 1:
                yield f"operator {operator.name!r} makes {call.count!r} calls one after the other"
            elif not isfinite(call.bytes) or call.bytes < 0:
                yield f"operator {operator.name!r} communicates {call.bytes!r} bytes"
            elif not _fits(operator, call, len(block.ranks(call.axis))):
                yield (
                    f"operator {operator.name!r}: {call.kind} of {call.bytes:g} bytes over {call.axis!r} fits none of "
                    f"its tensors ({_told(operator)}); {_RULES[call.kind]}"
                )


def hidden_under_nothing(block: Block) -> Iterator[str]:
    """Collectives said to run at the same time as an operator that is not there, or computes nothing."""
    for operators in block.graph.by_layer:
        computing = {operator.name for operator in operators if operator.collective is None}
        for operator in operators:
            hidden = operator.collective
            if hidden is None or not hidden.under:
                continue
            if hidden.under not in computing:
                yield f"operator {operator.name!r} hides under {hidden.under!r}, which computes nothing in its layer"
            if not 0 <= hidden.share <= 1:
                yield f"operator {operator.name!r} hides under a share of {hidden.share!r}; it is 0 to 1"


_RULES = {
    "all_reduce": "an all_reduce carries a tensor as it is",
    "all_gather": "the bytes of an all_gather are those of the whole, the degree times the share it is made of",
    "reduce_scatter": "the bytes of a reduce_scatter are those of the whole, the degree times the share it leaves",
    "all_to_all": "the bytes of an all_to_all are what each member holds",
    "point_to_point": "",
}


def _calls(operator: Operator) -> tuple[Communication, ...]:
    if operator.collective is None:
        return ()
    return (*operator.collective.forward, *operator.collective.backward)


def _told(operator: Operator) -> str:
    return ", ".join(f"{t.name} {t.bytes:g}" for t in (*operator.inputs, *operator.outputs)) or "it has none"


def _fits(operator: Operator, call: Communication, degree: int) -> bool:
    """Whether a call's bytes are those of a tensor of the operator, or of all it reads or writes together."""
    if call.kind == "point_to_point":
        return True  # Rings send shares step by step, in portions of their own.
    if call.kind in ("all_reduce", "all_to_all"):
        return _keeps_size(operator) and any(isclose(size, call.bytes, rel_tol=AGREEMENT) for size in _sizes(operator))
    if operator.inputs and operator.outputs:
        return any(
            isclose(_bytes(whole), call.bytes, rel_tol=AGREEMENT) and _is_share(share, whole, degree)
            for whole, share in _sides(operator)
        )
    wholes = (*_sizes(operator), *(size * degree for size in _sizes(operator)))
    return any(isclose(size, call.bytes, rel_tol=AGREEMENT) for size in wholes)


def _keeps_size(operator: Operator) -> bool:
    """Whether an operator that does nothing but sum up, forward, writes as much as it reads."""
    assert operator.collective is not None
    kinds = {call.kind for call in operator.collective.forward}
    if kinds != {"all_reduce"} or not operator.inputs or not operator.outputs:
        return True
    return isclose(_bytes(operator.inputs), _bytes(operator.outputs), rel_tol=AGREEMENT)


def _sizes(operator: Operator) -> list[float]:
    """Bytes of each tensor, and of all that is read or written together."""
    sides = (operator.inputs, operator.outputs)
    return [tensor.bytes for side in sides for tensor in side] + [_bytes(side) for side in sides if side]


def _bytes(tensors: tuple[Tensor, ...]) -> float:
    return sum(tensor.bytes for tensor in tensors)


def _sides(operator: Operator) -> Iterator[tuple[tuple[Tensor, ...], tuple[Tensor, ...]]]:
    """What may be whole and what its share: everything read and written, or one tensor of each, either way round."""
    for whole, share in ((operator.inputs, operator.outputs), (operator.outputs, operator.inputs)):
        yield whole, share
        yield from (((one,), (other,)) for one in whole for other in share)


def _is_share(share: tuple[Tensor, ...], whole: tuple[Tensor, ...], degree: int) -> bool:
    """Whether `share` is one rank's part of `whole`: in bytes, or by an axis divided with rounding."""
    if isclose(_bytes(share) * degree, _bytes(whole), rel_tol=AGREEMENT):
        return True
    rounded = [{divide(tensor.shape, axis, degree) for axis, _ in tensor.shape} for tensor in whole]
    return len(share) == len(whole) and all(part.shape in shapes for part, shapes in zip(share, rounded, strict=True))
