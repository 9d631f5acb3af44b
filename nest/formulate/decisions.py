"""Decisions of a plan: their order, use on another problem, deviations from lists, and plug-ins behind them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from attrs import evolve

from nest.deployment import Limits, deployment
from nest.deployment.limits import degrees_of
from nest.errors import FieldErrors, InputError
from nest.formulate.instance import Formulation, build_instance, without_missing_plugins
from nest.formulate.modes import keeping_modes, recomputes_parts
from nest.formulate.shard import USUAL_MICRO_BATCHES, allowed_degrees, participating, untried
from nest.formulate.space import allowed_rank_orders, allowed_zero, allowed_zero_degrees, tried_chunks
from nest.formulate.target import beyond_target
from nest.hooks.protocols import StrategyContext
from nest.hooks.registry import Registry
from nest.instance import ChunkedSchedule, Instance, Solution, modes_of, partial, recompute_words
from nest.plan.document import solution_of
from nest.plan.layout import chunk_layers, schedule_of
from nest.plan.legality import structure_violations
from nest.spec import CandidateSummary, Fixed, PlanDocument, Problem
from nest.spec.problem import ALL_RANKS
from nest.units import listed

FIRST_DEGREES = ("tp", "cp", "ep", "etp", "sp")
"""Strategies in the order in which equal degrees are kept; others follow by name."""


class Decision(NamedTuple):
    """One decision of a plan."""

    name: str  # In constraints and under `fixed`.
    text: str  # For people; decisions with the same text are alike.
    keep: Callable[[Problem], Problem]  # Narrows a problem to this decision.
    values: tuple[str, ...]  # As text: one value, or one for each stage.


def decisions(plan: PlanDocument, registry: Registry) -> list[Decision]:
    """List a plan's decisions, the most important first; decisions by stage as the set of values used.

    Raises:
        InputError: the plan is infeasible.
    """
    shape = deployment(plan)
    result = [_degree(name, values) for name, values in _degrees(plan, registry).items()]
    # Where a degree goes, its devices are of more use to further replicas than to nobody.
    devices = shape.replicas * sum(stage.devices[1] for stage in plan.stages)
    result += [_fixed("micro_batch", shape.micro_batch), _fixed("pp", shape.stages), _fixed("devices", devices)]
    result.append(_fixed("replicas", shape.replicas))
    layers = tuple(stage.layers for stage in plan.stages)
    counts = tuple(str(len(each)) for each in layers)
    text = f"{', '.join(counts)} layers"
    stages = Decision("stages", text, lambda problem: _with_fixed(problem, {}, layers), counts)
    schedule = [_fixed("schedule", shape.schedule), _fixed("chunks", shape.chunks)]
    # Which layers stages of several chunks can hold depends on the schedule and on how many there are.
    result += [stages, *schedule] if shape.chunks == 1 else [*schedule, stages]
    result.append(_listed("rank_order", (shape.rank_order,)))
    names = tuple(stage.recompute_name for stage in plan.stages)
    words = _by_stage(tuple(map(recompute_words, names)))
    result.append(Decision("recompute", words, lambda problem: keeping_modes(problem, plan.stages), names))
    result.append(_listed("zero", shape.zero))
    result.append(_listed("zero_degree", (ALL_RANKS if shape.zero_degree is None else shape.zero_degree,)))
    return result


def open_problem(problem: Problem, plan: PlanDocument, limits: Limits, target: str, registry: Registry) -> Problem:
    """Problem of the plans near `plan`: narrowed to a `target` with `limits`, with nothing decided.

    Listed choices, such as schedules, are restricted to the target's, or replaced by them if none is left. Constraints
    are dropped for plans that no search found, as they do not bind them.
    """
    training, search = problem.training, problem.search
    return evolve(
        problem,
        training=evolve(
            training,
            schedule=_either(training.schedule, limits.schedules, tuple(registry.schedules())),
            offload=tuple(each for each in training.offload if each != "optimizer" or each in limits.offload),
        ),
        search=evolve(
            search,
            target=target,
            zero=_either(search.zero, limits.zero, limits.zero),
            rank_order=_either(search.rank_order, limits.rank_orders, limits.rank_orders or ()),
            zero_degree=_either(search.zero_degree, None if limits.zero_degrees else (ALL_RANKS,), (ALL_RANKS,)),
            recompute=None if search.recompute is None else _either(search.recompute, limits.recompute, ()) or None,
        ),
        strategies={
            name: degrees
            for name, degrees in problem.strategies.items()
            if limits.strategies is None or name in limits.strategies
        },
        constraints=problem.constraints if plan.lower_bound is not None else (),
        fixed=None,
    )


def _either(listed: Iterable[Any], has: tuple[Any, ...] | None, known: tuple[Any, ...]) -> tuple[Any, ...]:
    """Listed choices that the target has; else all its choices among the known."""
    wanted = tuple(listed)
    allowed = tuple(each for each in wanted if has is None or each in has)
    return allowed or tuple(each for each in has or () if each in known) or wanted


def _degrees(plan: PlanDocument, registry: Registry) -> dict[str, tuple[int, ...]]:
    """Degree on each stage of every strategy that may take part, highest first."""
    used = [degrees_of(plan, stage) for stage in plan.stages]
    names = {name for each in used for name in each}
    if plan.problem.get("model") is not None:
        names |= {name for name, each in registry.strategies().items() if getattr(each, "by_default", True)}
    order = [name for name in (*FIRST_DEGREES, *sorted(names.difference(FIRST_DEGREES))) if name in names]
    degrees = {name: tuple(each.get(name, 1) for each in used) for name in order}
    return {name: degrees[name] for name in sorted(order, key=lambda name: -max(degrees[name]))}


def _degree(name: str, values: tuple[int, ...]) -> Decision:
    used = tuple(dict.fromkeys(values))

    def keep(problem: Problem) -> Problem:
        return evolve(problem, strategies={**problem.strategies, name: used})

    return Decision(name, _by_stage(values), keep, tuple(map(str, values)))


def _fixed(name: str, value: int | str) -> Decision:
    return Decision(name, str(value), lambda problem: _with_fixed(problem, {name: value}), (str(value),))


def _listed(name: str, values: tuple[Any, ...]) -> Decision:
    used = tuple(dict.fromkeys(values))

    def keep(problem: Problem) -> Problem:
        choices: dict[str, Any] = {name: used}
        return evolve(problem, search=evolve(problem.search, **choices))

    return Decision(name, _by_stage(values), keep, tuple(map(str, values)))


def _by_stage(values: tuple[object, ...]) -> str:
    """Values by stage, such as `none (stage 1), full (stages 2-4)`; one word if all are equal."""
    if len(set(values)) == 1:
        return str(values[0])
    ranges, first = [], 1
    for value, run in groupby(values):
        last = first + len(list(run)) - 1
        ranges.append(f"{value} (stage{'' if first == last else 's'} {first}{'' if first == last else f'-{last}'})")
        first = last + 1
    return ", ".join(ranges)


def _with_fixed(
    problem: Problem, values: Mapping[str, int | str], stages: tuple[int | tuple[str, ...], ...] | None = None
) -> Problem:
    known = problem.fixed or Fixed({})
    return evolve(
        problem, fixed=Fixed({**known.values, **values}, known.stages if stages is None else stages, known.pools)
    )


def on_other_problem(problem: Problem, plan: PlanDocument, known: Registry) -> tuple[Problem, Instance, Solution]:
    """Open a problem until it allows the decisions of `plan`; also return it in numbers, and the decisions.

    Raises:
        InputError: they are no plan of this model and cluster, whatever the problem allows.
    """
    if plan.candidate is None:
        raise InputError("the plan names no candidate.")
    try:
        opened = _opened(problem, plan, plan.candidate)
    except FieldErrors as error:
        raise InputError(f"not a plan of this problem: {error}.") from None
    instance = build_instance(opened, known)
    solution = solution_of(instance, plan)
    faults = structure_violations(instance, solution)
    if faults:
        raise InputError(f"not a plan of this problem: {'; '.join(faults)}.")
    return opened, instance, solution


def _opened(problem: Problem, plan: PlanDocument, candidate: CandidateSummary) -> Problem:
    """Extend a problem to allow the decisions of a plan.

    A plan file has the degrees of one candidate only; if stages mix several, all admissible ones are allowed.
    """
    training, mixed = problem.training, len({stage.candidate for stage in plan.stages}) > 1
    named = {} if mixed or problem.model is None else candidate.degrees
    schedule = training.schedule if plan.schedule is None else (*training.schedule, plan.schedule)
    return evolve(
        problem,
        training=evolve(
            training,
            schedule=tuple(dict.fromkeys(schedule)),
            micro_batch=(candidate.samples if candidate.micro_batch is None else candidate.micro_batch,),
        ),
        search=evolve(
            problem.search,
            target=None,
            zero=(0, 1, 2, 3),
            zero_degree=(ALL_RANKS if plan.zero_degree is None else plan.zero_degree,),
            recompute=None,
            recompute_layers=True,
            rank_order=("pp-inner", "dp-inner"),
            mixed=mixed,
        ),
        strategies={name: (degree,) for name, degree in named.items()},
        constraints=(),
        fixed=None,
    )


def contributors(
    problem: Problem, known: Registry, instance: Instance | None = None, solution: Solution | None = None
) -> dict[str, str]:
    """Versions of the distributions behind a plan, by name.

    Counted are strategies that split something or are named, the schedule, the models of cost, collectives and layer
    times, the exporter of `search.target`, the stack, and the importers of model and network. Without a plan, every
    schedule of the problem counts.
    """
    schedules: tuple[str, ...] = problem.training.schedule
    split = {*problem.strategies, *problem.decided}
    if instance is not None and solution is not None:
        used = {stage.candidate for stage in solution.stages}
        degrees = (instance.candidates[index].degrees for index in used)
        split |= {name for each in degrees for name, degree in each.items() if degree > 1}
        schedules = (solution.schedule,)
    chosen: list[tuple[str, str | None, Iterable[str]]]
    chosen = [("collective_models", problem.collectives, known.collective_models())]
    if problem.model is not None:
        chosen += [("cost_models", problem.costs, known.cost_models())]
        chosen += [("layer_times", problem.layer_times, known.layer_times())]
    framework, stack = problem.search.framework, problem.training.stack
    return known.contributing(
        [
            *(("strategies", name) for name in known.strategies() if name in split),
            *(("schedules", name) for name in schedules),
            *((kind, name or next(iter(offered), "")) for kind, name, offered in chosen),
            *([] if framework is None else [("exporters", framework)]),
            *([("stacks", stack)] if isinstance(stack, str) else []),
        ]
    )


def differences(plugins: Mapping[str, str], known: Registry) -> list[str]:
    """Distributions of a plan that are missing here, or in another version."""
    here = known.installed()
    sentences = []
    for name, version in plugins.items():
        made_with = f"the plan was made with {name} {version}".rstrip()
        if name not in here:
            wanted = f"; install it with `pip install '{name}=={version}'`" if version else ""
            sentences.append(f"{made_with}, which is not installed or is switched off{wanted}.")
        elif here[name] != version:
            sentences.append(f"{made_with}; here it is {here[name] or 'without a version'}.")
    return sentences


def outside(
    plan: PlanDocument,
    instance: Instance,
    solution: Solution,
    formulation: Formulation,
    problem: Problem,
    registry: Registry,
) -> tuple[str, ...]:
    """Decisions of a plan that no search of its problem without `fixed` tries, and those its target cannot run.

    `instance` is what the plan was priced on, and `formulation` what that was made of.
    """
    # A search keeps to the target whatever is fixed, and to the lists where nothing is.
    searched = plan.lower_bound is not None
    beyond = [] if searched else beyond_target(plan, registry)
    reasons = () if searched and problem.fixed is None else _untried(instance, solution, formulation, problem, registry)
    return (*reasons, *(f"search.target: {sentence}" for sentence in beyond))


def wrong_outside(
    plan: PlanDocument,
    instance: Instance,
    solution: Solution,
    formulation: Formulation,
    problem: Problem,
    registry: Registry,
) -> tuple[str, ...]:
    """Differences between a plan's `outside` and its decisions, in words."""
    derived = outside(plan, instance, solution, formulation, problem, registry)
    if plan.outside == derived:
        return ()
    return (f"outside says {list(plan.outside or ())}, but the decisions give {list(derived)}.",)


