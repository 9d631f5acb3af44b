"""Labels, taints and conditions of Kubernetes' nodes, by meaning.

Sources as of `kubernetes`; docs.coreweave.com, InfiniBand and RoCE labels (`backend.` and, before it, `ib.`).
"""

import re
from collections.abc import Mapping, Sequence

TIER = re.compile(r"(?:fabric\.topograph\.run|network\.topology\.nvidia\.com)/tier-(\d{1,3})")
SUBBLOCK = "cloud.google.com/gce-topology-subblock"
"""Of trays of GB200 and GB300 also their NVLink domain, as topograph's provider `gcp` has it."""

FABRICS: tuple[tuple[str, ...], ...] = (
    tuple(f"network.topology.nvidia.com/{tier}" for tier in ("leaf", "spine", "core")),
    tuple(f"network.topology.nvidia.com/{tier}" for tier in ("block", "spine", "datacenter")),
    tuple(f"topology.k8s.aws/network-node-layer-{tier}" for tier in (3, 2, 1)),
    (SUBBLOCK, "cloud.google.com/gce-topology-block"),
    ("oci.oraclecloud.com/host.rack_id", "oci.oraclecloud.com/host.network_block_id"),
    tuple(f"oci.oraclecloud.com/rdma.{tier}_id" for tier in ("local_block", "network_block", "hpc_island")),
    tuple(f"backend.coreweave.cloud/{tier}" for tier in ("leafgroup", "superpod", "fabric")),
    tuple(f"ib.coreweave.cloud/{tier}" for tier in ("leafgroup", "superpod", "fabric")),
    tuple(f"topology.nebius.com/{tier}" for tier in ("tier-1", "tier-2", "tier-3", "gpu-cluster-id")),
)
"""Labels of one origin, the nearest switch first; where there are none with tiers by number, the most of one origin."""

SITES = (
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"),
)
"""Labels of places larger than a fabric: levels where there are none of `FABRICS`."""

PLACES = frozenset({
    "topology", "tier", "leaf", "leafgroup", "spine", "switch", "rack", "row", "pod", "superpod", "island", "block",
    "subblock", "plane", "room", "hall", "cell", "domain",
})  # fmt: skip
"""Words of keys that may name a place; keys of no origin that is known here."""

HOSTNAME = "kubernetes.io/hostname"
"""Last label in Topologies of Kueue: the host itself."""

DOMAINS = (
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
    "nvidia.com/gpu.clique",
    "topology.k8s.aws/ultraserver-id",
    "ds.coreweave.com/nvlink.domain",
    "topology.nebius.com/nvl-instance-group-id",
    "topology.nebius.com/tier-0",
    "oci.oraclecloud.com/host.gpu_memory_fabric_id",
)
"""Labels of NVLink domains, the first that a node has."""

SAME = ("backend.coreweave.cloud/leafgroup-name", "node.coreweave.cloud/rack")
"""Other names of places in `FABRICS`, and places that are no switches."""

KNOWN = frozenset(key for keys in (*FABRICS, *SITES, DOMAINS, SAME) for key in keys)

PRODUCTS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    "gpu.nvidia.com/model",
    "cloud.google.com/gke-accelerator",
)
MACHINE = "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"
SHARERS = "nvidia.com/gpu.replicas"
COUNTS = ("nvidia.com/gpu.count", "amd.com/gpu.count", "gpu.nvidia.com/count", "cloud.google.com/gke-accelerator-count")
RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")

BROKEN = re.compile(
    r"node\.kubernetes\.io/|node\.cloudprovider\.kubernetes\.io/|ToBeDeletedByClusterAutoscaler$|karpenter\.sh/disrupt"
)
"""Taints that Kubernetes and its autoscalers put on nodes that are out of order."""

WELL, ILL = re.compile(r"(?:Ready|(?<!Un)Healthy)$"), re.compile(r"(?:Unavailable|Pressure|Unhealthy|Deadlock)$")
"""Conditions of nodes in order, and of others (kubernetes.io, Node Status; node-problem-detector; Amazon EKS)."""


def names_place(key: str) -> bool:
    """Return whether a key says that its values are places; zones and regions are `SITES`."""
    words = re.split(r"[./_-]", re.sub(r"(?<=[a-z])(?=[A-Z])", "-", key).lower())
    return (
        bool(PLACES & set(words)) and words[-1] not in ("zone", "region", "hostname") and words[-2:] != ["zone", "id"]
    )


def layers_by_labels(labels: Mapping[str, str], named: Sequence[str]) -> tuple[str, ...]:
    """The switches above a node, the nearest first; `named`: the labels that a user says they are, outermost first."""
    if named:
        keys = [key for key in reversed(named) if key != HOSTNAME and key not in DOMAINS]
        return tuple(labels[key] for key in keys if labels.get(key))
    tiers = {int(match[1]): labels[key] for key in labels if (match := TIER.fullmatch(key)) and labels[key]}
    if tiers:
        return tuple(tiers[tier] for tier in sorted(tiers))
    return max(_held(labels, FABRICS), key=len) or max(_held(labels, SITES), key=len)


def _held(labels: Mapping[str, str], families: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Labels of each family on a node."""
    return [tuple(labels[key] for key in keys if labels.get(key)) for keys in families]


def first_label(labels: Mapping[str, str], keys: Sequence[str]) -> str | None:
    """Value of the first label of `keys` that a node has."""
    return next((labels[key] for key in keys if labels.get(key)), None)


def strange(labels: Mapping[str, str], capacity: Mapping[str, object]) -> str | None:
    """TPUs of GKE or Trainium of AWS on a node, and how to plan them, as the end of a sentence; None: neither.

    docs.cloud.google.com/kubernetes-engine, About TPUs in GKE; awsdocs-neuron, Neuron device plugin.
    """
    kind = labels.get("cloud.google.com/gke-tpu-accelerator")
    if kind or "google.com/tpu" in capacity:
        shape = labels.get("cloud.google.com/gke-tpu-topology", "4x4x4").replace("x", ", ")
        return (
            f"part of a TPU slice ({kind or 'google.com/tpu':.40}), which is not imported; write `device` and "
            f"`topology: {{torus: {{shape: [{shape:.40}], bandwidth: ...}}}}`."
        )
    if any(str(key).startswith("aws.amazon.com/neuron") for key in capacity):
        return "a machine of AWS Neuron (Trainium), which is not imported; write `device` and `levels`."
    return None
