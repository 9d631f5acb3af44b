"""A plan in the words of an engineer."""

import re
from collections.abc import Sequence

from nest.report.decisions import counted
from nest.reporting.subject import Subject
from nest.spec import PlanDocument

PARALLELISM = {"tp": "tensor", "sp": "sequence", "cp": "context", "ep": "expert", "etp": "expert-tensor"}
"""Kinds of parallelism by their degree; others are called by their name."""

SHARDED = {
    0: "Every data-parallel rank holds the whole optimizer state (ZeRO 0)",
    1: "The optimizer state is sharded over data-parallel ranks (ZeRO 1)",
    2: "Optimizer state and gradients are sharded over data-parallel ranks (ZeRO 2)",
    3: "Weights, gradients and optimizer state are sharded over data-parallel ranks (ZeRO 3)",
}

RECOMPUTED = {"none": "nothing is recomputed", "full": "every layer is recomputed in the backward pass"}

_NUMBERED = re.compile(r"\.[0-9]+$")


def plan_in_words(subject: Subject) -> str:
    """How the work is divided, and what memory is saved by, in two sentences."""
    plan = subject.plan
    pipeline = _pipeline(plan)
    parts = [_inside(subject), *([pipeline] if pipeline else []), _replicas(plan)]
    divided = "; ".join(parts)
    return f"{divided[0].upper()}{divided[1:]}. {_saved(plan)}."


def choices(each: Sequence[str]) -> str:
    """What all stages choose, or the choices with the number of stages that make them."""
    counted = {choice: each.count(choice) for choice in dict.fromkeys(each)}
    if len(counted) == 1:
        return each[0]
    return ", ".join(f"{choice} on {count}" for choice, count in counted.items()) + " stages"


def _inside(subject: Subject) -> str:
    """What the devices of one stage do together, and how near each other they are."""
    plan = subject.plan
    assert plan.candidate is not None
    used = dict.fromkeys(stage.candidate for stage in plan.stages)
    if len(used) > 1:
        return f"stages divide their layers in {len(used)} ways ({', '.join(used)})"
    kinds: dict[int, list[str]] = {}
    for name, degree in plan.candidate.degrees.items():
        if degree > 1 and not (name == "sp" and degree == plan.candidate.degrees.get("tp")):
            kinds.setdefault(degree, []).append(PARALLELISM.get(name, name))
    told = [f"{_listed(names)} parallelism {degree}" for degree, names in kinds.items()]
    if not told:
        width = plan.candidate.width
        return "one device for each stage" if width == 1 else f"{width} devices for each stage"
    levels = subject.instance.cluster.capacities
    names = [level.name for level in subject.instance.cluster.levels]
    around = next((name for name, size in zip(names, levels, strict=True) if size >= plan.candidate.width), None)
    near = f" inside a {around}" if around and plan.placement is None else ""
    return _listed(told) + near


def _pipeline(plan: PlanDocument) -> str:
    """How many stages of how many layers; empty: there is but one."""
    if len(plan.stages) == 1:
        return ""
    blocks = [sum(_NUMBERED.search(layer) is not None for layer in stage.layers) for stage in plan.stages]
    counts = blocks if all(blocks) else [len(stage.layers) for stage in plan.stages]
    least, most = min(counts), max(counts)
    layers = f"{counted(most, 'layer')} each" if least == most else f"{least} to {most} layers"
    chunks = f" of {plan.chunks} chunks" if (plan.chunks or 1) > 1 else ""
    return f"{len(plan.stages)} pipeline stages of {layers}, schedule {plan.schedule}{chunks}"


def _replicas(plan: PlanDocument) -> str:
    assert plan.candidate is not None
    size = plan.candidate.micro_batch or plan.candidate.samples
    batch = f"{counted(plan.micro_batches or 0, 'micro-batch', 'es')} of {counted(size, 'sample')}"
    count = plan.data_parallel or 1
    return f"{count:,} replicas of {batch} each" if count > 1 else f"a single replica, {batch}"


def _saved(plan: PlanDocument) -> str:
    """What is sharded over data-parallel ranks, and what is computed again."""
    zero = {stage.zero for stage in plan.stages}
    sharded = SHARDED[zero.pop()] if len(zero) == 1 else f"ZeRO {choices([str(stage.zero) for stage in plan.stages])}"
    groups = f", in groups of {plan.zero_degree}" if plan.zero_degree is not None else ""
    modes = choices([stage.recompute for stage in plan.stages])
    return f"{sharded}{groups}; {RECOMPUTED.get(modes, f'recomputation: {modes}')}"


def _listed(words: Sequence[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
