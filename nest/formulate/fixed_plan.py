"""Decided plans: `fixed` of a problem, or the decisions of a plan document."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from typing import Any, cast

from attrs import evolve

from nest.deployment import deployment
from nest.errors import InputError, InputErrors
from nest.formulate.even_stages import Runs, near_even, shares
from nest.formulate.instance import Formulation, Wanted, check_lists, formulate, without_missing_plugins
from nest.formulate.modes import check_modes, profile_modes
from nest.formulate.shard import micro_batches, participating
from nest.formulate.target import target_limits
from nest.hooks.registry import Registry
from nest.instance import Candidate, Instance, Schedule, Solution, StageDecision, chunks_of, route
from nest.io import structure, unstructure
from nest.plan.layout import chunk_units, even_blocks, even_chunks
from nest.plan.legality import chunk_violations, permission_violations, structure_violations
from nest.spec import CandidateSummary, Fixed, PlanDocument, Problem
from nest.spec.problem import ALL_RANKS, ProfileCandidate, usual_rank_order

USUAL_RECOMPUTE = "none"  # Frameworks recompute nothing unless asked to; a profile without that mode uses its first.

PARTIAL = ("recompute_layers", "recompute_rest")  # Keys of `fixed` for partial recomputation, besides the mode.


def with_decisions(problem: Problem, decisions: Mapping[str, Any]) -> Problem:
    """Add decisions to a problem; they override its own.

    Raises:
        InputErrors: a decision has a wrong type.
    """
    known = unstructure(problem.fixed or Fixed({}))
    if "recompute" in decisions:  # A number of blocks goes with the mode that it was decided for.
        known = {name: value for name, value in known.items() if name not in PARTIAL}
    try:
        fixed = structure({**known, **decisions}, Fixed)
    except InputErrors as error:
        raise InputErrors(f"fixed.{sentence}" for sentence in error.problems) from None
    return evolve(problem, fixed=fixed)


def as_fixed(plan: PlanDocument) -> dict[str, Any]:
    """Decisions of a plan as `fixed` of its problem.

    Raises:
        InputError: the plan is infeasible, or its stages differ in what `fixed` gives once for all.
    """
    shape = deployment(plan)
    alike = {
        "candidate": [each.candidate for each in plan.stages],
        "recompute": [each.recompute_name for each in plan.stages],
        "zero": shape.zero,
    }
    for name, values in alike.items():
        if len(set(values)) > 1:
            raise InputError(f"`fixed` needs one {name} for all stages, and this plan's differ.")
    decisions = {
        **shape.degrees,
        "pp": shape.stages,
        "replicas": shape.replicas,
        "micro_batch": shape.micro_batch,
        "schedule": shape.schedule,
        "rank_order": shape.rank_order,
        "recompute": shape.recompute[0],
        "zero": shape.zero[0],
    }
    if shape.zero_degree is not None:
        decisions["zero_degree"] = shape.zero_degree
    if (count := shape.recompute_layers[0]) is not None:
        decisions |= {"recompute_layers": count, "recompute_rest": shape.recompute_rest[0]}
    if shape.chunks > 1:
        decisions["chunks"] = shape.chunks
    return {**decisions, "stages": [list(each.layers) for each in plan.stages]}


def fixed_plan(problem: Problem, known: Registry) -> tuple[Instance, Solution, Formulation]:
    """Complete the plan of `problem.fixed` with framework defaults; also return what it was made of.

    Raises:
        InputError: the decisions do not make a plan.
    """
    target_limits(problem, known)  # A target nobody knows is a slip, though plans beyond one are priced.
    instance, formulation = evaluation(problem, known)
    return instance, decide(instance, problem, known), formulation


def evaluation(problem: Problem, known: Registry) -> tuple[Instance, Formulation]:
    """Instance of the decisions of `problem.fixed`, with `constraints` as wishes, and what it was made of."""
    instance, formulation = formulate(evaluation_problem(problem, known), known, Wanted(binding=False))
    modes = profile_modes(problem.profile)
    modes += [mode.name for each in instance.candidates for mode in each.recompute]
    known_modes, modelled = dict.fromkeys(modes), problem.model is not None
    check_modes("search.recompute", problem.search.recompute or (), known_modes, modelled=modelled)
    return instance, formulation


def decide(instance: Instance, problem: Problem, known: Registry) -> Solution:
    """Complete the decisions of `problem.fixed` on the instance of `evaluation` with defaults.

    Raises:
        InputError: the decisions do not make a plan.
    """
    from nest.formulate.fixed_pools import check_room, in_pools

    # Building the instance has refused decisions that are not whole numbers.
    decided = cast("Mapping[str, int]", problem.decided)
    index = _usual_candidate(instance, range(len(instance.candidates)), known)
    count = len(instance.space.partition or ()) or decided.get("pp", 1)
    schedule = _schedule(instance, count)
    held = _stages(instance, count, schedule)
    if instance.pools is None:
        replicas, used = _replicas(instance, index, decided, count), [index] * count
        check_room(instance, instance.candidates[index].width, count, replicas)
    else:
        told = decided.keys() & {"replicas", "dp", "micro_batches"}
        replicas, used = in_pools(
            instance,
            instance.candidates[index],
            problem.fixed.pools if problem.fixed is not None else None,
            count,
            _replicas(instance, index, decided, count) if told else None,
            lambda among: _usual_candidate(instance, among, known),
        )
    before: Counter[int] = Counter()
    stages = []
    for candidate, (layers, runs) in zip(used, held, strict=True):
        own = instance.candidates[candidate]
        choices = instance.recompute_names(candidate)
        chunks = tuple(tuple(sorted(run)) for run in runs)
        offset = before[candidate] * own.width
        zero = instance.space.zero[0]
        stages.append(StageDecision(tuple(sorted(layers)), candidate, choices[0], zero, offset, chunks))
        before[candidate] += 1
    space = instance.space
    solution = Solution(
        replicas,
        space.rank_orders[0],
        schedule.name,
        tuple(stages),
        chunks_of(schedule),
        zero_degree=space.zero_degrees[0],
    )
    broken = structure_violations(instance, solution) or permission_violations(instance, solution)
    if broken:
        raise InputError("fixed is not a valid plan: " + "; ".join(broken) + ".")
    return solution


def _usual_candidate(instance: Instance, among: Iterable[int], known: Registry) -> int:
    """Candidate whose strategies have the degrees of those they follow, if possible; others are decided."""
    followed = {name: s.follows for name, s in known.strategies().items() if hasattr(s, "follows")}

    def strays(candidate: Candidate) -> tuple[int, ...]:
        degrees = candidate.degrees
        return tuple(degrees.get(name, 1) != degrees.get(other, 1) for name, other in followed.items())

    return min(among, key=lambda index: (strays(instance.candidates[index]), index))


def decided_instance(problem: Problem, plan: PlanDocument, known: Registry) -> Instance:
    """Instance of a plan document's decisions, with only its candidates."""
    return decided_formulation(problem, plan, known)[0]


