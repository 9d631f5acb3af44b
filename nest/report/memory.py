"""What the memory of a plan's stages is made of, as a table."""

from collections.abc import Sequence
from itertools import groupby

from attrs import asdict

from nest.report.screen import WIDE, Screen, Tone
from nest.report.table import table
from nest.spec import StageRecord
from nest.units import format_bytes

_NAMES = {"communication": "buffers", "activations": "activations in flight", "reserve": "reserve"}


def memory_table(stages: Sequence[StageRecord], most: int, capacity: float | None = None, screen: Screen = WIDE) -> str:
    """A row for each stage, or for the first of neighbours that are alike; parts that no stage has are left out.

    Args:
        stages: of a plan, in pipeline order.
        most: rows; of more stages than that, one stands for each run of neighbours with the same memory.
        capacity: bytes of a device; None: nobody knows.
        screen: where the table is shown.
    """
    told = [(index, stage, stage.memory_breakdown) for index, stage in enumerate(stages)]
    parts = [(index, stage, asdict(found)) for index, stage, found in told if found is not None]
    if not parts:
        return ""
    if len(parts) > most:
        runs = [list(run) for _, run in groupby(parts, key=lambda row: format_bytes(row[1].memory))]
    else:
        runs = [[row] for row in parts]
    names = [name for name in parts[0][2] if any(found[name] > 0 for _, _, found in parts)]
    rows: list[list[str]] = []
    tones: dict[tuple[int, int], Tone] = {}
    for run in runs:
        first, stage, found = run[0]
        place = f"{first + 1}-{run[-1][0] + 1}" if len(run) > 1 else str(first + 1)
        upper = stage.memory if stage.upper_memory is None else stage.upper_memory
        sizes = [*(found[name] for name in names), stage.memory, upper]
        for column in (len(sizes) - 1, len(sizes)):
            if capacity is not None and sizes[column - 1] > capacity:
                tones[len(rows), column] = Tone.BAD
        rows.append([place, *(format_bytes(size) for size in sizes)])
    header = ["stage", *(_NAMES.get(name, name) for name in names), "memory", "taken to need"]
    return table(header, rows, tuple(range(1, len(header))), screen, tones)
