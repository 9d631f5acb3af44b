"""Hosts of several kinds in the files of schedulers: a pool of each, with its hosts, levels and links."""

from pathlib import Path
from typing import Any

import pytest

import nest
from frameworks_tests.plans import DENSE
from nest.errors import InputError
from nest.network.imported import Imported
from nest.spec import LinkProfile, TierSpec
from networks_tests.field import imported, told
from networks_tests.test_kubernetes import listed, node

A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
HOSTS = [("h1", "leaf0"), ("h2", "leaf0"), ("a1", "leaf1"), ("a2", "leaf1"), ("a3", "leaf1"), ("a4", "leaf1")]


def nodes() -> dict[str, Any]:
    """Two hosts of one kind under one switch, four of another under the next."""
    old = {"labels": A100}
    return listed(*(node(name, [leaf, "spine"], **(old if name[0] == "a" else {})) for name, leaf in HOSTS))


def topograph() -> dict[str, Any]:
    product = {"h": "NVIDIA-H100-80GB-HBM3", "a": "NVIDIA-A100-SXM4-80GB"}
    return {
        "instances": [
            {"id": name, "network_layers": [leaf, "spine"], "labels": {"nvidia.com/gpu.product": product[name[0]]}}
            for name, leaf in HOSTS
        ]
    }


def model() -> dict[str, Any]:
    return {
        "switches": {"spine": {"switches": ["leaf0", "leaf1"]}},
        "blocks": [
            {"switch": "leaf0", "type": "H100", "nodes": ["h[1-2]"]},
            {"switch": "leaf1", "type": "A100-80GB", "nodes": ["a[1-4]"]},
        ],
    }


NODES = """
ClusterName=two
NodeName=DEFAULT CPUs=64 # for all
NodeName=h[1-2] Gres=gpu:h100:8 Feature=new,ib
NodeName=a[1-4] Gres=gpu:a100:8(S:0-1) \\
    Features=a100-80gb,ib
NodeName=login Feature=ib
PartitionName=all Nodes=ALL
"""
SHOWN = """
NodeName=h1 Arch=x86_64 CoresPerSocket=32
   ActiveFeatures=new,ib
   Gres=gpu:h100:8(S:0-1)

NodeName=h2 Arch=x86_64
   AvailableFeatures=new,ib
   ActiveFeatures=(null)
   Gres=gpu:h100:8

""" + "".join(
    f"NodeName=a{n} Arch=x86_64\n   ActiveFeatures=a100-80gb,ib\n   Gres=gpu:8,nic:2\n\n" for n in range(1, 5)
)
SWITCHES = "SwitchName=spine Switches=leaf[0-1]\nSwitchName=leaf0 Nodes=h[1-2]\nSwitchName=leaf1 Nodes=a[1-4]\n"


def slurm(folder: Path, text: str, switches: str | None = SWITCHES) -> Path:
    if switches is not None:
        (folder / "topology.conf").write_text(switches)
    path = folder / "slurm.conf"
    path.write_text(text)
    return path


def check(found: Imported) -> None:
    """A pool of each kind: hosts of 8 under one switch, which the slower kind's links join."""
    assert [(each.name, each.device, each.hosts) for each in found.pools] == [
        ("h100-sxm", "h100-sxm", ("h1", "h2")),
        ("a100-sxm-80g", "a100-sxm-80g", ("a1", "a2", "a3", "a4")),
    ]
    assert [[level.fanout for level in each.levels] for each in found.pools] == [[8, 2], [8, 4]]
    assert [each.levels[1].link for each in found.pools] == ["infiniband-ndr", "infiniband-hdr"]
    (between,) = found.between
    assert (between.pools, between.link) == (("h100-sxm", "a100-sxm-80g"), "infiniband-hdr")
    assert between.bandwidth == found.pools[1].levels[1].bandwidth
    assert "Between h100-sxm and a100-sxm-80g each accelerator has 25 GB/s" in told(found)


@pytest.mark.parametrize("source", [nodes(), topograph(), model()], ids=["kubernetes", "instances", "model"])
def test_each_kind_is_a_pool(source: dict[str, Any]) -> None:
    check(imported(source))


