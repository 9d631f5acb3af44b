"""Commands carried out in this tree and, in alternation, in another commit."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from shutil import copytree, rmtree
from tempfile import TemporaryDirectory
from typing import Any

from attrs import evolve, field, frozen

from benchmarks.scale.command import YARDSTICK_SECONDS, Command, Least, Timing
from benchmarks.scale.processes import NOTHING_KEPT, PATIENCE, REPOSITORY, Run, run


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A folder with a commit, which goes afterwards.

    Raises:
        ValueError: there is no such commit; says what git says.
    """
    with TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        made = subprocess.run(
            ["git", "worktree", "add", "--detach", str(tree), commit], cwd=REPOSITORY, capture_output=True, text=True
        )
        if made.returncode:
            raise ValueError(made.stderr.strip().splitlines()[-1])
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=REPOSITORY, check=True)


@frozen
class Place:
    """A tree with a command's own folder.

    Attributes:
        tree: has the folder `nest`.
        folder: for plans, pages and answers kept.
        command: what is carried out there.
        timeout: seconds a process may take.
    """

    tree: Path
    folder: Path
    command: Command
    timeout: float
    runs: list[Run] = field(factory=list, init=False)

    def start(self) -> str:
        """Write the problems and carry out what comes first; what is wrong, in words, else nothing."""
        self.folder.mkdir()
        for name, problem in self.command.problems.items():
            if not isinstance(problem, Path):
                (self.folder / f"{name}.json").write_text(json.dumps(problem()), encoding="utf-8")
        wrong = next(filter(None, (_wrong(self._run(each), "") for each in self.command.before)), "")
        if self._kept.exists():
            copytree(self._kept, self.folder / "first")
        return wrong

    def again(self) -> str:
        """Carry the command out once more; what is wrong, in words, else nothing.

        Of what is kept it meets what was kept before the first run.
        """
        if self._kept.exists():
            rmtree(self._kept)
            copytree(self.folder / "first", self._kept)
        self.runs.append(self._run(self.command.asked))
        return _wrong(self.runs[-1], self.command.wanted)

    @property
    def _kept(self) -> Path:
        return self.folder / "kept"

    def _run(self, arguments: Sequence[str]) -> Run:
        files = {
            name: str(each if isinstance(each, Path) else self.folder / f"{name}.json")
            for name, each in self.command.problems.items()
        }
        environment = {**os.environ, **NOTHING_KEPT}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # Modules lie compiled, as where nest is installed.
        if self.command.keeps:
            environment["NEST_CACHE"] = str(self._kept)
        told = [each.format(folder=self.folder, **files) for each in arguments]
        return run(["-m", "nest", *told], self.timeout, self.tree, environment)


def _wrong(one: Run, wanted: str) -> str:
    if one.stopped:
        return f"stopped after {one.seconds:.0f} s"
    if one.code:
        return f"exit code {one.code}: {(one.errors.strip().splitlines() or ['no message'])[-1]}"
    return "" if wanted in one.output else f"it does not say {wanted}"


def _of_tree(tree: Path, problem: Any) -> Any:
    """A problem's file as another tree has it; this tree's where it has none."""
    there = tree / problem.relative_to(REPOSITORY) if isinstance(problem, Path) else None
    return there if there is not None and there.exists() else problem


def timed(
    command: Command, folder: Path, times: int, timeout: float, other: Path | None, factor: float | None
) -> Timing:
    """Carry a command out so many times, here and in the other tree by turns; fewer once it took `PATIENCE` seconds.

    Args:
        command: what is timed.
        folder: for files.
        times: how often.
        timeout: seconds a process may take.
        other: another tree; None: this one alone. Where the command fails there, it is not compared.
        factor: scaled seconds for each second here; None: the command tells it, in the other tree, if there is one, of
            that tree's own problem.
    """
    here = Place(REPOSITORY, folder / f"{command.name}-here", command, timeout)
    there, yardstick = None, here
    if other is not None:
        there = Place(other, folder / f"{command.name}-there", command, timeout)
    wrong = here.start()
    if there is not None and there.start():
        there = None
    if there is not None and other is not None and factor is None:
        # Limits were set at some commit: beside it they do not tighten as solving gets faster, or the problem easier.
        own = {name: _of_tree(other, each) for name, each in command.problems.items()}
        yardstick = Place(other, folder / f"{command.name}-own", evolve(command, problems=own), timeout)
        wrong = wrong or yardstick.start()
    for _ in range(times):
        # The other tree goes first, so that what the machine has cached of a problem is no gain of this one.
        if there is not None and there.again():
            there = None
        if yardstick is not here:
            wrong = wrong or yardstick.again()
        wrong = wrong or here.again()
        if wrong or sum(each.seconds for each in here.runs) > PATIENCE:
            break
    least = Least.of(here.runs) if here.runs else Least(0.0, 0.0, 0.0)
    of_other = None if there is None else Least.of(there.runs)
    if factor is None:
        cpu = Least.of(yardstick.runs).cpu if yardstick.runs else 0.0
        factor = YARDSTICK_SECONDS / cpu if cpu else 1.0
    return Timing(command, least, of_other, factor, wrong)


def all_timed(
    commands: Sequence[Command], times: int, timeout: float, against: str | None, tell: Callable[[Timing], None]
) -> list[Timing]:
    """Every command, the yardstick first, each told as it ends.

    Raises:
        ValueError: there is no such commit to measure against.
    """
    timings: list[Timing] = []
    with TemporaryDirectory() as folder, nullcontext() if against is None else checked_out(against) as other:
        for command in commands:
            factor = timings[0].factor if timings else None
            timings.append(timed(command, Path(folder), times, timeout, other, factor))
            tell(timings[-1])
    return timings
