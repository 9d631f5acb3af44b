"""Small instances to plan, and what planners are given with them."""

from typing import Any

from nest.formulate.instance import build_instance
from nest.hooks.registry import registry
from nest.instance import Instance
from nest.io import structure
from nest.solve.solver import solve
from nest.spec import Problem
from nest_whatif.planner_context import planner_context

LAYERS = 8

RULES = ["manual", "manual-first", "recipe"]
PAPERS = ["phaze", "alpa", "alpa-e", "nest-paper", "piper", "galvatron"]
PLANNERS = [*RULES, *PAPERS, "mcmc", "annealing", "random"]
"""The built-in planners that know one kind of device, in the order of `nest compare --list`."""

FOR_POOLS = ["slowest-device", "proportional"]
"""Those for several kinds, which come last."""


def candidate(width: int, samples: int = 1, sent: float = 1e6, **degrees: int) -> dict[str, Any]:
    """Equal layers of 3 ms and 500 MB on one device, shared out evenly to the devices of a block."""
    zeros = [0.0] * LAYERS
    held = [1e8 * samples / width] * LAYERS
    return {
        "name": "-".join([*(f"{name}{degree}" for name, degree in degrees.items()), f"w{width}mb{samples}"]),
        "degrees": degrees or {"tp": width},
        "width": width,
        "samples": samples,
        "forward": [1e-3 * samples / width] * LAYERS,
        "backward": [2e-3 * samples / width] * LAYERS,
        "state": {
            "dense": {
                "ranks": [0],
                "weights": [1e8 / width] * LAYERS,
                "gradients": [1e8 / width] * LAYERS,
                "optimizer": [3e8 / width] * LAYERS,
                "update": [1e-4] * LAYERS,
            }
        },
        "recompute": {
            "none": {"extra": zeros, "first": held, "more": held, "peak": zeros},
            "full": {"extra": [1e-3 * samples / width] * LAYERS, "first": zeros, "more": zeros, "peak": held},
        },
        "edge_bytes": [sent] * (LAYERS - 1),
    }


def problem(memory: float, *candidates: dict[str, Any], zero: tuple[int, ...] = (0,), **keys: Any) -> dict[str, Any]:
    """Four nodes of four devices, the network between them ten times as slow as inside."""
    return {
        "nest": 1,
        "training": {"global_batch": 64},
        "cluster": {
            "memory": memory,
            "levels": [
                {"name": "node", "fanout": 4, "bandwidth": 1e11, "latency": 1e-6},
                {"name": "spine", "fanout": 4, "bandwidth": 1e10, "latency": 1e-5},
            ],
        },
        "search": {"zero": list(zero), "rank_order": ["pp-inner", "dp-inner"]},
        "profile": {
            "layers": [f"layer {index}" for index in range(LAYERS)],
            "edges": [[index, index + 1] for index in range(LAYERS - 1)],
            "candidates": list(candidates or [candidate(width) for width in (1, 2, 4, 8)]),
        },
        **keys,
    }


def planned(name: str, written: dict[str, Any], seed: int = 1, evaluations: int = 200) -> tuple[Instance, Any, Any]:
    """The instance, the proposal of a built-in planner and what that comes to."""
    known = registry()
    read = structure(written, Problem)
    instance = build_instance(read, known)
    context = planner_context(read, instance, known, solve, seed=seed, evaluations=evaluations)
    proposal = known.planners()[name].plan(instance, context)
    return instance, proposal, None if proposal.solution is None else context.assess(proposal.solution)
