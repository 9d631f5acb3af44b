"""Memory of stages over the batch, from a replay."""

from collections.abc import Sequence

import numpy
from attrs import frozen
from markupsafe import Markup

from nest.public.planning import Points, Replay
from nest.units import format_bytes, format_seconds
from nest_page.records import Cell, Drawing, Figure, Key, Table, alike
from nest_page.svg import WIDTHS, Scale, element, joined, number, text, time_axis
from nest_page.timeline_drawing import Room, Windows, breaks, room, window_scales

FINE, COARSE = 2, 4
"""Px of a part of the batch of which the most bytes are drawn, where there are few rows, and where there are many."""

FEW_ROWS = 12

FLAT = 0.25
"""Share of the capacity below which rows are not drawn up to it."""

HEADROOM = 0.8
"""Share of a row that the highest peak then takes."""

TOP = 6
TALL, LOW = 40, 18
"""Height of a row with its space where there are few stages, and where there are many, px."""


@frozen
class Peak:
    """The most bytes a stage holds, and the seconds from the beginning of the batch when it first does."""

    size: float
    time: float


def memory_over_time_figure(replay: Replay, windows: Windows, capacity: float, planned: Sequence[float]) -> Figure:
    """The figure: a row for every stage that the timeline shows, its peak marked, capacity as a line.

    Args:
        replay: of the plan, as planned.
        windows: of the batch, in the timeline.
        capacity: bytes of a device.
        planned: bytes that the plan counts for each stage.
    """
    peaks = tuple(
        Peak(most, max(points, key=lambda point: point[1])[0])
        for points, most in zip(replay.timeline.memory, replay.timeline.peaks, strict=True)
    )
    most = max(range(len(peaks)), key=lambda stage: peaks[stage].size)
    parts = " The same stages and parts of the batch are drawn as in the timeline." if windows.gaps else ""
    above = " The capacity is above the drawing." if _top(peaks, capacity) < capacity else ""
    caption = (
        f"What a device of each stage holds, against its capacity of {format_bytes(capacity)}. The most is "
        f"{format_bytes(peaks[most].size)}, on stage {most + 1} after {format_seconds(peaks[most].time)}; the plan "
        f"counts {format_bytes(planned[most])} there. Dots and numbers are the peaks of the whole batch.{above}{parts}"
    )
    return Figure(
        "memory-over-time",
        "Memory of each stage over time",
        caption,
        tuple((_drawing(replay, windows, peaks, capacity, width),) for width in WIDTHS),
        _table(replay, peaks, capacity, planned),
        (
            Key("bytes held", "held"),
            Key("peak", "peak", "circle"),
            *([] if above else [Key("capacity", "capacity-line", "line")]),
        ),
    )


def highest(points: Points, start: float, end: float, parts: int) -> tuple[float, ...]:
    """The most bytes in each of equal `parts` from `start` to `end`; points are seconds, and bytes from then on."""
    times = numpy.array([time for time, _ in points])
    sizes = numpy.array([size for _, size in points])
    edges = numpy.linspace(start, end, parts + 1)
    # What a part begins with was set by the last point up to its edge.
    first = numpy.searchsorted(times, edges[:-1], side="right") - 1
    last = numpy.searchsorted(times, edges[1:], side="left")
    return tuple(float(sizes[low : max(high, low + 1)].max()) for low, high in zip(first, last, strict=True))


def _drawing(replay: Replay, windows: Windows, peaks: Sequence[Peak], capacity: float, width: float) -> Drawing:
    around = room(width)
    scales = window_scales(windows, around)
    row = min(TALL, max(LOW, 420 // len(windows.stages)))
    bottom = TOP + row * len(windows.stages)
    top = _top(peaks, capacity)
    sizes = alike([format_bytes(peak.size) for peak in peaks], [peak.size for peak in peaks])
    body = [time_axis(scales, windows.windows[-1][1], TOP, bottom)]
    for index, stage in enumerate(windows.stages):
        up = Scale(0.0, top, TOP + (index + 1) * row - 2, TOP + index * row + 4)
        peak, points, middle = peaks[stage], replay.timeline.memory[stage], TOP + index * row + row / 2 + 5
        areas = "".join(
            _area(points, scale, up, FINE if len(windows.stages) <= FEW_ROWS else COARSE) for scale in scales
        )
        body += [
            element("path", d=areas, class_="held"),
            *_line(up, capacity, around),
            element("circle", cx=_across(peak.time, scales, around.gutter), cy=up(peak.size), r=2.5, class_="peak"),
            text(around.left - 8, middle, around.stage(stage), "tick", "end"),
            text(around.right + 4, middle, sizes[stage], "tick"),
        ]
    body += breaks(scales, around.gutter, TOP, bottom)
    description = (
        f"A row for each of {len(windows.stages)} stages: bytes held over time as an area, the peak as a dot with its "
        "size on the right, the capacity of a device as a dashed line where it is not far above. The table below has "
        "the peaks."
    )
    return Drawing(width, bottom + 30, joined(body), "Memory of stages over the batch", description)


def _top(peaks: Sequence[Peak], capacity: float) -> float:
    """Bytes up to which rows are drawn: the capacity, unless everything would then lie flat on the ground."""
    most = max(peak.size for peak in peaks)
    return max(most, capacity) if most >= FLAT * capacity else most / HEADROOM


def _line(up: Scale, capacity: float, around: Room) -> list[Markup]:
    """The capacity, if the drawing reaches it."""
    if capacity > up.high:
        return []
    return [
        element(
            "path", d=f"M{number(around.left)} {number(up(capacity))}H{number(around.right)}", class_="capacity-line"
        )
    ]


def _across(time: float, scales: Sequence[Scale], gutter: float) -> float:
    """Place of a time, px; times between windows lie in the gutter."""
    for scale in scales:
        if time < scale.low:
            return scale.start - gutter / 2
        if time <= scale.high:
            return scale(time)
    return scales[-1].end


def _area(points: Points, along: Scale, up: Scale, size: float) -> str:
    """The outline of steps of `size` px down to the base line."""
    count = max(1, round((along.end - along.start) / size))
    values = highest(points, along.low, along.high, count)
    edges = [along.start + (along.end - along.start) * index / count for index in range(count)]
    path, at = f"M{number(along.start)} {number(up.start)}", ""
    for edge, value in zip(edges, values, strict=True):
        if number(up(value)) != at:
            at = number(up(value))
            path += f"H{number(edge)}V{at}"
    return path + f"H{number(along.end)}V{number(up.start)}z"


def _table(replay: Replay, peaks: Sequence[Peak], capacity: float, planned: Sequence[float]) -> Table:
    rows = tuple(
        (
            Cell(str(index + 1), float(index + 1)),
            Cell.size(replay.timeline.memory[index][0][1]),
            Cell.size(peak.size),
            Cell.seconds(peak.time),
            Cell.share(peak.size / capacity if capacity else 0.0),
            Cell.size(counted),
        )
        for index, (peak, counted) in enumerate(zip(peaks, planned, strict=True))
    )
    header = ("stage", "at the beginning", "peak", "reached after", "share of capacity", "counted by the plan")
    return Table("Memory of stages in the replay", header, rows)
