"""A replay in words and tables."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import isclose
from typing import Any

from nest.report.text.layout import WIDE, Screen, figures, paragraph, table
from nest.report.text.stage_tables import MOST_ROWS
from nest.spec import PlanDocument, StageRecord
from nest.tolerances import AGREEMENT
from nest.units import format_bytes, format_seconds

_REASONS = {
    "passes": "the schedule's weights fit passes of other shares of a stage's time than these have",
    "chunks": "chunks of a stage differ, and the schedule's weights take them to be alike",
    "stages": "stages differ, and the closed form sums up over all of them what fills and drains the pipeline",
}


def replay_text(replay: Mapping[str, Any], plan: PlanDocument, screen: Screen = WIDE) -> str:
    """A replay for people: `nest.simulate.replay.Replay.to_dict()` beside the plan that was replayed."""
    parts = [
        paragraph(_headline(replay, plan), screen),
        _figures(replay, plan, screen),
        _stages(replay, plan.stages, screen),
    ]
    above = _above_capacity(replay, plan)
    if above:
        parts.append(paragraph(above, screen))
    if replay["disturbed"] is not None:
        parts.append(_disturbed(replay, screen))
    return "\n\n".join(parts)


def _headline(replay: Mapping[str, Any], plan: PlanDocument) -> str:
    chunks = f" of {replay['chunks']} chunks" if replay["chunks"] > 1 else ""
    replicas = f"; one of {replay['replicas']} replicas, which are alike" if replay["replicas"] > 1 else ""
    return (
        f"Replay of {replay['schedule']}{chunks}: {len(plan.stages)} stages, {replay['micro_batches']} micro-batches"
        f"{replicas}"
    )


def _figures(replay: Mapping[str, Any], plan: PlanDocument, screen: Screen) -> str:
    whole, form, difference = replay["batch_time"], replay["closed_form"], replay["difference"]
    replayed = isclose(plan.batch_time or 0.0, whole, rel_tol=AGREEMENT)
    prices = (", the plan's price", "") if replayed else ("", ", the plan's price")
    rows = [("step time", format_seconds(whole) + prices[0]), ("closed form", format_seconds(form) + prices[1])]
    reasons = {name: difference[name] for name in _REASONS if difference[name]}
    if not reasons:
        rows.append(("difference", "none"))
    else:
        rows.append(("difference", f"the replay takes {_signed(difference['total'], form)}"))
        rows += [("", f"{_signed(seconds, form)}: {_REASONS[name]}") for name, seconds in reasons.items()]
    idle_share = plan.summary.get("idle_share")
    beside = f" ({idle_share:.1%} by the closed form)" if isinstance(idle_share, float) else ""
    rows.append(("idle share", f"{replay['idle_share']:.1%}{beside}"))
    traffic = [
        (seconds, number, level)
        for number, stage in enumerate(replay["stages"], 1)
        for level, seconds in enumerate(stage["traffic"] or ())
    ]
    if traffic and whole > 0:
        seconds, number, level = max(traffic, key=lambda each: each[0])
        share = f"{seconds / whole:.1%} of the batch"
        if plan.placement is None:
            rows.append(("busiest port", f"{share}, at level {level} on stage {number}"))
        else:
            rows.append(("busiest link", f"{share}, used by stage {number}"))
    return figures(rows, screen)


def _signed(seconds: float, whole: float) -> str:
    share = abs(seconds) / whole if whole > 0 else 0.0
    size = f"{share:.2%}" if share >= 5e-5 else "below 0.01%"
    return f"{format_seconds(abs(seconds))} {'more' if seconds > 0 else 'less'} ({size})"


def _stages(replay: Mapping[str, Any], records: Sequence[StageRecord], screen: Screen) -> str:
    waits = replay["disturbed"]["waits"] if replay["disturbed"] and replay["replicas"] > 1 else None
    rows = []
    for index, (stage, record) in enumerate(zip(replay["stages"], records, strict=True)):
        share = stage["idle"] / replay["batch_time"] if replay["batch_time"] > 0 else 0.0
        rows.append(
            [
                str(index + 1),
                format_seconds(stage["busy"]),
                format_seconds(stage["synchronisation"]),
                format_seconds(stage["idle"]),
                f"{share:.1%}",
                format_bytes(stage["memory_peak"]),
                format_bytes(record.memory),
                *([] if waits is None else [format_seconds(waits[index])]),
            ]
        )
    header = ["stage", "busy", "sync", "idle", "idle share", "memory peak", "in the plan"]
    if waits is not None:
        header.append("waits for replicas")
    if len(rows) > MOST_ROWS:
        rows = _merged(rows)
    return table(header, rows, tuple(range(1, len(header))), screen)


def _above_capacity(replay: Mapping[str, Any], plan: PlanDocument) -> str:
    """Which stages peak above what a device has although the plan fits; empty: none."""
    capacity = plan.summary.get("memory_capacity")
    if not isinstance(capacity, float) or not plan.fits:
        return ""
    most = capacity * (1 + AGREEMENT)
    above = [str(number) for number, stage in enumerate(replay["stages"], 1) if stage["memory_peak"] > most]
    if not above:
        return ""
    return (
        f"Memory peaks above the {format_bytes(capacity)} of a device on stage {', '.join(above)}: it holds two "
        "that differ, and the plan counts each as if it held it twice."
    )


def _merged(rows: Sequence[list[str]]) -> list[list[str]]:
    """Neighbours that show the same share a row."""
    merged = []
    for _, group in groupby(rows, key=lambda row: row[1:]):
        run = list(group)
        merged.append([run[0][0] if len(run) == 1 else f"{run[0][0]}-{run[-1][0]}", *run[0][1:]])
    return merged


def _disturbed(replay: Mapping[str, Any], screen: Screen) -> str:
    disturbed, planned = replay["disturbed"], replay["batch_time"]
    causes = [f"jitter {disturbed['jitter']:g} (seed {disturbed['seed']})"] if disturbed["jitter"] else []
    causes += [
        f"stage {each['stage']} of replica {each['replica']} computing {each['factor']:g} times as long"
        for each in disturbed["slow_devices"]
    ]
    runs = f", {disturbed['runs']} runs" if disturbed["runs"] > 1 else ""
    replicas = f", {replay['replicas']} replicas" if replay["replicas"] > 1 else ""
    lines = [paragraph(f"With {' and '.join(causes)}{replicas}{runs}:", screen)]
    if disturbed["runs"] == 1:
        took = f"{format_seconds(disturbed['mean'])}, {_signed(disturbed['mean'] - planned, planned)}"
        lines.append(figures([("step time", took)], screen))
        return "\n".join(lines)
    rows = [
        ("mean", disturbed["mean"]),
        *((f"{name} %", seconds) for name, seconds in disturbed["percentiles"].items()),
    ]
    lines.append(
        table(
            ("step time", "", "against the plan's replay"),
            [(name, format_seconds(seconds), _signed(seconds - planned, planned)) for name, seconds in rows],
            right=(1,),
            screen=screen,
        )
    )
    return "\n".join(lines)
