"""What NCCL's XML of a system lists: processors, PCI devices, accelerators and network adapters."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from attrs import Factory, define, frozen

from nest.errors import InputError

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

DEEPEST = 64
"""Elements inside each other; a path from a processor to a device has fewer than ten."""

Attributes = Mapping[str, str]


@frozen
class Place:
    """Where in the tree something hangs.

    Attributes:
        host: number of the machine; files of several machines joined by NVLink have several.
        above: name of the bridge or processor above.
        pci: attributes of its own PCI device; None: it hangs at a processor.
    """

    host: int
    above: str
    pci: Attributes | None = None


@frozen
class Accelerator:
    """A GPU.

    Attributes:
        place: where it hangs.
        told: attributes of its `gpu`; None: only its PCI class tells what it is.
        links: attributes of its `nvlink` or `xgmi`.
        chip_links: attributes of its `c2c`, links to the processor.
    """

    place: Place
    told: Attributes | None = None
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
        adapters: where each `net` hangs, with its attributes.
    """

    processors: list[tuple[int, str, Attributes]] = Factory(list)
    bridges: list[tuple[str, Place]] = Factory(list)
    accelerators: list[Accelerator] = Factory(list)
    unclassified: list[Place] = Factory(list)
    adapters: list[tuple[Place, Attributes]] = Factory(list)


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
    told = [each for each in system.accelerators if each.told is not None]
    if told:
        system.accelerators = told
    return system


def _read(top: "Element", place: Place, system: System) -> None:
    """Add an element below a processor and all that hangs at it."""
    waiting = [(top, place, 0)]
    while waiting:
        element, place, depth = waiting.pop()
        if depth > DEEPEST:
            raise InputError(f"its PCI devices are nested more than {DEEPEST} deep.")
        if element.tag == "nic":
            system.adapters += [(place, net.attrib) for net in element if net.tag == "net"]
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
    """Whether a PCI device is a GPU by its class: 0x03 is a display controller, 0x12 an accelerator.

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
