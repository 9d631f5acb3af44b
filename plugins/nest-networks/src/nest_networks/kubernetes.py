"""Nodes of Kubernetes (`kubectl get nodes -o json`), with the labels that say where they are and what they have.

Keys: NVIDIA/topograph@e2b6250 docs/reference/node-labels.md (its own, those of earlier releases as in its history,
those of clouds), NVIDIA/k8s-device-plugin docs/gpu-feature-discovery (`nvidia.com/gpu.*`), ROCm/gpu-operator
(`amd.com/gpu*`), Oracle's OKE (`rdma.*`, oci-hpc-oke), AWS's SageMaker HyperPod (`ultraserver-id`), CoreWeave's
Topologies for Kueue and `gpu.nvidia.com/*`, docs.nebius.com/kubernetes/gpu/topology-aware-scheduling, GKE's
`gke-accelerator`, and kubernetes.io, Well-Known Labels, Annotations and Taints.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from nest.errors import InputError
from nest.network.imported import Imported
from nest.spec import LinkProfile
from nest_networks.switched.network import switched_network
from nest_networks.switched.pools import pools_of_hosts
from nest_networks.switched.profiles import DOMAIN_PROFILE, USUAL, is_slice, product_device, with_machines
from nest_networks.switched.tree import LocatedHost, left_out, tree_of_layers

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

BROKEN = re.compile(
    r"node\.kubernetes\.io/|node\.cloudprovider\.kubernetes\.io/|ToBeDeletedByClusterAutoscaler$|karpenter\.sh/disrupt"
)
"""Taints that Kubernetes and its autoscalers put on nodes that are out of order."""

WELL, ILL = re.compile(r"(?:Ready|(?<!Un)Healthy)$"), re.compile(r"(?:Unavailable|Pressure|Unhealthy|Deadlock)$")
"""Conditions of nodes in order, and of others (kubernetes.io, Node Status; node-problem-detector; Amazon EKS)."""

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
KNOWN = frozenset(key for keys in (*FABRICS, *SITES, DOMAINS) for key in keys)


class KubernetesImporter:
    """Reads a list of nodes, or one node."""

    name = "kubernetes"
    profiled = True
    labelled = True
    examples = (
        {
            "kind": "Node",
            "metadata": {"name": "n1", "labels": {"fabric.topograph.run/tier-0": "leaf"}},
            "status": {"capacity": {"nvidia.com/gpu": "8"}},
        },
    )

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is a mapping that Kubernetes calls a list of nodes, or a node."""
        if not isinstance(source, Mapping):
            return False
        if source.get("kind") in ("Node", "NodeList"):
            return True
        items = source.get("items")
        return (
            source.get("kind") == "List"
            and isinstance(items, (list, tuple))
            and all(isinstance(item, Mapping) and item.get("kind") == "Node" for item in items)
        )

    def load(self, source: Mapping[str, Any], profile: LinkProfile | None = None) -> Imported:
        """The nodes with accelerators, under the switches that their labels name.

        Raises:
            InputError: no node has accelerators, nodes differ in them, or the catalogue does not know them.
        """
        items = [source] if source.get("kind") == "Node" else source.get("items") or ()
        if not isinstance(items, (list, tuple)):
            raise InputError("items must be a list of nodes, as `kubectl get nodes -o json` prints it.")
        tiers = profile.tier_labels if profile is not None else ()
        nodes = [_node(item, index, tiers) for index, item in enumerate(items)]
        nodes, sentences = _working(nodes)
        _check_labels(tiers, nodes, items)
        profile = with_machines(profile, [node.machine for node in nodes if node.product is None])
        kinds = _kinds(nodes, profile)
        if len(kinds) > 1:
            return _pools(kinds, profile, [*sentences, *_overlooked(items, nodes, tiers)])
        chosen, more = _chosen(nodes)
        sentences += [*more, *_overlooked(items, chosen, tiers)]
        device = _device(chosen, profile)
        tree, further = tree_of_layers([each.host for each in chosen])
        usual = DOMAIN_PROFILE if any(each.host.domain for each in chosen) else USUAL
        return switched_network(tree, profile, usual=usual, device=device, assumptions=(*sentences, *further))


@frozen
class _Node:
    """Facts of a node.

    Attributes:
        host: its name, place and accelerators.
        product: name of its accelerators; None: unknown.
        why: reason against jobs there, as the end of a sentence; None: jobs may run.
        resource: name by which jobs request its accelerators; None: unknown.
        tolerated: keys of taints that jobs have to tolerate.
        sharers: jobs that share each accelerator, which still counts once.
        machine: a cloud's name of such machines; None: unknown.
    """

    host: LocatedHost
    product: str | None
    why: str | None
    sharers: int = 1
    resource: str | None = None
    tolerated: tuple[str, ...] = ()
    machine: str | None = None

    @property
    def equipped(self) -> bool:
        """True if it has accelerators; nodes whose accelerators are all out of order have 0 to allocate."""
        return self.product is not None if self.host.devices is None else self.host.devices > 0


