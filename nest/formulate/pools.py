"""Clusters of several kinds of device, and plans on one of them (PROBLEM.md section 8)."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve

from nest.deployment import Limits
from nest.errors import InputError
from nest.formulate.cluster import as_measured, build_pools, described
from nest.formulate.risk import with_memory_risk
from nest.formulate.stack import data_parallel_exposure
from nest.hooks.protocols import Exporter
from nest.hooks.registry import Registry
from nest.instance import Pool, Pools, chunks_of, copies_of
from nest.instance.schedule import ChunkedSchedule, Schedule
from nest.io import is_file_name
from nest.spec import DeviceSpec, PlanDocument, PoolSpec, Problem
from nest.units import listed

if TYPE_CHECKING:
    from nest.formulate.options import Options


def pools_in_place(pools: tuple[PoolSpec, ...], base: Path | None) -> tuple[PoolSpec, ...]:
    """Pools with the files of their devices read in."""
    return tuple(
        evolve(each, device=described(each.device, base, f"cluster.pools[{index}].device"))
        if isinstance(each.device, str) and is_file_name(each.device)
        else each
        for index, each in enumerate(pools)
    )


def measured_pools(options: Options) -> tuple[Pools, tuple[DeviceSpec | None, ...]]:
    """Same as `build_pools`, with the errors of estimates, the memory risk and exposed communication."""
    pools, devices = build_pools(options.cluster)
    members, modelled = [], options.model is not None
    for pool, device in zip(pools.members, devices, strict=True):
        cluster, _ = as_measured(pool.cluster, device, options.cluster, modelled, options.training.stack)
        exposure = data_parallel_exposure(options.training, device) if modelled else None
        members.append(Pool(pool.name, with_memory_risk(cluster, options), exposure))
    return evolve(pools, members=tuple(members)), devices


def refuse_chunks(schedules: tuple[Schedule, ...]) -> None:
    """Refuse schedules that stages on several pools cannot run yet.

    Raises:
        InputError: one gives each stage several chunks, or each device two stages.
    """
    refused = dict.fromkeys(each.name for each in schedules if not one_run_each(each))
    if refused:
        raise InputError(
            "training.schedule: cluster.pools does not support several chunks per stage "
            f"({listed(tuple(refused))}); use one, such as 1f1b or zero-bubble."
        )


def takes_pools(registered: object) -> bool:
    """True if a planner or exporter supports several kinds of device (`on_pools`)."""
    return bool(getattr(registered, "on_pools", False))


def limits_on_pools(exporter: Exporter, problem: Problem, registry: Registry, place: str) -> Limits:
    """Limits of an exporter's framework on several pools: schedules with one run per stage.

    Raises:
        InputError: it supports one kind of device only; the text names `place`.
    """
    if not takes_pools(exporter):
        raise InputError(f"{place}: {exporter.name} supports one device type, but cluster.pools has several.")
    return of_one_run(exporter.limits(problem), registry)  # type: ignore[attr-defined]


def of_one_run(limits: Limits, registry: Registry) -> Limits:
    """Limits restricted to schedules that stages on several pools run."""
    if limits.schedules is None:
        return limits
    known = registry.schedules()
    return evolve(limits, schedules=tuple(each for each in limits.schedules if one_run_each(known[each])))


def on_only_pool(plan: PlanDocument) -> PlanDocument:
    """Convert a plan with all stages in one pool to a plan on that cluster; others stay."""
    pools, used = plan.problem["cluster"].get("pools"), {stage.pool for stage in plan.stages}
    if not pools or len(used) != 1:
        return plan
    (name,) = used
    pool = next(each for each in pools if each["name"] == name)
    problem = {**plan.problem, "cluster": {key: value for key, value in pool.items() if key not in ("name", "zone")}}
    if isinstance(fixed := problem.get("fixed"), Mapping):
        problem["fixed"] = {key: value for key, value in fixed.items() if key != "pools"}
    if isinstance(profile := problem.get("profile"), Mapping):
        own = [each for each in profile["candidates"] if each["pool"] == name]
        without = [{key: value for key, value in each.items() if key != "pool"} for each in own]
        problem["profile"] = {**profile, "candidates": without}
    told: Mapping[str, Any] = next((each for each in plan.summary.get("pools", ()) if each["name"] == name), {})
    summary = {key: value for key, value in plan.summary.items() if key != "pools"}
    summary |= {key: told[key] for key in ("memory_capacity", "levels") if key in told}
    summary["devices"] = prod(level["fanout"] for level in pool["levels"])
    stages = tuple(evolve(stage, pool=None) for stage in plan.stages)
    return evolve(plan, problem=problem, summary=summary, stages=stages)


def one_run_each(schedule: Schedule) -> bool:
    """True if each device runs one run of layers, as required on several pools."""
    return not isinstance(schedule, ChunkedSchedule) and chunks_of(schedule) == copies_of(schedule) == 1
