"""`lstopo machine.xml`, its objects and matrices."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.errors import InputError
from nest.network import LinkGraph, pairs
from nest.network.imported import Imported
from nest.spec import LevelSpec
from nest.units import BytesPerSecond
from networks_tests.field import read

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
V100, P100, A100_CARD, MI300X, SWITCH = "10de:1db8", "10de:15f9", "10de:20b5", "1002:74a1", "10de:1ac2"


def device(number: int, product: str, kind: str = "0302", speed: str = "15.753846") -> str:
    name = "OSDev" if kind != "0680" else "Misc"
    return (
        f'<object type="Bridge" gp_index="{500 + number}" bridge_type="1-1" pci_busid="0000:{number:02x}:00.0" '
        f'pci_type="0604 [10b5:9781] [0000:0000] b0 00" pci_link_speed="{speed}">'
        f'<object type="PCIDev" gp_index="{100 + number}" pci_busid="0000:{number + 128:02x}:00.0" '
        f'pci_type="{kind} [{product}] [0000:0000] a1 00" pci_link_speed="{speed}">'
        f'<object type="{name}" gp_index="{300 + number}" name="x{number}"/></object></object>'
    )


def package(index: int, inside: str) -> str:
    infos = (("CPUVendor", "GenuineIntel"), ("CPUFamilyNumber", "6"), ("CPUModelNumber", "85"))
    said = "".join(f'<info name="{name}" value="{value}"/>' for name, value in infos)
    bridge = f'<object type="Bridge" gp_index="{900 + index}" bridge_type="0-1" depth="0">{inside}</object>'
    return f'<object type="Package" gp_index="{index}">{said}<object type="Group">{bridge}</object></object>'


def matrix(name: str, indexes: list[str], rows: list[list[int]]) -> str:
    values = "".join(f"<u64values>{' '.join(map(str, row))} </u64values>" for row in rows)
    listed = f"<indexes>{' '.join(indexes)} </indexes>"
    return f'<distances2hetero nbobjs="{len(rows)}" kind="25" name="{name}">{listed}{values}</distances2hetero>'


def topology(*packages: str, more: str = "") -> str:
    machine = f'<object type="Machine" gp_index="0">{"".join(packages)}</object>'
    return f'{HEAD}<topology version="2.0">{machine}{more}</topology>'


def test_a_dgx_2_is_one_level(tmp_path: Path) -> None:
    """open-mpi/hwloc@02139dd tests/hwloc/xml/nvidiaDGX2.xml: an NVLink of each V100 to each of six switches."""
    gpus, switches = range(16), range(16, 22)
    parts = [device(i, V100) for i in gpus] + [device(i, SWITCH, "0680", "1.0") for i in switches]
    indexes = [f"OSDev:{300 + i}" for i in gpus] + [f"PCIDev:{100 + i}" for i in switches]
    rows = [[25000 * ((one < 16) != (two < 16)) for two in range(22)] for one in range(22)]
    text = topology(package(3, "".join(parts[:8] + parts[16:])), package(4, "".join(parts[8:16])),
                    more=matrix("NVLinkBandwidth", indexes, rows))  # fmt: skip
    found = read(tmp_path, text)
    assert found.network == (LevelSpec(16, BytesPerSecond(150e9), name="node", link="nvlink2"),)
    assert (found.device, found.devices_per_host) == ("v100-sxm-32g", 16)


def test_nvlink_of_power_leads_to_gpus_and_processors(tmp_path: Path) -> None:
    """power8gpudistances.xml there: four P100, two at each processor, two NVLinks to it and to each other."""
    parts = [device(i, P100) for i in range(4)]
    indexes = [*(f"OSDev:{300 + i}" for i in range(4)), "Package:3", "Package:4"]
    both = {frozenset(pair) for pair in ((0, 1), (2, 3), (0, 4), (1, 4), (2, 5), (3, 5))}
    rows = [[1000000 if a == b else 40000 * (frozenset((a, b)) in both) for b in range(6)] for a in range(6)]
    text = topology(package(3, "".join(parts[:2])), package(4, "".join(parts[2:])),
                    more=matrix("NVLinkBandwidth", indexes, rows))  # fmt: skip
    found = read(tmp_path, text)
    assert isinstance(found.network, LinkGraph)
    bandwidth = pairs(found.network).bandwidth
    assert bandwidth[0, 1] > bandwidth[0, 2] > 0
    assert bandwidth[0, 1] <= 40e9
    assert not any("25 GB/s" in sentence for sentence in found.assumptions)


def test_xgmi_of_the_most_bandwidth_is_direct(tmp_path: Path) -> None:
    parts = "".join(device(i, MI300X, "1200", "63.015385") for i in range(8))
    rows = [[0 if one == two else 100000 for two in range(8)] for one in range(8)]
    text = topology(package(3, parts), more=matrix("XGMIBandwidth", [f"OSDev:{300 + i}" for i in range(8)], rows))
    found = read(tmp_path, text)
    assert found.network == (LevelSpec(8, BytesPerSecond(7 * 64e9), name="node", link="infinity-fabric"),)
    assert found.device == "mi300x"


def test_xgmi_over_a_third_is_no_link(tmp_path: Path) -> None:
    parts = "".join(device(i, MI300X, "1200", "63.015385") for i in range(4))
    rows = [[(0, 100000, 50000, 100000)[(one - two) % 4] for two in range(4)] for one in range(4)]
    found = read(
        tmp_path,
        topology(package(3, parts), more=matrix("XGMIBandwidth", [f"OSDev:{300 + i}" for i in range(4)], rows)),
    )
    assert isinstance(found.network, LinkGraph)
    assert len(found.network.bandwidth) == 4


def test_cards_are_joined_by_pci_express_and_boards_by_their_own_link(tmp_path: Path) -> None:
    cards = read(tmp_path, topology(package(3, "".join(device(i, A100_CARD, speed="31.507692") for i in range(4)))))
    assert isinstance(cards.network, LinkGraph)
    assert pairs(cards.network).bandwidth[0, 1] == pytest.approx(31.5e9 * 0.76, rel=0.01)
    boards = read(tmp_path, topology(package(3, "".join(device(i, V100) for i in range(8)))))
    assert boards.network == (LevelSpec(8, name="node", link="nvlink2"),)
    with pytest.raises(InputError, match="link profile"):
        read(tmp_path, topology(package(3, "".join(device(i, "10de:ffff") for i in range(4)))))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (topology(package(3, "")), "no GPUs"),
        (topology(package(3, ""))[:-10], "not well-formed"),
        (topology(package(3, "")).replace('version="2.0"', 'version="1.0"'), "hwloc 1"),
        (topology(package(3, "")).replace("hwloc2.dtd", "/etc/passwd"), "entities"),
        (
            topology(package(3, device(0, V100)), more=matrix("NVLinkBandwidth", ["OSDev:300", "OSDev:9"], [[0]])),
            "does not fit",
        ),
    ],
)
def test_what_is_no_machine_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(tmp_path, text)


@pytest.mark.longer
@given(st.lists(st.lists(st.integers(0, 3).map(lambda n: 25000 * n), min_size=4, max_size=4), min_size=4, max_size=4))
def test_any_matrix_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]]) -> None:
    text = topology(
        package(3, "".join(device(i, V100) for i in range(4))),
        more=matrix("NVLinkBandwidth", [f"OSDev:{300 + i}" for i in range(4)], rows),
    )
    with suppress(InputError):
        assert isinstance(read(tmp_path_factory.mktemp("machine"), text), Imported)
