"""Facts that a job scheduler tells a script: nodes, and processes on each.

Sources: man sbatch of Slurm 24.05, Input and Output Environment Variables; man qsub and pbs_resources of PBS 2022.1
(`select=2:mpiprocs=4`), and of Torque 6 (`nodes=2:ppn=4`); bsub of IBM Spectrum LSF 10.1 (`-nnodes`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from nest.units import whole_number

SLURM = {
    "--nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "-N": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "--ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "--gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    "--gres": ("SLURM_GPUS_ON_NODE",),
    "--ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "-n": ("SLURM_NTASKS", "SLURM_NPROCS"),
}
"""Variables that Slurm sets from options of sbatch."""

PBS_NODES, PBS_TASKS, LSF_NODES = "#PBS -l select", "mpiprocs", "#BSUB -nnodes"
"""Facts for which PBS and LSF set no variable; no script's variable has such a name."""

NODES = (*SLURM["--nodes"], PBS_NODES, LSF_NODES)
TASKS = (*SLURM["--ntasks-per-node"], PBS_TASKS)

_HEAD = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*(?:#[^\n]*)?")
"""Part of a script that Slurm and PBS read: comments up to the first command."""

_SBATCH = re.compile(r"^#SBATCH[ \t]+([^#\n]*)", re.MULTILINE)
_OPTION = re.compile(r"(--[a-z-]+|-[a-zA-Z])(?:=|[ \t]+|(?=\d))([^-\s]\S*)")
_PBS = re.compile(r"^#PBS[ \t]+-l[ \t]*(?:select|nodes)=(\d[^ \t\n]*)", re.MULTILINE)
_CHUNK = re.compile(r"(?:^|\+)(\d{1,9})(?!\d)([^+]*)")
_PBS_TASKS = re.compile(r":(?:mpiprocs|ppn)=(\d+)")
_LSF = re.compile(r"^#BSUB[ \t]+-nnodes[ \t]+(\d+)\b", re.MULTILINE)

_COUNTED = re.compile(r"\bwc -l\b")
_LISTS = ((re.compile("PBS_NODEFILE"), PBS_NODES), (re.compile("LSB_DJOB_HOSTFILE|LSB_MCPU_HOSTS"), LSF_NODES),
          (re.compile(r"scontrol show host(name)?s?\b|SLURM_(JOB_)?NODELIST"), "SLURM_NNODES"))  # fmt: skip
"""Names of the list of a job's nodes, and of their number."""


def directives(text: str) -> Iterator[tuple[str, str]]:
    """Variables, and their like, by the lines for the scheduler in front of a script's first command."""
    head = _HEAD.match(text)
    said = head[0] if head else ""
    for line in takewhile(lambda each: each.strip() not in ("hetjob", "packjob"), _SBATCH.findall(said)):
        yield from slurm_options(line)  # Of a heterogeneous job its first component, as Slurm sets them.
    for request in _PBS.findall(said):
        chunks = [(int(count), "".join(_PBS_TASKS.findall(chunk))) for count, chunk in _CHUNK.findall(request)]
        yield PBS_NODES, str(sum(count for count, _ in chunks))
        tasks = {each for _, each in chunks}
        if len(tasks) == 1 and all(tasks):  # Else nobody says one number for all nodes.
            yield PBS_TASKS, tasks.pop()
    for nodes in _LSF.findall(text):
        yield LSF_NODES, nodes


def slurm_options(line: str) -> Iterator[tuple[str, str]]:
    """Variables by the options of sbatch."""
    for option, value in _OPTION.findall(line):
        for name in SLURM.get(option, ()):
            yield name, value.rpartition(":")[2]


def submitted(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Variables by the words of sbatch or qsub in front of the script."""
    line = " ".join(words)
    yield from slurm_options(line)
    yield from directives(f"#PBS {line[line.find('-l') :]}" if "-l" in words else "")
    for exported in re.findall(r"(?:--export[= ]|-v )(\S+)", line):
        yield from (each.split("=", 1) for each in exported.split(",") if "=" in each)


def node_count(command: str, variables: Mapping[str, Sequence[str]]) -> str | None:
    """Output of a command that counts the nodes of the job; None if it does not, or nobody knows."""
    if not _COUNTED.search(command):
        return None
    for pattern, name in _LISTS:
        if pattern.search(command):
            nodes, tasks = (whole_number("".join(variables.get(each, ()))) for each in (name, PBS_TASKS))
            # The file of PBS has a line for each process, unless they are merged.
            lines = tasks if name == PBS_NODES and not re.search(r"\buniq\b|sort -u", command) else 1
            return None if nodes is None else str(nodes * (lines or 1))
    return None
