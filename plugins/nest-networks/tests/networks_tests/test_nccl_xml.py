"""XML files of NCCL and RCCL: whole dumps, and what is left out of those that people write."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.errors import InputError
from nest.network import LinkGraph, pairs, reduce
from nest.spec import LevelSpec, LinkProfile, TierSpec
from nest.units import BytesPerSecond
from nest_networks.nccl_xml import NcclXmlImporter
from networks_tests.field import level, read

IMPORTER = NcclXmlImporter()
AMD = 'arch="x86_64" vendor="AuthenticAMD" familyid="25" modelid="17"'
SAPPHIRE_RAPIDS = 'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143"'
SPEED = 'link_speed="16.0 GT/s PCIe" link_width="16"'
PCI_4 = 16e9 * 128 / 130 * 16 / 8 * 0.76
"""What messages reach of PCI Express 4.0 x16: the catalogue's pcie4 has an efficiency of 0.76."""

H100, A100_CARD = 'vendor="0x10de" device="0x2330"', 'vendor="0x10de" device="0x20b5"'


def gpu(number: int, links: str = "", *, pci: str = H100, sm: int = 90, speed: str = SPEED, own: str = "") -> str:
    return (
        f'<pci busid="0000:{number:02x}:00.0" class="0x030200" {pci} {speed}>'
        f'<gpu dev="{number}" sm="{sm}" rank="{number}" gdr="1" {own}>{links}</gpu></pci>'
    )


def link(target: int, count: int = 1, *, tag: str = "nvlink", kind: str = "0x030200") -> str:
    return f'<{tag} target="0000:{target:02X}:00.0" count="{count}" tclass="{kind}"/>'


def to_switch(count: int) -> str:
    return f'<nvlink target="fffffff:ff:ff.0" count="{count}" tclass="0x068000"/>'


def nic(number: int, speed: float = 400000, *, pci: str = 'class="0x020700"', name: str = "mlx5") -> str:
    return (
        f'<pci busid="0001:{number:02x}:00.0" {pci} link_speed="32.0 GT/s PCIe" link_width="16"><nic>'
        f'<net name="{name}_{number}" dev="{number}" speed="{speed}" port="1" guid="0x{number}" gdr="1"/></nic></pci>'
    )


def bridge(number: int, *inside: str) -> str:
    return f'<pci busid="0002:{number:02x}:00.0" class="0x060400" {SPEED}>{"".join(inside)}</pci>'


def system(*processors: str, about: str = AMD) -> str:
    cpus = (f'<cpu numaid="{index}" {about}>{inside}</cpu>' for index, inside in enumerate(processors))
    return f'<!-- a machine -->\n<system version="1">{"".join(cpus)}</system>'


def test_gpus_at_switches_are_one_level(tmp_path: Path) -> None:
    switches = "".join(
        f'<nvlink target="0000:{0xF0 + index:x}:00.0" count="{count}" tclass="0x068000"/>'
        for index, count in enumerate((5, 5, 4, 4))
    )
    inside = [bridge(index, gpu(index, switches), nic(index)) for index in range(8)]
    found = read(tmp_path, system("".join(inside[:4]), "".join(inside[4:])))
    assert level(found) == LevelSpec(8, BytesPerSecond(450e9), name="node", link="nvlink4")
    assert (found.device, found.devices_per_host) == ("h100-sxm", 8)
    assert found.nics == TierSpec("infiniband", BytesPerSecond(50e9))
    assert found.assumptions == ()


def test_devices_with_different_links_are_planned_with_the_fewest(tmp_path: Path) -> None:
    found = read(tmp_path, system("".join(gpu(i, to_switch(12 if i else 10)) for i in range(4))))
    assert level(found).bandwidth == 10 * 25e9


def test_the_generation_follows_from_the_compute_capability(tmp_path: Path) -> None:
    rates = {70: (25e9, "nvlink2"), 80: (25e9, "nvlink3"), 90: (25e9, "nvlink4"), 103: (50e9, "nvlink5")}
    for capability, (rate, name) in rates.items():
        found = read(tmp_path, system("".join(gpu(i, to_switch(6), pci="", sm=capability) for i in range(4))))
        assert level(found) == LevelSpec(4, BytesPerSecond(6 * rate), name="node", link=name)
        assert found.device is None
        assert any("compute capability" in sentence for sentence in found.assumptions)


