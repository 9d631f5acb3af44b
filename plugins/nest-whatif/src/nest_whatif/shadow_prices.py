"""Restrictions of a problem: every entry that rules out plans, with the problem without it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from attrs import asdict, evolve, frozen
from attrs.filters import exclude

from nest.errors import InputError
from nest.hooks.registry import Registry
from nest.instance import Instance
from nest.public.changes import (
    BESIDE_CANDIDATES,
    PLENTY,
    USUAL_MICRO_BATCHES,
    Solver,
    accepted_risk,
    admitted,
    is_alike,
    one_run_each,
    parameters,
    participating,
    recomputes_parts,
)
from nest.public.planning import at_risk
from nest.spec import PlanDocument, Problem, ProfileSpec
from nest.spec.constraints import Constraint
from nest.spec.problem import ALL_RANKS, NO_TARGET, RANK_ORDERS, ZERO_STAGES
from nest.units import format_bytes
from nest_whatif.outcome import Outcome, outcome

DARING = 0.8  # Share of launches that may run out of memory, for someone who can retry.


@frozen
class Relaxation:
    """One entry of a problem, and the problem without it."""

    place: str  # Such as `constraints[0]`, `fixed.tp`, `search.zero`.
    written: str  # Content, for people.
    instead: str  # Replacement; empty: nothing.
    problem: Problem


def relaxations(problem: Problem, known: Registry) -> tuple[Relaxation, ...]:
    """Every entry of a self-contained problem that rules out plans, removed or relaxed one at a time.

    Lists of choices (`training.schedule`, `training.micro_batch`, `strategies`, `search`) are extended to all possible
    choices. Memory, which every problem limits, comes last.

    Args:
        problem: its files read in.
        known: offers strategies and schedules.
    """
    return (
        *_constraints(problem),
        *_fixed(problem, known),
        *_strategies(problem, known),
        *_search(problem),
        *_training(problem, known),
        *_memory(problem, known),
    )


def _constraints(problem: Problem) -> Iterator[Relaxation]:
    for index, text in enumerate(problem.constraints):
        left = (*problem.constraints[:index], *problem.constraints[index + 1 :])
        yield Relaxation(f"constraints[{index}]", text.strip(), "", evolve(problem, constraints=left))


def _fixed(problem: Problem, known: Registry) -> Iterator[Relaxation]:
    fixed = problem.fixed
    if fixed is None:
        return
    for name, value in fixed.values.items():
        left = {other: each for other, each in fixed.values.items() if other != name}
        open_problem = evolve(problem, fixed=evolve(fixed, values=left))
        if name not in problem.strategies:
            open_problem = _taking_part(open_problem, name, known)
        yield Relaxation(f"fixed.{name}", _formatted(value), "", open_problem)
    if fixed.stages is not None:
        yield Relaxation(
            "fixed.stages", f"{len(fixed.stages)} stages", "", evolve(problem, fixed=evolve(fixed, stages=None))
        )


def _strategies(problem: Problem, known: Registry) -> Iterator[Relaxation]:
    for name, degrees in problem.strategies.items():
        if name in problem.decided:  # What is fixed wins over what is listed, which rules out nothing more.
            continue
        left = {other: each for other, each in problem.strategies.items() if other != name}
        relaxed = _taking_part(evolve(problem, strategies=left), name, known)
        yield Relaxation(f"strategies.{name}", _listed(degrees), "any degree", relaxed)


def _taking_part(problem: Problem, name: str, known: Registry) -> Problem:
    """Let a strategy that needs to be named take part, with any degree."""
    registered = known.strategies()
    named = {*problem.strategies, *problem.decided}
    if name not in registered or name in participating(named, registered, mixed=problem.search.mixed):
        return problem
    from nest.public.planning import build_cluster

    parts = [each.cluster for each in problem.cluster.pools or ()] or [problem.cluster]
    size = max(build_cluster(each, known)[0].size for each in parts)
    return evolve(problem, strategies={**problem.strategies, name: tuple(range(1, size + 1))})


def _search(problem: Problem) -> Iterator[Relaxation]:
    search, decided = problem.search, problem.decided
    orders = tuple(dict.fromkeys((*search.rank_order, *RANK_ORDERS)))
    stages = tuple(dict.fromkeys((*search.zero, *ZERO_STAGES)))
    some_blocks = not {"recompute", "recompute_layers"} & decided.keys() and not recomputes_parts(problem)
    ranks = (*search.zero_degree, ALL_RANKS)
    # Key, content, wider content, that for people, and whether the key rules out plans.
    entries: tuple[tuple[str, str, Any, str, bool], ...] = (
        ("rank_order", _listed(search.rank_order), orders, "any", set(search.rank_order) != set(RANK_ORDERS)),
        ("zero", _listed(search.zero), stages, "any", set(search.zero) != set(ZERO_STAGES)),
        ("recompute", _listed(search.recompute or ()), None, "any mode", search.recompute is not None),
        ("recompute_layers", "false", True, "any number of blocks", some_blocks),
        ("zero_degree", _listed(search.zero_degree), ranks, "all ranks too", ALL_RANKS not in search.zero_degree),
        ("granularity", search.granularity, "layer", "cuts between any layers", search.granularity == "block"),
        ("target", search.framework or "", NO_TARGET, "any framework", search.framework is not None),
    )
    for key, written, value, instead, excludes in entries:
        if excludes and key not in decided:
            relaxed = evolve(problem, search=evolve(search, **{key: value}))
            yield Relaxation(f"search.{key}", written, instead, relaxed)


def _training(problem: Problem, known: Registry) -> Iterator[Relaxation]:
    training, decided = problem.training, problem.decided
    missing = [
        name
        for name, each in known.schedules().items()
        if name not in training.schedule and (problem.cluster.pools is None or one_run_each(each))
    ]
    if missing and "schedule" not in decided:
        relaxed = evolve(problem, training=evolve(training, schedule=(*training.schedule, *missing)))
        yield Relaxation("training.schedule", _listed(training.schedule), "any schedule", relaxed)
    sizes = training.micro_batch
    if sizes is not None and problem.model is not None and "micro_batch" not in decided:
        more = [size for size in USUAL_MICRO_BATCHES if size <= training.global_batch and size not in sizes]
        if more:
            relaxed = evolve(problem, training=evolve(training, micro_batch=(*sizes, *more)))
            yield Relaxation("training.micro_batch", _listed(sizes), f"{_listed(more)} too", relaxed)
    if not training.uneven_batch and (training.global_batch > 1 or isinstance(problem.profile, ProfileSpec)):
        relaxed = evolve(problem, training=evolve(training, uneven_batch=True))
        yield Relaxation("training.uneven_batch", "false", "uneven micro-batches", relaxed)


def _memory(problem: Problem, known: Registry) -> Iterator[Relaxation]:
    risk = accepted_risk(problem.training, problem.model)
    if risk is not None and risk < DARING:
        yield Relaxation("training.memory_risk", f"{risk:g}", f"{DARING:g}", at_risk(problem, DARING))
    for parameter in parameters(problem, known):
        if parameter.unit == "bytes":
            relaxed = parameter.changed(problem, parameter.value * PLENTY)
            place = "cluster.memory" if problem.cluster.pools is None else parameter.name
            yield Relaxation(place, format_bytes(parameter.value), "any amount of memory", relaxed)


def _listed(values: Iterable[object]) -> str:
    return ", ".join(_formatted(value) for value in values)


def _formatted(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@frozen
class ShadowPrice:
    """Cost of one restriction."""

    place: str  # Such as `constraints[0]`, `fixed.tp`, `search.zero`.
    written: str  # Content.
    instead: str  # Replacement; empty: nothing.
    outcome: Outcome  # Best plan without it, compared with the best plan with it.

    @property
    def costs(self) -> bool:
        """True if a plan without the restriction is faster, or is the first one at all."""
        if self.outcome.plan is None:
            return False
        return self.outcome.relative is None or (self.outcome.relative < 0 and not self.outcome.as_fast)

    def to_dict(self) -> dict[str, object]:
        """Convert to plain mappings, lists and numbers."""
        own = asdict(self, recurse=False, filter=exclude("outcome"))
        return {**own, "costs": self.costs, **self.outcome.to_dict()}


def shadow_price(best: PlanDocument, problem: Problem, relaxation: Relaxation, solver: Solver) -> ShadowPrice:
    """Find the cost of one restriction for the problem's best plan, which may be infeasible; at most one solve.

    Without a restriction there are only more plans, so no cost is below 0 if both are proved.
    """
    plan: PlanDocument | None = best
    if not _is_idle(best, problem, relaxation, solver):
        plan = solver.plan(relaxation.problem, f"without {relaxation.place}", best)
    return ShadowPrice(relaxation.place, relaxation.written, relaxation.instead, outcome(best, plan, solver.plugins))


def _is_idle(best: PlanDocument, problem: Problem, relaxation: Relaxation, solver: Solver) -> bool:
    """True if an entry visibly rules out nothing that others do not, without a search.

    With and without it, the problem then has the same candidates, as far as these may be as fast as the best plan, and
    the same rules, except for constraints that hold for every candidate and decision.
    """
    if best.status != "optimal" or best.batch_time is None:
        return False
    try:
        whole, relaxed = (solver.instance(each, complete=False) for each in (problem, relaxation.problem))
    except InputError:
        return False
    if best.batch_time > min(whole.complete_to, relaxed.complete_to):
        return False
    if (whole.cluster, whole.pools) != (relaxed.cluster, relaxed.pools):
        return False
    texts = [{each.text for each in instance.space.constraints} for instance in (whole, relaxed)]
    added = [each for each in whole.space.constraints if each.text not in texts[1]]
    return is_alike(whole, relaxed) and texts[1] <= texts[0] and _always_hold(added, whole)


def _always_hold(constraints: Sequence[Constraint], instance: Instance) -> bool:
    """True if constraints read only degrees and sizes, and hold for every candidate."""
    if any(each.expression is None or each.names() & BESIDE_CANDIDATES for each in constraints):
        return False
    constrained = evolve(instance, space=evolve(instance.space, constraints=tuple(constraints)))
    try:
        return len(admitted(constrained, None)) == len(instance.candidates)
    except InputError:  # One cannot be computed, which a search says.
        return False
