"""Training runs that never were: plans of small models, timed by the planner on devices of known coefficients."""

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import evolve

from nest import evaluate
from nest.catalogue import published_devices
from nest.io import structure, unstructure
from nest.spec import Coefficients, DeviceSpec, Problem, ranges
from nest.units import BytesPerSecond

DENSE = {"layers": 8, "hidden": 2048, "ffn": 5504, "heads": 16, "kv_heads": 4, "vocab": 32000}
MULTI_HEAD = {"layers": 8, "hidden": 1024, "ffn": 4096, "heads": 16, "vocab": 50304, "gated_mlp": False}
EXPERTS = {**DENSE, "experts": 8, "top_k": 2, "moe_ffn": 1408, "dense_layers": 1}
NODES = [{"fanout": 8, "link": "nvlink4"}, {"fanout": 4, "bandwidth": "50 GB/s", "latency": "6 us"}]


def problem(
    model: Mapping[str, Any] = DENSE,
    device: str | DeviceSpec = "h100-sxm",
    batch: int = 64,
    sequence: int = 2048,
    training: Mapping[str, Any] | None = None,
    **fixed: Any,
) -> dict[str, Any]:
    """A problem with its decisions, as a file writes it."""
    return {
        "nest": 1,
        "model": {"transformer": dict(model)},
        "training": {"global_batch": batch, "sequence_length": sequence, **(training or {})},
        "cluster": {"device": device if isinstance(device, str) else unstructure(device), "levels": NODES},
        "fixed": {"tp": 1, "pp": 1, "micro_batch": 1, "recompute": "none", **fixed},
    }


TENSOR, DATA = {"overlap": {"tensor": True}}, {"overlap": {"data": True}}

SPREAD: dict[str, dict[str, Any]] = {
    "data parallel": problem(dp=32, zero=0),
    "tensor and sequence parallel, hidden": problem(tp=8, sp=True, dp=4, zero=1, training=TENSOR),
    "tensor parallel, all shown": problem(tp=4, sp=False, dp=8, zero=1),
    "pipeline, full recomputation": problem(MULTI_HEAD, tp=2, pp=4, dp=4, zero=1, recompute="full"),
    "selective recomputation in half precision": problem(
        MULTI_HEAD, tp=2, pp=2, dp=8, recompute="selective", training={"precision": "fp16"}
    ),
    "stages that run again": problem(tp=2, pp=4, dp=4, zero=1, recompute="stage", training=TENSOR),
    "interleaved": problem(MULTI_HEAD, tp=4, pp=4, dp=2, schedule="interleaved", chunks=2),
    "interleaved, messages hidden": problem(
        MULTI_HEAD, tp=4, pp=4, dp=2, schedule="interleaved", chunks=2, training={"overlap": {"pipeline": True}}
    ),
    "zero bubble": problem(tp=2, sp=True, pp=4, dp=4, zero=3, schedule="zero-bubble", training={**TENSOR, **DATA}),
    "gpipe": problem(tp=2, pp=4, dp=4, training={"schedule": ["gpipe"]}, schedule="gpipe"),
    "zero 2, hidden": problem(dp=32, zero=2, training=DATA),
    "zero 3, hidden": problem(dp=32, zero=3, training=DATA, recompute="full"),
    "zero 3, shown": problem(dp=16, tp=2, zero=3),
    "shard groups": problem(dp=32, zero=3, zero_degree=8, training=DATA),
    "shard groups of zero 1": problem(dp=32, zero=1, zero_degree=8),
    "ring": problem(cp=4, tp=2, dp=4, zero=1, sequence=8192, batch=16),
    "gathered keys, hidden": problem(
        cp=4, tp=2, dp=4, zero=1, batch=16, sequence=8192, training={**TENSOR, "context_exchange": "all_gather"}
    ),
    "ring run again": problem(cp=8, dp=4, zero=1, sequence=16384, batch=8, recompute="full"),
    "experts": problem(EXPERTS, ep=8, dp=32, zero=1),
    "experts and pipeline": problem(EXPERTS, ep=4, tp=2, pp=2, dp=8, zero=1, training={**TENSOR, **DATA}),
    "narrow products": problem(tp=2, dp=16, zero=1, training={"precision": "fp8", **DATA}),
    "narrow products, short": problem(dp=32, zero=1, sequence=64, training={"precision": "fp8"}),
    "held up by the host": problem(tp=8, sp=True, dp=4, zero=1, sequence=128, training=TENSOR),
    "held up by the host, one by one": problem(tp=8, sp=False, dp=4, zero=1, sequence=64),
    "single precision": problem(dp=32, training={"precision": "fp32"}),
    "its own word on waiting": problem(dp=32, zero=1, training={"synchronisation": 2.5, **DATA}),
    "its own word on sharding": problem(dp=32, zero=1, training={"sharded_synchronisation": 2.5}),
    "its own share": problem(dp=32, zero=1, training={"exposed": 0.3}),
    "optimizer on the host": problem(
        dp=32,
        zero=1,
        training={"offload": ["optimizer"]},
        device=evolve(published_devices()["h100-sxm"], name="with host", host_memory_bandwidth=BytesPerSecond(2e10)),
    ),
}


def read(written: Mapping[str, Any]) -> Problem:
    """The problem that a file would hold."""
    return structure(written, Problem)


def on(written: Mapping[str, Any], device: DeviceSpec) -> dict[str, Any]:
    """The same problem on another device."""
    return {**written, "cluster": {**written["cluster"], "device": unstructure(device)}}


def drawn(seed: int, device: DeviceSpec) -> DeviceSpec:
    """`device` with shares and coefficients drawn from all they can be."""
    source = random.Random(seed)
    shares = {
        kind: source.uniform(0.1, 0.9) for kind in ("matmul", "matmul.fp8", "attention", "attention.cudnn", "memory")
    }
    terms = {name: source.uniform(each.low, each.high) for name, each in ranges().items()}
    return evolve(device, efficiency={**device.efficiency, **shares}, calibration=Coefficients(**terms))


def seconds(written: Mapping[str, Any]) -> float:
    """Step time that the planner predicts."""
    found = evaluate(dict(written)).batch_time
    assert found is not None
    return found


def run(written: Mapping[str, Any], batch_time: float, **rest: Any) -> dict[str, Any]:
    """A line of a file of measurements."""
    return {"problem": written, "measured": {"batch_time": batch_time}, **rest}


def write(path: Path, lines: Iterable[Mapping[str, Any]]) -> Path:
    """A file of measurements."""
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path
