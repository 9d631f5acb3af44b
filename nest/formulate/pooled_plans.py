"""What takes plans on several kinds of device: exporters, planners and schedules; and plans that use one kind alone."""

from collections.abc import Mapping
from math import prod
from typing import Any

from attrs import evolve

from nest.instance import chunks_of, copies_of
from nest.instance.schedule import ChunkedSchedule, Schedule
from nest.spec import PlanDocument


def takes_pools(registered: object) -> bool:
    """Whether a planner or an exporter says that it takes plans on several kinds of device (`on_pools`)."""
    return bool(getattr(registered, "on_pools", False))


def on_only_pool(plan: PlanDocument) -> PlanDocument:
    """A plan whose stages all lie in one pool, as a plan on a cluster that is that pool; any other plan as it is."""
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
    """Whether each device runs one run of layers, as on several pools it must."""
    return not isinstance(schedule, ChunkedSchedule) and chunks_of(schedule) == copies_of(schedule) == 1
