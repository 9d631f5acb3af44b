"""What Slurm prints to any user: `scontrol show topology`, `sinfo`; and names of parts with slashes."""

from pathlib import Path

import pytest

from nest.errors import InputError
from nest.network.imported import PartOf
from nest.spec import LinkProfile, TierSpec
from nest.units import BytesPerSecond
from nest_networks.slurm_files import SlurmYamlImporter
from networks_tests.field import levels, read, told

TREE = """SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=n[1-4]
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[5-8]
SwitchName=spare Level=0 LinkSpeed=1
SwitchName=spine0 Level=1 LinkSpeed=1 Nodes=n[1-8] Switches=leaf[0-1],spare
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[9-12]
SwitchName=leaf3 Level=0 LinkSpeed=1 Nodes=n[13-16]
SwitchName=spine1 Level=1 LinkSpeed=1 Nodes=n[9-16] Switches=leaf[2-3]
SwitchName=core Level=2 LinkSpeed=1 Nodes=n[1-16] Switches=spine[0-1]
"""
BLOCKS = """BlockName=b1 BlockIndex=0 Nodes=n[01-18] BlockSize=18
BlockName=b2 BlockIndex=1 Nodes=n[19-36] BlockSize=18
BlockName=b3 BlockIndex=2 Nodes=n[37-54] BlockSize=18
BlockName=b4 BlockIndex=3 Nodes=n[55-72] BlockSize=18
AggregatedBlock=b[1-2] BlockIndex=4 Nodes=n[01-36] BlockSize=36
AggregatedBlock=b[3-4] BlockIndex=5 Nodes=n[37-72] BlockSize=36
"""
AZURE = """# Number of Nodes in block1: 18
# ClusterUUID and CliqueID: b78ed242-7b98-426f-b194-b76b8899f4ec 32766
BlockName=block1 Nodes=ccw-gpu-[1-18]
# Number of Nodes in block2: 18
# ClusterUUID and CliqueID: cc79d754-915f-408f-b1c3-b8c3aa6668ab 32766
BlockName=block2 Nodes=ccw-gpu-[19-36]
BlockSizes=18
"""
STEEP = LinkProfile(tiers=tuple(TierSpec(bandwidth=BytesPerSecond(each)) for each in (50e9, 25e9, 12e9)))


def test_a_tree_that_scontrol_prints(tmp_path: Path) -> None:
    found = read(tmp_path, TREE, STEEP)
    assert levels(found) == [(8, 450e9), (4, 50e9), (2, 25e9), (2, 12e9)]
    assert found.hosts == tuple(f"n{at}" for at in range(1, 17))


def test_blocks_that_scontrol_prints(tmp_path: Path) -> None:
    found = read(tmp_path, BLOCKS, LinkProfile(device="gb200"))
    assert levels(found) == [(72, 900e9), (2, 50e9), (2, 50e9)]
    assert len(found.hosts) == 72
    alone = read(tmp_path, BLOCKS.splitlines()[0], LinkProfile(device="gb200"))
    assert levels(alone) == [(72, 900e9)]


def test_blocks_with_the_numbers_of_nvlink_domains_are_racks(tmp_path: Path) -> None:
    found = read(tmp_path, AZURE)
    assert (levels(found), found.device) == ([(72, 900e9), (2, 50e9)], "gb200")
    plain = "".join(line for line in AZURE.splitlines(keepends=True) if not line.startswith("#"))
    assert read(tmp_path, plain).device == "h100-sxm"


SINFO = [
    "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\nall*         up   infinite      2   idle n[1-2]\n"
    "all*         up   infinite      2  alloc n[3-4]\nbig          up   1-00:00:00     4    mix n[1-4]\n"
    "all*         up   infinite      1 drain* n5\nbig  up  1-00:00:00  2 down n[6-7]\nall* up infinite 1 resv n8\n",
    "Mon Nov 30 02:28:24 2026\nNODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE "
    "REASON\n" + "".join(f"n{at} 1 all* idle 8 8:1:1 1 0 1 (null) none\n" for at in range(1, 5))
    + "".join(
        f"n{at} 1 all* {state} 8 8:1:1 1 0 1 (null) bad fan\n"
        for at, state in enumerate(("drained*", "down", "fail", "maint"), 5)
    ),
    "NODELIST GRES STATE AVAIL_FEATURES\n" + "".join(
        f"n{at} gpu:h100:8(S:0-1) {state} ib\n"
        for at, state in enumerate(("idle", "mix", "alloc", "idle~", "down*", "drng", "failg", "inval"), 1)
    ) + "login (null) idle (null)\n",
]  # fmt: skip


@pytest.mark.parametrize("content", SINFO, ids=["default", "long", "own"])
def test_hosts_of_sinfo_without_those_that_are_down(content: str, tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text("SwitchName=s0 Nodes=n[1-2,5,7]\nSwitchName=s1 Nodes=n[3-4,6,8]\n")
    found = read(tmp_path, content)
    assert (found.hosts, found.device, found.devices_per_host) == (("n1", "n2", "n3", "n4"), "h100-sxm", 8)
    assert levels(found)[1:] == [(2, 50e9), (2, 50e9)]
    assert sum(f"n{at}" in told(found) for at in (5, 6, 7, 8)) == 4


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("NODELIST STATE\nn[1-2] down\n", "no node with accelerators takes jobs.*n1, n2"),
        ("STATE NODELIST\nidle\n", "line 2 has 1 cells"),
        ("GRES STATE NODELIST\n(null) idle n[1-2]\n", "no node has accelerators"),
    ],
)
def test_what_sinfo_does_not_give_is_told(content: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        read(tmp_path, content)


@pytest.mark.parametrize("name", ["topology/tree", "a", "a/b/c"])
def test_names_of_topologies_may_have_slashes(name: str, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    switches = "{tree: {switches: [{switch: s0, nodes: 'n[1-2]'}, {switch: s1, nodes: 'n[3-4]'}]}"
    path.write_text(f"- {switches}, topology: {name}}}\n- {switches}, topology: other}}\n")
    assert SlurmYamlImporter().load(PartOf(path, f"{name}/s1")).hosts == ("n3", "n4")
    with pytest.raises(InputError, match="not joined"):
        SlurmYamlImporter().load(PartOf(path, name))
    for wrong, sentence in ((f"{name}/s2", "no switch 's2'"), ("tree/s0", "no topology 'tree'")):
        with pytest.raises(InputError, match=sentence):
            SlurmYamlImporter().load(PartOf(path, wrong))


def test_a_yaml_of_slurm_is_known_whatever_it_is_called(tmp_path: Path) -> None:
    found = read(tmp_path, "- topology: t\n  tree:\n    switches: [{switch: s, nodes: 'n[1-2]'}]\n")
    assert found.hosts == ("n1", "n2")
