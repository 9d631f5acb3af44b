"""Slurm's topology.conf and topology.yaml: what they say, what of them is planned on, what is refused and why."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.errors import InputError
from nest.network import LinkGraph
from nest.network.imported import Imported, PartOf
from nest.spec import LinkProfile
from nest.testing import check_topology_importer
from nest_networks.slurm_files import SlurmConfImporter, SlurmYamlImporter

TREE = r"""
# Two leaves under a spine.
SWITCHNAME=spine switches=leaf[1-2]   # all
SwitchName=leaf1 Nodes=n[01-02] \
    LinkSpeed=400
SwitchName="leaf2" Nodes="n[03-04]"
"""
BLOCKS = "BlockName=a Nodes=n[1-4]\nBlockName=b Nodes=n[5-8]\nBlockName=c Nodes=n[9-12]\nBlockSizes=4,8\n"
RINGS = "RingName=r0 Nodes=n[1-4]\nRingName=r1 Nodes=n[5-8]\n"
FOREST = "SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-6]\n"
BOTH = "SwitchName=s Nodes=n[1-8]\nBlockName=x Nodes=n[1-2,5-6]\nBlockName=y Nodes=n[3-4,7-8]\nBlockSizes=4\n"
NVL72 = LinkProfile(device="gb200")


def conf(folder: Path, text: str, part: str | None = None, profile: LinkProfile | None = None) -> Imported:
    path = folder / "topology.conf"
    path.write_text(text)
    source = path if part is None else PartOf(path, part)
    assert SlurmConfImporter().accepts(source)
    return SlurmConfImporter().load(source, profile)


def fanouts(found: Imported) -> list[int]:
    assert isinstance(found.network, tuple)
    return [level.fanout for level in found.network]


def test_a_tree_with_comments_continued_lines_quotes_and_any_letters(tmp_path: Path) -> None:
    found = conf(tmp_path, TREE)
    assert found.hosts == ("n01", "n02", "n03", "n04")
    assert fanouts(found) == [8, 2, 2]


def test_a_file_is_known_by_its_lines_whatever_it_is_called(tmp_path: Path) -> None:
    path = tmp_path / "switches.txt"
    path.write_text("# comment\n  blockname = b Nodes=n1\n")
    assert SlurmConfImporter().accepts(path)
    path.write_text("no lines of this kind: SwitchName=\n")
    assert not SlurmConfImporter().accepts(path)
    path.write_bytes(b"\0\xff")
    assert not SlurmConfImporter().accepts(path)
    assert not SlurmConfImporter().accepts(tmp_path / "absent.conf")


def test_blocks_are_levels_and_groups_of_blocks_are_too(tmp_path: Path) -> None:
    found = conf(tmp_path, BLOCKS)
    assert fanouts(found) == [8, 4, 3]  # Pairs of three blocks do not come out even, and offer what all offer.
    assert found.hosts == tuple(f"n{index}" for index in range(1, 13))
    even = conf(tmp_path, BLOCKS + "BlockName=d Nodes=n[13-16]\n")
    assert fanouts(even) == [8, 4, 2, 2]


def test_blocks_are_nvlink_domains_where_the_profile_has_such_links(tmp_path: Path) -> None:
    found = conf(tmp_path, BLOCKS, profile=NVL72)
    assert isinstance(found.network, tuple)
    assert [(each.name, each.fanout, each.link) for each in found.network] == [
        ("domain", 16, "nvlink5"),
        ("all blocks", 3, "infiniband-ndr"),
    ]


def test_blocks_beside_switches_are_domains_among_them(tmp_path: Path) -> None:
    found = conf(tmp_path, BOTH, profile=NVL72)
    assert fanouts(found) == [16, 2]
    assert found.hosts == ("n1", "n2", "n5", "n6", "n3", "n4", "n7", "n8")


def test_trees_that_nothing_joins_are_refused_and_one_can_be_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'a' \(2 hosts\), 'b' \(4 hosts\) are not joined .*#NAME"):
        conf(tmp_path, FOREST)
    found = conf(tmp_path, FOREST, "b")
    assert found.hosts == ("n3", "n4", "n5", "n6")


def test_a_part_of_a_tree_is_what_lies_below_a_switch(tmp_path: Path) -> None:
    assert conf(tmp_path, TREE, "leaf2").hosts == ("n03", "n04")
    assert conf(tmp_path, BLOCKS, "b").hosts == ("n5", "n6", "n7", "n8")


def test_rings_close(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the rings r0, r1"):
        conf(tmp_path, RINGS)
    found = conf(tmp_path, RINGS, "r1", LinkProfile(device="h100-sxm", devices_per_host=1))
    assert isinstance(found.network, LinkGraph)
    assert found.network.names == ("n5.0", "n6.0", "n7.0", "n8.0")
    assert sorted(map(sorted, found.network.ends.tolist())) == [[0, 1], [0, 3], [1, 2], [2, 3]]


def test_spines_above_the_same_leaves_are_one(tmp_path: Path) -> None:
    found = conf(tmp_path, TREE + "SwitchName=spine2 Switches=leaf[1-2]\n")
    assert fanouts(found) == [8, 2, 2]
    assert any("spine, spine2" in sentence for sentence in found.assumptions)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("include other.conf\nSwitchName=a Nodes=n1\n", "line 1 includes another file"),
        ("SwitchName=a Nodes=n[1-\n", "not closed"),
        ("SwitchName=a Noeds=n1\n", "line 1 has the key 'Noeds'.*Did you mean 'Nodes'"),
        ("\nSwitchName=a Nodes=n1 Nodes=n2\n", "line 2 has the key 'Nodes' twice"),
        ("Nodes=n1 SwitchName=a\n", "has the key 'Nodes', which no line"),
        ("SwitchName=a Nodes=n1\nwhat is this\n", "line 2: 'what is this' is not of the form"),
        ("SwitchName=a Switches=b\n", "switch 'b' is below another one, but has no line"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", "switch 'a' is described twice"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a\n", "above itself|not joined|no hosts"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Switches=a Nodes=n2\n", "line 2: switch 'b' has both nodes and switches"),
        ("BlockName=a Nodes=n1\nBlockName=a Nodes=n2\n", "block 'a' is described twice"),
        ("BlockName=a Nodes=n1\nBlockName=b Nodes=n1\n", "'n1' is under two switches"),
        ("BlockName=a Nodes=n1\nBlockSizes=4,12\n", "block sizes 4 and 12"),
        ("BlockName=a Nodes=n1\nBlockSizes=0,4\n", "below 1"),
        ("BlockName=a Nodes=n1\nBlockSizes=many\n", "takes numbers"),
        ("# nothing\n", "no switches, no blocks and no rings"),
        ("BlockSizes=4\n", "no switches, no blocks and no rings"),
        ("SwitchName=a\n", "line 1: switch 'a' has neither nodes nor switches"),
        ("RingName=a\n", "has no hosts"),
        ("RingName=a Nodes=n1,n1\n", "appears twice"),
    ],
)
def test_what_slurm_would_not_plan_over_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=reason):
        conf(tmp_path, text)


def test_parts_that_are_not_there_are_refused(tmp_path: Path) -> None:
    for text, kind in ((TREE, "switch"), (BLOCKS, "block"), (RINGS, "ring")):
        with pytest.raises(InputError, match=f"there is no {kind} 'other' in the file; it has"):
            conf(tmp_path, text, "other")


@given(st.lists(st.sampled_from(TREE.split() + BLOCKS.split() + RINGS.split() + ["\n", "\\", "#", '"', "=", ","])))
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    try:
        conf(tmp_path_factory.mktemp("any"), " ".join(words))
    except InputError:
        return


YAML = """\
---
- topology: first
  flat: true
