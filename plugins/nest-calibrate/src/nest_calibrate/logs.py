"""Step times and peaks of memory in the logs of training frameworks."""

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from math import prod
from pathlib import Path
from statistics import median

from attrs import define, evolve, field, frozen

from nest.errors import InputError
from nest.units import whole_number
from nest_calibrate.log_lines import (
    ARGUMENTS,
    BATCH,
    COLOUR,
    DELTAS,
    FACTS,
    FRAMEWORKS,
    MESH,
    MIB,
    NO_NUMBER,
    OUT_OF_MEMORY,
    PADDED,
    PEAK_DELTA,
    PEAKS,
    RUNTIME,
    STEPS,
    StepLine,
    number,
    value_of,
)

WARM_UP = 5
"""The first of so many parts of what a log says of steps is left out, one line at least: kernels are compiled then."""

SAME = 0.02
"""Share by which two runs in one log may differ that are taken for one: its ranks one after the other, or resumed."""

APART = 10.0
"""Seconds between two times of day that tell how long the steps between them took: progress bars know whole seconds."""


@frozen
class LogFigures:
    """Figures of a training run from its log.

    Attributes:
        framework: who wrote it; empty: it has no step.
        seconds: of a step once it has settled; None: it is not said.
        tokens: per second and device, where that is all that is said of time.
        steps: lines that count, those of the warm-up left out.
        peak: bytes on the fullest device; None: it is not said.
        peak_kind: `reserved` by the allocator, or `allocated` to tensors.
        failed: whether it ran out of memory, and no step came after that.
        batch: samples of a step; None: it is not said.
        sequence: tokens of a sample; None: it is not said.
        devices: how many it ran on; None: it is not said.
        arguments: the part in which Megatron-LM prints its arguments; empty: there is none.
        left_out: runs before the last one, of other step times, that do not count.
    """

    framework: str
    seconds: float | None
    tokens: float | None
    steps: int
    peak: float | None
    peak_kind: str | None
    failed: bool
    batch: int | None
    sequence: int | None
    devices: int | None
    arguments: str
    left_out: int = 0

    def seconds_with(self, tokens: int | None, devices: int) -> float | None:
        """Seconds of a step of so many tokens, None where samples have none, on so many devices."""
        return self.seconds if self.tokens is None or tokens is None else tokens / (self.tokens * devices)


def read_log(path: Path) -> LogFigures:
    """The figures of a log.

    Raises:
        InputError: it cannot be read, or has neither steps nor a failure in it.
    """
    reader = _LogReader()
    try:
        # Progress bars end their lines with a carriage return, which counts as an end of line, too.
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                plain = COLOUR.sub("", line)
                if not NO_NUMBER.search(plain):
                    reader.read(plain)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}.") from None
    figures = reader.figures()
    if figures.seconds is None and figures.tokens is None and not figures.failed:
        raise InputError(f"{path}: no training steps found; nest reads logs of {', '.join(FRAMEWORKS)}.")
    return figures


@frozen
class _Reading:
    """A line of a step.

    Attributes:
        line: its number in the log.
        step: number of the step.
        value: seconds, tokens per second, or a time, as its `StepLine` says.
        batch: samples of the step; None: it is not said.
        end: steps of a progress bar in all; None: it is none.
    """

    line: int
    step: int
    value: float
    batch: int | None
    end: int | None


