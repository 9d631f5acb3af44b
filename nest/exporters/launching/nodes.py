"""The ranks of a plan by node."""

import re
from collections.abc import Sequence

from attrs import frozen

from nest.errors import InputError
from nest.hooks.placements import Placed

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Letters, digits and the marks of host names (RFC 1123, section 2.1; slurm.conf(5), `NodeName`), without quoting."""


@frozen
class Node:
    """What one host runs.

    Attributes:
        name: of the host.
        ranks: its processes, ascending: the first has local rank 0.
        gpus: the accelerator of each, as the driver of the host numbers them.
        named: whether the name is a real one; otherwise it stands for one, by its number.
    """

    name: str
    ranks: tuple[int, ...]
    gpus: tuple[int, ...]
    named: bool

    @property
    def mapped(self) -> bool:
        """Whether some process runs on another accelerator than that of its local rank."""
        return self.gpus != tuple(range(len(self.gpus)))

    @property
    def adjacent(self) -> bool:
        """Whether its ranks follow one another."""
        return self.ranks == tuple(range(self.ranks[0], self.ranks[0] + len(self.ranks)))


def nodes_of(placed: Sequence[Placed]) -> tuple[Node, ...]:
    """Every node, by its first rank."""
    found: dict[str, list[Placed]] = {}
    for each in placed:
        found.setdefault(each.node, []).append(each)
    return tuple(
        Node(name, tuple(each.rank.rank for each in held), tuple(each.gpu for each in held), held[0].named)
        for name, held in found.items()
    )


def check_plain(nodes: Sequence[Node], kind: str) -> None:
    """Make sure that the names of `nodes` can stand in a file that has no quoting.

    Args:
        nodes: the hosts.
        kind: what the file is, such as `a hostfile of Slurm`.

    Raises:
        InputError: a name has characters that would be taken for something else.
    """
    for node in nodes:
        if not _PLAIN.fullmatch(node.name):
            raise InputError(
                f"cluster.hosts: {node.name!r:.100} cannot stand in {kind}, which has no quoting; names there are "
                "letters, digits, `.`, `_` and `-`."
            )
