"""Whether graphs, blocks and networks that plug-ins return can be planned with."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy

from nest.graph import COLLECTIVES, Axis, Block, Collective, Communication, Operator, OperatorGraph, Parameter, Tensor
from nest.hooks.calls import InvalidResult
from nest.instance.cluster import Cluster, Level
from nest.instance.pairs import Pairs
from nest.network.graph import LinkGraph
from nest.network.imported import Imported
from nest.spec import LevelSpec
from nest.units import LARGEST

Value = TypeVar("Value")


def shown(value: Any) -> str:
    """A value in one line of at most 60 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def instance_of(kind: type[Value], called: str = "") -> Callable[[Any], Value]:
    """The check that a value is a `kind`, `called` so for people."""

    def check(value: Any) -> Value:
        if not isinstance(value, kind):
            raise InvalidResult(f"{shown(value)} is no {called or kind.__name__}")
        return value

    return check


def sound_block(found: Any, name: str, before: Block, degree: int) -> Block:
    """`found`, what the strategy called `name` made of `before` for `degree`.

    Raises:
        InvalidResult: it is no block, or none that `before` can become; the text says why.
    """
    sound_ranks(found, name, before, degree)
    known = _axes(found)
    for group, axis in found.replicated:
        if not isinstance(group, str) or axis not in known:
            raise InvalidResult(f"parameters {group!r:.60} are replicated over {axis!r:.60}, no axis of the block")
    sound_graph(found.graph, before.graph)
    if found.graph.layers != before.graph.layers or found.graph.blocks != before.graph.blocks:
        raise InvalidResult("the graph of the block has other layers")
    _check_axes(found, before)
    made = _made(found.graph)
    for tensor, layer in _leaving(before.graph).items():
        if made.get(tensor) != layer:
            raise InvalidResult(f"tensor {tensor!r:.60}, which leaves its layer, is not made any more")
    return found  # type: ignore[no-any-return]


