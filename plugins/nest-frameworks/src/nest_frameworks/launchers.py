"""A plan's placement for what starts its processes: Slurm, torchrun and Open MPI."""

import re
from collections.abc import Callable, Mapping, Sequence
from shlex import quote

from attrs import frozen

from nest.errors import InputError
from nest.hooks.placements import Placed, placement
from nest.spec import PlanDocument

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Letters, digits and the marks of host names (RFC 1123, section 2.1; slurm.conf(5), `NodeName`), without quoting."""


@frozen
class Node:
    """Processes of one host.

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
        """True if some process runs on another accelerator than that of its local rank."""
        return self.gpus != tuple(range(len(self.gpus)))

    @property
    def adjacent(self) -> bool:
        """True if its ranks follow one another."""
        return self.ranks == tuple(range(self.ranks[0], self.ranks[0] + len(self.ranks)))


def nodes_of(placed: Sequence[Placed]) -> tuple[Node, ...]:
    """Every node, by its first rank."""
    nodes: dict[str, list[Placed]] = {}
    for each in placed:
        nodes.setdefault(each.node, []).append(each)
    return tuple(
        Node(name, tuple(each.rank.rank for each in held), tuple(each.gpu for each in held), held[0].named)
        for name, held in nodes.items()
    )


Components = tuple[tuple[int, tuple[Node, ...]], ...]
"""Nodes of a plan for which Slurm is asked the same, with how many accelerators each must have."""


def components(plan: PlanDocument, placed: Sequence[Placed]) -> Components:
    """Components of a Slurm job: one, unless machines of several pools differ in accelerators.

    An allocation asks the same of all its nodes (sbatch(1), `--gpus-per-node`). Then those with equally many
    accelerators and ranks are one component of a heterogeneous job (slurm.schedmd.com/heterogeneous_jobs.html).
    """
    nodes = nodes_of(placed)
    pools = {each.node: plan.stages[each.rank.pp].pool for each in placed}
    most = {pool: 1 + max(each.gpu for each in placed if pools[each.node] == pool) for pool in set(pools.values())}
    if len(set(most.values())) == 1:
        return ((most[pools[nodes[0].name]], nodes),)
    held: dict[tuple[int, int], list[Node]] = {}
    for node in nodes:
        held.setdefault((most[pools[node.name]], len(node.ranks)), []).append(node)
    return tuple((gpus, tuple(own)) for (gpus, _), own in held.items())


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


def _head(nodes: Sequence[Node], about: Sequence[str]) -> list[str]:
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


