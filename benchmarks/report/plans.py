"""Plans whose pages are measured: more and more devices, stages and micro-batches."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import nest
from nest.spec import PlanDocument


def of_70b(pp: int, replicas: int, micro_batches: int, **fix: Any) -> PlanDocument:
    """Llama 3 70B on `8 * pp * replicas` H100, tensor parallelism over the eight of a node.

    Args:
        pp: stages, at most 40.
        replicas: so that `pp * replicas` is a multiple of 8.
        micro_batches: of a replica, of one sample each.
        fix: further decisions.
    """
    nodes = pp * replicas
    levels = [
        {"name": "node", "fanout": 8, "bandwidth": "450 GB/s", "latency": "3 us", "link": "nvlink"},
        {"name": "rack", "fanout": 8, "bandwidth": "50 GB/s", "latency": "6 us", "link": "infiniband"},
        {"name": "spine", "fanout": max(nodes // 8, 1), "bandwidth": "25 GB/s", "latency": "10 us"},
    ]
    problem = {
        "nest": 1,
        "model": "llama-3-70b",
        "training": {"global_batch": replicas * micro_batches, "sequence_length": 8192},
        "cluster": {"device": "h100-sxm", "levels": levels},
    }
    decided = {"tp": 8, "pp": pp, "replicas": replicas, "micro_batch": 1, "zero": 1, "recompute": "full"}
    return nest.evaluate(problem, fix={**decided, **fix})


PLANS: Mapping[str, Callable[[], PlanDocument]] = {
    "64-devices": partial(of_70b, 4, 2, 16),
    "1024-devices": partial(of_70b, 4, 32, 32),
    "1024-devices-16-stages": partial(of_70b, 16, 8, 128),
    "1024-devices-32-stages": partial(of_70b, 32, 4, 256),
    "1024-devices-4096-micro-batches": partial(of_70b, 32, 4, 4096),
    "16384-devices": partial(of_70b, 16, 128, 128),
}
"""Each is priced, not searched for: a page does not show how its plan was found."""
