"""Plans the problems of the kit's sample plans again and writes them: `python -m tests.testing.sample_plans`."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import nest
from nest_testing.exporter import SAMPLE_PLANS

MODEL = {"layers": 8, "hidden": 64, "ffn": 256, "heads": 8, "kv_heads": 4, "vocab": 256}
EXPERTS = {**MODEL, "experts": 8, "top_k": 2, "moe_ffn": 64}
FIXED: dict[str, tuple[dict[str, int], dict[str, Any]]] = {
    "dense.json": (MODEL, {"tp": 2, "sp": True, "cp": 2, "pp": 2, "zero": 1, "recompute": "selective"}),
    "experts.json": (EXPERTS, {"tp": 2, "sp": True, "ep": 4, "etp": 1, "pp": 2, "rank_order": "pp-inner"}),
    "uneven.json": (MODEL, {"tp": 2, "pp": 4, "stages": [1, 2, 3, 2]}),
    "interleaved.json": (MODEL, {"pp": 4, "schedule": "interleaved", "chunks": 2, "recompute": "full"}),
    "zero-3.json": (MODEL, {"tp": 2, "zero": 3}),
    "zero-1.json": (MODEL, {"tp": 1, "zero": 1, "pp": 1}),
}
"""Plans that are given: by file, the model and the decisions."""


def problem_of(name: str) -> dict[str, Any] | None:
    """The problem of a plan that is given; None: the file has it, and it is solved."""
    if name not in FIXED:
        return None
    model, fixed = FIXED[name]
    peak = {"bf16": "800 TFLOP/s"}
    device = {"name": "sample", "memory": "80 GB", "memory_bandwidth": "3 TB/s", "peak": peak}
    levels = [
        {"name": "node", "fanout": 4, "bandwidth": "400 GB/s", "latency": "3 us"},
        {"name": "spine", "fanout": 4, "bandwidth": "50 GB/s", "latency": "6 us"},
    ]
    return {
        "nest": 1,
        "model": {"transformer": model},
        "training": {"global_batch": 32, "sequence_length": 64},
        "cluster": {"device": device, "levels": levels},
        "fixed": fixed,
    }


def main() -> None:
    """Bring the sample plans of `nest_testing` up to date; what says which machine made them is left out."""
    for name in SAMPLE_PLANS:
        path = Path(str(files("nest_testing").joinpath("data", name)))
        given = problem_of(name)
        found = nest.solve(json.loads(path.read_text())["problem"]) if given is None else nest.evaluate(given)
        plan = found.to_dict()
        path.write_text(json.dumps({**plan, "statistics": {}, "plugins": {}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