def test_trays_that_share_a_switch_are_one_level(tmp_path: Path) -> None:
    """As NCCL fuses the files of several hosts in an NVLink domain: device and bus numbers repeat."""
    tray = "".join(gpu(index, to_switch(18), pci="", sm=103) for index in range(4))
    text = "".join(f'<cpu numaid="0" host_hash="0x{host}" arch="arm64">{tray}</cpu>' for host in range(3))
    found = read(tmp_path, f'<system version="1">{text}</system>')
    assert level(found).fanout == 12
    assert found.devices_per_host == 4


def test_links_to_every_other_are_used_together(tmp_path: Path) -> None:
    links = ["".join(link(other, tag="xgmi", kind="0x120000") for other in range(8) if other != i) for i in range(8)]
    cards = [
        gpu(i, each, pci='vendor="0x1002" device="0x74a1"', sm=304, own='gcn="gfx942"') for i, each in enumerate(links)
    ]
    found = read(tmp_path, system("".join(cards[:4]), "".join(cards[4:])))
    assert level(found) == LevelSpec(8, BytesPerSecond(448e9), name="node", link="infinity-fabric")
    assert found.device == "mi300x"


def test_a_ring_of_links_is_a_graph(tmp_path: Path) -> None:
    cards = [gpu(i, link((i + 1) % 5, 2) + link((i - 1) % 5, 2)) for i in range(5)]
    found = read(tmp_path, system("".join(cards)))
    assert isinstance(found.network, LinkGraph)
    assert len(found.network.names) == 5
    assert found.network.bandwidth.tolist() == pytest.approx([2 * 25e9 * 0.68] * 5)  # The efficiency of nvlink4.


def test_what_no_direct_link_joins_goes_over_pci_express(tmp_path: Path) -> None:
    cards = [gpu(i, pci=A100_CARD, sm=80) for i in range(8)]
    halves = [bridge(i, *cards[2 * i : 2 * i + 2]) for i in range(4)]
    found = read(tmp_path, system("".join(halves[:2]), "".join(halves[2:]), about=SAPPHIRE_RAPIDS))
    assert isinstance(found.network, LinkGraph)
    best = reduce(pairs(found.network)).best
    assert best.exact
    assert best.fanouts == (2, 2, 2)
    assert [each.bandwidth for each in best.levels] == pytest.approx([PCI_4, PCI_4 / 2, 22e9 / 4])
    assert {each.latency for each in best.levels} == {4.1e-6}
    assert found.device is None
    assert any("A100 PCIe 80 GB" in sentence for sentence in found.assumptions)


def test_gpus_are_counted_by_their_number(tmp_path: Path) -> None:
    """As CUDA does, and with it frameworks, in whatever order the PCI devices hang."""
    cards = [gpu(i, link(i ^ 1, 4)) for i in (2, 0, 3, 1)]
    found = read(tmp_path, system("".join(cards)))
    assert isinstance(found.network, LinkGraph)
    bandwidth = pairs(found.network).bandwidth
    assert bandwidth[0, 1] > bandwidth[0, 2] == bandwidth[0, 3]


def test_links_to_the_processor_of_its_own_are_in_megabytes(tmp_path: Path) -> None:
    chip = '<c2c bw="450000" count="1"/>'
    found = read(tmp_path, system(gpu(0, chip, pci=A100_CARD) + gpu(1, chip, pci=A100_CARD), about='arch="arm64"'))
    assert isinstance(found.network, LinkGraph)
    assert found.network.bandwidth.tolist() == pytest.approx([450e9 + PCI_4] * 2)


@pytest.mark.parametrize(
    ("written", "rate"),
    [
        ('link_speed="8 GT/s" link_width="16"', 15.754e9),
        ('link_speed="32.0 GT/s PCIe" link_width="8"', 31.508e9),
        ('link_speed="2.5 GT/s PCIe" link_width="4"', 1e9),
        ('link_speed="" link_width="0"', 15.754e9),  # As NCCL takes it.
        ('link_speed="Unknown speed" link_width="255"', 15.754e9),
        ("", 15.754e9),
    ],
)
def test_speeds_of_pci_express(tmp_path: Path, written: str, rate: float) -> None:
    found = read(tmp_path, system(gpu(0, pci=A100_CARD, speed=written) + gpu(1, pci=A100_CARD, speed=written)))
    assert isinstance(found.network, LinkGraph)
    assert found.network.bandwidth.tolist() == pytest.approx([rate * 0.76] * 2, rel=1e-3)
    assert any("no link speed" in each for each in found.assumptions) == ("GT" not in written)


