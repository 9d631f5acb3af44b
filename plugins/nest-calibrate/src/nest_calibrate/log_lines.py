"""Lines that training frameworks print on steps, memory and the run."""

import re
from collections.abc import Mapping
from datetime import datetime

from attrs import frozen

from nest.units import LARGEST, SMALLEST

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
        "LLaMA-Factory", r'"current_steps": (?P<step>\d+), "total_steps": (?P<of>\d+).*?"elapsed_time": "CLOCK"'
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
"""Parts of the tensors' peak in Hugging Face's Trainer (trainer_utils.py, TrainerMemoryTracker), which is their sum."""

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

NO_NUMBER = re.compile(r"\d{100}")
"""In a line that nothing is read of: no run counts so far."""

COLOUR = re.compile(r"\x1b\[[0-9;]*m")

OUT_OF_MEMORY = re.compile(
    r"(?:CUDA|HIP|XPU) out of memory|OutOfMemoryError|Cuda failure (?:\d+ )?'out of memory'"
    r"|(?i:resource[_ ]exhausted): .*(?:[Oo]ut of memory|[Ff]ailed to allocate)"
)


def value_of(said: Mapping[str, str | None]) -> float | None:
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
        return number(milliseconds) * THOUSANDS.get(said.get("scale") or "", 1.0) / 1000
    return number(said.get("seconds") or said.get("tokens") or "0")


def number(text: str) -> float:
    """The number; 0, as if nothing was said, where no quantity has so much or so little."""
    value = float(text.replace(",", ""))
    return value if SMALLEST <= value <= LARGEST else 0.0
