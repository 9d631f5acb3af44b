from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given

from nest.catalogue import profile
from nest.errors import InputError
from nest.network.graph import LinkGraph
from nest.spec import LinkProfile
from networks_tests.fabrics import FatTree, fat_trees, guids, ibnetdiscover
from networks_tests.field import imported, levels, read, reduced, told

SMALL = FatTree(pods=1, units=2, hosts=2, rails=4, spines=2, uplinks=1, cores=1, core_links=1)
TALL = FatTree(pods=2, units=2, hosts=4, rails=8, spines=2, uplinks=2, cores=2, core_links=2)


def expected(tree: FatTree, rate: float, inside: float) -> list[tuple[int, float]]:
    """Levels of a fat tree with an accelerator for each rail; equal ones above one another are as they are built."""
    unit, pod, above = (share * rate for share in tree.shares())
    rows = [(tree.rails, inside), (tree.hosts, unit), (tree.units, pod), (tree.pods, above)]
    return [(fanout, bandwidth) for fanout, bandwidth in rows if fanout > 1]


def test_rails_links_and_oversubscription(tmp_path: Path) -> None:
    found = read(tmp_path, ibnetdiscover(TALL.links(), "4xNDR"))
    assert levels(found) == [(8, 450e9), (4, 50e9), (2, 50e9), (2, 50e9 * 2 * 2 * 2 / 64)]
    assert found.hosts == tuple(TALL.members)
    assert (found.device, found.devices_per_host) == ("h100-sxm", 8)
    assert "one for each of its NICs" in told(found)


def test_hosts_come_by_their_numbers(tmp_path: Path) -> None:
    tree = evolve(SMALL, units=3, hosts=4, names="node{}")
    assert read(tmp_path, ibnetdiscover(tree.links(), "4xNDR")).hosts == tuple(tree.members)


