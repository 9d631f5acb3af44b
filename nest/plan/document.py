"""Conversion between decisions and the plan document of FORMATS.md."""

from collections.abc import Sequence
from typing import Any

from nest.errors import InputError
from nest.instance import EstimateError, Instance, Placement, Solution, StageDecision, partial
from nest.plan.evaluate import PricedPlan
from nest.plan.layout import in_order, runs_of_stages
from nest.plan.legality import unsatisfied
from nest.spec import CandidateSummary, PlacementRecord, PlanDocument, StageRecord, TimeRange
from nest.spec.problem import RANK_ORDERS

FORMAT_VERSION = 1

RANGE_PROBABILITY = 0.8  # Probability of a step time within the `batch_time_range` of a plan.


def document(
    instance: Instance,
    solution: Solution,
    priced: PricedPlan,
    *,
    status: str,
    lower_bound: float | None,
    problem: dict[str, Any],
    **extra: Any,
) -> PlanDocument:
    """Document of a priced plan; `extra` are the document's optional keys.

    Its candidate is the widest stage's, of several the first's in pipeline order; each stage names its own.
    """
    candidate = max((instance.candidates[stage.candidate] for stage in solution.stages), key=lambda each: each.width)
    stages = tuple(
        StageRecord(
            layers=tuple(instance.graph.layers[layer] for layer in decision.layers),
            candidate=instance.candidates[decision.candidate].name,
            **recompute_record(decision.recompute),
            zero=decision.zero,
            devices=(stage.first_device, stage.width),
            time=stage.time,
            sync_time=stage.sync,
            memory=stage.memory,
            in_flight=stage.in_flight,
            level_in=stage.level_in,
            level_out=stage.level_out,
            upper_memory=stage.upper_memory,
            memory_breakdown=stage.parts,
            bytes_out=stage.bytes_out,
            chunks=chunks,
            pool=instance.candidates[decision.candidate].pool,
        )
        for decision, stage, chunks in zip(
            solution.stages, priced.stages, _names_of_chunks(instance, solution), strict=True
        )
    )
    batch_time = priced.batch_time
    return PlanDocument(
        nest=FORMAT_VERSION,
        status=status,
        batch_time=batch_time,
        lower_bound=lower_bound,
        throughput=instance.space.global_batch / batch_time if batch_time > 0 else None,
        fits=priced.fits,
        fit_probability=priced.fit_probability,
        batch_time_range=time_range(
            batch_time, priced.time_error, [each.batch_time for each in extra.get("unknown", ())]
        ),
        candidate=CandidateSummary(
            candidate.name,
            dict(candidate.degrees),
            candidate.width,
            candidate.samples,
            candidate.micro_batch or candidate.samples,
        ),
        data_parallel=solution.replicas,
        rank_order=solution.rank_order,
        schedule=solution.schedule,
        micro_batches=priced.micro_batches,
        stages=stages,
        verification=None,
        problem=problem,
        chunks=solution.chunks,
        zero_degree=solution.zero_degree,
        placement=placement_record(instance, solution),
        violates=unsatisfied(instance, solution),
        **extra,
    )


def recompute_record(name: str) -> dict[str, Any]:
    """Entries of a stage's record for its recompute mode."""
    part = partial(name)
    if part is None:
        return {"recompute": name}
    return {"recompute": part.mode, "recompute_layers": part.layers, "recompute_rest": part.rest}


def _names_of_chunks(instance: Instance, solution: Solution) -> list[tuple[tuple[str, ...], ...] | None]:
    """Names of the layers of each stage's chunks, in pipeline order; None: one chunk per stage."""
    if solution.chunks == 1:
        return [None] * len(solution.stages)
    return [
        tuple(tuple(instance.graph.layers[layer] for layer in run) for run in runs)
        for runs in runs_of_stages(instance, solution)
    ]


def placement_record(instance: Instance, solution: Solution) -> PlacementRecord | None:
    """Placement of a plan by names of devices; None: on levels, given by offsets."""
    if instance.network is None:
        return None
    names = instance.network.model.names
    placement = in_order(instance, solution) if solution.placement is None else solution.placement
    return PlacementRecord(
        tuple(tuple(tuple(names[device] for device in block) for block in replica) for replica in placement)
    )


def time_range(batch_time: float, error: EstimateError | None, others: Sequence[float] = ()) -> TimeRange | None:
    """Likely range of a batch's time; None: measured times are exact.

    Args:
        batch_time: seconds.
        error: of predictions.
        others: seconds under other values of unknown facts, which the range spans.
    """
    if error is None:
        return None
    outside, times = (1 - RANGE_PROBABILITY) / 2, (batch_time, *others)
    return TimeRange(RANGE_PROBABILITY, min(times) * error.factor(1 - outside), max(times) * error.factor(outside))