def _node(item: Any, index: int, tiers: Sequence[str] = ()) -> _Node:
    metadata = _mapping(item, "metadata")
    labels = {str(key): str(value) for key, value in _mapping(metadata, "labels").items()}
    name = metadata.get("name") or labels.get("kubernetes.io/hostname")
    if not name:
        raise InputError(
            f"items[{index}].metadata.name is missing; give the nodes as `kubectl get nodes -o json` does."
        )
    sharers = _whole(labels.get(SHARERS)) or 1
    resource, count = _offered(item, labels, sharers)
    product = _first(labels, PRODUCTS)
    domain = _first(labels, DOMAINS) or (labels.get(SUBBLOCK) if re.search("gb[23]00", product or "", re.I) else None)
    host = LocatedHost(str(name), _layers(labels, tiers), domain, count)
    why, tolerated = _state(item)
    if why is None and product is not None and is_slice(product):
        why = "whose accelerators are split (MIG), which NCCL does not join"
    return _Node(host, product, why, sharers, resource, tolerated, _first(labels, MACHINE))


def _state(item: Any) -> tuple[str | None, tuple[str, ...]]:
    """Why a node takes no job (None: it does), and the taints that a job must tolerate."""
    spec, status = _mapping(item, "spec"), _mapping(item, "status")
    taints = [str(each.get("key")) for each in _listed(spec, "taints") if each.get("effect") != "PreferNoSchedule"]
    if spec.get("unschedulable"):
        return "which are cordoned", ()
    if _mapping(item, "metadata").get("deletionTimestamp"):
        return "which are being deleted", ()
    conditions = [(str(each.get("type")), each.get("status") == "True") for each in _listed(status, "conditions")]
    if any((WELL.search(kind) and not holds) or (ILL.search(kind) and holds) for kind, holds in conditions):
        return "which are not ready", ()
    if any(map(BROKEN.match, taints)):
        return "which Kubernetes has tainted as out of order", ()
    return None, tuple(taints)


