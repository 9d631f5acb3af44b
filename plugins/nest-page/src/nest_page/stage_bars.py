"""Time and memory of each stage, as horizontal bars made of causes one after the other."""

from collections.abc import Callable, Mapping, Sequence

from attrs import asdict, frozen
from markupsafe import Markup

from nest.public.text import collectives_text, coverage_text, stage_seconds, time_shares
from nest.tolerances import AGREEMENT
from nest.units import format_bytes, format_seconds, percent
from nest_page.palette import cause_style, label_style
from nest_page.records import Cell, Drawing, Figure, Key, Subject, Table, alike
from nest_page.svg import NARROW, WIDTH, WIDTHS, Scale, bottom_axis, element, fits, joined, number, text, ticks

LEFT, RIGHT, TOP, BELOW = 48.0, 184.0, 28.0, 28.0
"""Room around the bars, px: for the names of stages, for totals, for the limit's name, for the axis."""

MARGIN, ABOVE = 16.0, 15.0
"""Room behind bars and above each, px, where the drawing is so narrow that totals stand above their bars."""

PX_PER_TICK = 100
"""Of the axis."""

TIME_CAUSES: Mapping[str, str] = {
    "compute": "compute",
    "collectives": "collectives",
    "recompute": "recomputation",
    "pipeline": "stage boundaries",
    "sharding": "ZeRO",
    "ports": "busy ports",
    "sync": "gradient sync",
    "bubble": "bubble: filling and draining",
    "waiting": "waiting for slower stages",
}
"""Causes of time in the order they are drawn, and what they are called."""

MEMORY_CAUSES: Mapping[str, str] = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "activations": "activations",
    "transient": "transient",
    "communication": "communication buffers",
    "framework": "driver and libraries",
    "fragmentation": "fragmentation",
    "reserve": "reserve",
}
"""Causes of memory in the order they are drawn, and what they are called (nest.spec.MemoryBreakdown)."""


@frozen
class Bar:
    """One stage.

    Attributes:
        name: of the stage, such as `7`.
        parts: sizes by cause, in the order they are drawn.
        total: what is said behind the bar.
        reach: how far a dashed box goes on behind the parts; None: there is none.
        alarm: whether what is said is bad news.
    """

    name: str
    parts: Mapping[str, float]
    total: str
    reach: float | None = None
    alarm: bool = False


@frozen
class Limit:
    """A line across all bars, where it stands and what it is."""

    value: float
    label: str


def stacked_bars(
    bars: Sequence[Bar],
    names: Mapping[str, str],
    formatted: Callable[[float], str],
    base: float = 10.0,
    limit: Limit | None = None,
    width: float = WIDTH,
) -> tuple[float, Markup]:
    """The height and the elements of a drawing.

    Args:
        bars: from top to bottom.
        names: of the causes.
        formatted: a size as people read it.
        base: of round sizes, see `ticks`.
        limit: the line across, if there is one.
        width: of the drawing, px.
    """
    # Many stages are drawn closer.
    step, thick = (30.0, 22.0) if len(bars) <= 24 else (20.0, 15.0) if len(bars) <= 48 else (14.0, 11.0)
    above = ABOVE if width < NARROW else 0.0
    step += above
    most = max([max(sum(bar.parts.values()), bar.reach or 0.0) for bar in bars] + ([limit.value] if limit else []))
    scale = Scale(0.0, most or 1.0, LEFT, width - (MARGIN if above else RIGHT))
    bottom = TOP + step * len(bars)
    labels = ticks(0.0, most, max(2, min(8, int((scale.end - LEFT) / PX_PER_TICK))), base)
    drawn = [bottom_axis(scale, labels, formatted, TOP, bottom), text(LEFT - 10, TOP - 8, "stage", "tick", "end")]
    for place, bar in enumerate(bars):
        drawn += _bar(
            bar, names, formatted, scale, TOP + step * place + above + (step - above - thick) / 2, thick, above
        )
    if limit is not None:
        x = scale(limit.value)
        drawn.append(element("path", d=f"M{number(x)} {number(TOP - 4)}V{number(bottom)}", class_="line strong"))
        drawn.append(text(x, TOP - 10, limit.label, "", "end" if x > width / 2 else "start"))
    return bottom + BELOW, joined(drawn)


