"""Checks of graphs, blocks and networks that plug-ins return."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy

from nest.graph import COLLECTIVES, Axis, Block, Collective, Communication, Operator, OperatorGraph, Parameter, Tensor
from nest.hooks.kinds import InvalidResult
from nest.instance.cluster import Cluster, Level
from nest.instance.pairs import Pairs
from nest.network.graph import LinkGraph
from nest.network.imported import Imported
from nest.spec import LevelSpec
from nest.units import LARGEST

Value = TypeVar("Value")


def one_line(value: Any) -> str:
    """A value in one line of at most 60 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def instance_of(kind: type[Value], called: str = "") -> Callable[[Any], Value]:
    """Make a check that a value is a `kind`; `called` names it in messages."""

    def check(value: Any) -> Value:
        if not isinstance(value, kind):
            raise InvalidResult(f"{one_line(value)} is no {called or kind.__name__}")
        return value

    return check


def sound_block(result: Any, name: str, before: Block, degree: int) -> Block:
    """Check the block that the strategy `name` made of `before` for `degree`.

    Raises:
        InvalidResult: it is no block, or none that `before` can become; the text says why.
    """
    sound_ranks(result, name, before, degree)
    known = _axes(result)
    for group, axis in result.replicated:
        if not isinstance(group, str) or axis not in known:
            raise InvalidResult(f"parameters {group!r:.60} are replicated over {axis!r:.60}, no axis of the block")
    sound_graph(result.graph, before.graph)
    if result.graph.layers != before.graph.layers or result.graph.blocks != before.graph.blocks:
        raise InvalidResult("the graph of the block has other layers")
    _check_axes(result, before)
    made = _made(result.graph)
    for tensor, layer in _leaving(before.graph).items():
        if made.get(tensor) != layer:
            raise InvalidResult(f"tensor {tensor!r:.60}, which leaves its layer, is not made any more")
    return result  # type: ignore[no-any-return]


