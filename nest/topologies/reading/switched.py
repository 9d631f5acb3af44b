"""Switches with hosts to levels, or to a graph where they are too irregular for levels."""

from collections.abc import Sequence

from attrs import evolve

from nest.errors import InputError
from nest.network.graph import MOST_DEVICES
from nest.network.imported import Imported
from nest.spec import LevelSpec, LinkProfile
from nest.topologies.reading.layout import Layout, Partition, laid_out
from nest.topologies.reading.profiles import USUAL, Completed, sourced, taken
from nest.topologies.reading.switch_graph import switch_graph
from nest.topologies.reading.switch_tree import SwitchTree
from nest.topologies.reading.tiers import Tier, inside, network_tiers, told, uneven_links


def switched(
    tree: SwitchTree,
    profile: LinkProfile | None = None,
    *,
    usual: str = USUAL,
    device: str | None = None,
    assumptions: Sequence[str] = (),
) -> Imported:
    """The network of `tree`: levels where its switches have equally many hosts, otherwise a graph.

    Hosts come in the order of the tree. A tier whose switches differ in size is no level; where the tier above offers
    the same it need not be one, and of more devices than a graph may have (`MOST_DEVICES`) its level has the largest
    groups into which every switch divides, so that no pair is promised more than it has.

    Args:
        tree: the switches and hosts.
        profile: what the user gives for what the file leaves out; None: nothing.
        usual: name of the catalogue's profile that completes it.
        device: the accelerator by its name in the catalogue, where the file says.
        assumptions: what the importer itself took for granted.

    Raises:
        InputError: hosts differ in accelerators, or the profile lacks a bandwidth.
    """
    given = evolve(profile or LinkProfile(), device=device) if device is not None else profile
    chosen = sourced(given, usual)
    devices = _devices_per_host(tree, chosen)
    sentences = [*assumptions, *taken(chosen, counted=tree.hosts[0].devices is not None)]
    inner = inside("host", chosen.host, "host", chosen.source("host"))
    tiers = network_tiers(tree, devices, chosen)
    layout = laid_out(tree, tiers, chosen)
    between = [layout.domain] if layout.crossing and layout.domain is not None else []
    used = [inner] * (devices > 1) + between + [each.tier for each in layout.partitions]
    sentences += [*layout.assumptions, *told(used)]
    kept = _kept(layout.partitions)
    uneven = [each for each in kept if not each.uniform]
    hosts: tuple[str, ...] = tuple(host.name for host in layout.hosts)
    if (uneven or layout.crossing) and devices * len(hosts) <= MOST_DEVICES:
        graph = switch_graph(tree, layout, inner, tiers, devices)
        return Imported(graph, (), device or chosen.device, tuple(sentences), devices)
    sentences += [*uneven_links(tree, devices, tiers), *_uneven(uneven, layout)]
    return Imported(_levels(kept, inner, devices), hosts, device or chosen.device, tuple(sentences), devices)


def _devices_per_host(tree: SwitchTree, profile: Completed) -> int:
    """Accelerators of every host: those of the file, else the profile's.

    Raises:
        InputError: hosts differ in them.
    """
    first = tree.hosts[0]
    for host in tree.hosts:
        if host.devices != first.devices:
            counts = [f"{each.name!r:.60} has {each.devices or 'an unknown number of'}" for each in (first, host)]
            raise InputError(
                f"hosts differ in accelerators: {' and '.join(counts)}; plan hosts of one kind at a time, and leave "
                "the others out of the file."
            )
    return first.devices or profile.devices_per_host


def _kept(partitions: Sequence[Partition]) -> list[Partition]:
    """`partitions` without those of uneven groups that the next one serves as well."""
    kept: list[Partition] = []
    for each in reversed(partitions):
        if each.uniform or not (kept and each.tier.equals(kept[-1].tier)):
            kept.append(each)
    return kept[::-1]


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
    """What became of groups of different sizes."""
    found = [
        f"Groups of {min(each.sizes)} to {max(each.sizes)} hosts ({each.tier.name}) are planned as groups of "
        f"{each.even}, which lie inside them; other pairs are taken to be as far apart as the next level says."
        for each in uneven
    ]
    if layout.crossing:
        found.append(
            "NVLink domains and switches cross each other, so that domains are planned as part of the network."
        )
    return found
