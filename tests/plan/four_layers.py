"""The smallest problem with a pipeline of four equal stages."""

from typing import Any


def four_layers(**keys: Any) -> dict[str, Any]:
    """Four equal layers for as many devices, eight samples."""
    none = {"extra": [0.0] * 4, "first": [1e9] * 4, "more": [1e9] * 4, "peak": [0.0] * 4}
    state = {name: [1e6] * 4 for name in ("weights", "gradients", "optimizer")}
    candidate = {
        "name": "one",
        "degrees": {},
        "width": 1,
        "samples": 1,
        "forward": [1e-3] * 4,
        "backward": [2e-3] * 4,
        "state": {"dense": {"ranks": [0], **state, "update": [0.0] * 4}},
        "recompute": {"none": none},
        "edge_bytes": [0.0] * 3,
    }
    edges = [[index, index + 1] for index in range(3)]
    return {
        "nest": 1,
        "training": {"global_batch": 8, "schedule": ["1f1b"]},
        "cluster": {"levels": [{"fanout": 4, "bandwidth": 1e11}], "memory": 16e9},
        "profile": {"layers": ["a", "b", "c", "d"], "edges": edges, "candidates": [candidate]},
        **keys,
    }