def _untried(
    instance: Instance, solution: Solution, formulation: Formulation, problem: Problem, registry: Registry
) -> tuple[str, ...]:
    """Decisions of a plan outside the lists of its problem or their defaults."""
    free = evolve(without_missing_plugins(problem, registry), fixed=None)
    sentences = list(_outside_lists(instance, solution, free))
    for index in dict.fromkeys(stage.candidate for stage in solution.stages):
        sentences += _outside_candidate(instance, index, formulation, free, registry)
    return tuple(dict.fromkeys(sentences))


def _outside_lists(instance: Instance, solution: Solution, free: Problem) -> Iterator[str]:
    """Decisions outside the lists of `training` and `search`."""
    yield from _sentences("schedule", solution.schedule, "training.schedule", free.training.schedule)
    yield from _sentences(
        "rank_order", solution.rank_order, "search.rank_order", allowed_rank_orders(free.search.rank_order)
    )
    for stage in solution.stages:
        yield from _sentences("zero", stage.zero, "search.zero", allowed_zero(free.search.zero))
        for mode in modes_of(stage.recompute):
            yield from _sentences("recompute", mode, "search.recompute", free.search.recompute or (mode,))
        part = partial(stage.recompute)
        if part is not None and not recomputes_parts(free):
            yield from _sentences("recompute_layers", part.layers, "search.recompute_layers", ("whole stages",))
    if isinstance(schedule_of(instance, solution), ChunkedSchedule):
        yield from _outside_chunks(instance, solution)
    if any(stage.zero for stage in solution.stages):
        # Without ZeRO nothing is sharded, over however many ranks; more than hold the same parameters are all of them.
        groups = (group for stage in solution.stages for group in instance.candidates[stage.candidate].state)
        most = max((solution.replicas * len(set(group.ranks)) for group in groups), default=1)
        listed = allowed_zero_degrees(free.search.zero_degree)
        if min(solution.zero_degree or most, most) not in (min(each or most, most) for each in listed):
            degree, *degrees = (ALL_RANKS if each is None else each for each in (solution.zero_degree, *listed))
            yield from _sentences("zero_degree", degree, "search.zero_degree", degrees)


