"""Files of NVIDIA topograph: models of clusters, its list of instances, and requests for either.

Models: NVIDIA/topograph@e2b6250 docs/modeling.md and pkg/models/model.go; the two older forms as in the history of
tests/models/medium.yaml. Instances: pkg/topology/instances.go (`graph` engine), and AWS's own list of them. Requests:
pkg/topology/request.go.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from nest.errors import InputError
from nest.network.imported import Imported
from nest.spec import LinkProfile
from nest_networks.files import host_names
from nest_networks.switched.network import switched_network
from nest_networks.switched.pools import pools_of_hosts
from nest_networks.switched.profiles import DOMAIN_PROFILE, USUAL, machine_profile, product_device, with_machines
from nest_networks.switched.tree import LocatedHost, tree_of_layers

PRODUCT = "nvidia.com/gpu.product"


class TopographModelImporter:
    """Reads topograph's models of clusters: switches, and blocks of hosts."""

    name = "topograph"
    profiled = True
    examples = ({"switches": {"top": {"switches": ["leaf"]}}, "blocks": [{"switch": "leaf", "nodes": ["n[1-4]"]}]},)

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is a mapping with blocks of hosts, or switches that have hosts."""
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
        hosts: dict[str, list[LocatedHost]] = {}
        for host, product in Model(source).hosts():
            hosts.setdefault(product, []).append(host)
        return _imported(hosts, profile)


class TopographInstancesImporter:
    """Reads the instances that topograph's `graph` engine writes; knows requests, to say what to give instead."""

    name = "topograph-instances"
    profiled = True
    examples = ({"instances": [{"id": name, "network_layers": ["leaf", "spine"]} for name in ("one", "two")]},)

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is a mapping with a list of instances, or with a provider and an engine."""
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
        hosts: dict[str, list[LocatedHost]] = {}
        for index, item in enumerate(source.get("instances") or ()):
            place = f"instances[{index}]"
            if not isinstance(item, Mapping) or not item.get("id"):
                raise InputError(f"{place}.id is missing; an instance has an `id` and `network_layers`.")
            labels = mapping(item.get("labels"), f"{place}.labels")
            layers = item.get("network_layers") or ()
            if not isinstance(layers, (list, tuple)):
                raise InputError(f"{place}.network_layers must be a list of switches, the nearest first.")
            host = LocatedHost(str(item["id"]), tuple(str(each) for each in layers if each), domain(labels))
            hosts.setdefault(str(labels.get(PRODUCT, "")), []).append(host)
        return _imported(hosts, profile)


class AwsInstancesImporter:
    """Reads `aws ec2 describe-instance-topology`: instances under network nodes, of which AWS lists the top first.

    docs.aws.amazon.com/AWSEC2/latest/APIReference, InstanceTopology; a capacity block of P6e-GB200 is an UltraServer,
    as topograph's provider `aws` has it.
    """

    name = "aws-instances"
    profiled = True
    examples = ({"Instances": [{"InstanceId": each, "NetworkNodes": ["top", "leaf"]} for each in ("i-1", "i-2")]},)

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is a mapping with such instances."""
        instances = source.get("Instances") if isinstance(source, Mapping) else None
        return isinstance(instances, (list, tuple)) and all(
            isinstance(each, Mapping) and "InstanceId" in each for each in instances
        )

    def load(self, source: Mapping[str, Any], profile: LinkProfile | None = None) -> Imported:
        """Its instances as hosts; device and links are those of the instance type, where the catalogue has it.

        Raises:
            InputError: there are no instances, or several types of which the catalogue does not have one.
        """
        hosts: dict[str, list[LocatedHost]] = {}
        for index, item in enumerate(source.get("Instances") or ()):
            nodes = item.get("NetworkNodes") or ()
            if not isinstance(nodes, (list, tuple)):
                raise InputError(f"Instances[{index}].NetworkNodes must be a list of nodes, the top first.")
            kind = str(item.get("InstanceType") or "")
            block = item.get("CapacityBlockId") if "gb200" in kind else None
            host = LocatedHost(str(item["InstanceId"]), tuple(map(str, reversed(nodes))), block and str(block))
            hosts.setdefault(kind, []).append(host)
        profile = with_machines(profile, list(hosts))
        pages = ["Missing: more instances, the file has a `NextToken`. Leave `--max-items` out."]
        pages = pages if source.get("NextToken") else []
        strange = next((kind for kind in hosts if kind and machine_profile(kind) is None), None)
        if strange is not None and (profile is None or profile.device is None):
            raise InputError(
                f"the catalogue does not know the accelerators of {strange!r:.40}; name a link profile with their "
                "`device`, or list other instances: `--filters Name=instance-type,Values=TYPE`."
            )
        if len(hosts) > 1:
            known = {kind: machine_profile(kind) for kind in hosts}
            unknown = next((kind for kind, found in known.items() if found is None), None)
            if unknown is not None:
                raise InputError(
                    f"instances have {len(hosts)} types, and the catalogue does not have {unknown!r:.40}; list one: "
                    "`--filters Name=instance-type,Values=TYPE`."
                )
            pools: dict[str, list[LocatedHost]] = {}
            machines: dict[str, list[str]] = {}
            for kind, own in hosts.items():
                device = str((known[kind] or LinkProfile()).device)
                pools.setdefault(device, []).extend(own)
                machines.setdefault(device, []).append(kind)
            return pools_of_hosts(pools, profile, assumptions=pages, machines=machines)
        every = [host for own in hosts.values() for host in own]
        tree, sentences = tree_of_layers(every)
        usual = DOMAIN_PROFILE if any(host.domain for host in every) else USUAL
        return switched_network(tree, profile, usual=usual, assumptions=(*pages, *sentences))