def infeasible(problem: dict[str, Any], diagnosis: str, **extra: Any) -> PlanDocument:
    """Document of a problem without a plan."""
    return PlanDocument(
        nest=FORMAT_VERSION,
        status="infeasible",
        batch_time=None,
        lower_bound=None,
        throughput=None,
        fits=False,
        candidate=None,
        data_parallel=None,
        rank_order=None,
        schedule=None,
        micro_batches=None,
        stages=(),
        verification=None,
        problem=problem,
        chunks=None,
        diagnosis=diagnosis,
        **extra,
    )


def solution_of(instance: Instance, plan: PlanDocument) -> Solution:
    """Decisions of a plan document.

    Raises:
        InputError: it names a layer, candidate, recompute mode or rank order the problem does not have.
    """
    if plan.data_parallel is None or plan.rank_order is None or plan.schedule is None or not plan.stages:
        raise InputError(
            f"the plan is {plan.status!r} and lacks decisions: data_parallel, rank_order, schedule, stages."
        )
    if plan.rank_order not in RANK_ORDERS:
        raise InputError(f"rank_order is {plan.rank_order!r}; it is one of {', '.join(RANK_ORDERS)}.")
    if plan.zero_degree is not None and plan.zero_degree < 1:
        raise InputError(f"zero_degree is {plan.zero_degree}; it must be at least 1, or null for all ranks.")
    if plan.data_parallel < 1:
        raise InputError("data_parallel must be at least 1.")
    layers = {name: index for index, name in enumerate(instance.graph.layers)}
    candidates = {candidate.name: index for index, candidate in enumerate(instance.candidates)}
    stages = []
    for number, stage in enumerate(plan.stages):
        place = f"stages[{number}]"
        named = [
            ("layers", stage.layers),
            *((f"chunks[{index}]", each) for index, each in enumerate(stage.chunks or ())),
        ]
        for key, names in named:
            for name in names:
                if name not in layers:
                    raise InputError(f"{place}.{key} names {name!r}, which the problem does not have.")
        if stage.candidate not in candidates:
            raise InputError(f"{place}.candidate is {stage.candidate!r}, which the problem does not offer.")
        candidate = candidates[stage.candidate]
        pool = instance.candidates[candidate].pool
        if stage.pool != pool:
            there = "on a cluster without pools" if pool is None else f"of pool {pool!r}"
            raise InputError(f"{place}.pool is {stage.pool!r}, but candidate {stage.candidate!r} is {there}.")
        modes = [mode.name for mode in instance.candidates[candidate].recompute]
        for key, mode in (("recompute", stage.recompute), ("recompute_rest", stage.recompute_rest)):
            if mode not in (*modes, None):
                raise InputError(f"{place}.{key} is {mode!r}, which candidate {stage.candidate!r} lacks.")
        if (stage.recompute_layers is None) != (stage.recompute_rest is None):
            raise InputError(f"{place}: recompute_layers and recompute_rest go together; give both or none.")
        if stage.recompute_layers is not None and stage.recompute_layers < 1:
            raise InputError(f"{place}.recompute_layers is {stage.recompute_layers}; it must be at least 1.")
        if stage.zero not in (0, 1, 2, 3):
            raise InputError(f"{place}.zero is {stage.zero}; ZeRO stages are 0, 1, 2 and 3.")
        first = stage.devices[0]
        stride = 1 if plan.rank_order == "pp-inner" else plan.data_parallel
        if first < 0 or first % stride:
            raise InputError(f"{place}.devices starts at {first}, which is not aligned in replica 0.")
        decided = tuple(sorted(layers[name] for name in stage.layers))
        chunks = tuple(tuple(sorted(layers[name] for name in chunk)) for chunk in stage.chunks or ())
        stages.append(StageDecision(decided, candidate, stage.recompute_name, stage.zero, first // stride, chunks))
    return Solution(
        plan.data_parallel,
        plan.rank_order,
        plan.schedule,
        tuple(stages),
        chunks=plan.chunks or 1,
        zero_degree=plan.zero_degree,
        placement=_placement(instance, plan.placement),
    )


def _placement(instance: Instance, record: PlacementRecord | None) -> Placement | None:
    """Devices of every block as numbers.

    Raises:
        InputError: the network is a hierarchy, or the plan lacks a placement or names an unknown device.
    """
    if instance.network is None:
        if record is not None:
            raise InputError("placement is given, but the network is a hierarchy and needs none.")
        return None
    if record is None:
        raise InputError("placement is missing: the network is no hierarchy; `nest solve` writes it.")
    place = {name: index for index, name in enumerate(instance.network.model.names)}
    unknown = [name for replica in record.replicas for block in replica for name in block if name not in place]
    if unknown:
        raise InputError(f"placement names {unknown[0]!r:.60}, but the network has no such device.")
    return tuple(tuple(tuple(place[name] for name in block) for block in replica) for replica in record.replicas)
