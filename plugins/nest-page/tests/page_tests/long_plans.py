"""Plans of many micro-batches, priced as they are decided, for what has to stay small."""

from typing import Any

import nest
from nest.spec import PlanDocument


def long_plan(schedule: str, stages: int, micro_batches: int, **fixed: Any) -> PlanDocument:
    """A chain of layers, one or two replicas of `stages` stages, no two neighbouring stages equally long."""
    layers = stages * fixed.get("chunks", 1)
    state = {"weights": [1e9] * layers, "gradients": [1e9] * layers, "optimizer": [6e9] * layers}
    profile = {
        "layers": [f"l{index}" for index in range(layers)],
        "edges": [[index, index + 1] for index in range(layers - 1)],
        "candidates": [
            {
                "name": "one",
                "degrees": {},
                "width": 1,
                "samples": 1,
                "forward": [0.01 + 0.0001 * (index % 7) for index in range(layers)],
                "backward": [0.02] * layers,
                "state": {"dense": {"ranks": [0], **state, "update": [0.01] * layers}},
                "recompute": {
                    "none": {
                        "extra": [0.005] * layers,
                        "first": [4e8] * layers,
                        "more": [4e8] * layers,
                        "peak": [1e8] * layers,
                        "stash_inputs": False,
                    }
                },
                "edge_bytes": [2e8] * (layers - 1),
            }
        ],
    }
    problem = {
        "nest": 1,
        "profile": profile,
        "training": {"global_batch": 2 * micro_batches, "schedule": schedule},
        "cluster": {
            "levels": [{"name": "rack", "fanout": 2 * stages, "bandwidth": 5e10, "latency": 6e-6}],
            "memory": 1e13,
        },
    }
    return nest.evaluate(problem, fix={"pp": stages, "replicas": 2, "zero": 1, **fixed})
