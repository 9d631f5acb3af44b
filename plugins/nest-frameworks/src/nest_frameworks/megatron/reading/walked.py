"""Facts on a launch script before and after it is walked through."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest.io.source import read_text_of
from nest.units import whole_number
from nest_frameworks.megatron.reading.flags import is_harmless
from nest_frameworks.megatron.reading.schedulers import NODES, SLURM, directives
from nest_frameworks.megatron.reading.tokens import UNKNOWN, Token, printed, shown, wanted


@define
class Files:
    """Files by the name that the script has for them.

    Attributes:
        folder: of the script; None: it has none, and no file is read.
        written: contents of those that the script writes out of here-documents.
        changed: those that other commands write to, so that nobody knows what is in them.
    """

    folder: Path | None = None
    written: dict[str, str] = field(factory=dict)
    changed: set[str] = field(factory=set)

    def enter(self, name: str) -> None:
        """Take names from a folder below; one that only a run would tell, such as `$(dirname $0)`, is the script's."""
        if self.folder is not None and UNKNOWN not in name and (self.folder / name).is_dir():
            self.folder = self.folder / name

    def text(self, name: str | None) -> str | None:
        """The content of a file; None: it is not here, or cannot be read."""
        if not name or name in self.changed:
            return None
        if name in self.written:
            return self.written[name]
        if UNKNOWN in name:  # Such as `$(dirname $0)/arguments.sh`.
            name = name.rpartition(UNKNOWN)[2].lstrip("/")
        if name in self.written or self.folder is None:
            return self.written.get(name)
        path = self.folder / name
        try:
            return read_text_of(path).replace(UNKNOWN, "") if path.is_file() else None  # As shells read NUL.
        except (InputError, OSError, ValueError):
            return None


@frozen
class Call:
    """A command that the script would run.

    Attributes:
        line: where it stands, 1 first.
        words: expanded.
        around: words of the command that runs it, such as `srun bash -c`.
        loops: the loops it stands in, by variable and values; those of `while` have none.
        branches: lines whose condition decides whether it runs, where the script does not say that, with what would.
        variables: of the shell that runs it, and its own; arrays as one text.
    """

    line: int
    words: tuple[str, ...]
    around: tuple[str, ...] = ()
    loops: tuple[tuple[str, tuple[str, ...]], ...] = ()
    branches: tuple[tuple[int, str], ...] = ()
    variables: Mapping[str, str] = field(factory=dict, eq=False, repr=False)


@define
class Walk:
    """Variables, calls and open questions of a script.

    Attributes:
        variables: set by the script; arrays have several words.
        calls: commands in order.
        files: those that it writes and reads.
        functions: bodies of the functions it has, by name.
        absent: files that it sources and that are not here.
        absent_runs: scripts that it runs and that are not here.
        chosen: values of variables that were said beside the script.
        loops: those around what is walked through.
        walks: how often something inside it was walked through.
        passed_over: lines whose meaning hangs on what only a run would tell.
        branches: those around what is walked through, as of `Call`.
        untaken: calls that variables which nothing sets would run.
        ends: whether it runs no further.
        left: `return`, or `break` or `continue` with a number of loops, once it runs, up to what that leaves.
        left_with: ways and variables of arms that may have left so.
    """

    variables: dict[str, tuple[str, ...]] = field(factory=dict)
    calls: list[Call] = field(factory=list)
    files: Files = field(factory=Files)
    functions: dict[str, list[Token]] = field(factory=dict)
    absent: list[str] = field(factory=list)
    absent_runs: list[str] = field(factory=list)
    chosen: dict[str, str] = field(factory=dict)
    loops: list[tuple[str, tuple[str, ...]]] = field(factory=list)
    walks: int = 0
    passed_over: list[int] = field(factory=list)
    branches: tuple[tuple[int, str], ...] = ()
    untaken: list[Call] = field(factory=list)
    ends: bool = False
    left: str = ""
    left_with: list[tuple[str, dict[str, tuple[str, ...]]]] = field(factory=list)

    def apart(self, line: int, how: str) -> "Walk":
        """The beginning of an arm that may not run, as `line` decides."""
        lists: dict[str, Any] = {
            name: [] for name in ("calls", "absent", "absent_runs", "passed_over", "untaken", "left_with")
        }
        files = evolve(self.files, written=dict(self.files.written), changed=set(self.files.changed))
        lists |= {name: copy(getattr(self, name)) for name in ("variables", "functions", "loops")}
        return evolve(self, **lists, files=files, branches=(*self.branches, (line, how)), ends=False)

    def join(self, arms: Sequence["Walk"], line: int, asked: str) -> None:
        """Go on behind arms of which only a run would tell the one that runs: nobody knows where they differ.

        `asked`: what the condition of `line` compares.
        """
        self.passed_over.append(line)
        for arm in arms:
            for name in ("calls", "absent", "absent_runs", "passed_over", "untaken", "left_with"):
                getattr(self, name).extend(getattr(arm, name))
            self.functions |= arm.functions
            self.files.changed |= arm.files.changed
        self.left_with += [(arm.left, arm.variables) for arm in arms if arm.left and not arm.ends]
        self.left = arms[0].left if all(arm.left for arm in arms) else self.left
        going = [arm for arm in arms if not arm.ends and not arm.left]
        self.differ([arm.variables for arm in going], line, asked)
        for name in dict.fromkeys(name for arm in going for name in arm.files.written):
            texts = {arm.files.written.get(name) for arm in going}
            self.files.written[name] = texts.pop() or ""
            self.files.changed |= {name} if texts else set()

    def differ(self, ends: Sequence[Mapping[str, tuple[str, ...]]], line: int, asked: str = "") -> None:
        """Go on with variables of which only a run would tell whether they end one way or the other."""
        for name in dict.fromkeys(name for each in ends for name in each):
            values = [each.get(name) for each in ends]
            told = [each if each is None else (*_telling(each),) for each in values]
            alike = len({*values}) == 1 or (None not in told and len({*told}) == 1)
            self.variables[name] = values[0] or () if alike else (set_differently(name, line, wanted(asked)),)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Walk through a subshell, which keeps what it sets."""
        before = dict(self.variables), dict(self.functions), self.files.folder, self.ends, self.left
        yield
        self.restore(before[0])
        _, self.functions, self.files.folder, self.ends, self.left = before

    def restore(self, variables: Mapping[str, tuple[str, ...]]) -> None:
        """Go back to these."""
        self.variables.clear()
        self.variables |= variables

    @property
    def texts(self) -> dict[str, str]:
        """Values of the variables, arrays as one text."""
        return {name: " ".join(words) for name, words in self.variables.items()}

    def declare(self, words: Sequence[str]) -> None:
        """`export $(cat .env)`: what is printed is set; what only a run would tell is as a file that is not here."""
        for word in words:
            name, equals, value = word.partition("=")
            if equals and name.isidentifier():
                self.variables[name] = (value,)
            elif UNKNOWN in word:
                self.absent.append(shown(word))


def set_differently(name: str, line: int, asked: Sequence[str] = ()) -> str:
    """The word that stands for what a variable has behind a line that may set it, as `asked` variables decide."""
    return printed(f"line-{line}:{name}{''.join(f',${each}' for each in asked)}")


def _telling(words: Sequence[str]) -> Iterator[str]:
    """Words but for flags that change no cost, with their values."""
    idle = False
    for word in " ".join(words).split():
        idle = is_harmless(word.partition("=")[0]) if word.startswith("--") else idle
        if not idle:
            yield word


def positional(arguments: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The variables that hold what a script is called with."""
    every = tuple(arguments)
    return {"@": every, "*": every, "#": (str(len(every)),), **{str(at): (w,) for at, w in enumerate(every, 1)}}


