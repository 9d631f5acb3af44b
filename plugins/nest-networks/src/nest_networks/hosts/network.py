"""One machine as its file describes it, and its network: one level where its devices are joined alike, else a graph."""

from collections import Counter
from collections.abc import Mapping, Sequence

from attrs import evolve, field, frozen

from nest.errors import InputError
from nest.network.graph import LinkGraph, NetworkBuilder, check_size, components
from nest.network.imported import Imported
from nest.spec import LevelSpec, LinkProfile, TierSpec
from nest.units import BytesPerSecond, percent
from nest_networks.hosts.hardware import PCI_LINK, Fabric, reached
from nest_networks.switched.profiles import nominal_bandwidth, sourced_profile


@frozen
class Bus:
    """A path of PCI Express, or between the processors of a machine.

    Attributes:
        one: a device by its name, or a bridge or processor.
        two: likewise.
        bandwidth: bytes per second and direction that messages reach.
    """

    one: str
    two: str
    bandwidth: float


@frozen
class Machine:
    """Devices and everything that joins them.

    Attributes:
        devices: their names, in the order in which frameworks count them.
        fabric: the kind of `bundles` and `switched`; None: the file has none of both.
        bundles: direct links of two devices, by their places in `devices`, the smaller first.
        switched: for devices at a switch of the fabric, by their places, the number of the switch and their links to
            it.
        buses: PCI Express and processors; may be left out where direct links join all devices.
        assumed_of_buses: what `buses` rest on and the file does not say, one sentence each.
        complete: whether the file says of every link that joins the devices; if not, there may be direct links.
        usual_link: link of the catalogue that joins such devices in a machine; None: it is not known what they are.
        cards: whether the devices are known to be cards, which PCI Express alone may join.
        hosts: for each device, the number of its machine, where a file has several that share a fabric; empty: one.
        device: the accelerator by its name in the catalogue; None: the file does not say, or the catalogue has none.
        nics: the NICs' share of each device; None: the file has no rates.
    """

    devices: tuple[str, ...]
    fabric: Fabric | None = None
    bundles: Mapping[tuple[int, int], int] = field(factory=dict)
    switched: Mapping[int, tuple[int, int]] = field(factory=dict)
    buses: tuple[Bus, ...] = ()
    assumed_of_buses: tuple[str, ...] = ()
    complete: bool = True
    usual_link: str | None = None
    cards: bool = False
    hosts: tuple[int, ...] = ()
    device: str | None = None
    nics: TierSpec | None = None

    @property
    def devices_per_host(self) -> int | None:
        """Devices of one machine; None: the machines of the file have not equally many, side by side."""
        count = self.hosts.count(self.hosts[0]) if self.hosts else len(self.devices)
        even = all(len(set(self.hosts[at : at + count])) == 1 for at in range(0, len(self.hosts), count))
        return count if even and len(self.devices) % count == 0 else None


Links = list[tuple[str, str, float, float]]
"""Two names, bytes per second and direction that messages reach, and seconds, of each link."""

NODE = "node"
"""Name of the level inside a machine."""


def host_network(machine: Machine, profile: LinkProfile | None, assumptions: Sequence[str]) -> Imported:
    """The network of `machine`.

    Devices that a switch of the fabric joins, or direct links of equal number between every two, are one level, whose
    bandwidth counts all links of a device together: collectives use them all at once. Otherwise the network is a
    graph: of the direct links, where they join all devices, else with PCI Express and the processors besides.

    Raises:
        InputError: nothing joins its devices, or there are too many.
    """
    check_size(len(machine.devices), len(machine.devices), len(machine.bundles))
    notes = list(assumptions)
    _tell_unlinked(machine, notes)
    machine = _with_meshes(machine, notes)
    level = _level(machine, notes) if machine.complete else _completed(machine, profile, notes)
    return Imported(
        network=_graph(machine, notes) if level is None else (level,),
        device=machine.device or (None if profile is None else profile.device),
        assumptions=tuple(notes),
        devices_per_host=machine.devices_per_host,
        adapters=machine.nics,
    )


def _tell_unlinked(machine: Machine, notes: list[str]) -> None:
    """Tell of devices without direct links where most have some."""
    linked = {*machine.switched, *(device for pair in machine.bundles for device in pair)}
    bare = [name for place, name in enumerate(machine.devices) if place not in linked]
    if machine.fabric is not None and 0 < len(bare) < len(linked):
        notes.append(
            f"{', '.join(bare)} {'has' if len(bare) == 1 else 'have'} no {machine.fabric.label}, the other "
            f"{len(linked)} devices do: a fault of the machine. Repair it, or plan without "
            f"{'it' if len(bare) == 1 else 'them'}."
        )


def _with_meshes(machine: Machine, notes: list[str]) -> Machine:
    """Devices with equally many direct links to each other and to no others, as devices at a switch."""
    switched, bundles = dict(machine.switched), dict(machine.bundles)
    free = 1 + max((number for number, _ in switched.values()), default=-1)
    for number, group in enumerate(components(range(len(machine.devices)), bundles), free):
        inside = [pair for pair in bundles if pair[0] in group]
        counts = {bundles[pair] for pair in inside}
        if len(counts) > 1 or len(inside) < len(group) * (len(group) - 1) // 2 or len(group) < 2:
            continue
        if any(device in machine.switched for device in group):
            continue
        links = counts.pop() * (len(group) - 1)
        switched.update(dict.fromkeys(group, (number, links)))
        for pair in inside:
            del bundles[pair]
        if len(group) > 2 and machine.fabric is not None:
            sentence = (
                f"treating the {links} {machine.fabric.label} links of a device to {len(group) - 1} others as one: "
                f"collectives use all at once, a pair uses {links // (len(group) - 1)}."
            )
            if sentence not in notes:
                notes.append(sentence)
    return evolve(machine, switched=switched, bundles=bundles)


