"""The Pareto front: how fast plans are with fewer devices and with other memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import frozen
from markupsafe import Markup

from nest.units import format_bytes
from nest_page.palette import SERIES
from nest_page.records import Cell, Drawing, Figure, Key, Table
from nest_page.svg import FORMS, WIDTHS, Scale, bottom_axis, element, joined, left_axis, mark, number, text, ticks

if TYPE_CHECKING:
    from nest.public.questions import FrontierPoint

LEFT, BEHIND, TOP, BOTTOM = 64.0, 20.0, 30.0, 300.0
"""Margins of the drawing, px; names of marks stand above it, the axis below."""

PX_PER_TICK = 110
"""Of the axis of memory."""

MARGIN, ABOVE = 0.05, 0.15
"""Shares of the axes left free on either side of points, and above them for what is said of them."""


RING = 9.0
"""Radius of the circle around the plan's own mark, px."""

CAPACITY = 84.0
"""Half of the width of what the line of the capacity is called, and some space, px."""

OWN_NAME = 40.0
"""Half of the width of what that mark is called, and some space, px."""


@frozen
class OwnPlan:
    """Position of the plan itself.

    Attributes:
        memory: bytes that its devices must have.
        throughput: samples per second.
        capacity: bytes that a device of its problem has.
        fixed: its problem fixes decisions, which every plan then keeps.
    """

    memory: float
    throughput: float
    capacity: float
    fixed: bool = False


FIXED = " Decisions that the problem fixes are kept, also where with fewer devices others would fit."


def pareto_figure(points: Sequence[FrontierPoint], own: OwnPlan) -> Figure:
    """Throughput against memory, steps for every number of devices; points by falling devices, then falling memory."""
    none = [point for point in points if point.throughput is None]
    without = "".join(
        f" No plan fits {devices_text(*(each.devices for each in none if each.memory == memory))} of "
        f"{format_bytes(memory)}."
        for memory in dict.fromkeys(point.memory for point in none)
    )
    found_only = any(not point.proved for point in points)
    caption = (
        "The fastest plan within limits on devices and on the memory of each, which is what the plan needs, its margin "
        "included. To the right of a point, at least its speed is reached; to the left, its plan does not fit."
        f"{without}"
        + (FIXED if own.fixed else "")
        + (" Hollow points: the search ran out of time." if found_only else "")
    )
    return Figure(
        "frontier",
        "Throughput against memory and devices",
        caption,
        tuple((_drawing(points, own, width),) for width in WIDTHS),
        _table(points),
        tuple(Key(devices_text(devices), f"fill-{hue}", form) for devices, hue, form in _series(points)),
    )


def _series(points: Sequence[FrontierPoint]) -> list[tuple[int, str, str]]:
    """Numbers of devices with which some plan fits, with hue and mark."""
    counts = dict.fromkeys(point.devices for point in points)
    fitting = {point.devices for point in points if point.throughput is not None}
    return [
        (devices, SERIES[index % len(SERIES)], FORMS[index % len(FORMS)])
        for index, devices in enumerate(counts)
        if devices in fitting
    ]


def devices_text(*counts: int) -> str:
    """Numbers of devices in words: `8, 4 or 2 devices`."""
    *others, last = (f"{count:,}" for count in counts)
    return f"{', '.join(others)} or {last} devices" if others else "1 device" if last == "1" else f"{last} devices"


def _own_name(x: float, y: float) -> Markup:
    """Label of the plan's own mark: above it, since lines rise to a plan and go on to its right."""
    near = x - LEFT < OWN_NAME
    # An attribute and no style: checkers of CSS know no `paint-order`.
    return element(
        "text",
        "this plan",
        x=max(x - RING, LEFT + 4) if near else x,
        y=y - RING - 6,
        class_="halo",
        text_anchor=None if near else "middle",
        paint_order="stroke",
    )


