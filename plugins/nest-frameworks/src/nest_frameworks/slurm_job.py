"""A batch script for Slurm (sbatch) that runs a plan with its framework's command."""

from collections.abc import Mapping
from shlex import quote

from nest.errors import InputError
from nest.hooks.placements import placement
from nest.spec import PlanDocument
from nest_frameworks.commands import Command, command
from nest_frameworks.launchers import (
    Components,
    Node,
    allocated_hosts,
    check_plain,
    components,
    nodes_of,
    rendezvous,
    stand_ins,
    started,
)

FOLDER = "$NEST_FILES"
"""Folder of the framework's files, set by the job."""


def sbatch(plan: PlanDocument) -> Mapping[str, str]:
    """A batch script: resources as its options, then srun(1).

    A heterogeneous job where machines of several pools have different numbers of accelerators, else one with
    `--distribution=arbitrary`.

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
        raise InputError(f"nodes with different accelerators need host names: list them as {place}.")
    groups = components(plan, placed)
    several = len(groups) > 1
    lines = [
        *_head(groups, len(placed), own, run),
        "set -euo pipefail",
        *(['export NEST_FILES="${NEST_FILES:-$SLURM_SUBMIT_DIR}"'] if run.files else []),
        *(['export PYTHONPATH="$NEST_FILES${PYTHONPATH:+:$PYTHONPATH}"'] if run.imported else []),
        *(f"export {name}={quote(value)}" for name, value in run.environment.items()),
        *(f"unset {name}" for name in run.unset),
        *([] if several else _hosts(nodes, [each.node for each in placed], own)),
        *rendezvous(nodes, None if several else '"$(head -n 1 "$SLURM_HOSTFILE")"'),
        *started(groups, len(placed)),
        f'\' rank {" ".join(map(_word, run.words))} "$@"',
    ]
    return {"slurm_job.sh": "\n".join(lines) + "\n", **run.files}


def _word(text: str) -> str:
    """A shell word; the folder of files stands in it as a variable."""
    if FOLDER not in text:
        return quote(text)
    before, _, after = text.partition(FOLDER)
    return f'{quote(before) if before else ""}"{FOLDER}"{quote(after) if after else ""}'


def _head(groups: Components, ranks: int, own: bool, run: Command) -> list[str]:
    """Resources as counts, of each component: nodes, tasks, and the accelerators of a node up to the last used."""
    asked, count = [_asked(gpus, nodes, own) for gpus, nodes in groups], sum(len(nodes) for _, nodes in groups)
    yours = [f"# {word} stands for yours." for word in run.yours]
    folder = ["# The framework's files lie in NEST_FILES, or where the job is submitted from."] if run.files else []
    return [
        "#!/usr/bin/env bash",
        f"# Runs a plan on {ranks} ranks of {count} nodes, each rank where the plan has it:",
        "#     sbatch --time=... --account=... slurm_job.sh [ARGUMENT]...",
        "# The framework's command has the plan's flags; data, tokenizer and so on are the arguments.",
        *yours,
        *folder,
        "#SBATCH --job-name=nest",
        *[line for each in asked for line in ("#SBATCH hetjob", *each)][1:],
    ]


def _asked(gpus: int, nodes: tuple[Node, ...], own: bool) -> list[str]:
    return [
        f"#SBATCH --nodes={_needed(nodes) if own else len(nodes)}",
        f"#SBATCH --ntasks={sum(len(node.ranks) for node in nodes)}",
        f"#SBATCH --gpus-per-node={gpus}",
        *([] if own else [f"#SBATCH --nodelist={','.join(sorted(node.name for node in nodes))}"]),
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
