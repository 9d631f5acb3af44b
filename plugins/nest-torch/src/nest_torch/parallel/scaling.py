"""A plan with the same strategies on fewer ranks, to be run where there are not as many."""

from math import prod

from attrs import evolve

from nest.errors import InputError
from nest.hooks.pipelines import deployed
from nest.spec import PlanDocument, StageRecord


def scaled(plan: PlanDocument, most: int) -> PlanDocument:
    """`plan`, or one in which every degree above 1 is 2, or as few as are enough: its stages are joined in order.

    Its numbers are those of the plan given; nobody prices it.

    Raises:
        InputError: even so it has more ranks, or it has no stages.
    """
    if plan.candidate is None or not plan.stages or deployed(plan).world_size <= most:
        return plan
    return _smaller(plan, most)


def _smaller(plan: PlanDocument, most: int) -> PlanDocument:
    shape = deployed(plan)
    assert plan.candidate is not None
    degrees = {name: min(degree, 2) for name, degree in plan.candidate.degrees.items()}
    if shape.sequence_parallel:
        degrees["sp"] = degrees["tp"]
    sides = {name: degrees.get(name, 1) for name in ("tp", "cp", "ep", "etp", "batch")}
    width = max(sides["tp"] * sides["cp"] * sides["batch"], sides["ep"] * sides["etp"])
    stages = 2 if shape.stages > 1 else 1
    replicas = 2 if shape.replicas > 1 else 1
    if width * stages * replicas > most and replicas > 1 and width > sides["tp"] * sides["cp"]:
        replicas = 1  # Ranks of experts are data-parallel ranks too.
    if width * stages * replicas > most:
        raise InputError(
            f"the plan uses strategies that need {width * stages * replicas} ranks even at degree 2; allow as many."
        )
    samples = (plan.candidate.micro_batch or plan.candidate.samples) * (width // (sides["tp"] * sides["cp"]))
    micro_batches = min(plan.micro_batches or 1, 4 * stages)
    while stages > 1 and micro_batches % stages:
        micro_batches += 1
    candidate = evolve(
        plan.candidate,
        degrees=degrees,
        width=width,
        samples=samples,
        micro_batch=plan.candidate.micro_batch or plan.candidate.samples,
    )
    copies = prod((width // (sides["tp"] * sides["cp"]), replicas))
    batch = (candidate.micro_batch or 1) // sides["batch"] * micro_batches * copies
    problem = {**plan.problem, "training": {**plan.problem["training"], "global_batch": batch}}
    return evolve(
        plan,
        candidate=candidate,
        data_parallel=replicas,
        micro_batches=micro_batches,
        zero_degree=None if plan.zero_degree is None else min(2, copies * sides["cp"]),
        stages=_joined(plan, stages, width),
        problem=problem,
    )


def _joined(plan: PlanDocument, count: int, width: int) -> tuple[StageRecord, ...]:
    """`count` stages in place of more: neighbours are joined, chunk by chunk where they have several."""
    shape = deployed(plan)
    chunks = plan.chunks or 1
    runs = [run.layers for run in shape.runs]
    parts = count * chunks
    sizes = [len(runs) * (index + 1) // parts - len(runs) * index // parts for index in range(parts)]
    joined, start = [], 0
    for size in sizes:
        joined.append(tuple(name for run in runs[start : start + size] for name in run))
        start += size
    homes = [run.stage for run in shape.runs]
    folded = homes[-1] == homes[0] and chunks > 1  # A V: the last chunk is where the first is.
    order = list(range(count))
    place = [
        order[index % count] if not folded or (index // count) % 2 == 0 else count - 1 - index % count
        for index in range(parts)
    ]
    made = []
    for stage in range(count):
        own = tuple(joined[index] for index in range(parts) if place[index] == stage)
        record = plan.stages[stage * len(plan.stages) // count]
        layers = tuple(name for run in own for name in run)
        made.append(evolve(record, layers=layers, devices=(stage * width, width), chunks=own if chunks > 1 else None))
    return tuple(made)
