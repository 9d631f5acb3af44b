"""Gains of accelerators: user seconds of commands without one, over those with all of them."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define, frozen

from benchmarks.scale import piper, problems
from benchmarks.scale.accelerators import ACCELERATORS
from benchmarks.scale.commands import DEEPSEEK, EXPLAIN, LLAMA, MILLION, PLAN, POOLS, PROVE, README, SOLVE, changed
from benchmarks.scale.measure import Source
from benchmarks.scale.mixed import MEMORY
from benchmarks.scale.processes import NOTHING_KEPT, Run, run
from benchmarks.scale.report import table
from benchmarks.scale.switched_off import MOST

ENOUGH = 1.3
"""Gain that an accelerator has on some row at least."""

CAP = 6.0
"""Times the seconds of the row after which a command without an accelerator is ended."""

CLOSE = (1.15, 1.5)
"""Gains between which a command is measured again."""

TIMES = 3
"""How often it is measured then."""


@frozen
class Row:
    """A command on a problem.

    Attributes:
        name: unique.
        what: it is, in a few words.
        problem: a file, or what makes it.
        asked: arguments of the command.
        before: those of a command that comes first.
    """

    name: str
    what: str
    problem: Source
    asked: tuple[str, ...] = SOLVE
    before: tuple[str, ...] = ()


def rows(data: Path) -> list[Row]:
    """All of them; those whose data is not under `data` are left out."""
    found = [
        Row("readme", "README's example", README),
        Row("1f1b", "README's example, schedule 1f1b", partial(changed, "training", "schedule", "1f1b")),
        Row("pools", "Llama 3 70B on 64 H100 and 128 A100", POOLS),
        Row("405b", "Llama 3.1 405B on 16,384 H100", LLAMA),
        Row("deepseek", "DeepSeek-V3 on 2,048 H100", DEEPSEEK),
        Row("unlike", "1,000 unlike layers on 2^20 devices", partial(problems.heterogeneous, 1000, MILLION, 8192)),
        Row("equal", "1,000 equal blocks on 2^20 devices", partial(problems.deep, 1000, problems.h100(MILLION), 8192)),
        Row("explain", "README's example, explained", README, EXPLAIN, PLAN),
        Row("proof", "README's example, proved", README, (*PROVE, "--jobs", "1")),
    ]
    if (path := data / "piper" / "bert32a100.json").exists():
        graph = piper.read(json.loads(path.read_text(encoding="utf-8")))
        found.insert(2, Row("mixed", "Piper's BERT-32, mixed plans on 64", partial(piper.relaxed, graph, 64, MEMORY)))
    if (path := data / "dag" / "layergraphs__gnmt_inference.json").exists():
        found.insert(3, Row("branched", "GNMT, 17,914 cuts", path))
    return found


@frozen
class Gain:
    """Gain of an accelerator on a row.

    Attributes:
        times: user seconds without it over those with it; None: the row does not meet it.
        least: whether it is more than that: the command was ended.
        same: whether the answer is the same, as far as there is one.
    """

    times: float | None
    least: bool = False
    same: bool = True

    def told(self) -> str:
        """In a cell of the table."""
        if self.times is None:
            return ""
        return f"{'> ' if self.least else ''}{self.times:.2f}{'' if self.same else ' (other answer)'}"


@define
class Field:
    """A row that is measured.

    Attributes:
        row: the row.
        folder: for its files.
        timeout: seconds by the clock that a process may take.
        user: seconds that it took at first.
        met: accelerators that it asks.
        answer: what it prints.
    """

    row: Row
    folder: Path
    timeout: float
    user: float = 0.0
    met: frozenset[str] = frozenset()
    answer: Any = None

    def start(self) -> None:
        """Measure it with all accelerators.

        Raises:
            RuntimeError: the command fails.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if not isinstance(self.row.problem, Path):
            (self.folder / "problem.json").write_text(json.dumps(self.row.problem()), encoding="utf-8")
        if self.row.before:
            self._run("-", self.row.before)
        ended = self._run("-")
        told = _told(ended)
        if told is None:
            raise RuntimeError(f"{self.row.name}: {ended.errors.strip()[-300:]}")
        self.met, self.answer, self.user = frozenset(told["met"]), _without_statistics(ended.output), told["user"]

    def gain(self, names: Sequence[str], cap: float = CAP) -> Gain:
        """Return the gain of some accelerators together."""
        if self.met.isdisjoint(names):
            return Gain(None)
        user, same = [0.0, 0.0], True
        for _ in range(TIMES):
            # Both at the same time, so that what else the machine does slows both down.
            with ThreadPoolExecutor() as threads:
                base = threads.submit(self._run, "none")
                ended = self._run(",".join(names), most=cap * self.user)
                with_all, without = _told(base.result()), _told(ended)
            if without is None or with_all is None:
                return Gain(cap, least=True)
            same = same and _without_statistics(ended.output) == self.answer
            user = [user[0] + with_all["user"], user[1] + without["user"]]
            if not CLOSE[0] < user[1] / user[0] < CLOSE[1]:
                break
        return Gain(user[1] / user[0], same=same)

    def _run(self, names: str, asked: tuple[str, ...] = (), most: float | None = None) -> Run:
        problem = self.row.problem if isinstance(self.row.problem, Path) else self.folder / "problem.json"
        arguments = [each.format(problem=problem, folder=self.folder) for each in asked or self.row.asked]
        environment = {**os.environ, **NOTHING_KEPT, **({} if most is None else {MOST: str(most)})}
        module = ["-m", "benchmarks.scale.switched_off", names]
        return run([*module, *arguments], self.timeout, environment=environment)