@define
class _LogReader:
    """Figures of the lines read so far.

    Attributes:
        steps: lines of steps, for each of `STEPS`.
        peaks: bytes with the number of their line, for each of `PEAKS`.
        deltas: most bytes, by name.
        facts: what the log says of the run, by name.
        arguments: lines in which Megatron-LM prints its arguments.
        printing: whether it has begun, and not ended, to print them.
        runtime: seconds of all steps.
        lines: how many were read.
        last_step: the line with the last step.
        last_failure: the line where memory last ran out.
    """

    steps: dict[int, list[_Reading]] = field(factory=lambda: defaultdict(list))
    peaks: dict[int, list[tuple[int, float]]] = field(factory=lambda: defaultdict(list))
    deltas: dict[str, float] = field(factory=dict)
    facts: dict[str, int] = field(factory=dict)
    arguments: list[str] = field(factory=list)
    printing: bool = False
    runtime: float | None = None
    lines: int = 0
    last_step: int = 0
    last_failure: int = 0

    def read(self, line: str) -> None:
        """Take in a line."""
        self.lines += 1
        batch = BATCH.search(line)
        if batch:
            self._fact("batch", batch.group(1))
        for index, each in enumerate(STEPS):
            match = each.pattern.search(line)
            if match:
                self._step(index, match, batch is not None)
                break
        self._arguments(line)
        self._facts(line)
        self._memory(line)

    def _step(self, index: int, match: re.Match[str], has_batch: bool) -> None:
        said = match.groupdict()
        step = int(said["step"]) if said.get("step") else len(self.steps[index]) + 1
        self.last_step = self.lines
        if (value := value_of(said)) is not None:
            batch, end = self.facts.get("batch") if has_batch else None, said.get("of")
            self.steps[index].append(_Reading(self.lines, step, value, batch, None if end is None else int(end)))

    def _arguments(self, line: str) -> None:
        ends = ARGUMENTS.search(line)
        if ends and not ends.group(1) and not self.printing:
            self.arguments = []  # Another run begins.
        if self.printing or PADDED in line or (ends and not self.arguments):
            self.arguments.append(line)
        if ends:
            self.printing = not ends.group(1)

    def _facts(self, line: str) -> None:
        for name, pattern in FACTS.items():
            if match := pattern.search(line):
                self._fact(name, match.group(1))
        if match := MESH.search(line):
            sizes, named = match.groups()
            # Experts lie over the other axes.
            tags = sizes or re.sub(r"\bep=\d+", "", named)
            self._fact("devices", str(prod(map(int, re.findall(r"\d+", tags)))))
        if match := RUNTIME.search(line):
            self.runtime = number(match.group(1))

    def _fact(self, name: str, text: str) -> None:
        """Note a number; no run has 0 of anything, or a billion."""
        if value := whole_number(text.replace(",", "")):
            self.facts[name] = value

    def _memory(self, line: str) -> None:
        for index, (_, unit, pattern) in enumerate(PEAKS):
            for text in pattern.findall(line):
                self.peaks[index].append((self.lines, number(text) * unit))
        if match := DELTAS.search(line):
            name, size, mebibytes = match.groups()
            self.deltas[name] = max(self.deltas.get(name, 0.0), float(size) * (MIB if mebibytes else 1.0))
        if OUT_OF_MEMORY.search(line):
            self.last_failure = self.lines

    def figures(self) -> LogFigures:
        """Figures of all lines together."""
        runs = self._runs()
        kept = _counting(runs)
        values = [value for run in kept for value in run.settled]
        framework, says = (runs[0].line.framework, runs[0].line.says) if runs else ("", "")
        if not runs and self.runtime and self.facts.get("steps"):
            framework, values = FRAMEWORKS[-1], [self.runtime / self.facts["steps"]]
        said = median(values) if values else None
        batch, sequence, devices = (self.facts.get(name) for name in ("batch", "sequence", "devices"))
        figures = LogFigures(
            framework,
            None if says == "tokens" else said,
            said if says == "tokens" else None,
            len(values),
            *self._peak(kept),
            self.last_failure > self.last_step,
            batch,
            sequence,
            devices,
            "".join(self.arguments),
            len(runs) - len(kept),
        )
        if batch is None or sequence is None or devices is None:
            return figures
        return evolve(figures, seconds=figures.seconds_with(batch * sequence, devices))

    def _runs(self) -> list["_Run"]:
        """The runs of the first line that says how long steps took; none: no line does."""
        for index, line in enumerate(STEPS):
            readings = self.steps.get(index, [])
            if line.says == "elapsed":
                readings = self._bar(readings, line)
            steps = {each.step for each in readings}
            if len(steps) > (1 if line.says == "clock" or line.common else 0):
                return _parted(line, readings, self.lines)
        return []

    def _bar(self, readings: Sequence[_Reading], line: StepLine) -> list[_Reading]:
        """Keep the readings of training's progress bar; none where another bar may have printed them."""
        if line.common and self.runtime is None and "steps" not in self.facts:
            return []
        end = self.facts.get("steps") or max((each.end or 0 for each in readings), default=0)
        return [each for each in readings if each.end == end]

    def _peak(self, kept: Sequence["_Run"]) -> tuple[float | None, str | None]:
        """Peak of the runs that count, and its kind."""
        for index, (kind, _, _) in enumerate(PEAKS):
            found = self.peaks.get(index, [])
            inside = [size for at, size in found if not kept or any(run.begin < at <= run.end for run in kept)]
            if peak := max(inside, default=0.0):
                return peak, kind
        if PEAK_DELTA in self.deltas and any(self.deltas.values()):
            return sum(self.deltas.values()), "allocated"
        return None, None


