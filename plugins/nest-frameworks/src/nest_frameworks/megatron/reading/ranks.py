"""Number of processes that a launcher starts, and its source.

Options: `torchrun --help` (PyTorch 2.6), `deepspeed --help` (launcher/runner.py of DeepSpeed 0.16), man srun and sbatch
of Slurm 24.05, man mpirun of Open MPI 4.1 and of MPICH, man jsrun of IBM JSM 10.3 (from the guide to OLCF's Summit),
man aprun of Cray ALPS.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen

from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest.units import whole_number
from nest_frameworks.megatron.reading.expansion import DEVICE_COUNT
from nest_frameworks.megatron.reading.schedulers import NODES as JOB_NODES
from nest_frameworks.megatron.reading.schedulers import TASKS as JOB_TASKS
from nest_frameworks.megatron.reading.tokens import UNKNOWN, remedy, shown, wanted
from nest_frameworks.megatron.reading.walked import Files

TORCH, DEEPSPEED, SLURM, MPI, ACCELERATE = "torchrun", "deepspeed", "srun", "mpirun", "accelerate launch"
JSM, ALPS = "jsrun", "aprun"
LAUNCHERS = {
    "torchrun": TORCH, "torch.distributed.run": TORCH, "torch.distributed.launch": TORCH, "deepspeed": DEEPSPEED,
    "srun": SLURM, "mpirun": MPI, "mpiexec": MPI, "mpiexec.hydra": MPI, "orterun": MPI, "accelerate": ACCELERATE,
    "jsrun": JSM, "aprun": ALPS,
}  # fmt: skip
"""Launchers by their command."""

NODES = {TORCH: ("--nnodes",), DEEPSPEED: ("--num-nodes",), SLURM: ("--nodes", "-N"), ACCELERATE: ("--num-machines",)}
PER_NODE = {
    TORCH: ("--nproc-per-node",), DEEPSPEED: ("--num-gpus", "--num-accelerators"), SLURM: ("--ntasks-per-node",),
    MPI: ("-npernode", "--npernode", "-ppn", "--ppn", "-perhost", "-N"),
    ALPS: ("-N", "--pes-per-node"),
}  # fmt: skip
TOTAL = {
    SLURM: ("--ntasks", "-n"), MPI: ("-np", "--np", "-n"), ACCELERATE: ("--num-processes",),
    JSM: ("-p", "--np"), ALPS: ("-n", "--pes"),
}  # fmt: skip
"""Options by launcher; torchrun's have a default of 1."""

DEVICES = ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "nvidia.com/gpu", "amd.com/gpu")
"""Variables that say the same, which Slurm sets from `#SBATCH`, and resources of a pod of Kubernetes."""

ELASTIC = {"nnodes": "PET_NNODES", "nproc-per-node": "PET_NPROC_PER_NODE"}
"""Variables from which torchrun takes options it is not given (torch/distributed/argparse_util.py)."""

LOOSE = "$"
"""In place of an option, a variable that nothing sets."""

SETS = {"-n": "--nrs", "-a": "--tasks-per-rs", "-r": "--rs-per-host"}
"""Long names of what jsrun starts: sets of resources, tasks in each, and sets on a node."""

_HOST = re.compile(r"^[ \t]*[^\s#]+[ \t]+slots=(\d{1,9})\b", re.MULTILINE)
_PER_NODE = re.compile(r"ppr:(\d{1,9}):node")


@frozen
class Count:
    """A number and what says so; None: nothing does, `said` is why, and `text` what is written."""

    value: int | None
    said: str
    text: str = ""


@frozen
class Ranks:
    """Processes of a launch.

    Attributes:
        count: of all nodes.
        said: how it was found, a sentence.
        per_node: of each node; None: unknown.
    """

    count: int
    said: str
    per_node: int | None = None