def _level(machine: Machine, notes: list[str]) -> LevelSpec | None:
    """The one level of a machine whose devices are joined alike; None: they are not."""
    count, fabric = len(machine.devices), machine.fabric
    if count == 1:
        return LevelSpec(1, name=NODE, link=PCI_LINK)
    switches = {number for number, _ in machine.switched.values()}
    if fabric is None or machine.bundles or len(machine.switched) < count or len(switches) > 1:
        return None
    fewest, most = (choice(links for _, links in machine.switched.values()) for choice in (min, max))
    if fewest < most:
        notes.append(
            f"the devices have {fewest} to {most} {fabric.label} links to the switch; assuming {fewest} for all."
        )
    return LevelSpec(count, BytesPerSecond(fewest * fabric.rate), name=NODE, link=fabric.link)


def _completed(machine: Machine, profile: LinkProfile | None, notes: list[str]) -> LevelSpec | None:
    """The level of a machine whose file says nothing of direct links, by the profile, or by its devices.

    Raises:
        InputError: neither is known: PCI Express alone would be a twentieth of what joins most machines.
    """
    count = len(machine.devices)
    if profile is not None and (
        profile.host is not None or (machine.usual_link is None and profile.device is not None)
    ):
        tier = sourced_profile(profile).host
        notes.append(f"the file has no direct links; using the link profile's for the {count} devices.")
        bandwidth = nominal_bandwidth(tier, "host") / tier.oversubscription
        return LevelSpec(count, BytesPerSecond(bandwidth), tier.latency, NODE, tier.link)
    if machine.usual_link is not None:
        notes.append(f"the file has no direct links; assuming {machine.usual_link} between the {count} devices.")
        return LevelSpec(count, name=NODE, link=machine.usual_link)
    if count > 1 and not machine.cards:
        raise InputError(
            "the file has no direct links, such as NVLink, and no device names; name a link profile such as "
            "`h100-ndr` (`nest topology profiles`), one with `host: {link: pcie4}` where PCI Express alone joins "
            "them, or import the file that NCCL_TOPO_DUMP_FILE writes on such a machine."
        )
    return _level(machine, notes)


def _graph(machine: Machine, notes: list[str]) -> LinkGraph:
    """The graph of direct links; with PCI Express and the processors where those do not join all devices."""
    if not machine.devices:
        raise InputError("the file has no devices; import the whole output of one machine.")
    links = [] if machine.fabric is None else _fabric_links(machine, machine.fabric, notes)
    if not _joined(machine.devices, links):
        links += _bus_links(machine)
        notes += machine.assumed_of_buses
        if not _joined(machine.devices, links):
            raise InputError(
                f"the file has {len(machine.devices)} devices but no links between all of them; import the whole "
                "output of one machine."
            )
    builder = NetworkBuilder()
    places = {name: builder.device(name) for name in machine.devices}
    for one, two, bandwidth, latency in links:
        for name in (one, two):
            if name not in places:
                places[name] = builder.switch(name)
        builder.link(places[one], places[two], bandwidth, latency)
    return builder.built()


def _fabric_links(machine: Machine, fabric: Fabric, notes: list[str]) -> Links:
    efficiency, latency = reached(fabric.link)
    notes.append(
        f"messages reach {percent(efficiency, 0)} of the {fabric.rate / 1e9:g} GB/s of a {fabric.label} link, as on "
        f"{fabric.link}."
    )
    names = machine.devices
    links = [
        (names[one], names[two], count * fabric.rate * efficiency, latency)
        for (one, two), count in machine.bundles.items()
    ]
    if machine.bundles:
        notes.append(
            "devices without a direct link use others' links; nest prices each level by its slowest pair, although "
            "NCCL's rings use all links."
        )
    for place, (number, count) in machine.switched.items():
        switch = f"{fabric.label} switch {number}"
        links.append((names[place], switch, count * fabric.rate * efficiency, latency / 2))
    return links


def _bus_links(machine: Machine) -> Links:
    """Paths of PCI Express that lead to devices: what ends at a bridge or a processor is left out."""
    devices, buses = set(machine.devices), list(machine.buses)
    while True:
        ends = Counter(name for bus in buses for name in (bus.one, bus.two))
        crossed = [bus for bus in buses if all(ends[name] > 1 or name in devices for name in (bus.one, bus.two))]
        if len(crossed) == len(buses):
            break
        buses = crossed
    half = reached(PCI_LINK)[1] / 2
    return [(bus.one, bus.two, bus.bandwidth, half if {bus.one, bus.two} & devices else 0.0) for bus in buses]


def _joined(devices: Sequence[str], links: Links) -> bool:
    """Return whether `links` join all devices."""
    ends = [link[:2] for link in links]
    nodes = dict.fromkeys([*devices, *(name for pair in ends for name in pair)])
    return set(components(nodes, ends)[0]).issuperset(devices)
