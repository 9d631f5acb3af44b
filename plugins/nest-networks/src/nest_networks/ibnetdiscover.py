"""InfiniBand fabrics as `ibnetdiscover` prints them: switches, NICs with their hosts, and the rate of every link.

Format: linux-rdma/rdma-core@691953d infiniband-diags/ibnetdiscover.c (`out_switch_detail`, `out_ca_detail`,
`out_switch_port`, `out_ca_port`). The node descriptions of NICs, `HOST NIC`, name their hosts; rdma-ndd sets them
(rdma-core rdma-ndd/rdma-ndd.8.in); NVIDIA/topograph@e2b6250 pkg/ib/ib.go reads them likewise.
"""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from attrs import define, field

from nest.errors import InputError
from nest.network.imported import Imported
from nest.spec import LinkProfile
from nest_networks.files import beginning, natural, text_of
from nest_networks.switched.clos import fabric_network, figures, usual_links
from nest_networks.switched.fabric import Fabric, FabricHost
from nest_networks.switched.profiles import infiniband_lane, infiniband_rate

_NODE = re.compile(r'^\s*(Switch|Ca|Rt)\s+\d+\s+"([SHR]-[0-9a-fA-F]+)"(?:\s*#\s*"(.*?)"(?=\s|$))?')
_PORT = re.compile(
    r"^\s*\[(\d+)\](?:\[ext \d+\])?(?:\([0-9a-fA-F]+\))?\s*"
    r'"([SHR]-[0-9a-fA-F]+)"\[(\d+)\](?:\[ext \d+\])?\s*(?:\([0-9a-fA-F]+\))?\s*(?:#\s*(.*))?$'
)
_RATE = re.compile(r"\b((?:\d+x\s*)?[SDQFEHNX]DR\d*)\b")
_KIND = re.compile(r'^[ \t]*(?:Switch|Ca|Rt)\s+\d+\s+"[SHR]-[0-9a-fA-F]+"', re.MULTILINE)
_HOST = re.compile(r"(\S+)(?:\s+(\S+))?")
_AGGREGATION = "Aggregation Node"
"""In the description of the NIC inside a switch that reduces for SHARP: no host."""

USUAL = ((200.0, "b200-xdr"), (100.0, "h100-ndr"), (0.0, "a100-hdr"))
"""From what rate of a lane of the hosts' links on (Gbit/s) which profile completes the file."""


