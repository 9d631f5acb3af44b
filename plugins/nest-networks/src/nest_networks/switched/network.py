"""Hosts under switches, or on a grid, to levels; to a graph of links where they are too irregular for levels."""

from collections.abc import Mapping, Sequence

from attrs import evolve

from nest.errors import InputError
from nest.network.graph import MOST_DEVICES, LinkGraph, NetworkBuilder, check_size
from nest.network.imported import Imported
from nest.spec import LevelSpec, LinkProfile
from nest_networks.switched.profiles import USUAL, SourcedProfile, profile_sentences, sourced_profile
from nest_networks.switched.tiers import (
    Layout,
    Partition,
    Tier,
    host_layout,
    inside,
    network_tiers,
    tier_sentences,
    uneven_links,
)
from nest_networks.switched.tree import SwitchTree


def switched_network(
    tree: SwitchTree,
    profile: LinkProfile | None = None,
    *,
    usual: str = USUAL,
    device: str | None = None,
    assumptions: Sequence[str] = (),
    levels_only: bool = False,
) -> Imported:
    """The network of `tree`: levels where its switches have equally many hosts, otherwise a graph.

    Hosts come in the order of the tree. A tier whose switches differ in size is no level; where the tier above offers
    the same it need not be one, and of more devices than a graph may have (`MOST_DEVICES`) its level has the largest
    groups into which every switch divides, so that no pair is promised more than it has.

    `usual`: name of the catalogue's profile that completes it.
    `device`: the accelerator by its name in the catalogue, where the file says.
    `levels_only`: whether a graph will not do.

    Raises:
        InputError: hosts differ in accelerators, or the profile lacks a bandwidth.
    """
    given = evolve(profile or LinkProfile(), device=device) if device is not None else profile
    chosen = sourced_profile(given, usual)
    devices = devices_per_host(tree, chosen)
    sentences = [*assumptions, *profile_sentences(chosen, counted=tree.hosts[0].devices is not None)]
    inner = inside("host", chosen.host, "host", chosen.source("host"))
    tiers = network_tiers(tree, devices, chosen)
    layout = host_layout(tree, tiers, chosen)
    between = [layout.domain] if layout.crossing and layout.domain is not None else []
    used = [inner] * (devices > 1) + between + [each.tier for each in layout.partitions]
    sentences += [*layout.assumptions, *tier_sentences(used)]
    partitions = _useful(layout.partitions)
    uneven = [each for each in partitions if not each.uniform]
    hosts: tuple[str, ...] = tuple(host.name for host in layout.hosts)
    if (uneven or layout.crossing) and not levels_only and devices * len(hosts) <= MOST_DEVICES:
        graph = switch_graph(tree, layout, inner, tiers, devices)
        return Imported(graph, (), device or chosen.device, tuple(sentences), devices)
    sentences += [*uneven_links(tree, devices, tiers), *_uneven(uneven, layout)]
    return Imported(_levels(partitions, inner, devices), hosts, device or chosen.device, tuple(sentences), devices)


def devices_per_host(tree: SwitchTree, profile: SourcedProfile) -> int:
    """Accelerators of every host: those of the file, else the profile's.

    Raises:
        InputError: hosts differ in them.
    """
    first = tree.hosts[0]
    for host in tree.hosts:
        if host.devices != first.devices:
            counts = [f"{each.name!r:.60} has {each.devices or 'an unknown number of'}" for each in (first, host)]
            raise InputError(f"hosts differ in accelerators: {' and '.join(counts)}; keep one type in the file.")
    return first.devices or profile.devices_per_host


def _useful(partitions: Sequence[Partition]) -> list[Partition]:
    """`partitions` without those of uneven groups that the next one serves as well."""
    result: list[Partition] = []
    for each in reversed(partitions):
        if each.uniform or not (result and each.tier.equals(result[-1].tier)):
            result.append(each)
    return result[::-1]


def _levels(partitions: Sequence[Partition], inner: Tier, devices: int) -> tuple[LevelSpec, ...]:
    """Levels of groups that lie inside the groups of `partitions`, as large as they can be."""
    levels = [inner.spec(devices)] if devices > 1 else []
    size = 1
    for index, each in enumerate(partitions):
        if each.even == size:
            continue
        fanout, size = each.even // size, each.even
        if index == 0 and levels and each.tier.equals(inner):  # One switch of NVLink joins all: one level.
            levels = [each.tier.spec(devices * fanout)]
        else:
            levels.append(each.tier.spec(fanout))
    return tuple(levels) or (inner.spec(1),)


def _uneven(uneven: Sequence[Partition], layout: Layout) -> list[str]:
    """Notes on groups of different sizes."""
    sentences = [
        f"Groups of {min(each.sizes)} to {max(each.sizes)} hosts ({each.tier.name}) become groups of {each.even}; "
        "other pairs use the next level."
        for each in uneven
    ]
    if layout.crossing:
        sentences.append("NVLink domains and switches cross; nest treats the domains as part of the network.")
    return sentences


def switch_graph(tree: SwitchTree, layout: Layout, inner: Tier, tiers: Sequence[Tier], devices: int) -> LinkGraph:
    """The network of `tree` by its links: what a link carries is what each accelerator behind it gets.

    Two accelerators have between them the bandwidth and the latency of the tier where they meet; links from hosts and
    switches take half of what their tier adds to the latency.

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


Point = tuple[int, ...]


def host_grid(
    shape: Sequence[int], hosts: Mapping[Point, str], profile: LinkProfile | None, assumptions: Sequence[str] = ()
) -> Imported:
    """Hosts joined to the next ones along every dimension, the last to the first.

    Each accelerator has a link to the one of its number in each neighbour, with what the profile's first tier offers an
    accelerator; between accelerators that are farther apart the link is the narrowest of the way.

    `hosts`: name of the host at each point that has one.

    Raises:
        InputError: there are too many accelerators, or hosts that others cannot reach.
    """
    chosen = sourced_profile(profile)
    devices = chosen.devices_per_host
    inner = inside("host", chosen.host, "host", chosen.source("host"))
    outer = inside("neighbour", chosen.tiers[0], "tiers[0]", chosen.source("tiers"))
    sentences = [*assumptions, *profile_sentences(chosen), *tier_sentences([*[inner] * (devices > 1), outer])]
    check_size(devices * len(hosts), (devices + 1) * len(hosts), devices * len(hosts) * (len(shape) + 1))
    network = NetworkBuilder()
    names: set[str] = set()
    numbers: dict[Point, list[int]] = {}
    for point, name in hosts.items():
        if name in names:
            raise InputError(f"host {name!r:.60} appears twice; list it once.")
        names.add(name)
        numbers[point] = [network.device(f"{name}.{index}") for index in range(devices)]
        if devices > 1:
            middle = network.switch(f"inside {name}")
            for each in numbers[point]:
                network.link(each, middle, inner.level.bandwidth, inner.level.latency / 2)
    for point, own in numbers.items():
        for dimension, length in enumerate(shape):
            place = (point[dimension] + 1) % length
            following = (*point[:dimension], place, *point[dimension + 1 :])
            if following in numbers and (place > point[dimension] or length > 2):
                for one, two in zip(own, numbers[following], strict=True):
                    network.link(one, two, outer.level.bandwidth, outer.level.latency)
    return Imported(network.built(), (), chosen.device, tuple(sentences), devices)