def rendezvous(nodes: Sequence[Node], first: str | None = None) -> list[str]:
    """Address at which the processes meet: the node of rank 0, unless the environment says otherwise.

    `first` is a shell word for its host; None: it is known by name.
    """
    return [
        f"first={quote(nodes[0].name) if first is None else first}",
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
    return _by_node(nodes, name, lambda node: f"export CUDA_VISIBLE_DEVICES={_map(node)}" if _map(node) else "")


def _by_node(nodes: Sequence[Node], name: str, action: Callable[[Node], str], otherwise: str = "") -> list[str]:
    """A `case` over hosts; those for which the same is done share a branch."""
    branches: dict[str, list[str]] = {}
    for node in nodes:
        branches.setdefault(action(node), []).append(quote(node.name))
    lines = [f"  {'|'.join(names)}) {done} ;;" for done, names in branches.items() if done]
    return [f"case {name} in", *lines, *([f"  *) {otherwise} ;;"] if otherwise else []), "esac"]


def _map(node: Node) -> str:
    """The accelerators of a node in the order of its local ranks; empty: they are in it anyway."""
    return ",".join(map(str, node.gpus)) if node.mapped else ""


_HERE = 'here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"'
"""Line of a script that finds the files beside it."""

SLURM_HOSTS = "slurm_hostfile.txt"

_STAND_IN = re.compile(r"node\d+")
"""Names of hosts where nobody gave any (`nest.deployment.ranks`)."""


def slurm(plan: PlanDocument) -> Mapping[str, str]:
    """For Slurm: a hostfile, whose line `i` is the host of task `i`, which is rank `i`, and a script that uses it.

    srun(1), `--distribution=arbitrary`.

    Raises:
        InputError: there is no rank table, or the name of a host cannot stand in a hostfile.
    """
    placed = placement(plan)
    nodes = nodes_of(placed)
    check_plain(nodes, "a hostfile of Slurm")
    groups = components(plan, placed)
    files = {} if len(groups) > 1 else {SLURM_HOSTS: "".join(f"{each.node}\n" for each in placed)}
    return {**files, "slurm_launch.sh": _slurm_script(nodes, groups, len(placed))}


def _slurm_script(nodes: Sequence[Node], groups: Components, ranks: int) -> str:
    """The script; names of hosts are plain words here, so that they may stand inside quoted text."""
    several = len(groups) > 1
    where = "an allocation that holds the nodes of the hostfile beside it."
    if several:
        asked = (
            f"-N {len(own)} -w {','.join(node.name for node in own)} --gpus-per-node={gpus}" for gpus, own in groups
        )
        where = f"a heterogeneous allocation: salloc {' : '.join(asked)}"
    about = [
        f"Runs a command on {ranks} ranks of {len(nodes)} nodes under Slurm, each rank where the plan has it:",
        "    bash slurm_launch.sh python train.py ...",
        f"Call it inside {where}",
    ]
    allocated = stand_ins(nodes)
    lines = [
        *_head(nodes, about),
        *([] if several else [_HERE]),
        *(_named_by_allocation(nodes) if allocated else []),
        *([] if allocated or several else [f'export SLURM_HOSTFILE="$here/{SLURM_HOSTS}"']),
        *rendezvous(nodes, '"$(head -n 1 "$SLURM_HOSTFILE")"' if allocated else None),
        *started(groups, ranks),
        '\' rank "$@"',
    ]
    return "\n".join(lines) + "\n"


def started(groups: Components, ranks: int) -> list[str]:
    """srun(1) with what each task does, up to the quote behind: tell its command what torchrun would, and become it.

    Tasks of a hostfile are ranks. Those of several components are numbered one component after the other, whatever the
    plan has: a task knows its rank by its node and its place there.
    """
    nodes = [node for _, own in groups for node in own]
    rank, known = "$SLURM_PROCID", list[str]()
    asked = f"-n {ranks} --distribution=arbitrary"
    if len(groups) > 1:
        rank = "${ranks[SLURM_LOCALID]}"
        known = _by_node(nodes, "$SLURMD_NODENAME", lambda node: f"ranks=({' '.join(map(str, node.ranks))})")
        asked = " : ".join(
            f"--het-group={index} -N {len(own)} -n {len(own) * len(own[0].ranks)} "
            f"--ntasks-per-node={len(own[0].ranks)} --gpus-per-node={gpus}"
            for index, (gpus, own) in enumerate(groups)
        )
    task = [
        *known,
        f"export RANK={rank} LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE={'$SLURM_NTASKS' if len(groups) == 1 else ranks}",
        *gpu_maps(nodes, "$SLURMD_NODENAME"),
        'exec "$@"',
    ]
    return [f"srun {asked} bash -c '", *(f"  {line}" for line in task)]


def stand_ins(nodes: Sequence[Node]) -> bool:
    """Return whether names of hosts are `node` and a number that stand for the nodes of an allocation."""
    alike = len({node.gpus for node in nodes}) == 1
    return alike and all(_STAND_IN.fullmatch(node.name) and not node.named for node in nodes)


def _named_by_allocation(nodes: Sequence[Node]) -> list[str]:
    """Write a hostfile with the names of the allocation's nodes."""
    return [
        *allocated_hosts(nodes),
        'export SLURM_HOSTFILE="$(mktemp)"',
        "trap 'rm -f -- \"$SLURM_HOSTFILE\"' EXIT",
        f'while read -r node; do echo "${{hosts[${{node#node}}]}}"; done <"$here/{SLURM_HOSTS}" >"$SLURM_HOSTFILE"',
    ]


def allocated_hosts(nodes: Sequence[Node]) -> list[str]:
    """Find the names of the allocation's nodes, which Slurm sorts by its own topology."""
    needed = 1 + max(int(node.name.removeprefix("node")) for node in nodes)
    return [
        "# Node i of the allocation takes the place of node<i>.",
        'mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        f'if [ "${{#hosts[@]}}" -lt {needed} ]; then',
        f'  echo "$0: the plan needs {needed} nodes, the allocation has ${{#hosts[@]}}" >&2',
        "  exit 2",
        "fi",
    ]


def torchrun(plan: PlanDocument) -> Mapping[str, str]:
    """For torchrun: one script for all nodes, which finds out on which of them it runs.

    It calls torchrun with a node rank and static rendezvous (torch/distributed/run.py). torchrun numbers ranks node by
    node: where the ranks of a node do not follow one another, no order of nodes gives the plan, and the script starts
    the processes itself, with the environment that torchrun would give them.

    Raises:
        InputError: there is no rank table.
    """
    placed = placement(plan)
    nodes = nodes_of(placed)
    start = _torchrun if all(node.adjacent for node in nodes) else _processes
    return {"torchrun_launch.sh": "\n".join(start(nodes, len(placed))) + "\n"}


def _about_torchrun(nodes: Sequence[Node], ranks: int) -> list[str]:
    return [
        f"Runs a command on {ranks} ranks of {len(nodes)} nodes; call it on every one of them:",
        "    bash torchrun_launch.sh python train.py ...",
        "It knows its node by the name of the host; NEST_NODE says another, MASTER_ADDR another address of the first.",
    ]


def _torchrun(nodes: Sequence[Node], ranks: int) -> list[str]:
    numbers = {node.name: number for number, node in enumerate(nodes)}
    return [
        *_head(nodes, _about_torchrun(nodes, ranks)),
        *_located(nodes, lambda node: f"node_rank={numbers[node.name]} processes={len(node.ranks)}"),
        *rendezvous(nodes),
        f'exec torchrun --no-python --nnodes={len(nodes)} --nproc-per-node="$processes" --node-rank="$node_rank" \\',
        '  --rdzv-backend=static --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@"',
    ]


def _processes(nodes: Sequence[Node], ranks: int) -> list[str]:
    about = [
        *_about_torchrun(nodes, ranks),
        "The ranks of a node do not follow one another, as torchrun would number them: processes are started here.",
    ]
    return [
        *_head(nodes, about),
        *_located(nodes, lambda node: f"ranks=({' '.join(map(str, node.ranks))})"),
        *rendezvous(nodes),
        f'export WORLD_SIZE={ranks} LOCAL_WORLD_SIZE="${{#ranks[@]}}"',
        "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT",
        'for local_rank in "${!ranks[@]}"; do',
        '  RANK="${ranks[$local_rank]}" LOCAL_RANK="$local_rank" "$@" &',
        "done",
        'for _ in "${ranks[@]}"; do',
        "  wait -n",
        "done",
    ]


def _located(nodes: Sequence[Node], action: Callable[[Node], str]) -> list[str]:
    """Find out which node this is, do `action` for it, and show it its accelerators."""
    lines = _by_node(nodes, '"$1"', lambda node: f"node=$1 {action(node)}", "return 1")
    return [
        "place() {",
        *(f"  {line}" for line in lines),
        "}",
        'if ! place "${NEST_NODE:-$(hostname)}" && ! place "${NEST_NODE:-$(hostname -s)}"; then',
        '  echo "$0: ${NEST_NODE:-$(hostname)} is no node of the plan; set NEST_NODE to the name of one" >&2',
        "  exit 2",
        "fi",
        *gpu_maps(nodes, '"$node"'),
    ]


MPI_HOSTS = "openmpi_hostfile.txt"
MPI_RANKS = "openmpi_rankfile.txt"


def mpi(plan: PlanDocument) -> Mapping[str, str]:
    """For Open MPI: a hostfile, a rankfile, whose line `i` says where rank `i` runs, and a script that uses both.

    mpirun(1) 4.1, "Rankfiles". A rankfile binds every process to processor cores, of which a plan says nothing: it
    names one core for each, and the script gives the process all cores back. GPUs have no place in it: the script sets
    CUDA_VISIBLE_DEVICES.

    Raises:
        InputError: there is no rank table, or the name of a host cannot stand in a hostfile.
    """
    placed = placement(plan)
    nodes = nodes_of(placed)
    check_plain(nodes, "a hostfile of Open MPI")
    return {
        MPI_HOSTS: "".join(f"{node.name} slots={len(node.ranks)}\n" for node in nodes),
        MPI_RANKS: _rankfile(placed, nodes),
        "openmpi_launch.sh": _mpi_script(nodes, len(placed)),
    }


def _rankfile(placed: Sequence[Placed], nodes: Sequence[Node]) -> str:
    local = {rank: index for node in nodes for index, rank in enumerate(node.ranks)}
    return "".join(f"rank {each.rank.rank}={each.node} slot={local[each.rank.rank]}\n" for each in placed)


def _mpi_script(nodes: Sequence[Node], ranks: int) -> str:
    """The script; names of hosts are plain words here, so that they may stand inside quoted text."""
    about = [
        f"Runs a command on {ranks} ranks of {len(nodes)} nodes under Open MPI, each rank where the plan has it:",
        "    bash openmpi_launch.sh python train.py ...",
    ]
    task = [
        "export RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE",
        "taskset -cp 0-$(($(nproc --all) - 1)) $$ >/dev/null",
        *_maps(nodes),
        'exec "$@"',
    ]
    lines = [
        *_head(nodes, about),
        _HERE,
        *rendezvous(nodes),
        'case "$(mpirun --version | head -n 1)" in',
        f'  *" 3."*|*" 4."*) how=(--rankfile "$here/{MPI_RANKS}") ;;',
        f'  *) how=(--map-by "rankfile:file=$here/{MPI_RANKS}") ;;',
        "esac",
        f'exec mpirun -n {ranks} --hostfile "$here/{MPI_HOSTS}" "${{how[@]}}" -x MASTER_ADDR -x MASTER_PORT bash -c \'',
        *(f"  {line}" for line in task),
        '\' rank "$@"',
    ]
    return "\n".join(lines) + "\n"


def _maps(nodes: Sequence[Node]) -> list[str]:
    """Set CUDA_VISIBLE_DEVICES by the name of the host, of which processes know the whole or the first part."""
    if len({node.gpus for node in nodes}) == 1:
        return gpu_maps(nodes, "")
    known = _by_node(nodes, "$name", lambda node: "node=$name")
    return [
        "for name in $(hostname -s) $(hostname); do",
        *(f"  {line}" for line in known),
        "done",
        *gpu_maps(nodes, "$node"),
    ]
