"""Infrastructure as infragraph describes it: one device, or instances of devices with edges.

Keysight/infragraph@2701fa5 schema/*.yaml and src/infragraph/infragraph_service.py: devices have components, some of
which are devices again; ends of edges name components with Python's slices; `one2one` joins them in turn, `many2many`
each to each.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nest.catalogue import link as catalogue_link
from nest.catalogue import links as catalogue_links
from nest.errors import InputError
from nest.network.graph import MOST_LINKS, MOST_NODES, NetworkBuilder
from nest.network.imported import Imported
from nest.spec import LinkProfile
from nest_networks.hosts.hardware import PCI_LINK, UNKNOWN_PROCESSOR, pci_reached, slot_bandwidth
from nest_networks.switched.profiles import nominal_bandwidth, sourced_profile

DEEPEST = 8
"""Devices inside one another."""

MOST_EDGES = 4 * MOST_LINKS
"""More than a network may have links, most of which lead to no accelerator."""

_PART = re.compile(r"([^\[\]]+)(?:\[(-?\d*)(:)?(\d*)(?::(\d*))?\])?")

Edge = tuple[str, str, Mapping[str, Any]]
"""The two ends, and the link as the file has it."""


class Infrastructure:
    """Every component of every instance, by its path (`host.0.xpu.3`), and every edge.

    Attributes:
        kinds: of the components: `xpu`, `switch`, `nic`, ...
        edges: by their ends, each once.
    """

    def __init__(self, source: Mapping[str, Any]) -> None:
        self._devices = {str(each.get("name")): each for each in listed(source, "devices")}
        self.kinds: dict[str, str] = {}
        self.edges: dict[frozenset[str], Edge] = {}
        if "components" in source:
            self._add(source, "device.0", 0)
            return
        counts: dict[str, tuple[int, Mapping[str, Any]]] = {}
        for index, each in enumerate(listed(source, "instances")):
            name, place = str(each.get("name")), f"instances[{index}]"
            counts[name] = (_count(each, place), self._device(str(each.get("device")), f"{place}.device"))
            for number in range(counts[name][0]):
                self._add(counts[name][1], f"{name}.{number}", 0)
        links = {str(each.get("name")): each for each in listed(source, "links")}
        for index, edge in enumerate(listed(source, "edges")):
            ends = [self._instances(_mapping(edge, key), counts, f"edges[{index}].{key}") for key in ("ep1", "ep2")]
            self._join(ends, edge, links, f"edges[{index}]")

    def _device(self, name: str, place: str) -> Mapping[str, Any]:
        if name not in self._devices:
            raise InputError(f"{place} is {name!r:.60}, which is not among the devices.")
        return self._devices[name]

    def _add(self, device: Mapping[str, Any], path: str, depth: int) -> None:
        """Components and edges of a device that is at `path`."""
        if depth > DEEPEST:
            raise InputError(f"devices are inside one another more than {DEEPEST} times over, or inside themselves.")
        for index, component in enumerate(listed(device, "components")):
            kind = str(component.get("choice", component.get("type", "")))
            for number in range(_count(component, f"components[{index}]")):
                below = f"{path}.{component.get('name')}.{number}"
                self.kinds[below] = kind
                if len(self.kinds) > MOST_EDGES:
                    raise InputError(f"there are more than {MOST_EDGES} components; nest reduces {MOST_NODES} nodes.")
                if kind == "device":
                    self._add(self._device(str(component.get("name")), f"components[{index}].name"), below, depth + 1)
        links = {str(each.get("name")): each for each in listed(device, "links")}
        for index, edge in enumerate(listed(device, "edges")):
            place = f"edges[{index}]"
            ends = []
            for key in ("ep1", "ep2"):
                end = _mapping(edge, key)
                text = ".".join(str(end[part]) for part in ("device", "component") if end.get(part))
                ends.append([f"{path}.{each}" for each in self._components(device, text, f"{place}.{key}")])
            self._join(ends, edge, links, place)

    def _instances(
        self, end: Mapping[str, Any], counts: Mapping[str, tuple[int, Mapping[str, Any]]], place: str
    ) -> list[str]:
        """Instances at an end of an edge."""
        text = str(end.get("instance", ""))
        name = text.split("[")[0]
        if name not in counts:
            raise InputError(f"{place}.instance is {text!r:.60}, which is not among the instances.")
        count, device = counts[name]
        below = self._components(device, str(end.get("component", "")), f"{place}.component")
        return [f"{name}.{number}.{each}" for number in _numbers(text, count, place) for each in below]

    def _components(self, device: Mapping[str, Any], text: str, place: str) -> list[str]:
        """Components of `cx5[0:2].port` in a device."""
        paths = [""]
        for depth, part in enumerate(text.split(".")):
            name = part.split("[")[0]
            component = next((each for each in listed(device, "components") if str(each.get("name")) == name), None)
            if component is None:
                raise InputError(f"{place} is {text!r:.60}, which names no component; give one of the device's.")
            numbers = _numbers(part, _count(component, place), place)
            paths = [f"{each}{'.' if depth else ''}{name}.{number}" for each in paths for number in numbers]
            device = self._devices.get(name, {})
        return paths

    def _join(
        self, ends: Sequence[Sequence[str]], edge: Mapping[str, Any], links: Mapping[str, Mapping[str, Any]], place: str
    ) -> None:
        scheme = edge.get("scheme", "many2many")
        if scheme not in ("one2one", "many2many"):
            raise InputError(f"{place}.scheme is {scheme!r:.40}; infragraph joins one2one and many2many.")
        if scheme == "many2many" and len(ends[0]) * len(ends[1]) > MOST_EDGES:
            raise InputError(f"{place} stands for more than {MOST_EDGES} links.")
        link = links.get(str(edge.get("link")), {"name": edge.get("link")})
        for one, two in _pairs(ends, scheme):
            for each in (one, two):
                if each not in self.kinds:
                    raise InputError(f"{place} leads to {each!r:.60}, which does not exist; correct its index.")
            if one != two:
                self.edges[frozenset((one, two))] = (one, two, link)
        if len(self.edges) > MOST_EDGES:
            raise InputError(f"there are more than {MOST_EDGES} links; nest reduces networks of {MOST_LINKS}.")


def _pairs(ends: Sequence[Sequence[str]], scheme: str) -> Iterator[tuple[str, str]]:
    if scheme == "one2one":
        yield from zip(ends[0], ends[1], strict=False)
    else:
        yield from ((one, two) for one in ends[0] for two in ends[1])


def listed(source: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The mappings in a list; none where there is none.

    Raises:
        InputError: it is something else.
    """
    entries = source.get(key) or ()
    if not isinstance(entries, (list, tuple)) or not all(isinstance(each, Mapping) for each in entries):
        raise InputError(f"{key} must be a list of keys and values.")
    return list(entries)