@define
class _Run:
    """Steps of one run of a log.

    Attributes:
        line: what prints its steps.
        begin: number of the last line of the run before.
        end: number of its last line.
        readings: its steps.
    """

    line: StepLine
    begin: int
    end: int
    readings: list[_Reading]

    @property
    def time(self) -> float:
        """Median figure of settled steps; 0: there is none."""
        return median(self.settled or [0.0])

    @cached_property
    def settled(self) -> list[float]:
        """Figures of settled steps, the median over ranks."""
        values: dict[int, list[float]] = defaultdict(list)
        batches = {each.step: each.batch for each in self.readings}
        for each in self.readings:
            values[each.step].append(each.value)
        last = batches[max(batches)]
        steps = [step for step in sorted(values) if batches[step] == last]  # A batch may be ramped up.
        settled = [(step, median(values[step])) for step in steps]
        if self.line.says in ("clock", "elapsed"):
            if self.line.says == "elapsed" and len(settled) == 1 and settled[0][0] > 0:
                settled = [(0, 0.0), *settled]
            spread = _spread_out(settled)
            settled = [(after, (end - begin) / (after - before)) for (before, begin), (after, end) in pairwise(spread)]
        left_out = -(-len(settled) // WARM_UP) if len(settled) > 1 else 0
        return [value for _, value in settled[left_out:] if value > 0] or [value for _, value in settled if value > 0]


def _parted(line: StepLine, readings: Sequence[_Reading], lines: int) -> list[_Run]:
    """Runs of a log: one begins where the step falls by more than a line; a rank may be a line behind others."""
    runs: list[_Run] = []
    highest: list[int] = []  # The last two steps of the run, ascending.
    for each in readings:
        if not runs or (len(highest) > 1 and each.step < highest[0]):
            runs.append(_Run(line, runs[-1].end if runs else 0, lines, []))
            highest = []
        runs[-1].readings.append(each)
        runs[-1].end = each.line
        highest = sorted({*highest, each.step})[-2:]
    runs[-1].end = lines
    return runs


def _counting(runs: Sequence[_Run]) -> list[_Run]:
    """The last run of more than one line, and those before it of the same step time and batch."""
    if not runs:
        return []
    last = next((run for run in reversed(runs) if len(run.readings) > 1), runs[-1])
    batch = last.readings[-1].batch
    alike = (run for run in runs if run.readings[-1].batch == batch and abs(run.time - last.time) <= SAME * last.time)
    return [*alike]


def _spread_out(times: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Those of `times` that lie `APART` seconds apart, the first and the last among them."""
    spread = list(times[:1])
    for each in times[1:-1]:
        if each[1] >= spread[-1][1] + APART and each[1] + APART <= times[-1][1]:
            spread.append(each)
    return [*spread, *times[1:][-1:]]
