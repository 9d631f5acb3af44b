"""The smallest problem with a pipeline of four equal stages."""

from typing import Any

from tests.measured import profile


def four_layers(**keys: Any) -> dict[str, Any]:
    """Four equal layers for as many devices, eight samples."""
    state = {name: [1e6] * 4 for name in ("weights", "gradients", "optimizer")}
    kept = dict.fromkeys(("first", "more"), [1e9] * 4)
    return {
        "nest": 1,
        "training": {"global_batch": 8, "schedule": ["1f1b"]},
        "cluster": {"levels": [{"fanout": 4, "bandwidth": 1e11}], "memory": 16e9},
        "profile": {**profile([1e-3] * 4, [2e-3] * 4, state=state, kept=kept), "layers": ["a", "b", "c", "d"]},
        **keys,
    }
