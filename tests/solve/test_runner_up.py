"""The plan that an optimum is set beside: the next best, as far as a little search finds it."""

from typing import Any

import pytest

import nest

SMALL = {"layers": 2, "hidden": 4096, "ffn": 8192, "heads": 16, "kv_heads": 4, "vocab": 32000}
EXPERTS = SMALL | {"tied_embeddings": True, "experts": 8, "top_k": 2, "moe_ffn": 4096}
LARGE = {"layers": 8, "hidden": 4096, "ffn": 16384, "heads": 16, "kv_heads": 4, "vocab": 128000}
LARGE_EXPERTS = LARGE | {"experts": 4, "top_k": 2, "moe_ffn": 4096}
OWN = {"name": "own", "memory": "80 GB", "memory_bandwidth": "3 TB/s", "peak": {"bf16": "1 PFLOP/s"}}


def problem(
    model: dict[str, Any], batch: int, length: int, device: Any, fanouts: list[tuple[int, str]], target: str
) -> dict[str, Any]:
    levels = [{"fanout": fanout, "bandwidth": bandwidth, "latency": "3 us"} for fanout, bandwidth in fanouts]
    return {
        "nest": 1,
        "model": {"transformer": model},
        "training": {
            "global_batch": batch,
            "sequence_length": length,
            "memory_risk": 0.2,
            "micro_batch": [2],
            **OF_GRAPHS,
        },
        "cluster": {"device": device, "levels": levels},
        "search": {"within": 0, "target": target},
    }


OF_GRAPHS = {"graphs": "iteration"}
"""Small models that no host holds up."""


@pytest.mark.longer
@pytest.mark.parametrize(
    ("asked", "other"),
    [
        (
            problem(EXPERTS, 16, 2048, "h100-sxm", [(4, "100 GB/s"), (2, "10 GB/s")], "megatron"),
            ["pp == 1", "replicas == 1"],
        ),
        (problem(LARGE_EXPERTS, 8, 512, OWN, [(4, "5 GB/s")], "torchtitan"), ["pp == 3"]),
    ],
    ids=["one replica", "fewer stages"],
)
def test_plans_of_several_chunks_leave_time_to_find_a_runner_up_of_one(asked: dict[str, Any], other: list[str]) -> None:
    best, known = nest.solve(asked), nest.solve({**asked, "constraints": other})
    assert best.runner_up is not None
    assert best.batch_time is not None
    assert known.batch_time is not None
    assert best.batch_time < known.batch_time
    assert best.runner_up["batch_time"] <= known.batch_time * (1 + 1e-9)
