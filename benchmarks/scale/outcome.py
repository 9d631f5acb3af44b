"""A measure carried out: times, memory, what is wrong."""

import json
from collections.abc import Sequence
from pathlib import Path
from signal import SIGKILL
from typing import Any

from attrs import frozen

from benchmarks.scale.measure import Answer, Finding, Measure, Source
from benchmarks.scale.processes import Run, repeated, run


@frozen
class Outcome:
    """What a measure gave.

    Attributes:
        name: of the measure.
        what: its problems, and what the answers were.
        formulate: least time to formulate all problems in process, seconds; None: it did not get there.
        solve: time to solve them in the same run, seconds.
        process: least time of the whole command, seconds; None: not measured.
        memory: largest resident set of any of the processes, bytes.
        limit: in words.
        failures: what is wrong, in words; none: passed.
        details: further figures, for the JSON file.
    """

    name: str
    what: str
    formulate: float | None
    solve: float | None
    process: float | None
    memory: float
    limit: str
    failures: tuple[str, ...]
    details: dict[str, Any]

    @property
    def mark(self) -> str:
        """`pass` or `FAIL`."""
        return "FAIL" if self.failures else "pass"


@frozen
class InProcess:
    """The best of the runs in process.

    Attributes:
        answers: one per problem; fewer when the process ended early.
        memory: largest resident set of any run, bytes.
        wrong: why answers are missing, in words; empty when none are.
        runs: how many there were.
    """

    answers: tuple[Answer, ...]
    memory: float
    wrong: str
    runs: int

    def total(self, part: str) -> float:
        """Seconds of all problems together that `read`, `formulate` or `solve` took."""
        return float(sum(answer[part] for answer in self.answers))

    @property
    def planning(self) -> float:
        """Seconds of formulating and solving."""
        return self.total("formulate") + self.total("solve")


def written(problems: Sequence[Source], folder: Path, stem: str) -> list[str]:
    """Files that hold the problems; those made here are written to `folder`."""
    paths = []
    for index, problem in enumerate(problems):
        if isinstance(problem, Path):
            paths.append(str(problem.resolve()))
        else:
            path = folder / f"{stem}-{index}.json"
            path.write_text(json.dumps(problem()), encoding="utf-8")
            paths.append(str(path))
    return paths


def in_process(files: Sequence[str], times: int, timeout: float) -> InProcess:
    """Plan the problems in one process, `times` times; the run that planned fastest counts."""
    runs = repeated(lambda: run(["-m", "benchmarks.scale.child", *files], timeout), times)
    memory = max(each.memory for each in runs)
    read = [InProcess(_answers(each), memory, _wrong(each, len(files)), len(runs)) for each in runs]
    broken = [each for each in read if each.wrong]
    return broken[0] if broken else min(read, key=lambda each: each.planning)


def _answers(one: Run) -> tuple[Answer, ...]:
    return tuple(json.loads(line) for line in one.output.splitlines(keepends=True) if line.endswith("\n"))


def _wrong(one: Run, expected: int) -> str:
    if one.stopped:
        return f"stopped after {one.seconds:.0f} s"
    if one.code or len(_answers(one)) != expected:
        return f"exit code {one.code}: {(one.errors.strip().splitlines() or ['no message'])[-1]}"
    return ""


def carried_out(measure: Measure, folder: Path, times: int, timeout: float) -> Outcome:
    """Run a measure: in process, then as the command."""
    files = written(measure.problems, folder, measure.name)
    inside = in_process(files, times, timeout)
    finding = Finding(inside.wrong, False) if inside.wrong else measure.check(inside.answers)
    # A command that prints what was already refused or stopped measures nothing.
    idle = not measure.whole or inside.wrong or all(each["status"] == "refused" for each in inside.answers)
    whole = [] if idle else repeated(lambda: run(["-m", "nest", "solve", *files, "--json"], timeout), times)
    process = min((each.seconds for each in whole), default=None)
    memory = max([inside.memory, *(each.memory for each in whole)])
    failures = [] if finding.right else [finding.told]
    failures += [f"the command was stopped after {each.seconds:.0f} s" for each in whole if each.stopped]
    failures += [f"the command ended with exit code {each.code}" for each in whole if each.code not in (0, 1, -SIGKILL)]
    failures += measure.limit.broken(None if inside.wrong else inside.planning, process, memory)
    return Outcome(
        name=measure.name,
        what=f"{measure.what}: {finding.told}",
        formulate=None if inside.wrong else inside.total("formulate"),
        solve=None if inside.wrong else inside.total("solve"),
        process=process,
        memory=memory,
        limit=measure.limit.told(),
        failures=tuple(failures),
        details=_details(inside, whole),
    )


def _details(inside: InProcess, whole: Sequence[Run]) -> dict[str, Any]:
    kept = ("status", "batch_time", "read", "formulate", "solve", "statistics", "message")
    return {
        "runs_in_process": inside.runs,
        "runs_of_the_command": len(whole),
        "answers": [{name: answer[name] for name in kept if name in answer} for answer in inside.answers],
    }
