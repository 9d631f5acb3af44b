from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from nest.catalogue import profile
from nest.errors import InputError
from networks_tests.fabrics import FatTree, fat_trees
from networks_tests.field import imported, levels, read, told


def graph(tree: FatTree) -> list[dict[str, Any]]:
    """A fat tree as NetQ has it: every cable of two nodes in one link."""
    cables: dict[tuple[str, str], int] = {}
    for one, two in tree.links():
        ends = one.split("/")[0], two
        cables[ends] = cables.get(ends, 0) + 1
    names = list(dict.fromkeys(end for ends in cables for end in ends))
    tiers = {name: {"d": -1, "l": 1, "s": 2, "c": 3}[name[0]] for name in names}
    nodes = [
        {
            "compounded_nodes": [
                {"id": f"id {name}", "name": name, "tier": tier} for name in names if tiers[name] == tier
            ]
        }
        for tier in sorted(set(tiers.values()))
    ]
    links = [
        {"id": f"id {two}-*-id {one}", "size": count, "compounded_links": [{"id": str(each)} for each in range(count)]}
        for (one, two), count in cables.items()
    ]
    return [{"links": links, "nodes": nodes}]


@given(tree=fat_trees(rails=(4, 8)))
def test_cables_are_counted(tree: FatTree, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = read(tmp_path_factory.mktemp("netq"), graph(tree))
    shares = zip((tree.hosts, tree.units, tree.pods), tree.shares(), strict=True)
    expected = [(tree.rails, 450e9), *((fanout, 50e9 * share) for fanout, share in shares if fanout > 1)]
    assert [fanout for fanout, _ in levels(found)] == [fanout for fanout, _ in expected]
    assert [each for _, each in levels(found)] == pytest.approx([each for _, each in expected])
    assert sorted(found.hosts) == tree.members
    assert "gives no rates" in told(found)


def test_a_profile_gives_the_rate(tmp_path: Path) -> None:
    tree = FatTree(pods=1, units=2, hosts=2, rails=4, spines=1, uplinks=1, cores=1, core_links=1)
    found = read(tmp_path, graph(tree), profile("b200-xdr"))
    assert found.device == "b200-sxm"
    assert levels(found)[1][1] == 100e9


def compute(name: str, domain: str, gpus: int = 4) -> dict[str, Any]:
    return {"Name": name, "DomainUUID": domain, "GpuIDList": [f"{name}.{index}" for index in range(gpus)]}


def test_domains_of_the_nvlink_manager(tmp_path: Path) -> None:
    nodes = [compute(f"n{index:02}", f"domain {index // 18}") for index in range(36)]
    found = read(tmp_path, nodes)
    assert levels(found) == [(72, 900e9), (2, 50e9)]
    assert "lists no switches" in told(found)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([{"links": [], "nodes": [{"compounded_nodes": [{"id": "a", "tier": -1}]}]}], "no hosts"),
        ([{"DomainUUID": "d"}], r"\[0\].Name is missing"),
        ([compute("a", "d"), compute("b", "d", 8)], "hosts differ in accelerators"),
    ],
)
def test_what_cannot_be_is_named(content: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        read(tmp_path, content)


def test_hosts_that_are_linked_to_hosts_alone_are_left_out(tmp_path: Path) -> None:
    tree = FatTree(pods=1, units=1, hosts=2, rails=4, spines=1, uplinks=1, cores=1, core_links=1)
    content = graph(tree)
    content[0]["nodes"][0]["compounded_nodes"] += [{"id": name, "name": name, "tier": -1} for name in ("x", "y")]
    content[0]["links"].append({"id": "x-*-y", "compounded_links": [{}] * 4})
    found = read(tmp_path, content)
    assert found.hosts == tuple(tree.members)
    assert "x, y (2 hosts), which no link joins to a switch" in told(found)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not JSON"):
        read(tmp_path, '[{"links": [], "nodes": [{"compounded_nodes": [')


def test_shared_samples(shared: Path) -> None:
    folder = shared / "topologies" / "topograph" / "output" / "netq"
    found = imported(folder / "topologyGraph.json")
    assert levels(found) == [(4, 450e9), (4, 50e9), (2, 50e9)]
    assert found.hosts == tuple(f"dgx-0{index}" for index in range(1, 9))
    assert levels(imported(folder / "computeNodes.json")) == [(8, 900e9)]
