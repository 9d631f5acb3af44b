"""Hosts under switches, as files of the field list them: which tree they are, and how far each switch reaches."""

from collections.abc import Mapping, Sequence
from functools import cached_property

from attrs import field, frozen

from nest.errors import InputError

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
        roots_told: what to do about several roots: a sentence for the error.
    """

    hosts: tuple[Host, ...]
    parents: Mapping[str, str]
    uplinks: Mapping[str, float] = field(factory=dict)
    names: Sequence[str] = ("leaf", "spine", "core")
    roots_told: str = "Plan the hosts of one of them."

    def __attrs_post_init__(self) -> None:
        _check(self)

    @cached_property
    def root(self) -> str:
        """The switch above all hosts."""
        return _roots(self)[0]

    @cached_property
    def counts(self) -> dict[str, int]:
        """Hosts below each switch that has any."""
        found: dict[str, int] = {}
        for host in self.hosts:
            switch: str | None = host.switch
            while switch is not None:
                found[switch] = found.get(switch, 0) + 1
                switch = self.parents.get(switch)
        return found

    @cached_property
    def heights(self) -> dict[str, int]:
        """For each switch with hosts below it the switches on the longest way down to one, itself included."""
        found: dict[str, int] = {}
        for host in self.hosts:
            height, switch = 1, host.switch
            while found.get(switch, 0) < height:
                found[switch] = height
                if switch not in self.parents:
                    break
                height, switch = height + 1, self.parents[switch]
        return found

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
        found: list[Host] = []
        waiting = [self.root]
        while waiting:
            switch = waiting.pop()
            found += own.get(switch, [])
            waiting += reversed(below.get(switch, []))
        return tuple(found)

    def groups(self, hosts: Sequence[Host], tier: int) -> list[str]:
        """For each of `hosts` the farthest switch above it that is no higher than `tier`; with none, itself."""
        found = []
        top: dict[str, str] = {}
        for host in hosts:
            if self.heights[host.switch] > tier:
                found.append(f"host {host.name}")
                continue
            if host.switch not in top:
                switch = host.switch
                while switch in self.parents and self.heights[self.parents[switch]] <= tier:
                    switch = self.parents[switch]
                top[host.switch] = switch
            found.append(f"switch {top[host.switch]}")
        return found


def _check(tree: SwitchTree) -> None:
    if not tree.hosts:
        raise InputError("the file has no hosts under its switches.")
    seen: dict[str, str] = {}
    for host in tree.hosts:
        if host.name in seen:
            raise InputError(
                f"host {host.name!r:.60} is under two switches, {seen[host.name]!r:.60} and {host.switch!r:.60}; "
                "leave it where it is planned to be used."
            )
        seen[host.name] = host.switch
    _check_depth(tree)
    roots = _roots(tree)
    if len(roots) > 1:
        counts = [f"{root!r:.60} ({tree.counts[root]} hosts)" for root in roots[:3]]
        others = f" and {len(roots) - 3} more" if len(roots) > 3 else ""
        raise InputError(
            f"the switches {', '.join(counts)}{others} are not joined by any switch above them, so that their hosts "
            f"cannot reach each other. {tree.roots_told}"
        )


def _check_depth(tree: SwitchTree) -> None:
    deep: dict[str, int] = {}
    for host in tree.hosts:
        way, switch = [], host.switch
        while switch not in deep:
            way.append(switch)
            if switch not in tree.parents:
                break
            if len(way) > MOST_TIERS:
                raise InputError(
                    f"switch {host.switch!r:.60} has more than {MOST_TIERS} switches above one another over it, or is "
                    "above itself; correct what is above what."
                )
            switch = tree.parents[switch]
        base = deep.get(switch, 0) if switch not in way else 0
        for index, each in enumerate(reversed(way)):
            deep[each] = base + index + 1
        if deep[host.switch] > MOST_TIERS:
            raise InputError(
                f"switch {host.switch!r:.60} has more than {MOST_TIERS} switches above one another over it; nest plans "
                "networks of fewer tiers."
            )


def _roots(tree: SwitchTree) -> list[str]:
    """Switches above which there is none, with hosts below them, in the order of the hosts."""
    return [switch for switch in tree.counts if switch not in tree.parents]
