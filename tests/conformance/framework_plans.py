"""Plans of five kinds for frameworks that cannot run those of `plans`: as close as each of them comes."""

from functools import cache
from typing import Any

import nest
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.spec import PlanDocument
from tests.conformance.plans import DENSE_MODEL, problem

SPARSE_MODEL = {**DENSE_MODEL, "experts": 8, "top_k": 2, "moe_ffn": 512}

KINDS = ("dense", "moe", "uneven", "interleaved", "zero3")

PIPELINED: dict[str, dict[str, Any]] = {
    "dense": problem(DENSE_MODEL, {}, {"tp": 2, "sp": True, "pp": 2, "dp": 4, "zero": 1, "recompute": "full"}),
    "moe": problem(SPARSE_MODEL, {}, {"tp": 2, "sp": True, "ep": 4, "etp": 1, "pp": 2, "dp": 4, "zero": 1}),
    "uneven": problem(DENSE_MODEL, {}, {"tp": 2, "sp": True, "pp": 4, "dp": 2, "zero": 1, "stages": [1, 2, 3, 2]}),
    "interleaved": problem(
        DENSE_MODEL, {"schedule": "interleaved"}, {"tp": 2, "sp": True, "pp": 4, "dp": 2, "chunks": 2, "zero": 1}
    ),
    "zero3": problem(DENSE_MODEL, {}, {"tp": 2, "sp": True, "dp": 8, "zero": 3, "recompute": "full"}),
}
"""What torchtitan and PyTorch run."""


@cache
def plan_for(kind: str) -> PlanDocument:
    """The plan of that kind."""
    return nest.evaluate(PIPELINED[kind])


def files_for(framework: str, kind: str) -> dict[str, str] | None:
    """What the exporter writes for it; None: it refuses, with a reason."""
    try:
        return dict(registry().exporters()[framework].export(plan_for(kind)))
    except InputError:
        return None
