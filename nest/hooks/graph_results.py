"""Whether graphs and blocks that plug-ins return can be planned with."""

from collections.abc import Iterator
from typing import Any

from nest.graph import COLLECTIVES, Axis, Block, Collective, Communication, Operator, OperatorGraph, Parameter, Tensor
from nest.hooks.guard import Nonsense
from nest.units import LARGEST


def sound_block(found: Any, name: str, before: Block, degree: int) -> Block:
    """`found`, what the strategy called `name` made of `before` for `degree`.

    Raises:
        Nonsense: it is no block, or none that `before` can become; the text says why.
    """
    if not isinstance(found, Block):
        raise Nonsense(f"{found!r:.60} is no Block")
    _check_ranks(found, before)
    if found.degrees[: len(before.degrees)] != before.degrees or dict(found.degrees).get(name) != degree:
        raise Nonsense(f"the degrees of the block do not end with ({name!r}, {degree})")
    sound_graph(found.graph, before.graph)
    if found.graph.layers != before.graph.layers or found.graph.blocks != before.graph.blocks:
        raise Nonsense("the graph of the block has other layers")
    _check_axes(found, before)
    made = _made(found.graph)
    for tensor, layer in _leaving(before.graph).items():
        if made.get(tensor) != layer:
            raise Nonsense(f"tensor {tensor!r:.60}, which leaves its layer, is not made any more")
    return found


