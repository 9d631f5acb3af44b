"""The decisions of a plan: as a list, most important first, and on another problem."""

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any

from attrs import evolve, frozen

from nest.deployment import Limits, deployment
from nest.deployment.limits import degrees_of
from nest.errors import FieldError, FieldErrors, InputError
from nest.formulate.instance import build_instance
from nest.hooks.registry import Registry
from nest.instance import Instance, Solution
from nest.plan.document import solution_of
from nest.plan.legality import structure_violations
from nest.spec import CandidateSummary, Fixed, PlanDocument, Problem
from nest.spec.problem import ALL_RANKS

FIRST_DEGREES = ("tp", "cp", "ep", "etp", "sp")
"""Strategies in the order in which degrees are kept that are equal; others come after them, by name."""


@frozen
class Decision:
    """One thing a plan decides.

    Attributes:
        name: what it is called in constraints and under `fixed`.
        told: what the plan decides, for people; decisions told alike are alike.
        keep: a problem narrowed to what the plan decides.
        values: what it decides, as text: one value, or one for each stage.
    """

    name: str
    told: str
    keep: Callable[[Problem], Problem]
    values: tuple[str, ...]


def decisions(plan: PlanDocument, registry: Registry) -> list[Decision]:
    """What a plan decides, the most important first; of what stages decide for themselves, the set of what they use.

    Raises:
        InputError: the plan is infeasible.
    """
    shape = deployment(plan)
    found = [_degree(name, values) for name, values in _degrees(plan, registry).items()]
    # Where a degree goes, its devices are of more use to further replicas than to nobody.
    devices = shape.replicas * sum(stage.devices[1] for stage in plan.stages)
    found += [_fixed("micro_batch", shape.micro_batch), _fixed("pp", shape.stages), _fixed("devices", devices)]
    found.append(_fixed("replicas", shape.replicas))
    if shape.chunks == 1:  # Several chunks are dealt evenly, in one way for each number of stages.
        layers = tuple(stage.layers for stage in plan.stages)
        counts = tuple(str(len(each)) for each in layers)
        told = f"{', '.join(counts)} layers"
        found.append(Decision("stages", told, lambda problem: _with_fixed(problem, {}, layers), counts))
    found += [_fixed("schedule", shape.schedule), _fixed("chunks", shape.chunks)]
    found.append(_listed("rank_order", (shape.rank_order,)))
    found += [_listed("recompute", shape.recompute), _listed("zero", shape.zero)]
    found.append(_listed("zero_degree", (ALL_RANKS if shape.zero_degree is None else shape.zero_degree,)))
    return found


def open_problem(problem: Problem, plan: PlanDocument, limits: Limits, target: str, registry: Registry) -> Problem:
    """The plans near `plan`: its problem, narrowed to a `target` that has `limits`, with nothing decided.

    Of what the problem lists, such as schedules, what the target has is kept; where that is nothing, all that the
    target has stands for it. Of a plan that no search found, constraints are left out, as they do not bind it.
    """
    training, search = problem.training, problem.search
    orders = None if limits.rank_orders is None else limits.rank_orders
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
            rank_order=_either(search.rank_order, orders, orders or ()),
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
    """What is listed and the target has; else all that it has, of what is known."""
    wanted = tuple(listed)
    kept = tuple(each for each in wanted if has is None or each in has)
    return kept or tuple(each for each in has or () if each in known) or wanted


def _degrees(plan: PlanDocument, registry: Registry) -> dict[str, tuple[int, ...]]:
    """The degree on each stage of every strategy that may take part, the highest first."""
    used = [degrees_of(plan, stage) for stage in plan.stages]
    names = {name for each in used for name in each}
    if plan.problem.get("model") is not None:
        names |= {name for name, each in registry.strategies().items() if getattr(each, "by_default", True)}
    order = [name for name in (*FIRST_DEGREES, *sorted(names.difference(FIRST_DEGREES))) if name in names]
    found = {name: tuple(each.get(name, 1) for each in used) for name in order}
    return {name: found[name] for name in sorted(order, key=lambda name: -max(found[name]))}


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
    """What stages have, such as `none (stage 1), full (stages 2-4)`; one word where all have the same."""
    if len(set(values)) == 1:
        return str(values[0])
    told, first = [], 1
    for value, run in groupby(values):
        last = first + len(list(run)) - 1
        told.append(f"{value} (stage{'' if first == last else 's'} {first}{'' if first == last else f'-{last}'})")
        first = last + 1
    return ", ".join(told)


def _with_fixed(
    problem: Problem, values: Mapping[str, int | str], stages: tuple[tuple[str, ...], ...] | None = None
) -> Problem:
    known = problem.fixed or Fixed({})
    return evolve(problem, fixed=Fixed({**known.values, **values}, known.stages if stages is None else stages))


def on_other_problem(problem: Problem, plan: PlanDocument, known: Registry) -> tuple[Problem, Instance, Solution]:
    """The problem opened so far that it allows what `plan` decides, and in numbers, and the decisions, for their price.

    Raises:
        InputError: they are no plan of this model and cluster, whatever the problem allows.
    """
    if plan.candidate is None:
        raise InputError("the plan does not say which candidate it uses.")
    try:
        opened = _opened(problem, plan, plan.candidate)
    except (FieldError, FieldErrors) as error:
        raise InputError(f"it is no plan of this problem: {error}.") from None
    instance = build_instance(opened, known)
    solution = solution_of(instance, plan)
    faults = structure_violations(instance, solution)
    if faults:
        raise InputError(f"it is no plan of this problem: {'; '.join(faults)}.")
    return opened, instance, solution


def _opened(problem: Problem, plan: PlanDocument, candidate: CandidateSummary) -> Problem:
    """The problem, allowed what the plan decides.

    A plan file has the degrees of one candidate only; where stages mix several, all that are admissible are allowed.
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
            rank_order=("pp-inner", "dp-inner"),
            mixed=mixed,
        ),
        strategies={name: (degree,) for name, degree in named.items()},
        constraints=(),
        fixed=None,
    )
