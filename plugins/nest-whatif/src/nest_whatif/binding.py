"""Limits of a plan, from its own figures: memory, slowest stage, idle stages, communication, batch, devices."""

from typing import Any

from attrs import asdict, frozen

from nest.deployment import deployment
from nest.hooks.pipelines import schedule_of
from nest.hooks.registry import Registry
from nest.instance import weights_of
from nest.public.changes import upper_memory
from nest.public.text import level_name, memory_capacity
from nest.spec import PlanDocument

ALIKE = 0.01  # Share of the largest figure within which stages are reported with it.


@frozen
class Binding:
    """One limit of a plan."""

    # `memory`, `recomputation`, `slowest stage`, `idle`, `boundaries`, `data parallelism`, `batch` or `devices`.
    name: str
    figures: dict[str, Any]  # By name; times in seconds, sizes in bytes, shares of the step time. Stages count from 1.


def binding(plan: PlanDocument, known: Registry) -> tuple[Binding, ...]:
    """Limits of a plan with a `summary`; empty for an infeasible one, whose diagnosis tells."""
    if plan.status == "infeasible" or plan.batch_time is None:
        return ()
    bindings = [_memory(plan), _slowest(plan, plan.batch_time, known)]
    if len(plan.stages) > 1:
        bindings += [_idle(plan), _boundaries(plan, plan.batch_time)]
    devices = Binding("devices", {"used": plan.summary["devices_used"], "of": plan.summary["devices"]})
    return (*bindings, _exchange(plan, plan.batch_time), _batch(plan), devices)


def _memory(plan: PlanDocument) -> Binding:
    needs = [upper_memory(stage) for stage in plan.stages]
    capacities = [
        memory_capacity(plan.summary, stage.pool) or need for stage, need in zip(plan.stages, needs, strict=True)
    ]
    fullest = max(range(len(needs)), key=lambda index: needs[index] / capacities[index])
    stage, capacity = plan.stages[fullest], capacities[fullest]
    parts = {} if stage.memory_breakdown is None else asdict(stage.memory_breakdown)
    figures = {
        "stage": fullest + 1,
        "stages": _alike([need / capacity for need, capacity in zip(needs, capacities, strict=True)]),
        "upper": needs[fullest],
        "expected": stage.memory,
        "capacity": capacity,
        "likely": None if "profile" in plan.problem else plan.fit_probability,
        "free": capacity - needs[fullest],
        "in_flight": stage.in_flight,
        "recompute": stage.recompute_name,
        "parts": {name: size for name, size in parts.items() if size > 0},
    }
    return Binding("memory", figures)


def _slowest(plan: PlanDocument, batch_time: float, known: Registry) -> Binding:
    times = [stage.time for stage in plan.stages]
    slowest, mean = max(times), sum(times) / len(times)
    shares = {name: seconds / batch_time for name, seconds in plan.summary["time_shares"].items()}
    figures = {
        "stage": times.index(slowest) + 1,
        "stages": _alike(times),
        "time": slowest,
        "mean": mean,
        "uneven_share": _times_slowest(plan, known) * (slowest - mean) / batch_time,
        "layers": list(plan.stages[times.index(slowest)].layers),
        "shares": shares,
    }
    return Binding("slowest stage", figures)


def _times_slowest(plan: PlanDocument, known: Registry) -> float:
    """Weight of the slowest stage in the step time: `A` of PROBLEM.md section 4."""
    return weights_of(schedule_of(plan, known), plan.micro_batches or 1, len(plan.stages)).slowest


def _idle(plan: PlanDocument) -> Binding:
    figures = {
        "share": plan.summary["idle_share"],
        "stages": len(plan.stages),
        "chunks": plan.chunks,
        "micro_batches": plan.micro_batches,
        "schedule": plan.schedule,
    }
    return Binding("idle", figures)


def _boundaries(plan: PlanDocument, batch_time: float) -> Binding:
    outermost = max(plan.stages, key=lambda stage: stage.level_out)
    figures = {
        "share": plan.summary["time_shares"]["pipeline"] / batch_time,
        "level": None if outermost.level_out < 0 else level_name(plan.summary, outermost.pool, outermost.level_out),
        "bytes": max((stage.bytes_out or 0.0) for stage in plan.stages),
    }
    return Binding("boundaries", figures)


def _exchange(plan: PlanDocument, batch_time: float) -> Binding:
    times = [stage.sync_time for stage in plan.stages]
    shares = plan.summary["time_shares"]
    figures = {
        "stage": times.index(max(times)) + 1,
        "time": max(times),
        "share": shares["sync"] / batch_time,
        "sharding_share": shares["sharding"] / batch_time,
        "replicas": plan.data_parallel,
        "zero": sorted({stage.zero for stage in plan.stages}),
    }
    return Binding("data parallelism", figures)


def _batch(plan: PlanDocument) -> Binding:
    shape = deployment(plan)
    samples = 1 if plan.candidate is None else plan.candidate.samples
    samples_used = shape.replicas * shape.micro_batches * samples
    figures = {
        "global_batch": shape.global_batch,
        "replicas": shape.replicas,
        "micro_batch": shape.micro_batch,
        "samples": samples,
        "micro_batches": shape.micro_batches,
        "padding": samples_used - shape.global_batch,
    }
    return Binding("batch", figures)


def _alike(values: list[float]) -> list[int]:
    """Stages, counted from 1, with about the largest value."""
    largest = max(values)
    return [index + 1 for index, value in enumerate(values) if value >= largest * (1 - ALIKE)]
