"""Fat trees: k-ary of equal switches (Al-Fares et al., SIGCOMM 2008), or tier by tier (Leiserson, 1985)."""

from collections.abc import Sequence
from math import prod

from nest.network.graph import LinkGraph, NetworkBuilder, check_size
from nest.spec import FatTreeSpec
from nest.topologies.parametric import ParametricNetwork


def _fat_tree(source: FatTreeSpec) -> LinkGraph:
    if source.k is not None:
        return _of_switches(source.k, source)
    return _by_tiers(source.fanout or (), source)


def _of_switches(k: int, source: FatTreeSpec) -> LinkGraph:
    """`k` pods of `k/2` edge and `k/2` aggregation switches, `(k/2)**2` core switches, `k/2` devices at an edge switch.

    Oversubscribed links between switches are slower by the ratio, as if there were fewer.
    """
    half = k // 2
    check_size(k * half * half, k * half * half + k * k + half * half, 3 * k * half * half)
    ratio = _ratios(source.oversubscription, 2)
    upper = source.bandwidth / ratio[0], source.latency
    top = source.bandwidth / ratio[0] / ratio[1], source.latency
    network = NetworkBuilder()
    for device in range(k * half * half):
        network.device(str(device))
    core = [[network.switch(f"core {row}.{column}") for column in range(half)] for row in range(half)]
    for pod in range(k):
        edges = [network.switch(f"edge {pod}.{index}") for index in range(half)]
        middle = [network.switch(f"aggregation {pod}.{index}") for index in range(half)]
        for index, edge in enumerate(edges):
            first = (pod * half + index) * half
            for device in range(first, first + half):
                network.link(device, edge, source.bandwidth, source.latency)
            for switch in middle:
                network.link(edge, switch, *upper)
        for row, switch in zip(core, middle, strict=True):
            for root in row:
                network.link(switch, root, *top)
    return network.built()


def _by_tiers(fanout: Sequence[int], source: FatTreeSpec) -> LinkGraph:
    """A tree whose links carry what all devices below send, divided by the oversubscription of the tiers below."""
    devices = prod(fanout)
    check_size(devices, 2 * devices, 2 * devices)
    ratio = _ratios(source.oversubscription, len(fanout) - 1)
    network = NetworkBuilder()
    below = [network.device(str(device)) for device in range(devices)]
    bandwidth = float(source.bandwidth)
    for tier, children in enumerate(fanout):
        parents = [network.switch(f"tier {tier}.{index}") for index in range(len(below) // children)]
        for index, child in enumerate(below):
            network.link(child, parents[index // children], bandwidth, source.latency)
        if tier < len(ratio):
            bandwidth = bandwidth * children / ratio[tier]
        below = parents
    return network.built()


def _ratios(written: Sequence[float], tiers: int) -> list[float]:
    """Oversubscription of each tier below the top; 1 where left out."""
    return [*written, *[1.0] * (tiers - len(written))]


importer = ParametricNetwork("fat-tree", FatTreeSpec, _fat_tree)
