"""An instance in numbers, as the checker reads it (PROBLEM.md sections 1 to 4)."""

from collections.abc import Iterator, Sequence
from typing import Any

from nest.errors import InputError
from nest.instance import Candidate, Instance, Schedule, Solution, chunks_of, copies_of
from nest.instance.schedule import Pass, admits, fullest_moments, route

Numbers = dict[str, Any]

FORMULAS = ("1f1b", "gpipe", "nest")
"""Schedules whose numbers the problem's statement gives (PROBLEM.md section 4)."""

KINDS = {"forward": "f", "backward": "b", "input-gradients": "i", "weight-gradients": "w"}


def unsupported(instance: Instance) -> str | None:
    """Name the part of an instance that certificates cannot describe; None: they describe all."""
    space = instance.space
    if instance.network is not None:
        return "a network that is no hierarchy"
    if instance.pools is not None:
        return "a cluster of several pools"
    if space.mixed:
        return "stages of several candidates (`search.mixed`)"
    if space.direct:
        return "tensors sent directly between stages"
    if getattr(instance.collectives, "name", "") != "alpha-beta":
        return "collective models other than `alpha-beta`"
    if space.even:
        return "stages that a framework splits evenly"
    return None


def numbers_of(instance: Instance) -> Numbers:
    """Every number of an instance but the schedules' tables and the allowed choices.

    Raises:
        InputError: no certificate describes such an instance.
    """
    reason = unsupported(instance)
    if reason is not None:
        raise InputError(f"no certificate: `nest certify` does not support {reason}.")
    space, cluster = instance.space, instance.cluster
    layer_index = {name: index for index, name in enumerate(instance.graph.layers)}
    together = [[layer_index[name] for name in each.same_stage] for each in space.constraints if each.same_stage]
    return {
        "layers": len(instance.graph.layers),
        "tensors": [[maker, list(readers)] for maker, readers in instance.graph.tensors],
        "levels": [[level.fanout, level.bandwidth, level.latency] for level in cluster.levels],
        "collectives": Collectives(instance) if any(each.lines for each in cluster.levels) else None,
        "memory": cluster.memory,
        "reserve": cluster.reserve,
        "global_batch": space.global_batch,
        "uneven_batch": space.uneven_batch,
        "exposed": space.exposed,
        "exposed_often": space.often_exposed,
        "hiding": space.hiding,
        "synchronisation": space.synchronisation,
        "sharded_synchronisation": space.sharded_synchronisation,
        "whole_gradients": space.whole_gradients,
        "adapters": space.adapters,
        "rank_orders": list(space.rank_orders),
        "zero": list(space.zero),
        "zero_degrees": list(space.zero_degrees),
        "together": [*map(list, space.together), *together],
        "partition": None if space.partition is None else [list(stage) for stage in space.partition],
        "units": [list(unit) for unit in space.blocks_and_ends or space.blocks],
        "blocks": [list(unit) for unit in space.blocks_and_ends[1:-1] or space.blocks],
        "recomputed_units": [list(unit) for unit in space.units],
        "schedules": [_schedule(instance, each) for each in space.schedules],
        "candidates": [
            _candidate(each, instance.recompute_names(index)) for index, each in enumerate(instance.candidates)
        ],
        "complete_below": None if instance.complete else instance.complete_to,
    }


def _candidate(candidate: Candidate, choices: Sequence[str]) -> Numbers:
    def rows(record: Any, *names: str) -> Numbers:
        return {name: getattr(record, name).tolist() for name in names if getattr(record, name) is not None}

    state = {
        f"{place} {group.name}": {
            "ranks": list(group.ranks),
            **rows(group, "weights", "gradients", "optimizer", "update", "pieces"),
        }
        for place, group in enumerate(candidate.state)
    }
    modes = {
        mode.name: {
            **rows(mode, "extra", "more", "peak", "busy"),
            "first": [each if each < float("inf") else None for each in mode.first.tolist()],
            "stash_inputs": mode.stash_inputs,
        }
        for mode in candidate.recompute
    }
    return {
        "name": candidate.name,
        "width": candidate.width,
        "samples": candidate.samples,
        "gathered": candidate.gathered,
        "choices": list(choices),
        "state": state,
        "recompute": modes,
        "edge_bytes": candidate.tensor_bytes.tolist(),
        **rows(candidate, "forward", "backward", "weight_gradients", "busy"),
    }


