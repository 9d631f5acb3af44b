"""What exporters of launchers share: ranks by node, and parts of the shell scripts that start them."""

import re
from collections.abc import Callable, Sequence
from shlex import quote

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

    Raises:
        InputError: a name has characters that would be taken for something else.
    """
    for node in nodes:
        if not _PLAIN.fullmatch(node.name):
            raise InputError(
                f"cluster.hosts: {node.name!r:.100} cannot stand in {kind}, which has no quoting; names there are "
                "letters, digits, `.`, `_` and `-`."
            )


PORT = 29500
"""Of the rendezvous, unless MASTER_PORT says another: PyTorch's own default (torch/distributed/run.py)."""


def head(nodes: Sequence[Node], about: Sequence[str]) -> list[str]:
    """The beginning of a script: what it is for, and the check that it is given a command.

    Names of hosts stay out of comments, which have no quoting.
    """
    notes = [*about]
    if any(node.mapped for node in nodes):
        notes.append(
            "Some processes run on other GPUs than their local ranks say: CUDA_VISIBLE_DEVICES is set for them."
        )
    if not all(node.named for node in nodes):
        notes.append("Nobody named the hosts: names such as node0 stand for them, along the levels of the cluster.")
    return [
        "#!/usr/bin/env bash",
        *(f"# {line}" for line in notes),
        "set -euo pipefail",
        "if [ $# -eq 0 ]; then",
        '  echo "usage: $0 COMMAND [ARGUMENT]..." >&2',
        "  exit 2",
        "fi",
    ]


def rendezvous(nodes: Sequence[Node]) -> list[str]:
    """Where the processes meet: the node of rank 0, unless the environment says otherwise."""
    return [
        f"first={quote(nodes[0].name)}",
        'export MASTER_ADDR="${MASTER_ADDR:-$first}"',
        f'export MASTER_PORT="${{MASTER_PORT:-{PORT}}}"',
    ]


def gpu_maps(nodes: Sequence[Node], name: str) -> list[str]:
    """Set CUDA_VISIBLE_DEVICES so that local rank `j` finds its accelerator as device `j`, unless it does anyway.

    `name`: shell text that stands for the name of this host.
    """
    maps = dict.fromkeys(_map(node) for node in nodes)
    if maps == {"": None}:
        return []
    if len(maps) == 1:
        return [f"export CUDA_VISIBLE_DEVICES={next(iter(maps))}"]
    return by_node(nodes, name, lambda node: f"export CUDA_VISIBLE_DEVICES={_map(node)}" if _map(node) else "")


def by_node(nodes: Sequence[Node], name: str, action: Callable[[Node], str], otherwise: str = "") -> list[str]:
    """A `case` over hosts; those for which the same is done share a branch."""
    branches: dict[str, list[str]] = {}
    for node in nodes:
        branches.setdefault(action(node), []).append(quote(node.name))
    lines = [f"  {'|'.join(names)}) {done} ;;" for done, names in branches.items() if done]
    return [f"case {name} in", *lines, *([f"  *) {otherwise} ;;"] if otherwise else []), "esac"]


def _map(node: Node) -> str:
    """The accelerators of a node in the order of its local ranks; empty: they are in it anyway."""
    return ",".join(map(str, node.gpus)) if node.mapped else ""
