"""Infrastructure as infragraph (Keysight/infragraph) describes it: one device, or instances of devices with edges."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from nest.catalogue import link as catalogue_link
from nest.catalogue import links as catalogue_links
from nest.errors import InputError
from nest.network.builder import NetworkBuilder
from nest.network.imported import Imported
from nest.topologies.reading.infragraph import Infrastructure

ACCELERATOR, SWITCH = "xpu", "switch"
UNITS = {"gigabits_per_second": 1e9 / 8, "gigabytes_per_second": 1e9}
TIMES = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_NVLINK = re.compile(r"nvlink[\s_-]*(\d)", re.IGNORECASE)
_PCIE = re.compile(r"pci.*?gen\s*_?([3-6]).*?x\s*(\d+)", re.IGNORECASE | re.DOTALL)
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
        """Whether `source` is a mapping with components, or with devices and instances."""
        if not isinstance(source, Mapping):
            return False
        kinds = set(source)
        return {"components", "edges"} <= kinds or {"devices", "instances"} <= kinds

    def load(self, source: Mapping[str, Any], profile: object = None) -> Imported:
        """Its accelerators (`xpu`), with everything between them as switches.

        Links without a bandwidth have that of the catalogue where their description names NVLink or PCI Express of a
        generation; others are left out where accelerators reach each other without them.

        Raises:
            InputError: something in it cannot be, there are too few accelerators, or links between them have no
                bandwidth; sentences begin with the path.
        """
        found = Infrastructure(source)
        accelerators = [path for path, kind in found.kinds.items() if kind == ACCELERATOR]
        if len(accelerators) < 2:
            raise InputError(
                f"there are {len(accelerators)} accelerators (components of choice {ACCELERATOR}); it takes 2."
            )
        rows, assumptions, missing = _rated(found, set(accelerators))
        rows = _united(rows, {path for path, kind in found.kinds.items() if kind == SWITCH})
        near = _reached(accelerators[0], rows)
        lost = next((each for each in accelerators if each not in near), None)
        if lost is not None:
            told = f" without the links {', '.join(missing)}, which have no physical.bandwidth" if missing else ""
            raise InputError(f"no links lead from {accelerators[0]!r:.60} to {lost!r:.60}{told}; add what is missing.")
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
            network.built(), assumptions=tuple(assumptions), devices_per_host=counts.pop() if len(counts) == 1 else None
        )


Row = tuple[str, str, float, float]
"""The ends of a link, bytes per second and direction, and seconds."""


def _rated(found: Infrastructure, accelerators: set[str]) -> tuple[list[Row], list[str], list[str]]:
    """The links with a bandwidth, where it is from, and names of links that have none."""
    rows: list[Row] = []
    assumptions: dict[str, None] = {}
    missing: dict[str, None] = {}
    shares: Counter[tuple[str, str]] = Counter()
    for one, two, link in found.edges.values():
        shares.update((end, str(link.get("name"))) for end in (one, two) if end in accelerators)
    for one, two, link in found.edges.values():
        name = str(link.get("name"))
        rate, seconds = _physical(link, f"links.{name}.physical")
        words = f"{name} {link.get('description', '')}"
        if rate is None and (nvlink := _NVLINK.search(words)) and f"nvlink{nvlink[1]}" in catalogue_links():
            kind = catalogue_link(f"nvlink{nvlink[1]}")
            parts = max(shares[end, name] for end in (one, two)) or 1
            rate = (kind.bandwidth or 0.0) * kind.efficiency / parts
            seconds = kind.latency / 2 if seconds is None else seconds
            told = (
                f"reaches {(kind.bandwidth or 0.0) * kind.efficiency / 1e9:.4g} GB/s in each direction over all of them"
            )
            assumptions[f"Of the links {name} (nvlink{nvlink[1]} of the catalogue) an accelerator {told}."] = None
        elif rate is None and (pcie := _PCIE.search(words)):
            rate = _TRANSFERS[int(pcie[1])] * int(pcie[2]) / 8 * 128 / 130
            assumptions[f"A link {name} (PCI Express {pcie[1]}, {pcie[2]} lanes) carries {rate / 1e9:.4g} GB/s."] = None
        if not rate:
            missing[name] = None
        else:
            rows.append((one, two, rate, seconds or 0.0))
    return rows, list(assumptions), list(missing)


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
    """What links lead to from `first`, itself included."""
    beside: dict[str, list[str]] = defaultdict(list)
    for one, two, _, _ in rows:
        beside[one].append(two)
        beside[two].append(one)
    found = {first: None}
    waiting = [first]
    for path in waiting:
        for other in beside[path]:
            if other not in found:
                found[other] = None
                waiting.append(other)
    return found


def _names(accelerators: Iterable[str], source: Mapping[str, Any]) -> dict[str, str]:
    """Accelerators by host and number: `host0.3`; hosts are instances, or the device that the file is of."""
    counts: Counter[str] = Counter()
    found = {}
    for path in accelerators:
        instance, number = path.split(".")[:2]
        host = str(source.get("name") or "device") if "components" in source else f"{instance}{number}"
        found[path] = f"{host}.{counts[host]}"
        counts[host] += 1
    return found
