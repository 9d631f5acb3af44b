"""Step times and peaks of memory in the logs of training frameworks."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from math import prod
from pathlib import Path
from statistics import median

from attrs import define, evolve, field, frozen

from nest.errors import InputError
from nest.units import LARGEST, SMALLEST, whole_number

MIB, GIB, GB = 2.0**20, 2.0**30, 1e9
NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
COUNT = r"\d[\d,]*"
CLOCK = r"(?:(?P<days>\d+) days?, )?(?P<elapsed>(?:\d+:)?\d+:\d\d)"
THOUSANDS = {"K": 1e3, "M": 1e6, "B": 1e9}


@frozen
class StepLine:
    """A line that frameworks print every few steps.

    Attributes:
        framework: who prints it.
        pattern: it, with the number of the `step` where it has one, and what it says of time: `seconds`,
            `milliseconds`, `tokens` (per second and device), the time of day (`clock`), or that since the first step
            (`elapsed`).
        common: whether other programs print such lines, too.
    """

    framework: str
    pattern: re.Pattern[str]
    common: bool = False

    @classmethod
    def of(cls, framework: str, pattern: str, common: bool = False) -> "StepLine":
        """A line by its pattern, with `NUMBER`, `COUNT` for a whole number with commas, and `CLOCK` for a time."""
        for name, meant in (("NUMBER", NUMBER), ("COUNT", COUNT), ("CLOCK", CLOCK)):
            pattern = pattern.replace(name, meant)
        return cls(framework, re.compile(pattern), common)

    @property
    def says(self) -> str:
        """The log's statement of time."""
        return next(name for name in self.pattern.groupindex if name not in ("step", "of", "days", "scale"))


_ITERATION = r"iteration *=? *(?P<step>\d+) */.*?elapsed[ _]time[ _]per[ _]iteration[ _]\(?"
STEPS = (
    # Megatron-LM, megatron/training/training.py, training_log: the mean over --log-interval steps.
    StepLine.of("Megatron-LM", _ITERATION + r"ms\)? *[:=] *(?P<milliseconds>NUMBER)"),
    StepLine.of("Megatron-LM", _ITERATION + r"s\)? *[:=] *(?P<seconds>NUMBER)"),
    # Megatron-Bridge, training/utils/train_utils.py, training_log: the same.
    StepLine.of("Megatron-Bridge", r"Step Time : +(?P<seconds>NUMBER)s"),
    # NeMo: the progress printer of version 2, and the logger of MLPerf.
    StepLine.of("NeMo", r"global_step\"?: (?P<step>\d+).*?train_step_timing in s\"?: (?P<seconds>NUMBER)"),
    # torchtitan/components/metrics.py; `wps` until 2024. A device's tokens over context, tensor and pipeline degrees.
    StepLine.of("torchtitan", r"(?<!validate )step: +(?P<step>\d+) .*?\b[tw]ps: +(?P<tokens>COUNT)"),
    # MaxText, metric_logger.py: one step. The first are dispatched, not done.
    StepLine.of("MaxText", r"completed step: (?P<step>\d+), seconds: (?P<seconds>NUMBER)"),
    # DeepSpeed, runtime/pipe/engine.py, train_batch: the mean over steps_per_print steps.
    StepLine.of("DeepSpeed", r"steps: (?P<step>\d+) loss: \S+ .*?iter time \(s\): (?P<seconds>NUMBER) samples/sec"),
    # DeepSpeed, utils/timer.py, ThroughputTimer: where a script calls `forward` for each micro-batch and `step` once,
    # its samples per second are those of the last micro-batch. When it prints is right in any case.
    StepLine.of(
        "DeepSpeed",
        r"\[(?P<clock>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\].*?global_step=(?P<step>\d+), RunningAvgSamplesPerSec",
    ),
    # nanotron/trainer.py, train_step_logs: numbers of three digits, with K for thousands.
    StepLine.of(
        "nanotron",
        r"iteration: (?P<step>\d+) / \d+ \|.*?elapsed_time_per_iteration_ms: (?P<milliseconds>NUMBER)(?P<scale>K|M|B)?",
    ),
    # LLaMA-Factory, train/callbacks.py, LogCallback: trainer_log.jsonl.
    StepLine.of(
        "LLaMA-Factory",
        r'"current_steps": (?P<step>\d+), "total_steps": (?P<of>\d+).*?"elapsed_time": "CLOCK"',
    ),
    # Hugging Face Trainer: its progress bar, in a notebook and elsewhere.
    StepLine.of("Hugging Face Trainer", r"(?P<step>\d+)/(?P<of>\d+) CLOCK(?: < [^,]*,[^,]*)?, Epoch "),
    StepLine.of("Hugging Face Trainer", r"(?P<step>\d+)/(?P<of>\d+) \[CLOCK<", common=True),
)
"""The first of these that a log has says how long its steps took."""

