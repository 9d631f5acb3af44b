"""Plans whose traces and pages are opened: small and large, levels and networks, ordinary and hostile."""

from collections.abc import Callable, Mapping
from typing import Any

import nest
from nest.spec import PlanDocument
from tests.simulate.uniform_plans import uniform_plan

HOSTILE = "<script>document.title='taken'</script><img src=http://example.org/x.png onerror=alert(1)> & \"'{{ 7 * 7 }}"
"""A name nobody should give a layer."""


def of_llama(schedule: str = "1f1b", **fix: Any) -> PlanDocument:
    """Llama 2 13B on 16 devices: stages that differ, and collectives between replicas."""
    levels = [
        {"name": "node", "fanout": 8, "bandwidth": "300 GB/s", "link": "nvlink3"},
        {"name": "pod", "fanout": 2, "bandwidth": "25 GB/s", "link": "infiniband-hdr"},
    ]
    problem = {
        "nest": 1,
        "model": "llama-2-13b",
        "training": {"global_batch": 16, "sequence_length": 4096, "schedule": schedule},
        "cluster": {"device": "a100-sxm-80g", "levels": levels},
    }
    decided = {"tp": 2, "pp": 4, "replicas": 2, "micro_batch": 1, "schedule": schedule}
    return nest.evaluate(problem, fix={**decided, **fix})


def large(pp: int, replicas: int, global_batch: int) -> PlanDocument:
    """Llama 3 70B, eight devices a stage and replica."""
    levels = [
        {"name": "node", "fanout": 8, "bandwidth": "450 GB/s", "latency": "3 us", "link": "nvlink"},
        {"name": "rack", "fanout": 16, "bandwidth": "50 GB/s", "latency": "6 us", "link": "infiniband"},
        {"name": "spine", "fanout": pp * replicas // 16, "bandwidth": "25 GB/s", "latency": "10 us"},
    ]
    problem = {
        "nest": 1,
        "model": "llama-3-70b",
        "training": {"global_batch": global_batch, "sequence_length": 8192},
        "cluster": {"device": "h100-sxm", "levels": levels},
    }
    decided = {"tp": 8, "pp": pp, "replicas": replicas, "micro_batch": 1, "zero": 1, "recompute": "full"}
    return nest.evaluate(problem, fix=decided)


def on_a_torus() -> PlanDocument:
    """Stages placed on the devices of a network that has no levels, by name."""
    return _placed({"torus": {"shape": [4, 4], "wrap": True, "bandwidth": "45 GB/s", "latency": "0.5 us"}})


def on_a_mesh() -> PlanDocument:
    """The same in three dimensions, some devices not used."""
    return _placed({"mesh": {"shape": [3, 2, 4], "bandwidth": "45 GB/s", "latency": "0.5 us"}})


def on_switches() -> PlanDocument:
    """The same with switches between the devices, in tiers, and links of several bandwidths."""
    nodes = [{"id": f"node {node}, gpu {gpu}"} for node in range(4) for gpu in range(4)]
    leaves = [{"id": f"leaf {gpu}", "kind": "switch"} for gpu in range(4)]
    inside = [{"id": f"nvswitch {node}", "kind": "switch"} for node in range(4)]
    links = [
        {"source": f"node {node}, gpu {gpu}", "target": target, "bandwidth": bandwidth, "latency": 1e-6}
        for node in range(4)
        for gpu in range(4)
        for target, bandwidth in ((f"leaf {gpu}", 25e9 * (1 + gpu)), (f"nvswitch {node}", 450e9))
    ]
    return _placed({"nodes": [*nodes, *leaves, *inside], "edges": links})


def on_routers() -> PlanDocument:
    """The same on groups of routers of which every two have a link."""
    return _placed({"dragonfly": {"p": 2, "a": 4, "h": 1, "bandwidth": "25 GB/s"}})


def on_measured_pairs() -> PlanDocument:
    """The same on pairs that were measured."""
    bandwidth = [[40e9 / (1 + abs(one - two)) for two in range(24)] for one in range(24)]
    return _placed({"matrix": {"bandwidth": bandwidth, "latency": "2 us"}})


def _placed(topology: dict[str, Any]) -> PlanDocument:
    problem = {
        "nest": 1,
        "model": "llama-2-7b",
        "training": {"global_batch": 16, "sequence_length": 4096},
        "cluster": {"device": "h100-sxm", "topology": topology},
    }
    return nest.evaluate(problem, fix={"tp": 2, "pp": 4, "replicas": 2, "micro_batch": 1, "zero": 3})


def hostile() -> PlanDocument:
    """Layers and levels with names that are markup, and long."""
    problem = _profile()
    problem["profile"]["layers"] = [f"{HOSTILE} {index} {'x' * 60}" for index in range(4)]
    problem["cluster"]["levels"][0]["name"] = HOSTILE
    return nest.solve(problem)


def infeasible() -> PlanDocument:
    """No plan fits the memory."""
    problem = _profile()
    problem["cluster"]["memory"] = 1.0
    return nest.solve(problem)


def _profile() -> dict[str, Any]:
    plans = (uniform_plan(seed, "1f1b") for seed in range(100))
    plan = next(each for each in plans if len(each.stages) == len(each.problem["profile"]["layers"]) == 4)
    return {**plan.problem, "fixed": {}}


PLANS: Mapping[str, Callable[[], PlanDocument]] = {
    "small": lambda: of_llama(zero=2, recompute="full"),
    "chunks": lambda: of_llama("interleaved", zero=3, chunks=2),
    "many-devices": lambda: large(pp=4, replicas=32, global_batch=1024),
    "many-stages": lambda: large(pp=32, replicas=4, global_batch=1024),
    "torus": on_a_torus,
    "mesh": on_a_mesh,
    "switches": on_switches,
    "routers": on_routers,
    "measured-pairs": on_measured_pairs,
    "hostile": hostile,
    "infeasible": infeasible,
}
"""Makes each plan, by name."""