def _check_ranks(found: Block, before: Block) -> None:
    axes = [axis.name for axis in found.axes]
    if not all(isinstance(axis, Axis) and isinstance(axis.name, str) for axis in found.axes):
        raise Nonsense("an axis of the block is no Axis with a name")
    if len(set(axes)) < len(axes):
        raise Nonsense("two axes of the block have the same name")
    _check_whole("the degree of an axis", *(axis.degree for axis in found.axes))
    _check_whole("a degree of the block", *(degree for _, degree in found.degrees))
    _check_whole("the number of samples", found.samples)
    if found.width % before.width:
        raise Nonsense(f"the width of the block is {found.width}, no multiple of the {before.width} before")
    # Copies inside a block, each with samples of its own, are the only ones that may add samples.
    copies, rest = divmod(found.samples, before.samples)
    if rest or copies < 1 or found.micro_batch != before.micro_batch or (found.width // before.width) % copies:
        raise Nonsense(f"the block takes {found.samples} samples in place of {before.samples}")
    # Ranks may also be laid over the devices of a block in another order than its axes'.
    folds = getattr(found, "folds", ())
    _check_whole("the degree or stride of a fold", *(size for fold in folds for size in (fold.degree, fold.stride)))
    known = {*axes, *(fold.name for fold in folds)}
    for group, axis in found.replicated:
        if not isinstance(group, str) or axis not in known:
            raise Nonsense(f"parameters {group!r:.60} are replicated over {axis!r:.60}, which is no axis of the block")


def _check_axes(found: Block, before: Block) -> None:
    """Collectives run along axes there are: along another they would have one rank, and cost nothing."""
    known = {axis.name for axis in found.axes} | {fold.name for fold in found.folds}
    sound = {id(operator) for operator in before.graph.operators}
    for operator in found.graph.operators:
        if id(operator) in sound or operator.collective is None:
            continue
        for call in (*operator.collective.forward, *operator.collective.backward):
            if call.axis not in known:
                raise Nonsense(
                    f"a collective of operator {operator.name!r:.60} is over {call.axis!r:.60}, no axis of the block"
                )


def sound_graph(found: Any, before: OperatorGraph | None = None) -> OperatorGraph:
    """`found`, an operator graph.

    Args:
        found: what was returned.
        before: a graph whose operators are known to be sound.

    Raises:
        Nonsense: it is none, or holds what no operator can; the text says what.
    """
    if not isinstance(found, OperatorGraph):
        raise Nonsense(f"{found!r:.60} is no OperatorGraph")
    if not found.operators or not all(isinstance(layer, str) for layer in found.layers):
        raise Nonsense("the graph has no operators, or a layer without a name")
    if len(set(found.layers)) < len(found.layers) or not set(found.blocks) <= set(found.layers):
        raise Nonsense("the graph names a layer twice, or blocks that are no layers")
    known = set() if before is None else {id(operator) for operator in before.operators}
    for operator in found.operators:
        if id(operator) not in known:
            _check_operator(operator)
    for operators in found.by_layer:
        held = {tensor.name for operator in operators for tensor in (*operator.inputs, *operator.outputs)}
        lost = next((name for operator in operators for name in operator.saves if name not in held), None)
        if lost is not None:
            raise Nonsense(f"tensor {lost!r:.60} is saved, but no operator of its layer has it")
    return found


def _check_operator(operator: Operator) -> None:
    place = f"of operator {operator.name!r:.60}"
    ratios = (operator.flops_per_point, operator.backward_flops_ratio, operator.model_flops_per_point or 0.0)
    _check_amount(f"a FLOP count {place}", *ratios)
    _check_amount(f"a number of passes {place}", operator.passes)
    _check_shape(operator.space, place)
    if not all(isinstance(word, str) for word in (operator.name, operator.kind, *operator.split, *operator.contracted)):
        raise Nonsense(f"the kind, a strategy or an axis {place} is no word")
    for item in (*operator.inputs, *operator.outputs, *operator.parameters):
        if not isinstance(item, (Tensor, Parameter)) or not isinstance(item.name, str):
            raise Nonsense(f"a tensor {place} is {item!r:.60}")
        _check_shape(item.shape, f"of {item.name!r:.60} {place}")
        if isinstance(item, Tensor):
            _check_amount(f"an element size {place}", item.itemsize)
        elif not isinstance(item.group, str):
            raise Nonsense(f"a parameter group {place} is {item.group!r:.60}")
    for call in _calls(operator.collective, place):
        if call.kind not in COLLECTIVES or not isinstance(call.axis, str):
            raise Nonsense(f"a collective {place} is a {call.kind!r:.60} over {call.axis!r:.60}")
        _check_amount(f"a message {place}", call.bytes)
    figures = (operator.flops, operator.model_flops, operator.backward_flops, operator.bytes_read)
    _check_amount(f"a total {place}", *figures, operator.bytes_written, operator.parameter_count)


def _calls(collective: Collective | None, place: str) -> Iterator[Communication]:
    if collective is None:
        return
    for call in (*collective.forward, *collective.backward):
        if not isinstance(call, Communication):
            raise Nonsense(f"a collective {place} is {call!r:.60}")
        yield call


def _check_shape(shape: Any, place: str) -> None:
    for name, size in shape:
        if not isinstance(name, str):
            raise Nonsense(f"an axis {place} is named {name!r:.60}")
        _check_whole(f"axis {name!r:.60} {place}", size)


def _check_whole(what: str, *values: Any) -> None:
    for value in values:
        if type(value) is not int or value < 1:
            raise Nonsense(f"{what} is {value!r:.60}, no whole number above 0")


def _check_amount(what: str, *values: Any) -> None:
    for value in values:
        if type(value) is bool or not isinstance(value, (int, float)) or not 0 <= value <= LARGEST:
            raise Nonsense(f"{what} is {value!r:.60}, no number from 0 to {LARGEST:g}")


def _made(graph: OperatorGraph) -> dict[str, str]:
    """The layer that makes each tensor."""
    return {tensor.name: operator.layer for operator in graph.operators for tensor in operator.outputs}


def _leaving(graph: OperatorGraph) -> dict[str, str]:
    """The tensors that other layers may read, with the layers that make them: their own does not, or others do."""
    read = {(tensor.name, operator.layer) for operator in graph.operators for tensor in operator.inputs}
    crossing = {item.tensor.name for item in graph.layer_tensors}
    return {name: layer for name, layer in _made(graph).items() if name in crossing or (name, layer) not in read}