def decided_formulation(problem: Problem, plan: PlanDocument, known: Registry) -> tuple[Instance, Formulation]:
    """Instance of a plan document's decisions, and what it was made of."""
    searched = plan.lower_bound is not None or plan.status == "infeasible"
    if not searched:
        return evaluation(problem, known)
    if plan.candidate is None or problem.model is None or problem.search.mixed or problem.cluster.pools is not None:
        return formulate(problem, known)
    narrowed = _narrowed(problem, plan.candidate, known)
    return formulate(problem if narrowed is None else narrowed, known)


def _narrowed(problem: Problem, candidate: CandidateSummary, known: Registry) -> Problem | None:
    """Narrow a problem to one candidate, which is priced faster; None: the problem does not allow it."""
    micro_batch = candidate.samples if candidate.micro_batch is None else candidate.micro_batch
    if micro_batch not in micro_batches(problem.training, problem.decided.get("micro_batch")):
        return None
    strategies = dict(problem.strategies)
    for name in participating({*strategies, *problem.decided}, known.strategies(), mixed=problem.search.mixed):
        degree = candidate.degrees.get(name, 1)
        written = strategies.get(name, (degree,))
        if any(each == degree and not isinstance(each, bool) for each in written):
            strategies[name] = (degree,)
        elif not any(isinstance(each, bool) for each in written):
            return None
    training = evolve(problem.training, micro_batch=(micro_batch,))
    return evolve(problem, strategies=strategies, training=training)


