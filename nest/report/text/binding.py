"""What a plan runs into, as figures beside their names."""

from collections.abc import Iterator, Mapping
from typing import Any

from nest.report.decisions import counted, decision_text, ranges
from nest.report.plan_summary import SHARE_NAMES
from nest.report.text.layout import Screen, Tone, figures
from nest.report.text.summary import MEMORY_NAMES
from nest.units import format_bytes, format_seconds

Finding = Mapping[str, Any]
"""What `nest.whatif.binding` says of one resource."""

Row = tuple[str, str]

NOTICEABLE = 5e-4
"""Shares of the step time below this are left out: they would be shown as 0.0%."""


def binding_text(binding: list[Finding], screen: Screen) -> str:
    """What `nest.whatif.binding` found, the most important first."""
    rows = [row for each in binding for row in _ROWS[each["name"]](each)]
    tones = {0: Tone.BAD} if any(each["name"] == "memory" and each["free"] < 0 for each in binding) else {}
    return figures(rows, screen, indent=2, tones=tones)


def _memory(each: Finding) -> Iterator[Row]:
    share, others = each["upper"] / each["capacity"], len(each["stages"]) - 1
    room = "are free" if each["free"] >= 0 else "too much"
    many = f"; {counted(others, 'other stage')} within 1% of that" if others else ""
    needs = f"{format_bytes(each['upper'])} of {format_bytes(each['capacity'])} ({share:.1%})"
    likely = "" if each["likely"] is None else f"; {each['likely']:.0%} likely to fit"
    free = f"{format_bytes(abs(each['free']))} {room}"
    yield "memory", f"stage {each['stage']} is taken to need {needs}, {free}{many}{likely}"
    parts = sorted(each["parts"].items(), key=lambda part: -part[1])
    sizes = ", ".join(f"{MEMORY_NAMES.get(name, name)} {format_bytes(size)}" for name, size in parts)
    in_flight = f"{counted(each['in_flight'], 'micro-batch', 'es')} in flight, recompute {each['recompute']}"
    yield "", f"{format_bytes(each['expected'])} are estimated" + (f": {sizes}; {in_flight}" if parts else "")


def _slowest(each: Finding) -> Iterator[Row]:
    text = f"stage {each['stage']} ({ranges(each['layers'])}), {format_seconds(each['time'])} a micro-batch"
    if each["uneven_share"] >= NOTICEABLE:
        text += f"; stages of equal length would save up to {each['uneven_share']:.1%} of the step time"
    yield "slowest stage", text
    shares = sorted(each["shares"].items(), key=lambda share: -share[1])
    yield "step time", ", ".join(f"{SHARE_NAMES[name]} {share:.1%}" for name, share in shares if share >= NOTICEABLE)


def _idle(each: Finding) -> Iterator[Row]:
    chunks = f" of {each['chunks']} chunks" if (each["chunks"] or 1) > 1 else ""
    yield (
        "idle share",
        f"{each['share']:.1%} of the step time, on average over the stages: {counted(each['stages'], 'stage')}, "
        f"{counted(each['micro_batches'], 'micro-batch', 'es')}, schedule {each['schedule']}{chunks}",
    )


def _boundaries(each: Finding) -> Iterator[Row]:
    level = f" over {each['level']}" if each["level"] is not None else ""
    yield (
        "stage boundaries",
        f"{each['share']:.1%} of the step time; at most {format_bytes(each['bytes'])} a device and micro-batch{level}",
    )


def _exchange(each: Finding) -> Iterator[Row]:
    sharding = each["sharding_share"]
    beside = f", and {SHARE_NAMES['sharding']} {sharding:.1%}" if sharding >= NOTICEABLE else ""
    zero = decision_text("zero", each["zero"])
    yield (
        "data parallelism",
        f"{counted(each['replicas'], 'replica')}, {zero}: {SHARE_NAMES['sync']} on stage {each['stage']} "
        f"{format_seconds(each['time'])} a step ({each['share']:.1%}){beside}",
    )


def _batch(each: Finding) -> Iterator[Row]:
    copies = each["samples"] // each["micro_batch"] if each["micro_batch"] else 1
    product = [
        counted(each["replicas"], "replica"),
        counted(each["micro_batches"], "micro-batch", "es"),
        *([f"{copies} copies"] if copies > 1 else []),
        counted(each["micro_batch"], "sample"),
    ]
    padding = f", {each['padding']} of them padding" if each["padding"] > 0 else ""
    yield "batch", f"{counted(each['global_batch'], 'sample')} are {' x '.join(product)}{padding}"


def _devices(each: Finding) -> Iterator[Row]:
    idle = each["of"] - each["used"]
    yield "devices", f"{each['used']} of {each['of']} used" + (f", {idle} idle" if idle else "")


_ROWS = {
    "memory": _memory,
    "slowest stage": _slowest,
    "idle": _idle,
    "boundaries": _boundaries,
    "data parallelism": _exchange,
    "batch": _batch,
    "devices": _devices,
}
