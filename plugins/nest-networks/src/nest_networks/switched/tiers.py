"""Offer of each part of a switched network to its accelerators, and grouping of hosts by switches and domains."""

from collections.abc import Sequence
from itertools import groupby
from math import gcd

from attrs import frozen

from nest.catalogue import network_levels
from nest.instance import Level
from nest.spec import LevelSpec, TierSpec
from nest.units import BytesPerSecond, Seconds
from nest_networks.switched.profiles import SourcedProfile, nominal_bandwidth
from nest_networks.switched.tree import Host, SwitchTree


@frozen
class Tier:
    """Links by which accelerators reach each other: inside a host, in an NVLink domain, over switches of a height.

    Attributes:
        name: for reports.
        bandwidth: nominal bytes per second, per accelerator and direction.
        link: name of the link in the catalogue; None: none.
        latency: seconds from end to end; None: the link's.
        source: who says so, for readers; empty: the file, by counting its links.
    """

    name: str
    bandwidth: float
    link: str | None
    latency: float | None
    source: str = ""

    def spec(self, fanout: int) -> LevelSpec:
        """A level of it."""
        latency = None if self.latency is None else Seconds(self.latency)
        return LevelSpec(fanout, BytesPerSecond(self.bandwidth), latency, self.name, self.link)

    @property
    def level(self) -> Level:
        """The level in numbers: what messages reach, and their latency."""
        return network_levels([self.spec(1)])[0]

    def equals(self, other: "Tier") -> bool:
        """Return whether two accelerators have the same between them in both."""
        return (self.bandwidth, self.link, self.latency) == (other.bandwidth, other.link, other.latency)


def inside(name: str, spec: TierSpec, place: str, source: str = "") -> Tier:
    """The links inside a host or an NVLink domain.

    `place`: where in the profile, for errors.
    `source`: who says so; empty: the file.

    Raises:
        InputError: neither the profile nor its link has a bandwidth.
    """
    return Tier(name, nominal_bandwidth(spec, place), spec.link, spec.latency, source)


def network_tiers(tree: SwitchTree, devices: int, profile: SourcedProfile) -> list[Tier]:
    """The tiers of switches, lowest first: no tier is faster, or sooner there, than those below it.

    An accelerator's share of a bundle of links is the bundle's bandwidth over the accelerators behind it: that is what
    oversubscription comes to when all send at once (PROBLEM.md section 1). Each tier is as slow as its slowest bundle.

    Raises:
        InputError: neither the profile nor its link has a bandwidth.
    """
    tiers: list[Tier] = []
    shares = _shares(tree, devices)
    for height in range(1, tree.heights[tree.root] + 1):
        index = min(height, len(profile.tiers)) - 1
        spec = profile.tiers[index]
        counted = shares.get(height, [])
        known = [share for share in counted if share is not None]
        bandwidth = min(known, default=float("inf"))
        complete = bool(counted) and len(known) == len(counted)
        if not complete:
            own = nominal_bandwidth(spec, f"tiers[{index}]")
            if tiers:
                own = min(
                    own, tiers[-1].bandwidth / profile.tiers[min(height - 1, len(profile.tiers)) - 1].oversubscription
                )
            bandwidth = min(bandwidth, own)
        latency: float | None = spec.latency
        if tiers:
            bandwidth = min(bandwidth, tiers[-1].bandwidth)
            if latency is not None and tiers[-1].latency is not None:
                latency = max(latency, tiers[-1].latency)
        name = tree.names[height - 1] if height <= len(tree.names) else f"tier {height}"
        tiers.append(Tier(name, bandwidth, spec.link, latency, "" if complete else profile.source("tiers")))
    return tiers


def _shares(tree: SwitchTree, devices: int) -> dict[int, list[float | None]]:
    """By the height of the switch above: what each bundle of links below it offers an accelerator."""
    shares: dict[int, list[float | None]] = {}
    for host in tree.hosts:
        share = None if host.bandwidth is None else host.bandwidth / devices
        shares.setdefault(tree.heights[host.switch], []).append(share)
    for switch, parent in tree.parents.items():
        if switch in tree.counts:
            uplink = tree.uplinks.get(switch)
            behind = devices * tree.counts[switch]
            shares.setdefault(tree.heights[parent], []).append(None if uplink is None else uplink / behind)
    return shares


def uneven_links(tree: SwitchTree, devices: int, tiers: Sequence[Tier]) -> list[str]:
    """A sentence for each of `tiers` whose bundles of links differ in what they offer an accelerator."""
    sentences = []
    shares = _shares(tree, devices)
    for height, tier in enumerate(tiers, 1):
        known = [share for share in shares.get(height, []) if share is not None]
        if known and max(known) > min(known):
            sentences.append(
                f"Links up to {_levels([tier.name])} offer each accelerator {min(known) / 1e9:.4g} to "
                f"{max(known) / 1e9:.4g} GB/s; nest uses the slowest."
            )
    return sentences


