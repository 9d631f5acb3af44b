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
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from nest.errors import InputError
from nest.network.imported import Imported
from nest.spec import LinkProfile
from nest_networks.files import beginning
from nest_networks.kubernetes_labels import (
    BROKEN,
    COUNTS,
    DOMAINS,
    HOSTNAME,
    ILL,
    KNOWN,
    MACHINE,
    PRODUCTS,
    RESOURCES,
    SHARERS,
    SITES,
    SUBBLOCK,
    TIER,
    WELL,
    first_label,
    layers_by_labels,
    names_place,
    strange,
)
from nest_networks.switched.network import switched_network
from nest_networks.switched.pools import pools_of_hosts
from nest_networks.switched.profiles import (
    DOMAIN_PROFILE,
    USUAL,
    is_slice,
    known_product,
    product_device,
    with_machines,
)
from nest_networks.switched.tree import LocatedHost, left_out, tree_of_layers

TABLE = re.compile(r"(?:[^\n]*\n)?NAME +STATUS +ROLES ")
"""What `kubectl get nodes` prints without `-o json`."""

TOPOLOGY = "Topology"
"""Kind of a list of labels of tiers, in Kueue."""


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
        """Return whether `source` is a mapping that Kubernetes calls a list, or a node; knows Kueue's Topology, too."""
        if not isinstance(source, Mapping):
            return TABLE.match(beginning(source)) is not None
        if source.get("kind") == TOPOLOGY:
            return "kueue" in str(source.get("apiVersion"))
        listed = source.get("kind") == "List" and isinstance(source.get("items"), (list, tuple))
        return listed or source.get("kind") in ("Node", "NodeList")

    def load(self, source: Mapping[str, Any] | Path, profile: LinkProfile | None = None) -> Imported:
        """The nodes with accelerators, under the switches that their labels name.

        Raises:
            InputError: no node has accelerators, nodes differ in them, or the catalogue does not know them.
        """
        if not isinstance(source, Mapping):
            raise InputError("the file is a table for people; import `kubectl get nodes -o json`.")
        listed, others = _items(source)
        tiers = profile.tier_labels if profile is not None else ()
        tiers, sentences = (tiers, _pages(source)) if tiers else _kueue(others, _pages(source))
        items = [item for _, item in listed]
        nodes, more = _working([_node(item, index, tiers) for index, item in listed])
        sentences += more
        _check_labels(tiers, nodes, items)
        profile = _of_machines(nodes, profile)
        kinds = _kinds(nodes, profile)
        if len(kinds) > 1:
            return _pools(kinds, profile, [*sentences, *_overlooked(items, nodes, tiers)])
        chosen, more = _chosen(nodes)
        sentences += [*more, *_overlooked(items, chosen, tiers)]
        device = _device(chosen, profile)
        tree, further = tree_of_layers(_placed([each.host for each in chosen], items))
        usual = DOMAIN_PROFILE if any(each.host.domain for each in chosen) else USUAL
        return switched_network(tree, profile, usual=usual, device=device, assumptions=(*sentences, *further))


def _items(source: Mapping[str, Any]) -> tuple[list[tuple[int, Any]], list[Mapping[str, Any]]]:
    """The nodes of a list with their places in it, and what else `kubectl get nodes,...` puts there.

    Raises:
        InputError: there are other things only.
    """
    items = [source] if source.get("kind") in ("Node", TOPOLOGY) else source.get("items") or ()
    if not isinstance(items, (list, tuple)):
        raise InputError("items must be a list of nodes, as `kubectl get nodes -o json` prints it.")
    kinds = [item.get("kind", "Node") if isinstance(item, Mapping) else "Node" for item in items]
    others = [item for kind, item in zip(kinds, items, strict=True) if kind != "Node"]
    if others and len(others) == len(items):
        raise InputError(
            f"the file has no nodes, but {kinds[0]!s:.40}. Import those of `kubectl get nodes -o json`"
            + (", with `--tier-label` for each label of the Topology." if kinds[0] == TOPOLOGY else ".")
        )
    return [(at, item) for at, (kind, item) in enumerate(zip(kinds, items, strict=True)) if kind == "Node"], others


