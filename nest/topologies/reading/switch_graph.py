"""Switches with hosts as a graph of links."""

from collections.abc import Sequence

from nest.network.builder import NetworkBuilder
from nest.network.graph import LinkGraph
from nest.topologies.reading.layout import Layout
from nest.topologies.reading.switch_tree import SwitchTree
from nest.topologies.reading.tiers import Tier


def switch_graph(tree: SwitchTree, layout: Layout, inner: Tier, tiers: Sequence[Tier], devices: int) -> LinkGraph:
    """The network of `tree` by its links: what a link carries is what each accelerator behind it gets.

    Two accelerators have between them the bandwidth and the latency of the tier where they meet; links from hosts and
    switches take half of what their tier adds to the latency.

    Args:
        tree: the switches.
        layout: the hosts in order.
        inner: the links inside a host.
        tiers: what each height of switches offers, lowest first.
        devices: accelerators of each host.

    Raises:
        InputError: it has too many devices or switches, or fewer than two devices.
    """
    network = NetworkBuilder()
    levels = [tier.level for tier in tiers]
    reached = [level.bandwidth / tier.bandwidth for level, tier in zip(levels, tiers, strict=True)]
    switches = {name: network.switch(f"switch {name}") for name in tree.counts}
    domains: dict[str, int] = {}
    host_level = inner.level
    for host in layout.hosts:
        accelerators = [network.device(f"{host.name}.{index}") for index in range(devices)]
        above = levels[tree.heights[host.switch] - 1]
        bandwidth = levels[0].bandwidth if host.bandwidth is None else reached[0] * host.bandwidth / devices
        for each in accelerators:
            network.link(each, switches[host.switch], bandwidth, above.latency / 2)
        if devices > 1:
            inside = network.switch(f"inside {host.name}")
            for each in accelerators:
                network.link(each, inside, host_level.bandwidth, host_level.latency / 2)
        if layout.domain is not None and host.domain is not None:
            domain = layout.domain.level
            if host.domain not in domains:
                domains[host.domain] = network.switch(f"domain {host.domain}")
            for each in accelerators:
                network.link(each, domains[host.domain], domain.bandwidth, domain.latency / 2)
    for name, parent in tree.parents.items():
        if name in switches:
            upper, lower = (tree.heights[each] - 1 for each in (parent, name))
            bandwidth = levels[upper].bandwidth
            if name in tree.uplinks:
                bandwidth = reached[upper] * tree.uplinks[name] / (devices * tree.counts[name])
            latency = (levels[upper].latency - levels[lower].latency) / 2
            network.link(switches[name], switches[parent], bandwidth, latency)
    return network.built(shared=False)