def evaluation_problem(problem: Problem, known: Registry) -> Problem:
    """Narrow a problem to the decisions of its `fixed`, with framework defaults for the rest."""
    problem = without_missing_plugins(problem, known)
    check_lists(problem, known)
    decided = problem.decided
    training, search = problem.training, problem.search
    usual = usual_rank_order(search.rank_order)
    # Only the defaults: whoever builds the instance lets `fixed`, which is kept, win over them.
    narrowed = evolve(
        problem,
        training=evolve(training, schedule=training.schedule[:1], micro_batch=(min(training.micro_batch or (1,)),)),
        search=evolve(
            search,
            rank_order=(usual,),
            zero=(0,),
            recompute=(USUAL_RECOMPUTE,),
            zero_degree=(ALL_RANKS,),
            target=None,  # What people run today is priced, whoever can run it.
        ),
        strategies={
            name: (1,)
            for name, strategy in participating(
                {*problem.strategies, *decided}, known.strategies(), mixed=search.mixed
            ).items()
            if not hasattr(strategy, "follows") and name not in decided
        },
    )
    return _with_one_candidate(narrowed, decided) if problem.profile is not None else narrowed


def _with_one_candidate(problem: Problem, decided: Mapping[str, Any]) -> Problem:
    """Reduce a profile to the candidate with the decided degrees and samples, 1 by default."""
    profile = problem.profile
    assert profile is not None
    assert not isinstance(profile, str)
    names = {name for candidate in profile.candidates for name in candidate.degrees}
    fitting = [
        candidate
        for candidate in profile.candidates
        if all(candidate.degrees.get(name, 1) == decided[name] for name in names if name in decided)
        and decided.get("micro_batch") in (None, candidate.micro_batch or candidate.samples)
        and candidate.width == decided.get("width", candidate.width)
    ]
    if not fitting:
        conditions = [name for name in sorted({*names, "micro_batch", "width"}) if name in decided]
        wanted = ", ".join(f"{name} {decided[name]}" for name in conditions)
        raise InputError(f"fixed has {wanted}, but no candidate of the profile does.")

    def further(candidate: ProfileCandidate) -> int:
        return sum(degree != 1 for name, degree in candidate.degrees.items() if name not in decided)

    by_pool: dict[str | None, list[ProfileCandidate]] = {}
    for each in fitting:
        by_pool.setdefault(each.pool, []).append(each)
    chosen = tuple(min(own, key=further) for own in by_pool.values())
    modes = tuple(chosen[0].recompute)
    recompute = USUAL_RECOMPUTE if USUAL_RECOMPUTE in modes else modes[0]
    return evolve(
        problem,
        profile=evolve(profile, candidates=chosen),
        search=evolve(problem.search, recompute=(recompute,)),
        strategies={},
    )