@pytest.mark.longer
@given(tree=fat_trees(rails=(4,)))
def test_the_order_of_the_file_says_nothing(tree: FatTree, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("ib")
    text = ibnetdiscover(tree.links(), "4xNDR")
    head, *sections = text.split("\nvendid")
    turned = head + "".join(f"\nvendid{section}" for section in reversed(sections))
    one, two = read(folder, text), read(folder, turned)
    assert levels(one) == levels(two)
    assert one.hosts == two.hosts


def test_one_nic_serves_the_accelerators_a_profile_says(tmp_path: Path) -> None:
    tree = FatTree(pods=1, units=2, hosts=2, rails=1, spines=1, uplinks=1, cores=1, core_links=1)
    text = ibnetdiscover(tree.links(), "4xHDR")
    assert levels(read(tmp_path, text))[:2] == [(8, 300e9), (2, 25e9 / 8)]
    assert levels(read(tmp_path, text, LinkProfile(devices_per_host=4)))[:2] == [(4, 300e9), (2, 25e9 / 4)]
    assert read(tmp_path, text, profile("h200-ndr")).device == "h200-sxm"


def test_rates_of_single_links_count(tmp_path: Path) -> None:
    text = ibnetdiscover(SMALL.links(), "4xNDR")
    leaf, spine = guids(SMALL.links())["leaf0.0"], guids(SMALL.links())["spine0.0"]
    slow = [
        line.replace("4xNDR", "2xNDR") if (f'"{spine}"' in line and '# "spine' in line) else line
        for line in text.splitlines()
    ]
    assert f'"{leaf}"' in text
    found = read(tmp_path, "\n".join(slow))
    # Half of all messages take the slow spine, whose links two hosts share: the other is no help.
    assert levels(found) == [(4, 450e9), (2, 50e9), (2, 25e9)]


def test_what_is_no_host_to_plan_with_is_left_out(tmp_path: Path) -> None:
    links = SMALL.links()
    links += [
        ("login/1", "leaf0.0"),
        ("manager/1", "spine0.0"),
        ("localhost/0", "leaf0.1"),
        ("localhost/0 ", "leaf0.2"),
    ]
    text = ibnetdiscover(links, "4xNDR").replace('"localhost HCA-0 "', '"localhost HCA-0"')
    text = text.replace('"manager HCA-1"', '"Mellanox Technologies Aggregation Node"')
    found = read(tmp_path, text)
    assert levels(found) == levels(read(tmp_path, ibnetdiscover(SMALL.links(), "4xNDR")))
    assert "login (1 host), which do not have 4 links" in told(found)
    assert "2 NICs that name no host" in told(found)
    assert "manager" not in told(found)


@pytest.mark.longer
def test_storage_beside_the_hosts_adds_no_way_up(tmp_path: Path) -> None:
    storage = [(f"store{index}/0", "storage") for index in range(2)]
    storage += [("storage", f"spine{pod}.{spine}") for pod in range(2) for spine in range(2) for _ in range(8)]
    inside = [("storage0", f"spine0.{spine}") for spine in range(2) for _ in range(8)]
    inside += [("store9/0", "storage0")]
    alone = read(tmp_path, ibnetdiscover(TALL.links(), "4xNDR"))
    assert levels(read(tmp_path, ibnetdiscover(TALL.links() + inside, "4xNDR"))) == levels(alone)
    # A switch that joins the spines of two pods does carry what they send each other.
    both = read(tmp_path, ibnetdiscover(TALL.links() + storage, "4xNDR"))
    assert levels(both)[-1][1] > levels(alone)[-1][1]


def test_hosts_nobody_names_go_by_their_nics(tmp_path: Path) -> None:
    text = ibnetdiscover(SMALL.links(), "4xNDR")
    for host in SMALL.members:
        for rail in range(4):
            text = text.replace(f'"{host} HCA-{rail}"', '"MT4129 ConnectX7   Mellanox Technologies"')
    found = read(tmp_path, text)
    assert "named by its GUID" in told(found)
    assert len(found.hosts) == 16


def test_linked_leaf_switches_are_planned_link_by_link(tmp_path: Path) -> None:
    links = [(f"n{index}/{rail}", f"leaf{index % 2}") for index in range(4) for rail in range(4)]
    links += [("leaf0", "leaf1")] * 4
    found = read(tmp_path, ibnetdiscover(links, "4xNDR"))
    assert isinstance(found.network, LinkGraph)
    assert "of one tier are linked" in told(found)
    inner, middle, outer = reduced(found)
    assert [level.fanout for level in (inner, middle, outer)] == [4, 2, 2]
    assert outer.bandwidth == pytest.approx(middle.bandwidth / 2)  # Four links for the eight accelerators of a leaf.


def test_hosts_on_some_switches_in_common_are_planned_link_by_link(tmp_path: Path) -> None:
    pairs = [("a", "b"), ("b", "c"), ("a", "b"), ("b", "c")]
    links = [
        (f"n{index}/{rail}", f"leaf {name}") for index, names in enumerate(pairs) for rail, name in enumerate(names)
    ]
    found = read(tmp_path, ibnetdiscover(links, "4xNDR"), LinkProfile(devices_per_host=2))
    assert isinstance(found.network, LinkGraph)
    assert "share some leaf switches, not all" in told(found)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('Ca\t1 "H-b8e92403009ca838"\t\t# "dgx-gb200-n01-c1 HCA-1"\n', "no switches, only 1 NIC"),
        ('Switch\t65 "S-2c5eab0300b87b40"\t\t# "leaf" enhanced port 0 lid 73 lmc 0\n', "no host is linked to a switch"),
        (ibnetdiscover([*SMALL.links(), ("far/0", "island"), *((f"far/{i}", "island") for i in (1, 2, 3))], "4xNDR"),
         "not joined by any switch above them"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        read(tmp_path, text)


@pytest.mark.longer
def test_shared_samples(shared: Path) -> None:
    folder = shared / "topologies" / "topograph" / "output" / "ibnetdiscover"
    found = imported(folder / "example.out")
    assert isinstance(found.network, LinkGraph)
    assert len(found.network.devices) == 4 * 109
    assert "a08-p1-dgx-04-c01.0" in found.network.names
    # The worst leaf switch has one link to one of its 8 spines, for 18 hosts; a message reaches 0.91 of a link's rate.
    assert reduced(found)[-1].bandwidth == pytest.approx(0.91 * 50e9 * 8 / 18)
    with pytest.raises(InputError, match="no switches"):
        imported(folder / "example-bad.out")


def slowed(text: str, *ends: str, rate: str = "4xEDR") -> str:
    """`text` with the links to some NICs slower."""
    lines = text.splitlines(keepends=True)
    return "".join(line.replace("4xNDR", rate) if any(f'"{end}"' in line for end in ends) else line for line in lines)


WIDE = FatTree(pods=1, units=2, hosts=3, rails=8, spines=4, uplinks=1, cores=1, core_links=1)


@pytest.mark.parametrize("rate", ["4xEDR", "1xNDR", "4xHDR"])
def test_one_slow_rail_slows_its_ring_and_is_named(rate: str, tmp_path: Path) -> None:
    text = slowed(ibnetdiscover(WIDE.links(), "4xNDR", nics=False), "dgx-001 HCA-3", "dgx-004 HCA-0", rate=rate)
    found = read(tmp_path, text)
    slow = {"4xEDR": 12.5e9, "1xNDR": 12.5e9, "4xHDR": 25e9}[rate]
    assert levels(found)[1] == (3, slow)
    assert f"Slow links: dgx-001, dgx-004 ({slow / 1e9:g} GB/s, mostly it is 50)" in told(found)
    assert "Slow links" not in told(read(tmp_path, ibnetdiscover(WIDE.links(), "4xNDR")))


def test_two_ports_of_an_adapter_are_no_two_accelerators(tmp_path: Path) -> None:
    """Four adapters with a port on each of two leaf switches."""
    links = [(f"dgx-{host}/{nic}", f"leaf{port}") for host in range(4) for nic in range(4) for port in range(2)]
    found = read(tmp_path, ibnetdiscover(links, "4xHDR"))
    assert (found.devices_per_host, levels(found)[1]) == (4, (4, 50e9))
    two = [(f"dgx-{host}/{nic}", f"leaf{port}") for host in range(4) for nic in range(2) for port in range(2)]
    assert read(tmp_path, ibnetdiscover(two, "4xHDR")).devices_per_host == 8  # As the profile has it.


@pytest.mark.parametrize(
    ("rate", "device", "bandwidth"),
    [
        ("2xNDR", "h100-sxm", 25e9), ("4xNDR200", "h100-sxm", 50e9), ("NDR200", "h100-sxm", 25e9),
        ("2xXDR", "b200-sxm", 50e9), ("4xXDR", "b200-sxm", 100e9), ("4xHDR", "a100-sxm-80g", 25e9),
        ("2xHDR", "a100-sxm-80g", 12.5e9),
    ],
)  # fmt: skip
def test_half_ports_are_of_their_generation(rate: str, device: str, bandwidth: float, tmp_path: Path) -> None:
    found = read(tmp_path, ibnetdiscover(WIDE.links(), rate))
    assert (found.device, levels(found)[1]) == (device, (3, bandwidth))
    link = {"h": "infiniband-ndr", "b": "infiniband-xdr", "a": "infiniband-hdr"}[device[0]]
    assert isinstance(found.network, tuple)
    assert found.network[1].link == link
