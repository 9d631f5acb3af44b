"""XML files of NCCL (`NCCL_TOPO_FILE`, `NCCL_TOPO_DUMP_FILE`) and of RCCL, which is NCCL for AMD's GPUs."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from nest.errors import InputError
from nest.network.imported import Imported
from nest.spec import LinkProfile
from nest.units import whole_number
from nest_networks.files import beginning, text_of, xml_of
from nest_networks.hosts.hardware import (
    CAPABILITIES,
    GENERATIONS,
    PRODUCTS,
    UNKNOWN_PROCESSOR,
    USUAL_CAPABILITY,
    USUAL_RATE,
    USUAL_WIDTH,
    Fabric,
    between_processors,
    capability,
    infinity_fabric,
    is_card,
    nvlink,
    own_link,
    pci_nominal,
    pci_rate,
    pci_reached,
    pci_width,
    reached,
    slot_bandwidth,
)
from nest_networks.hosts.nccl_system import (
    Accelerator,
    Attributes,
    Place,
    System,
    bus,
    hexadecimal,
    nic_share,
    read_system,
)
from nest_networks.hosts.network import Bus, Machine, host_network

_BEFORE = re.compile(r"<!--.*?-->|<\?.*?\?>", re.DOTALL)
_FIRST = re.compile(r"\s*<(system|graphs)(?=[\s>/])[^>]*>\s*(?:<(/?\w+)|$)")
_INSIDE = {"system": (None, "cpu", "/system"), "graphs": (None, "graph", "/graphs")}
"""First keys of the two kinds of file."""


class NcclXmlImporter:
    """Reads the system they describe: processors, PCI devices, GPUs with their direct links, and NICs."""

    name = "nccl-xml"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is the path of such a file, or of one with NCCL's graphs."""
        match = _FIRST.match(_BEFORE.sub("", beginning(source)))
        return match is not None and match[2] in _INSIDE[match[1]]

    def load(self, source: Path, profile: LinkProfile | None = None) -> Imported:
        """The machine.

        Raises:
            InputError: it cannot be parsed, holds graphs and no system, or something in it cannot be.
        """
        root = xml_of(text_of(source))
        if root.tag == "graphs":
            raise InputError(
                "the file has NCCL's rings and trees (NCCL_GRAPH_FILE), not the links; import the file of "
                "NCCL_TOPO_DUMP_FILE."
            )
        assumptions: list[str] = []
        return host_network(machine(read_system(root), profile, assumptions), profile, assumptions)


MOST_COUNT = 1024
"""Links of one bundle, far more than any device has."""

CHIP_LINK = 1e6
"""Bytes per second: `bw` of a link to the processor is in MB/s (NVIDIA/nccl@5067397 src/graph/topo.cc,
`ncclTopoAddC2c`)."""

GPU, PROCESSOR, SWITCH = "a GPU", "a processor", "a switch"
"""Ends of a direct link."""


def machine(system: System, profile: LinkProfile | None, notes: list[str]) -> Machine:
    """The machine that `system` lists; sentences on what was assumed are added to `notes`.

    Raises:
        InputError: it has no GPUs, or something in it cannot be.
    """
    accelerators = _ordered(system.accelerators or _unclassified(system, profile, notes))
    device = _device(accelerators, notes)
    names = tuple(f"GPU{index}" for index in range(len(accelerators)))
    fabric = _fabric(accelerators, device or (None if profile is None else profile.device), notes)
    direct = _Direct(accelerators, notes)
    linked = any(each.links for each in accelerators)
    usual = None if linked else _usual_link(accelerators, device)
    first = accelerators[0].place.pci or {}
    card = is_card(hexadecimal(first.get("vendor", "")), hexadecimal(first.get("device", "")))
    slots, assumed_of_slots = _slots(system, accelerators, names, slot_bandwidth(device))
    between, assumed_of_processors = _between_processors(system)
    return Machine(
        devices=names,
        fabric=fabric if direct.bundles or direct.switched else None,
        bundles=direct.bundles,
        switched=direct.switched,
        buses=(*slots, *_chip_links(accelerators, names, direct.to_processor, fabric), *between),
        assumed_of_buses=(*assumed_of_slots, *assumed_of_processors),
        complete=usual is None and accelerators[0].attributes is not None and (linked or card is not False),
        cards=card is True,
        usual_link=usual,
        hosts=tuple(each.place.host for each in accelerators),
        device=device,
        nics=nic_share(system.nics, [each.place.host for each in accelerators], notes),
    )


