"""Problems of layers that are alike: bounds are as tight there as they can be, to the last byte and second."""

from typing import Any

import numpy
from attrs import evolve

from nest.instance import Cluster, Instance, Level, Link, Pool, Pools, RecomputeMode
from tests.small_instances import candidate, instance

LAYERS = 6

ALIKE: dict[str, dict[str, Any]] = {
    "one candidate": {},
    "mixed": {"mixed": True},
    "pools": {},
    "several chunks": {"schedules": ("interleaved",), "blocks": tuple((layer,) for layer in range(LAYERS))},
    "zero bubble": {"schedules": ("zero-bubble",)},
}


def of_alike_layers(
    space: str, zero: int, micro_batches: int, replicas: int = 2, recompute: tuple[str, ...] = ("none",)
) -> Instance:
    """Six layers that are alike for three stages: no peaks, messages or latencies."""
    one, ones = candidate(LAYERS), numpy.ones(LAYERS)
    group = evolve(one.state[0], weights=3 * ones, gradients=5 * ones, optimizer=7 * ones, update=0.1 * ones)
    none = RecomputeMode("none", 0 * ones, 11 * ones, 2 * ones, 0 * ones)
    full = RecomputeMode("full", ones, 6 * ones, ones, 0 * ones)
    every = {"state": (group,), "recompute": (none, full), "forward": ones, "backward": 2 * ones, "gathered": 0.5}
    one = evolve(one, **every, tensor_bytes=numpy.zeros(LAYERS - 1))
    settings = {"zero": (zero,), "rank_orders": ("pp-inner",), "recompute": recompute, **ALIKE[space]}
    settings["global_batch"] = replicas * micro_batches
    settings["constraints"] = (f"dp == {replicas}", "pp == 3")
    levels = tuple(Level(each, fanout, 10.0, 0.0) for each, fanout in (("inner", 3), ("outer", replicas)))
    machines = Cluster(levels, 1e9, 4.0)
    if space == "mixed":
        return instance([one, evolve(one, name="other")], machines=machines, **settings)
    if space != "pools":
        return instance([one], machines=machines, **settings)
    # Six of three stages' devices of which no pool has enough alone.
    small = evolve(machines, levels=(Level("inner", 2 * replicas, 10.0, 0.0),))
    pools = Pools((Pool("a", small), Pool("b", small)), ((0, 1, Link(1e9, 0.0)),))
    used = tuple(evolve(one, name=name, pool=name) for name in ("a", "b"))
    return evolve(instance([one], machines=small, **settings), candidates=used, pools=pools)
