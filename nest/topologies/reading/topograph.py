"""Models of clusters as topograph simulates them, of three generations, to hosts with the switches above them."""

from collections.abc import Iterator, Mapping
from typing import Any

from nest.errors import InputError
from nest.topologies.reading.hostlist import expanded
from nest.topologies.reading.layers import Located

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
    """A model of any of the three forms.

    Attributes:
        product: what its accelerators are called; None: it does not say, or there are several kinds.
    """

    def __init__(self, source: Mapping[str, Any]) -> None:
        self._switches = _named(source.get("switches"), "switches")
        self._key = BLOCKS if source.get(BLOCKS) is not None else OLD_BLOCKS
        blocks = source.get(self._key) or ()
        if not isinstance(blocks, (list, tuple)):
            raise InputError(f"{self._key} must be a list.")
        self._blocks = [mapping(block, f"{self._key}[{index}]") for index, block in enumerate(blocks)]
        self._nodes = mapping(source.get("nodes"), "nodes")
        self._parents = self._above()
        types = {str(block["type"]) for block in self._blocks if block.get("type")}
        self.product = types.pop() if len(types) == 1 else None

    def hosts(self) -> Iterator[Located]:
        """Every host, in the order of the file."""
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
                yield Located(
                    name, layers, domain(mapping(own.get("attributes"), f"nodes.{name}.attributes")) or shared
                )

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
        found = self._switches.get(switch, {})
        labels = mapping(found.get("labels"), f"switches.{switch}.labels")
        return {**labels, **mapping(found.get("annotations"), f"switches.{switch}.annotations")}

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
        found: list[str] = []
        while switch is not None:
            if switch in found:
                raise InputError(f"switch {switch!r:.60} is above itself; correct what is above what.")
            found.append(switch)
            switch = self._parents.get(switch)
        return tuple(found)


def _hosts(value: Any, place: str) -> list[str]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not items:
        raise InputError(f"{place}.nodes must be a list of hosts.")
    return [name for item in items for name in expanded(str(item))]


def _named(value: Any, place: str) -> dict[str, Mapping[str, Any]]:
    """Switches by name, from a mapping or from a list of mappings with names."""
    if isinstance(value, (list, tuple)):
        found: dict[str, Mapping[str, Any]] = {}
        for index, item in enumerate(value):
            switch = mapping(item, f"{place}[{index}]")
            if not switch.get("name"):
                raise InputError(f"{place}[{index}].name is missing.")
            found[str(switch["name"])] = switch
        return found
    return {str(name): mapping(item, f"{place}.{name}") for name, item in mapping(value, place).items()}