- topology: usual
  cluster_default: true
  tree:
    switches:
      - {switch: root, children: "s[1-2]"}
      - {switch: s1, nodes: "n[1-2]"}
      - {switch: s2, nodes: "n[3-4]"}
- topology: blocks
  block:
    block_sizes: [2, 4]
    blocks: [{block: b1, nodes: "n[1-2]"}, {block: b2, nodes: "n[3-4]"}]
- topology: rings
  ring: {rings: [{ring: r0, nodes: "n[1-3]"}, {ring: r1, nodes: "n[4-7]"}]}
- topology: cube
  torus3d:
    toruses:
      - {name: pod, dims: {x: 3, y: 2, z: 1}, nodes: "n[0-5]", placements: [{dims: {x: 1, y: 1, z: 1}}]}
- topology: regions
  torus3d:
    toruses:
      - name: pod
        dims: {x: 4, y: 1, z: 1}
        regions:
          - {anchor: {x: 2}, dims: {x: 2, y: 1, z: 1}, nodes: "b[0-1]"}
          - {dims: {x: 2, y: 1, z: 1}, nodes: "a[0-1]"}
"""


def yaml(folder: Path, part: str | None = None, text: str = YAML, devices: int = 1) -> Imported:
    path = folder / "topology.yaml"
    path.write_text(text)
    source = path if part is None else PartOf(path, part)
    assert SlurmYamlImporter().accepts(source)
    return SlurmYamlImporter().load(source, LinkProfile(device="h100-sxm", devices_per_host=devices))


def test_the_default_of_the_cluster_is_taken_and_told(tmp_path: Path) -> None:
    found = yaml(tmp_path, devices=8)
    assert fanouts(found) == [8, 2, 2]
    assert "Using topology usual, the cluster's default; not first, blocks" in found.assumptions[0]
    text = YAML.replace("cluster_default: true", "cluster_default: false").split("\n", 3)[3]
    first = yaml(tmp_path, text=text)
    assert "first; none is" in first.assumptions[0]


def test_a_topology_or_a_part_of_it_can_be_named(tmp_path: Path) -> None:
    assert fanouts(yaml(tmp_path, "blocks", devices=8)) == [8, 2, 2]
    assert yaml(tmp_path, "usual/s2").hosts == ("n3", "n4")
    ring = yaml(tmp_path, "rings/r1").network
    assert isinstance(ring, LinkGraph)
    assert len(ring.devices) == 4


def links(found: Imported) -> set[frozenset[str]]:
    assert isinstance(found.network, LinkGraph)
    return {
        frozenset(found.network.names[end].removesuffix(".0") for end in ends) for ends in found.network.ends.tolist()
    }


def test_a_torus_counts_along_x_first(tmp_path: Path) -> None:
    rows = ("n0 n1", "n1 n2", "n2 n0", "n3 n4", "n4 n5", "n5 n3", "n0 n3", "n1 n4", "n2 n5")
    assert links(yaml(tmp_path, "cube")) == {frozenset(row.split()) for row in rows}


def test_regions_lie_at_their_anchors(tmp_path: Path) -> None:
    rows = ("a0 a1", "a1 b0", "b0 b1", "b1 a0")
    assert links(yaml(tmp_path, "regions")) == {frozenset(row.split()) for row in rows}


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("first", "'first' is flat and has no hosts"),
        ("rings", "the rings r0, r1"),
        ("other", "no topology 'other'"),
        ("cube/other", "no torus 'other'"),
        ("usual/other", "no switch 'other'"),
    ],
)
def test_what_cannot_be_planned_on_is_refused(part: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=reason):
        yaml(tmp_path, part)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- topology: a\n  flat: true\n  tree: {switches: []}\n", "tree and flat of the kinds"),
        ("- topology: a\n  tree: {swiches: []}\n", "swiches"),
        ("- topology: a\n  block: {blocks: [{nodes: n1}]}\n", "block"),
        (
            "- topology: a\n  torus3d: {toruses: [{name: t, dims: {x: 2, y: 1, z: 1}, nodes: n1}]}\n",
            "1 hosts are listed",
        ),
        ("- topology: a\n  torus3d: {toruses: []}\n", "no torus"),
        ("- topology: a\n  block:\n    blocks: [\n", "not YAML"),
    ],
)
def test_mistakes_in_the_list_are_told(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=reason):
        yaml(tmp_path, text=text)


@pytest.mark.longer
@given(st.data())
def test_any_list_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    lines = YAML.splitlines()
    kept = [line for line in lines if data.draw(st.integers(0, 9))]
    path = tmp_path_factory.mktemp("any") / "topology.yaml"
    path.write_text("\n".join(kept))
    part = data.draw(st.sampled_from([None, "blocks", "usual/s1", "rings/r0", "cube", "regions/pod"]))
    try:
        SlurmYamlImporter().load(path if part is None else PartOf(path, part), None)
    except InputError:
        return


def test_lists_of_something_else_are_left_to_others(tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    for text in ("- topology: a\n", "topology: [Ring]\ntree: 1\n", "- tree: 1\n", "text"):
        path.write_text(text)
        assert not SlurmYamlImporter().accepts(path)


@pytest.mark.longer
def test_the_importers_conform(tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text(TREE)
    (tmp_path / "topology.yaml").write_text(YAML)
    for importer, name in ((SlurmConfImporter(), "topology.conf"), (SlurmYamlImporter(), "topology.yaml")):
        findings = check_topology_importer(importer, sources=[tmp_path / name])
        assert not [finding for finding in findings if not finding.passed]


def test_a_switch_below_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="switch 's' is below itself"):
        conf(tmp_path, "SwitchName=s Switches=s,l\nSwitchName=l Nodes=n[1-2]\n")