@pytest.mark.parametrize(
    ("about", "bandwidth"),
    [
        (AMD, 16e9),
        (SAPPHIRE_RAPIDS, 22e9),
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207"', 40e9),
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85"', 10e9),
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="79"', 6e9),
        ('arch="arm64"', 6e9),
        ('arch="ppc64"', 32e9),
        ("", 10e9),
    ],
)
def test_links_between_processors(tmp_path: Path, about: str, bandwidth: float) -> None:
    fast = 'link_speed="64.0 GT/s PCIe" link_width="16"'
    found = read(tmp_path, system(gpu(0, pci=A100_CARD, speed=fast), gpu(1, pci=A100_CARD, speed=fast), about=about))
    assert isinstance(found.network, LinkGraph)
    assert pairs(found.network).bandwidth[0, 1] == bandwidth
    assert any("names no processors" in each for each in found.assumptions) == (not about)


def bare(number: int, pci: str = "") -> str:
    return f'<pci busid="0000:{number:02x}:00.0" class="0x030200" {pci} {SPEED}/>'


def test_files_without_gpus_and_links_are_completed_by_the_catalogue(tmp_path: Path) -> None:
    """As clouds write them for NCCL_TOPO_FILE: NCCL looks up what they leave out."""
    a100 = read(tmp_path, system("".join(bare(i, 'vendor="0x10de" device="0x20b0"') for i in range(8))))
    assert (level(a100), a100.device) == (LevelSpec(8, name="node", link="nvlink3"), "a100-sxm-40g")
    capable = read(tmp_path, system("".join(gpu(i, pci="", sm=90) for i in range(8))))
    assert (level(capable), capable.device) == (LevelSpec(8, name="node", link="nvlink4"), None)
    for found in (a100, capable):
        assert any("has no direct links" in sentence for sentence in found.assumptions)


def test_devices_that_nobody_names_have_what_the_profile_says(tmp_path: Path) -> None:
    """Azure/azhpc-images topology/ndv4-topo.xml: eight A100 with NVLink, of which the file has neither."""
    text = system("".join(bare(i) for i in range(8)))
    with pytest.raises(InputError, match="name a link profile such as `h100-ndr`"):
        read(tmp_path, text)
    slow = read(tmp_path, text, LinkProfile(host=TierSpec("pcie4")))
    assert level(slow).link == "pcie4"
    known = read(tmp_path, text, LinkProfile(device="a100-sxm-80g"))
    assert (level(known).link, known.device) == ("nvlink3", "a100-sxm-80g")
    given_links = LinkProfile(host=TierSpec(bandwidth=BytesPerSecond(100e9), oversubscription=2.0))
    assert level(read(tmp_path, text, given_links)).bandwidth == 50e9


@pytest.mark.parametrize(
    ("number", "joined"), [("0x20b5", True), ("0x26b9", True), ("0x2329", False), ("0x20f3", False)]
)
def test_cards_may_have_pci_express_alone_and_boards_not(tmp_path: Path, number: str, joined: bool) -> None:
    """A100 PCIe and L40S are cards, H20 and A800 SXM4 come on boards with NVLink; none of them is in the catalogue."""
    named = f'vendor="0x10de" device="{number}"'
    for text in ("".join(bare(i, named) for i in range(4)), "".join(gpu(i, pci=named) for i in range(4))):
        if joined:
            assert isinstance(read(tmp_path, system(text)).network, LinkGraph)
            continue
        with pytest.raises(InputError, match="no direct links"):
            read(tmp_path, system(text))


def test_what_the_file_says_wins_over_the_profile(tmp_path: Path) -> None:
    text = system("".join(gpu(i, to_switch(12)) for i in range(4)))
    profile = LinkProfile(device="gb200", host=TierSpec("nvlink5"))
    found = read(tmp_path, text, profile)
    assert level(found) == LevelSpec(4, BytesPerSecond(300e9), name="node", link="nvlink4")
    assert found.device == "h100-sxm"


def test_devices_without_a_class_are_counted_by_the_profile(tmp_path: Path) -> None:
    text = system("".join(f'<pci busid="0000:00:{number:x}.0"/>' for number in range(16, 25)))
    with pytest.raises(InputError, match="9 PCI devices have no class"):
        read(tmp_path, text)
    found = read(tmp_path, text, LinkProfile(devices_per_host=8, host=TierSpec("pcie4")))
    assert (level(found).fanout, level(found).link) == (8, "pcie4")


