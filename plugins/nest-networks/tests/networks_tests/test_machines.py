"""Files of machines of the field: devices, levels and what joins them, and plans on them."""

from pathlib import Path

import pytest

from nest.errors import InputError
from nest.formulate.cluster import from_file
from nest.formulate.topology import in_place
from nest.hooks.registry import registry
from nest.network import LinkGraph
from nest.network.imported import Imported
from nest.spec import ClusterSpec, LinkProfile, TierSpec
from nest_networks.nccl_xml import NcclXmlImporter
from nest_networks.nvidia_smi import NvidiaSmiImporter
from nest_testing.samples import topology_sources
from networks_tests.field import read, told

IMPORTERS = (NvidiaSmiImporter(), NcclXmlImporter())

DEVICES = {
    "gb200_nvl72_tray_partial.txt": 4, "h100_8gpu_no_nic.txt": 8, "rtx4090_8gpu_tabs.txt": 8,
    "aws_p4d-24xl-topo.xml": 8, "aws_p4de-24xl-topo.xml": 8, "azure_ncv4-topo.xml": 4,
    "h200_baremetal_partial_dump.xml": 3, "topo_4p_940.xml": 4, "topo_8p_940.xml": 8, "topo_8p_90a.xml": 8,
    "topo_8p_rome_4nics.xml": 8, "topo_16p1h.xml": 16,
}  # fmt: skip
REFUSED = {
    "azure_ncv4-graph.xml": "rings and trees",
    "aws_g5.48xl-topo.xml": "have no class",
    "azure_ndv2-topo.xml": "link.profile",
    "azure_ndv4-topo.xml": "link.profile",
}


def size(found: Imported) -> int:
    if isinstance(found.network, LinkGraph):
        return len(found.network.devices)
    assert isinstance(found.network, tuple)
    (level,) = found.network
    return level.fanout


@pytest.mark.parametrize("kind", ["nvidia_smi", "nccl_xml", "rccl_xml"])
def test_files_of_the_field(shared: Path, kind: str) -> None:
    for path in sorted((shared / "topologies" / kind).iterdir()):
        (importer,) = (each for each in registry().topology_importers().values() if each.accepts(path))
        assert importer.name in {each.name for each in IMPORTERS}
        if path.name in REFUSED:
            with pytest.raises(InputError, match=REFUSED[path.name]):
                importer.load(path)
            continue
        found = importer.load(path)
        assert isinstance(found, Imported)
        assert size(found) == found.devices_per_host == DEVICES[path.name], path.name


@pytest.mark.parametrize(("name", "link"), [("azure_ndv4-topo.xml", "nvlink3"), ("azure_ndv2-topo.xml", "nvlink2")])
def test_machines_of_clouds_have_the_links_of_the_device_that_is_named(shared: Path, name: str, link: str) -> None:
    device = {"nvlink3": "a100-sxm-40g", "nvlink2": "v100-sxm-32g"}[link]
    profile = LinkProfile(device=device, host=TierSpec(link))
    found = NcclXmlImporter().load(shared / "topologies" / "nccl_xml" / name, profile)
    assert found.device == device
    assert isinstance(found.network, tuple)
    assert (found.network[0].fanout, found.network[0].link) == (8, link)


def test_no_file_is_read_by_two_importers() -> None:
    files = [source for source in topology_sources() if isinstance(source, Path)]
    taken = [sum(importer.accepts(path) for importer in IMPORTERS) for path in files]
    assert sorted(taken) == [0] * (len(files) - 2) + [1, 1]


def sample(name: str) -> Path:
    return next(source for source in topology_sources() if isinstance(source, Path) and source.name == name)


def test_a_machine_arrives_in_the_problem() -> None:
    path = sample("nccl.xml")
    found = in_place(ClusterSpec(topology=path.name), registry(), path.parent)
    assert (found.device, found.devices_per_host, found.topology) == ("h100-sxm", 4, None)
    assert found.levels is not None
    assert [(level.fanout, level.link) for level in found.levels] == [(4, "nvlink4")]


def test_many_machines_arrive_in_the_problem() -> None:
    path = sample("nccl.xml")
    found = from_file(ClusterSpec(topology=path.name), registry(), path.parent, hosts=16)
    assert found.levels is not None
    assert [(level.fanout, level.bandwidth) for level in found.levels] == [(4, 450e9), (16, 12.5e9)]
    assert any("16 machines on a non-blocking" in sentence for sentence in found.assumed or ())