def count_ranks(launcher: Sequence[str], variables: Mapping[str, str], options: LaunchOptions, files: Files) -> Ranks:
    """The processes that a command starts.

    Args:
        launcher: the words in front of the program, also of what is around.
        variables: those of the script.
        options: what the user says counts most.
        files: where hostfiles may be.

    Raises:
        InputError: nothing says so.
    """
    name, said = _innermost(launcher)
    groups = said.get("--het-group", said.get("--pack-group", "0"))
    if name == SLURM and options.nodes is None and groups != "0" and not said.keys() & TOTAL[SLURM]:
        raise InputError(
            f"srun --het-group={_shown(groups)}: nest does not add up the components of a heterogeneous job; give "
            "--nodes and --devices-per-node."
        )
    around = dict(said) if name == SLURM else _of(launcher, SLURM)
    nodes, per_node = _nodes(name, said, around, variables, files), _per_node(name, said, variables, files)
    total = _total(name, said, variables, files)
    if options.nodes is None and options.devices_per_node is None and total.value is not None:
        each = total.value // nodes.value if nodes.value and not total.value % nodes.value else None
        return Ranks(total.value, f"{_ranks(total.value)}, from {total.said}.", each)
    if total.value is not None and per_node.value is None and nodes.value and not total.value % nodes.value:
        per_node = Count(total.value // nodes.value, f"{total.said} and {nodes.said}")
    nodes = nodes if options.nodes is None else Count(options.nodes, "--nodes")
    if options.devices_per_node is not None:
        per_node = Count(options.devices_per_node, "--devices-per-node")
    every = per_node.text == DEVICE_COUNT or (options.nodes and f"{UNKNOWN}$(" not in per_node.text)
    if per_node.value is None and options.machine is not None and every:
        per_node = Count(options.machine, "the machines of the cluster")
    if nodes.value is None or per_node.value is None:
        unsaid = [total.said] if total.text else [each.said for each in (nodes, per_node) if each.value is None]
        remedies = [("--nodes", nodes), ("--devices-per-node", per_node)]
        asked = " and ".join(option for option, each in remedies if each.value is None)
        why = ", and ".join(dict.fromkeys(unsaid))
        help_ = remedy(" ".join(each.text for each in (total, nodes, per_node) if each.value is None))
        more = f", or {help_}" if help_ else ""
        raise InputError(f"nothing says how many ranks there are: {why}; give {asked}{more}.")
    size = nodes.value * per_node.value
    shape = f"{nodes.value} {'node' if nodes.value == 1 else 'nodes'} x {per_node.value}"
    return Ranks(size, f"{_ranks(size)}: {shape}, from {_joined(nodes.said, per_node.said)}.", per_node.value)


def launches(words: Sequence[str]) -> bool:
    """Return whether a command calls a launcher."""
    return any(_called(words, at) for at in range(len(words)))


def _ranks(count: int) -> str:
    return f"{count} rank" if count == 1 else f"{count} ranks"


def _joined(first: str, second: str) -> str:
    """Both, without a repeated name of the launcher."""
    if first == second:
        return first
    common = first.partition(" -")[0].partition(" (")[0]
    return f"{first} and {second.removeprefix(common + ' ')}"


def _innermost(launcher: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """The last launcher in a command, and its options."""
    places = [at for at, word in enumerate(launcher) if _called(launcher, at)]
    if not places:
        return None, {}
    name, words = LAUNCHERS[_called(launcher, places[-1])], launcher[places[-1] + 1 :]
    said = dict(_options(words))
    if name == SLURM and ":" in words:  # Components of a heterogeneous job, whose tasks and nodes add up.
        parts = [dict(_options(part.split())) for part in " ".join(words).split(" : ")]
        for option in (*TOTAL[SLURM], *NODES[SLURM]):
            counts = [count for part in parts if (count := whole_number(part.get(option, ""))) is not None]
            said |= {option: str(sum(counts))} if len(counts) == len(parts) else {}
    return name, said


def _called(launcher: Sequence[str], at: int) -> str:
    word = launcher[at].rpartition("/")[2]
    return word if word in LAUNCHERS and launcher[at - 1 : at] != ["--launcher"] else ""


def _of(launcher: Sequence[str], name: str) -> dict[str, str]:
    """The options of the first launcher of a name; empty: there is none."""
    for at in range(len(launcher)):
        if LAUNCHERS.get(_called(launcher, at)) == name:
            return dict(_options(launcher[at + 1 :]))
    return {}


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options up to the next launcher, in hyphens; of those that are given twice the last counts."""
    for at, word in enumerate(words):
        if _called(words, at):
            return
        if not word.startswith("-"):
            if word.startswith(UNKNOWN) and not "".join(words[at - 1 : at]).startswith("-"):
                yield LOOSE, word
            continue
        short = re.fullmatch(r"(-[A-Za-z])(\d+)", word)
        name, equals, value = word.partition("=")
        following = "".join(words[at + 1 : at + 2])
        if short:
            yield short[1], short[2]
        else:
            yield name.replace("_", "-"), value if equals else "" if following.startswith("--") else following


def _loose(launcher: str, text: str) -> Count:
    """Count of a word that may hold any options."""
    why = "which nothing sets" if wanted(text) else "which only a run would tell"
    return Count(None, f"{launcher} is called with {_shown(text)}, {why}", text)


def _said(launcher: str | None, options: Mapping[str, str], names: Sequence[str]) -> Count | None:
    """Count of the first given option among `names`; None: none is given."""
    for name in names:
        if name in options:
            number, text = _whole(options[name]), options[name]
            what = f"{launcher} {name}"
            why = "which nothing sets" if wanted(text) else "which only a run would tell"
            return Count(number, what if number else f"{what} is {_shown(text)!r:.60}, {why}", text)
    return None


def _variable(variables: Mapping[str, str], names: Sequence[str]) -> Count | None:
    for name in names:
        if number := _whole(variables.get(name, "")):
            return Count(number, name)
    return None


def _nodes(
    name: str | None, said: Mapping[str, str], around: Mapping[str, str], variables: Mapping[str, str], files: Files
) -> Count:
    given = _said(name, said, NODES.get(name or "", ()))
    if given is not None:
        return given
    if name in (TORCH, DEEPSPEED) and LOOSE in said:
        return _loose(name, said[LOOSE])
    if name == TORCH:
        return _variable(variables, (ELASTIC["nnodes"],)) or Count(1, "torchrun (without --nnodes)")
    if name == DEEPSPEED:
        return _hosts(said, files)
    allotted = _said(SLURM, around, NODES[SLURM]) or _variable(variables, JOB_NODES)
    if allotted is not None and name in (SLURM, MPI, JSM, ALPS):
        return allotted
    return Count(None, f"{name} is given no number of nodes" if name else "no launcher calls the program")


def _hosts(said: Mapping[str, str], files: Files) -> Count:
    """The machines of DeepSpeed's hostfile; one where there is no such file."""
    file = said.get("--hostfile", said.get("-H"))
    if file is None:
        return Count(1, "deepspeed (without a hostfile)")
    hosts = _HOST.findall(files.text(file) or "")
    return Count(len(hosts) or None, f"{file}" if hosts else f"the hostfile {_shown(file)} is not here")


def _per_node(name: str | None, said: Mapping[str, str], variables: Mapping[str, str], files: Files) -> Count:
    devices = _variable(variables, DEVICES)
    every = variables.get(ELASTIC["nproc-per-node"], "") if name == TORCH else ""
    if name == TORCH and said.get("--nproc-per-node", every) in ("gpu", "auto"):
        return devices or Count(None, "torchrun --nproc-per-node is all a node has", DEVICE_COUNT)
    if name == TORCH and "--nproc-per-node" not in said:
        if LOOSE in said:
            return _loose(name, said[LOOSE])
        return _variable(variables, (ELASTIC["nproc-per-node"],)) or Count(1, "torchrun (without --nproc-per-node)")
    given = _said(name, said, PER_NODE.get(name or "", ()))
    if given is not None:
        return given
    each = _PER_NODE.search(" ".join(said.values()))
    if name == MPI and each:
        return Count(int(each[1]), "mpirun --map-by")
    if name == DEEPSPEED:
        slots = {int(each) for each in _HOST.findall(files.text(said.get("--hostfile", said.get("-H"))) or "")}
        return (
            Count(slots.pop(), "its slots")
            if len(slots) == 1
            else Count(None, "deepspeed takes all that a node has", DEVICE_COUNT)
        )
    tasks = _variable(variables, JOB_TASKS)
    if name in (SLURM, MPI) and tasks is not None:
        return tasks
    if name is None:
        return devices or Count(None, "no launcher calls the program")
    return Count(None, f"{name} is given no number of processes a node")


def _total(name: str | None, said: Mapping[str, str], variables: Mapping[str, str], files: Files) -> Count:
    given = _said(name, said, TOTAL.get(name or "", ()))
    if given is not None and (given.value is not None or wanted(given.text)):
        return given
    if name == DEEPSPEED and "--include" in said:
        devices = [host.partition(":")[2] for host in said["--include"].split("@")]
        if all(devices):
            return Count(sum(len(each.split(",")) for each in devices), "deepspeed --include")
    if name == JSM:
        return _in_sets(said) or Count(None, "")
    if name == MPI:
        hosts = next((said[each] for each in ("-H", "-host", "--host") if each in said), "")
        slots = [whole_number(host.rpartition(":")[2]) for host in hosts.split(",") if host]
        if slots and None not in slots:
            return Count(sum(filter(None, slots)), "the slots of mpirun -H")
    if name == SLURM and not any(option in said for option in (*NODES[SLURM], *PER_NODE[SLURM])):
        return _variable(variables, ("SLURM_NTASKS",)) or Count(None, "")
    return (_variable(variables, ("WORLD_SIZE",)) if name is None else None) or Count(None, "")


def _in_sets(said: Mapping[str, str]) -> Count | None:
    """The tasks of jsrun's sets of resources."""
    options = {SETS.get(name, name): value for name, value in said.items()}
    sets, tasks = (
        _whole(options.get(name, "1" if name == "--tasks-per-rs" else "")) for name in list(SETS.values())[:2]
    )
    if sets is None or tasks is None:
        return _said(JSM, options, ("--nrs",)) if wanted(options.get("--nrs", "")) else None
    return Count(sets * tasks, "jsrun --nrs and --tasks_per_rs")


def _shown(text: str) -> str:
    return shown(text)[:60]


def _whole(text: str) -> int | None:
    """The number; that of `2:2` as well, as torchrun takes them."""
    low, _, high = text.strip(" \t\n").partition(":")
    return (whole_number(low) if high in ("", low) else None) or None
