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


@frozen
class StepLine:
    """A line that frameworks print every few steps.

    Attributes:
        framework: who prints it.
        pattern: it, with the number of the `step` where it has one, and what it says of time: `seconds`,
            `milliseconds`, `tokens` (per second and device), the time of day (`clock`), or that since the first step
            (`elapsed`).
    """

    framework: str
    pattern: re.Pattern[str]

    @classmethod
    def of(cls, framework: str, pattern: str) -> "StepLine":
        """A line by its pattern, with `NUMBER` for a number and `COUNT` for a whole one with commas."""
        return cls(framework, re.compile(pattern.replace("NUMBER", NUMBER).replace("COUNT", COUNT)))

    @property
    def says(self) -> str:
        """The log's statement of time."""
        return next(name for name in self.pattern.groupindex if name not in ("step", "of"))


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
    # Hugging Face Trainer: its progress bar.
    StepLine.of("Hugging Face Trainer", r"(?P<step>\d+)/(?P<of>\d+) \[(?P<elapsed>(?:\d+:)?\d+:\d\d)<"),
)
"""The first of these that a log has says how long its steps took."""

FRAMEWORKS = tuple(dict.fromkeys(line.framework for line in STEPS))

PEAKS = (
    # Megatron-LM, report_memory; Megatron-Bridge since 2025-10; NeMo 2; torchtitan.
    ("reserved", MIB, re.compile(rf"max reserved: ({NUMBER})")),
    ("reserved", GB, re.compile(rf"mem-max-reserved-gigabytes: *({NUMBER})")),
    ("reserved", 1.0, re.compile(r"(?:max_memory_reserved|peak_memory_usage): (\d+)")),
    ("reserved", GIB, re.compile(rf"\bm?memory: +({NUMBER})GiB")),
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


@define
class _LogReader:
    """Figures of the lines read so far.

    Attributes:
        steps: for each of `STEPS`, by step, what ranks say of it.
        batches: samples of a step, where its line says so.
        ends: steps of a progress bar in all, by step.
        peaks: most bytes, for each of `PEAKS`.
        deltas: most bytes, by name.
        facts: what the log says of the run, by name.
        arguments: lines in which Megatron-LM prints its arguments.
        printing: whether it has begun, and not ended, to print them.
        runtime: seconds of all steps.
        lines: how many were read.
        last_step: the line with the last step.
        last_failure: the line where memory last ran out.
    """

    steps: dict[int, dict[int, list[float]]] = field(factory=lambda: defaultdict(lambda: defaultdict(list)))
    batches: dict[int, int] = field(factory=dict)
    ends: dict[int, int] = field(factory=dict)
    peaks: dict[int, float] = field(factory=dict)
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
        if (value := _value(said)) is None:
            return
        self.steps[index][step].append(value)
        if has_batch:
            self.batches[step] = self.facts.get("batch", 0)
        if "of" in said:
            self.ends[step] = int(said["of"])

    def _arguments(self, line: str) -> None:
        ends = ARGUMENTS.search(line)
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
                self.peaks[index] = max(self.peaks.get(index, 0.0), _number(text) * unit)
        if match := DELTAS.search(line):
            name, number, mebibytes = match.groups()
            self.deltas[name] = max(self.deltas.get(name, 0.0), float(number) * (MIB if mebibytes else 1.0))
        if OUT_OF_MEMORY.search(line):
            self.last_failure = self.lines

    def figures(self) -> LogFigures:
        """Figures of all lines together."""
        framework, says, values = self._times()
        said = median(values) if values else None
        batch, sequence, devices = (self.facts.get(name) for name in ("batch", "sequence", "devices"))
        figures = LogFigures(
            framework,
            None if says == "tokens" else said,
            said if says == "tokens" else None,
            len(values),
            *self._peak(),
            self.last_failure > self.last_step,
            batch,
            sequence,
            devices,
            "".join(self.arguments),
        )
        if batch is None or sequence is None or devices is None:
            return figures
        return evolve(figures, seconds=figures.seconds_with(batch * sequence, devices))

    def _times(self) -> tuple[str, str, list[float]]:
        """Who wrote the log, what it says of time, and what that is for the settled steps."""
        index = next((index for index in range(len(STEPS)) if self._usable(index)), None)
        if index is not None:
            return STEPS[index].framework, STEPS[index].says, self._settled(index)
        if self.runtime and self.facts.get("steps"):
            return FRAMEWORKS[-1], "seconds", [self.runtime / self.facts["steps"]]
        return "", "", []

    def _usable(self, index: int) -> bool:
        """Return whether the lines of `STEPS[index]` say how long a step took."""
        values, kind = self.steps.get(index, {}), STEPS[index].says
        if kind == "elapsed":  # Other things have progress bars, too.
            trains = self.runtime is not None or "steps" in self.facts
            return trains and len(self._bar(values)) > 1
        return len(values) > (1 if kind == "clock" else 0)

    def _bar(self, values: Mapping[int, Sequence[float]]) -> list[int]:
        """Steps of the progress bar of training."""
        end = self.facts.get("steps") or max(self.ends.values(), default=0)
        return sorted(step for step in values if self.ends[step] == end)

    def _settled(self, index: int) -> list[float]:
        """Figures of settled steps, the median over ranks."""
        values, kind = self.steps[index], STEPS[index].says
        steps = self._bar(values) if kind == "elapsed" else sorted(values)
        last = self.batches.get(steps[-1])
        steps = [step for step in steps if self.batches.get(step) == last]  # A batch may be ramped up.
        settled = [(step, median(values[step])) for step in steps]
        if kind in ("clock", "elapsed"):
            spread = _spread_out(settled)
            settled = [(after, (end - begin) / (after - before)) for (before, begin), (after, end) in pairwise(spread)]
        left_out = -(-len(settled) // WARM_UP) if len(settled) > 1 else 0
        return [value for _, value in settled[left_out:] if value > 0] or [value for _, value in settled if value > 0]

    def _peak(self) -> tuple[float | None, str | None]:
        for index, (kind, _, _) in enumerate(PEAKS):
            if self.peaks.get(index):
                return self.peaks[index], kind
        if PEAK_DELTA in self.deltas and any(self.deltas.values()):
            return sum(self.deltas.values()), "allocated"
        return None, None


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
        return float(sum(int(part) * 60**place for place, part in enumerate(reversed(elapsed.split(":")))))
    if (milliseconds := said.get("milliseconds")) is not None:
        return _number(milliseconds) / 1000
    return _number(said.get("seconds") or said.get("tokens") or "0")


def _number(text: str) -> float:
    """The number; 0, as if nothing was said, where no quantity has so much or so little."""
    value = float(text.replace(",", ""))
    return value if SMALLEST <= value <= LARGEST else 0.0
