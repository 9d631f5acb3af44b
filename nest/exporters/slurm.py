"""A plan's placement for Slurm: a hostfile, and a script that uses it (srun(1), `--distribution=arbitrary`)."""

import re
from collections.abc import Mapping, Sequence

from nest.exporters.launch_scripts import Node, check_plain, gpu_maps, head, nodes_of, rendezvous
from nest.hooks.placements import placement
from nest.spec import PlanDocument

HOSTS = "slurm_hostfile.txt"
SCRIPT = "slurm_launch.sh"

_STAND_IN = re.compile(r"node\d+")
"""Names of hosts where nobody gave any (`nest.deployment.ranks`)."""


def export(plan: PlanDocument) -> Mapping[str, str]:
    """Line `i` of the hostfile is the host of task `i`, which is rank `i`.

    Raises:
        InputError: there is no rank table, or the name of a host cannot stand in a hostfile.
    """
    placed = placement(plan)
    nodes = nodes_of(placed)
    check_plain(nodes, "a hostfile of Slurm")
    return {HOSTS: "".join(f"{each.node}\n" for each in placed), SCRIPT: _script(nodes, len(placed))}


def _script(nodes: Sequence[Node], ranks: int) -> str:
    """The script; names of hosts are plain words here, so that they may stand inside quoted text."""
    about = [
        f"Runs a command on {ranks} ranks of {len(nodes)} nodes under Slurm, each rank where the plan has it:",
        "    bash slurm_launch.sh python train.py ...",
        "Call it inside an allocation that holds the nodes of the hostfile beside it.",
    ]
    task = [
        "export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS",
        *gpu_maps(nodes, "$SLURMD_NODENAME"),
        'exec "$@"',
    ]
    lines = [
        *head(nodes, about),
        'here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"',
        *(_named_by_allocation(nodes) if _stand_ins(nodes) else [f'export SLURM_HOSTFILE="$here/{HOSTS}"']),
        *rendezvous(nodes),
        f"srun -n {ranks} --distribution=arbitrary bash -c '",
        *(f"  {line}" for line in task),
        '\' rank "$@"',
    ]
    return "\n".join(lines) + "\n"


def _stand_ins(nodes: Sequence[Node]) -> bool:
    """Whether names of hosts are `node` and a number that stand for the nodes of an allocation."""
    alike = len({node.gpus for node in nodes}) == 1
    return alike and all(_STAND_IN.fullmatch(node.name) and not node.named for node in nodes)


def _named_by_allocation(nodes: Sequence[Node]) -> list[str]:
    """Write a hostfile with the names of the allocation's nodes, which Slurm sorts by its own topology."""
    needed = 1 + max(int(node.name.removeprefix("node")) for node in nodes)
    return [
        "# Node i of the allocation takes the place of node<i>.",
        'mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        f'if [ "${{#hosts[@]}}" -lt {needed} ]; then',
        f'  echo "$0: the plan needs {needed} nodes, the allocation has ${{#hosts[@]}}" >&2',
        "  exit 2",
        "fi",
        'export SLURM_HOSTFILE="$(mktemp)"',
        "trap 'rm -f -- \"$SLURM_HOSTFILE\"' EXIT",
        f'while read -r node; do echo "${{hosts[${{node#node}}]}}"; done <"$here/{HOSTS}" >"$SLURM_HOSTFILE"',
        'export MASTER_ADDR="${MASTER_ADDR:-$(head -n 1 "$SLURM_HOSTFILE")}"',
    ]
