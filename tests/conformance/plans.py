"""Six small plans that between them use what frameworks are told in different ways."""

from functools import cache
from typing import Any

import nest
from nest.spec import PlanDocument

DENSE_MODEL = {"layers": 8, "hidden": 256, "ffn": 1024, "heads": 8, "kv_heads": 4, "vocab": 1024}
EXPERT_MODEL = {**DENSE_MODEL, "experts": 8, "top_k": 2, "moe_ffn": 512, "shared_expert_ffn": 512, "dense_layers": 2}


def problem(model: dict[str, Any], training: dict[str, Any], fixed: dict[str, Any]) -> dict[str, Any]:
    """A problem on two nodes of eight devices whose decisions are taken."""
    return {
        "nest": 1,
        "model": {"transformer": model},
        "training": {"global_batch": 32, "sequence_length": 512, "micro_batch": [1], **training},
        "cluster": {
            "device": "h100-sxm",
            "levels": [
                {"name": "node", "fanout": 8, "bandwidth": "450 GB/s", "latency": "3 us"},
                {"name": "rail", "fanout": 2, "bandwidth": "50 GB/s", "latency": "6 us"},
            ],
        },
        "fixed": fixed,
    }


PROBLEMS: dict[str, dict[str, Any]] = {
    "dense": problem(
        DENSE_MODEL, {}, {"tp": 2, "sp": True, "cp": 2, "pp": 2, "dp": 2, "zero": 1, "recompute": "selective"}
    ),
    "moe": problem(
        EXPERT_MODEL,
        {"overlap": {"data": True}},
        {"tp": 2, "sp": True, "ep": 4, "etp": 1, "pp": 2, "dp": 4, "zero": 1, "recompute": "full"},
    ),
    "uneven": problem(
        DENSE_MODEL, {"overlap": {"tensor": False}}, {"tp": 2, "pp": 4, "dp": 2, "zero": 1, "stages": [1, 2, 3, 2]}
    ),
    "interleaved": problem(
        DENSE_MODEL, {"schedule": "interleaved"}, {"tp": 2, "sp": True, "pp": 4, "dp": 2, "chunks": 2, "zero": 0}
    ),
    "some blocks": problem(
        DENSE_MODEL,
        {"schedule": "interleaved"},
        {"tp": 2, "sp": True, "pp": 2, "dp": 4, "chunks": 2, "zero": 1, "recompute": "full", "recompute_layers": 1},
    ),
    "zero3": problem(
        DENSE_MODEL, {"overlap": {"data": True}, "stack": "megatron-core"}, {"tp": 2, "sp": True, "dp": 8, "zero": 3}
    ),
}
"""By kind; every one is priced in well under a second."""


@cache
def plan(kind: str) -> PlanDocument:
    """The plan of one kind."""
    return nest.evaluate(PROBLEMS[kind])
