"""Fabrics in which switches have several ways up (Clos networks, fat trees, rails) to the tree they are for hosts.

Hosts that hang on the same leaf switches, one link on each (their rails), are near one another: these switches together
are one switch of the tree, and so are the switches that join several of those, tier by tier. What such a switch offers
upwards is what the worst of its members offers the accelerators behind it: bandwidth upwards over links downwards,
which is true oversubscription. Messages spread evenly over the switches above, not over cables, so that the narrowest
way counts. Where switches of a tier differ, paths decide, so that a tree never promises more than the fabric has
(`nest_networks.switched.paths`). A fabric that is no tree is planned link by link.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from attrs import evolve, frozen

from nest.errors import InputError
from nest.network.graph import components
from nest.network.imported import Imported
from nest.spec import LinkProfile, TierSpec
from nest.units import first_names
from nest_networks.switched.fabric import Fabric, FabricHost, fabric_graph, total
from nest_networks.switched.network import switched_network
from nest_networks.switched.paths import lowered_uplinks
from nest_networks.switched.profiles import nominal_bandwidth, sourced_profile
from nest_networks.switched.tiers import inside
from nest_networks.switched.tree import Host, SwitchTree, left_out


class NoTreeError(InputError):
    """A fabric that is no tree of tiers: its links are planned one by one."""


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
        Host(each.name, of_switch[each.links[0][0]], total(each.switches.values()), each.domain, devices)
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
    tree = SwitchTree(hosts, parents, uplinks, remedy="Import the hosts of one of them.")
    return tree if _even(machines, tiers, fabric) else evolve(tree, uplinks=lowered_uplinks(tree, machines, fabric))


def _even(machines: Sequence[FabricHost], tiers: Sequence[Sequence[str]], fabric: Fabric) -> bool:
    """Whether all switches of a tier have the same links: then all ways are equal, upwards and downwards."""
    rank = {switch: index for index, tier in enumerate(tiers) for switch in tier}
    links = {switch: Counter((rank[each], width) for each, width in fabric.beside(switch).items()) for switch in rank}
    for machine in machines:
        for switch, width in machine.switches.items():
            links[switch][-1, width] += 1
    return all(links[switch] == links[tier[0]] for tier in tiers for switch in tier)


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
        whole = total(switches.values())
        for switch, bandwidth in switches.items():
            bandwidths[switch] += 1 / len(switches) if not whole or bandwidth is None else bandwidth / whole
    for lower, upper in pairwise(tiers):
        above = set(upper)
        for switch in lower:
            ways = [each for each in fabric.beside(switch) if each in above]
            for each in ways:
                bandwidths[each] += bandwidths[switch] / len(ways)
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
    """Least upward bandwidth that some switches offer each host, bytes per second; None: unknown.

    Hosts below switches that lost all their upward links use the others.
    """
    shares, carried = list[float](), 0.0
    for switch in members:
        widths = [bandwidth for each, bandwidth in fabric.beside(switch).items() if each in above]
        known = [width for width in widths if width is not None]
        if len(known) < len(widths):
            return None
        if known and behind[switch]:
            shares.append(min(known) * len(known) / behind[switch])
            carried += behind[switch]
    return min(shares) * carried / sum(behind[each] for each in members) if shares else None


def usual_links(links: Mapping[str, int]) -> tuple[int, list[str]]:
    """Number of links a host is planned with, those of most links in all, and a sentence on other hosts."""
    counts = Counter(links.values())
    usual = max(counts, key=lambda count: (count * counts[count], count), default=0)
    others = [name for name, count in links.items() if count != usual]
    why = f"which do not have {usual} links to the network as most do"
    return usual, [left_out(others, why)] if others else []


WHOLE = (4, 8, 16)
"""Accelerators of hosts as they are sold (trays of NVL72, DGX and HGX systems): so many NICs have one each."""


@frozen
class Figures:
    """Figures of hosts on a fabric that their file does not say.

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


def figures(given: LinkProfile | None, usual: str, nics: int, *, made_of: TierSpec | None = None) -> Figures:
    """The figures of hosts with so many `nics` each on a fabric.

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
        if nics in WHOLE:
            devices, why = nics, "one for each of its NICs"
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


def _as_slowest(machine: FabricHost) -> FabricHost:
    """`machine` with all its links as slow as its slowest: rings of NCCL send as much over each rail."""
    known = [rate for _, rate in machine.links if rate is not None]
    links = tuple((switch, rate if rate is None else min(known)) for switch, rate in machine.links)
    return evolve(machine, links=links)


def _slow_rails(machines: Sequence[FabricHost]) -> list[str]:
    """A sentence on hosts with a link that is slower than the hosts' links mostly are."""
    rates = Counter(rate for each in machines for _, rate in each.links if rate is not None)
    usual = max(rates, key=lambda rate: (rates[rate], rate), default=0.0)
    slow = [each.name for each in machines if any(rate is not None and rate < usual for _, rate in each.links)]
    if not slow:
        return []
    least = min(rate for rate in rates)
    return [
        f"Slow links: {first_names(slow)} ({least / 1e9:.4g} GB/s, mostly it is {usual / 1e9:.4g}). nest "
        "prices all hosts with the slowest link, as a ring is; repair these links, or leave them out."
    ]


def fabric_network(
    machines: Sequence[FabricHost], fabric: Fabric, figures_used: Figures, assumptions: Sequence[str] = ()
) -> Imported:
    """The network of `machines`: levels where the fabric is a tree of tiers and regular, otherwise a graph.

    Raises:
        InputError: there are no hosts, they cannot reach one another, or an irregular fabric is too large.
    """
    if not any(each.links for each in machines):
        raise InputError("no host is linked to a switch.")
    slow, sentences = _slow_rails(machines), [*assumptions, *figures_used.sentences]
    sentences += slow
    alone = [each.name for each in machines if not each.links]
    sentences += [left_out(alone, "which no link joins to a switch")] if alone else []
    machines = [_as_slowest(each) for each in machines if each.links]
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
