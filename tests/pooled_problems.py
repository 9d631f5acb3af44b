"""A small problem with two pools, and plans of such problems as the oracle writes them and as nest decides them."""

from typing import Any

from nest.instance import Instance, Solution, StageDecision


def candidate(name: str, pool: str, width: int, seconds: list[float], **changes: Any) -> dict[str, Any]:
    """A candidate of a chain of layers that take so many seconds forward, twice as many backward."""
    return {
        "name": name,
        "pool": pool,
        "degrees": {"tp": width},
        "width": width,
        "samples": 1,
        "forward": seconds,
        "backward": [2 * each for each in seconds],
        "state": {
            "dense": {
                "ranks": [0],
                "weights": [2.0 for _ in seconds],
                "gradients": [2.0 for _ in seconds],
                "optimizer": [8.0 for _ in seconds],
                "update": [0.01 for _ in seconds],
            }
        },
        "recompute": {
            "none": {
                "extra": [0.0 for _ in seconds],
                "first": [4.0 for _ in seconds],
                "more": [3.0 for _ in seconds],
                "peak": [1.0 for _ in seconds],
                "stash_inputs": False,
            }
        },
        "edge_bytes": [5.0 for _ in seconds[1:]],
        **changes,
    }


def two_pools(**changes: Any) -> dict[str, Any]:
    """Four fast devices in pairs and six slower ones with more memory; five layers in a chain."""
    seconds = [0.4, 1.0, 0.8, 1.2, 0.6]
    layers = [f"layer{index}" for index in range(len(seconds))]
    return {
        "nest": 1,
        "training": {"global_batch": 8},
        "cluster": {
            "pools": [
                {
                    "name": "fast",
                    "memory": 60.0,
                    "levels": [
                        {"fanout": 2, "bandwidth": 100.0, "latency": 0.0},
                        {"fanout": 2, "bandwidth": 20.0, "latency": 0.01},
                    ],
                },
                {
                    "name": "slow",
                    "memory": 90.0,
                    "reserve": 2.0,
                    "levels": [
                        {"fanout": 2, "bandwidth": 80.0, "latency": 0.0},
                        {"fanout": 3, "bandwidth": 15.0, "latency": 0.02},
                    ],
                },
            ],
            "between": [{"pools": ["slow", "fast"], "bandwidth": 10.0, "latency": 0.05}],
        },
        "profile": {
            "layers": layers,
            "edges": [[index, index + 1] for index in range(len(layers) - 1)],
            "candidates": [
                candidate("fast1", "fast", 1, seconds),
                candidate("fast2", "fast", 2, [0.55 * each for each in seconds]),
                candidate("slow1", "slow", 1, [1.7 * each for each in seconds]),
                candidate("slow2", "slow", 2, [0.95 * each for each in seconds]),
            ],
        },
        **changes,
    }


def plan(stages: list[tuple[list[int], str, int]], replicas: int = 1, order: str = "pp-inner") -> dict[str, Any]:
    """A plan in the oracle's form, of layers, candidates and offsets."""
    decided = [
        {"layers": layers, "candidate": name, "offset": offset, "recompute": "none", "zero": 0}
        for layers, name, offset in stages
    ]
    return {"replicas": replicas, "rank_order": order, "schedule": "1f1b", "zero_degree": None, "stages": decided}


def solution_of(instance: Instance, decided: dict[str, Any]) -> Solution:
    """A plan in the oracle's form as nest's decisions."""
    names = [each.name for each in instance.candidates]
    stages = tuple(
        StageDecision(
            tuple(each["layers"]), names.index(each["candidate"]), each["recompute"], each["zero"], each["offset"]
        )
        for each in decided["stages"]
    )
    return Solution(
        decided["replicas"], decided["rank_order"], decided["schedule"], stages, zero_degree=decided.get("zero_degree")
    )
