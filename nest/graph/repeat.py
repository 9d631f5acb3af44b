"""Graphs with more blocks than written: equal blocks are written only once or twice."""

import re

from attrs import evolve

from nest.errors import InputError
from nest.graph.operator import Operator, Tensor
from nest.graph.operator_graph import OperatorGraph

MOST_BLOCKS = 100_000
"""Most blocks of a repeated graph; a thousand are many."""

_INDEX = re.compile(r"^(?P<stem>.*\.)(?P<index>\d+)$")


def copies_of(block: str, count: int) -> list[str]:
    """Names of `count` copies of a block: `layers.2`, `layers.3` after `layers.1`.

    Raises:
        InputError: its name is not `stem.index`.
    """
    match = _INDEX.match(block)
    if match is None:
        raise InputError(f"repeat: the last block is called {block!r:.60}, not with a number at its end as `layers.1`.")
    return [f"{match['stem']}{int(match['index']) + step}" for step in range(1, count + 1)]


def repeated(graph: OperatorGraph, count: int) -> OperatorGraph:
    """Repeat the last block of `graph` until there are `count`.

    A copy reads from the block before it as the last block does from its predecessor, and the same tensors of other
    layers; readers of the blocks read the last copy.

    Args:
        graph: with at least two equal blocks, or one that reads and makes one tensor.
        count: blocks wanted, at least those there are.

    Raises:
        InputError: there are more, none, or too many; the last two differ; or a name is not `stem.index`.
    """
    blocks = graph.blocks
    if not blocks or not len(blocks) <= count <= MOST_BLOCKS:
        reason = "it has no blocks to repeat" if not blocks else f"it has {len(blocks)} blocks"
        raise InputError(f"repeat is {count}, but {reason}; give a number from {max(1, len(blocks))} to {MOST_BLOCKS}.")
    if count == len(blocks):
        return graph
    last = blocks[-1]
    names = copies_of(last, count - len(blocks))
    operators = graph.by_layer[graph.layer_index[last]]
    before = _before(graph, operators)
    made = {tensor.name for operator in operators for tensor in operator.outputs}
    taken = set(graph.layers)
    clash = next((name for name in names if name in taken), None)
    if clash is not None:
        raise InputError(f"repeat: a copy would be called {clash!r:.60}, as another layer is.")
    # The names that one copy's tensors have in place of the last block's, copy by copy.
    current = {name: name for name in made}
    copies: list[Operator] = []
    for layer in names:
        following = {name: _moved(name, last, layer) for name in made}
        renamed = {**{name: current[after] for name, after in before.items()}, **following}
        copies += [_copy(operator, last, layer, renamed) for operator in operators]
        current = following
    position = max(index for index, operator in enumerate(graph.operators) if operator.layer == last) + 1
    rest = [_reading(operator, current) for operator in graph.operators[position:]]
    at = graph.layer_index[last] + 1
    return evolve(
        graph,
        operators=(*graph.operators[:position], *copies, *rest),
        layers=(*graph.layers[:at], *names, *graph.layers[at:]),
        blocks=(*blocks, *names),
    )


def _before(graph: OperatorGraph, operators: tuple[Operator, ...]) -> dict[str, str]:
    """For each tensor the last block reads of the one before, the corresponding tensor of its own."""
    own = [tensor for operator in operators for tensor in operator.outputs]
    if len(graph.blocks) > 1:
        previous = graph.by_layer[graph.layer_index[graph.blocks[-2]]]
        if [_what(operator) for operator in previous] != [_what(operator) for operator in operators]:
            raise InputError(
                f"repeat: {graph.blocks[-2]} and {graph.blocks[-1]} differ; export a model whose last two blocks "
                "are equal."
            )
        outputs = [tensor for operator in previous for tensor in operator.outputs]
        return {one.name: other.name for one, other in zip(outputs, own, strict=True)}
    inner = {tensor.name for tensor in own}
    read = {tensor.name: tensor for operator in operators for tensor in operator.inputs}
    entering = [name for name, tensor in read.items() if tensor.differentiable and name not in inner]
    crossing = {each.tensor.name for each in graph.layer_tensors}
    leaving = [tensor for tensor in own if tensor.name in crossing]
    if len(entering) != 1 or len(leaving) != 1:
        raise InputError("repeat: how one block follows another shows only with two; export a model with two blocks.")
    return {entering[0]: leaving[0].name}


def _what(operator: Operator) -> tuple[object, ...]:
    """An operator without names."""
    tensors = (*operator.inputs, *operator.outputs)
    learned = tuple((each.shape, each.group, each.tied) for each in operator.parameters)
    return (operator.kind, operator.space, operator.flops_per_point, tuple(each.shape for each in tensors), learned)


def _moved(name: str, last: str, layer: str) -> str:
    """A name of the last block in one of its copies."""
    return f"{layer}{name.removeprefix(last)}" if name.startswith(last) else f"{layer}/{name}"


def _copy(operator: Operator, last: str, layer: str, renamed: dict[str, str]) -> Operator:
    moved = _reading(operator, renamed)
    return evolve(
        moved,
        name=_moved(operator.name, last, layer),
        layer=layer,
        outputs=tuple(evolve(tensor, name=renamed[tensor.name]) for tensor in operator.outputs),
    )


def _reading(operator: Operator, renamed: dict[str, str]) -> Operator:
    def named(tensor: Tensor) -> Tensor:
        return evolve(tensor, name=renamed.get(tensor.name, tensor.name))

    saves = tuple(renamed.get(name, name) for name in operator.saves)
    return evolve(operator, inputs=tuple(map(named, operator.inputs)), saves=saves)
