"""Checks that collectives agree with the shapes around them, and that none is missing.

Partial values are added up over the ranks that have them: sums over divided axes, and gradients of tensors read whole.
A strategy's axes may be several with other names: the number of ranks with parts follows from the shares.
"""

from collections.abc import Iterable, Iterator
from math import isclose, isfinite, prod

from attrs import evolve, frozen

from nest.graph import COLLECTIVES, Block, Communication, Operator, Tensor, axis_size, divide, elements, has_axis
from nest.tolerances import AGREEMENT
from nest_testing.conservation import claimed, exhausted, folded, is_matrix, nearest_divisor, pairs


def bad_axes(block: Block) -> Iterator[str]:
    """Yield calls along axes missing in the block, and parameter groups declared as replicated along such."""
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
    """Yield calls whose bytes are not those of their tensors."""
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
    """Yield collectives declared parallel to an operator that is missing or computes nothing."""
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
    """Return whether a call's bytes are those of a tensor of the operator, or of all its inputs or outputs."""
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
    """Return whether an operator that only sums up writes, forward, as much as it reads."""
    assert operator.collective is not None
    kinds = {call.kind for call in operator.collective.forward}
    if kinds != {"all_reduce"} or not operator.inputs or not operator.outputs:
        return True
    return isclose(_bytes(operator.inputs), _bytes(operator.outputs), rel_tol=AGREEMENT)


def _sizes(operator: Operator) -> list[float]:
    sides = (operator.inputs, operator.outputs)
    return [tensor.bytes for side in sides for tensor in side] + [_bytes(side) for side in sides if side]


def _bytes(tensors: tuple[Tensor, ...]) -> float:
    return sum(tensor.bytes for tensor in tensors)


def _sides(operator: Operator) -> Iterator[tuple[tuple[Tensor, ...], tuple[Tensor, ...]]]:
    """Yield possible pairs of share and whole: all inputs and outputs, or one tensor of each, either way round."""
    for whole, share in ((operator.inputs, operator.outputs), (operator.outputs, operator.inputs)):
        yield whole, share
        yield from (((one,), (other,)) for one in whole for other in share)


def _is_share(share: tuple[Tensor, ...], whole: tuple[Tensor, ...], degree: int) -> bool:
    """Return whether `share` is one rank's part of `whole`: in bytes, or by an axis divided with rounding."""
    if isclose(_bytes(share) * degree, _bytes(whole), rel_tol=AGREEMENT):
        return True
    rounded = [{divide(tensor.shape, axis, degree) for axis, size in tensor.shape if size > 1} for tensor in whole]
    return len(share) == len(whole) and all(part.shape in shapes for part, shapes in zip(share, rounded, strict=True))


REDUCING = ("all_reduce", "reduce_scatter")  # Collectives that add up.


@frozen
class _Parts:
    """A tensor that is part of a sum on each rank, as an operator left it.

    Attributes:
        axis: summed over.
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
        """Return whether as many ranks added their parts up as the axis was divided over, rounded up."""
        return -(-self.before // self.ranks) == self.after


def partial_sums(whole: Block, block: Block) -> Iterator[str]:
    """Yield sums over a divided axis that are passed on as if whole, or added up over other ranks than have parts.

    An operator that sums over a divided axis leaves a part of the sum on each rank. It may pass through other operators
    of the layer, but collectives must add the parts up, over all ranks that have one, before the layer ends.
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
    """Return the partial sum that an operator leaves when summed axes are divided; the first of several."""
    shrunk = [axis for axis in before.contracted if _size(after, axis) < _size(before, axis)]
    if not shrunk:
        return None
    sizes = [(_size(before, axis), _size(after, axis)) for axis in shrunk]
    return _Parts(after, shrunk[0], prod(size for size, _ in sizes), prod(size for _, size in sizes))


def _along_copies(block: Block, operator: Operator, adding: str, calls: Iterable[Communication]) -> Iterator[str]:
    """Yield calls of `adding` that add up results of `operator` along an axis whose ranks hold its parameters alike.

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
    """Yield tensors whose gradients are not added up over exactly the ranks that have parts of them.

    If an operator's work is divided further than a tensor it reads, each rank has a part of the gradient, which
    collectives on the tensor must add up in the backward pass. Of several readers the one divided furthest counts. If
    ranks are laid over the same devices in two orders, one may gather what the other divides: then some sum of a tensor
    read whole suffices.
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
    """Return by layer and tensor the calls that add up its gradients: of a collective's result, else of its input."""
    sums: dict[tuple[str, str], list[Communication]] = {}
    for operator in block.graph.operators:
        calls = _adding(operator.collective.backward if operator.collective is not None else ())
        for tensor in (operator.outputs or operator.inputs) if calls else ():
            sums.setdefault((operator.layer, tensor.name), []).extend(calls)
    return sums


def _parts_of_gradient(block: Block, operator: Operator, old: Tensor, new: Tensor) -> int:
    """Return the ranks with parts of a gradient: the operator's share of the work over its input's share.

    Several ranks hold a tensor that cannot be divided further, such as few key-value heads; their sum is not modelled.
    """
    if folded(block, operator):
        return 2 if new.shape == old.shape else 1
    if exhausted(old.shape, new.shape):
        return 0
    ranks = claimed(block, operator)
    return nearest_divisor(ranks, ranks * elements(new.shape) / elements(old.shape))


def unreturned(block: Block) -> Iterator[str]:
    """Yield values scattered or exchanged without their gradients coming back."""
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
"""The backward call of a call that needs one; after an all_gather all ranks may repeat the work on the whole."""


def unseen_keys(whole: Block, block: Block) -> Iterator[str]:
    """Yield attention to all keys by ranks with a share of them, if no collective brings the others."""
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
