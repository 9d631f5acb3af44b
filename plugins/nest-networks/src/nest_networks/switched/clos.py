"""Fabrics in which switches have several ways up (Clos networks, fat trees, rails) to the tree they are for hosts.

Hosts that hang on the same leaf switches, one link on each (their rails), are near one another: these switches together
are one switch of the tree, and so are the switches that join several of those, tier by tier. What such a switch offers
upwards is what the worst of its members offers the accelerators behind it, so that a tree never promises more than the
fabric has: bandwidth upwards over links downwards, which is true oversubscription. A fabric that is no tree is planned
link by link.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from attrs import frozen

from nest.errors import InputError
from nest.network.graph import LinkGraph, NetworkBuilder, check_size, components
from nest.network.imported import Imported
from nest.spec import LinkProfile, TierSpec
from nest_networks.switched.network import switched_network
from nest_networks.switched.profiles import nominal_bandwidth, sourced_profile
from nest_networks.switched.tiers import Tier, inside
from nest_networks.switched.tree import Host, SwitchTree, left_out


@frozen
class FabricHost:
    """A host with its links.

    Attributes:
        name: as jobs are started on it.
        links: the switch at the other end of each, in the order of its NICs, and bytes per second and direction;
            None: not known.
        domain: the NVLink domain it is in, together with others; None: none.
    """

    name: str
    links: tuple[tuple[str, float | None], ...]
    domain: str | None = None

    @property
    def switches(self) -> dict[str, float | None]:
        """The switches it hangs on, with the bandwidth of all links to each together."""
        bandwidths: dict[str, float | None] = {}
        for switch, bandwidth in self.links:
            before = bandwidths.get(switch, 0.0)
            bandwidths[switch] = None if before is None or bandwidth is None else before + bandwidth
        return bandwidths


class NoTreeError(InputError):
    """A fabric that is no tree of tiers: its links are planned one by one."""


class Fabric:
    """Switches with the links between them."""

    def __init__(self) -> None:
        self._links: dict[str, dict[str, float | None]] = {}

    def link(self, one: str, two: str, bandwidth: float | None) -> None:
        """Add a link between two switches: bytes per second and direction; None: not known.

        A cable from a switch back to itself leads nowhere.
        """
        if one == two:
            return
        for near, far in ((one, two), (two, one)):
            known = self._links.setdefault(near, {})
            before = known.get(far, 0.0)
            known[far] = None if before is None or bandwidth is None else before + bandwidth

    def beside(self, switch: str) -> Mapping[str, float | None]:
        """The switches linked to one, with the bandwidth of all links together."""
        return self._links.get(switch, {})


def fabric_tree(machines: Sequence[FabricHost], fabric: Fabric, *, devices: int | None = None) -> SwitchTree:
    """The tree of `machines` under the switches of `fabric`.

    Raises:
        NoTreeError: switches of one tier are linked, or hosts share some leaf switches and others not.
        InputError: hosts cannot reach one another.
    """
    tiers = _tiers(machines, fabric)
    behind = _behind(machines, tiers, fabric)
    parents: dict[str, str] = {}
    uplinks: dict[str, float] = {}
    groups = _groups(machines, tiers[0])
    of_switch = {switch: name for name, members in groups.items() for switch in members}
    hosts = tuple(
        Host(each.name, of_switch[each.links[0][0]], _total(each.switches.values()), each.domain, devices)
        for each in machines
    )
    counts = Counter(host.switch for host in hosts)
    for upper in tiers[1:]:
        joined = _joined_groups(groups, upper, fabric)
        for name, (members, below) in joined.items():
            for group in below:
                parents[group] = name
                counts[name] += counts[group]
                share = _upward(groups[group], set(members), behind, fabric)
                if share is not None:
                    uplinks[group] = share * counts[group]
        groups = {name: members for name, (members, _) in joined.items()} | {
            name: members for name, members in groups.items() if name not in parents
        }
    return SwitchTree(hosts, parents, uplinks, remedy="Import the hosts of one of them.")


def _total(links: Iterable[float | None]) -> float | None:
    known = list(links)
    return None if None in known else sum(each for each in known if each is not None)


def _tiers(machines: Sequence[FabricHost], fabric: Fabric) -> list[list[str]]:
    """Switches by their distance from hosts: those with hosts first, in the order of the hosts, then those above.

    Raises:
        NoTreeError: switches of one tier are linked to each other, as in a dragonfly or a torus.
    """
    tiers = [list(dict.fromkeys(switch for each in machines for switch in each.switches))]
    known = set(tiers[0])
    while tiers[-1]:
        tier = set(tiers[-1])
        for switch in tiers[-1]:
            across = next((each for each in fabric.beside(switch) if each in tier), None)
            if across is not None:
                raise NoTreeError(f"switches {switch!r:.60} and {across!r:.60} of one tier are linked.")
        above = [each for switch in tiers[-1] for each in fabric.beside(switch) if each not in known]
        tiers.append(list(dict.fromkeys(above)))
        known.update(above)
    return tiers[:-1]


def _behind(machines: Sequence[FabricHost], tiers: Sequence[Sequence[str]], fabric: Fabric) -> dict[str, float]:
    """Hosts whose traffic each switch carries upwards: a host spreads over its rails, a switch over its ways up."""
    bandwidths: dict[str, float] = dict.fromkeys((switch for tier in tiers for switch in tier), 0.0)
    for machine in machines:
        switches = machine.switches
        whole = _total(switches.values())
        for switch, bandwidth in switches.items():
            bandwidths[switch] += 1 / len(switches) if not whole or bandwidth is None else bandwidth / whole
    for lower, upper in pairwise(tiers):
        above = set(upper)
        for switch in lower:
            ways = {each: width for each, width in fabric.beside(switch).items() if each in above}
            whole = _total(ways.values())
            for each, width in ways.items():
                bandwidths[each] += bandwidths[switch] * (
                    1 / len(ways) if not whole or width is None else width / whole
                )
    return bandwidths


def _groups(machines: Sequence[FabricHost], leaves: Sequence[str]) -> dict[str, list[str]]:
    """The leaf switches that share hosts, by the name of the first of each group.

    Raises:
        NoTreeError: hosts share some of them and others not, so that two may have none in common.
    """
    of: dict[str, tuple[frozenset[str], str]] = {}
    for machine in machines:
        switches = frozenset(machine.switches)
        for switch in switches:
            known, name = of.setdefault(switch, (switches, machine.name))
            if known != switches:
                raise NoTreeError(f"hosts {name!r:.60} and {machine.name!r:.60} share some leaf switches, not all.")
    groups: dict[str, list[str]] = {}
    names: dict[frozenset[str], str] = {}
    for switch in leaves:
        groups.setdefault(names.setdefault(of[switch][0], switch), []).append(switch)
    return groups


def _joined_groups(
    groups: Mapping[str, Sequence[str]], upper: Sequence[str], fabric: Fabric
) -> dict[str, tuple[list[str], list[str]]]:
    """The switches of the next tier that join groups: for each joint group its switches, and the groups below it."""
    of_switch = {switch: name for name, members in groups.items() for switch in members}
    links: list[tuple[str, str]] = []
    for switch in upper:
        near = fabric.beside(switch)
        ends = dict.fromkeys(of_switch[each] for each in near if each in of_switch)
        further = any(each not in of_switch for each in near)
        if len(ends) < 2 and not further:
            continue  # It joins nothing: a leaf switch of hosts that are not planned with, or the top of one group.
        links += [(switch, group) for group in ends]
    result: dict[str, tuple[list[str], list[str]]] = {}
    for members in components([*upper, *groups], links):
        switches = [each for each in members if each not in groups]
        below = [each for each in members if each in groups]
        if switches and below:
            result[switches[0]] = (switches, below)
    return result


def _upward(members: Sequence[str], above: set[str], behind: Mapping[str, float], fabric: Fabric) -> float | None:
    """What the worst of some switches offers each host behind it upwards: bytes per second; None: not known."""
    shares = []
    for switch in members:
        if not behind[switch]:
            continue
        width = _total(bandwidth for each, bandwidth in fabric.beside(switch).items() if each in above)
        if width is None:
            return None
        shares.append(width / behind[switch])
    return min(shares, default=None)


def fabric_graph(
    machines: Sequence[FabricHost], fabric: Fabric, inner: Tier, network: Tier, devices: int, usual_rate: float
) -> LinkGraph:
    """The accelerators of `machines` with all links, those between switches shared by all that send over them.

    Accelerators take the links of their host in turn, as many for each as there are; where there are fewer links than
    accelerators they share them.

    `network`: what one link of the network is made of: its share of the nominal bandwidth is reached.
    `usual_rate`: nominal bytes per second and direction of a link whose rate is not known.

    Raises:
        InputError: it has too many devices or switches, or not all are connected.
    """
    check_size(devices * len(machines), 0, 0)
    level, inside = network.level, inner.level
    reached = level.bandwidth / network.bandwidth
    built = NetworkBuilder()
    switches: dict[str, int] = {}
    for machine in machines:
        accelerators = [built.device(f"{machine.name}.{index}") for index in range(devices)]
        for index, (one, share) in _taken(accelerators, len(machine.links)):
            switch, rate = machine.links[index]
            if switch not in switches:
                switches[switch] = built.switch(f"switch {switch}")
            built.link(one, switches[switch], reached * share * (rate or usual_rate), level.latency / 2)
        if devices > 1:
            middle = built.switch(f"inside {machine.name}")
            for one in accelerators:
                built.link(one, middle, inside.bandwidth, inside.latency / 2)
    waiting, seen = list(switches), set(switches)
    for switch in waiting:
        for other, rate in fabric.beside(switch).items():
            if other not in seen:
                seen.add(other)
                waiting.append(other)
                switches[other] = built.switch(f"switch {other}")
            if switch < other:
                built.link(switches[switch], switches[other], reached * (rate or usual_rate), 0.0)
    return built.built()


def _taken(accelerators: Sequence[int], links: int) -> list[tuple[int, tuple[int, float]]]:
    """For links of a host the accelerator that takes it, and its share."""
    count = len(accelerators)
    if links >= count:
        return [(index, (accelerators[index * count // links], 1.0)) for index in range(links)]
    taken = [index * links // count for index in range(count)]
    return [(index, (one, 1 / taken.count(index))) for index, one in zip(taken, accelerators, strict=True)]


def usual_links(links: Mapping[str, int]) -> tuple[int, list[str]]:
    """How many links a host is planned with, those of most links in all, and a sentence on hosts with other numbers."""
    counts = Counter(links.values())
    usual = max(counts, key=lambda count: (count * counts[count], count), default=0)
    others = [name for name, count in links.items() if count != usual]
    why = f"which do not have {usual} links to the network as most do"
    return usual, [left_out(others, why)] if others else []


WHOLE = (4, 8, 16)
"""Accelerators of hosts as they are sold (trays of NVL72, DGX and HGX systems): so many NICs have one each."""


@frozen
class Figures:
    """What hosts on a fabric have that their file does not say.

    Attributes:
        profile: complete.
        devices: accelerators of a host.
        sentences: where these are from, one each.
    """

    profile: LinkProfile
    devices: int
    sentences: tuple[str, ...] = ()

    @property
    def link_rate(self) -> float:
        """Nominal bytes per second and direction of all links of a host together, as the profile has them."""
        return nominal_bandwidth(self.profile.tiers[0], "tiers[0]") * self.devices


def figures(given: LinkProfile | None, usual: str, links: int, *, made_of: TierSpec | None = None) -> Figures:
    """The figures of hosts with so many `links` each to a fabric.

    `usual`: name of the catalogue's profile that completes it.
    `made_of`: the links of the network, where the file says and the user does not.
    """
    sourced = sourced_profile(given, usual)
    given = sourced.given
    linked = given.host is not None or given.domain is not None or given.tiers
    name = given.name if linked else sourced.usual.name  # Of whom the links are.
    source = f"link profile {name}" if name else "the link profile"
    devices, sentences = sourced.devices_per_host, []
    if given.devices_per_host is None:
        why = source
        if links in WHOLE:
            devices, why = links, "one for each of its links to the network"
        sentences.append(f"A host has {devices} accelerators: {why}.")
    if sourced.device is not None and given.device is None:
        sentences.append(f"The accelerators are {sourced.device}: {source}.")
    profile = LinkProfile(
        name=name,
        device=sourced.device,
        devices_per_host=devices,
        host=sourced.host,
        domain=sourced.domain,
        tiers=(made_of,) if made_of is not None and not given.tiers else sourced.tiers,
    )
    return Figures(profile, devices, tuple(sentences))


def fabric_network(
    machines: Sequence[FabricHost], fabric: Fabric, figures_used: Figures, assumptions: Sequence[str] = ()
) -> Imported:
    """The network of `machines`: levels where the fabric is a tree of tiers and regular, otherwise a graph.

    Raises:
        InputError: there are no hosts, they cannot reach one another, or an irregular fabric is too large.
    """
    if not any(each.links for each in machines):
        raise InputError("no host hangs on a switch.")
    sentences = [*assumptions, *figures_used.sentences]
    try:
        tree = fabric_tree(machines, fabric, devices=figures_used.devices)
    except NoTreeError as error:
        sentences.append(f"Every link is planned by itself, because {error}")
    else:
        return switched_network(tree, figures_used.profile, assumptions=sentences)
    inner = inside("host", figures_used.profile.host, "host")  # type: ignore[arg-type]
    network = inside("network", figures_used.profile.tiers[0], "tiers[0]")
    rate = figures_used.link_rate / len(machines[0].links)
    graph = fabric_graph(machines, fabric, inner, network, figures_used.devices, rate)
    return Imported(graph, (), figures_used.profile.device, tuple(sentences), figures_used.devices)