def _kueue(others: Sequence[Mapping[str, Any]], sentences: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """Labels of tiers, the outermost first, of the only Topology of Kueue; `sentences` with one on it."""
    found = [each for each in others if each.get("kind") == TOPOLOGY]
    names = ", ".join(str(_mapping(each, "metadata").get("name")) for each in found)
    if len(found) > 1:
        sentences.append(f"Ignored several topologies of Kueue ({names:.200}); use `--tier-label`.")
    if len(found) != 1:
        return (), sentences
    levels = tuple(str(each.get("nodeLabel")) for each in _listed(_mapping(found[0], "spec"), "levels"))
    return levels, [*sentences, f"The switches are those of Kueue's Topology {names:.60}: {', '.join(levels):.200}."]


def _pages(source: Mapping[str, Any]) -> list[str]:
    """A sentence on a list that the API server has cut into pages."""
    metadata = _mapping(source, "metadata")
    if not metadata.get("continue"):
        return []
    count = metadata.get("remainingItemCount") or "some"
    return [f"Missing: {count} more nodes, the list is one page. Import `kubectl get nodes -o json`."]


def _of_machines(nodes: Sequence["_Node"], profile: LinkProfile | None) -> LinkProfile | None:
    """`profile` with the links of the nodes' only machine type, unless their products are other devices."""
    known = with_machines(profile, [node.machine for node in nodes])
    products = {node.product for node in nodes if node.product}
    if known is None or not products or {known_product(each) for each in products} == {known.device}:
        return known
    return profile


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
        strange: what it is if its accelerators are not imported, and what to do, as the end of a sentence.
    """

    host: LocatedHost
    product: str | None
    why: str | None
    sharers: int = 1
    resource: str | None = None
    tolerated: tuple[str, ...] = ()
    machine: str | None = None
    strange: str | None = None

    @property
    def equipped(self) -> bool:
        """True if it has accelerators; nodes whose accelerators are all out of order have 0 to allocate."""
        if self.strange is not None:
            return False
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
    product = first_label(labels, PRODUCTS)
    rack = re.search("gb[23]00", product or "", re.IGNORECASE)
    domain = first_label(labels, DOMAINS) or (labels.get(SUBBLOCK) if rack else None)
    host = LocatedHost(str(name), layers_by_labels(labels, tiers), domain, count)
    why, tolerated = _state(item)
    if why is None and product is not None and is_slice(product):
        why = "whose accelerators are split (MIG), which NCCL does not join"
    machine = first_label(labels, MACHINE)
    return _Node(
        host,
        product,
        why,
        sharers,
        resource,
        tolerated,
        machine,
        strange(labels, _mapping(_mapping(item, "status"), "capacity")),
    )


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


def _check_labels(tiers: Sequence[str], nodes: Sequence[_Node], items: Sequence[Any]) -> None:
    """Refuse a label named as a tier that no node has."""
    held = {str(key) for item in items for key in _mapping(_mapping(item, "metadata"), "labels")}
    lost = next((key for key in tiers if key not in held and key != HOSTNAME), None)
    if lost is not None:
        near = sorted(key for key in held if names_place(key))
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
                if key not in (*KNOWN, *read) and not TIER.fullmatch(str(key)) and names_place(str(key)):
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


def _placed(hosts: Sequence[LocatedHost], items: Sequence[Any]) -> list[LocatedHost]:
    """`hosts`; without their zone where all have the same, which says nothing of switches."""
    zones = {
        str(value)
        for item in items
        for key, value in _mapping(_mapping(item, "metadata"), "labels").items()
        if key in (SITES[0][0], SITES[1][0])
    }
    only = len(zones) == 1 and all(host.layers[:1] == tuple(zones) for host in hosts)
    return [evolve(host, layers=()) if only else host for host in hosts]


def _mapping(item: Any, key: str) -> Mapping[str, Any]:
    entry = item.get(key) if isinstance(item, Mapping) else None
    return entry if isinstance(entry, Mapping) else {}


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
    return None, _whole(first_label(labels, COUNTS))


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
        for node in nodes:
            if node.strange is not None:
                raise InputError(f"{node.host.name:.60} is {node.strange}")
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
    machines = {device: [node.machine for node in nodes] for device, nodes in kinds.items()}
    return pools_of_hosts(hosts, profile, assumptions=sentences, machines=machines)


def _device(nodes: Sequence[_Node], profile: LinkProfile | None) -> str | None:
    """The accelerator of the nodes by its name in the catalogue; None: they do not say, or the profile says."""
    products = sorted({node.product for node in nodes if node.product})
    if len(products) > 1:
        raise InputError(
            f"nodes have different accelerators, {products[0]!r:.60} and {products[1]!r:.60}; import those of one "
            "kind: `kubectl get nodes -l nvidia.com/gpu.product=... -o json`."
        )
    return product_device(products[0], profile) if products else None