def sound_ranks(result: Any, name: str, before: Block, degree: int) -> None:
    """Check the degrees, axes, width and samples of `result`, as `sound_block` does."""
    instance_of(Block)(result)
    if not all(isinstance(axis, Axis) and isinstance(axis.name, str) for axis in result.axes):
        raise InvalidResult("an axis of the block is no Axis with a name")
    if len({axis.name for axis in result.axes}) < len(result.axes):
        raise InvalidResult("two axes of the block have the same name")
    _check_whole("the degree of an axis", *(axis.degree for axis in result.axes))
    _check_whole("a degree of the block", *(degree for _, degree in result.degrees))
    _check_whole("the number of samples", result.samples)
    if result.width % before.width:
        raise InvalidResult(f"the width of the block is {result.width}, no multiple of the {before.width} before")
    # Copies inside a block, each with samples of its own, are the only ones that may add samples.
    copies, rest = divmod(result.samples, before.samples)
    if rest or copies < 1 or result.micro_batch != before.micro_batch or (result.width // before.width) % copies:
        raise InvalidResult(f"the block takes {result.samples} samples in place of {before.samples}")
    # Ranks may also be laid over the devices of a block in another order than its axes'.
    _check_whole(
        "the degree or stride of a fold", *(size for each in result.folds for size in (each.degree, each.stride))
    )
    if result.degrees[: len(before.degrees)] != before.degrees or dict(result.degrees).get(name) != degree:
        raise InvalidResult(f"the degrees of the block do not end with ({name!r}, {degree})")


def _axes(block: Block) -> set[str]:
    return {axis.name for axis in block.axes} | {fold.name for fold in block.folds}


def _check_axes(block: Block, before: Block) -> None:
    """Check that collectives run along existing axes: along others they would have one rank, and cost nothing."""
    known = _axes(block)
    sound = {id(operator) for operator in before.graph.operators}
    for operator in block.graph.operators:
        if id(operator) in sound:
            continue
        for call in operator.calls:
            if call.axis not in known:
                raise InvalidResult(
                    f"a collective of operator {operator.name!r:.60} is over {call.axis!r:.60}, no axis of the block"
                )


def sound_graph(result: Any, before: OperatorGraph | None = None) -> OperatorGraph:
    """Check an operator graph; operators of `before` are known to be sound.

    Raises:
        InvalidResult: it is none, or has something that no operator can have.
    """
    graph = instance_of(OperatorGraph)(result)
    if not graph.operators or not all(isinstance(layer, str) for layer in graph.layers):
        raise InvalidResult("the graph has no operators, or a layer without a name")
    if len(set(graph.layers)) < len(graph.layers) or not set(graph.blocks) <= set(graph.layers):
        raise InvalidResult("the graph names a layer twice, or blocks that are no layers")
    known = set() if before is None else {id(operator) for operator in before.operators}
    for operator in graph.operators:
        if id(operator) not in known:
            _check_operator(operator)
    for operators in graph.by_layer:
        held = {tensor.name for operator in operators for tensor in (*operator.inputs, *operator.outputs)}
        lost = next((name for operator in operators for name in operator.saves if name not in held), None)
        if lost is not None:
            raise InvalidResult(f"tensor {lost!r:.60} is saved, but no operator of its layer has it")
    return graph


def _check_operator(operator: Operator) -> None:
    place = f"of operator {operator.name!r:.60}"
    ratios = (operator.flops_per_point, operator.backward_flops_ratio, operator.model_flops_per_point or 0.0)
    _check_amount(f"a FLOP count {place}", *ratios)
    _check_amount(f"a number of passes {place}", operator.passes)
    _check_shape(operator.space, place)
    if not all(isinstance(word, str) for word in (operator.name, operator.kind, *operator.split, *operator.contracted)):
        raise InvalidResult(f"the kind, a strategy or an axis {place} is no word")
    for item in (*operator.inputs, *operator.outputs, *operator.parameters):
        if not isinstance(item, (Tensor, Parameter)) or not isinstance(item.name, str):
            raise InvalidResult(f"a tensor {place} is {item!r:.60}")
        _check_shape(item.shape, f"of {item.name!r:.60} {place}")
        if isinstance(item, Tensor):
            _check_amount(f"an element size {place}", item.itemsize)
        elif not isinstance(item.group, str):
            raise InvalidResult(f"a parameter group {place} is {item.group!r:.60}")
    for call in _calls(operator.collective):
        if call.kind not in COLLECTIVES or not isinstance(call.axis, str):
            raise InvalidResult(f"a collective {place} is a {call.kind!r:.60} over {call.axis!r:.60}")
        _check_amount(f"a message {place}", call.bytes)
    figures = (operator.flops, operator.model_flops, operator.backward_flops, operator.bytes_read)
    _check_amount(f"a total {place}", *figures, operator.bytes_written, operator.parameter_count)


def _calls(collective: Collective | None) -> Iterator[Communication]:
    if collective is None:
        return
    for call in (*collective.forward, *collective.backward):
        yield instance_of(Communication)(call)


def _check_shape(shape: Any, place: str) -> None:
    for name, size in shape:
        if not isinstance(name, str):
            raise InvalidResult(f"an axis {place} is named {name!r:.60}")
        _check_whole(f"axis {name!r:.60} {place}", size)


def _check_whole(what: str, *values: Any) -> None:
    for value in values:
        if type(value) is not int or value < 1:
            raise InvalidResult(f"{what} is {value!r:.60}, no whole number above 0")


def _check_amount(what: str, *values: Any) -> None:
    for value in values:
        if type(value) is bool or not isinstance(value, (int, float)) or not 0 <= value <= LARGEST:
            raise InvalidResult(f"{what} is {value!r:.60}, no number from 0 to {LARGEST:g}")


def _made(graph: OperatorGraph) -> dict[str, str]:
    return {tensor.name: operator.layer for operator in graph.operators for tensor in operator.outputs}


def _leaving(graph: OperatorGraph) -> dict[str, str]:
    """Tensors that other layers may read, with their layers."""
    read = {(tensor.name, operator.layer) for operator in graph.operators for tensor in operator.inputs}
    crossing = {item.tensor.name for item in graph.layer_tensors}
    return {name: layer for name, layer in _made(graph).items() if name in crossing or (name, layer) not in read}


def sound_network(result: Any) -> Cluster | LinkGraph | Pairs | Imported:
    """Check a cluster, or a network by links or pairs.

    Raises:
        InvalidResult: it is none of them, or has impossible figures.
    """
    if isinstance(result, Imported):
        _check_words(result)
        if isinstance(result.network, tuple):
            _check_levels(result.network)
        else:
            sound_network(result.network)
    elif isinstance(result, Cluster):
        _check_cluster(result)
    elif isinstance(result, LinkGraph):
        _check_links(result)
    else:
        _check_pairs(instance_of(Pairs, "Cluster, LinkGraph or Pairs")(result))
    return result  # type: ignore[no-any-return]


def _check_words(result: Imported) -> None:
    words = [*result.hosts, *result.assumptions, *([] if result.device is None else [result.device])]
    if isinstance(result.network, Imported) or not all(isinstance(word, str) for word in words):
        raise InvalidResult("hosts, device and assumptions are not all words, or the network is none")
    if len(set(result.hosts)) < len(result.hosts):
        raise InvalidResult("two hosts share a name")


def _check_levels(levels: tuple[Any, ...]) -> None:
    if not levels:
        raise InvalidResult("it has no levels")
    for level in levels:
        instance_of(LevelSpec)(level)


def _check_pairs(pairs: Pairs) -> None:
    apart = ~numpy.eye(pairs.size, dtype=bool)
    _check("bandwidth", pairs.bandwidth[apart], above=0.0)
    _check("latency", pairs.latency[apart])
    if (pairs.bandwidth != pairs.bandwidth.T).any() or (pairs.latency != pairs.latency.T).any():
        raise InvalidResult("the pairs differ in the two directions")


def _check_cluster(cluster: Cluster) -> None:
    for level in cluster.levels:
        if not isinstance(level, Level) or type(level.fanout) is not int:
            raise InvalidResult(f"{level!r:.60} is no level with a whole fan-out")
    _check("bandwidth", numpy.array([level.bandwidth for level in cluster.levels], dtype=float), above=0.0)
    _check("latency", numpy.array([level.latency for level in cluster.levels], dtype=float))
    _check("memory", numpy.array([cluster.memory, cluster.reserve], dtype=float))


def _check_links(graph: LinkGraph) -> None:
    links = len(graph.ends)
    if graph.ends.shape != (links, 2) or graph.bandwidth.shape != (links,) or graph.latency.shape != (links,):
        raise InvalidResult("the links, their bandwidths and their latencies differ in number")
    nodes = numpy.concatenate([graph.ends.ravel(), graph.devices])
    if nodes.dtype.kind not in "iu" or ((nodes < 0) | (nodes >= len(graph.names))).any():
        raise InvalidResult("a link or a device is none of the nodes")
    if len(set(graph.names)) < len(graph.names) or len(graph.devices) < 2:
        raise InvalidResult("two nodes share a name, or there are fewer than two devices")
    _check("bandwidth", graph.bandwidth, above=0.0)
    _check("latency", graph.latency)


def _check(what: str, values: Any, above: float = -1.0) -> None:
    good = (values >= 0) & (values > above) & (values <= LARGEST)
    if not good.all():
        raise InvalidResult(f"a {what} is {values[~good][0]:g}")