def test_without_nics_many_machines_take_the_profile() -> None:
    path = sample("nvidia-smi.txt")
    with pytest.raises(InputError, match=r"nvidia-smi.txt: .*add --link-profile"):
        from_file(ClusterSpec(topology=path.name), registry(), path.parent, hosts=2)
    spec = ClusterSpec(topology=path.name, link_profile="a100-hdr")
    found = from_file(spec, registry(), path.parent, hosts=2)
    assert found.levels is not None
    assert (found.levels[-1].fanout, found.levels[-1].link) == (2, "infiniband-hdr")


def test_what_is_no_machine_is_not_multiplied(tmp_path: Path) -> None:
    (tmp_path / "ring.yaml").write_text("torus: {shape: [4], bandwidth: 50e9}\n")
    with pytest.raises(InputError, match="does not describe a single machine"):
        from_file(ClusterSpec(topology="ring.yaml"), registry(), tmp_path, hosts=2)


def lstopo(*devices: tuple[str, str]) -> str:
    """What lstopo writes of a machine with PCI devices of such classes and numbers."""
    rows = "".join(
        f'<object type="PCIDev" gp_index="{10 + at}" pci_busid="0000:{at + 16:02x}:00.0" '
        f'pci_type="{kind} [{number}] [10de:16c1] a1" pci_link_speed="63.0"/>'
        for at, (kind, number) in enumerate(devices)
    )
    package = f'<object type="Package" gp_index="2"><object type="Bridge" gp_index="3">{rows}</object></object>'
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0">\n'
        f'<object type="Machine" gp_index="1">{package}</object></topology>\n'
    )


H100, A40 = ("0302", "10de:2330"), ("0300", "10de:2235")


@pytest.mark.parametrize(
    ("devices", "count"),
    [
        ([H100] * 4 + [("0300", "10de:1cb1")], 4),
        ([("0300", "1002:1638"), *[H100] * 4], 4),
        ([H100] * 2 + [("0300", "102b:0536")], 2),
        ([A40] * 2, 2),
        ([("1200", "1002:74a1")] * 8 + [("0300", "1002:1638")], 8),
    ],
)
def test_displays_are_no_accelerators(devices: list[tuple[str, str]], count: int, tmp_path: Path) -> None:
    assert read(tmp_path, lstopo(*devices)).devices_per_host == count


def dump(*nets: tuple[str, int], vendor: str = "GenuineIntel", processors: int = 1) -> str:
    """What NCCL dumps of two H100 and such interfaces."""
    gpus = [
        f'<pci busid="0000:{bus}:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s PCIe" '
        f'link_width="16"><gpu dev="{at}" sm="90" rank="{at}" gdr="1"/></pci>'
        for at, bus in enumerate(("16", "38"))
    ]
    nics = "".join(
        f'<nic><net name="{name}" dev="{at}" speed="{speed}"/></nic>' for at, (name, speed) in enumerate(nets)
    )
    own = [gpus[0] + nics, gpus[1]] if processors == 2 else ["".join(gpus) + nics]
    cpus = "".join(
        f'<cpu numaid="{at}" affinity="ff" arch="x86_64" vendor="{vendor}" familyid="6" modelid="143">{each}</cpu>'
        for at, each in enumerate(own)
    )
    return f'<system version="1">\n{cpus}</system>\n'


@pytest.mark.parametrize(
    ("nets", "share", "told_of"),
    [
        ([("eno1", 10000), ("wlp3s0", 10000), ("tun0", 10000)], 0.625e9, "'tun0', 'wlp3s0'"),
        ([("wlan0", 10000), ("tailscale0", 10000), ("docker0", 10000)], None, "'docker0', 'tailscale0', 'wlan0'"),
        ([("mlx5_0", 400000), ("mlx5_1", 400000), ("wg0", 400000)], 50e9, "'wg0'"),
        ([("mlx5_0", 400000), ("mlx5_1", 400000)], 50e9, ""),
    ],
)
def test_radios_and_tunnels_carry_no_collectives(
    nets: list[tuple[str, int]], share: float | None, told_of: str, tmp_path: Path
) -> None:
    found = read(tmp_path, dump(*nets))
    assert (None if found.nics is None else found.nics.bandwidth) == share
    assert ("virtual interfaces: " + told_of in told(found)) == bool(told_of)


@pytest.mark.parametrize("vendor", ["AMD", "AuthenticAMD"])
def test_processors_may_be_named_in_short(vendor: str, tmp_path: Path) -> None:
    network = read(tmp_path, dump(vendor=vendor, processors=2).replace("0x2330", "0x2331")).network
    assert isinstance(network, LinkGraph)
    assert network.bandwidth.min() == pytest.approx(16e9)