def _refused(source: Mapping[str, Any]) -> InputError:
    """Return the error with a replacement for a request."""
    provider = source.get("provider")
    parameters = provider.get("params") if isinstance(provider, Mapping) else None
    model = parameters.get("modelFileName") if isinstance(parameters, Mapping) else None
    fault = "this is a request to topograph and has no switches or hosts itself"
    if model:
        return InputError(f"{fault}: its provider simulates the model {str(model)!r:.100}. Import that file.")
    return InputError(
        f"{fault}. Import topograph's answer to it: the topology.conf of its slurm engine, the instances of its graph "
        "engine, or the nodes its k8s engine labels."
    )


def _imported(hosts: Mapping[str, list[LocatedHost]], profile: LinkProfile | None) -> Imported:
    """Hosts by what their accelerators are called, which is nothing where the file does not say."""
    every = [host for own in hosts.values() for host in own]
    usual = DOMAIN_PROFILE if any(host.domain for host in every) else USUAL
    named = [product for product in hosts if product]
    by_device: dict[str | None, list[LocatedHost]] = {}
    for product in named:
        by_device.setdefault(product_device(product, profile), []).extend(hosts[product])
    if len(by_device) > 1 and None not in by_device:
        if "" in hosts:
            raise InputError(
                f"host {hosts[''][0].name!r:.60} names no accelerators, but others have several types; name them "
                "for all."
            )
        return pools_of_hosts({str(name): own for name, own in by_device.items()}, profile, usual=usual)
    if len(named) > 1 and None in by_device:
        one, two = sorted(named)[:2]
        raise InputError(
            f"hosts have different accelerators, {one!r:.60} and {two!r:.60}, but a link profile has one; list one "
            "type."
        )
    tree, sentences = tree_of_layers(every)
    return switched_network(tree, profile, usual=usual, device=next(iter(by_device), None), assumptions=sentences)


BLOCKS, OLD_BLOCKS = "blocks", "capacity_blocks"
DOMAINS = (
    "accelerator.topology.test/domain",
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
    "nvidia.com/gpu.clique",
    "nvlink",
)
"""Keys of NVLink domains among annotations, labels and attributes, the first that is there."""


