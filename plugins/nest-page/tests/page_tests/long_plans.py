"""Plans of many micro-batches, priced as they are decided, for what has to stay small."""

from typing import Any

import nest
from nest.spec import PlanDocument
from tests.measured import profile


def long_plan(schedule: str, stages: int, micro_batches: int, **fixed: Any) -> PlanDocument:
    """A chain of layers, one or two replicas of `stages` stages, no two neighbouring stages equally long."""
    layers = stages * fixed.get("chunks", 1)
    measured = profile(
        [0.01 + 0.0001 * (index % 7) for index in range(layers)],
        [0.02] * layers,
        state={
            **dict.fromkeys(("weights", "gradients"), [1e9] * layers),
            "optimizer": [6e9] * layers,
            "update": [0.01] * layers,
        },
        kept={
            "extra": [0.005] * layers,
            **dict.fromkeys(("first", "more"), [4e8] * layers),
            "peak": [1e8] * layers,
        },
        sent=2e8,
    )
    problem = {
        "nest": 1,
        "profile": measured,
        "training": {"global_batch": 2 * micro_batches, "schedule": schedule},
        "cluster": {
            "levels": [{"name": "rack", "fanout": 2 * stages, "bandwidth": 5e10, "latency": 6e-6}],
            "memory": 1e13,
        },
    }
    return nest.evaluate(problem, fix={"pp": stages, "replicas": 2, "zero": 1, **fixed})