def sound_ranks(found: Any, name: str, before: Block, degree: int) -> None:
    """Check the degrees, axes, width and samples of `found`, as `sound_block` does."""
    instance_of(Block)(found)
    if not all(isinstance(axis, Axis) and isinstance(axis.name, str) for axis in found.axes):
        raise InvalidResult("an axis of the block is no Axis with a name")
    if len({axis.name for axis in found.axes}) < len(found.axes):
        raise InvalidResult("two axes of the block have the same name")
    _check_whole("the degree of an axis", *(axis.degree for axis in found.axes))
    _check_whole("a degree of the block", *(degree for _, degree in found.degrees))
    _check_whole("the number of samples", found.samples)
    if found.width % before.width:
        raise InvalidResult(f"the width of the block is {found.width}, no multiple of the {before.width} before")
    # Copies inside a block, each with samples of its own, are the only ones that may add samples.
    copies, rest = divmod(found.samples, before.samples)
    if rest or copies < 1 or found.micro_batch != before.micro_batch or (found.width // before.width) % copies:
        raise InvalidResult(f"the block takes {found.samples} samples in place of {before.samples}")
    # Ranks may also be laid over the devices of a block in another order than its axes'.
    _check_whole(
        "the degree or stride of a fold", *(size for each in found.folds for size in (each.degree, each.stride))
    )
    if found.degrees[: len(before.degrees)] != before.degrees or dict(found.degrees).get(name) != degree:
        raise InvalidResult(f"the degrees of the block do not end with ({name!r}, {degree})")


def _axes(block: Block) -> set[str]:
    return {axis.name for axis in block.axes} | {fold.name for fold in block.folds}


def _check_axes(found: Block, before: Block) -> None:
    """Collectives run along axes there are: along another they would have one rank, and cost nothing."""
    known = _axes(found)
    sound = {id(operator) for operator in before.graph.operators}
    for operator in found.graph.operators:
        if id(operator) in sound or operator.collective is None:
            continue
        for call in (*operator.collective.forward, *operator.collective.backward):
            if call.axis not in known:
                raise InvalidResult(
                    f"a collective of operator {operator.name!r:.60} is over {call.axis!r:.60}, no axis of the block"
                )


def sound_graph(found: Any, before: OperatorGraph | None = None) -> OperatorGraph:
    """`found`, an operator graph.

    Args:
        found: what was returned.
        before: a graph whose operators are known to be sound.

    Raises:
        InvalidResult: it is none, or holds what no operator can; the text says what.
    """
    graph = instance_of(OperatorGraph)(found)
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
    """The layer that makes each tensor."""
    return {tensor.name: operator.layer for operator in graph.operators for tensor in operator.outputs}


def _leaving(graph: OperatorGraph) -> dict[str, str]:
    """The tensors that other layers may read, with the layers that make them: their own does not, or others do."""
    read = {(tensor.name, operator.layer) for operator in graph.operators for tensor in operator.inputs}
    crossing = {item.tensor.name for item in graph.layer_tensors}
    return {name: layer for name, layer in _made(graph).items() if name in crossing or (name, layer) not in read}


def sound_network(found: Any) -> Cluster | LinkGraph | Pairs | Imported:
    """`found`, a cluster, or a network by links or pairs.

    Raises:
        InvalidResult: it is none of them, or has figures no network has; the text says what.
    """
    if isinstance(found, Imported):
        _check_words(found)
        if isinstance(found.network, tuple):
            _check_levels(found.network)
        else:
            sound_network(found.network)
    elif isinstance(found, Cluster):
        _check_cluster(found)
    elif isinstance(found, LinkGraph):
        _check_links(found)
    else:
        _check_pairs(instance_of(Pairs, "Cluster, LinkGraph or Pairs")(found))
    return found  # type: ignore[no-any-return]


def _check_words(found: Imported) -> None:
    words = [*found.hosts, *found.assumptions, *([] if found.device is None else [found.device])]
    if isinstance(found.network, Imported) or not all(isinstance(word, str) for word in words):
        raise InvalidResult("hosts, device and assumptions are not all words, or the network is none")
    if len(set(found.hosts)) < len(found.hosts):
        raise InvalidResult("two hosts share a name")


def _check_levels(found: tuple[Any, ...]) -> None:
    if not found:
        raise InvalidResult("it has no levels")
    for level in found:
        instance_of(LevelSpec)(level)


def _check_pairs(found: Pairs) -> None:
    apart = ~numpy.eye(found.size, dtype=bool)
    _check("bandwidth", found.bandwidth[apart], above=0.0)
    _check("latency", found.latency[apart])
    if (found.bandwidth != found.bandwidth.T).any() or (found.latency != found.latency.T).any():
        raise InvalidResult("the pairs differ in the two directions")


def _check_cluster(found: Cluster) -> None:
    for level in found.levels:
        if not isinstance(level, Level) or type(level.fanout) is not int:
            raise InvalidResult(f"{level!r:.60} is no level with a whole fan-out")
    _check("bandwidth", numpy.array([level.bandwidth for level in found.levels], dtype=float), above=0.0)
    _check("latency", numpy.array([level.latency for level in found.levels], dtype=float))
    _check("memory", numpy.array([found.memory, found.reserve], dtype=float))


def _check_links(found: LinkGraph) -> None:
    links = len(found.ends)
    if found.ends.shape != (links, 2) or found.bandwidth.shape != (links,) or found.latency.shape != (links,):
        raise InvalidResult("the links, their bandwidths and their latencies differ in number")
    nodes = numpy.concatenate([found.ends.ravel(), found.devices])
    if nodes.dtype.kind not in "iu" or ((nodes < 0) | (nodes >= len(found.names))).any():
        raise InvalidResult("a link or a device is none of the nodes")
    if len(set(found.names)) < len(found.names) or len(found.devices) < 2:
        raise InvalidResult("two nodes share a name, or there are fewer than two devices")
    _check("bandwidth", found.bandwidth, above=0.0)
    _check("latency", found.latency)


def _check(what: str, values: Any, above: float = -1.0) -> None:
    good = (values >= 0) & (values > above) & (values <= LARGEST)
    if not good.all():
        raise InvalidResult(f"a {what} is {values[~good][0]:g}")
