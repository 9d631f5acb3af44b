"""A fabric folded to a tree promises no more than its links have."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nest.catalogue import profile
from nest.errors import InputError
from nest.network import pairs
from nest.network.graph import LinkGraph
from nest_networks.switched.clos import (
    Fabric,
    FabricHost,
    NoTreeError,
    fabric_graph,
    fabric_network,
    fabric_tree,
    figures,
)
from nest_networks.switched.tiers import inside, network_tiers
from nest_networks.switched.tree import SwitchTree
from networks_tests.fabrics import FatTree, fat_trees

FIGURES = figures(profile("h100-ndr"), "h100-ndr", 0)


def built(links: list[tuple[str, str]], rates: dict[int, float]) -> tuple[list[FabricHost], Fabric]:
    """Hosts and switches of `links`, each of 1 GB/s but those in `rates`."""
    own: dict[str, list[tuple[str, float | None]]] = {}
    fabric = Fabric()
    for index, (one, two) in enumerate(links):
        rate = rates.get(index, 1.0) * 1e9
        if "/" in one:
            own.setdefault(one.split("/")[0], []).append((two, rate))
        else:
            fabric.link(one, two, rate)
    return [FabricHost(name, tuple(each)) for name, each in own.items()], fabric


def direct(machines: list[FabricHost], fabric: Fabric) -> LinkGraph:
    """One accelerator a host, with all links one by one."""
    host = inside("host", FIGURES.profile.host, "host")  # type: ignore[arg-type]
    network = inside("network", FIGURES.profile.tiers[0], "tiers[0]")
    return fabric_graph(machines, fabric, host, network, 1, 1e9)


def meeting(tree: SwitchTree, one: int, two: int) -> int:
    """The tier at which two hosts meet."""
    hosts = list(tree.hosts)
    return next(
        height
        for height in range(1, tree.heights[tree.root] + 1)
        if len(set(tree.groups([hosts[one], hosts[two]], height))) == 1
    )


@given(tree=fat_trees(rails=(1,)), data=st.data())
def test_no_pair_is_promised_more_than_its_links_have(tree: FatTree, data: st.DataObject) -> None:
    links = tree.links()
    count = len(links)
    rates = data.draw(st.dictionaries(st.integers(0, count - 1), st.sampled_from([0.25, 0.5, 2.0]), max_size=4))
    dropped = (
        data.draw(st.sets(st.integers(0, count - 1).filter(lambda index: "/" not in links[index][0]), max_size=2))
        if any("/" not in one for one, _ in links)
        else set()
    )
    kept = [link for index, link in enumerate(links) if index not in dropped]
    machines, fabric = built(kept, rates)
    try:
        found = fabric_tree(machines, fabric, devices=1)
    except InputError:
        assume(False)
        return
    reached = 0.91  # Of a link's rate, as the catalogue's infiniband-ndr has it.
    tiers = network_tiers(found, 1, FIGURES.profile)
    between = pairs(direct(machines, fabric)).bandwidth
    for one in range(len(machines)):
        for two in range(one):
            promised = tiers[meeting(found, one, two) - 1].bandwidth * reached
            assert promised <= between[one, two] * (1 + 1e-9)


def test_switches_that_join_nothing_are_no_tier() -> None:
    machines, fabric = built([("a/0", "leaf0"), ("b/0", "leaf1"), ("leaf0", "spine"), ("leaf1", "spine")], {})
    fabric.link("spine", "storage", 9e9)
    fabric.link("elsewhere", "nowhere", 9e9)
    found = fabric_tree(machines, fabric, devices=1)
    assert found.parents == {"leaf0": "spine", "leaf1": "spine"}
    assert found.uplinks == {"leaf0": 1e9, "leaf1": 1e9}


def test_a_rate_that_is_not_known_is_not_made_up() -> None:
    machines, fabric = built([("a/0", "leaf0"), ("b/0", "leaf1"), ("leaf0", "spine"), ("leaf1", "spine")], {})
    fabric.link("leaf0", "spine", None)
    assert fabric_tree(machines, fabric, devices=1).uplinks == {"leaf1": 1e9}


def test_what_is_no_tree() -> None:
    machines, fabric = built([("a/0", "leaf0"), ("b/0", "leaf1"), ("leaf0", "leaf1")], {})
    with pytest.raises(NoTreeError, match="'leaf0' and 'leaf1' of one tier are linked"):
        fabric_tree(machines, fabric)
    machines, fabric = built([("a/0", "x"), ("a/1", "y"), ("b/0", "y"), ("b/1", "z")], {})
    with pytest.raises(NoTreeError, match="hosts 'a' and 'b' share some"):
        fabric_tree(machines, fabric)


def test_hosts_without_links_hang_on_no_switch() -> None:
    with pytest.raises(InputError, match="no host hangs on a switch"):
        fabric_network([FabricHost("a", ()), FabricHost("b", ())], Fabric(), FIGURES)


def test_a_cable_back_to_its_own_switch_leads_nowhere() -> None:
    fabric = Fabric()
    fabric.link("leaf", "leaf", 50e9)
    fabric.link("leaf", "spine", 50e9)
    assert dict(fabric.beside("leaf")) == {"spine": 50e9}
