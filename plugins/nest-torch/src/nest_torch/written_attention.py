"""Attention in a program that `torch.export` traced: as one call, or written out in scores, softmax and weighted sum.

It is recognised by the rules for exported programs (`nest_torch.exported.attention`): whether a mask is causal is told
from the comparisons it is made of, and attention written out is one kernel.
"""

from collections.abc import Container, Iterator, Mapping
from typing import Any

import torch
from attrs import frozen

from nest_torch.exported.attention import Attention, attentions, rewritten
from nest_torch.exported.node import Node
from nest_torch.repeats import AGAIN, ENTER, LEAVE, mark

OUTPUT = "output"
"""Name of the node that returns what the program computes."""


@frozen
class Found:
    """The attention of a program.

    Attributes:
        by_result: by the name of the node that makes its result.
        needed: names of the nodes that are still read where each attention is one kernel.
    """

    by_result: Mapping[str, Attention]
    needed: frozenset[str]


def found_attention(graph: Any) -> Found:
    """The attention of a graph of `torch.fx`, in which marks may stand around calls that are repeated."""
    marked = _Marked(graph)
    listed = tuple(_nodes(graph, marked, {}))
    found = attentions(listed)
    needed: frozenset[str] = frozenset(node.name for node in listed)
    while True:
        # A call that repeats another reads of what it is given what that one reads.
        unread = {place: name for place, name in marked.inside.items() if name not in needed}
        kept = frozenset(node.name for node in rewritten(tuple(_nodes(graph, marked, unread)), found))
        if kept == needed:
            return Found(found, needed)
        needed = kept


class _Marked:
    """The marks in a graph.

    Attributes:
        inside: names of the nodes that stand for what a call is given, by its number and place.
        same: of each node behind a mark, the one in front that it stands for, by name.
    """

    def __init__(self, graph: Any) -> None:
        self.inside: dict[tuple[int, int], str] = {}
        self.same: dict[str, str] = {}
        for node in graph.nodes:
            source: Any = node.args[0] if node.args else None
            if node.op == "call_function" and _name(node) == "getitem" and mark(source) in (ENTER, LEAVE):
                self.same[node.name] = source.args[0][node.args[1]].name
                if mark(source) == ENTER:
                    self.inside[source.args[1], node.args[1]] = node.name


def _nodes(graph: Any, marked: _Marked, unread: Container[tuple[int, int]]) -> Iterator[Node]:
    for node in graph.nodes:
        inputs = tuple(each.name for each in node.all_input_nodes)
        if node.op == OUTPUT:
            yield Node(node.name, OUTPUT, inputs, ((),))
        elif node.op == "call_function" and mark(node) not in (ENTER, LEAVE):
            if node.name in marked.same:
                inputs = (marked.same[node.name],)
            elif mark(node) == AGAIN:
                given, _, template = node.args
                inputs = tuple(each.name for place, each in enumerate(given) if (template, place) not in unread)
            held = node.meta.get("val")
            results = [each for each in (held if isinstance(held, (list, tuple)) else [held]) if _is_tensor(each)]
            shapes = tuple(tuple(int(length) for length in each.shape) for each in results)
            dtype = str(results[0].dtype).removeprefix("torch.") if results else ""
            yield Node(node.name, _name(node).split("::")[-1], inputs, shapes, dtype)


def _name(node: Any) -> str:
    schema = getattr(node.target, "_schema", None)
    return getattr(node.target, "__name__", str(node.target)) if schema is None else str(schema.name)


def _is_tensor(item: Any) -> bool:
    return isinstance(item, torch.Tensor)