def _replicas(instance: Instance, index: int, decided: Mapping[str, int], stages: int) -> int:
    """Replicas of candidate `index` as decided in any terms; else as many as the devices hold."""
    candidate = instance.candidates[index]
    width = candidate.width
    if "replicas" in decided:
        return decided["replicas"]
    if "dp" in decided:
        return _replicas_of(candidate, decided["dp"])
    if "micro_batches" in decided:
        share = candidate.samples * decided["micro_batches"]
        return max(instance.space.global_batch // share, 1)
    size = instance.cluster_of(index).size
    devices = decided.get("devices", size)
    fitting = min(devices, size) // (width * stages)
    if fitting < 1:
        raise InputError(
            f"fixed needs {stages} stages of {width} devices, {stages * width} in total, but the cluster has {devices}."
        )
    return fitting


def _replicas_of(candidate: Candidate, data_parallel: int) -> int:
    """Replicas that make so many ranks with different samples (docs/reference/constraints.md, `dp`)."""
    inner, size = candidate.degrees.get("tp", 1) * candidate.degrees.get("cp", 1), candidate.micro_batch
    copies = Fraction(candidate.width, inner) if size is None else Fraction(candidate.samples, size)
    replicas = data_parallel / copies
    if replicas.denominator > 1:
        raise InputError(
            f"fixed.dp is {data_parallel}, but each replica has {float(copies):g} data-parallel ranks; use a multiple."
        )
    return replicas.numerator


def _schedule(instance: Instance, stages: int) -> Schedule:
    """Decided schedule; of one with several chunks the fewest that divide evenly over the stages, else any."""

    def rank(schedule: Schedule) -> int:
        if chunks_of(schedule) == 1:
            return 0
        if chunk_violations(instance, schedule, stages, None):
            return 2
        return 0 if even_blocks(instance, stages * chunks_of(schedule)) else 1

    return min(instance.space.schedules, key=rank)


def _stages(instance: Instance, count: int, schedule: Schedule) -> list[tuple[tuple[int, ...], Runs]]:
    """Layers of each stage and, with several chunks, those of each of its chunks.

    Raises:
        InputError: the stages have no such chunks, or fixed stages follow no pipeline of the schedule.
    """
    partition, chunks = instance.space.partition, chunks_of(schedule)
    if chunks == 1:
        return [(layers, ()) for layers in partition or near_even(instance, count)]
    faults = chunk_violations(instance, schedule, count, None)
    if faults:
        raise InputError("fixed is not a valid plan: " + "; ".join(faults) + ".")
    homes = route(schedule, count)
    if partition is None:
        runs = even_chunks(instance, count, chunks) if even_blocks(instance, count * chunks) else None
        runs = runs or near_even(instance, count * chunks)
    else:
        runs = _runs_of_stages(instance, partition, homes, schedule.name)
    held = [tuple(run for run, home in zip(runs, homes, strict=True) if home == stage) for stage in range(count)]
    return [(tuple(layer for run in mine for layer in run), mine) for mine in held]


def _runs_of_stages(instance: Instance, partition: Runs, homes: Sequence[int], name: str) -> Runs:
    """Layers of each chunk in pipeline order, for stages with given layers.

    Consecutive chunks on one stage, as at the turn of a V, share its layers as evenly as possible.
    """
    home = {layer: stage for stage, layers in enumerate(partition) for layer in layers}
    runs: list[tuple[int, ...]] = []
    there = [(stage, list(units)) for stage, units in groupby(chunk_units(instance), key=lambda unit: home[unit[0]])]
    wanted = [(stage, len(list(chunks))) for stage, chunks in groupby(homes)]
    if [stage for stage, _ in there] != [stage for stage, _ in wanted]:
        raise InputError(
            f"fixed.stages: consecutive blocks are on stages {_listed(there)}, but schedule {name!r} needs "
            f"{_listed(wanted)}; give each stage the blocks of its chunks."
        )
    for (stage, units), (_, count) in zip(there, wanted, strict=True):
        if len(units) < count:
            raise InputError(
                f"fixed.stages[{stage}]: {count} consecutive chunks need at least {count} blocks, not {len(units)}."
            )
        runs += shares(units, count)
    return tuple(runs)


def _listed(runs: Iterable[tuple[int, object]]) -> str:
    return ", ".join(str(stage + 1) for stage, _ in runs)