@pytest.mark.parametrize("text", [NODES, SHOWN], ids=["slurm.conf", "scontrol"])
def test_features_and_gres_of_slurm_tell_kinds(text: str, tmp_path: Path) -> None:
    found = imported(slurm(tmp_path, text))
    check(found)
    assert "The switches are those of the topology.conf beside the file." in told(found)
    assert ("Left out: login (1 host)" in told(found)) == (text == NODES)


def test_without_switches_one_joins_all(tmp_path: Path) -> None:
    found = imported(slurm(tmp_path, NODES, None))
    assert [each.hosts for each in found.pools] == [("h1", "h2"), ("a1", "a2", "a3", "a4")]
    assert "assuming one switch joins all hosts" in told(found)


def test_nodes_of_one_kind_are_a_cluster(tmp_path: Path) -> None:
    found = imported(slurm(tmp_path, NODES.replace("a[1-4]", "login2").replace("gpu:a100:8", "nic:2")))
    assert not found.pools
    assert (found.hosts, found.device) == (("h1", "h2"), "h100-sxm")


@pytest.mark.parametrize(
    ("text", "switches", "sentence"),
    [
        ("NodeName=a Gres=nic:2\n", None, "no node has accelerators"),
        ("NodeName=a Gres=gpu:h100:8\nNodeName=b Gres=gpu:8\n", None, "'b' names no accelerators"),
        ("NodeName=a Gres=gpu:a100:8\n", None, "'a100' may be a100-sxm-80g or a100-sxm-40g"),
        (NODES, "RingName=r Nodes=h[1-2]\n", "topology.conf beside the file has no switches and no blocks"),
        (NODES, SWITCHES + "SwitchName=more Switches=leaf0\n", "'leaf0' is below two others"),
        (NODES.replace("h[1-2] Gres=gpu:h100:8", "h1 Gres=gpu:h100:8\nNodeName=h2 Gres=gpu:h100:4"), SWITCHES,
         "hosts differ in accelerators"),
        (NODES, "SwitchName=other Nodes=z[1-4]\n", "topology.conf beside the file has none of them"),
    ],
)  # fmt: skip
def test_what_slurm_does_not_say_is_told(text: str, switches: str | None, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        imported(slurm(tmp_path, text, switches))


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("DOWN*", "DOWN NOT_RESPONDING"), ("IDLE+DRAIN", "DRAIN"), ("IDLE*", "NOT_RESPONDING"), ("FAIL", "FAIL"),
        ("IDLE+MAINT+RESERVED", "MAINT RESERVED"), ("idle$", "MAINT"), ("FUTURE", "FUTURE"), ("INVAL", "INVAL"),
        ("IDLE", None), ("MIXED+PLANNED", None), ("ALLOCATED", None), ("IDLE+CLOUD+POWERED_DOWN", None),
        ("idle~", None), ("IDLE+POWERED_DOWN", "POWERED_DOWN"), ("drng", "DRNG"), ("mix-", None),
        ("idle^", "REBOOT_ISSUED"), ("idle@", None),
    ],
)  # fmt: skip
def test_nodes_that_slurm_gives_no_job_are_left_out(state: str, why: str | None, tmp_path: Path) -> None:
    text = "".join(f"NodeName=h{n}\n   Gres=gpu:h100:8\n   State=IDLE\n\n" for n in (1, 2))
    bad = f"NodeName=h3\n   Gres=gpu:h100:8\n   State={state} ThreadsPerCore=2\n"
    found = imported(slurm(tmp_path, text + bad, None))
    assert found.hosts == ("h1", "h2", "h3")[: 3 if why is None else 2]
    if why is not None:
        assert f"Left out: h3 (1 host), whose state is {why}." in told(found)
        with pytest.raises(InputError, match="takes jobs\\. Left out: h3"):
            imported(slurm(tmp_path, bad, None))


def test_lines_of_down_nodes_and_states_of_slurm_conf_are_read(tmp_path: Path) -> None:
    lines = "DownNodes=h[1-2] State=DRAIN Reason=fans\n# DownNodes=h3\nNodeName=h7 Gres=gpu:h100:8 State=FUTURE\n"
    found = imported(slurm(tmp_path, f"NodeName=h[1-4] Gres=gpu:h100:8 State=UNKNOWN\n{lines}", None))
    assert found.hosts == ("h3", "h4")
    assert "h1, h2 (2 hosts), whose state is DOWN." in told(found)
    assert "h7 (1 host), whose state is FUTURE." in told(found)