def _unclassified(system: System, profile: LinkProfile | None, notes: list[str]) -> list[Accelerator]:
    """The GPUs among PCI devices of no class: as many as the profile has in a machine.

    Which they are does not matter: without a class the file does not say how they are joined, either.
    """
    there = len(system.unclassified)
    if not there:
        raise InputError("it lists no GPUs.")
    wanted = None if profile is None else profile.devices_per_host
    if wanted is None or wanted > there:
        raise InputError(
            f"its {there} PCI devices have no class; name a link profile with `devices_per_host`, or import the "
            "file of NCCL_TOPO_DUMP_FILE."
        )
    notes.append(f"the {there} PCI devices have no class; assuming {wanted} GPUs, as in the link profile.")
    return [Accelerator(place) for place in system.unclassified[:wanted]]


def _usual_link(accelerators: Sequence[Accelerator], device: str | None) -> str | None:
    """The catalogue's link of the devices, where the file says nothing of direct links; None: there need not be any.

    NCCL looks up direct links that a file leaves out (NVIDIA/nccl@5067397 src/graph/xml.cc, `ncclTopoGetXmlFromGpu`),
    so files made for it have none. What NCCL wrote itself has PCI numbers, which tell boards with NVLink from cards.
    """
    if device is not None:
        return own_link(device)
    attributes = accelerators[0].attributes or {}
    known = whole_number(attributes.get("sm", ""))
    if "vendor" in (accelerators[0].place.pci or {}) or "gcn" in attributes or known not in GENERATIONS:
        return None
    return nvlink(known).link


def _ordered(accelerators: Sequence[Accelerator]) -> tuple[Accelerator, ...]:
    """In the order of `dev`, as CUDA counts them, machine by machine; as listed where it does not tell them apart."""
    numbers = [(each.place.host, whole_number((each.attributes or {}).get("dev", ""))) for each in accelerators]
    if len(set(numbers)) < len(numbers) or any(number is None for _, number in numbers):
        return tuple(accelerators)
    return tuple(accelerators[index] for index in sorted(range(len(numbers)), key=numbers.__getitem__))


def _device(accelerators: Sequence[Accelerator], notes: list[str]) -> str | None:
    """The accelerator by its name in the catalogue, where PCI vendor and device tell it."""
    pcis = [each.place.pci or {} for each in accelerators]
    numbers = {(hexadecimal(pci.get("vendor", "")), hexadecimal(pci.get("device", ""))) for pci in pcis}
    if len(numbers) > 1:
        raise InputError(f"it has {len(numbers)} GPU types; nest supports one per machine.")
    vendor, number = numbers.pop()
    if vendor is not None and number is not None:
        if (vendor, number) in PRODUCTS:
            product, device = PRODUCTS[vendor, number]
            if device is None:
                notes.append(f"the GPUs are {product}, unknown to the catalogue; give `device` in the problem.")
            return device
        notes.append(f"the GPUs are device {number:#06x} of PCI vendor {vendor:#06x}, unknown to the catalogue.")
        return None
    capable = whole_number((accelerators[0].attributes or {}).get("sm", ""))
    if capable and capable in CAPABILITIES and "gcn" not in (accelerators[0].attributes or {}):
        notes.append(f"the GPUs have compute capability {capable / 10:g}: {CAPABILITIES[capable]}.")
    return None


def _fabric(accelerators: Sequence[Accelerator], device: str | None, notes: list[str]) -> Fabric:
    attributes = accelerators[0].attributes or {}
    if "gcn" in attributes:
        return infinity_fabric(attributes["gcn"])
    known = whole_number(attributes.get("sm", "")) or capability(device)
    if known is None and any(each.links for each in accelerators):
        notes.append("the file has no NVLink generation; assuming 25 GB/s per link.")
    return nvlink(USUAL_CAPABILITY if known is None else known)