def _mapping(source: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    entry = source.get(key)
    if not isinstance(entry, Mapping):
        raise InputError(f"{key} of an edge must hold keys and values.")
    return entry


def _count(source: Mapping[str, Any], place: str) -> int:
    count = source.get("count", 1)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_EDGES:
        raise InputError(f"{place}.count must be a whole number, is {count!r:.40}.")
    return count


def _numbers(text: str, count: int, place: str) -> Sequence[int]:
    """The indices that `name`, `name[2]` or `name[0:4:2]` stands for, of `count`."""
    match = _PART.fullmatch(text)
    if not match or (match[2] == "" and not match[3]):
        raise InputError(f"{place} has {text!r:.60}; write `name`, `name[2]` or `name[0:4]`.")
    if match[2] is None:
        return range(count)
    if not match[3]:
        return range(int(match[2]), int(match[2]) + 1)
    return range(count)[slice(*(int(each) if each else None for each in (match[2], match[4], match[5])))]


ACCELERATOR, SWITCH = "xpu", "switch"
UNITS = {"gigabits_per_second": 1e9 / 8, "gigabytes_per_second": 1e9}
TIMES = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_NVLINK = re.compile(r"nvlink[\s_-]*(\d)", re.IGNORECASE)
_PCIE = re.compile(r"pci.*?gen\s*_?([3-6]).*?x\s*(\d\d?)(?!\d)", re.IGNORECASE | re.DOTALL)
_TRANSFERS = {3: 8e9, 4: 16e9, 5: 32e9, 6: 64e9}
"""Transfers per second and lane of generations of PCI Express; 128 of 130 bits are data up to the fifth (PCI Express
Base Specification), which is taken of the sixth, too."""


class InfragraphImporter:
    """Reads infragraph's YAML of a device or of an infrastructure."""

    name = "infragraph"
    profiled = True
    examples = (
        {
            "components": [{"name": "xpu", "count": 2, "choice": "xpu"}],
            "edges": [{"ep1": {"component": "xpu[0]"}, "ep2": {"component": "xpu[1]"}, "link": "nvlink4"}],
        },
    )

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is a mapping with components, or with devices and instances."""
        if not isinstance(source, Mapping):
            return False
        kinds = set(source)
        return {"components", "edges"} <= kinds or {"devices", "instances"} <= kinds

    def load(self, source: Mapping[str, Any], profile: LinkProfile | None = None) -> Imported:
        """Its accelerators (`xpu`), with everything between them as switches.

        Links without a bandwidth take the catalogue's where their description names NVLink or PCI Express of a
        generation; others have what the link profile says, and without one are left out where accelerators reach each
        other all the same.

        Raises:
            InputError: something in it cannot be, there are too few accelerators, or links between them have no
                bandwidth; sentences begin with the path.
        """
        infrastructure = Infrastructure(source)
        accelerators = [path for path, kind in infrastructure.kinds.items() if kind == ACCELERATOR]
        if len(accelerators) < 2:
            raise InputError(
                f"there are {len(accelerators)} accelerators (components of choice {ACCELERATOR}); it takes 2."
            )
        rows, assumptions, missing = _rated(infrastructure, set(accelerators), profile)
        rows = _united(rows, {path for path, kind in infrastructure.kinds.items() if kind == SWITCH})
        near = _reached(accelerators[0], rows)
        lost = next((each for each in accelerators if each not in near), None)
        if lost is not None:
            but = f" without the links {', '.join(missing)}, which have no physical.bandwidth" if missing else ""
            remedy = ", or name a link profile" if missing else ""
            raise InputError(
                f"no links lead from {accelerators[0]!r:.60} to {lost!r:.60}{but}; add what is missing{remedy}."
            )
        network = NetworkBuilder()
        names = _names(accelerators, source)
        numbers = {path: network.device(names[path]) if path in names else network.switch(path) for path in near}
        for one, two, bandwidth, latency in rows:
            if one in near:
                network.link(numbers[one], numbers[two], bandwidth, latency)
        if missing:
            assumptions.append(f"Left out: the links {', '.join(missing)}, which have no bandwidth.")
        counts = set(Counter(name.rpartition(".")[0] for name in names.values()).values())
        return Imported(
            network.built(),
            device=None if profile is None else profile.device,
            assumptions=tuple(assumptions),
            devices_per_host=counts.pop() if len(counts) == 1 else None,
        )


Row = tuple[str, str, float, float]
"""The ends of a link, bytes per second and direction, and seconds."""


def _rated(
    infrastructure: Infrastructure, accelerators: set[str], profile: LinkProfile | None
) -> tuple[list[Row], list[str], list[str]]:
    """The links with a bandwidth, where it is from, and names of links that have none."""
    rows: list[Row] = []
    assumptions: dict[str, None] = {}
    missing: dict[str, None] = {}
    shares: Counter[tuple[str, str]] = Counter()
    for one, two, link in infrastructure.edges.values():
        shares.update((end, str(link.get("name"))) for end in (one, two) if end in accelerators)
    for one, two, link in infrastructure.edges.values():
        name = str(link.get("name"))
        rate, seconds = _physical(link, f"links.{name}.physical")
        words = f"{name} {link.get('description', '')}"
        if rate is None and (nvlink := _NVLINK.search(words)) and f"nvlink{nvlink[1]}" in catalogue_links():
            kind = catalogue_link(f"nvlink{nvlink[1]}")
            parts = max(shares[end, name] for end in (one, two)) or 1
            rate = (kind.bandwidth or 0.0) * kind.efficiency / parts
            seconds = kind.latency / 2 if seconds is None else seconds
            reach = (
                f"reaches {(kind.bandwidth or 0.0) * kind.efficiency / 1e9:.4g} GB/s in each direction over all of them"
            )
            assumptions[f"Of the links {name} (nvlink{nvlink[1]} of the catalogue) an accelerator {reach}."] = None
        elif rate is None and (pcie := _PCIE.search(words)):
            rate = _TRANSFERS[int(pcie[1])] * int(pcie[2]) / 8 * 128 / 130
            assumptions[f"A link {name} (PCI Express {pcie[1]}, {pcie[2]} lanes) carries {rate / 1e9:.4g} GB/s."] = None
        elif rate is None and profile is not None:
            parts = max(shares[end, name] for end in (one, two)) or 1
            rate, seconds, said = _profiled(one, two, words, bool({one, two} & accelerators), parts, profile)
            assumptions[f"The links {name} have {rate / 1e9:.4g} GB/s in each direction: {said}."] = None
        if not rate:
            missing[name] = None
        else:
            rows.append((one, two, rate, seconds or 0.0))
    return rows, list(assumptions), list(missing)


def _profiled(
    one: str, two: str, words: str, accelerator: bool, parts: int, profile: LinkProfile
) -> tuple[float, float, str]:
    """Bytes per second, seconds and source of a link without a bandwidth, which is one of `parts` of an end's."""
    chosen = sourced_profile(profile)
    if one.split(".")[:2] != two.split(".")[:2]:
        tier, place, parts = chosen.tiers[0], "tiers", 1
    elif re.search(r"\b(?:cpu|qpi|upi|gmi)", words, re.IGNORECASE) and not accelerator:
        return UNKNOWN_PROCESSOR, 0.0, "between processors, as NCCL plans with for Intel's of 2017 to 2022"
    elif "pci" not in words.lower():
        tier, place, parts = chosen.host, "host", parts if accelerator else 1
    else:
        own = slot_bandwidth(chosen.device) or catalogue_link(PCI_LINK).bandwidth or 0.0
        return pci_reached(own), catalogue_link(PCI_LINK).latency / 2, "PCI Express of the catalogue"
    kind = None if tier.link is None else catalogue_link(tier.link)
    share = nominal_bandwidth(tier, place) * (1.0 if kind is None else kind.efficiency) / parts
    latency = tier.latency if tier.latency is not None else kind.latency if kind is not None else 0.0
    return share, latency / 2, f"{chosen.source(place)} ({place})"


def _united(rows: list[Row], switches: set[str]) -> list[Row]:
    """`rows` with switches that lead to the same places as one: traffic spreads over them."""
    beside: dict[str, set[str]] = defaultdict(set)
    for one, two, _, _ in rows:
        beside[one].add(two)
        beside[two].add(one)
    first: dict[frozenset[str], str] = {}
    named = {path: first.setdefault(frozenset(beside[path]), path) for path in beside if path in switches}
    return [(named.get(one, one), named.get(two, two), bandwidth, latency) for one, two, bandwidth, latency in rows]


def _physical(link: Mapping[str, Any], place: str) -> tuple[float | None, float | None]:
    """Bytes per second and seconds of a link, as far as the file says."""
    physical = link.get("physical")
    if not isinstance(physical, Mapping):
        return None, None
    return _quantity(physical, "bandwidth", UNITS, place), _quantity(physical, "latency", TIMES, place)


def _quantity(physical: Mapping[str, Any], key: str, units: Mapping[str, float], place: str) -> float | None:
    value = physical.get(key)
    if not isinstance(value, Mapping):
        return None
    for unit, size in units.items():
        number = value.get(unit)
        if number is not None:
            if isinstance(number, bool) or not isinstance(number, (int, float)) or number < 0:
                raise InputError(f"{place}.{key}.{unit} must be at least 0, is {number!r:.40}.")
            return float(number) * size
    return None


def _reached(first: str, rows: Iterable[Row]) -> dict[str, None]:
    """Nodes that links reach from `first`, itself included."""
    beside: dict[str, list[str]] = defaultdict(list)
    for one, two, _, _ in rows:
        beside[one].append(two)
        beside[two].append(one)
    reached = {first: None}
    waiting = [first]
    for path in waiting:
        for other in beside[path]:
            if other not in reached:
                reached[other] = None
                waiting.append(other)
    return reached


def _names(accelerators: Iterable[str], source: Mapping[str, Any]) -> dict[str, str]:
    """Accelerators by host and number: `host0.3`; hosts are instances, or the device that the file is of."""
    counts: Counter[str] = Counter()
    names = {}
    for path in accelerators:
        instance, number = path.split(".")[:2]
        host = str(source.get("name") or "device") if "components" in source else f"{instance}{number}"
        names[path] = f"{host}.{counts[host]}"
        counts[host] += 1
    return names
