"""A fabric folded to a tree promises no more than its links have."""

import numpy
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from nest.catalogue import profile
from nest.errors import InputError
from nest.network import pairs
from nest.network.graph import LinkGraph
from nest_networks.switched.clos import NoTreeError, fabric_network, fabric_tree, figures, usual_links
from nest_networks.switched.fabric import Fabric, FabricHost, fabric_graph
from nest_networks.switched.network import switch_graph
from nest_networks.switched.tiers import host_layout, inside, network_tiers
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


Damage = tuple[dict[int, float], set[int]]
"""Rates of some links in GB/s, and links that are missing, by their place in `FatTree.links`."""


@st.composite
def damaged(draw: st.DrawFn) -> tuple[FatTree, Damage]:
    """A fat tree of one rail with links of other rates, and without some between switches."""
    tree = draw(fat_trees(rails=(1,)))
    links = tree.links()
    places = st.integers(0, len(links) - 1)
    rates = draw(st.dictionaries(places, st.sampled_from([0.25, 0.5, 2.0]), max_size=4))
    trunks = [index for index, (one, _) in enumerate(links) if "/" not in one]
    return tree, (rates, draw(st.sets(st.sampled_from(trunks), max_size=2)) if trunks else set())


def left(tree: FatTree, damage: Damage) -> tuple[list[tuple[str, str]], dict[int, float]]:
    """The links that are not missing, and the rates by their place among these."""
    rates, dropped = damage
    kept = [index for index in range(len(tree.links())) if index not in dropped]
    return [tree.links()[index] for index in kept], {
        place: rates[index] for place, index in enumerate(kept) if index in rates
    }


REACHED = 0.91
"""Of a link's rate, as the catalogue's infiniband-ndr has it."""

HALF_A_BUNDLE = FatTree(2, 2, 2, 1, 1, 2, 2, 2), ({}, {8})
"""A spine has one of two cables to a core; the other pod sends half of its messages over it."""
SLOW_WAY = FatTree(1, 3, 2, 1, 2, 1, 1, 1), ({10: 0.25}, set())
"""A leaf switch has a slow link to one spine of two."""
FEWER_WAYS = FatTree(2, 2, 3, 1, 3, 1, 1, 1), ({}, {3, 29})
"""A leaf switch lacks a spine that others have, and in the other pod a spine lacks the core."""
OTHERS_WAYS = FatTree(1, 2, 3, 1, 3, 1, 1, 2), ({4: 0.5, 10: 2.0, 2: 2.0}, {11, 15})
"""Two leaf switches have different spines: those they share are the slow ones."""
DEAD_END = FatTree(2, 2, 2, 1, 2, 1, 1, 1), ({}, {9})
"""One spine of two has lost its only core: nothing was promised at all."""


@given(fabric=damaged())
@example(fabric=HALF_A_BUNDLE)
@example(fabric=SLOW_WAY)
@example(fabric=FEWER_WAYS)
@example(fabric=OTHERS_WAYS)
@example(fabric=DEAD_END)
def test_no_pair_is_promised_more_than_its_links_have(fabric: tuple[FatTree, Damage]) -> None:
    machines, links = built(*left(*fabric))
    try:
        found = fabric_tree(machines, links, devices=1)
    except InputError:
        assume(False)
        return
    tiers = network_tiers(found, 1, FIGURES.profile)
    between = pairs(direct(machines, links)).bandwidth * (1 + 1e-9)
    for one in range(len(machines)):
        for two in range(one):
            assert 0 < tiers[meeting(found, one, two) - 1].bandwidth * REACHED <= between[one, two]
    inner = inside("host", FIGURES.profile.host, "host")  # type: ignore[arg-type]
    layout = host_layout(found, tiers, FIGURES.profile)  # type: ignore[arg-type]
    order = [[each.name for each in layout.hosts].index(each.name) for each in machines]
    graph = pairs(switch_graph(found, layout, inner, tiers, 1)).bandwidth[numpy.ix_(order, order)]
    assert (graph <= between).all()


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
    with pytest.raises(InputError, match="no host is linked to a switch"):
        fabric_network([FabricHost("a", ()), FabricHost("b", ())], Fabric(), FIGURES)


def test_a_cable_back_to_its_own_switch_leads_nowhere() -> None:
    fabric = Fabric()
    fabric.link("leaf", "leaf", 50e9)
    fabric.link("leaf", "spine", 50e9)
    assert dict(fabric.beside("leaf")) == {"spine": 50e9}


def test_accelerators_share_links_that_are_fewer() -> None:
    machines, fabric = built([("a/0", "leaf"), ("b/0", "leaf")], {})
    host = inside("host", FIGURES.profile.host, "host")  # type: ignore[arg-type]
    network = inside("network", FIGURES.profile.tiers[0], "tiers[0]")
    shared = fabric_graph(machines, fabric, host, network, 4, 1e9)
    alone = pairs(direct(machines, fabric)).bandwidth[0, 1]
    assert pairs(shared).bandwidth[0, 4] == pytest.approx(alone / 4)


def test_several_links_to_one_switch_add_up() -> None:
    machines, fabric = built([(f"{host}/{number}", "leaf") for host in "ab" for number in range(3)], {})
    assert [host.bandwidth for host in fabric_tree(machines, fabric).hosts] == [3e9, 3e9]


def test_hosts_of_most_links_in_all_are_planned_with() -> None:
    usual, (sentence,) = usual_links({"login": 1, "store0": 1, "store1": 1, "dgx": 8})
    assert usual == 8
    assert "login, store0, store1 (3 hosts), which do not have 8 links" in sentence