FRAMEWORKS = tuple(dict.fromkeys(line.framework for line in STEPS))

PEAKS = (
    # Megatron-LM, report_memory; Megatron-Bridge since 2025-10; NeMo 2; torchtitan; nanotron.
    ("reserved", MIB, re.compile(rf"max reserved: ({NUMBER})")),
    ("reserved", GB, re.compile(rf"mem-max-reserved-gigabytes: *({NUMBER})")),
    ("reserved", 1.0, re.compile(r"(?:max_memory_reserved|peak_memory_usage): (\d+)")),
    ("reserved", GIB, re.compile(rf"\bm?memory: +({NUMBER})GiB")),
    ("reserved", MIB, re.compile(rf"Peak reserved: ({NUMBER})MiB")),
    # DeepSpeed's ThroughputTimer.
    ("allocated", GIB, re.compile(rf"MaxMemAllocated=({NUMBER}) ?GB")),
)
"""Peaks of one device, with their unit in bytes: what the allocator reserved, which comes first, or gave to tensors."""

DELTAS = re.compile(
    r"\b(before_init_mem_gpu|init_mem_gpu_alloc_delta|train_mem_gpu_alloc_delta|train_mem_gpu_peaked_delta)"
    r"\"?\s*[:=]\s*(-?\d+)(MB)?"
)
"""Of Hugging Face's Trainer (trainer_utils.py, TrainerMemoryTracker): together they are the peak of the tensors."""

PEAK_DELTA = "train_mem_gpu_peaked_delta"

BATCH = re.compile(
    rf"(?:global[ _]batch[ _]size|Total train batch size \(w\. parallel, distributed & ?accumulation\))[ .:=]+({COUNT})"
    r"(?!\.?\d|[KMB])"  # nanotron's thousands are rounded.
)
FACTS = {
    "sequence": re.compile(r"(?:sequence length|seq_length|max_target_length:?)[ .]+(\d+)"),
    "devices": re.compile(r"(?:world[ _]size[ .:]+|Num_devices: )(\d+)"),
    "steps": re.compile(rf"Total optimization steps = ({COUNT})"),
}
MESH = re.compile(r"device mesh with (?:\[[^\]]*\], \[([\d, ]{1,99})\]|parallelism: ((?:\w+=\d+,? ?){1,20}))")
RUNTIME = re.compile(rf"train_runtime['\"]?: ['\"]?({NUMBER})")
ARGUMENTS = re.compile(r"-{6,} (end of )?arguments -{6,}")
PADDED = "> padded vocab (size: "
"""Place in Megatron-LM's printed arguments, and its padding of the vocabulary."""

_NO_NUMBER = re.compile(r"\d{100}")
"""In a line that nothing is read of: no run counts so far."""

COLOUR = re.compile(r"\x1b\[[0-9;]*m")

