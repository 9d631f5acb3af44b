"""Hosts under switches, as files of the field list them: which tree they are, and how far each switch reaches."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import combinations, pairwise

from attrs import evolve, field, frozen

from nest.errors import InputError
from nest.units import first_names

MOST_TIERS = 16
"""Switches above one another; fat trees of the largest clusters have three or four tiers."""


@frozen
class Host:
    """A machine with accelerators.

    Attributes:
        name: as jobs are started on it.
        switch: the switch it hangs on.
        bandwidth: nominal bytes per second and direction of all its links to that switch together; None: not known.
        domain: the NVLink domain it is in, together with others; None: none.
        devices: its accelerators; None: not known.
    """

    name: str
    switch: str
    bandwidth: float | None = None
    domain: str | None = None
    devices: int | None = None


@frozen(eq=False, slots=False)
class SwitchTree:
    """Switches above one another, and hosts under them at any depth.

    Attributes:
        hosts: in the order of the file.
        parents: the switch above each switch that has one, in the order of the file.
        uplinks: nominal bytes per second and direction of all links from a switch to the one above it together; those
            that are missing are not known.
        names: of the tiers of switches, the lowest first, for reports; further ones are numbered.
        remedy: what to do about several roots: a sentence for the error.
    """

    hosts: tuple[Host, ...]
    parents: Mapping[str, str]
    uplinks: Mapping[str, float] = field(factory=dict)
    names: Sequence[str] = ("leaf", "spine", "core")
    remedy: str = "Plan the hosts of one of them."

    def __attrs_post_init__(self) -> None:
        _check_tree(self)

    @cached_property
    def root(self) -> str:
        """The switch above all hosts."""
        return _roots(self)[0]

    @cached_property
    def counts(self) -> dict[str, int]:
        """Hosts below each switch that has any."""
        counts: dict[str, int] = {}
        for host in self.hosts:
            switch: str | None = host.switch
            while switch is not None:
                counts[switch] = counts.get(switch, 0) + 1
                switch = self.parents.get(switch)
        return counts

    @cached_property
    def heights(self) -> dict[str, int]:
        """For each switch with hosts below it the switches on the longest way down to one, itself included."""
        heights: dict[str, int] = {}
        for host in self.hosts:
            height, switch = 1, host.switch
            while heights.get(switch, 0) < height:
                heights[switch] = height
                if switch not in self.parents:
                    break
                height, switch = height + 1, self.parents[switch]
        return heights

    @cached_property
    def ordered(self) -> tuple[Host, ...]:
        """The hosts as the tree has them from left to right: those of any switch lie side by side.

        A switch has its own hosts first, then those of the switches below it, in the order of the file.
        """
        own: dict[str, list[Host]] = {}
        for host in self.hosts:
            own.setdefault(host.switch, []).append(host)
        below: dict[str, list[str]] = {}
        for switch, parent in self.parents.items():
            if switch in self.counts:
                below.setdefault(parent, []).append(switch)
        hosts: list[Host] = []
        waiting = [self.root]
        while waiting:
            switch = waiting.pop()
            hosts += own.get(switch, [])
            waiting += reversed(below.get(switch, []))
        return tuple(hosts)

    def groups(self, hosts: Sequence[Host], tier: int) -> list[str]:
        """For each of `hosts` the farthest switch above it that is no higher than `tier`; with none, itself."""
        groups = []
        top: dict[str, str] = {}
        for host in hosts:
            if self.heights[host.switch] > tier:
                groups.append(f"host {host.name}")
                continue
            if host.switch not in top:
                switch = host.switch
                while switch in self.parents and self.heights[self.parents[switch]] <= tier:
                    switch = self.parents[switch]
                top[host.switch] = switch
            groups.append(f"switch {top[host.switch]}")
        return groups


def _check_tree(tree: SwitchTree) -> None:
    if not tree.hosts:
        raise InputError("the file has no hosts under its switches.")
    seen: dict[str, str] = {}
    for host in tree.hosts:
        if seen.get(host.name) == host.switch:
            raise InputError(f"host {host.name!r:.60} is listed twice; keep one.")
        if host.name in seen:
            raise InputError(
                f"host {host.name!r:.60} is under two switches, {seen[host.name]!r:.60} and {host.switch!r:.60}; "
                "keep one."
            )
        seen[host.name] = host.switch
    _check_depth(tree)
    roots = _roots(tree)
    if len(roots) > 1:
        counts = [f"{root!r:.40} ({tree.counts[root]} hosts)" for root in roots]
        raise InputError(
            f"the switches {first_names(counts)} are not joined by any switch above them, so that their hosts "
            f"cannot reach each other. {tree.remedy}"
        )


def _check_depth(tree: SwitchTree) -> None:
    for host in tree.hosts:
        switch, tiers = host.switch, 1
        while switch in tree.parents:
            switch, tiers = tree.parents[switch], tiers + 1
            if tiers > MOST_TIERS:
                raise InputError(
                    f"switch {host.switch!r:.60} has more than {MOST_TIERS} switches above one another over it, or "
                    "is above itself; correct the hierarchy."
                )


def _roots(tree: SwitchTree) -> list[str]:
    """Switches above which there is none, with hosts below them, in the order of the hosts."""
    return [switch for switch in tree.counts if switch not in tree.parents]


TOP = "the network above"
"""Name of the switch that stands for what joins switches above which a file lists none."""


@frozen
class LocatedHost:
    """A machine and where it is.

    Attributes:
        name: as jobs are started on it.
        layers: the switches above it, the nearest first; empty: the file does not say.
        domain: the NVLink domain it is in, together with others; None: none.
        devices: its accelerators; None: not known.
    """

    name: str
    layers: tuple[str, ...] = ()
    domain: str | None = None
    devices: int | None = None


def tree_of_layers(hosts: Sequence[LocatedHost]) -> tuple[SwitchTree, tuple[str, ...]]:
    """The tree of all switches named, and what was taken for granted, a sentence each.

    Files of this kind say how near hosts are, and not how they reach each other: where nothing joins the uppermost
    switches, the network above them does. One name in different places stands for different switches, so that no two
    hosts are taken to be nearer than they are. Hosts without switches are left out where others have some.

    Raises:
        InputError: there are no hosts, or they make no tree.
    """
    if not hosts:
        raise InputError("the file has no hosts.")
    placed = [host for host in hosts if host.layers]
    sentences = []
    if 0 < len(placed) < len(hosts):
        sentences.append(left_out([host.name for host in hosts if not host.layers], "for which no switches are listed"))
    if not placed:
        sentences.append("The file lists no switches; assuming one switch joins all hosts.")
    chosen = placed or list(hosts)
    repeated = _repeated(chosen)
    if repeated is not None:
        sentences.append(f"Treating switches called {repeated!r:.60} in different places as different.")
    paths = [_path(host, whole=repeated is not None) for host in chosen]
    tops = {path[-1] for path in paths if path}
    if len(tops) > 1:
        sentences.append(f"The file lists nothing above its {len(tops)} top switches; assuming one tier joins them.")
    parents: dict[str, str] = {}
    for path in paths:
        whole = path if path and len(tops) == 1 else [*path, TOP]
        parents.update(pairwise(whole))
    edges = tuple(
        Host(host.name, path[0] if path else TOP, domain=host.domain, devices=host.devices)
        for host, path in zip(chosen, paths, strict=True)
    )
    return SwitchTree(edges, parents), tuple(sentences)


def left_out(names: Sequence[str], why: str) -> str:
    """A sentence for hosts that are not planned with."""
    return f"Left out: {first_names(names)} ({len(names)} {'hosts' if len(names) > 1 else 'host'}), {why}."


def _repeated(hosts: Sequence[LocatedHost]) -> str | None:
    """A name that stands for switches in different places; None: there is none."""
    above: dict[str, tuple[str, ...]] = {}
    for host in hosts:
        for index, name in enumerate(host.layers):
            if above.setdefault(name, host.layers[index + 1 :]) != host.layers[index + 1 :]:
                return name
    return None


def _path(host: LocatedHost, *, whole: bool) -> list[str]:
    """Names of the switches above a host, the nearest first; `whole` ones say what is above each."""
    if not whole:
        return list(host.layers)
    return ["/".join(reversed(host.layers[index:])) for index in range(len(host.layers))]


def united_switches(
    hosts: Iterable[Host], links: Iterable[tuple[str, str]]
) -> tuple[tuple[Host, ...], dict[str, str], tuple[str, ...]]:
    """Hosts and parents of a tree, where hosts and switches may hang on several switches.

    Spines above the same leaves, or the leaves of the rails of one host, are one tier: those that share a child become
    one switch, called after the first.

    Args:
        hosts: a host once for each switch it hangs on.
        links: a switch, and one above it.

    Returns:
        Each host once, the switch above each, and a sentence for each set of switches that became one.

    Raises:
        InputError: two that are below such a set have none of its switches in common, so that a path between them
            goes higher, or over third ones, and may be slower than one switch.
    """
    sets, above, listed = _Sets(), list(links), list(hosts)
    first: dict[str, Host] = {}
    for host in listed:
        sets.unite(first.setdefault(host.name, host).switch, host.switch)
    changed = True
    while changed:  # Switches that became one may hang on several.
        changed = False
        parents: dict[str, str] = {}
        for child, parent in above:
            if sets.head(child) != sets.head(parent):
                changed |= sets.unite(parents.setdefault(sets.head(child), parent), parent)
    below = [(f"host {host.name!r:.60}", host.switch) for host in listed]
    _check_shared(sets, below + [(f"switch {sets.head(child)!r:.60}", parent) for child, parent in above])
    above_of = {sets.head(child): sets.head(parent) for child, parent in above if sets.head(child) != sets.head(parent)}
    named = tuple(evolve(host, switch=sets.head(host.switch)) for host in first.values())
    return named, above_of, tuple(map(_sentence, sets.members.values()))


def _check_shared(sets: "_Sets", below: Iterable[tuple[str, str]]) -> None:
    """Refuse sets of which two things below them share no switch: each of `below` is a thing and a switch above it."""
    on: dict[str, dict[str, set[str]]] = {}
    for name, switch in below:
        if sets.head(switch) in sets.members:
            on.setdefault(sets.head(switch), {}).setdefault(name, set()).add(switch)
    for things in on.values():
        different = {frozenset(switches): name for name, switches in reversed(things.items())}
        for (one, first), (two, second) in combinations(sorted(different.items(), key=lambda each: each[1]), 2):
            if not one & two:
                raise InputError(
                    f"{first} and {second} have no switch in common, while {min(one)!r:.60} and {min(two)!r:.60} "
                    "above them share children: not a tree. List each child under one switch."
                )


def _sentence(names: list[str]) -> str:
    shared = "have hosts or switches below them in common and are planned as one"
    return f"Switches {first_names(names)} {shared}."


class _Sets:
    """Sets of names, each called after its first.

    Attributes:
        members: of the sets of two names and more.
    """

    def __init__(self) -> None:
        self.members: dict[str, list[str]] = {}
        self._head: dict[str, str] = {}

    def head(self, name: str) -> str:
        """Name of the set of `name`."""
        return self._head.get(name, name)

    def unite(self, one: str, two: str) -> bool:
        """Make the sets of two names one; whether they were two."""
        one, two = self.head(one), self.head(two)
        if one == two:
            return False
        moved = self.members.pop(two, [two])
        self.members.setdefault(one, [one]).extend(moved)
        self._head.update(dict.fromkeys(moved, one))
        return True
