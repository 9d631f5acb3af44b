"""A plan's placement for Open MPI: a hostfile, a rankfile, and a script that uses them (mpirun(1) 4.1, "Rankfiles").

A rankfile binds every process to processor cores, of which a plan says nothing: it names one core for each, and the
script gives the process all cores back. GPUs have no place in it: the script sets CUDA_VISIBLE_DEVICES.
"""

from collections.abc import Mapping, Sequence

from nest.exporters.launch_scripts import Node, by_node, check_plain, gpu_maps, head, nodes_of, rendezvous
from nest.hooks.placements import Placed, placement
from nest.spec import PlanDocument

HOSTS = "openmpi_hostfile.txt"
RANKS = "openmpi_rankfile.txt"
SCRIPT = "openmpi_launch.sh"


def export(plan: PlanDocument) -> Mapping[str, str]:
    """Line `i` of the rankfile says on which host rank `i` runs.

    Raises:
        InputError: there is no rank table, or the name of a host cannot stand in a hostfile.
    """
    placed = placement(plan)
    nodes = nodes_of(placed)
    check_plain(nodes, "a hostfile of Open MPI")
    return {
        HOSTS: "".join(f"{node.name} slots={len(node.ranks)}\n" for node in nodes),
        RANKS: _rankfile(placed, nodes),
        SCRIPT: _script(nodes, len(placed)),
    }


def _rankfile(placed: Sequence[Placed], nodes: Sequence[Node]) -> str:
    local = {rank: index for node in nodes for index, rank in enumerate(node.ranks)}
    return "".join(f"rank {each.rank.rank}={each.node} slot={local[each.rank.rank]}\n" for each in placed)


def _script(nodes: Sequence[Node], ranks: int) -> str:
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
        *head(nodes, about),
        'here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"',
        *rendezvous(nodes),
        'case "$(mpirun --version | head -n 1)" in',
        f'  *" 3."*|*" 4."*) how=(--rankfile "$here/{RANKS}") ;;',
        f'  *) how=(--map-by "rankfile:file=$here/{RANKS}") ;;',
        "esac",
        f'exec mpirun -n {ranks} --hostfile "$here/{HOSTS}" "${{how[@]}}" -x MASTER_ADDR -x MASTER_PORT bash -c \'',
        *(f"  {line}" for line in task),
        '\' rank "$@"',
    ]
    return "\n".join(lines) + "\n"


def _maps(nodes: Sequence[Node]) -> list[str]:
    """Set CUDA_VISIBLE_DEVICES by the name of the host, of which processes know the whole or the first part."""
    if len({node.gpus for node in nodes}) == 1:
        return gpu_maps(nodes, "")
    known = by_node(nodes, "$name", lambda node: "node=$name")
    return [
        "for name in $(hostname -s) $(hostname); do",
        *(f"  {line}" for line in known),
        "done",
        *gpu_maps(nodes, "$node"),
    ]
