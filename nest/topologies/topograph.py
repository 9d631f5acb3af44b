"""Files of NVIDIA topograph: models of clusters, its list of instances, and requests for either.

Models: NVIDIA/topograph@e2b6250 docs/modeling.md and pkg/models/model.go; the two older forms as in the history of
tests/models/medium.yaml. Instances: pkg/topology/instances.go (`graph` engine). Requests: pkg/topology/request.go.
"""

from collections.abc import Mapping
from typing import Any

from nest.errors import InputError
from nest.network.imported import Imported
from nest.spec import LinkProfile
from nest.topologies.reading.layers import Located, tree_of_layers
from nest.topologies.reading.products import product_device
from nest.topologies.reading.profiles import USUAL
from nest.topologies.reading.switched import switched
from nest.topologies.reading.topograph import BLOCKS, OLD_BLOCKS, Model, domain, mapping

PRODUCT = "nvidia.com/gpu.product"
DOMAIN_PROFILE = "gb200-nvl72-ndr"
"""Profile for hosts in NVLink domains whose accelerators nobody names: such racks have domains of several hosts."""


class TopographModelImporter:
    """Reads topograph's models of clusters: switches, and blocks of hosts."""

    name = "topograph"
    profiled = True
    examples = ({"switches": {"top": {"switches": ["leaf"]}}, "blocks": [{"switch": "leaf", "nodes": ["n[1-4]"]}]},)

    def accepts(self, source: Any) -> bool:
        """Whether `source` is a mapping with blocks of hosts, or switches that have hosts."""
        if not isinstance(source, Mapping):
            return False
        blocks = source.get(BLOCKS, source.get(OLD_BLOCKS))
        if isinstance(blocks, (list, tuple)):
            return bool(blocks) and all(isinstance(each, Mapping) and "nodes" in each for each in blocks)
        return isinstance(source.get("switches"), Mapping) and "instances" not in source

    def load(self, source: Mapping[str, Any], profile: LinkProfile | None = None) -> Imported:
        """Its hosts under their switches.

        Raises:
            InputError: something in it cannot be; sentences begin with the path.
        """
        model = Model(source)
        return _imported(list(model.hosts()), model.product, profile)


class TopographInstancesImporter:
    """Reads the instances that topograph's `graph` engine writes; knows requests, to say what to give instead."""

    name = "topograph-instances"
    profiled = True
    examples = ({"instances": [{"id": name, "network_layers": ["leaf", "spine"]} for name in ("one", "two")]},)

    def accepts(self, source: Any) -> bool:
        """Whether `source` is a mapping with a list of instances, or with a provider and an engine."""
        if not isinstance(source, Mapping):
            return False
        listed = isinstance(source.get("instances"), (list, tuple)) and "devices" not in source
        return listed or {"provider", "engine"} <= set(source)

    def load(self, source: Mapping[str, Any], profile: LinkProfile | None = None) -> Imported:
        """Its instances as hosts, under the switches that are their network layers.

        Raises:
            InputError: something in it cannot be; sentences begin with the path. A request has no hosts.
        """
        if "provider" in source:
            raise _refused(source)
        hosts, products = [], set()
        for index, item in enumerate(source.get("instances") or ()):
            place = f"instances[{index}]"
            if not isinstance(item, Mapping) or not item.get("id"):
                raise InputError(f"{place}.id is missing; an instance has an `id` and `network_layers`.")
            labels = mapping(item.get("labels"), f"{place}.labels")
            layers = item.get("network_layers") or ()
            if not isinstance(layers, (list, tuple)):
                raise InputError(f"{place}.network_layers must be a list of switches, the nearest first.")
            hosts.append(Located(str(item["id"]), tuple(str(each) for each in layers if each), domain(labels)))
            products.add(str(labels.get(PRODUCT, "")))
        products.discard("")
        if len(products) > 1:
            one, two = sorted(products)[:2]
            raise InputError(
                f"instances have different accelerators, {one!r:.60} and {two!r:.60}; list those of one kind."
            )
        return _imported(hosts, next(iter(products), None), profile)


def _refused(source: Mapping[str, Any]) -> InputError:
    """What to give in place of a request."""
    provider = source.get("provider")
    parameters = provider.get("params") if isinstance(provider, Mapping) else None
    model = parameters.get("modelFileName") if isinstance(parameters, Mapping) else None
    told = "this is a request to topograph and has no switches or hosts itself"
    if model:
        return InputError(f"{told}: its provider simulates the model {str(model)!r:.100}. Import that file.")
    return InputError(
        f"{told}. Import topograph's answer to it: the topology.conf of its slurm engine, the instances of its graph "
        "engine, or the nodes its k8s engine labels."
    )


def _imported(hosts: list[Located], product: str | None, profile: LinkProfile | None) -> Imported:
    tree, sentences = tree_of_layers(hosts)
    device = None if product is None else product_device(product, profile)
    usual = DOMAIN_PROFILE if any(host.domain for host in tree.hosts) else USUAL
    return switched(tree, profile, usual=usual, device=device, assumptions=sentences)
