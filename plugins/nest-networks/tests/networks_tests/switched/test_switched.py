"""Trees of switches to levels or graphs: nothing is promised that the network does not have, and no host is lost."""

from math import prod

import numpy
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from nest.catalogue import link, network_levels
from nest.errors import InputError
from nest.network import LinkGraph, pairs
from nest.network.imported import Imported
from nest.spec import LevelSpec, LinkProfile, TierSpec
from nest.units import BytesPerSecond, Seconds
from nest_networks.switched import network as module
from nest_networks.switched.network import switched_network
from nest_networks.switched.tree import MOST_TIERS, Host, SwitchTree, united_switches
from networks_tests.switched.trees import DEVICES, between, trees

PROFILE = LinkProfile(
    devices_per_host=DEVICES,
    host=TierSpec(bandwidth=BytesPerSecond(100e9), latency=Seconds(1e-6)),
    tiers=(TierSpec(bandwidth=BytesPerSecond(10e9), latency=Seconds(2e-6)),),
)


def regular(fanouts: tuple[int, ...], **told: object) -> SwitchTree:
    """`fanouts[0]` hosts on each leaf, `fanouts[1]` leaves below a switch and so on."""
    count = prod(fanouts)
    hosts = [Host(f"h{index:03}", f"t1.{index // fanouts[0]}", **told) for index in range(count)]  # type: ignore[arg-type]
    parents, below = {}, fanouts[0]
    for tier, fanout in enumerate(fanouts[1:], 1):
        parents |= {f"t{tier}.{index}": f"t{tier + 1}.{index // fanout}" for index in range(count // below)}
        below *= fanout
    return SwitchTree(tuple(hosts), parents)


def levels(found: Imported) -> tuple[LevelSpec, ...]:
    assert isinstance(found.network, tuple)
    return found.network


@pytest.mark.longer
@given(trees())
def test_no_pair_is_promised_more_than_its_links_have(tree: SwitchTree) -> None:
    found = switched_network(tree, PROFILE)
    hosts = {host.name: host for host in tree.hosts}
    if isinstance(found.network, LinkGraph):
        reached = pairs(found.network)
        owner = [hosts[name.rpartition(".")[0]] for name in reached.names]
        for row, one in enumerate(owner):
            for column, two in enumerate(owner):
                if one is not two:
                    assert reached.bandwidth[row, column] == pytest.approx(between(tree, one, two))
        assert sorted(reached.names) == sorted(f"{name}.{index}" for name in hosts for index in range(DEVICES))
        return
    _no_more(tree, found)


@given(trees())
def test_nor_are_pairs_of_networks_that_are_too_large_for_a_graph(tree: SwitchTree) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_DEVICES", 0)
        _no_more(tree, switched_network(tree, PROFILE))


def _no_more(tree: SwitchTree, found: Imported) -> None:
    """Levels with every host once, and between any two no more than `between` says."""
    hosts = {host.name: host for host in tree.hosts}
    assert sorted(found.hosts) == sorted(hosts)
    capacities = numpy.cumprod([level.fanout for level in levels(found)])
    assert capacities[-1] == DEVICES * len(hosts)
    for row, one in enumerate(found.hosts):
        for column in range(row):
            level = int(numpy.argmax((row * DEVICES) // capacities == (column * DEVICES) // capacities))
            promised = levels(found)[level].bandwidth
            assert promised is not None
            assert promised <= between(tree, hosts[one], hosts[found.hosts[column]]) * (1 + 1e-9)


def test_a_regular_tree_is_its_levels() -> None:
    found = switched_network(regular((4, 3, 2)))
    assert [(each.name, each.fanout, each.link) for each in levels(found)] == [
        ("host", 8, "nvlink4"),
        ("leaf", 4, "infiniband-ndr"),
        ("spine", 3, "infiniband-ndr"),
        ("core", 2, "infiniband-ndr"),
    ]
    assert found.hosts == tuple(f"h{index:03}" for index in range(24))
    assert (found.device, found.devices_per_host) == ("h100-sxm", 8)


def test_hosts_come_in_the_order_of_the_tree() -> None:
    hosts = tuple(Host(f"h{index}", f"leaf{index % 2}") for index in range(6))
    found = switched_network(SwitchTree(hosts, {"leaf1": "root", "leaf0": "root"}))
    assert found.hosts == ("h1", "h3", "h5", "h0", "h2", "h4")


def test_oversubscription_follows_from_counted_links() -> None:
    tree = regular((4, 2), bandwidth=8 * 50e9)
    counted = SwitchTree(tree.hosts, tree.parents, dict.fromkeys(tree.parents, 16 * 50000000000.0))
    found = switched_network(counted)
    assert [each.bandwidth for each in levels(found)[1:]] == [50e9, 25e9]
    assert not any("InfiniBand" in sentence or "spine" in sentence for sentence in found.assumptions)


def test_no_tier_is_faster_than_those_below() -> None:
    tree = regular((4, 2), bandwidth=8 * 10e9)
    counted = SwitchTree(tree.hosts, tree.parents, dict.fromkeys(tree.parents, 1e15))
    assert [each.bandwidth for each in levels(switched_network(counted))[1:]] == [10e9, 10e9]


def test_latency_is_that_of_the_tier_where_hosts_meet() -> None:
    hosts = tuple(Host(f"h{index}", "leaf1" if index == 3 else "leaf0", 16e9, devices=DEVICES) for index in range(4))
    slow = evolve(PROFILE.tiers[0], latency=Seconds(5e-6))
    profile = evolve(PROFILE, tiers=(*PROFILE.tiers, slow))
    found = switched_network(SwitchTree(hosts, {"leaf0": "spine", "leaf1": "spine"}), profile)
    assert isinstance(found.network, LinkGraph)
    reached = pairs(found.network)
    place = {name: index for index, name in enumerate(reached.names)}
    assert reached.latency[place["h0.0"], place["h1.0"]] == pytest.approx(2e-6)
    assert reached.latency[place["h0.0"], place["h3.0"]] == pytest.approx(5e-6)


def test_oversubscription_of_a_profile_slows_the_tiers_above() -> None:
    ndr = link("infiniband-ndr").bandwidth
    profile = LinkProfile(tiers=(TierSpec(link="infiniband-ndr", oversubscription=2.0),))
    assert [each.bandwidth for each in levels(switched_network(regular((4, 3, 2)), profile))[1:]] == [
        ndr,
        ndr / 2,
        ndr / 4,
    ]  # type: ignore[operator]


def test_the_slowest_bundle_counts_and_is_told() -> None:
    tree = regular((4, 2), bandwidth=8 * 50e9)
    uplinks = {"t1.0": 32 * 50e9, "t1.1": 16 * 50e9}
    found = switched_network(SwitchTree(tree.hosts, tree.parents, uplinks))
    assert levels(found)[-1].bandwidth == 25e9
    assert any("25 to 50 GB/s" in sentence for sentence in found.assumptions)


def test_uneven_tiers_that_offer_the_same_are_one_level_and_exact() -> None:
    tree = regular((4, 3))
    found = switched_network(SwitchTree(tree.hosts[:-1], tree.parents))
    assert [each.fanout for each in levels(found)] == [8, 11]


def test_uneven_tiers_that_differ_keep_their_graph() -> None:
    tree = regular((4, 3))
    profile = LinkProfile(tiers=(TierSpec(link="infiniband-ndr", oversubscription=2.0),))
    found = switched_network(SwitchTree(tree.hosts[:-1], tree.parents), profile)
    assert isinstance(found.network, LinkGraph)
    assert len(found.network.devices) == 88
    assert found.hosts == ()


def test_uneven_tiers_of_many_hosts_become_groups_inside_them_and_say_so() -> None:
    tree = regular((20, 40))
    profile = LinkProfile(tiers=(TierSpec(link="infiniband-ndr", oversubscription=2.0),))
    found = switched_network(SwitchTree(tree.hosts[:-6], tree.parents), profile)
    assert [each.fanout for each in levels(found)] == [8, 2, 397]
    assert len(found.hosts) == 794
    assert any("Groups of 14 to 20 hosts (leaf) become groups of 2" in each for each in found.assumptions)


def test_an_nvlink_domain_is_one_level_with_its_hosts() -> None:
    tree = regular((2, 9, 4))
    hosts = tuple(evolve(host, domain=f"rack{index // 18}") for index, host in enumerate(tree.hosts))
    found = switched_network(SwitchTree(hosts, tree.parents), usual="gb200-nvl72-ndr")
    assert [(each.name, each.fanout) for each in levels(found)] == [("domain", 72), ("core", 4)]
    assert found.devices_per_host == 4


def test_hosts_of_a_domain_lie_side_by_side() -> None:
    tree = regular((4,))
    hosts = tuple(evolve(host, domain=f"d{index % 2}") for index, host in enumerate(tree.hosts))
    found = switched_network(SwitchTree(hosts, {}), usual="gb200-nvl72-ndr")
    assert found.hosts == ("h000", "h002", "h001", "h003")
    assert [each.fanout for each in levels(found)] == [8, 2]


@given(st.permutations("aabbcc"), st.permutations("ddeeff"))
def test_domains_come_as_their_first_hosts_do(left: list[str], right: list[str]) -> None:
    hosts = [Host(f"h{index}", f"leaf{index // 6}", domain=name) for index, name in enumerate([*left, *right])]
    found = switched_network(SwitchTree(tuple(hosts), {"leaf0": "root", "leaf1": "root"}), usual="gb200-nvl72-ndr")
    seen = list(dict.fromkeys(host.domain for host in hosts))
    assert found.hosts == tuple(host.name for host in sorted(hosts, key=lambda host: seen.index(host.domain)))


def test_domains_that_cross_switches_keep_their_graph() -> None:
    tree = regular((4, 2))
    hosts = tuple(evolve(host, domain=f"d{(index + 2) % 8 // 4}") for index, host in enumerate(tree.hosts))
    found = switched_network(SwitchTree(hosts, tree.parents), usual="gb200-nvl72-ndr")
    assert isinstance(found.network, LinkGraph)
    reached = pairs(found.network)
    place = {name: index for index, name in enumerate(reached.names)}
    nvlink, ndr = (network_levels([LevelSpec(2, link=name)])[0].bandwidth for name in ("nvlink5", "infiniband-ndr"))
    assert reached.bandwidth[place["h000.0"], place["h007.3"]] == nvlink  # One domain, two leaves.
    assert reached.bandwidth[place["h000.0"], place["h002.0"]] == ndr  # One leaf, two domains.


def test_domains_without_links_of_their_own_are_told() -> None:
    hosts = tuple(Host(f"h{index}", "leaf", domain=f"d{index // 2}") for index in range(4))
    found = switched_network(SwitchTree(hosts, {}), LinkProfile(device="h100-sxm"))
    assert any("h100-ndr has no links of a `domain`" in sentence for sentence in found.assumptions)
    assert [each.fanout for each in levels(found)] == [8, 4]


def test_everything_that_is_not_in_the_file_is_told() -> None:
    sentences = " ".join(switched_network(regular((2, 2))).assumptions)
    for figure in ("h100-sxm", "8 accelerators", "450 GB/s", "nvlink4", "50 GB/s", "infiniband-ndr", "h100-ndr"):
        assert figure in sentences
    given = LinkProfile(name="own", device="b200-sxm", devices_per_host=4)
    chosen = switched_network(regular((2, 2)), given)
    assert not any("accelerators" in sentence for sentence in chosen.assumptions)
    assert any("nvlink5" in sentence for sentence in chosen.assumptions)


@pytest.mark.parametrize(
    ("hosts", "parents", "reason"),
    [
        ([("a", "x"), ("b", "y")], {}, "'x' (1 hosts), 'y' (1 hosts) are not joined"),
        ([("a", "x"), ("a", "y")], {"x": "z", "y": "z"}, "under two switches"),
        ([("a", "x"), ("a", "x")], {}, "host 'a' is listed twice; keep one."),
        ([("a", "x")], {"x": "y", "y": "x"}, "above itself"),
        ([("a", "s0")], {f"s{index}": f"s{index + 1}" for index in range(MOST_TIERS)}, "above one another"),
        ([], {}, "no hosts"),
    ],
)
def test_what_is_no_tree_is_refused(hosts: list[tuple[str, str]], parents: dict[str, str], reason: str) -> None:
    with pytest.raises(InputError) as caught:
        SwitchTree(tuple(Host(*each) for each in hosts), parents)
    assert reason in str(caught.value)


def test_hosts_of_different_kinds_are_refused() -> None:
    hosts = (Host("a", "s", devices=8), Host("b", "s", devices=4))
    with pytest.raises(InputError, match="'a' has 8 and 'b' has 4"):
        switched_network(SwitchTree(hosts, {}))


def test_one_host_is_its_accelerators() -> None:
    found = switched_network(SwitchTree((Host("only", "s"),), {}))
    assert [each.fanout for each in levels(found)] == [8]
    assert found.hosts == ("only",)


def test_switches_with_the_same_below_them_are_one() -> None:
    leaves = [Host(f"h{index}", f"leaf{index // 2}") for index in range(4)]
    links = [(f"leaf{leaf}", f"spine{spine}") for leaf in range(2) for spine in range(3)]
    hosts, parents, told = united_switches(leaves, links)
    assert hosts == tuple(leaves)
    assert parents == {"leaf0": "spine0", "leaf1": "spine0"}
    assert len(told) == 1
    assert all(f"spine{index}" in told[0] for index in range(3))


def test_leaves_of_the_rails_of_a_host_are_one_too() -> None:
    rails = [Host(f"h{index}", f"rail{rail}") for index in range(3) for rail in range(2)]
    hosts, parents, _ = united_switches(
        rails, [("rail0", "spine0"), ("rail1", "spine1"), ("spine0", "top"), ("spine1", "top")]
    )
    assert [host.switch for host in hosts] == ["rail0"] * 3
    assert parents == {"rail0": "spine0", "spine0": "top"}


def test_switches_above_those_that_became_one_become_one_too() -> None:
    links = [("spine0", "top0"), ("spine1", "top1"), ("leaf", "spine0"), ("leaf", "spine1")]
    hosts, parents, told = united_switches([Host("h", "leaf")], links)
    assert parents == {"leaf": "spine0", "spine0": "top0"}
    assert len(told) == 2
    assert SwitchTree(hosts, parents).root == "top0"


@pytest.mark.parametrize(
    ("hosts", "links"),
    [
        ([("a", "l1"), ("b", "l1"), ("b", "l2"), ("c", "l2")], []),
        ([("a", "l1"), ("b", "l2"), ("c", "l3")], [("l1", "s1"), ("l2", "s1"), ("l2", "s2"), ("l3", "s2")]),
    ],
)
def test_what_shares_no_switch_is_not_planned_as_if_it_did(
    hosts: list[tuple[str, str]], links: list[tuple[str, str]]
) -> None:
    with pytest.raises(InputError, match=r"have no switch in common.*not a tree"):
        united_switches([Host(*each) for each in hosts], links)