def is_positional(name: str) -> bool:
    """Return whether a variable is one of those."""
    return name in ("@", "*", "#") or name.isdecimal()


def beginning(text: str, options: LaunchOptions) -> Walk:
    """Knowledge before the first line of a script: its lines for the scheduler, arguments and environment."""
    result = Walk(files=Files(options.folder), chosen=dict(options.variables))
    result.variables |= {name: (value,) for name, value in options.variables.items()}
    result.variables |= positional(options.arguments)
    result.variables |= {name: (value,) for name, value in directives(text)}
    for count, names in ((options.nodes, NODES), (options.devices_per_node, SLURM["--gpus-per-node"])):
        if count is not None:
            result.variables |= dict.fromkeys(names, (str(count),))
    count_tasks(result.variables)
    return result


SETTERS = frozenset({"read", "mapfile", "readarray", "set", "shift", "getopts", "printf -v"})
"""Commands of bash 5.2 that set variables, or what a script is called with."""


def set_by(words: Sequence[str], variables: dict[str, tuple[str, ...]]) -> None:
    """Set what one of `SETTERS` sets; only a run would tell what they read."""
    command, *rest = words
    if command == "shift" or (command == "set" and rest[:1] == ["--"]):
        every, count = variables.get("@", ()), whole_number("".join(rest[:1]) or "1")
        given = rest[1:] if command == "set" else (printed(command),) if count is None else every[count:]
        given = every if count is not None and count > len(every) else given  # As bash, which shifts nothing then.
        for name in list(filter(is_positional, variables)):
            del variables[name]
        variables |= positional(given)
    elif command != "set":
        names = rest[1:2] if command in ("printf", "getopts") else rest
        variables |= {name: (printed(command),) for name in names if name.isidentifier()}


@contextmanager
def called_with(variables: dict[str, tuple[str, ...]], arguments: Sequence[str] | None) -> Iterator[None]:
    """Other arguments meanwhile, where some are given."""
    before = {name: value for name, value in variables.items() if is_positional(name)}
    if arguments is not None:
        for name in before:
            del variables[name]
        variables |= positional(arguments)
    yield
    if arguments is not None:
        for name in list(filter(is_positional, variables)):
            del variables[name]
        variables |= before


def count_tasks(variables: dict[str, tuple[str, ...]]) -> None:
    """Say how many processes Slurm starts, where nodes and processes a node say it."""
    names = ("SLURM_NNODES", "SLURM_NTASKS_PER_NODE")
    nodes, tasks = (whole_number("".join(variables.get(name, ())[:1])) for name in names)
    if nodes is not None and tasks is not None and "SLURM_NTASKS" not in variables:
        variables |= dict.fromkeys(SLURM["--ntasks"], (str(nodes * tasks),))
