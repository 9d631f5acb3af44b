"""Attention in a program that `torch.export` traced: as one call, or written out in scores, softmax and weighted sum.

It is recognised by the rules for exported programs (`nest_torch.exported.attention`): whether a mask is causal is told
from the comparisons it is made of, and attention written out is one kernel.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from attrs import frozen

from nest_torch.exported.attention import Attention, attentions, rewritten
from nest_torch.exported.node import Node

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
    """The attention of a graph of `torch.fx`."""
    listed = tuple(_nodes(graph))
    found = attentions(listed)
    return Found(found, frozenset(node.name for node in rewritten(listed, found)))


def _nodes(graph: Any) -> Iterator[Node]:
    for node in graph.nodes:
        inputs = tuple(each.name for each in node.all_input_nodes)
        if node.op == OUTPUT:
            yield Node(node.name, OUTPUT, inputs, ((),))
        elif node.op == "call_function":
            schema = getattr(node.target, "_schema", None)
            name = getattr(node.target, "__name__", str(node.target)) if schema is None else str(schema.name)
            held = node.meta.get("val")
            results = [each for each in (held if isinstance(held, (list, tuple)) else [held]) if _is_tensor(each)]
            shapes = tuple(tuple(int(length) for length in each.shape) for each in results)
            dtype = str(results[0].dtype).removeprefix("torch.") if results else ""
            yield Node(node.name, name.split("::")[-1], inputs, shapes, dtype)


def _is_tensor(item: Any) -> bool:
    return isinstance(item, torch.Tensor)
