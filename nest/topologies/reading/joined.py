"""Switches that share what is below them, as one: lists of links to trees."""

from collections.abc import Iterable
from itertools import combinations

from attrs import evolve

from nest.errors import InputError
from nest.topologies.reading.switch_tree import Host

SHOWN = 3
"""Names of switches in a sentence."""


def joined(
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
    found = {sets.head(child): sets.head(parent) for child, parent in above if sets.head(child) != sets.head(parent)}
    named = tuple(evolve(host, switch=sets.head(host.switch)) for host in first.values())
    return named, found, tuple(map(_sentence, sets.members.values()))


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
                    f"{first} and {second} have no switch in common, while {min(one)!r:.60} and {min(two)!r:.60} above "
                    "them are joined by what hangs on both: this is no tree. List what hangs on several switches under "
                    "one of them."
                )


def _sentence(names: list[str]) -> str:
    others = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    shared = "have hosts or switches below them in common and are planned as one"
    return f"Switches {', '.join(names[:SHOWN])}{others} {shared}."


class _Sets:
    """Sets of names, each called after its first.

    Attributes:
        members: of the sets of two names and more.
    """

    def __init__(self) -> None:
        self.members: dict[str, list[str]] = {}
        self._head: dict[str, str] = {}

    def head(self, name: str) -> str:
        """What the set of `name` is called."""
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
