"""`lstopo machine.xml`: what hwloc 2 and 3 write of one machine, with its PCI devices and accelerators.

Objects are a tree (open-mpi/hwloc@02139dd tests/hwloc/xml). `pci_link_speed` is in GB/s per direction. The matrices
`NVLinkBandwidth` and `XGMIBandwidth` name objects by `gp_index`; NVLinks count in MB/s and direction, 20,000 each on a
P100 and 25,000 on later GPUs (power8gpudistances.xml, nvidiaDGX2.xml). The tree is read as NCCL's XML of the same.
"""

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nest.errors import InputError
from nest.network.imported import Imported
from nest.spec import LinkProfile
from nest.units import whole_number
from nest_networks.files import beginning, text_of, xml_of
from nest_networks.hosts.hardware import ARCHITECTURES, PRODUCTS, capability, nvlink, pci_nominal
from nest_networks.hosts.nccl_system import hexadecimal, read_system
from nest_networks.hosts.network import host_network
from nest_networks.nccl_xml import machine

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_TYPE = re.compile(r'<!DOCTYPE topology SYSTEM "hwloc\d*\.dtd">')
_FIRST = re.compile(r"\s*(?:<\?xml[^>]*\?>\s*)?(?:<!DOCTYPE topology[^>]*>\s*)?<topology(?=[\s>])")
_PCI = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\]")

NVLINKS, XGMI = "NVLinkBandwidth", "XGMIBandwidth"
OLD, OLD_CAPABILITY, NEW = 20_000, 60, 25_000
"""MB/s and direction of an NVLink of a P100, and its compute capability times ten; of an NVLink of later GPUs."""


class HwlocImporter:
    """Reads the processors, PCI devices and links of accelerators."""

    name = "hwloc"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is the path of such a file."""
        return _FIRST.match(beginning(source)) is not None

    def load(self, source: Path, profile: LinkProfile | None = None) -> Imported:
        """The machine.

        Raises:
            InputError: it cannot be parsed, has no GPUs, or says nothing of what joins them.
        """
        root = xml_of(_TYPE.sub("", text_of(source), count=1))
        if root.get("version", "1").startswith("1"):
            raise InputError("the file is of hwloc 1; export it again with hwloc 2 (`lstopo machine.xml`).")
        notes: list[str] = []
        return host_network(machine(read_system(_system(root)), profile, notes), profile, notes)


def _system(root: "Element") -> "Element":
    """The same in the elements of NCCL's XML."""
    from xml.etree.ElementTree import Element, SubElement

    system = Element("system")
    infos = [each for each in root.iter("info") if each.get("name") == "Architecture"]
    architecture = infos[0].get("value", "").removesuffix("le") if infos else ""
    by_index: dict[str, Element] = {}
    waiting: list[tuple[Element, Element | None]] = [(each, None) for each in reversed(root) if each.tag == "object"]
    while waiting:
        item, above = waiting.pop()
        kind = item.get("type", "")
        if kind == "Package":
            above = SubElement(system, "cpu", _processor(item, architecture))
        elif kind in ("Bridge", "PCIDev"):
            above = SubElement(system, "cpu") if above is None else above
            above = SubElement(above, "pci", _pci(item)) if item.get("pci_busid") else above
        if above is not None:
            by_index[item.get("gp_index", "")] = above
        waiting += [(child, above) for child in reversed(item) if child.tag == "object"]
    for name in (NVLINKS, XGMI):
        for matrix in root:
            if matrix.tag.startswith("distances2") and matrix.get("name") == name:
                _link(name, matrix, by_index)
    return system


def _processor(item: "Element", architecture: str) -> dict[str, str]:
    """Attributes of NCCL's `cpu`."""
    known = {each.get("name", ""): each.get("value", "") for each in item if each.tag == "info"}
    names = {"vendor": "CPUVendor", "familyid": "CPUFamilyNumber", "modelid": "CPUModelNumber"}
    said = {name: known[key] for name, key in names.items() if key in known}
    return {"arch": architecture or ("x86_64" if said else ""), **said}


def _pci(item: "Element") -> dict[str, str]:
    """Attributes of NCCL's `pci`."""
    said = {"busid": item.get("pci_busid", "")}
    match = _PCI.match(item.get("pci_type", ""))
    if match:
        said |= {"class": f"0x{match[1]}00", "vendor": f"0x{match[2]}", "device": f"0x{match[3]}"}
    try:
        speed = float(item.get("pci_link_speed", "")) * 1e9
    except ValueError:
        return said
    for lanes, rate in product((16, 8, 4, 2, 1), (2.5, 5.0, 8.0, 16.0, 32.0, 64.0)):
        if abs(pci_nominal(rate, lanes) / speed - 1 if speed else 1) < 0.03:
            return said | {"link_speed": f"{rate:g} GT/s", "link_width": str(lanes)}
    return said


def _link(name: str, matrix: "Element", by_index: dict[str, "Element"]) -> None:
    """Give GPUs the links of a matrix.

    Raises:
        InputError: it has not as many values as objects, or names one that is not there.
    """
    from xml.etree.ElementTree import SubElement

    indexes = [word.rpartition(":")[2] for word in _words(matrix, "indexes")]
    values = [whole_number(word) or 0 for word in _words(matrix, "u64values")]
    count = len(indexes)
    if len(values) != count * count or not by_index.keys() >= set(indexes):
        raise InputError(f"the matrix {name} does not fit the objects of the file; import all of it.")
    ends = [by_index[index] for index in indexes]
    links = {(one, two): values[one * count + two] for one in range(count) for two in range(count) if one != two}
    most = max(links.values(), default=0)
    old = any(value % NEW for value in links.values()) and not any(value % OLD for value in links.values())
    for one in (place for place, end in enumerate(ends) if end.get("class", "").startswith(("0x03", "0x12"))):
        device = PRODUCTS.get(
            (hexadecimal(ends[one].get("vendor", "")) or 0, hexadecimal(ends[one].get("device", "")) or 0), ("", None)
        )[1]
        known = OLD_CAPABILITY if old else capability(device)
        said = {"gcn": ARCHITECTURES.get(device or "", "")} if name == XGMI else {"sm": str(known)} if known else {}
        card = SubElement(ends[one], "gpu", said)
        for two in range(count):
            value = links.get((one, two), 0)
            if not value or (name == XGMI and value < most):  # XGMI over another GPU.
                continue
            number = 1 if name == XGMI else max(1, round(value * 1e6 / nvlink(known or 70).rate))
            end = ends[two]
            kind = "0x068001" if end.tag == "cpu" else end.get("class", "")
            tag = "xgmi" if name == XGMI else "nvlink"
            SubElement(card, tag, {"target": end.get("busid", ""), "count": str(number), "tclass": kind})


def _words(matrix: "Element", tag: str) -> Iterator[str]:
    for part in matrix:
        if part.tag == tag:
            yield from (part.text or "").split()
