"""What training frameworks print of steps and memory, line by line."""

import re

from attrs import frozen

MIB, GIB, GB = 2.0**20, 2.0**30, 1e9
NUMBER = r"[\d.]+(?:[eE][-+]?\d+)?"


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
        """A line by its pattern, with `NUMBER` for a number."""
        return cls(framework, re.compile(pattern.replace("NUMBER", NUMBER)))

    @property
    def says(self) -> str:
        """What it says of time."""
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
    StepLine.of("torchtitan", r"(?<!validate )step: +(?P<step>\d+) .*?\b[tw]ps: +(?P<tokens>[\d,]+)"),
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
    r"(?:global[ _]batch[ _]size|Total train batch size \(w\. parallel, distributed & ?accumulation\))[ .:=]+([\d,]+)"
)
FACTS = {
    "sequence": re.compile(r"(?:sequence length|seq_length|max_target_length:?)[ .]+(\d+)"),
    "devices": re.compile(r"(?:world[ _]size[ .:]+|Num_devices: )(\d+)"),
    "steps": re.compile(r"Total optimization steps = ([\d,]+)"),
}
MESH = re.compile(r"device mesh with (?:\[[^\]]*\], \[([\d, ]+)\]|parallelism: ((?:\w+=\d+,? ?)+))")
RUNTIME = re.compile(rf"train_runtime['\"]?: ['\"]?({NUMBER})")
ARGUMENTS = re.compile(r"-{6,} (end of )?arguments -{6,}")
PADDED = "> padded vocab (size: "
"""Where Megatron-LM prints its arguments, and what it pads of the vocabulary."""

COLOUR = re.compile(r"\x1b\[[0-9;]*m")

OUT_OF_MEMORY = re.compile(
    r"(?:CUDA|HIP|XPU) out of memory|OutOfMemoryError|Cuda failure (?:\d+ )?'out of memory'"
    r"|(?i:resource[_ ]exhausted): .*(?:[Oo]ut of memory|[Ff]ailed to allocate)"
)
