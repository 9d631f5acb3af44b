"""Declared collectives agree with the shapes around them, and nothing that must be communicated is forgotten.

What ranks have parts of is added up over those ranks: sums over divided axes, and gradients of what is read whole. A
strategy's axes need not have its name, and may be several: how many ranks have parts follows from the shares.
"""

from collections.abc import Iterable, Iterator
from math import isclose, isfinite, prod

from attrs import evolve, frozen

from nest.graph import COLLECTIVES, Block, Communication, Operator, Tensor, axis_size, divide, elements, has_axis
from nest.testing.conservation import claimed, exhausted, folded, is_matrix, nearest_divisor, pairs
from nest.tolerances import AGREEMENT


def bad_axes(block: Block) -> Iterator[str]:
    """Calls along axes the block has not, and parameter groups declared as replicated along such."""
    for operator in block.graph.operators:
        if (operator.kind == "collective") != (operator.collective is not None):
            yield f"operator {operator.name!r} must be of kind 'collective' and have one, or neither"
        for call in operator.calls:
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
        for call in operator.calls:
            if call.kind not in COLLECTIVES:
                yield f"operator {operator.name!r} calls {call.kind!r}; collectives are {', '.join(COLLECTIVES)}"
            elif type(call.count) is not int or call.count < 1:
                yield f"operator {operator.name!r} makes {call.count!r} calls one after the other"
            elif not isfinite(call.bytes) or call.bytes < 0:
                yield f"operator {operator.name!r} communicates {call.bytes!r} bytes"
            elif not _fits(operator, call, len(block.ranks(call.axis))):
                yield (
                    f"operator {operator.name!r}: {call.kind} of {call.bytes:g} bytes over {call.axis!r} fits none of "
                    f"its tensors ({_tensor_sizes(operator)}); {_RULES[call.kind]}"
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


def _tensor_sizes(operator: Operator) -> str:
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
    """Whether `share` is one rank's part of `whole`: in bytes, or by an axis longer than 1 divided with rounding."""
    if isclose(_bytes(share) * degree, _bytes(whole), rel_tol=AGREEMENT):
        return True
    rounded = [{divide(tensor.shape, axis, degree) for axis, size in tensor.shape if size > 1} for tensor in whole]
    return len(share) == len(whole) and all(part.shape in shapes for part, shapes in zip(share, rounded, strict=True))


REDUCING = ("all_reduce", "reduce_scatter")
"""Those that add up."""


@frozen
class _Parts:
    """A tensor that is a part of a sum on each rank, as `operator` left it.

    Attributes:
        axis: what it sums over.
        before: size of that axis in the whole.
        after: on a rank.
        ranks: over which parts were added up so far.
    """

    operator: Operator
    axis: str
    before: int
    after: int
    ranks: int = 1

    @property
    def done(self) -> bool:
        """Whether as many ranks added their parts up as the axis was divided over, rounded up."""
        return -(-self.before // self.ranks) == self.after


def partial_sums(whole: Block, block: Block) -> Iterator[str]:
    """Sums over a divided axis that are passed on as if they were whole, or added up over other ranks than have parts.

    An operator that sums over an axis leaves, when the axis is divided, a part of the sum on each rank. It may pass
    through other operators of the layer, but collectives must add the parts up, over as many ranks as have one, before
    the layer ends.
    """
    left = {after.name: parts for before, after in pairs(whole, block) if (parts := _parts(before, after)) is not None}
    for operators in block.graph.by_layer:
        waiting: dict[str, _Parts] = {}
        read: set[str] = set()
        for operator in operators:
            reads = [tensor.name for tensor in operator.inputs if tensor.name in waiting]
            read.update(reads)
            pending = left.get(operator.name) or next((waiting[name] for name in reads), None)
            if pending is None:
                continue
            calls = _adding(operator.collective.forward if operator.collective is not None else ())
            yield from _along_copies(block, pending.operator, operator.name, calls)
            pending = evolve(pending, ranks=pending.ranks * prod(len(block.ranks(call.axis)) for call in calls))
            if not pending.done:
                waiting.update((tensor.name, pending) for tensor in operator.outputs)
        for name, parts in waiting.items():
            if name not in read:
                fault = "no all_reduce or reduce_scatter completes it"
                if parts.ranks > 1:
                    fault = f"those of {parts.ranks} ranks are added up, but a rank has {parts.after} of {parts.before}"
                yield (
                    f"operator {parts.operator.name!r} sums over {parts.axis!r}, which is divided; {name!r} is a part "
                    f"of the sum and {fault}"
                )


def _adding(calls: Iterable[Communication]) -> list[Communication]:
    return [call for call in calls if call.kind in REDUCING]


def _parts(before: Operator, after: Operator) -> _Parts | None:
    """What an operator leaves when axes it sums over are divided; of several the first is named."""
    shrunk = [axis for axis in before.contracted if _size(after, axis) < _size(before, axis)]
    if not shrunk:
        return None
    sizes = [(_size(before, axis), _size(after, axis)) for axis in shrunk]
    return _Parts(after, shrunk[0], prod(size for size, _ in sizes), prod(size for _, size in sizes))


def _along_copies(block: Block, operator: Operator, adding: str, calls: Iterable[Communication]) -> Iterator[str]:
    """Calls of `adding` that add up what `operator` leaves along an axis whose ranks hold its parameters alike.

    Such ranks have other tokens, or do the same; ranks with parts of one sum have parts of the parameters.
    """
    groups = {parameter.group for parameter in operator.parameters if is_matrix(parameter)}
    for call in calls:
        if any((group, call.axis) in block.replicated for group in groups):
            yield (
                f"{adding!r} adds up over {call.axis!r}, along which ranks hold the same parameters of operator "
                f"{operator.name!r} and so have no parts of one sum"
            )


def _size(operator: Operator, axis: str) -> int:
    return dict(operator.space).get(axis, 1)


def partial_gradients(whole: Block, block: Block) -> Iterator[str]:
    """Tensors whose gradients are not added up over the ranks that have parts of them, and only those.

    Where an operator's work is divided further than a tensor it reads, each rank has a part of the gradient:
    collectives of the layer that handle the tensor must add the parts up in the backward pass. Of several readers the
    one divided furthest counts. Where ranks are laid over the same devices in two orders, what one divides another may
    have gathered: there a tensor that is read whole must be added up over some.
    """
    added = _added_up(block)
    folds = {fold.name for fold in block.folds}
    wanted: dict[tuple[str, str], tuple[int, Operator]] = {}
    for before, after in pairs(whole, block):
        if not after.split or len(before.inputs) != len(after.inputs):
            continue
        for old, new in zip(before.inputs, after.inputs, strict=True):
            place = after.layer, new.name
            if not new.differentiable or (place in added and folds & set(after.split)):
                continue
            parts = _parts_of_gradient(block, after, old, new)
            if parts > wanted.get(place, (0, after))[0]:
                wanted[place] = parts, after
    for (layer, name), (parts, operator) in wanted.items():
        sums = added.get((layer, name), [])
        ranks = prod(len(block.ranks(call.axis)) for call in sums)
        by = ", ".join(operator.split)
        if parts > 1 and not sums:
            yield (
                f"operator {operator.name!r} is divided by {by} but reads {name!r} whole, or less divided; no "
                "all_reduce or reduce_scatter adds its gradients up in the backward pass"
            )
        elif ranks != parts:
            yield (
                f"operator {operator.name!r} is divided by {by} and leaves parts of the gradients of {name!r} on "
                f"{parts} ranks, but in the backward pass they are added up over {ranks}"
            )
        yield from _along_copies(block, operator, layer, sums)


def _added_up(block: Block) -> dict[tuple[str, str], list[Communication]]:
    """By layer and tensor, the calls that add its gradients up: of what a collective makes, else of what it reads."""
    sums: dict[tuple[str, str], list[Communication]] = {}
    for operator in block.graph.operators:
        calls = _adding(operator.collective.backward if operator.collective is not None else ())
        for tensor in (operator.outputs or operator.inputs) if calls else ():
            sums.setdefault((operator.layer, tensor.name), []).extend(calls)
    return sums


def _parts_of_gradient(block: Block, operator: Operator, old: Tensor, new: Tensor) -> int:
    """Ranks that have parts of the gradient of what an operator reads: its share of the work over that of the tensor.

    A tensor that cannot be divided further, such as few key-value heads, is held by several ranks, and what they would
    add up is not modelled.
    """
    if folded(block, operator):
        return 2 if new.shape == old.shape else 1
    if exhausted(old.shape, new.shape):
        return 0
    ranks = claimed(block, operator)
    return nearest_divisor(ranks, ranks * elements(new.shape) / elements(old.shape))


def unreturned(block: Block) -> Iterator[str]:
    """Values that are scattered or exchanged without their gradients coming back the other way."""
    for operator in block.graph.operators:
        if operator.collective is None or not any(tensor.differentiable for tensor in operator.inputs):
            continue
        back = {(call.kind, call.axis) for call in operator.collective.backward}
        for call in operator.collective.forward:
            kind = _RETURNS.get(call.kind)
            if kind is not None and (kind, call.axis) not in back:
                yield (
                    f"operator {operator.name!r} makes a forward {call.kind} over {call.axis!r}, but no {kind} over it "
                    "in the backward pass, where gradients go the other way"
                )


_RETURNS = {"reduce_scatter": "all_gather", "all_to_all": "all_to_all"}
"""What the backward pass of a call is, where it needs one: after an all_gather ranks may do the same with the whole."""


def unseen_keys(whole: Block, block: Block) -> Iterator[str]:
    """Attention to all keys of which a rank has a share, while no collective brings the others."""
    brought = {
        (operator.layer, tensor.name)
        for operator in block.graph.operators
        if operator.collective is not None and operator.collective.forward
        for tensor in (*operator.inputs, *operator.outputs)
    }
    for before, after in pairs(whole, block):
        keys = _size(after, "keys")
        for old, new in zip(before.inputs[1:], after.inputs[1:], strict=False):
            had, has = (axis_size(tensor.shape, "sequence") for tensor in (old, new))
            per_query = has_axis(old.shape, "keys") or (after.layer, new.name) in brought
            if had == _size(before, "keys") > 1 and has < keys and not per_query:
                yield (
                    f"operator {after.name!r} attends to {keys} keys, but reads {new.name!r} of {has}; no collective "
                    "brings the others"
                )