def _bar(
    bar: Bar,
    names: Mapping[str, str],
    formatted: Callable[[float], str],
    scale: Scale,
    top: float,
    thick: float,
    above: float,
) -> list[Markup]:
    middle, small = top + thick / 2 + 4, "" if thick >= 15 else "small"
    drawn = [text(LEFT - 10, middle, bar.name, small, "end")]
    done = 0.0
    for cause, size in bar.parts.items():
        start, end = scale(done), scale(done + size)
        done += size
        if end - start < 0.05:
            continue
        label = formatted(size)
        title = element("title", f"{names[cause]}: {label}")
        drawn.append(
            element("rect", title, class_=f"part {cause_style(cause)}", x=start, y=top, width=end - start, height=thick)
        )
        if thick >= 15 and fits(label, end - start - 10, 11):
            drawn.append(_label((start + end) / 2, middle, label, label_style(cause)))
    if bar.reach is not None and scale(bar.reach) - scale(done) > 0.5:
        width = scale(bar.reach) - scale(done)
        drawn.append(element("rect", class_="line dashed", x=scale(done), y=top + 0.5, width=width, height=thick - 1))
    style = f"{small} alarm".strip() if bar.alarm else small
    if above:
        place = {"x": LEFT, "y": top - 4}
        drawn.append(element("text", bar.total, class_=f"{style} halo".strip(), paint_order="stroke", **place))
    else:
        drawn.append(text(scale.end + 12, middle, bar.total, style))
    return drawn


def _label(x: float, y: float, content: str, style: str) -> Markup:
    """A size inside a part; where the part is hatched, letters have a ground of their own."""
    if style:
        return text(x, y, content, f"inside {style}", "middle")
    # An attribute and no style: checkers of CSS know no `paint-order`.
    return element("text", content, x=x, y=y, class_="inside ground", text_anchor="middle", paint_order="stroke")


def time_causes(subject: Subject) -> tuple[dict[str, float], ...]:
    """Seconds of the batch by cause, for each stage; they add up to the step time on every stage.

    To `stage_seconds` comes, once per batch, gradient reduction and optimizer step. In the rest the stage is idle: in
    the bubble, as long on every stage, while the pipeline fills and drains, and else for slower stages and for those
    whose gradients take longer.
    """
    priced, result = subject.priced, []
    bubble = max(time_shares(priced)["bubble"], 0.0)
    for stage in priced.stages:
        causes = {**stage_seconds(stage, priced.micro_batches), "sync": stage.sync}
        idle = max(priced.batch_time - sum(causes.values()), 0.0)
        causes["bubble"] = min(bubble, idle)
        causes["waiting"] = idle - causes["bubble"]
        result.append(causes)
    return tuple(result)


def time_figure(subject: Subject) -> Figure:
    """Bars as long as the batch, each stage's time by cause."""
    whole = subject.batch_time
    stages = time_causes(subject)
    used = [cause for cause in TIME_CAUSES if any(parts[cause] > AGREEMENT * whole for parts in stages)]
    busy = [1 - (parts["bubble"] + parts["waiting"]) / whole if whole else 0.0 for parts in stages]
    bars = [
        Bar(str(index + 1), {cause: parts[cause] for cause in used}, f"{percent(share)} busy")
        for index, (parts, share) in enumerate(zip(stages, busy, strict=True))
    ]
    slowest = max(range(len(stages)), key=lambda index: subject.priced.stages[index].time)
    each = format_seconds(subject.priced.stages[slowest].time)
    slow = f"takes {each}" if len(stages) == 1 else f"is the slowest, {each}"
    description = f"Stage {slowest + 1} {slow} per micro-batch. {_busy(min(busy), max(busy), len(busy))}"

    def drawn(width: float) -> tuple[Drawing, ...]:
        height, body = stacked_bars(bars, TIME_CAUSES, format_seconds, width=width)
        return (Drawing(width, height, body, "Step time of each stage, by cause", description),)

    caption = (
        f"The batch of {format_seconds(whole)} as each stage spends it; every bar adds up to it. "
        + ("Communication that overlaps with compute is not counted. " if "collectives" in used else "")
        + (f"{inside}. " if (inside := collectives_text(subject.summary, whole)) else "")
        + (f"{measured} " if (measured := coverage_text(subject.summary)) else "")
        + (
            "Layers were measured whole: collectives inside them are part of compute. "
            if subject.formulation.pricing is None
            else ""
        )
        + description
    )
    header = ("stage", *(TIME_CAUSES[cause] for cause in used), "batch", "busy")
    rows = tuple(
        (Cell(str(index + 1)), *(Cell.seconds(parts[cause]) for cause in used), Cell.seconds(whole), Cell.share(share))
        for index, (parts, share) in enumerate(zip(stages, busy, strict=True))
    )
    keys = tuple(Key(TIME_CAUSES[cause], cause_style(cause)) for cause in used)
    table = Table("Step time by cause", header, rows)
    return Figure("time", "Time of each stage", caption, tuple(map(drawn, WIDTHS)), table, keys)