class IbnetdiscoverImporter:
    """Reads what `ibnetdiscover` prints."""

    name = "ibnetdiscover"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is the path of a text with nodes as `ibnetdiscover` prints them."""
        return bool(_KIND.search(beginning(source)))

    def load(self, source: Path, profile: LinkProfile | None = None) -> Imported:
        """The hosts with most NICs alike, under the switches, with the bandwidth of all links counted.

        Raises:
            InputError: there are no switches or no hosts on them, or hosts cannot reach one another.
        """
        discovered = _parsed(text_of(source))
        if not any(name.startswith("S-") for name in discovered.kinds):
            raise InputError(
                f"the file has no switches, only {len(discovered.kinds)} NIC{'s' * (len(discovered.kinds) != 1)}. "
                "Run ibnetdiscover where a port is up (`ibstat` says so) and a subnet manager runs."
            )
        machines, nics, sentences = _machines(discovered)
        fabric = Fabric()
        for (one, _), (two, _), rate in discovered.links():
            if one.startswith("S-") and two.startswith("S-"):
                fabric.link(one, two, rate)
        lane = max((discovered.lanes[port] for port in discovered.lanes if port[0].startswith("H-")), default=0.0)
        usual = next(name for least, name in USUAL if lane >= least)
        return fabric_network(machines, fabric, figures(profile, usual, nics), sentences)


Port = tuple[str, int]


@define
class _Discovered:
    """Contents of the text.

    Attributes:
        kinds: every node, with its description.
        ends: the port at the other end of each port.
        rates: bytes per second and direction of the link at each port, if known.
        lanes: Gbit/s of one of its lanes, of both its ends.
    """

    kinds: dict[str, str] = field(factory=dict)
    ends: dict[Port, Port] = field(factory=dict)
    rates: dict[Port, float] = field(factory=dict)
    lanes: dict[Port, float] = field(factory=dict)

    def links(self) -> list[tuple[Port, Port, float | None]]:
        """Every link once, whichever of its ends are listed, in the order of the text."""
        links: dict[frozenset[Port], tuple[Port, Port, float | None]] = {}
        for one, two in self.ends.items():
            rate = self.rates.get(one, self.rates.get(two))
            links.setdefault(frozenset((one, two)), (one, two, rate))
        return list(links.values())


def _parsed(text: str) -> _Discovered:
    discovered = _Discovered()
    current = ""
    for line in text.splitlines():
        node = _NODE.match(line)
        if node:
            current = node[2]
            discovered.kinds[current] = node[3] or discovered.kinds.get(current, "")
            continue
        port = _PORT.match(line)
        if not port or not current:
            continue
        here, there = (current, int(port[1])), (port[2], int(port[3]))
        said = port[4] or ""
        discovered.ends[here] = there
        rates = _RATE.findall(said.rpartition('"')[2])
        rate = infiniband_rate(rates[-1]) if rates else None
        if rate is not None:  # Of two ends that say different rates the slower counts.
            discovered.rates[here] = min(rate, discovered.rates.get(there, rate))
            if there in discovered.rates:
                discovered.rates[there] = discovered.rates[here]
            discovered.lanes[here] = discovered.lanes[there] = infiniband_lane(rates[-1])
        if there[0] not in discovered.kinds:
            words = re.search(r'"(.*)"', said)
            discovered.kinds[there[0]] = words[1] if words else ""
    return discovered


def _machines(discovered: _Discovered) -> tuple[list[FabricHost], int, list[str]]:
    """The hosts to plan with, by name, the NICs of each, of which several links may be, and who is left out."""
    links: dict[str, list[tuple[int, str, float | None]]] = defaultdict(list)
    for one, two, rate in discovered.links():
        for (here, port), (there, _) in ((one, two), (two, one)):
            if here.startswith("H-") and there.startswith("S-") and _AGGREGATION not in discovered.kinds[here]:
                links[here].append((port, there, rate))
    hosts, unnamed = _hosts(discovered, list(links))
    sentences = []
    if not hosts:
        hosts = {nic: [("", nic)] for nic in unnamed}
        sentences.append("NICs name no hosts; treating each as a host named by its GUID.")
    elif unnamed:
        sentences.append(f"Left out: {len(unnamed)} NICs that name no host.")
    machines = []
    for name in sorted(hosts, key=natural):
        nics = sorted(hosts[name], key=lambda each: (natural(each[0]), each[1]))
        own = [(there, rate) for _, each in nics for _, there, rate in sorted(links[each])]
        machines.append(FabricHost(name, tuple(own)))
    usual, others = usual_links({each.name: len(each.links) for each in machines})
    sentences += others
    unknown = sum(rate is None for each in machines for _, rate in each.links)
    if unknown:
        sentences.append(f"{unknown} host links have no known rate; using the link profile's.")
    chosen = [each for each in machines if len(each.links) == usual]
    return chosen, len(hosts[chosen[0].name]) if chosen else 0, sentences


def _hosts(discovered: _Discovered, nics: list[str]) -> tuple[dict[str, list[tuple[str, str]]], list[str]]:
    """By host its NICs, their own names first; and NICs that do not say which host they are in.

    A name under which a NIC comes twice belongs to several machines, not to a host.
    """
    hosts: dict[str, list[tuple[str, str]]] = defaultdict(list)
    unnamed = []
    for nic in nics:
        words = _HOST.fullmatch(discovered.kinds[nic].strip().strip("'"))
        if words:
            hosts[words[1].strip("'")].append((words[2] or "", nic))
        else:
            unnamed.append(nic)
    for name, members in list(hosts.items()):
        if len({own for own, _ in members}) < len(members):
            unnamed += [nic for _, nic in hosts.pop(name)]
    return dict(hosts), unnamed