@pytest.mark.parametrize(
    ("gres", "why"),
    [
        ("gpu:nvidia_h100_80gb_hbm3_1g.10gb:7", "whose accelerators are split"),
        ("gpu:h100:4,gpu:a100:4", "which have accelerators of several kinds each"),
        ("gpu:h100:0", "which have no `Gres`"),
    ],
)
def test_accelerators_that_are_no_whole_gpus_of_one_kind_are_left_out(gres: str, why: str, tmp_path: Path) -> None:
    found = imported(slurm(tmp_path, f"NodeName=h[1-2] Gres=gpu:h100:8\nNodeName=h3 Gres={gres}\n", None))
    assert (found.hosts, found.devices_per_host) == (("h1", "h2"), 8)
    assert f"Left out: h3 (1 host), {why}" in told(found)


def test_accelerators_of_one_kind_in_two_parts_are_added_up_and_nodes_are_described_once(tmp_path: Path) -> None:
    parts = "NodeName=h[1-2] Gres=gpu:h100:4(S:0),gpu:h100:4(S:1)\n"
    assert imported(slurm(tmp_path, parts, None)).devices_per_host == 8
    with pytest.raises(InputError, match="node 'h2' is described twice"):
        imported(slurm(tmp_path, parts + "NodeName=h2 Gres=gpu:a100-80gb:8\n", None))


def test_what_a_node_says_itself_counts_before_the_default(tmp_path: Path) -> None:
    text = "NodeName=DEFAULT Gres=gpu:h100:4\nNodeName=n[1-2] Gres=gpu:h100:8\n"
    assert imported(slurm(tmp_path, text, None)).devices_per_host == 8


def test_slurm_conf_may_have_blanks_around_equals_signs_and_other_files(tmp_path: Path) -> None:
    text = "NodeName=h[1-2] Gres=gpu:h100:8\nNodeName = h3  Gres = gpu:h100:8 State = DOWN\ninclude more.conf\n"
    found = imported(slurm(tmp_path, text, None))
    assert found.hosts == ("h1", "h2")
    assert "h3 (1 host), whose state is DOWN." in told(found)
    assert "Ignoring the files of `Include`" in told(found)


def test_a_link_between_pools_of_two_vendors_is_refused() -> None:
    level = [{"fanout": 8, "bandwidth": "300 GB/s"}]
    pools = [{"name": name, "device": name, "levels": level} for name in ("h100-sxm", "mi300x")]
    problem = {
        "nest": 1,
        "model": {"transformer": {**DENSE, "layers": 12}},
        "training": {"global_batch": 16, "sequence_length": 1024},
    }
    between = [{"pools": ["h100-sxm", "mi300x"], "bandwidth": "25 GB/s"}]
    with pytest.raises(InputError, match=r"cluster\.between: pools 'h100-sxm' and 'mi300x' .* two vendors"):
        nest.solve({**problem, "cluster": {"pools": pools, "between": between}})


def test_a_host_of_two_pools_is_refused() -> None:
    level = [{"fanout": 8, "bandwidth": "300 GB/s"}]
    pools = [{"name": name, "device": name, "levels": level, "hosts": ["h1"]} for name in ("h100-sxm", "h200-sxm")]
    with pytest.raises(InputError, match=r"pools\[1\]\.hosts names 'h1', as does pools\[0\]"):
        nest.solve({"nest": 1, "model": "llama-3-8b", "training": {"global_batch": 8}, "cluster": {"pools": pools}})


def test_kinds_that_the_catalogue_lacks_are_no_pools() -> None:
    links = LinkProfile(tiers=(TierSpec(link="infiniband-ndr"),))
    other = node("b", [], labels={"nvidia.com/gpu.product": "NVIDIA-L40"})
    with pytest.raises(InputError, match="different accelerators"):
        imported(listed(node("a", []), other), links)
    with pytest.raises(InputError, match="names no accelerators"):
        imported({"instances": [*topograph()["instances"], {"id": "x", "network_layers": ["leaf1", "spine"]}]})


def test_groups_of_other_sizes_are_planned_inside_them() -> None:
    hosts = [*HOSTS[:5], ("a4", "leaf0")]
    found = imported(
        listed(*(node(name, [leaf, "spine"], labels=A100 if name[0] == "a" else {}) for name, leaf in hosts))
    )
    assert [[level.fanout for level in each.levels] for each in found.pools] == [[8, 2], [8, 4]]