def _busy(least: float, most: float, stages: int) -> str:
    """Busy share of the batch over stages, in words."""
    low, high = f"{percent(least)}", f"{percent(most)}"
    if stages == 1:
        return f"It is busy for {high} of the batch."
    if low == high:
        return f"All are busy for {high} of the batch."
    return f"Stages are busy for {low} to {high} of the batch."


def memory_figure(subject: Subject) -> Figure:
    """Memory of every stage by cause against capacity, with what stages are taken to need."""
    stages, capacity = subject.priced.stages, subject.priced.device_memory
    parts = [asdict(stage.parts) for stage in stages]
    used = [cause for cause in MEMORY_CAUSES if any(bytes_by_cause[cause] > 0 for bytes_by_cause in parts)]
    margin = any(stage.upper_memory > stage.memory * (1 + AGREEMENT) for stage in stages)
    sizes = [*(stage.memory for stage in stages), *(stage.upper_memory for stage in stages)]
    totals = alike([format_bytes(size) for size in sizes], sizes)
    bars = [
        Bar(
            str(index + 1),
            {cause: bytes_by_cause[cause] for cause in used},
            total + (f" to {at_most}" if margin else ""),
            stage.upper_memory if margin else None,
            over,
        )
        for index, (stage, bytes_by_cause, over, total, at_most) in enumerate(
            zip(stages, parts, subject.priced.overfull, totals[: len(stages)], totals[len(stages) :], strict=True)
        )
    ]
    limit = Limit(capacity, f"capacity {format_bytes(capacity)}")
    fullest = max(range(len(stages)), key=lambda index: stages[index].upper_memory)
    verb = "needs" if len(stages) == 1 else "is the fullest:"
    needs = (
        f"Stage {fullest + 1} {verb} {format_bytes(stages[fullest].memory)} as estimated"
        + (f", {format_bytes(stages[fullest].upper_memory)} at most" if margin else "")
        + f", of the {format_bytes(capacity)} a device has."
    )
    over = [str(index + 1) for index, over in enumerate(subject.priced.overfull) if over]
    description = f"{needs} " + (f"Over capacity: stages {', '.join(over)}." if over else "Every stage fits.")

    def drawn(width: float) -> tuple[Drawing, ...]:
        height, body = stacked_bars(bars, MEMORY_CAUSES, format_bytes, 2.0, limit, width)
        return (Drawing(width, height, body, "Memory of a device of each stage, by cause", description),)

    caption = (
        "Memory of one device of each stage, by cause, against what a device has. "
        + ("The dashed box is the upper estimate, which has to fit. " if margin else "")
        + needs
    )
    header = ("stage", *(MEMORY_CAUSES[cause] for cause in used), "memory", "upper estimate", "of capacity")
    rows = tuple(
        (
            Cell(str(index + 1)),
            *(Cell.size(bytes_by_cause[cause]) for cause in used),
            Cell.size(stage.memory),
            Cell.size(stage.upper_memory),
            Cell.share(stage.upper_memory / capacity),
        )
        for index, (stage, bytes_by_cause) in enumerate(zip(stages, parts, strict=True))
    )
    keys = tuple(Key(MEMORY_CAUSES[cause], cause_style(cause)) for cause in used)
    table = Table("Memory of one device of each stage", header, rows)
    return Figure("memory", "Memory of each stage", caption, tuple(map(drawn, WIDTHS)), table, keys)
