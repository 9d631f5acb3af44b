import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.catalogue import profile
from nest.errors import InputError
from nest.spec import LinkProfile, TierSpec
from nest.units import BytesPerSecond
from nest_networks.switched.profiles import product_device
from networks_tests.field import imported, levels, told

NEW, OLD = "fabric.topograph.run/tier-{}", "network.topology.nvidia.com/tier-{}"


def node(name: str, layers: list[str], tier: str = NEW, gpus: int = 8, **more: Any) -> dict[str, Any]:
    labels = {tier.format(index): switch for index, switch in enumerate(layers)}
    labels |= {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"} if gpus else {}
    status = {"allocatable": {"cpu": "64", "nvidia.com/gpu": str(gpus)}}
    metadata = {
        "name": name,
        "labels": {**labels, **more.pop("labels", {})},
        "deletionTimestamp": more.pop("deleted", ""),
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status, **more}


def listed(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(nodes)}


@given(leaves=st.integers(2, 4), hosts=st.integers(2, 4), tier=st.sampled_from([NEW, OLD]))
def test_tiers_by_number(leaves: int, hosts: int, tier: str) -> None:
    names = [f"n{index}" for index in range(leaves * hosts)]
    nodes = [node(name, [f"leaf{index // hosts}", "spine"], tier) for index, name in enumerate(names)]
    given_profile = LinkProfile(
        tiers=(TierSpec(bandwidth=BytesPerSecond(50e9)), TierSpec(bandwidth=BytesPerSecond(25e9)))
    )
    found = imported(listed(*nodes), given_profile)
    assert levels(found) == [(8, 450e9), (hosts, 50e9), (leaves, 25e9)]
    assert (found.hosts, found.device, found.devices_per_host) == (tuple(names), "h100-sxm", 8)


def test_accelerators_out_of_order_are_not_planned_with() -> None:
    status = {"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "4"}}
    assert imported(listed(*(node(name, ["leaf"], status=status) for name in "ab"))).devices_per_host == 4


@pytest.mark.parametrize(
    "keys",
    [
        ("network.topology.nvidia.com/leaf", "network.topology.nvidia.com/spine"),
        ("network.topology.nvidia.com/block", "network.topology.nvidia.com/spine"),
        ("topology.k8s.aws/network-node-layer-3", "topology.k8s.aws/network-node-layer-2"),
        ("cloud.google.com/gce-topology-subblock", "cloud.google.com/gce-topology-block"),
        ("oci.oraclecloud.com/host.rack_id", "oci.oraclecloud.com/host.network_block_id"),
        ("oci.oraclecloud.com/rdma.local_block_id", "oci.oraclecloud.com/rdma.network_block_id"),
        ("backend.coreweave.cloud/leafgroup", "backend.coreweave.cloud/superpod"),
    ],
)
def test_other_labels(keys: tuple[str, str]) -> None:
    nodes = [node(f"n{index}", [], labels={keys[0]: f"r{index // 2}", keys[1]: "top"}) for index in range(4)]
    same = [node(f"n{index}", [f"r{index // 2}", "top"]) for index in range(4)]
    steep = LinkProfile(tiers=(TierSpec(bandwidth=BytesPerSecond(50e9), oversubscription=2.0),))
    assert levels(imported(listed(*nodes), steep)) == levels(imported(listed(*same), steep))
    assert len(levels(imported(listed(*nodes), steep))) == 3


@pytest.mark.parametrize(
    "key",
    [
        "accelerator.topograph.run/domain",
        "network.topology.nvidia.com/accelerator",
        "nvidia.com/gpu.clique",
        "topology.k8s.aws/ultraserver-id",
        "ds.coreweave.com/nvlink.domain",
    ],
)
def test_domains(key: str) -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-GB200"}
    nodes = [
        node(f"n{index:02}", [f"l{index // 18}", "s"], gpus=4, labels={**labels, key: f"d.{index // 18}"})
        for index in range(36)
    ]
    found = imported(listed(*nodes))
    assert (levels(found), found.device) == ([(72, 900e9), (2, 50e9)], "gb200")


def test_what_is_not_planned_with_is_told() -> None:
    gpu = [node(f"n{index}", ["leaf"]) for index in range(4)]
    cpu = node("control", [], gpus=0)
    cordoned = node("idle", ["leaf"], spec={"unschedulable": True})
    broken = node("broken", ["leaf"], gpus=7)
    far = node("far", [])
    found = imported(listed(cpu, *gpu, cordoned, broken, far))
    assert found.hosts == ("n0", "n1", "n2", "n3")
    for sentence in (
        "control (1 host), which have no acc",
        "idle (1 host), which are cordoned",
        "broken",
        "far (1 host)",
    ):
        assert sentence in told(found)


def condition(status: str, kind: str = "Ready") -> dict[str, Any]:
    return {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": [{"type": kind, "status": status}]}


def tainted(key: str, effect: str = "NoSchedule") -> dict[str, Any]:
    return {"taints": [{"key": key, "effect": effect}]}


MIG = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"}
OUT_OF_ORDER: list[tuple[dict[str, Any], str]] = [
    ({"status": condition("False")}, "which are not ready"),
    ({"status": condition("Unknown")}, "which are not ready"),
    ({"status": condition("False", "AcceleratedHardwareReady")}, "which are not ready"),
    ({"status": condition("True", "GpuUnhealthy")}, "which are not ready"),
    ({"status": condition("True", "NetworkUnavailable")}, "which are not ready"),
    ({"deleted": "2026-11-29T10:00:00Z"}, "which are being deleted"),
    ({"spec": tainted("karpenter.sh/disrupted")}, "which Kubernetes has tainted"),
    ({"spec": {"unschedulable": True}}, "which are cordoned"),
    ({"spec": tainted("node.kubernetes.io/unreachable", "NoExecute")}, "which Kubernetes has tainted"),
    ({"spec": tainted("ToBeDeletedByClusterAutoscaler")}, "which Kubernetes has tainted"),
    ({"labels": MIG, "gpus": 56}, "whose accelerators are split"),
]


@pytest.mark.parametrize(("broken", "why"), OUT_OF_ORDER)
def test_nodes_that_take_no_job_are_left_out_and_refused_where_none_is_left(broken: dict[str, Any], why: str) -> None:
    gpu = [node(f"n{index}", ["leaf"]) for index in range(3)]
    found = imported(listed(*gpu, node("bad", ["leaf"], **broken)))
    assert found.hosts == ("n0", "n1", "n2")
    assert f"Left out: bad (1 host), {why}" in told(found)
    with pytest.raises(InputError, match=rf"takes jobs\. Left out: bad .*{why}"):
        imported(listed(node("bad", ["leaf"], **broken)))


def test_taints_that_jobs_tolerate_leave_nodes_in() -> None:
    states = condition("True"), condition("False", "GpuUnhealthy")
    kept = [node(f"n{at}", ["leaf"], spec=tainted("nvidia.com/gpu"), status=each) for at, each in enumerate(states)]
    found = imported(listed(*kept, node("n2", ["leaf"], spec=tainted("node.kubernetes.io/x", "PreferNoSchedule"))))
    assert found.hosts == ("n0", "n1", "n2")
    assert "Jobs must tolerate the taints of these nodes: nvidia.com/gpu." in told(found)


def test_zones_are_levels_where_nothing_nearer_is_known() -> None:
    labels = [
        {"topology.kubernetes.io/zone": f"z{index // 2}", "topology.kubernetes.io/region": "r"} for index in range(4)
    ]
    far = LinkProfile(tiers=(TierSpec(bandwidth=BytesPerSecond(50e9)), TierSpec(bandwidth=BytesPerSecond(5e9))))
    found = imported(listed(*(node(f"n{index}", [], labels=each) for index, each in enumerate(labels))), far)
    assert levels(found)[1:] == [(2, 50e9), (2, 5e9)]
    assert "Treating 2 zones as switches" in told(found)
    assert "lists no switches" not in told(found)
    near = imported(listed(*(node(f"n{i}", ["leaf", "spine"], labels=each) for i, each in enumerate(labels))), far)
    assert levels(near)[1:] == [(4, 50e9)]


@pytest.mark.parametrize("key", ["example.com/rack-id", "rack", "example.com/rackName", "example.com/Rack"])
def test_labels_that_may_name_places_are_told(key: str) -> None:
    racks = [node(f"n{index}", [], labels={key: f"r{index // 2}"}) for index in range(4)]
    found = told(imported(listed(*racks)))
    assert f"Ignored labels that may name switches: {key} (2 values). Pass them" in found
    one = imported(listed(*(node(f"n{index}", [], labels={"example.com/rack": "same"}) for index in range(4))))
    assert "may name places" not in told(one)


@pytest.mark.parametrize("named", [{}, {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}])
def test_accelerators_of_two_vendors_that_nobody_names_are_refused(named: dict[str, str]) -> None:
    bare = [node("a", []), node("b", [])]
    for each, resource, labels in zip(bare, ("nvidia.com/gpu", "amd.com/gpu"), (named, {}), strict=True):
        each["metadata"]["labels"], each["status"] = labels, {"allocatable": {resource: "8"}}
    with pytest.raises(InputError, match=r"nodes offer amd\.com/gpu and nvidia.com/gpu"):
        imported(listed(*bare))


def test_a_node_that_does_not_say_its_product_is_told() -> None:
    nodes = [node(name, ["leaf"]) for name in "abc"]
    assert "label of their product" not in told(imported(listed(*nodes)))
    del nodes[2]["metadata"]["labels"]["nvidia.com/gpu.product"]
    assert "such as c, equal the others" in told(imported(listed(*nodes)))


def test_the_file_and_other_kinds_of_lists(tmp_path: Path) -> None:
    nodes = [node(f"n{index}", ["leaf"]) for index in range(2)]
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps(listed(*nodes)))
    assert imported(path).hosts == ("n0", "n1")
    assert imported({**listed(*nodes), "kind": "NodeList"}).hosts == ("n0", "n1")
    assert imported(nodes[0]).hosts == ("n0",)


@pytest.mark.parametrize(
    ("product", "device"),
    [
        ("NVIDIA-H100-80GB-HBM3", "h100-sxm"), ("NVIDIA-H100-80GB-HBM3-SHARED", "h100-sxm"), ("NVIDIA-H100-PCIe", None),
        ("NVIDIA-H100-NVL", None), ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", None), ("NVIDIA-H200", "h200-sxm"),
        ("NVIDIA-A100-SXM4-80GB", "a100-sxm-80g"), ("NVIDIA-A100-SXM4-40GB", "a100-sxm-40g"),
        ("NVIDIA-A100-PCIE-40GB", None), ("Tesla-V100-SXM2-32GB", "v100-sxm-32g"), ("Tesla-V100-SXM2-16GB", None),
        ("NVIDIA-B200", "b200-sxm"), ("NVIDIA-GB200", "gb200"), ("NVIDIA-GB300", "gb300"), ("NVIDIA-GH200-480GB", None),
        ("AMD_Instinct_MI300X_OAM", "mi300x"), ("NVIDIA-L40S", "l40s"),
        ("AMD_Instinct_MI355X_OAM", "mi355x"), ("AMD_Instinct_MI325X_OAM", "mi325x"), ("AMD_Instinct_MI250X", "mi250x"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "rtx-pro-6000"), ("NVIDIA-RTX-6000-Ada-Generation", None),
        ("NVIDIA-GB10", "gb10"), ("NVIDIA-L40", None),
    ],
)  # fmt: skip
def test_products(product: str, device: str | None) -> None:
    links = LinkProfile(tiers=(TierSpec(link="infiniband-ndr"),))
    assert product_device(product, links) == device
    if device is None:
        with pytest.raises(InputError, match="no accelerator called"):
            product_device(product, None)
    assert product_device(product, profile("h100-ndr")) is None  # What the profile says, it says itself.


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (listed(node("a", [], gpus=0)), "no node has accelerators"),
        (listed(), "no node has accelerators"),
        (
            listed(node("a", []), node("b", [], labels={"nvidia.com/gpu.product": "NVIDIA-L40"})),
            "no accelerator called 'NVIDIA-L40'",
        ),
        (listed({"kind": "Node", "metadata": {}}), r"items\[0\].metadata.name is missing"),
        (listed({"kind": "Node", "metadata": 3}), r"items\[0\].metadata.name is missing"),
    ],
)
def test_what_cannot_be_is_named(source: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        imported(source)


def test_shared_samples(shared: Path) -> None:
    found = imported(shared / "topologies" / "k8s" / "nodes_topograph_labels.json")
    assert (levels(found), found.hosts) == ([(4, 900e9), (2, 50e9)], ("node-0", "node-1"))
    assert found.device == "gb200"


def test_accelerators_that_jobs_share_are_counted_once() -> None:
    shared = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED", "nvidia.com/gpu.replicas": "4"}
    found = imported(listed(*(node(f"n{index}", ["leaf"], gpus=32, labels=shared) for index in range(2))))
    assert (found.devices_per_host, levels(found)[0]) == (8, (8, 450e9))
    assert "count once" in told(found)


def test_accelerators_that_are_out_of_order_are_not_planned_with() -> None:
    product = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    dark = node("dark", ["leaf"], gpus=0, labels=product)
    found = imported(listed(dark, *(node(f"n{index}", ["leaf"]) for index in range(2))))
    assert found.hosts == ("n0", "n1")
    with pytest.raises(InputError, match="no node has accelerators"):
        imported(listed(dark))


def test_what_is_no_list_of_nodes_is_refused() -> None:
    with pytest.raises(InputError, match="items must be a list"):
        imported({"kind": "NodeList", "items": 5})
