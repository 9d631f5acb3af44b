"""Dragonflies (Kim, Dally, Scott and Abts, "Technology-driven, highly-scalable dragonfly topology", ISCA 2008)."""

from itertools import combinations

from nest.network.graph import LinkGraph, NetworkBuilder, check_size
from nest.spec import DragonflySpec
from nest.topologies.parametric import ParametricNetwork


def _dragonfly(source: DragonflySpec) -> LinkGraph:
    """Devices `group.router.device`, routers and links.

    The `a * h` links of a group to others are spread evenly; those that do not come out even stay unused.
    """
    groups = source.a * source.h + 1 if source.groups is None else source.groups
    routers = groups * source.a
    check_size(routers * source.p, routers * (source.p + 1), routers * (source.p + source.a + source.h))
    network = NetworkBuilder()
    names = [(group, router) for group in range(groups) for router in range(source.a)]
    for group, router in names:
        for device in range(source.p):
            network.device(f"{group}.{router}.{device}")
    switches = [network.switch(f"router {group}.{router}") for group, router in names]
    for index, switch in enumerate(switches):
        for device in range(source.p):
            network.link(index * source.p + device, switch, source.bandwidth, source.latency)
    _link_groups(network, source, switches, groups)
    return network.built()


def _link_groups(network: NetworkBuilder, source: DragonflySpec, switches: list[int], groups: int) -> None:
    """Links between the routers of a group, and between groups."""
    local = _first(source.local_bandwidth, source.bandwidth), _first(source.local_latency, source.latency)
    remote = _first(source.global_bandwidth, source.bandwidth), _first(source.global_latency, source.latency)
    for group in range(groups):
        members = switches[group * source.a : (group + 1) * source.a]
        for one, two in combinations(members, 2):
            network.link(one, two, *local)
    others = groups - 1
    rounds = source.a * source.h // others if others else 0
    for group in range(groups):
        for turn in range(rounds):
            for step in range(others):
                other = (group + step + 1) % groups
                if group < other:  # The other end of port `step` is port `others - 1 - step` of the other group.
                    port, back = turn * others + step, turn * others + others - 1 - step
                    one = switches[group * source.a + port // source.h]
                    network.link(one, switches[other * source.a + back // source.h], *remote)


def _first(own: float | None, usual: float) -> float:
    return usual if own is None else own


importer = ParametricNetwork("dragonfly", DragonflySpec, _dragonfly)
