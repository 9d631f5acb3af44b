"""Contents of NCCL's XML of a system: processors, PCI devices, accelerators, and the NICs' share for each."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import Factory, define, frozen

from nest.errors import InputError
from nest.spec import TierSpec
from nest.units import BytesPerSecond
from nest_networks.hosts.hardware import AMAZON, pci_nominal, pci_rate, pci_width

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


DEEPEST = 64
"""Elements inside each other; a path from a processor to a device has fewer than ten."""

Attributes = Mapping[str, str]


@frozen
class Place:
    """Place in the tree.

    Attributes:
        host: number of the machine; files of several machines joined by NVLink have several.
        above: name of the bridge or processor above.
        pci: attributes of its own PCI device; None: it is attached to a processor.
    """

    host: int
    above: str
    pci: Attributes | None = None


@frozen
class Accelerator:
    """A GPU.

    Attributes:
        place: where it hangs.
        attributes: of its `gpu`; None: only its PCI class tells what it is.
        links: attributes of its `nvlink` or `xgmi`.
        chip_links: attributes of its `c2c`, links to the processor.
    """

    place: Place
    attributes: Attributes | None = None
    links: tuple[Attributes, ...] = ()
    chip_links: tuple[Attributes, ...] = ()


@define
class System:
    """Everything a file lists, in its order.

    Attributes:
        processors: host, name and attributes of each.
        bridges: PCI bridges by where they hang; the name of one is its bus number.
        accelerators: with a `gpu`, or told by their class.
        unclassified: PCI devices without class and content.
        nics: where each `net` hangs, with its attributes.
    """

    processors: list[tuple[int, str, Attributes]] = Factory(list)
    bridges: list[tuple[str, Place]] = Factory(list)
    accelerators: list[Accelerator] = Factory(list)
    unclassified: list[Place] = Factory(list)
    nics: list[tuple[Place, Attributes]] = Factory(list)


def read_system(root: "Element") -> System:
    """The system that the element `system` describes.

    Raises:
        InputError: it is nested too deeply.
    """
    system, hosts = System(), dict[str, int]()
    for element in root:
        if element.tag == "cpu":
            host = hosts.setdefault(element.get("host_hash", ""), len(hosts))
            name = f"processor {len(system.processors)}"
            system.processors.append((host, name, element.attrib))
            for child in element:
                _read(child, Place(host, name), system)
    cards = [each for each in system.accelerators if each.attributes is not None]
    system.accelerators = cards or _without_displays(system.accelerators)
    return system


def _without_displays(accelerators: list[Accelerator]) -> list[Accelerator]:
    """Those that compute: beside 3D controllers (PCI class 0x0302) another VGA controller (0x0300) only displays."""
    pcis = [each.place.pci or {} for each in accelerators]
    kinds = {pci.get("device") for pci in pcis if not pci.get("class", "").startswith("0x0300")}
    pairs = zip(accelerators, pcis, strict=True)
    return [
        each
        for each, pci in pairs
        if not kinds or not pci.get("class", "").startswith("0x0300") or pci.get("device") in kinds
    ]


def _read(top: "Element", place: Place, system: System) -> None:
    """Add an element below a processor and all that hangs at it."""
    waiting = [(top, place, 0)]
    while waiting:
        element, place, depth = waiting.pop()
        if depth > DEEPEST:
            raise InputError(f"its PCI devices are nested more than {DEEPEST} deep.")
        if element.tag == "nic":
            system.nics += [(place, net.attrib) for net in element if net.tag == "net"]
        elif element.tag == "pci":
            below = _read_pci(element, place, system)
            waiting += [(child, below, depth + 1) for child in reversed(element)]


def _read_pci(element: "Element", place: Place, system: System) -> Place:
    """Add a PCI device; the place of what hangs at it."""
    own = Place(place.host, place.above, element.attrib)
    name = f"{place.host}/{bus(element.get('busid', ''))}"
    cards = [child for child in element if child.tag == "gpu"]
    if cards:  # Several are ranks, or parts, of the one GPU.
        card = cards[0]
        system.accelerators.append(
            Accelerator(own, card.attrib, tuple(_of(card, "nvlink", "xgmi")), tuple(_of(card, "c2c")))
        )
    elif is_accelerator(element.attrib):
        system.accelerators.append(Accelerator(own))
    elif any(child.tag == "nic" for child in element) or element.get("class", "").startswith("0x02"):
        return own
    elif len(element) or element.get("class", "").startswith("0x0604"):
        system.bridges.append((name, own))
        return Place(place.host, name, element.attrib)
    elif not element.get("class"):
        system.unclassified.append(own)
    return own


def _of(card: "Element", *tags: str) -> Iterator[Attributes]:
    return (child.attrib for child in card if child.tag in tags)


def bus(number: str) -> str:
    """A PCI bus number such as `0000:16:00.0` in one spelling."""
    return number.strip().lower()


def is_accelerator(pci: Attributes) -> bool:
    """Return whether a PCI device is a GPU by its class: 0x03 is a display controller, 0x12 an accelerator.

    So NCCL (NVIDIA/nccl@5067397 src/graph/topo.cc, `kvDictPciClass`) and RCCL (ROCm/rccl@0cbce2a, the same). Where the
    file names another vendor than those of GPUs, it is the screen of the board's management controller.
    """
    vendor = hexadecimal(pci.get("vendor", ""))
    return pci.get("class", "").startswith(("0x03", "0x12")) and vendor in (None, 0x10DE, 0x1002)


def hexadecimal(text: str) -> int | None:
    """A number such as `0x10de`; None: it is none."""
    try:
        return int(text, 16)
    except ValueError:
        return None


MEGABIT = 1e6 / 8
"""Bytes: `speed` is in Mbit/s (NVIDIA/nccl@5067397 src/graph/topo.cc, `ncclTopoAddNet`)."""

FASTEST = 1_600_000
"""Mbit/s of the fastest port there is (1.6 Tbit/s Ethernet, IEEE 802.3dj): a higher `speed` is in kbit/s, as
libraries for some NICs give it."""

NO_FABRIC = re.compile(
    r"(?:wl|ww|wifi|tun|tap|wg|ppp|ipsec|vpn|utun|tailscale|zt|docker|virbr|veth|br-|cni|flannel|cali|vmnet|lo$)"
)
"""Interfaces that carry no collectives between machines: of radios (systemd.net-naming-scheme(7): `wl`, `ww`), tunnels,
and of containers and virtual machines."""

INFINIBAND_CLASS = "0x0207"
"""PCI class of InfiniBand controllers (PCI Code and ID Assignment Specification 1.11, section 1.3)."""


def nic_share(nics: Sequence[tuple[Place, Attributes]], devices: Sequence[int], notes: list[str]) -> TierSpec | None:
    """The NICs' nominal bandwidth per device and direction, and their link; None: no NIC has a rate.

    NICs slower than the fastest are for management. A NIC carries no more than its slot, whose ports share it.

    `devices`: of each accelerator, the number of its host.
    `notes`: sentences on what was assumed are added to it.
    """
    rates: dict[tuple[int, str], tuple[float, Place, str]] = {}
    apart = sorted({f"{name!r:.40}" for _, net in nics if NO_FABRIC.match(name := net.get("name", ""))})
    if apart:
        notes.append(f"Ignoring wireless, VPN and virtual interfaces: {', '.join(apart)}.")
    for place, net in nics:
        rate = _rate(net, notes)
        if rate is not None and not NO_FABRIC.match(net.get("name", "")):
            key = (place.host, net.get("dev") or net.get("name", ""))  # Sockets are listed at every processor.
            rates.setdefault(key, (rate, place, net.get("name", "NIC")))
    if not rates:
        return None
    fastest = max(rate for rate, _, _ in rates.values())
    slower = sorted({f"{name!r:.40}" for rate, _, name in rates.values() if rate < fastest})
    if slower:
        notes.append(f"Ignoring NICs slower than the fastest (management): {', '.join(slower)}.")
    slots: dict[tuple[int, str], float] = {}
    used = [(place, name) for rate, place, name in rates.values() if rate == fastest]
    for number, (place, _) in enumerate(used):
        slot = (place.host, f"port {number}" if place.pci is None else place.pci.get("busid", ""))
        slots[slot] = min(slots.get(slot, 0.0) + fastest, _slot(place))
    sums: Counter[int] = Counter()
    for (host, _), rate in slots.items():
        sums[host] += round(rate)
    share = min(sums[host] / count for host, count in Counter(devices).items())
    return TierSpec(_link(*used[0]), BytesPerSecond(share)) if share else None


def _rate(net: Attributes, notes: list[str]) -> float | None:
    """Bytes per second and direction of a NIC; None: it has no rate, or does not take part."""
    try:
        speed = float(net.get("speed", ""))
    except ValueError:
        return None
    if not 0 < speed < 1e12 or net.get("net") == "0":  # Some NICs give -1.
        return None
    if speed > FASTEST:
        sentence = f"Reading NIC speeds of {speed:.0f} as kbit/s: no NIC has {speed / 1000000.0:g} Tbit/s."
        if sentence not in notes:
            notes.append(sentence)
        speed /= 1e3
    return speed * MEGABIT if speed <= FASTEST else None


def _slot(place: Place) -> float:
    """Bytes per second and direction of a NIC's PCI Express; unlimited where the file does not say."""
    pci = place.pci or {}
    rate = pci_rate(pci.get("link_speed", ""))
    return float("inf") if rate is None else pci_nominal(rate, pci_width(pci.get("link_width", "")))


def _link(place: Place, name: str) -> str:
    """The kind of link in the catalogue.

    By vendor, PCI class, or the prefix that rdma-core gives names by the kind of port (linux-rdma/rdma-core,
    kernel-boot/rdma_rename.c): `ibp`, `rocep`, and `rdmap` where it is neither, as of Amazon's.
    """
    pci = place.pci or {}
    if hexadecimal(pci.get("vendor", "")) == AMAZON or name.startswith(("rdmap", "efa")):
        return "efa"
    if name.startswith("ibp"):
        return "infiniband"
    return "infiniband" if pci.get("class", "").startswith(INFINIBAND_CLASS) else "ethernet"
