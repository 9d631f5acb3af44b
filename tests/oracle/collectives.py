"""The collective model of section 1, a hook: the rings of the page, and a made-up model that tells readings apart."""

from math import log2

from tests.oracle.network import Network


def rings(network: Network, kind: str, size: float, devices) -> float:
    """The model of the page: an all-reduce is a reduce-scatter and an all-gather."""
    return (2 if kind == "all_reduce" else 1) * network.ring(size, devices)


def trees(network: Network, kind: str, size: float, devices) -> float:
    """Flat rings, and trees of switches that reduce: an all-reduce among three or more is not two reduce-scatters."""
    members, worst = len(set(devices)), network.level(devices)
    latency, bandwidth = network.latencies[worst], min(network.bandwidths[: worst + 1])
    if kind == "all_reduce":
        return 2 * log2(members) * latency + size / bandwidth
    return (members - 1) * latency + (members - 1) / members * size / bandwidth


MODELS = {"alpha-beta": rings, "trees": trees}


def collective(problem: dict, network: Network, kind: str, size: float, devices) -> float:
    """Seconds of one collective; one member and no bytes cost nothing, whatever the model."""
    if size == 0 or len(set(devices)) == 1:
        return 0.0
    return MODELS[problem.get("collectives") or "alpha-beta"](network, kind, size, devices)
