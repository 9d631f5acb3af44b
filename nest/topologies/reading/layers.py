"""Lists of hosts, each with the switches above it, to a tree of switches."""

from collections.abc import Sequence
from itertools import pairwise

from attrs import frozen

from nest.errors import InputError
from nest.topologies.reading.switch_tree import Host, SwitchTree

TOP = "the network above"
"""Name of the switch that stands for what joins switches above which a file lists none."""


@frozen
class Located:
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


def tree_of_layers(hosts: Sequence[Located]) -> tuple[SwitchTree, tuple[str, ...]]:
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
        sentences.append("The file lists no switches: every two hosts are taken to be joined by one.")
    chosen = placed or list(hosts)
    repeated = _repeated(chosen)
    if repeated is not None:
        sentences.append(f"Switches called {repeated!r:.60} in different places are taken to be different switches.")
    paths = [_path(host, whole=repeated is not None) for host in chosen]
    tops = {path[-1] for path in paths if path}
    if len(tops) > 1:
        sentences.append(
            f"The file lists nothing above its {len(tops)} uppermost switches: they are taken to be joined by one tier."
        )
    parents: dict[str, str] = {}
    for path in paths:
        whole = path if path and len(tops) == 1 else [*path, TOP]
        parents.update(pairwise(whole))
    found = tuple(
        Host(host.name, path[0] if path else TOP, domain=host.domain, devices=host.devices)
        for host, path in zip(chosen, paths, strict=True)
    )
    return SwitchTree(found, parents), tuple(sentences)


def left_out(names: Sequence[str], why: str) -> str:
    """A sentence for hosts that are not planned with."""
    first = ", ".join(f"{name:.60}" for name in names[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"Left out: {first}{more} ({len(names)} {'hosts' if len(names) > 1 else 'host'}), {why}."


def _repeated(hosts: Sequence[Located]) -> str | None:
    """A name that stands for switches in different places; None: there is none."""
    above: dict[str, tuple[str, ...]] = {}
    for host in hosts:
        for index, name in enumerate(host.layers):
            if above.setdefault(name, host.layers[index + 1 :]) != host.layers[index + 1 :]:
                return name
    return None


def _path(host: Located, *, whole: bool) -> list[str]:
    """Names of the switches above a host, the nearest first; `whole` ones say what is above each."""
    if not whole:
        return list(host.layers)
    return ["/".join(reversed(host.layers[index:])) for index in range(len(host.layers))]