def tier_sentences(tiers: Sequence[Tier]) -> list[str]:
    """Sentences on `tiers` from a profile, one for those that are alike."""
    alike: dict[tuple[float, str | None, float | None, str], list[str]] = {}
    for tier in tiers:
        if tier.source:
            alike.setdefault((tier.bandwidth, tier.link, tier.latency, tier.source), []).append(tier.name)
    return [
        f"{_places(names)} each accelerator has {bandwidth / 1e9:.4g} GB/s in each direction"
        f"{f' ({link})' if link else ''}: {source}."
        for (bandwidth, link, _, source), names in alike.items()
    ]


def _places(names: Sequence[str]) -> str:
    inner = {
        "host": "inside a host",
        "domain": "between hosts of one NVLink domain",
        "neighbour": "to each neighbouring host",
    }
    places = [inner[name] for name in names if name in inner]
    tiers = [name for name in names if name not in inner]
    text = " and ".join([*places, *([f"on {_levels(tiers)}"] if tiers else [])])
    return text[0].upper() + text[1:]


def _levels(names: Sequence[str]) -> str:
    return f"the levels {', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else f"the level {names[0]}"


@frozen
class Partition:
    """The hosts in groups that lie side by side.

    Attributes:
        tier: what accelerators of one group have between them, at least.
        sizes: hosts of each group, in order.
    """

    tier: Tier
    sizes: tuple[int, ...]

    @property
    def even(self) -> int:
        """Hosts of the largest groups into which every group divides."""
        return gcd(*self.sizes)

    @property
    def uniform(self) -> bool:
        """True if all groups have as many hosts."""
        return len(set(self.sizes)) == 1


@frozen
class Layout:
    """Hosts in an order, and the groups they are in.

    Attributes:
        hosts: those of every group side by side.
        partitions: of at least two hosts in some group, innermost first, each finer than the next; the last is one
            group.
        domain: links of NVLink domains; None: there are none, or they are not planned with.
        crossing: whether NVLink domains and switches cross each other, so that domains are no partition here.
        assumptions: what is taken for granted, a sentence each.
    """

    hosts: tuple[Host, ...]
    partitions: tuple[Partition, ...]
    domain: Tier | None
    crossing: bool
    assumptions: tuple[str, ...]


def host_layout(tree: SwitchTree, tiers: Sequence[Tier], profile: SourcedProfile) -> Layout:
    """The hosts of `tree` in its order, those of a domain side by side, with their groups.

    A domain is finer than the lowest tier with each domain under one switch; switches of lower tiers are then inside
    domains, whose own links are faster, and make no groups. Where some are not, domains and switches cross.

    Raises:
        InputError: the links of domains have no bandwidth.
    """
    hosts = tree.ordered
    groups = [tree.groups(hosts, height + 1) for height in range(len(tiers))]
    named = [host.domain is not None for host in hosts]
    if not any(named):
        return _of_switches(hosts, groups, tiers)
    if profile.domain is None:
        source = profile.source("tiers")
        sentence = (
            f"Hosts of one block or NVLink domain are joined by the network only: {source} has no links of a `domain`."
        )
        return _of_switches(hosts, groups, tiers, assumptions=(sentence,))
    domain = inside("domain", profile.domain, "domain", profile.source("domain"))
    labels = [f"host {host.name}" if host.domain is None else f"domain {host.domain}" for host in hosts]
    above = next(height for height, each in enumerate(groups) if _finer(labels, each))
    if not all(_finer(each, labels) for each in groups[:above]):
        return _of_switches(hosts, groups, tiers, domain=domain, crossing=True)
    first = {label: place for place, label in reversed(list(enumerate(labels)))}
    section = {label: place for place, label in reversed(list(enumerate(groups[above])))}
    order = sorted(range(len(hosts)), key=lambda place: (section[groups[above][place]], first[labels[place]], place))
    chosen = [labels, *groups[above:]]
    return _of_switches(
        tuple(hosts[place] for place in order),
        [[each[place] for place in order] for each in chosen],
        [domain, *tiers[above:]],
        domain=domain,
    )


def _of_switches(
    hosts: tuple[Host, ...],
    groups: Sequence[Sequence[str]],
    tiers: Sequence[Tier],
    *,
    domain: Tier | None = None,
    crossing: bool = False,
    assumptions: tuple[str, ...] = (),
) -> Layout:
    """The layout with the groups that `groups` label, as far as they say anything."""
    partitions: list[Partition] = []
    count = len(hosts)
    for labels, tier in zip(groups, tiers, strict=True):
        sizes = tuple(len(list(run)) for _, run in groupby(labels))
        if len(sizes) < count:
            partitions.append(Partition(tier, sizes))
            count = len(sizes)
    return Layout(hosts, tuple(partitions), domain, crossing, assumptions)


def _finer(inner: Sequence[str], outer: Sequence[str]) -> bool:
    """Return whether every group of `inner` is in one group of `outer`."""
    parents: dict[str, str] = {}
    return all(parents.setdefault(one, other) == other for one, other in zip(inner, outer, strict=True))
