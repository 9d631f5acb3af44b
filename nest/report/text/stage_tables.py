"""Tables of a plan's stages: work, time, and parts of memory."""

from collections.abc import Callable, Sequence
from itertools import groupby
from math import inf

from attrs import asdict

from nest.deployment.deployment import chunks_of_stages
from nest.instance import recompute_words
from nest.report.decisions import chunk_ranges, is_mixed
from nest.report.plan_summary import level_name, memory_capacity, upper_memory
from nest.report.text.layout import Screen, Tone, table
from nest.spec import PlanDocument, StageRecord
from nest.units import format_bytes, format_seconds, percent

MOST_ROWS = 24  # Most stages shown one by one; of more, neighbours that are alike share a row.

MEMORY_NAMES = {"communication": "buffers", "activations": "activations"}
"""Words for parts of memory with other names in `MemoryBreakdown`."""

FEW_NAMES = 2  # Most devices of a network named one by one in a table.


def stage_table(plan: PlanDocument, screen: Screen) -> str:
    """Return a row for each stage, or for neighbours that are alike if there are many."""
    runs = _runs(plan) if len(plan.stages) > MOST_ROWS else [[index] for index in range(len(plan.stages))]
    held = chunks_of_stages(plan)
    rows = [_row(plan, [plan.stages[index] for index in run], _devices(plan, run)) for run in runs]
    for run, row in zip(runs, rows, strict=True):
        row[:0] = [_numbers(run), chunk_ranges([held[index] for index in run])]
    header = [
        "stage", "layers", "devices", "recompute", "ZeRO", "time", "sync", "memory", "of capacity", "link behind",
    ]  # fmt: skip
    pooled = any(stage.pool is not None for stage in plan.stages)
    for column in ("candidate",) * is_mixed(plan) + ("pool",) * pooled:
        header.insert(2, column)
        for run, row in zip(runs, rows, strict=True):
            row.insert(2, str(getattr(plan.stages[run[0]], column)))
    first, memory = header.index("ZeRO"), header.index("memory")
    overfull = [stage.memory > (_capacity(plan, stage) or inf) for stage in plan.stages]
    full = [index for index, run in enumerate(runs) if any(overfull[each] for each in run)]
    tones = {(index, column): Tone.BAD for index in full for column in (memory, memory + 1)}
    return table(header, rows, range(first, first + 5), screen, tones)


def _capacity(plan: PlanDocument, stage: StageRecord) -> float | None:
    return memory_capacity(plan.summary, stage.pool)


def _runs(plan: PlanDocument) -> list[list[int]]:
    """Group neighbouring stages with the same kinds and numbers of layers and the same choices, by index."""
    keys = [
        (
            tuple(tuple(name.rpartition(".")[0] or name for name in chunk) for chunk in chunks),
            stage.candidate,
            stage.recompute_name,
            stage.zero,
        )
        for stage, chunks in zip(plan.stages, chunks_of_stages(plan), strict=True)
    ]
    return [list(run) for _, run in groupby(range(len(keys)), key=keys.__getitem__)]


def _devices(plan: PlanDocument, run: list[int]) -> str:
    """Name the first and the last device of neighbouring stages in the first replica."""
    if plan.placement is not None:
        blocks = plan.placement.replicas[0]
        names = [name for index in run for name in blocks[index]]
        return ", ".join(names) if len(names) <= FEW_NAMES else f"{names[0]}, ..., {names[-1]}"
    stages = [plan.stages[index] for index in run]
    first, last = stages[0].devices[0], stages[-1].devices[0] + stages[-1].devices[1] - 1
    return f"{first}-{last}" if last > first else str(first)


def _row(plan: PlanDocument, stages: list[StageRecord], devices: str) -> list[str]:
    """Return the cells after numbers and layers."""
    links = dict.fromkeys(level_name(plan.summary, stage.pool, stage.level_out) for stage in stages)
    shares = [stage.memory / (_capacity(plan, stage) or 1.0) for stage in stages]
    return [
        devices,
        recompute_words(stages[0].recompute_name),
        str(stages[0].zero),
        _span([stage.time for stage in stages], format_seconds),
        _span([stage.sync_time for stage in stages], format_seconds),
        _span([stage.memory for stage in stages], format_bytes),
        _span(shares, lambda share: f"{percent(share)}") if _capacity(plan, stages[0]) else "",
        ", ".join(links),
    ]


def _numbers(run: Sequence[int]) -> str:
    """Return the numbers of a run's stages, counted from 1."""
    return f"{run[0] + 1}-{run[-1] + 1}" if len(run) > 1 else str(run[0] + 1)


def _span(values: list[float], formatted: Callable[[float], str]) -> str:
    least, most = formatted(min(values)), formatted(max(values))
    return least if least == most else f"{least} to {most}"


def memory_table(plan: PlanDocument, screen: Screen) -> str:
    """Return the parts of memory, a row for each stage, or for neighbours with the same memory if there are many.

    Parts that no stage has, and margins of 0, are left out. "": plans of older versions do not state them.
    """
    stages = plan.stages
    parts = {index: asdict(stage.memory_breakdown) for index, stage in enumerate(stages) if stage.memory_breakdown}
    if not parts:
        return ""
    runs = [[index] for index in parts]
    if len(parts) > MOST_ROWS:
        runs = [list(run) for _, run in groupby(parts, key=lambda index: format_bytes(stages[index].memory))]
    names = [name for name in next(iter(parts.values())) if any(each[name] > 0 for each in parts.values())]
    upper = any(upper_memory(stages[index]) > stages[index].memory for index in parts)
    rows: list[list[str]] = []
    tones: dict[tuple[int, int], Tone] = {}
    for run in runs:
        stage = stages[run[0]]
        sizes = [*(parts[run[0]][name] for name in names), *(stage.memory, upper_memory(stage))[: 1 + upper]]
        for column in range(len(names) + 1, len(sizes) + 1):
            if (capacity := _capacity(plan, stage)) is not None and sizes[column - 1] > capacity:
                tones[len(rows), column] = Tone.BAD
        rows.append([_numbers(run), *map(format_bytes, sizes)])
    header = ["stage", *(MEMORY_NAMES.get(name, name) for name in names), *("memory", "upper estimate")[: 1 + upper]]
    return table(header, rows, range(1, len(header)), screen, tones)
