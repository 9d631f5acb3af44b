"""A plan's placement for Slurm: a hostfile for the distribution `arbitrary`, and a script that uses it."""

from collections.abc import Mapping, Sequence

from nest.exporters.launching.nodes import Node, check_plain, nodes_of
from nest.exporters.launching.scripts import gpu_maps, head, rendezvous
from nest.hooks.placements import placement
from nest.spec import PlanDocument

HOSTS = "slurm_hostfile.txt"
SCRIPT = "slurm_launch.sh"


class SlurmExporter:
    """Writes a hostfile and a launch script (srun(1), `--distribution=arbitrary`)."""

    name = "slurm"
    summary = "Slurm: a hostfile with one line for each rank, and a script that runs srun with it"

    def export(self, plan: PlanDocument) -> Mapping[str, str]:
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
        f'export SLURM_HOSTFILE="$here/{HOSTS}"',
        *rendezvous(nodes),
        f"exec srun -n {ranks} --distribution=arbitrary bash -c '",
        *(f"  {line}" for line in task),
        '\' rank "$@"',
    ]
    return "\n".join(lines) + "\n"