def test_nics(tmp_path: Path) -> None:
    def share(*nics: str) -> TierSpec | None:
        return read(tmp_path, system("".join([gpu(0), gpu(1), *nics]))).nics

    assert share() is None
    assert share(nic(0, -1)) is None
    assert share(nic(0), nic(1, 1000, name="eth")) == TierSpec("infiniband", BytesPerSecond(25e9))
    assert share(nic(0, 200000000)) == TierSpec("infiniband", BytesPerSecond(12.5e9))
    ethernet, amazon = 'class="0x020000" vendor="0x15b3"', 'class="0x020000" vendor="0x1d0f"'
    assert share(nic(0, 100000, pci=ethernet)) == TierSpec("ethernet", BytesPerSecond(6.25e9))
    assert share(nic(0, 100000, pci=amazon)) == TierSpec("efa", BytesPerSecond(6.25e9))
    slot = 32e9 * 128 / 130 * 16 / 8  # Of PCI Express 5.0 x16, less than 800 Gbit/s.
    assert share(nic(0, 800000)) == TierSpec("infiniband", BytesPerSecond(round(slot) / 2))


def test_a_socket_listed_at_every_processor_counts_once(tmp_path: Path) -> None:
    net = '<nic><net name="eth0" dev="0" speed="10000" port="0" guid="0x0" gdr="0"/></nic>'
    found = read(tmp_path, system(gpu(0, to_switch(18)) + net, gpu(1, to_switch(18)) + net))
    assert found.nics == TierSpec("ethernet", BytesPerSecond(10e9 / 8 / 2))


def test_links_to_itself_and_to_what_is_not_there_are_left_out(tmp_path: Path) -> None:
    found = read(tmp_path, system(gpu(0, link(0, 12) + link(9, 2)) + gpu(1, link(0, 4))))
    assert level(found).bandwidth == 4 * 25e9
    assert sum("left out" in sentence for sentence in found.assumptions) == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('<graphs version="1"><graph id="0"/></graphs>', "rings and trees"),
        ('<system version="1"><cpu numaid="0"></system>', "not well-formed"),
        ('<system version="1"></system>', "no GPUs"),
        (system(nic(0)), "no GPUs"),
        (system(gpu(0) + gpu(1, pci=A100_CARD)), "2 GPU types"),
        (system(gpu(0, link(1, 1).replace('count="1"', 'count="many"')) + gpu(1)), "GPU0 has count 'many'"),
        (system("<pci>" * 80 + "</pci>" * 80), "nested more than"),
        (system(f"{gpu(0)}<!-- <!ENTITY --> "), "entities"),
    ],
)
def test_what_cannot_be_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read(tmp_path, text)


ATTRIBUTES = ("busid", "class", "count", "dev", "link_speed", "link_width", "sm", "speed", "target", "tclass", "numaid")


@given(st.sampled_from(ATTRIBUTES), st.sampled_from(["", "-1", "x", "0x", "99999999999", "½"]), st.integers(0, 40))
def test_strange_values_end_in_a_network_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, attribute: str, value: str, which: int
) -> None:
    text = system(
        bridge(0, gpu(0, link(1, 2) + to_switch(2)), nic(0)), gpu(1, link(0, 2)) + gpu(2, pci=A100_CARD) + gpu(3)
    ).replace(A100_CARD, H100)
    parts = text.split(f'{attribute}="')
    place = 1 + which % (len(parts) - 1)
    parts[place] = value + parts[place][parts[place].index('"') :]
    path = tmp_path_factory.mktemp("strange") / "system.xml"
    path.write_text(f'{attribute}="'.join(parts), encoding="utf-8")
    if IMPORTER.accepts(path):
        with suppress(InputError):
            found = IMPORTER.load(path)
            if isinstance(found.network, LinkGraph):
                reduce(pairs(found.network))


def test_what_is_no_such_file_is_left_to_others(tmp_path: Path) -> None:
    other = tmp_path / "other.xml"
    other.write_text('<topology version="2.0"><object type="Machine"/></topology>')
    for source in (other, tmp_path, tmp_path / "none", "system", None, {"system": 1}):
        assert not IMPORTER.accepts(source)