OUT_OF_MEMORY = re.compile(
    r"(?:CUDA|HIP|XPU) out of memory|OutOfMemoryError|Cuda failure (?:\d+ )?'out of memory'"
    r"|(?i:resource[_ ]exhausted): .*(?:[Oo]ut of memory|[Ff]ailed to allocate)"
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
                if not _NO_NUMBER.search(plain):
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
        if (value := _value(said)) is not None:
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
            self.runtime = _number(match.group(1))

    def _fact(self, name: str, text: str) -> None:
        """Note a number; no run has 0 of anything, or a billion."""
        if value := whole_number(text.replace(",", "")):
            self.facts[name] = value

    def _memory(self, line: str) -> None:
        for index, (_, unit, pattern) in enumerate(PEAKS):
            for text in pattern.findall(line):
                self.peaks[index].append((self.lines, _number(text) * unit))
        if match := DELTAS.search(line):
            name, number, mebibytes = match.groups()
            self.deltas[name] = max(self.deltas.get(name, 0.0), float(number) * (MIB if mebibytes else 1.0))
        if OUT_OF_MEMORY.search(line):
            self.last_failure = self.lines

    def figures(self) -> LogFigures:
        """Figures of all lines together."""
        line, runs = self._runs()
        kept = _counting(runs, line)
        values = [value for run in kept for value in run.settled(line)]
        framework, says = (line.framework, line.says) if line else ("", "")
        if line is None and self.runtime and self.facts.get("steps"):
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

    def _runs(self) -> tuple[StepLine | None, list["_Run"]]:
        """The line that says how long steps took, and its readings by run; None: no line does."""
        for index, line in enumerate(STEPS):
            readings = self.steps.get(index, [])
            if line.says == "elapsed":
                readings = self._bar(readings, line)
            steps = {each.step for each in readings}
            if len(steps) > (1 if line.says == "clock" or line.common else 0):
                return line, _parted(readings, self.lines)
        return None, []

    def _bar(self, readings: Sequence[_Reading], line: StepLine) -> list[_Reading]:
        """Those of the progress bar of training; none where it may be that of something else."""
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
        begin: number of the last line of the run before.
        end: number of its last line.
        readings: its steps.
    """

    begin: int
    end: int
    readings: list[_Reading]

    def settled(self, line: StepLine | None) -> list[float]:
        """Figures of settled steps, the median over ranks."""
        if line is None:
            return []
        values: dict[int, list[float]] = defaultdict(list)
        batches = {each.step: each.batch for each in self.readings}
        for each in self.readings:
            values[each.step].append(each.value)
        last = batches[max(batches)]
        steps = [step for step in sorted(values) if batches[step] == last]  # A batch may be ramped up.
        settled = [(step, median(values[step])) for step in steps]
        if line.says in ("clock", "elapsed"):
            if line.says == "elapsed" and len(settled) == 1:
                settled = [(0, 0.0), *settled]
            spread = _spread_out(settled)
            settled = [(after, (end - begin) / (after - before)) for (before, begin), (after, end) in pairwise(spread)]
        left_out = -(-len(settled) // WARM_UP) if len(settled) > 1 else 0
        return [value for _, value in settled[left_out:] if value > 0] or [value for _, value in settled if value > 0]


def _parted(readings: Sequence[_Reading], lines: int) -> list[_Run]:
    """Runs of a log: one begins where the step falls by more than a line; a rank may be a line behind others."""
    runs: list[_Run] = []
    highest: list[int] = []  # The last two steps of the run, ascending.
    for each in readings:
        if not runs or (len(highest) > 1 and each.step < highest[0]):
            runs.append(_Run(runs[-1].end if runs else 0, lines, []))
            highest = []
        runs[-1].readings.append(each)
        runs[-1].end = each.line
        highest = sorted({*highest, each.step})[-2:]
    runs[-1].end = lines
    return runs


def _counting(runs: Sequence[_Run], line: StepLine | None) -> list[_Run]:
    """The last run of more than one line, and those before it of the same step time and batch."""
    if not runs:
        return []
    last = next((run for run in reversed(runs) if len(run.readings) > 1), runs[-1])
    time, batch = median(last.settled(line) or [0.0]), last.readings[-1].batch
    return [
        run
        for run in runs
        if run is last
        or (run.readings[-1].batch == batch and abs(median(run.settled(line) or [0.0]) - time) <= SAME * time)
    ]


def _spread_out(times: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Those of `times` that lie `APART` seconds apart, the first and the last among them."""
    spread = list(times[:1])
    for each in times[1:-1]:
        if each[1] >= spread[-1][1] + APART and each[1] + APART <= times[-1][1]:
            spread.append(each)
    return [*spread, *times[1:][-1:]]


def _value(said: Mapping[str, str | None]) -> float | None:
    """Seconds or tokens per second of a line; None: no month has its date."""
    if (clock := said.get("clock")) is not None:
        try:
            return datetime.strptime(f"{clock} +0000", "%Y-%m-%d %H:%M:%S,%f %z").timestamp()
        except ValueError:
            return None
    if (elapsed := said.get("elapsed")) is not None:
        seconds = sum(int(part) * 60**place for place, part in enumerate(reversed(elapsed.split(":"))))
        return float(int(said.get("days") or 0) * 86400 + seconds)
    if (milliseconds := said.get("milliseconds")) is not None:
        return _number(milliseconds) * THOUSANDS.get(said.get("scale") or "", 1.0) / 1000
    return _number(said.get("seconds") or said.get("tokens") or "0")


def _number(text: str) -> float:
    """The number; 0, as if nothing was said, where no quantity has so much or so little."""
    value = float(text.replace(",", ""))
    return value if SMALLEST <= value <= LARGEST else 0.0
