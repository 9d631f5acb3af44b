"""From a Kineto trace, which `torch.profiler` exports as Chrome JSON, to a table of operators.

Operators of the forward pass carry a sequence number; the node of the autograd engine that runs their backward pass
carries the same. On a GPU they take the time of the kernels they launched (`cat: kernel`, joined by `External id`, or
by `correlation` with the call that launched them), on a CPU their own. Sizes are those of `Input Dims`, which a trace
has when it was recorded with `record_shapes=True`.
"""

import gzip
import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

from attrs import frozen

from nest.errors import InputError
from nest.units import Seconds
from nest_measured.table import Row, Table

MICROSECOND = 1e-6
"""Seconds of a trace's unit of time (Chrome's trace event format)."""

ENGINE = "autograd::engine::evaluate_function: "
"""Begins the name of a backward node's event."""

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of events that run on a GPU."""

PRECISIONS = {"float": "fp32", "c10::Half": "fp16", "c10::BFloat16": "bf16"}
"""Number formats by the type of an input."""

ITEMSIZE = {"fp32": 4, "fp16": 2, "bf16": 2}
"""Bytes of an element."""

INDEX = 8
"""Bytes of a token id (PyTorch's int64)."""

Dims = Sequence[Sequence[int]]

Key = tuple[str, tuple[tuple[str, int], ...], str]
"""Kind, sizes and precision."""


@frozen
class Known:
    """An operator of PyTorch that does what one of nest's kinds of operator does.

    Attributes:
        kind: nest's.
        node: begins the name of its backward node.
        sizes: from the shapes of its inputs and the bytes of an element.
    """

    kind: str
    node: str
    sizes: Callable[[Dims, int], dict[str, int]]


def _product(left: Sequence[int], right: Sequence[int]) -> dict[str, int]:
    return {"rows": left[0], "columns": right[1], "contracted": left[1]}


def _attention(dims: Dims, _: int) -> dict[str, int]:
    (batch, heads, sequence, head), keys, value = dims[0], dims[1][2], dims[2][3]
    return {"batch": batch, "heads": heads, "sequence": sequence, "keys": keys, "head": head, "value": value}


def _embedding(dims: Dims, itemsize: int) -> dict[str, int]:
    (_, width), tokens = dims[0], prod(dims[1])
    return {"bytes": tokens * (INDEX + width * itemsize)}


def _element_wise(dims: Dims, itemsize: int) -> dict[str, int]:
    return {"bytes": 2 * prod(dims[0]) * itemsize}


KNOWN = {
    "aten::mm": Known("matmul", "MmBackward", lambda dims, _: _product(dims[0], dims[1])),
    "aten::addmm": Known("matmul", "AddmmBackward", lambda dims, _: _product(dims[1], dims[2])),
    "aten::embedding": Known("embedding", "EmbeddingBackward", _embedding),
    "aten::native_layer_norm": Known("norm", "NativeLayerNormBackward", _element_wise),
    "aten::_fused_rms_norm": Known("norm", "FusedRmsNormBackward", _element_wise),
    "aten::gelu": Known("activation", "GeluBackward", _element_wise),
    "aten::relu": Known("activation", "ReluBackward", _element_wise),
    **{
        f"aten::_scaled_dot_product_{name}": Known("attention", "ScaledDotProduct", _attention)
        for name in ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
    },
}
"""Operators with one counterpart in nest. Eager RMS norms and gated activations are several each, and left out."""


def read_trace(path: Path) -> dict[str, Any]:
    """The trace in a `.json` or `.json.gz` file.

    Raises:
        InputError: it cannot be read, or is no Chrome trace.
    """
    try:
        content = path.read_bytes()
        found = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    except (OSError, ValueError, EOFError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read as a trace: {getattr(error, 'strerror', None) or error}.") from None
    if not isinstance(found, dict) or not isinstance(found.get("traceEvents"), list):
        raise InputError(f"{path}: is no trace of torch.profiler: it has no list `traceEvents`.")
    return found


def table_of(trace: Mapping[str, Any], device: str | None = None) -> Table:
    """The median times of every operator and size that the trace has.

    The median leaves out the first call, which may be many times as slow.

    Args:
        trace: as read.
        device: name of the device it was recorded on.

    Raises:
        InputError: no operator of the trace can be used.
    """
    events = [event for event in trace["traceEvents"] if _usable(event)]
    clock = _Clock(events)
    nodes: dict[Any, list[Mapping[str, Any]]] = {}
    for event in events:
        if event["name"].startswith(ENGINE):
            nodes.setdefault(event["args"].get("Sequence number"), []).append(event)
    forwards: dict[Key, list[float]] = {}
    backwards: dict[Key, list[float]] = {}
    for event in events:
        known = KNOWN.get(event["name"])
        number = event["args"].get("Sequence number")
        precision = _precision(event["args"])
        if known is None or number is None or precision is None:
            continue
        sizes = _sizes(known, event["args"].get("Input Dims"), ITEMSIZE[precision])
        if sizes is None:
            continue
        key = known.kind, tuple(sizes.items()), precision
        seconds = clock.seconds(event)
        if seconds > 0:
            forwards.setdefault(key, []).append(seconds)
            begins = ENGINE + known.node
            backwards.setdefault(key, []).extend(
                clock.seconds(node) for node in nodes.get(number, [])[:1] if node["name"].startswith(begins)
            )
    if not forwards:
        raise InputError(
            "the trace has no operator that can be used; record one training step with torch.profiler and "
            "record_shapes=True."
        )
    return Table(tuple(_row(key, forwards[key], backwards[key]) for key in sorted(forwards, key=repr)), device)


def _row(key: Key, forward: list[float], backward: list[float]) -> Row:
    kind, sizes, precision = key
    spent = [seconds for seconds in backward if seconds > 0]
    return Row(
        kind=kind,
        sizes=dict(sizes),
        forward=Seconds(median(forward)),
        backward=Seconds(median(spent)) if spent else None,
        precision=precision,
        samples=len(forward),
    )


def _usable(event: Any) -> bool:
    """Return whether an event has a name, a duration and arguments."""
    return (
        isinstance(event, dict)
        and event.get("ph") == "X"
        and isinstance(event.get("name"), str)
        and isinstance(event.get("args"), dict)
        and all(isinstance(event.get(key), (int, float)) for key in ("ts", "dur"))
    )


def _sizes(known: Known, dims: Any, itemsize: int) -> dict[str, int] | None:
    """The sizes of a call; None where its shapes are not there or not those the operator has."""
    try:
        sizes = known.sizes(dims, itemsize)
    except (IndexError, TypeError, ValueError):
        return None
    return sizes if all(isinstance(size, int) and size >= 1 for size in sizes.values()) else None


def _precision(arguments: Mapping[str, Any]) -> str | None:
    types = arguments.get("Input type")
    return next((PRECISIONS[name] for name in types if name in PRECISIONS), None) if isinstance(types, list) else None


class _Clock:
    """Tells how long an operator took."""

    def __init__(self, events: Sequence[Mapping[str, Any]]) -> None:
        launched = {e["args"]["correlation"]: e for e in events if "correlation" in e["args"] and not _on_device(e)}
        self.kernels: dict[Any, float] = {}
        for event in filter(_on_device, events):
            launch = launched.get(event["args"].get("correlation"), {"args": {}})
            owner = event["args"].get("External id", launch["args"].get("External id"))
            self.kernels[owner] = self.kernels.get(owner, 0.0) + event["dur"]
        self.threads: dict[Any, list[tuple[float, Any]]] = {}
        for event in events:
            if event.get("cat") == "cpu_op":
                thread = event.get("pid"), event.get("tid")
                self.threads.setdefault(thread, []).append((event["ts"], event["args"].get("External id")))
        self.starts = {}
        for thread, calls in self.threads.items():
            calls.sort(key=lambda call: call[0])
            self.starts[thread] = [start for start, _ in calls]

    def seconds(self, event: Mapping[str, Any]) -> float:
        """Of the kernels that an operator and those it calls launched; in a trace without any, from start to end."""
        if not self.kernels:
            return float(event["dur"]) * MICROSECOND
        thread = event.get("pid"), event.get("tid")
        starts = self.starts.get(thread, [])
        first, end = bisect_left(starts, event["ts"]), bisect_right(starts, event["ts"] + event["dur"])
        owners = {owner for _, owner in self.threads.get(thread, [])[first:end]}
        return sum(self.kernels.get(owner, 0.0) for owner in sorted(owners, key=repr)) * MICROSECOND


def _on_device(event: Mapping[str, Any]) -> bool:
    return event.get("cat") in ON_DEVICE
