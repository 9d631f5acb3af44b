"""Hosts side by side in the groups that NVLink domains and switches make of them."""

from collections.abc import Sequence
from itertools import groupby
from math import gcd

from attrs import frozen

from nest.topologies.reading.profiles import Completed
from nest.topologies.reading.switch_tree import Host, SwitchTree
from nest.topologies.reading.tiers import Tier, inside


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
        """Whether all groups have as many hosts."""
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


def laid_out(tree: SwitchTree, tiers: Sequence[Tier], profile: Completed) -> Layout:
    """The hosts of `tree` in its order, those of a domain side by side, with their groups.

    A domain is finer than the lowest tier with each domain under one switch; switches of lower tiers are then inside
    domains, whose own links are faster, and make no groups. Where some are not, domains and switches cross.

    Args:
        tree: the switches.
        tiers: what each height of switches offers.
        profile: says whether domains have links of their own.

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
    """Whether every group of `inner` is in one group of `outer`."""
    found: dict[str, str] = {}
    return all(found.setdefault(one, other) == other for one, other in zip(inner, outer, strict=True))
