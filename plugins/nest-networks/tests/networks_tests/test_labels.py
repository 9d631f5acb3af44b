"""Labels of clouds on nodes of Kubernetes: where hosts are, what they have, and which labels a user must name."""

from typing import Any

import pytest

from nest.errors import InputError
from nest.spec import LinkProfile, TierSpec
from nest.units import BytesPerSecond
from networks_tests.field import imported, levels, told
from networks_tests.test_kubernetes import listed

STEEP = LinkProfile(tiers=tuple(TierSpec(bandwidth=BytesPerSecond(each)) for each in (50e9, 25e9, 12e9, 6e9)))


def node(name: str, gpus: int = 8, **labels: str) -> dict[str, Any]:
    """A node whose labels alone say where it is and what it has."""
    status = {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def placed(*keys: str, **more: str) -> dict[str, Any]:
    """Eight nodes, out of order: two under each switch of the first key, four under each of the second, all above."""
    labels = [{key: f"p{at // 2 ** (1 + up)}" for up, key in enumerate(keys)} for at in range(8)]
    return listed(*(node(f"n{at * 5 % 8}", **labels[at * 5 % 8], **more) for at in range(8)))


CLOUDS = {
    "nebius": ("topology.nebius.com/tier-1", "topology.nebius.com/tier-2", "topology.nebius.com/tier-3"),
    "nebius, fabric": (
        "topology.nebius.com/tier-1",
        "topology.nebius.com/tier-2",
        "topology.nebius.com/gpu-cluster-id",
    ),
    "coreweave": tuple(f"backend.coreweave.cloud/{each}" for each in ("leafgroup", "superpod", "fabric")),
    "oci": tuple(f"oci.oraclecloud.com/rdma.{each}_id" for each in ("local_block", "network_block", "hpc_island")),
}


@pytest.mark.parametrize("keys", CLOUDS.values(), ids=CLOUDS)
def test_labels_of_clouds_are_switches(keys: tuple[str, ...]) -> None:
    found = imported(placed(*keys, **{"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}), STEEP)
    assert levels(found) == [(8, 450e9), (2, 50e9), (2, 25e9), (2, 12e9)]
    groups = [frozenset(found.hosts[at : at + 2]) for at in range(0, 8, 2)]
    assert set(groups) == {frozenset((f"n{at}", f"n{at + 1}")) for at in range(0, 8, 2)}  # By leaf, not by name.
    assert "lists no switches" not in told(found)


@pytest.mark.parametrize(
    "key",
    ["ds.coreweave.com/nvlink.domain", "topology.nebius.com/tier-0", "oci.oraclecloud.com/host.gpu_memory_fabric_id",
     "topology.nebius.com/nvl-instance-group-id", "cloud.google.com/gce-topology-subblock"],
)  # fmt: skip
def test_trays_of_two_nvlink_domains(key: str) -> None:
    trays = [node(f"t{at * 7 % 36:02}", 4, **{key: f"d{at % 2}", "gpu.nvidia.com/model": "GB200"}) for at in range(36)]
    found = imported(listed(*trays))
    assert (levels(found), found.device) == ([(72, 900e9), (2, 50e9)], "gb200")
    assert len(set(found.hosts[:18]) & {f"t{at * 7 % 36:02}" for at in range(0, 36, 2)}) == 18


@pytest.mark.parametrize(
    ("key", "value", "device"),
    [
        ("cloud.google.com/gke-accelerator", "nvidia-h100-mega-80gb", "h100-sxm"),
        ("cloud.google.com/gke-accelerator", "nvidia-tesla-a100", "a100-sxm-40g"),
        ("cloud.google.com/gke-accelerator", "nvidia-b200", "b200-sxm"),
        ("gpu.nvidia.com/model", "H100_NVLINK_80GB", "h100-sxm"),
        ("gpu.nvidia.com/model", "A100_NVLINK_80GB", "a100-sxm-80g"),
        ("node.kubernetes.io/instance-type", "p5en.48xlarge", "h200-sxm"),
        ("node.kubernetes.io/instance-type", "Standard_ND96isr_H100_v5", "h100-sxm"),
        ("node.kubernetes.io/instance-type", "gpu-h200-sxm", "h200-sxm"),
        ("beta.kubernetes.io/instance-type", "a2-ultragpu-8g", "a100-sxm-80g"),
    ],
)
def test_what_clouds_call_accelerators(key: str, value: str, device: str) -> None:
    found = imported(listed(*(node(f"n{at}", **{key: value, "topology.nebius.com/tier-1": "leaf"}) for at in range(4))))
    assert (found.device, found.devices_per_host) == (device, 8)


def test_a_machine_type_brings_its_links() -> None:
    machine = {"node.kubernetes.io/instance-type": "p5.48xlarge"}
    found = imported(placed(*(f"topology.k8s.aws/network-node-layer-{tier}" for tier in (3, 2, 1)), **machine))
    assert isinstance(found.network, tuple)
    assert {each.link for each in found.network[1:]} == {"efa"}
    own = imported(placed(CLOUDS["oci"][0], **machine), STEEP)
    assert (own.device, levels(own)[-1]) == ("h100-sxm", (4, 25e9))  # What the user says of links wins.
    unknown = imported(placed(CLOUDS["oci"][0], **{"node.kubernetes.io/instance-type": "Standard_NC40ads_H100_v5"}))
    assert "link profile h100-ndr" in told(unknown)  # H100 NVL, which the catalogue does not have: not guessed.


RACKS = placed("acme.io/rackName", "acme.io/hall", **{"kubernetes.io/hostname": "x", "gpu.nvidia.com/model": "H200"})


@pytest.mark.parametrize("key", ["acme.io/leaf-switch", "acme.io/superpod", "x.io/topology-tier.2", "x.io/nvl_domain"])
def test_labels_that_may_be_places_are_named(key: str) -> None:
    nodes = placed(key, **{"gpu.nvidia.com/model": "H200", "topology.disk.csi.azure.com/zone": "z"})
    assert f"may name switches: {key} (4 values). Pass them with `--tier-label`" in told(imported(nodes))
    assert "zone" not in told(imported(nodes))


def test_labels_that_a_user_names_are_switches() -> None:
    named = LinkProfile(tier_labels=("acme.io/hall", "acme.io/rackName", "kubernetes.io/hostname"), tiers=STEEP.tiers)
    found = imported(RACKS, named)
    assert levels(found) == [(8, 450e9), (2, 50e9), (2, 25e9), (2, 12e9)]
    assert "not read" not in told(found)
    one = LinkProfile(tier_labels=("acme.io/hall",), tiers=STEEP.tiers)
    assert levels(imported(RACKS, one)) == [(8, 450e9), (4, 50e9), (2, 25e9)]
    with pytest.raises(InputError, match=r"acme\.io/hal: no node has this label.*acme\.io/hall, acme\.io/rackName"):
        imported(RACKS, LinkProfile(tier_labels=("acme.io/hal",)))
