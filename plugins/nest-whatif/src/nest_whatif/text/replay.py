"""A replay in words and tables."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import isclose
from typing import Any

from nest.public.changes import MOST_ROWS
from nest.public.layout import WIDE, Screen, figures, paragraph, table
from nest.public.text import counted
from nest.spec import PlanDocument, StageRecord
from nest.tolerances import AGREEMENT
from nest.units import format_bytes, format_seconds, percent

_REASONS = {
    "passes": "forward and backward passes differ from the formula's ratio",
    "chunks": "chunks of a stage differ; the formula assumes equal ones",
    "stages": "stages differ; the formula adds up warm-up and drain of all of them",
}


def replay_text(replay: Mapping[str, Any], plan: PlanDocument, screen: Screen = WIDE) -> str:
    """Describe a replay (`nest.simulate.replay.Replay.to_dict()`) beside its plan."""
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
    chunks = f", {replay['chunks']} chunks per stage" if replay["chunks"] > 1 else ""
    replicas = f"; one of {replay['replicas']} equal replicas" if replay["replicas"] > 1 else ""
    return (
        f"Simulation ({replay['schedule']}{chunks}): {counted(len(plan.stages), 'stage')}, "
        f"{counted(replay['micro_batches'], 'micro-batch', 'es')}"
        f"{replicas}"
    )


def _figures(replay: Mapping[str, Any], plan: PlanDocument, screen: Screen) -> str:
    whole, form, difference = replay["batch_time"], replay["closed_form"], replay["difference"]
    replayed = isclose(plan.batch_time or 0.0, whole, rel_tol=AGREEMENT)
    prices = (" (in the plan)", "") if replayed else ("", " (in the plan)")
    rows = [("step time", format_seconds(whole) + prices[0]), ("formula", format_seconds(form) + prices[1])]
    reasons = {name: difference[name] for name in _REASONS if difference[name]}
    if not reasons:
        rows.append(("difference", "none"))
    else:
        rows.append(("difference", f"the simulation takes {_signed(difference['total'], form)}"))
        rows += [("", f"{_signed(seconds, form)}: {_REASONS[name]}") for name, seconds in reasons.items()]
    idle_share = plan.summary.get("idle_share")
    beside = f" ({percent(idle_share)} by the formula)" if isinstance(idle_share, float) else ""
    rows.append(("idle share", f"{percent(replay['idle_share'])}{beside}"))
    traffic = [
        (seconds, number, level)
        for number, stage in enumerate(replay["stages"], 1)
        for level, seconds in enumerate(stage["traffic"] or ())
    ]
    if traffic and whole > 0:
        seconds, number, level = max(traffic, key=lambda each: each[0])
        share = f"{percent(seconds / whole)} of the step"
        if plan.placement is None:
            rows.append(("busiest port", f"{share}, at level {level} on stage {number}"))
        else:
            rows.append(("busiest link", f"{share}, used by stage {number}"))
    return figures(rows, screen)


def _signed(seconds: float, whole: float) -> str:
    share = abs(seconds) / whole if whole > 0 else 0.0
    return f"{format_seconds(abs(seconds))} {'more' if seconds > 0 else 'less'} ({percent(share)})"


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
                percent(share),
                format_bytes(stage["memory_peak"]),
                format_bytes(record.memory),
                *([] if waits is None else [format_seconds(waits[index])]),
            ]
        )
    header = ["stage", "busy", "sync", "idle", "idle share", "memory peak", "planned"]
    if waits is not None:
        header.append("waits for replicas")
    if len(rows) > MOST_ROWS:
        rows = _merged(rows)
    return table(header, rows, tuple(range(1, len(header))), screen)


def _above_capacity(replay: Mapping[str, Any], plan: PlanDocument) -> str:
    """Name the stages that peak above a device's memory although the plan fits; empty: none."""
    capacity = plan.summary.get("memory_capacity")
    if not isinstance(capacity, float) or not plan.fits:
        return ""
    most = capacity * (1 + AGREEMENT)
    above = [str(number) for number, stage in enumerate(replay["stages"], 1) if stage["memory_peak"] > most]
    if not above:
        return ""
    return (
        f"Simulated memory exceeds the {format_bytes(capacity)} of a device on stage {', '.join(above)}: its two "
        "stages differ, and the formula assumes equal ones."
    )


def _merged(rows: Sequence[list[str]]) -> list[list[str]]:
    merged = []
    for _, group in groupby(rows, key=lambda row: row[1:]):
        run = list(group)
        merged.append([run[0][0] if len(run) == 1 else f"{run[0][0]}-{run[-1][0]}", *run[0][1:]])
    return merged


def _disturbed(replay: Mapping[str, Any], screen: Screen) -> str:
    disturbed, planned = replay["disturbed"], replay["batch_time"]
    causes = [f"jitter {disturbed['jitter']:g} (seed {disturbed['seed']})"] if disturbed["jitter"] else []
    causes += [
        f"stage {each['stage']} of replica {each['replica']} slowed {each['factor']:g}x"
        for each in disturbed["slow_devices"]
    ]
    runs = f", {disturbed['runs']} runs" if disturbed["runs"] > 1 else ""
    replicas = f", {replay['replicas']} replicas" if replay["replicas"] > 1 else ""
    lines = [paragraph(f"With {' and '.join(causes)}{replicas}{runs}:", screen)]
    if disturbed["runs"] == 1:
        took = f"{format_seconds(disturbed['mean'])}, {_signed(disturbed['mean'] - planned, planned)} than planned"
        lines.append(figures([("step time", took)], screen))
        return "\n".join(lines)
    rows = [
        ("mean", disturbed["mean"]),
        *((f"{name} %", seconds) for name, seconds in disturbed["percentiles"].items()),
    ]
    lines.append(
        table(
            ("step time", "", "against the plan"),
            [(name, format_seconds(seconds), _signed(seconds - planned, planned)) for name, seconds in rows],
            right=(1,),
            screen=screen,
        )
    )
    return "\n".join(lines)
