"""What is decided before stages are: candidate, replicas, rank order, schedule, and the choices stages may make."""

from collections import defaultdict
from collections.abc import Iterator

from attrs import frozen

from nest.instance import Candidate, Instance, Schedule
from nest.solve.dp.stages import Choice
from nest.spec.constraints import STAGE_NAMES, Value


@frozen
class Configuration:
    """A family of plans that differ in their stages only.

    Attributes:
        order: position in the documented order of ties (candidate, schedule, rank order, replicas, choices).
        candidate: index of the candidate.
        replicas: data-parallel degree `d`.
        micro_batches: `M`.
        rank_order: `pp-inner` or `dp-inner`.
        schedule: the pipeline schedule.
        choices: what a stage may choose, preferred first.
        stage_counts: numbers of stages the constraints allow, ascending.
    """

    order: int
    candidate: int
    replicas: int
    micro_batches: int
    rank_order: str
    schedule: Schedule
    choices: tuple[Choice, ...]
    stage_counts: tuple[int, ...]


@frozen
class Exclusions:
    """Why configurations fell away, for the diagnosis of an infeasible problem.

    Attributes:
        batch: (candidate, replicas) pairs that cannot share the batch.
        constraints: per constraint text, combinations it alone refused first.
        combinations: combinations of candidate, replicas, rank order, schedule and stage count looked at.
    """

    batch: list[tuple[int, int]]
    constraints: dict[str, int]
    combinations: list[int]


def configurations(instance: Instance, most_stages: int) -> tuple[list[Configuration], Exclusions]:
    """Every configuration the constraints allow, in the documented order of ties, and what was excluded.

    Args:
        instance: the problem.
        most_stages: stages the layer graph can be cut into.
    """
    exclusions = Exclusions([], defaultdict(int), [0])
    found: list[Configuration] = []
    space = instance.space
    for index, candidate in enumerate(instance.candidates):
        sharings = list(_sharings(instance, index, exclusions))
        for schedule in space.schedules:
            for rank_order in space.rank_orders:
                for replicas, micro_batches in sharings:
                    slots = instance.cluster.size // (replicas * candidate.width)
                    counts = _stage_counts(instance, min(slots, most_stages))
                    allowed: dict[tuple[Choice, ...], list[int]] = {}
                    for stages in counts:
                        values = plan_values(candidate, replicas, micro_batches, rank_order, schedule.name, stages)
                        exclusions.combinations[0] += 1
                        for choices in _choice_sets(instance, candidate, values, exclusions):
                            allowed.setdefault(choices, []).append(stages)
                    found += [
                        Configuration(
                            len(found) + offset,
                            index,
                            replicas,
                            micro_batches,
                            rank_order,
                            schedule,
                            choices,
                            tuple(stages),
                        )
                        for offset, (choices, stages) in enumerate(allowed.items())
                    ]
    return found, exclusions


def _sharings(instance: Instance, index: int, exclusions: Exclusions) -> Iterator[tuple[int, int]]:
    """Numbers of replicas of a candidate, ascending, with their micro-batches."""
    candidate = instance.candidates[index]
    for replicas in range(1, instance.cluster.size // candidate.width + 1):
        micro_batches = instance.micro_batches(candidate, replicas)
        if micro_batches is None:
            exclusions.batch.append((index, replicas))
        else:
            yield replicas, micro_batches


def _stage_counts(instance: Instance, most: int) -> range:
    if instance.space.partition is not None:
        count = len(instance.space.partition)
        return range(count, count + 1) if count <= most else range(0)
    return range(1, most + 1)


def plan_values(
    candidate: Candidate, replicas: int, micro_batches: int, rank_order: str, schedule: str, stages: int
) -> dict[str, Value]:
    """The names constraints know, for one family of plans; a strategy that takes no part has degree 1."""
    degrees = candidate.degrees
    inner = degrees.get("tp", 1) * degrees.get("cp", 1)
    ranks = replicas * candidate.width
    values: dict[str, Value] = defaultdict(lambda: 1)
    values.update(degrees)
    values.update(
        pp=stages,
        dp=ranks // inner if ranks % inner == 0 else ranks / inner,
        replicas=replicas,
        micro_batch=candidate.samples,
        micro_batches=micro_batches,
        devices=ranks * stages,
        width=candidate.width,
        rank_order=rank_order,
        schedule=schedule,
    )
    return values


def _choice_sets(
    instance: Instance, candidate: Candidate, values: dict[str, Value], exclusions: Exclusions
) -> list[tuple[Choice, ...]]:
    """The sets of choices stages may draw from: one set, or one per value of what must be uniform."""
    constraints = instance.space.constraints
    for constraint in constraints:
        if constraint.expression is not None and not constraint.per_stage and not constraint.holds(values):
            exclusions.constraints[constraint.text] += 1
            return []
    choices = stage_choices(instance, candidate)
    for constraint in constraints:
        if constraint.per_stage:
            kept = [
                choice
                for choice in choices
                if constraint.holds({**values, **_degree_defaults(values, constraint.names()), **_of(choice)})
            ]
            if choices and not kept:
                exclusions.constraints[constraint.text] += 1
            choices = kept
    sets = [tuple(choices)] if choices else []
    for constraint in constraints:
        if constraint.uniform is not None:
            sets = [part for choice_set in sets for part in _split(choice_set, constraint.uniform)]
    return sets


def _degree_defaults(values: dict[str, Value], names: frozenset[str]) -> dict[str, Value]:
    return {name: values[name] for name in names - STAGE_NAMES}


def _of(choice: Choice) -> dict[str, Value]:
    return {"zero": choice.zero, "recompute": choice.recompute}


def _split(choices: tuple[Choice, ...], attribute: str) -> list[tuple[Choice, ...]]:
    parts: dict[Value, list[Choice]] = {}
    for choice in choices:
        parts.setdefault(_of(choice)[attribute], []).append(choice)
    return [tuple(part) for part in parts.values()]


def stage_choices(instance: Instance, candidate: Candidate) -> list[Choice]:
    """What a stage may choose, preferred first: less recomputation, then a lower ZeRO stage."""
    allowed = instance.space.recompute
    return [
        Choice(mode.name, zero)
        for mode in candidate.recompute
        if allowed is None or mode.name in allowed
        for zero in instance.space.zero
    ]
