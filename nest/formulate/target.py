"""`search.target`: a problem narrowed to what the framework of an exporter can run."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from attrs import evolve

from nest.catalogue import unknown_name
from nest.deployment import Limits, violations
from nest.errors import InputError, InputErrors
from nest.files import read, structure
from nest.formulate.choices import allowed_degrees, taking_part
from nest.hooks.registry import Registry
from nest.instance import Cluster
from nest.spec import PlanDocument, Problem, ProfileSpec
from nest.spec.constraints import Constraint, parse
from nest.spec.problem import ALL_RANKS, OFFLOAD
from nest.tolerances import AGREEMENT, SIMPLER


def target_limits(problem: Problem, registry: Registry) -> Limits | None:
    """What the framework named by `search.target` can run; None: none is named.

    Raises:
        InputError: no exporter is called so, or it does not say what its framework can run.
    """
    name = problem.search.framework
    if name is None:
        return None
    return limits_of(name, problem, registry, "search.target")


def limits_of(name: str, problem: Problem, registry: Registry, place: str) -> Limits:
    """What the framework of the exporter called `name` can run of a problem.

    Raises:
        InputError: there is none called so, or it does not say; the text names `place`.
    """
    exporters = registry.exporters()
    able = {each for each, exporter in exporters.items() if hasattr(exporter, "limits")}
    if name in registry.absent("exporters"):
        raise InputError(f"{place}: exporter {name!r} is disabled, so that nobody knows what its framework can run.")
    if name in exporters and name not in able:
        told = f" Those that do: {', '.join(sorted(able))}." if able else " None that is registered does."
        raise InputError(f"{place}: exporter {name!r} does not say what can run its files.{told}")
    if name not in able:
        raise unknown_name(place, "target", name, able)
    found: Limits = exporters[name].limits(problem)  # type: ignore[attr-defined]
    return found


def limits_on(limits: Limits, cluster: Cluster) -> Limits:
    """The limits, with the constraint that says that all devices of the cluster must be used, if they must."""
    if not limits.all_devices:
        return limits
    return evolve(
        limits, constraints={**limits.constraints, f"devices == {cluster.size}": "it takes all devices of a cluster"}
    )


def beyond_target(plan: PlanDocument, registry: Registry) -> list[str]:
    """What of a plan the target of its problem cannot run, a sentence each without its full stop.

    Raises:
        InputError: there is no such target, or the plan is infeasible.
    """
    problem = structure(plan.problem, Problem)
    limits = target_limits(problem, registry)
    return [] if limits is None else violations(plan, limits, str(problem.search.target))


def reasons(plan: PlanDocument, registry: Registry) -> dict[str, tuple[str, ...]]:
    """Why each framework that states limits cannot run a feasible plan, a sentence each; none where it can."""
    problem = structure(plan.problem, Problem)

    def against(name: str) -> tuple[str, ...]:
        try:
            return tuple(violations(plan, registry.run(lambda: limits_of(name, problem, registry, "--to")), name))
        except InputError as error:  # It can run nothing of such a problem.
            return (str(error).rstrip("."),)

    exporters = sorted(registry.exporters().items())
    return {name: against(name) for name, exporter in exporters if hasattr(exporter, "limits")}


def simpler_within(problem: Problem) -> float | None:
    """Share of the batch time that a plan whose stages are alike may take longer to be preferred; None: none is.

    A profile has no framework that would ask for it.
    """
    if problem.model is None:
        return None
    return SIMPLER if problem.search.prefer == "simplest" else AGREEMENT


def runs_on(plan: PlanDocument, registry: Registry) -> tuple[str, ...]:
    """The exporters whose frameworks can run a feasible plan as it is, by name."""
    return tuple(name for name, found in reasons(plan, registry).items() if not found)


def wrong_runs_on(plan: PlanDocument, registry: Registry) -> tuple[str, ...]:
    """Whether `runs_on` of a plan is what exporters that are registered here say, in a sentence; empty: it is."""
    stated = set(plan.runs_on or ())
    return tuple(
        f"runs_on says that {name} {'can' if name in stated else 'cannot'} run the plan, which is not so."
        for name, why in reasons(plan, registry).items()
        if (name in stated) == bool(why)
    )


def with_schedules(problem: Problem, limits: Limits) -> Problem:
    """The problem with the schedules of a framework behind its own."""
    schedules = tuple(dict.fromkeys((*problem.training.schedule, *(limits.schedules or ()))))
    return evolve(problem, training=evolve(problem.training, schedule=schedules))


def within(problem: Problem, limits: Limits, registry: Registry, base: Path | None = None) -> Problem:
    """`problem` without the choices that are beyond `limits`; those of recompute modes and constraints are kept.

    Args:
        problem: as written, with a target.
        limits: of the target.
        registry: offers strategies.
        base: folder that relative paths start from; None: the working directory.

    Raises:
        InputErrors: of some decision no choice is left, each with what the problem allows and what the target has.
    """
    wrong: list[str] = []
    target, fixed, search = str(problem.search.target), problem.decided, problem.search

    def kept(names: Iterable[Any], limited: Collection[Any] | None, decided: str, listed: str, what: str) -> Any:
        place, wanted = (f"fixed.{decided}", (fixed[decided],)) if decided in fixed else (listed, tuple(names))
        found = tuple(name for name in wanted if limited is None or name in limited)
        if not found:
            wrong.append(beyond(target, what, limited or (), place, wanted))
        return found if decided not in fixed else tuple(names)

    if isinstance(problem.profile, str):
        problem = evolve(problem, profile=read((base or Path()) / problem.profile, ProfileSpec))
    problem = evolve(problem, search=evolve(search, mixed=search.mixed and limits.mixed))
    strategies = _strategies(problem, limits, registry, target, wrong)
    schedules = kept(problem.training.schedule, limits.schedules, "schedule", "training.schedule", "schedules")
    zero = kept(search.zero, limits.zero, "zero", "search.zero", "ZeRO stages")
    orders = kept(search.rank_order, limits.rank_orders, "rank_order", "search.rank_order", "rank orders")
    everywhere = None if limits.zero_degrees else (ALL_RANKS,)
    degrees = kept(search.zero_degree, everywhere, "zero_degree", "search.zero_degree", "shard groups (zero_degree)")
    if "optimizer" in problem.training.offload and "optimizer" not in limits.offload:
        wrong.append(f"search.target: {target} cannot keep the optimizer's state on the host (training.offload).")
    if wrong:
        raise InputErrors(wrong)
    return evolve(
        problem,
        training=evolve(problem.training, schedule=schedules),
        search=evolve(problem.search, zero=zero, rank_order=orders, zero_degree=degrees),
        strategies=strategies,
    )


def beyond(target: str, what: str, has: Iterable[object], place: str, wanted: Iterable[object]) -> str:
    """That a problem asks for something that its target has not, and for nothing that it has."""
    return (
        f"{place} allows {', '.join(map(str, wanted))}, but search.target {target} has {what} "
        f"{', '.join(map(str, has)) or 'of no kind'} only; allow one that it has, or choose another target."
    )


def _strategies(
    problem: Problem, limits: Limits, registry: Registry, target: str, wrong: list[str]
) -> dict[str, tuple[int | bool, ...]]:
    """The degrees each strategy may use: 1 where the target lacks it."""
    strategies = dict(problem.strategies)
    if limits.strategies is None:
        return strategies
    profile = problem.profile
    candidates = profile.candidates if isinstance(profile, ProfileSpec) else ()
    known = {*registry.strategies(), *(name for each in candidates for name in each.degrees)}
    allowed = allowed_degrees(problem, known)
    taken = {*taking_part(problem, registry.strategies()), *known.difference(registry.strategies()), *allowed}
    for name in sorted(taken.difference(limits.strategies)):
        if name in allowed and not {1, False}.intersection(allowed[name].degrees):
            wrong.append(f"{allowed[name].told()}, but search.target {target} has no strategy {name!r}; leave it out.")
        if name in known:
            strategies[name] = (1,)
    return strategies


def allowed_modes(target: str | None, limits: Limits | None, place: str, wanted: Iterable[str]) -> tuple[str, ...]:
    """Those of the `wanted` recompute modes that a target has, in their order.

    Raises:
        InputError: it has none of them.
    """
    asked = tuple(dict.fromkeys(wanted))
    if limits is None:
        return asked
    host = (OFFLOAD,) if "activations" in limits.offload else ()
    modes = None if limits.recompute is None else (*limits.recompute, *host)
    found = tuple(name for name in asked if (name in modes if modes is not None else name != OFFLOAD or host))
    if not found:
        raise InputError(beyond(str(target), "recompute modes", modes or (), place, asked))
    return found


def limit_constraints(
    target: str | None, limits: Limits | None, names: Collection[str], layers: Collection[str]
) -> list[Constraint]:
    """The constraints of a target, with their reasons; what `same_stage` says of other layers is left out.

    Args:
        target: its name.
        limits: what it can run; None: anything.
        names: those that constraints know.
        layers: those of the model.

    Raises:
        InputError: one is no constraint, or reads a name that none knows; the text names the target.
    """
    found: list[Constraint] = []
    if limits is None:
        return found
    names = {*names, *(limits.strategies or ())}  # It may have strategies that nobody brings here: their degree is 1.
    for text, reason in limits.constraints.items():
        place = f"the limits of exporter {target!r}"
        try:
            constraint = evolve(parse(text), reason=f"search.target is {target}: {reason}")
        except InputError as error:
            raise InputError(f"{place}: {error}") from None
        unknown = sorted(constraint.names().difference(names))
        if unknown:
            raise unknown_name(f"{place} (`{constraint.text}`)", "name", unknown[0], names)
        if constraint.same_stage:
            constraint = evolve(constraint, same_stage=tuple(each for each in constraint.same_stage if each in layers))
        if constraint.expression is not None or constraint.uniform is not None or len(constraint.same_stage) > 1:
            found.append(constraint)
    return found
