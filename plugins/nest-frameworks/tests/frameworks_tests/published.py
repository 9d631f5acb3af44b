"""Plans of published models, for exporters that know their names."""

from typing import Any

import nest
from nest.spec import PlanDocument

PUBLISHED = {"llama-3-8b": "8B", "qwen3-8b": "8B", "qwen3-30b-a3b": "30B-A3B", "deepseek-v3": "671B"}
"""torchtitan's name of the size, by nest's of the model."""


def published_plan(name: str, **fixed: Any) -> PlanDocument:
    """A plan on two nodes of eight devices, whether it fits or not."""
    return nest.evaluate(
        {
            "nest": 1,
            "model": name,
            "training": {"global_batch": 16, "sequence_length": 4096},
            "cluster": {
                "device": "h100-sxm",
                "levels": [
                    {"name": "node", "fanout": 8, "bandwidth": "450 GB/s", "latency": "3 us"},
                    {"name": "rail", "fanout": 2, "bandwidth": "50 GB/s", "latency": "6 us"},
                ],
            },
            "fixed": {"dp": 16, "zero": 3, "micro_batch": 1, **fixed},
        }
    )
