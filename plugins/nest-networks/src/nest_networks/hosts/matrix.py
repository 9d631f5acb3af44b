"""Machines of which the kind of connection of every two GPUs is known, as tools of drivers print it."""

import re
from collections import Counter
from collections.abc import Mapping
from itertools import combinations

from attrs import evolve, frozen

from nest.catalogue import link
from nest.errors import InputError
from nest.network.graph import components
from nest.spec import LinkProfile, TierSpec
from nest.units import percent
from nest_networks.hosts.hardware import (
    NVLINKS,
    PCI_LINK,
    UNKNOWN_PROCESSOR,
    USUAL_CAPABILITY,
    Fabric,
    capability,
    nvlink,
    own_link,
    pci_reached,
    slot_bandwidth,
)
from nest_networks.hosts.network import Bus, Machine
from nest_networks.switched.profiles import nominal_bandwidth

NEAREST = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Paths over PCI Express, nearest first."""

MOST_LINKS = 18
"""NVLinks of a GPU that has direct ones: 18 of Hopper; later GPUs in servers are joined by switches."""

_NVLINKS = re.compile(r"NV([1-9]\d{0,2})")


@frozen
class Connections:
    """Kinds of connection.

    Attributes:
        names: of the GPUs.
        kinds: of every two of them, by their places in `names`, the smaller first: NV and a number of direct links, or
            one of `NEAREST`.
        fabric: what the direct links are; None: NVLink, of the profile's device.
        cards: cards that the GPUs are partitions of, equally many of each; None: they are whole.
    """

    names: tuple[str, ...]
    kinds: Mapping[tuple[int, int], str]
    fabric: Fabric | None = None
    cards: int | None = None


def machine(connections: Connections, profile: LinkProfile | None, notes: list[str]) -> Machine:
    """The machine with such connections; sentences on what was assumed are added to `notes`.

    Raises:
        InputError: a connection is missing, or of a kind that is not known.
    """
    names, kinds = connections.names, connections.kinds
    unknown = next((kind for kind in kinds.values() if kind not in NEAREST and not _NVLINKS.fullmatch(kind)), None)
    if unknown is not None:
        raise InputError(f"a connection is {unknown!r:.20}; known are NV and a number above 0, {', '.join(NEAREST)}.")
    for two in range(len(names)):
        for one in range(two):
            if (one, two) not in kinds:
                raise InputError(f"the matrix has no connection of {names[one]} and {names[two]}; import all of it.")
    links = {pair: int(match[1]) for pair, kind in kinds.items() if (match := _NVLINKS.fullmatch(kind))}
    device = None if profile is None else profile.device
    switched = _switched(len(names), links)
    profiled = profile is not None and profile.host is not None
    fabric = (connections.fabric or _fabric(device, [] if profiled else notes)) if links else None
    if fabric is not None and connections.cards is not None:  # Links lead from card to card, and partitions share them.
        fabric = evolve(fabric, rate=fabric.rate * connections.cards / len(names))
        links, switched = {}, dict.fromkeys(range(len(names)), (0, connections.cards - 1))
    if fabric is not None and profile is not None and profile.host is not None:
        ends = Counter(gpu for pair, count in links.items() for gpu in pair for _ in range(count))
        most = max((count for _, count in switched.values()), default=0) or max(ends.values())
        fabric = _as_profiled(fabric, profile.host, most, notes)
    own = None if device is None else own_link(device)
    cards = profile is not None and profile.host is not None and (profile.host.link or "").startswith("pcie")
    if own is not None and not links and len(names) > 1 and not cards:
        label = "NVLink" if own.startswith("nvlink") else "Infinity Fabric"
        notes.append(f"the matrix has no {label}, which {device} has: a fault of the machine, or cards of this name.")
    rests_on: list[str] = []
    buses = _buses(connections, device, profile, rests_on)
    return Machine(
        devices=names,
        fabric=fabric,
        bundles={pair: count for pair, count in links.items() if pair[0] not in switched},
        switched=switched,
        buses=buses,
        assumed_of_buses=tuple(rests_on),
    )


def _switched(count: int, links: Mapping[tuple[int, int], int]) -> dict[int, tuple[int, int]]:
    """For the GPUs that switches join, the switch and their links to it.

    Where a GPU seems to have more links than any has, the same links lead to all its peers: over a switch.
    """
    switches = {}
    for number, group in enumerate(components(range(count), links)):
        each = {
            gpu: [links[pair] for pair in links if gpu in pair and pair[0] in group and pair[1] in group]
            for gpu in group
        }
        if any(sum(counts) > MOST_LINKS for counts in each.values()):
            switches.update({gpu: (number, max(counts)) for gpu, counts in each.items()})
    return switches


def _as_profiled(fabric: Fabric, host: TierSpec, links: int, notes: list[str]) -> Fabric:
    """`fabric` with what the link profile says of a host: of all `links` of a device together."""
    bandwidth, own = nominal_bandwidth(host, "host") / host.oversubscription, None
    if host.link is not None and host.bandwidth in (None, link(host.link).bandwidth):
        own = next((rate for _, name, rate in NVLINKS if name == host.link), None)
    rate = own or bandwidth / links
    if rate == fabric.rate and host.link in (None, fabric.link):
        return fabric
    notes.append(f"one {fabric.label} link has {rate / 1e9:.4g} GB/s per direction: the link profile's `host`.")
    return Fabric(fabric.label, host.link or fabric.link, rate)


def _fabric(device: str | None, notes: list[str]) -> Fabric:
    known = capability(device)
    fabric = nvlink(USUAL_CAPABILITY if known is None else known)
    if known is None:
        notes.append(
            f"the file has no NVLink speed; assuming {fabric.rate / 1e9:g} GB/s per direction (NVLink 2 to "
            f"4). For NVLink 5 ({nvlink(100).rate / 1e9:g}), name the device in a link profile."
        )
        return evolve(fabric, link="nvlink")
    notes.append(
        f"one NVLink of {device} has {fabric.rate / 1e9:g} GB/s per direction ({fabric.link} of the catalogue)."
    )
    return fabric


def _buses(
    connections: Connections, device: str | None, profile: LinkProfile | None, notes: list[str]
) -> tuple[Bus, ...]:
    """A tree of PCI Express over the GPUs, and the processors with paths between every two of them."""
    kinds, count = connections.kinds, len(connections.names)
    host = None if profile is None else profile.host
    if host is not None and (host.link is None or host.link.startswith("pcie")):
        bandwidth = pci_reached(nominal_bandwidth(host, "host"))
        notes.append(f"messages reach {bandwidth / 1e9:.4g} GB/s of PCI Express: the link profile's `host`.")
    else:
        bandwidth = _pci(device, notes)
    above = list(connections.names)  # The bridge or processor that each GPU has reached.
    buses: list[Bus] = []

    def join(group: list[int], name: str) -> None:
        for below in dict.fromkeys(above[gpu] for gpu in group):
            buses.append(Bus(below, name, bandwidth))
        for gpu in group:
            above[gpu] = name

    for most, label in (("PIX", "PCI switch"), ("PXB", "PCI switches")):
        near = NEAREST[: NEAREST.index(most) + 1]
        for group in components(range(count), [pair for pair, kind in kinds.items() if kind in near]):
            if len({above[gpu] for gpu in group}) > 1:
                join(group, f"{label} of {connections.names[group[0]]}")
    alike = [pair for pair, kind in kinds.items() if kind in NEAREST[:-1] or _alike(pair, kinds, count)]
    processors = []
    for group in components(range(count), alike):
        processors.append(f"processor of {connections.names[group[0]]}")
        join(group, processors[-1])
    if len(processors) > 1:
        notes.append(
            f"the file has no speed of links between processors; assuming {UNKNOWN_PROCESSOR / 1e9:g} GB/s "
            "per direction, NCCL's value for Intel's of 2017 to 2022."
        )
    buses += [Bus(one, two, UNKNOWN_PROCESSOR) for one, two in combinations(processors, 2)]
    return tuple(buses)


def _alike(pair: tuple[int, int], kinds: Mapping[tuple[int, int], str], count: int) -> bool:
    """Whether two GPUs are joined by NVLink and to every third alike: then they are assumed to share a processor."""
    if kinds[pair] in NEAREST:
        return False
    one, two = pair
    return all(
        kinds[min(one, other), max(one, other)] == kinds[min(two, other), max(two, other)]
        for other in range(count)
        if other not in pair
    )


def _pci(device: str | None, notes: list[str]) -> float:
    """Bytes per second and direction that messages reach on the PCI Express of one GPU."""
    nominal = slot_bandwidth(device)
    whose = f"as the catalogue has of {device}"
    if nominal is None:
        nominal = link(PCI_LINK).bandwidth
        whose = f"{PCI_LINK} of the catalogue"
        assert nominal is not None  # The library has it.
    bandwidth = pci_reached(nominal)
    notes.append(
        f"the file has no PCI Express speed; assuming {nominal / 1e9:g} GB/s per direction ({whose}), of "
        f"which messages reach {percent(bandwidth / nominal, 0)}."
    )
    return bandwidth
