"""Infrastructure as infragraph describes it, to components and the links between them.

Keysight/infragraph@2701fa5 schema/*.yaml and src/infragraph/infragraph_service.py: devices have components, some of
which are devices again; ends of edges name components with Python's slices; `one2one` joins them in turn, `many2many`
each to each.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nest.errors import InputError
from nest.network.graph import MOST_LINKS, MOST_NODES

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
        """What an end of an edge between instances stands for."""
        text = str(end.get("instance", ""))
        name = text.split("[")[0]
        if name not in counts:
            raise InputError(f"{place}.instance is {text!r:.60}, which is not among the instances.")
        count, device = counts[name]
        below = self._components(device, str(end.get("component", "")), f"{place}.component")
        return [f"{name}.{number}.{each}" for number in _numbers(text, count, place) for each in below]

    def _components(self, device: Mapping[str, Any], text: str, place: str) -> list[str]:
        """What `cx5[0:2].port` stands for in a device."""
        found = [""]
        for depth, part in enumerate(text.split(".")):
            name = part.split("[")[0]
            component = next((each for each in listed(device, "components") if str(each.get("name")) == name), None)
            if component is None:
                raise InputError(f"{place} is {text!r:.60}, which names no component; give one of the device's.")
            numbers = _numbers(part, _count(component, place), place)
            found = [f"{each}{'.' if depth else ''}{name}.{number}" for each in found for number in numbers]
            device = self._devices.get(name, {})
        return found

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
                    raise InputError(f"{place} leads to {each!r:.60}, which there is not; correct its index.")
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
    found = source.get(key) or ()
    if not isinstance(found, (list, tuple)) or not all(isinstance(each, Mapping) for each in found):
        raise InputError(f"{key} must be a list of keys and values.")
    return list(found)


def _mapping(source: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = source.get(key)
    if not isinstance(found, Mapping):
        raise InputError(f"{key} of an edge must hold keys and values.")
    return found


def _count(source: Mapping[str, Any], place: str) -> int:
    count = source.get("count", 1)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_EDGES:
        raise InputError(f"{place}.count must be a whole number, is {count!r:.40}.")
    return count


def _numbers(text: str, count: int, place: str) -> Sequence[int]:
    """The indices that `name`, `name[2]` or `name[0:4:2]` stands for, of `count`."""
    found = _PART.fullmatch(text)
    if not found or (found[2] == "" and not found[3]):
        raise InputError(f"{place} has {text!r:.60}; write `name`, `name[2]` or `name[0:4]`.")
    if found[2] is None:
        return range(count)
    if not found[3]:
        return range(int(found[2]), int(found[2]) + 1)
    return range(count)[slice(*(int(each) if each else None for each in (found[2], found[4], found[5])))]
