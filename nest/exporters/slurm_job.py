"""A batch script for Slurm (sbatch) that runs a plan with its framework's command."""

from collections.abc import Mapping
from shlex import quote

from nest.errors import InputError
from nest.exporters.commands import Command, command
from nest.exporters.launchers import (
    Node,
    allocated_hosts,
    check_plain,
    nodes_of,
    rendezvous,
    stand_ins,
    task_lines,
)
from nest.hooks.placements import placement
from nest.spec import PlanDocument

FOLDER = "$NEST_FILES"
"""Where the files of the framework lie: the job says."""


def sbatch(plan: PlanDocument) -> Mapping[str, str]:
    """A batch script: resources as its options, then srun(1) with `--distribution=arbitrary`.

    Raises:
        InputError: there is no rank table, the framework cannot run the plan or is not run one process for each rank,
            or the name of a host cannot stand in a hostfile.
    """
    placed = placement(plan)
    nodes = nodes_of(placed)
    check_plain(nodes, "a hostfile of Slurm")
    run = command(plan, FOLDER)
    own = stand_ins(nodes)
    if not own and not all(node.named for node in nodes):
        place = "hosts of each of cluster.pools" if plan.problem["cluster"].get("pools") else "cluster.hosts"
        raise InputError(f"nodes use other accelerators than each other, so that hosts must have names: {place}.")
    lines = [
        *_head(nodes, len(placed), own, run),
        "set -euo pipefail",
        *(['export NEST_FILES="${NEST_FILES:-$SLURM_SUBMIT_DIR}"'] if run.files else []),
        *(['export PYTHONPATH="$NEST_FILES${PYTHONPATH:+:$PYTHONPATH}"'] if run.imported else []),
        *(f"export {name}={quote(value)}" for name, value in run.environment.items()),
        *(f"unset {name}" for name in run.unset),
        *_hosts(nodes, [each.node for each in placed], own),
        *rendezvous(nodes, '"$(head -n 1 "$SLURM_HOSTFILE")"'),
        f"srun -n {len(placed)} --distribution=arbitrary bash -c '",
        *(f"  {line}" for line in task_lines(nodes)),
        f'\' rank {" ".join(map(_word, run.words))} "$@"',
    ]
    return {"slurm_job.sh": "\n".join(lines) + "\n", **run.files}


def _word(text: str) -> str:
    """A shell word; the folder of files stands in it as a variable."""
    if FOLDER not in text:
        return quote(text)
    before, _, after = text.partition(FOLDER)
    return f'{quote(before) if before else ""}"{FOLDER}"{quote(after) if after else ""}'


def _head(nodes: tuple[Node, ...], ranks: int, own: bool, run: Command) -> list[str]:
    """Resources as counts: nodes, tasks, and the accelerators of a node up to the last that is used."""
    names = "" if own else ",".join(sorted({node.name for node in nodes}))
    yours = [f"# {word} stands for yours." for word in run.yours]
    folder = ["# The framework's files lie in NEST_FILES, or where the job is submitted from."] if run.files else []
    return [
        "#!/usr/bin/env bash",
        f"# Runs a plan on {ranks} ranks of {len(nodes)} nodes, each rank where the plan has it:",
        "#     sbatch --time=... --account=... slurm_job.sh [ARGUMENT]...",
        "# The framework's command has the plan's flags; data, tokenizer and so on are the arguments.",
        *yours,
        *folder,
        "#SBATCH --job-name=nest",
        f"#SBATCH --nodes={_needed(nodes) if own else len(nodes)}",
        f"#SBATCH --ntasks={ranks}",
        f"#SBATCH --gpus-per-node={1 + max(gpu for node in nodes for gpu in node.gpus)}",
        *([f"#SBATCH --nodelist={names}"] if names else []),
        "#SBATCH --exclusive",
    ]


def _needed(nodes: tuple[Node, ...]) -> int:
    return 1 + max(int(node.name.removeprefix("node")) for node in nodes)


def _hosts(nodes: tuple[Node, ...], hosts: list[str], own: bool) -> list[str]:
    """Write the hostfile, whose line `i` is the host of rank `i`."""
    names = " ".join(host.removeprefix("node") if own else host for host in hosts)
    said = '"${hosts[$host]}"' if own else '"$host"'
    return [
        *(allocated_hosts(nodes) if own else []),
        'export SLURM_HOSTFILE="$(mktemp)"',
        "trap 'rm -f -- \"$SLURM_HOSTFILE\"' EXIT",
        f'for host in {names}; do echo {said}; done >"$SLURM_HOSTFILE"',
    ]