def _told(ended: Run) -> dict[str, Any] | None:
    """Read what a command says of itself; None: it was ended or failed."""
    lines = ended.errors.strip().splitlines()
    try:
        told: dict[str, Any] = json.loads(lines[-1]) if lines and ended.code in (0, 1) else None
    except ValueError:
        return None
    return told


def _without_statistics(output: str) -> Any:
    """The documents that a command prints, but for what searches did."""
    decoder, found, place = json.JSONDecoder(), [], 0
    while place < len(output.rstrip()):
        document, place = decoder.raw_decode(output, place)
        found.append(_plain(document))
        place += len(output[place:]) - len(output[place:].lstrip())
    return found


def _plain(document: Any) -> Any:
    if isinstance(document, dict):
        return {key: _plain(each) for key, each in document.items() if key != "statistics"}
    return [_plain(each) for each in document] if isinstance(document, list) else document


def all_gains(
    asked: Sequence[Row], names: Sequence[str], folder: Path, timeout: float, tell: Callable[[str], None]
) -> dict[str, dict[str, Gain]]:
    """Measure the gain of each accelerator on each row, and tell it at once; by name, then by row.

    Raises:
        RuntimeError: a row's command fails.
    """
    gains: dict[str, dict[str, Gain]] = {name: {} for name in names}
    for row in asked:
        measured = Field(row, folder / row.name, timeout)
        measured.start()
        tell(f"{row.name}: {measured.user:.2f} s")
        for name in names:
            gains[name][row.name] = measured.gain([name])
            if told := gains[name][row.name].told():
                tell(f"{row.name} without {name}: {told}")
    return gains


def complaints(gains: Mapping[str, Mapping[str, Gain]]) -> list[str]:
    """Name the accelerators that gain less than `ENOUGH` on every row, and those that change an answer."""
    told = [
        f"`{name}` gains less than {ENOUGH:g} on every row"
        for name, by_row in gains.items()
        if all(each.times is None or each.times < ENOUGH for each in by_row.values())
    ]
    changed = ((name, row) for name, by_row in gains.items() for row, each in by_row.items() if not each.same)
    return [*told, *(f"`{name}` changes the answer of {row}" for name, row in changed)]


def gains_page(machine: Mapping[str, str], gains: Mapping[str, Mapping[str, Gain]], names: Sequence[str]) -> str:
    """The results as a page: a line for each accelerator, a column for each row."""
    lines = [
        f"# Accelerators, {machine['date']}",
        "",
        "How to read this: [Accelerators](../../README.md#accelerators).",
    ]
    lines += ["", *(f"* {name}: {value}" for name, value in machine.items())]
    cells = [
        (f"`{name}`", *(by_row[row].told() for row in names), ACCELERATORS[name].what) for name, by_row in gains.items()
    ]
    lines += table(("accelerator", *names, "what it does"), cells)
    return "\n".join([*lines, "", *(f"* {told}" for told in complaints(gains))]) + "\n"
