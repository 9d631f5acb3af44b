"""Operators of a graph that mix tokens: the attention cores."""

from attrs import frozen

from nest.graph import Operator, OperatorGraph, has_axis

KEYS = "keys"
"""The axis along which attention sums over tokens."""

HEADS = "heads"
KEY_VALUE_HEADS = "kv_heads"


@frozen
class AttentionCores:
    """The operators between the exchanges.

    Attributes:
        members: their names: whatever runs over pairs of tokens, and the collectives that serve nothing else, such as
            a ring exchange of keys and values.
        heads: the numbers of heads that occur.
        key_value_heads: the numbers of key-value heads that occur.
    """

    members: frozenset[str]
    heads: frozenset[int]
    key_value_heads: frozenset[int]


def attention_cores(graph: OperatorGraph) -> AttentionCores | None:
    """The attention cores; None where there are none, or some whose heads cannot be divided.

    Heads can be divided where every operator over pairs of tokens has the axis `heads`, and so has what it hands on.
    """
    pairs = {operator.name for operator in graph.operators if has_axis(operator.space, KEYS)}
    members = _with_own_collectives(graph, pairs)
    inside = [operator for operator in graph.operators if operator.name in members]
    unclear = any(operator.kind == "attention" and operator.name not in pairs for operator in graph.operators)
    if not pairs or unclear or any(_mixes_heads(operator) for operator in inside if operator.name in pairs):
        return None
    return AttentionCores(members, _sizes(inside, HEADS), _sizes(inside, KEY_VALUE_HEADS))


def _with_own_collectives(graph: OperatorGraph, pairs: set[str]) -> frozenset[str]:
    """`pairs` with the collectives that work for them alone: on what only they read."""
    readers: dict[str, set[str]] = {}
    for operator in graph.operators:
        for tensor in operator.inputs:
            readers.setdefault(tensor.name, set()).add(operator.name)
    members = set(pairs)
    for operator in reversed(graph.operators):
        if operator.collective is None:
            continue
        handed_on = operator.outputs or operator.inputs
        fed = {name for tensor in handed_on for name in readers.get(tensor.name, ())} - {operator.name}
        if fed and fed <= members:
            members.add(operator.name)
    return frozenset(members)


def _mixes_heads(operator: Operator) -> bool:
    shapes = (operator.space, *(tensor.shape for tensor in operator.outputs))
    return HEADS in operator.contracted or not all(has_axis(shape, HEADS) for shape in shapes)


def _sizes(operators: list[Operator], axis: str) -> frozenset[int]:
    shapes = (t.shape for operator in operators for t in (*operator.inputs, *operator.outputs))
    return frozenset(size for shape in shapes for name, size in shape if name == axis)
