"""Switches that share what is below them, as one: lists of links to trees."""

from collections.abc import Iterable

from attrs import evolve

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
    """
    sets, above = _Sets(), list(links)
    first: dict[str, Host] = {}
    for host in hosts:
        sets.unite(first.setdefault(host.name, host).switch, host.switch)
    changed = True
    while changed:  # Switches that became one may hang on several.
        changed = False
        parents: dict[str, str] = {}
        for child, parent in above:
            if sets.head(child) != sets.head(parent):
                changed |= sets.unite(parents.setdefault(sets.head(child), parent), parent)
    found = {sets.head(child): sets.head(parent) for child, parent in above if sets.head(child) != sets.head(parent)}
    named = tuple(evolve(host, switch=sets.head(host.switch)) for host in first.values())
    return named, found, tuple(map(_sentence, sets.members.values()))


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