def _schedule(instance: Instance, schedule: Schedule) -> Numbers:
    return {
        "name": schedule.name,
        "chunks": chunks_of(schedule),
        "copies": copies_of(schedule),
        "staggered": bool(getattr(schedule, "staggered", False)),
        "hides": instance.space.hides(schedule.name),
        "replayed": instance.makespan is not None and instance.space.replays(schedule),
        "tables": Tables(schedule),
    }


class Collectives(dict[str, Any]):
    """Ways to run each collective on links with measured protocols, made when asked for: s, s/byte, both by port."""

    def __init__(self, instance: Instance) -> None:
        super().__init__()
        self.model: Any = instance.collectives
        self.levels = instance.cluster.levels

    def __contains__(self, key: object) -> bool:
        if not super().__contains__(key):
            kind, members, _, *shape = str(key).replace(" x ", " ").split()
            costs = self.model.costs(kind, [*map(int, shape)], self.levels, int(members))
            self[str(key)] = [[each.latency, each.per_byte, [list(port) for port in each.ports]] for each in costs]
        return True


class Tables(dict[str, Any]):
    """Numbers of a schedule by micro-batches and stages, made when asked for; None: it has no such plans."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self.schedule = schedule

    def __contains__(self, key: object) -> bool:
        if not super().__contains__(key):
            micro_batches, stages = map(int, str(key).split(","))
            self[str(key)] = _table(self.schedule, micro_batches, stages)
        return True


class Table(dict[str, Any]):
    """Numbers of a schedule, with the passes of every device when asked for."""

    def __init__(self, schedule: Schedule, micro_batches: int, stages: int, numbers: Numbers) -> None:
        super().__init__(numbers)
        self.decided = schedule, micro_batches, stages

    def __missing__(self, key: str) -> Any:
        schedule, micro_batches, stages = self.decided
        self[key] = [list(_passes(schedule, each + 1, stages, micro_batches)) for each in range(stages)]
        return self[key]


def _table(schedule: Schedule, micro_batches: int, stages: int) -> Table | None:
    if not admits(schedule, stages, micro_batches):
        return None
    slowest, *parts = (float(each) for each in schedule.weights(micro_batches, stages))
    moments = [fullest_moments(schedule, stage, stages, micro_batches) for stage in range(1, stages + 1)]
    numbers: Numbers = {
        "weights": [slowest, *(parts * 3 if len(parts) == 1 else parts)],
        "held": [[list(moment) for moment in rows] for rows in moments],
        "route": list(route(schedule, stages)),
    }
    return Table(schedule, micro_batches, stages, numbers)


def _passes(schedule: Schedule, stage: int, stages: int, micro_batches: int) -> Iterator[list[Any]]:
    passes: Sequence[Pass] = schedule.order(stage, stages, micro_batches)  # type: ignore[attr-defined]
    for each in passes:
        yield [KINDS[each.kind], each.micro_batch, each.chunk, int(each.overlapped)]


def decisions_of(instance: Instance, solution: Solution) -> Numbers:
    """A plan's decisions as the checker reads them.

    Raises:
        InputError: the problem has no such schedule.
    """
    index, space = solution.stages[0].candidate, instance.space
    width = instance.candidates[index].width
    schedules = [(each.name, chunks_of(each)) for each in space.schedules]
    if (solution.schedule, solution.chunks) not in schedules:
        raise InputError(f"the plan's problem has no schedule {solution.schedule!r}; write the plan with `nest solve`.")
    return {
        "candidate": index,
        "replicas": solution.replicas,
        "order": space.rank_orders.index(solution.rank_order),
        "schedule": schedules.index((solution.schedule, solution.chunks)),
        "degree": solution.zero_degree,
        "stages": [
            {
                "chunks": [list(chunk) for chunk in stage.chunks] or [list(stage.layers)],
                "choice": [stage.recompute, stage.zero],
                "slot": stage.offset // width,
            }
            for stage in solution.stages
        ],
    }