def _listed(item: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    entries = item.get(key)
    return [each for each in entries if isinstance(each, Mapping)] if isinstance(entries, (list, tuple)) else []


def _names_place(key: str) -> bool:
    """Return whether a key says that its values are places; zones and regions are `SITES`."""
    words = re.split(r"[./_-]", re.sub(r"(?<=[a-z])(?=[A-Z])", "-", key).lower())
    return (
        bool(PLACES & set(words)) and words[-1] not in ("zone", "region", "hostname") and words[-2:] != ["zone", "id"]
    )


def _check_labels(tiers: Sequence[str], nodes: Sequence[_Node], items: Sequence[Any]) -> None:
    """Refuse a label named as a tier that no node has."""
    held = {str(key) for item in items for key in _mapping(_mapping(item, "metadata"), "labels")}
    lost = next((key for key in tiers if key not in held and key != HOSTNAME), None)
    if lost is not None:
        near = sorted(key for key in held if _names_place(key))
        raise InputError(
            f"--tier-label {lost:.80}: no node has this label."
            + (f" Labels that may name places: {', '.join(near)[:200]}." if near else "")
        )


def _overlooked(items: Sequence[Any], nodes: Sequence[_Node], read: Sequence[str] = ()) -> list[str]:
    """A sentence on labels that may name places of the nodes planned with, and on taints."""
    names = {node.host.name for node in nodes}
    values: dict[str, set[str]] = {}
    for item in items:
        metadata = _mapping(item, "metadata")
        if metadata.get("name") in names:
            for key, value in _mapping(metadata, "labels").items():
                if key in (SITES[0][0], SITES[1][0]):
                    values.setdefault("zone", set()).add(str(value))
                if key not in (*KNOWN, *read) and not TIER.fullmatch(str(key)) and _names_place(str(key)):
                    values.setdefault(str(key), set()).add(str(value))
    zones = {node.host.layers[0] for node in nodes if node.host.layers} & values.pop("zone", set())
    found = [f"{key:.60} ({len(each)} values)" for key, each in sorted(values.items()) if 1 < len(each) < len(names)]
    sentences = []
    if found:
        sentences.append(
            f"Ignored labels that may name switches: {', '.join(found[:3])}. Pass them with `--tier-label`, the "
            "outermost first."
        )
    if len(zones) > 1:
        sentences.append(f"Treating {len(zones)} zones as switches; give their bandwidth in a link profile (`tiers`).")
    if taints := sorted({key for node in nodes for key in node.tolerated}):
        sentences.append(f"Jobs must tolerate the taints of these nodes: {', '.join(taints[:3]):.200}.")
    return sentences


def _mapping(item: Any, key: str) -> Mapping[str, Any]:
    entry = item.get(key) if isinstance(item, Mapping) else None
    return entry if isinstance(entry, Mapping) else {}


def _first(labels: Mapping[str, str], keys: Sequence[str]) -> str | None:
    return next((labels[key] for key in keys if labels.get(key)), None)


def _layers(labels: Mapping[str, str], named: Sequence[str]) -> tuple[str, ...]:
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


def _offered(item: Any, labels: Mapping[str, str], sharers: int) -> tuple[str | None, int | None]:
    """Resource name of accelerators, and number for jobs, else the number in labels; None: not stated.

    Shared accelerators count once per sharer in resources (k8s-device-plugin, "Shared Access to GPUs").
    """
    status = _mapping(item, "status")
    for resources in (_mapping(status, "allocatable"), _mapping(status, "capacity")):
        for key in RESOURCES:
            count = _whole(resources.get(key))
            if count is not None:
                return key if count else None, count // sharers if count % sharers == 0 else count
    return None, _whole(_first(labels, COUNTS))


def _whole(value: Any) -> int | None:
    """A count as Kubernetes writes it; None: it is none."""
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 6 else None


def _working(nodes: Sequence[_Node]) -> tuple[list[_Node], list[str]]:
    """The nodes that have accelerators and take jobs, and sentences on those left out.

    Raises:
        InputError: there are none.
    """
    equipped = [node for node in nodes if node.equipped]
    if not equipped:
        raise InputError(
            "no node has accelerators: neither `nvidia.com/gpu` among its resources nor labels such as "
            "`nvidia.com/gpu.count`. Run NVIDIA's or AMD's GPU Operator, or import another file."
        )
    sentences = []
    if len(equipped) < len(nodes):
        bare = [node.host.name for node in nodes if not node.equipped]
        sentences.append(left_out(bare, "which have no accelerators for jobs"))
    for why in dict.fromkeys(node.why for node in equipped if node.why is not None):
        sentences.append(left_out([node.host.name for node in equipped if node.why == why], why))
    usable = [node for node in equipped if node.why is None]
    if not usable:
        raise InputError(f"no node with accelerators takes jobs. {' '.join(sentences[-3:])}")
    resources = sorted({node.resource for node in usable if node.resource})
    if len(resources) > 1 and any(node.product is None for node in usable):
        raise InputError(
            f"nodes offer {' and '.join(resources)} and some have no label of their product; import one kind, or "
            "label them with NVIDIA's and AMD's GPU Operators."
        )
    return usable, sentences


def _chosen(usable: Sequence[_Node]) -> tuple[list[_Node], list[str]]:
    """The nodes with as many accelerators as most have, and sentences on the others."""
    sentences = []
    counts = Counter(node.host.devices for node in usable)
    usual = max(counts, key=lambda count: (counts[count], count or 0))
    if len(counts) > 1:
        odd = [node.host.name for node in usable if node.host.devices != usual]
        sentences.append(left_out(odd, f"which do not have {usual} accelerators as most do"))
    chosen = [node for node in usable if node.host.devices == usual]
    if any(node.sharers > 1 for node in chosen):
        sentences.append("Shared accelerators count once; nest assumes a job has them alone.")
    unsaid = [node.host.name for node in chosen if node.product is None]
    if len(unsaid) not in (0, len(chosen)):
        sentences.append(f"Assuming nodes without a product label, such as {unsaid[0]:.60}, equal the others.")
    return chosen, sentences


def _kinds(nodes: Sequence[_Node], profile: LinkProfile | None) -> dict[str, list[_Node]]:
    """The nodes of each device of the catalogue, where those for jobs have several; else nothing."""
    products = dict.fromkeys(node.product for node in nodes)
    named = {each: product_device(each, profile) for each in products if each} if len(products) > 1 else {}
    kinds: dict[str, list[_Node]] = {}
    for node in nodes:
        device = named.get(node.product or "")
        if device is not None:
            kinds.setdefault(device, []).append(node)
    return kinds if None not in products and None not in named.values() else {}


def _pools(kinds: Mapping[str, Sequence[_Node]], profile: LinkProfile | None, sentences: list[str]) -> Imported:
    """A pool of the nodes of each device."""
    hosts = {}
    for device, nodes in kinds.items():
        chosen, more = _chosen(nodes)
        hosts[device] = [node.host for node in chosen]
        sentences += [f"{device}: {each}" for each in more]
    return pools_of_hosts(hosts, profile, assumptions=sentences)


def _device(nodes: Sequence[_Node], profile: LinkProfile | None) -> str | None:
    """The accelerator of the nodes by its name in the catalogue; None: they do not say, or the profile says."""
    products = sorted({node.product for node in nodes if node.product})
    if len(products) > 1:
        raise InputError(
            f"nodes have different accelerators, {products[0]!r:.60} and {products[1]!r:.60}; import those of one "
            "kind: `kubectl get nodes -l nvidia.com/gpu.product=... -o json`."
        )
    return product_device(products[0], profile) if products else None
