"""The collective model of section 1, a hook: the rings of the page, and a made-up model that tells readings apart."""

from math import log2

from tests.oracle.network import Network


def rings(network: Network, kind: str, size: float, devices) -> list[float]:
    """The model of the page: an all-reduce is a reduce-scatter and an all-gather."""
    return [(2 if kind == "all_reduce" else 1) * seconds for seconds in network.ring(size, devices)]


def trees(network: Network, kind: str, size: float, devices) -> list[float]:
    """Flat rings, and trees of switches that reduce: an all-reduce among three or more is not two reduce-scatters.

    Like every model that does not say which level it is at when, it occupies the outermost all the time.
    """
    members, worst = len(set(devices)), network.level(devices)
    latency, bandwidth = network.latencies[worst], min(network.bandwidths[: worst + 1])
    if kind == "all_reduce":
        return network.at(worst, 2 * log2(members) * latency + size / bandwidth)
    return network.at(worst, (members - 1) * latency + (members - 1) / members * size / bandwidth)


MODELS = {"alpha-beta": rings, "trees": trees}


def collective(problem: dict, network: Network, kind: str, size: float, groups) -> list[float]:
    """Seconds of one collective in groups that work side by side, then those for which ports of each level are busy.

    The group that takes longest counts, in all and at each level. One member and no bytes cost nothing, whatever the
    model.
    """
    model = MODELS[problem.get("collectives") or "alpha-beta"]
    found = [0.0] * (1 + len(network.capacities))
    for devices in groups if size else ():
        if len(set(devices)) > 1:
            ports = model(network, kind, size, devices)
            found = list(map(max, found, [sum(ports), *ports]))
    return found
