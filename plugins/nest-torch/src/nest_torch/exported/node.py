"""Nodes of an exported program, as files have them: `name, op, inputs, shape, dtype, flops, module`."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from nest.errors import InputErrors

KEYS = frozenset({"name", "op", "inputs", "shape"})
"""Keys of every node; the rest may be missing."""

MOST_REPORTED = 20
"""Problems told at once."""

LARGEST_SIZE = 2**50
"""Of an axis; a petabyte of bytes is no tensor."""

ITEMSIZES = {
    **dict.fromkeys(("float64", "double", "int64", "long", "complex64"), 8),
    **dict.fromkeys(("float32", "float", "int32", "int"), 4),
    **dict.fromkeys(("float16", "half", "bfloat16", "int16", "short"), 2),
    **dict.fromkeys(("int8", "uint8", "bool", "byte"), 1),
    "complex128": 16,
}
"""Bytes of an element, by PyTorch's names of types (`torch.Tensor`, "Data types")."""

_LIBRARIES = ("aten", "prim", "prims", "default")


@frozen
class Node:
    """One call of an exported program.

    Attributes:
        name: unique; what other nodes read.
        target: PyTorch's name of the operator, without library and overload: `mm`.
        inputs: names of the nodes and placeholders it reads, in the order of its arguments, each once.
        shapes: sizes of every tensor that comes out.
        dtype: PyTorch's name of their type, without `torch.`; empty: no tensor comes out.
        module: path of the module it runs in; empty: the top.
        flops: forward FLOP as the file counts them; None: it does not.
    """

    name: str
    target: str
    inputs: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = ""
    module: str = ""
    flops: float | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the first tensor that comes out; none: of a number."""
        return self.shapes[0] if self.shapes else ()

    @property
    def floating(self) -> bool:
        """True if a gradient can flow back to what comes out."""
        return self.dtype.startswith(("float", "bfloat", "double", "half", "complex"))

    @property
    def itemsize(self) -> int:
        """Bytes of an element of what comes out; 8-bit floating formats have many names."""
        return ITEMSIZES.get(self.dtype, 1 if "float8" in self.dtype else 8)


def nodes(rows: Sequence[Any]) -> tuple[Node, ...]:
    """The nodes that `rows` describe, ordered so that each comes behind all it reads.

    Raises:
        InputErrors: a row is no node, two have one name, or they read each other in a circle.
    """
    problems = [f"nodes[{index}]: {text}" for index, row in enumerate(rows) for text in _problems(row)]
    if problems:
        raise InputErrors(problems[:MOST_REPORTED])
    found = [_node(row) for row in rows]
    return ordered(with_prefixes(found))


def _problems(row: Any) -> Iterator[str]:
    if not isinstance(row, Mapping):
        yield f"expected a mapping with {', '.join(sorted(KEYS))}, found {row!r:.40}."
        return
    missing = sorted(KEYS - row.keys())
    if missing:
        yield f"{', '.join(missing)} missing; a node has {', '.join(sorted(KEYS))}."
        return
    if not isinstance(row["name"], str) or not isinstance(row["op"], str) or not row["name"]:
        yield "`name` and `op` must be words."
    inputs = row["inputs"]
    if not isinstance(inputs, Sequence) or isinstance(inputs, str) or not all(isinstance(x, str) for x in inputs):
        yield "`inputs` must be a list of names."
    if not _is_shape(row["shape"]):
        yield f"`shape` must be a list of sizes, or a list of such lists; got {row['shape']!r:.40}."
    flops = row.get("flops")
    if flops is not None and (isinstance(flops, bool) or not isinstance(flops, (int, float)) or not 0 <= flops < 1e30):
        yield f"`flops` must be a number from 0 on; got {flops!r:.40}."
    yield from (
        f"`{key}` must be a word; got {row[key]!r:.40}."
        for key in ("dtype", "module")
        if not isinstance(row.get(key), (str, type(None)))
    )


def _is_shape(value: Any) -> bool:
    if value is None:
        return True
    if not isinstance(value, Sequence) or isinstance(value, str):
        return False
    nested = [item for item in value if isinstance(item, Sequence) and not isinstance(item, str)]
    sizes = [size for item in nested for size in item] if len(nested) == len(value) else value
    return all(isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= LARGEST_SIZE for size in sizes)


def _node(row: Mapping[str, Any]) -> Node:
    dtype = str(row.get("dtype") or "").removeprefix("torch.")
    dtype = "" if dtype == "None" else dtype
    module = row.get("module") or ""
    return Node(
        name=row["name"],
        target=target(row["op"]),
        inputs=tuple(dict.fromkeys(row["inputs"])),
        shapes=_shapes(row["shape"], bool(dtype)),
        dtype=dtype,
        module=str(module),
        flops=None if row.get("flops") is None else float(row["flops"]),
    )


def _shapes(written: Any, tensor: bool) -> tuple[tuple[int, ...], ...]:
    """One shape, or a list of them; nothing where no tensor comes out."""
    if not written:
        return ((),) if tensor else ()
    if isinstance(written[0], Sequence):
        return tuple(tuple(sizes) for sizes in written)
    return (tuple(written),)


def target(op: str) -> str:
    """`mm` of `aten.mm.default`, `aten::mm`, `torch.ops.aten.mm.default`; `getitem` of what Python calls it."""
    if "getitem" in op:
        return "getitem"
    words = [word for word in re.split(r"\.|::", op.removeprefix("torch.ops.")) if word]
    if len(words) > 2:  # Library, name and overload.
        return words[-2]
    return next((word for word in reversed(words) if word not in _LIBRARIES), op)


def ordered(found: Iterable[Node]) -> tuple[Node, ...]:
    """`found` so that each node comes behind all it reads, and else in the order given.

    Raises:
        InputErrors: two nodes share a name, or nodes read each other in a circle.
    """
    from heapq import heapify, heappop, heappush

    listed = tuple(found)
    place: dict[str, int] = {}
    for index, node in enumerate(listed):
        if place.setdefault(node.name, index) != index:
            raise InputErrors([f"two nodes are named {node.name!r:.60}; names must be unique."])
    waiting = [sum(name in place for name in node.inputs) for node in listed]
    readers: dict[str, list[int]] = {}
    for index, node in enumerate(listed):
        for name in node.inputs:
            readers.setdefault(name, []).append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    heapify(ready)
    result = []
    while ready:
        node = listed[heappop(ready)]
        result.append(node)
        for reader in readers.get(node.name, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                heappush(ready, reader)
    if len(result) < len(listed):
        stuck = next(node for node, count in zip(listed, waiting, strict=True) if count)
        raise InputErrors([f"node {stuck.name!r:.60} reads, over others, what it makes itself: the graph has a cycle."])
    return tuple(result)


def with_prefixes(found: Sequence[Node]) -> list[Node]:
    """`found` with `p_` in front of the parameters' names, where the tracer gave parameters no names of their own.

    Programs of `torch.export` have it. Those of other tracers call placeholders `arg0_1` and `primals_1`: there the
    operand of a product or a look-up that is a weight by its place is a parameter, as is what norms take beside rows.
    """
    known = {node.name for node in found if node.target != "placeholder"}
    outside = {name for node in found for name in node.inputs if name not in known}
    if any(name.startswith("p_") for name in outside):
        return list(found)
    turned = {node.name: node.inputs[0] for node in found if node.target in _TURNS and len(node.inputs) == 1}
    learned: set[str] = set()
    for node in found:
        for place in _WEIGHTS.get(node.target, ()):
            name = node.inputs[place] if place < len(node.inputs) else ""
            name = turned.get(name, name)
            if name in outside:
                learned.add(name)
    return [
        evolve(node, name=_prefixed(node.name, learned), inputs=tuple(_prefixed(name, learned) for name in node.inputs))
        for node in found
    ]


_TURNS = ("t", "transpose", "permute")

_WEIGHTS = {
    **dict.fromkeys(("linear", "layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm"), (1, 2)),
    **dict.fromkeys(("mm", "matmul", "conv1d", "conv2d", "conv3d"), (1,)),
    "convolution": (1, 2),
    "embedding": (0,),
    "addmm": (0, 2),
}
"""Positions of weights in calls (PyTorch's operator schemas)."""


def _prefixed(name: str, learned: set[str]) -> str:
    return f"p_{name}" if name in learned else name
