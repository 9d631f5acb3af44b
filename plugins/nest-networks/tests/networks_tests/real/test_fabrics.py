"""Fabrics that ibsim simulates, as the real ibnetdiscover prints them."""

from pathlib import Path

import pytest

from networks_tests.fabrics import FatTree
from networks_tests.field import imported, levels, reduced, told
from networks_tests.real.tools import fabric
from networks_tests.test_ibnetdiscover import expected

pytestmark = pytest.mark.conformance

QDR = 4e9
"""Bytes per second of four lanes of QDR: 40 Gbit/s, of which 8b/10b leaves 32."""

TREES = {
    "a unit": FatTree(1, 1, hosts=4, rails=4, spines=1, uplinks=1, cores=1, core_links=1),
    "two units": FatTree(1, 2, hosts=3, rails=4, spines=2, uplinks=1, cores=1, core_links=1),
    "rails of eight": FatTree(1, 2, hosts=4, rails=8, spines=4, uplinks=1, cores=1, core_links=1),
    "two pods": FatTree(2, 2, hosts=2, rails=4, spines=2, uplinks=2, cores=2, core_links=1),
    "more cables": FatTree(1, 3, hosts=4, rails=4, spines=2, uplinks=2, cores=1, core_links=1),
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_fat_trees_come_back(tree: FatTree, tmp_path: Path) -> None:
    with fabric(tree.links()) as look:
        path = tmp_path / "fabric.out"
        path.write_text(look("ibnetdiscover"))
    found = imported(path)
    assert levels(found) == [(fanout, pytest.approx(each)) for fanout, each in expected(tree, QDR, 300e9)]
    assert sorted(found.hosts) == tree.members


def test_a_slow_rail_and_a_lost_cable(tmp_path: Path) -> None:
    tree = TREES["two units"]
    links = tree.links()
    slow = links.index(("dgx-001/2", "leaf0.2"))
    path = tmp_path / "fabric.out"
    with fabric(links, slow={slow}) as look:
        path.write_text(look("ibnetdiscover"))
    found = imported(path)
    assert levels(found)[1] == (3, pytest.approx(QDR / 4))
    assert "Slow links: dgx-001 (1 GB/s, mostly it is 4)" in told(found)
    cable = links.index(("leaf0.1", "spine0.1"))
    with fabric(links[:cable] + links[cable + 1 :]) as look:
        path.write_text(look("ibnetdiscover"))
    whole, hurt = expected(tree, QDR, 300e9)[-1][1], reduced(imported(path))[-1].bandwidth
    assert hurt < whole
