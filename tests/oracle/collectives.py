"""The collective model of section 1, a hook: the rings of the page, and a made-up model that tells readings apart."""

from math import log2

from tests.oracle.network import Network


def rings(network: Network, kind: str, size: float, devices) -> tuple[list[float], float]:
    """The model of the page: an all-reduce is a reduce-scatter and an all-gather."""
    phases = 2 if kind == "all_reduce" else 1
    ports, latency = network.ring(size, devices)
    return [phases * seconds for seconds in ports], phases * latency


def trees(network: Network, kind: str, size: float, devices) -> tuple[list[float], float]:
    """Flat rings, and trees of switches that reduce: an all-reduce among three or more is not two reduce-scatters.

    Like every model that does not say which level it is at when, it occupies the outermost all the time.
    """
    members, worst = len(set(devices)), network.level(devices)
    latency, bandwidth = network.latencies[worst], min(network.bandwidths[: worst + 1])
    if kind == "all_reduce":
        once = 2 * log2(members) * latency
        return network.at(worst, once + size / bandwidth), once
    once = (members - 1) * latency
    return network.at(worst, once + (members - 1) / members * size / bandwidth), once


MODELS = {"alpha-beta": rings, "trees": trees}


def collective(problem: dict, network: Network, kind: str, size: float, groups) -> list[float]:
    """Seconds of one collective in groups that work side by side, its latencies, the seconds each level's port is busy.

    The group that takes longest counts, in all and at each level; the latencies are those of the longest in all. One
    member and no bytes cost nothing, whatever the model.
    """
    model = MODELS[problem.get("collectives") or "alpha-beta"]
    seconds, latency, busy = 0.0, 0.0, [0.0] * len(network.capacities)
    for devices in groups if size else ():
        if len(set(devices)) > 1:
            ports, once = model(network, kind, size, devices)
            seconds, latency = max((seconds, latency), (sum(ports), once))
            busy = list(map(max, busy, ports))
    return [seconds, latency, *busy]