def mapping(value: Any, place: str) -> Mapping[str, Any]:
    """`value` as keys and values; nothing as none.

    Raises:
        InputError: it is something else; the text begins with `place`.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"{place} must hold keys and values.")
    return value


def domain(keys: Mapping[str, Any]) -> str | None:
    """The NVLink domain that annotations, labels or attributes name; None: none."""
    return next((str(keys[key]) for key in DOMAINS if keys.get(key)), None)


class Model:
    """A model of any of the three forms."""

    def __init__(self, source: Mapping[str, Any]) -> None:
        self._switches = _named(source.get("switches"), "switches")
        self._key = BLOCKS if source.get(BLOCKS) is not None else OLD_BLOCKS
        blocks = source.get(self._key) or ()
        if not isinstance(blocks, (list, tuple)):
            raise InputError(f"{self._key} must be a list.")
        self._blocks = [mapping(block, f"{self._key}[{index}]") for index, block in enumerate(blocks)]
        self._nodes = mapping(source.get("nodes"), "nodes")
        self._parents = self._above()

    def hosts(self) -> Iterator[tuple[LocatedHost, str]]:
        """Every host, in the order of the file, with what its accelerators are called; empty: nobody says."""
        seen: dict[str, str] = {}
        for place, names, switch, keys in self._groups():
            layers = self._layers(switch)
            inherited = [domain(self._keys(each)) for each in layers]
            shared = next((each for each in [domain(keys), *inherited] if each), None)
            for name in names:
                if name in seen:
                    raise InputError(f"{place} names {name!r:.60}, which {seen[name]} has already; keep one.")
                seen[name] = place
                own = mapping(self._nodes.get(name), f"nodes.{name}")
                own_domain = domain(mapping(own.get("attributes"), f"nodes.{name}.attributes"))
                yield LocatedHost(name, layers, own_domain or shared), str(keys.get("type") or "")

    def _groups(self) -> Iterator[tuple[str, list[str], str | None, Mapping[str, Any]]]:
        """Place in the file, hosts, the switch above them, and keys that hold for all of them."""
        holders = {
            str(block): name for name, switch in self._switches.items() for block in switch.get(OLD_BLOCKS) or ()
        }
        for index, block in enumerate(self._blocks):
            place = f"{self._key}[{index}]"
            switch = block.get("switch") or holders.get(str(block.get("name")))
            if switch is not None and str(switch) not in self._known:
                raise InputError(f"{place}.switch is {switch!r:.60}, which is not among the switches.")
            keys = {**block, **mapping(block.get("labels"), f"{place}.labels")}
            keys |= mapping(block.get("annotations"), f"{place}.annotations")
            yield f"{place}.nodes", _hosts(block.get("nodes"), place), None if switch is None else str(switch), keys
        if not self._blocks:
            for name, switch in self._switches.items():
                if switch.get("nodes"):
                    yield f"switches.{name}.nodes", _hosts(switch["nodes"], f"switches.{name}"), name, {}

    def _keys(self, switch: str) -> Mapping[str, Any]:
        """Labels and annotations of a switch, which the hosts below it inherit."""
        keys = self._switches.get(switch, {})
        labels = mapping(keys.get("labels"), f"switches.{switch}.labels")
        return {**labels, **mapping(keys.get("annotations"), f"switches.{switch}.annotations")}

    def _above(self) -> dict[str, str]:
        """The switch above each."""
        parents: dict[str, str] = {}
        for name, switch in self._switches.items():
            below = switch.get("switches") or ()
            if not isinstance(below, (list, tuple)):
                raise InputError(f"switches.{name}.switches must be a list.")
            for each in map(str, below):
                if parents.setdefault(each, name) != name:
                    raise InputError(f"switch {each!r:.60} is under {parents[each]!r:.60} and {name!r:.60}; keep one.")
        self._known = {*self._switches, *parents}
        return parents

    def _layers(self, switch: str | None) -> tuple[str, ...]:
        """The switches above what hangs on `switch`, itself included, the nearest first."""
        layers: list[str] = []
        while switch is not None:
            if switch in layers:
                raise InputError(f"switch {switch!r:.60} is above itself; correct the hierarchy.")
            layers.append(switch)
            switch = self._parents.get(switch)
        return tuple(layers)


def _hosts(value: Any, place: str) -> list[str]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not items:
        raise InputError(f"{place}.nodes must be a list of hosts.")
    return [name for item in items for name in host_names(str(item))]


def _named(value: Any, place: str) -> dict[str, Mapping[str, Any]]:
    """Switches by name, from a mapping or from a list of mappings with names."""
    if isinstance(value, (list, tuple)):
        by_name: dict[str, Mapping[str, Any]] = {}
        for index, item in enumerate(value):
            switch = mapping(item, f"{place}[{index}]")
            if not switch.get("name"):
                raise InputError(f"{place}[{index}].name is missing.")
            by_name[str(switch["name"])] = switch
        return by_name
    return {str(name): mapping(item, f"{place}.{name}") for name, item in mapping(value, place).items()}