def _outside_chunks(instance: Instance, solution: Solution) -> Iterator[str]:
    """Numbers and sizes of chunks that the search does not try (PROBLEM.md section 4)."""
    space = instance.space
    tried = tried_chunks((len(space.blocks), len(space.blocks_and_ends)), space.even)
    if solution.chunks not in tried:
        numbers = listed([str(each) for each in tried])
        yield f"chunks is {solution.chunks}, but of {len(space.blocks)} blocks the search tries {numbers} only"
    counted = [set(block) for block in space.blocks_and_ends[1:-1] or space.blocks]
    sizes = [sum(not block.isdisjoint(run) for block in counted) for run in chunk_layers(instance, solution)]
    if max(sizes) > min(sizes[1:-1]) + 1:
        yield (
            f"chunks hold {min(sizes[1:-1])} to {max(sizes)} blocks, but the search only tries sizes that differ by "
            "at most 1 (fewer on the first and last chunk)"
        )


def _outside_candidate(
    instance: Instance, index: int, formulation: Formulation, free: Problem, registry: Registry
) -> Iterator[str]:
    """Reasons why the search makes no such candidate."""
    candidate = instance.candidates[index]
    if formulation.classes is None:
        limits = allowed_degrees(free.strategies, {}, {*registry.strategies(), *candidate.degrees})
        for name, limit in limits.items():
            degree = candidate.degrees.get(name, 1)
            if not limit.among((degree,)):
                yield from _sentences(name, degree, limit.place, limit.degrees)
        return
    size = candidate.micro_batch or candidate.samples
    yield from _sentences("micro_batch", size, "training.micro_batch", free.training.micro_batch or USUAL_MICRO_BATCHES)
    every = registry.strategies()
    searched = participating(free.strategies, every, mixed=free.search.mixed)
    refused = untried(
        formulation.classes.graph,
        {name: each for name, each in every.items() if name in {*searched, *candidate.degrees}},
        allowed_degrees(free.strategies, {}, every),
        size,
        candidate.degrees,
        StrategyContext(instance.cluster_of(index), free.training),
    )
    unnamed = {name: (1,) for name, degree in candidate.degrees.items() if degree > 1 and name not in searched}
    for name, tried in {**refused, **unnamed}.items():
        degree = candidate.degrees.get(name, 1)
        if name in free.strategies:
            yield from _sentences(name, degree, f"strategies.{name}", tried)
        else:
            values_text = ", ".join(map(str, tried))
            yield f"{name} is {degree}, but without strategies.{name} the search tries {values_text} only"


def _sentences(name: str, value: object, place: str, allowed: Collection[object]) -> Iterator[str]:
    if value not in allowed:
        yield f"{name} is {value}, but {place} allows {', '.join(map(str, allowed))} only"
