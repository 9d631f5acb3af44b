"""NVIDIA NetQ's topology graph, and the compute nodes of its NVLink manager, as topograph fetches them.

NVIDIA/topograph@e2b6250 pkg/providers/netq/netq.go (`fetch-topology`: nodes of tier -1 are hosts; a link is called
`NODE-*-NODE` and lists its cables as `compounded_links`) and nmx.go (`compute-nodes`: hosts and their NVLink domains).
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nest.errors import InputError
from nest.network.imported import Imported
from nest.spec import LinkProfile, TierSpec
from nest.units import BytesPerSecond
from nest_networks.files import beginning, text_of
from nest_networks.switched.clos import fabric_network, figures, usual_links
from nest_networks.switched.fabric import Fabric, FabricHost
from nest_networks.switched.network import switched_network
from nest_networks.switched.profiles import DOMAIN_PROFILE, USUAL
from nest_networks.switched.tree import LocatedHost, tree_of_layers

GRAPH_MARKS = ('"compounded_nodes"', '"compounded_links"')
DOMAIN_MARK = '"DomainUUID"'
HOST_TIER = -1
ETHERNET = TierSpec(link="ethernet", bandwidth=BytesPerSecond(400e9 / 8))
"""For each accelerator, where no link profile says: NVIDIA Spectrum-X reference architecture, one port of 400 Gbit/s
for each GPU of an HGX H100."""


class NetqImporter:
    """Reads NetQ's topology graph: hosts, switches and the number of their links."""

    name = "netq"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is the path of a JSON list with what NetQ calls compounded nodes or links."""
        text = beginning(source).lstrip()
        return text.startswith("[") and any(mark in text for mark in GRAPH_MARKS)

    def load(self, source: Path, profile: LinkProfile | None = None) -> Imported:
        """Its hosts under its switches; links are counted, their rate is what the link profile has.

        Raises:
            InputError: it is no such list, has no hosts on switches, or hosts cannot reach one another.
        """
        content = _list(text_of(source))
        names: dict[str, str] = {}
        tiers: dict[str, int] = {}
        for node in (
            node for part in content for group in _each(part, "nodes") for node in _each(group, "compounded_nodes")
        ):
            names[str(node.get("id"))] = str(node.get("name") or node.get("id"))
            tier = node.get("tier")
            tiers[str(node.get("id"))] = tier if isinstance(tier, int) else HOST_TIER
        links = list(_links(content, tiers))
        count = Counter(end for one, two, cables in links for end in (one, two) for _ in range(cables))
        hosts = [each for each, tier in tiers.items() if tier == HOST_TIER and count[each]]
        if not hosts or len(hosts) == len(tiers):
            raise InputError("the graph has no hosts (nodes of tier -1) linked to switches (nodes of other tiers).")
        usual, sentences = usual_links({names[each]: count[each] for each in hosts})
        profile_figures = figures(profile, USUAL, usual, made_of=ETHERNET)
        rate = profile_figures.link_rate / usual
        sentences.append(f"Assuming {rate / 1e9:.4g} GB/s per cable: NetQ gives no rates.")
        fabric = Fabric()
        own: dict[str, list[tuple[str, float | None]]] = {each: [] for each in hosts if count[each] == usual}
        for one, two, cables in links:
            ends = [end for end in (one, two) if tiers[end] == HOST_TIER]
            if not ends:
                fabric.link(one, two, rate * cables)
            elif len(ends) == 1 and ends[0] in own:
                own[ends[0]] += [(two if ends[0] == one else one, rate)] * cables
        machines = [FabricHost(names[each], tuple(own[each])) for each in sorted(own, key=lambda each: names[each])]
        return fabric_network(machines, fabric, profile_figures, sentences)


class NetqDomainsImporter:
    """Reads the compute nodes that NetQ's NVLink manager lists: hosts and their NVLink domains."""

    name = "netq-domains"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is the path of a JSON list of compute nodes with domains."""
        text = beginning(source).lstrip()
        return text.startswith("[") and DOMAIN_MARK in text and not any(mark in text for mark in GRAPH_MARKS)

    def load(self, source: Path, profile: LinkProfile | None = None) -> Imported:
        """Its hosts in their domains, joined by a network of which the file says nothing.

        Raises:
            InputError: it is no such list, or its hosts differ in accelerators.
        """
        hosts = []
        for index, node in enumerate(_list(text_of(source))):
            if not isinstance(node, Mapping) or not node.get("Name"):
                raise InputError(f"[{index}].Name is missing; a compute node has a `Name` and a `DomainUUID`.")
            domain = node.get("DomainUUID")
            accelerators = node.get("GpuIDList")
            count = len(accelerators) if isinstance(accelerators, list) else 0
            hosts.append(LocatedHost(str(node["Name"]), (), str(domain) if domain else None, count or None))
        tree, sentences = tree_of_layers(hosts)
        return switched_network(tree, profile, usual=DOMAIN_PROFILE, assumptions=sentences)


def _list(text: str) -> list[Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the file is not JSON: {error!s:.200}.") from None
    if not isinstance(content, list):
        raise InputError("the file must hold a list.")
    return content


def _each(item: Any, key: str) -> Iterator[Mapping[str, Any]]:
    """The mappings in the list under a key."""
    entries = item.get(key) if isinstance(item, Mapping) else None
    yield from (each for each in entries or () if isinstance(each, Mapping)) if isinstance(entries, list) else ()


def _links(content: list[Any], tiers: Mapping[str, int]) -> Iterator[tuple[str, str, int]]:
    """The nodes at the ends of every link, and its cables."""
    for link in (link for part in content for link in _each(part, "links")):
        ends = str(link.get("id", "")).split("-*-")
        if len(ends) != 2 or ends[0] not in tiers:
            ends = [str(link.get("src")), str(link.get("target"))]
        if ends[0] in tiers and ends[1] in tiers and ends[0] != ends[1]:
            cables = link.get("compounded_links")
            size = link.get("size")
            number = len(cables) if isinstance(cables, list) and cables else size if isinstance(size, int) else 1
            yield ends[0], ends[1], max(1, number)
