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

WHOLE_SEQUENCE: dict[str, dict[str, Any]] = {
    "dense": problem(DENSE_MODEL, {}, {"tp": 2, "dp": 8, "zero": 3, "recompute": "full"}),
    "moe": problem(SPARSE_MODEL, {}, {"ep": 4, "dp": 16, "zero": 2}),
    "uneven": problem(DENSE_MODEL, {}, {"pp": 4, "dp": 4, "zero": 1, "stages": [1, 2, 3, 2], "recompute": "full"}),
    "interleaved": PIPELINED["interleaved"],
    "zero3": problem(DENSE_MODEL, {}, {"dp": 16, "zero": 3}),
}
"""Without sequence parallelism, which DeepSpeed and Accelerate do not have."""

DEEPSPEED = WHOLE_SEQUENCE | {"dense": problem(DENSE_MODEL, {}, {"tp": 2, "dp": 8, "zero": 2, "recompute": "full"})}
"""Its tensor parallelism refuses ZeRO 3."""


@cache
def plan_for(framework: str, kind: str) -> PlanDocument:
    """The plan of that kind for that framework."""
    own = {"deepspeed": DEEPSPEED, "accelerate": WHOLE_SEQUENCE}
    return nest.evaluate(own.get(framework, PIPELINED)[kind])


def files_for(framework: str, kind: str) -> dict[str, str] | None:
    """What the exporter writes for it; None: it refuses, with a reason."""
    try:
        return dict(registry().exporters()[framework].export(plan_for(framework, kind)))
    except InputError:
        return None
