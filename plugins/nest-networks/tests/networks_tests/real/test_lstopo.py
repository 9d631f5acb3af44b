"""Machines as the real lstopo writes them, with accelerators put into the tree."""

from pathlib import Path
from xml.etree.ElementTree import SubElement, fromstring, tostring

import pytest

from nest.errors import InputError
from nest.network import LinkGraph
from networks_tests.field import imported
from networks_tests.real.tools import needed, run

pytestmark = pytest.mark.conformance


def written(folder: Path, packages: int, gpus: int, number: str) -> Path:
    """A synthetic machine with so many GPUs at each package."""
    needed("lstopo")
    text = run("lstopo", "-i", f"pack:{packages} core:4 pu:1", "--of", "xml")
    root = fromstring(text.replace('<!DOCTYPE topology SYSTEM "hwloc2.dtd">', ""))
    bus = 0
    for package in root.iter("object"):
        if package.get("type") == "Package":
            bridge = SubElement(package, "object", {"type": "Bridge", "gp_index": str(900 + bus)})
            for _ in range(gpus):
                bus += 1
                said = {"type": "PCIDev", "gp_index": str(1000 + bus), "pci_busid": f"0000:{bus:02x}:00.0"}
                SubElement(
                    bridge, "object", {**said, "pci_type": f"0302 [{number}] [10de:16c1] a1", "pci_link_speed": "31.5"}
                )
    path = folder / "machine.xml"
    path.write_text('<?xml version="1.0"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n' + tostring(root, "unicode"))
    return path


@pytest.mark.parametrize(("packages", "gpus"), [(1, 4), (2, 4), (2, 2), (4, 1)])
def test_cards_are_at_their_packages(packages: int, gpus: int, tmp_path: Path) -> None:
    found = imported(written(tmp_path, packages, gpus, "10de:26b9"))
    assert (found.device, found.devices_per_host) == ("l40s", packages * gpus)
    assert isinstance(found.network, LinkGraph)
    assert sum(name.startswith("processor") for name in found.network.names) == packages


def test_boards_have_their_nvlink(tmp_path: Path) -> None:
    found = imported(written(tmp_path, 2, 4, "10de:2330"))
    assert isinstance(found.network, tuple)
    assert [(each.fanout, each.link) for each in found.network] == [(8, "nvlink4")]


@pytest.mark.parametrize("machine", ["pack:2 core:4 pu:1", ""])
def test_machines_without_accelerators_are_refused(machine: str, tmp_path: Path) -> None:
    needed("lstopo")
    path = tmp_path / "machine.xml"
    path.write_text(run("lstopo", *(["-i", machine] if machine else []), "--of", "xml"))
    with pytest.raises(InputError, match="lists no GPUs"):
        imported(path)