def _drawing(points: Sequence[FrontierPoint], own: OwnPlan, width: float) -> Drawing:
    right = width - BEHIND
    memories = [*(point.memory for point in points if point.throughput is not None), own.memory, own.capacity]
    span = max(memories) - min(memories) or max(memories)
    across = Scale(max(min(memories) - MARGIN * span, 0.0), max(memories) + MARGIN * span, LEFT, right)
    fastest = max([own.throughput, *(point.throughput or 0.0 for point in points)])
    up = Scale(0.0, fastest * (1 + ABOVE) or 1.0, BOTTOM, TOP)
    has = f"devices have {format_bytes(own.capacity)}"
    body = [
        left_axis(up, ticks(0.0, up.high, 5), lambda value: f"{value:.4g}", LEFT, right),
        bottom_axis(
            across,
            ticks(across.low, across.high, max(2, min(8, int((right - LEFT) / PX_PER_TICK))), 2.0),
            format_bytes,
            TOP,
            BOTTOM,
        ),
        text(0, TOP - 14, "samples/s", "tick"),
        text(right, BOTTOM + 34, "memory of a device", "tick", "end"),
        element("path", d=f"M{number(across(own.capacity))} {TOP}V{BOTTOM}", class_="line dashed"),
        text(min(max(across(own.capacity), LEFT + CAPACITY), right - CAPACITY), TOP - 6, has, "tick", "middle"),
    ]
    series = _series(points)
    for devices, hue, form in series:
        front = sorted(
            (each for each in points if each.devices == devices and each.throughput is not None),
            key=lambda each: each.memory,
        )
        body += _line(front, across, up, hue, form)
    body.append(element("circle", cx=across(own.memory), cy=up(own.throughput), r=RING, class_="own"))
    body.append(_own_name(across(own.memory), up(own.throughput)))
    description = (
        f"Throughput over the memory of a device, a line of steps for each of {len(series)} numbers of devices: "
        + "; ".join(_described(points, devices) for devices in dict.fromkeys(point.devices for point in points))
        + f". This plan is circled: {own.throughput:.4g} samples/s with {format_bytes(own.memory)}."
    )
    return Drawing(width, BOTTOM + 44, joined(body), "Throughput against memory and devices", description)


def _described(points: Sequence[FrontierPoint], devices: int) -> str:
    speeds = [each.throughput for each in points if each.devices == devices and each.throughput is not None]
    if not speeds:
        return f"{devices_text(devices)}, none fits"
    return f"{devices_text(devices)}, {min(speeds):.4g} to {max(speeds):.4g} samples/s"


def _line(points: Sequence[FrontierPoint], across: Scale, up: Scale, hue: str, form: str) -> list[Markup]:
    """Steps from the plan that needs the least memory to the end of the axis, and a mark for every plan."""
    steps = f"M{number(across(points[0].memory))} {number(up(points[0].throughput or 0.0))}"
    for point in points[1:]:
        steps += f"H{number(across(point.memory))}V{number(up(point.throughput or 0.0))}"
    return [
        element("path", d=f"{steps}H{number(across.end)}", class_=f"series line-{hue}"),
        *(
            mark(
                form,
                across(point.memory),
                up(point.throughput or 0.0),
                f"fill-{hue}" if point.proved else f"hollow line-{hue}",
            )
            for point in points
        ),
    ]


def _table(points: Sequence[FrontierPoint]) -> Table:
    header = ("devices at most", "memory", "samples/s", "step time", "devices used", "plan", "standing")
    return Table("The fastest plans within limits", header, tuple(map(_row, points)), words=(0, 5, 6))


def _row(point: FrontierPoint) -> tuple[Cell, ...]:
    limits = (Cell(f"{point.devices:,}", float(point.devices)), Cell.size(point.memory))
    if point.throughput is None or point.batch_time is None or point.devices_used is None:
        return (*limits, Cell("none fits"), Cell(""), Cell(""), Cell(""), Cell(""))
    return (
        *limits,
        Cell(f"{point.throughput:.4g}", point.throughput),
        Cell.seconds(point.batch_time),
        Cell(f"{point.devices_used:,}", float(point.devices_used)),
        Cell(point.label or ""),
        Cell(_point_status(point)),
    )


def _point_status(point: FrontierPoint) -> str:
    """Say if fewer devices or less memory would do, and if that is proved."""
    return ("Pareto-optimal" if point.efficient else "no faster than with less") + (
        "" if point.proved else ", not proved"
    )