class _Direct:
    """Direct links of the accelerators.

    Attributes:
        bundles, switched: as in `Machine`.
        to_processor: for accelerators with links to a processor, how many.
    """

    def __init__(self, accelerators: Sequence[Accelerator], notes: list[str]) -> None:
        self._place = {_key(each.place): index for index, each in enumerate(accelerators)}
        counted: Counter[tuple[int, int]] = Counter()
        switched: Counter[int] = Counter()
        self.to_processor: Counter[int] = Counter()
        lost = itself = 0
        for index, each in enumerate(accelerators):
            for link in each.links:
                count = _count(link, index)
                peer = self._place.get((each.place.host, bus(link.get("target", ""))))
                kind = _leads_to(link, peer)
                if kind == SWITCH:
                    switched[index] += count
                elif kind == PROCESSOR:
                    self.to_processor[index] += count
                elif peer is None:
                    lost += 1
                elif peer == index:
                    itself += 1
                else:
                    counted[index, peer] += count
        self.switched = {index: (0, count) for index, count in switched.items()}
        self.bundles = {}
        for one, two in sorted({(min(pair), max(pair)) for pair in counted}):
            both = [counted[pair] for pair in ((one, two), (two, one)) if counted[pair]]
            self.bundles[one, two] = min(both)
        if lost:
            notes.append(f"{lost} links lead to unlisted GPUs; left out.")
        if itself:
            notes.append(f"{itself} links lead from a GPU to itself; left out.")


def _key(place: Place) -> tuple[int, str]:
    return place.host, bus((place.pci or {}).get("busid", ""))


def _count(link: Attributes, index: int) -> int:
    text = link.get("count", "1")
    count = whole_number(text) or 0
    if not 0 < count <= MOST_COUNT:
        raise InputError(f"a link of GPU{index} has count {text!r:.20}; it must be a number of links.")
    return count


def _leads_to(link: Attributes, peer: int | None) -> str:
    """By the PCI class of the target, as NCCL tells them (src/graph/topo.cc, `ncclTopoAddNvLinks`)."""
    kind = link.get("tclass", "")
    if peer is not None or kind.startswith(("0x03", "0x12")):
        return GPU
    return PROCESSOR if kind.startswith("0x068001") else SWITCH


def _slots(
    system: System, accelerators: Sequence[Accelerator], names: Sequence[str], slot: float | None
) -> tuple[list[Bus], list[str]]:
    """Bridges and accelerators, each with the path to what is above it, and what these rest on."""
    places = [(name, each.place) for name, each in zip(names, accelerators, strict=True)] + system.bridges
    usual = slot or pci_nominal(USUAL_RATE, USUAL_WIDTH)
    buses, unknown = [], 0
    for name, place in places:
        pci = place.pci or {}
        rate, lanes = pci_rate(pci.get("link_speed", "")), pci_width(pci.get("link_width", ""))
        unknown += rate is None
        if name != place.above:
            buses.append(Bus(name, place.above, pci_reached(usual if rate is None else pci_nominal(rate, lanes))))
    assumed = ["messages reach 76 % of the bandwidth of PCI Express, as on pcie4."]
    if unknown:
        whose = "as the catalogue has of the device" if slot else "PCI Express 3.0 x16, as NCCL does"
        assumed.insert(0, f"{unknown} PCI devices have no link speed; assuming {usual / 1e9:g} GB/s, {whose}.")
    return buses, assumed


def _chip_links(
    accelerators: Sequence[Accelerator], names: Sequence[str], linked: Mapping[int, int], fabric: Fabric
) -> Iterator[Bus]:
    """Links of accelerators to the processor of their own: NVLink of POWER9, C2C of Grace."""
    for index, each in enumerate(accelerators):
        if not each.place.above.startswith("processor"):
            continue
        if index in linked:
            yield Bus(names[index], each.place.above, linked[index] * fabric.rate * reached(fabric.link)[0])
        for link in each.chip_links:
            bandwidth, count = whole_number(link.get("bw", "")), whole_number(link.get("count", "1"))
            if bandwidth and count:
                yield Bus(names[index], each.place.above, bandwidth * count * CHIP_LINK)


def _between_processors(system: System) -> tuple[list[Bus], list[str]]:
    """A path between every two processors of a machine, and what these rest on."""
    pairs = [(one, two) for one, two in combinations(system.processors, 2) if one[0] == two[0]]
    known = [between_processors(one[2]) for one, _ in pairs]
    buses = [
        Bus(one[1], two[1], UNKNOWN_PROCESSOR if bandwidth is None else bandwidth)
        for (one, two), bandwidth in zip(pairs, known, strict=True)
    ]
    if None not in known:
        return buses, []
    assumed = (
        f"the file names no processors; assuming {UNKNOWN_PROCESSOR / 1e9:g} GB/s per direction between "
        "two, NCCL's value for Intel's of 2017 to 2022."
    )
    return buses, [assumed]
