"""`search.target`: narrows a problem to the limits of an exporter's framework."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from attrs import evolve

from nest.catalogue import unknown_name
from nest.deployment import Limits, violations
from nest.errors import InputError, InputErrors
from nest.formulate.shard import allowed_degrees, participating, profile_degrees
from nest.formulate.stack import described, device_of
from nest.hooks.bundled import DISTRIBUTION
from nest.hooks.registry import Registry
from nest.io import structure
from nest.spec import NO_STACK, DeviceSpec, PlanDocument, Problem, StackSpec, Training
from nest.spec.problem import ALL_RANKS, NO_TARGET, OFFLOAD, Search
from nest.units import listed


def target_limits(problem: Problem, registry: Registry) -> Limits | None:
    """Limits of the framework named by `search.target`; None: none is named."""
    name = problem.search.framework
    return None if name is None else limits_of(name, problem, registry, "search.target")


def limits_of(name: str, problem: Problem, registry: Registry, place: str, release: str | None = None) -> Limits:
    """Limits of a release of an exporter's framework for a problem; None: of the newest.

    Raises:
        InputError: there is none of that name, or it has no limits; the text names `place`.
    """
    exporters = registry.exporters()
    able = {each for each, exporter in exporters.items() if hasattr(exporter, "limits")}
    if name in registry.missing("exporters"):
        raise InputError(f"{place}: the plug-in of exporter {name!r} is disabled; enable it or name another.")
    if name in exporters and name not in able:
        able_text = f" Targets: {', '.join(sorted(able))}." if able else " No exporter does."
        raise InputError(f"{place}: exporter {name!r} states no limits of a framework.{able_text}")
    if name not in able:
        raise unknown_name(place, "target", name, able)
    limits: Limits
    exporter = exporters[name] if release is None else exporters[name].for_release(release)  # type: ignore[attr-defined]
    if problem.cluster.pools is None:
        limits = exporter.limits(problem)  # type: ignore[union-attr]
    else:
        from nest.formulate.pools import limits_on_pools

        limits = limits_on_pools(exporter, problem, registry, place)
    if problem.training.trained is not None and not limits.trainable:
        raise InputError(f"{place}: {name} trains all of the model, but training.trainable freezes part of it.")
    if problem.training.stored not in (None, *limits.stored):
        raise InputError(f"{place}: {name} writes no file that keeps frozen weights in {problem.training.stored}.")
    return limits


def limits_on(limits: Limits, devices: int) -> Limits:
    """Limits with a constraint that all devices must be used, if so."""
    if not limits.all_devices:
        return limits
    return evolve(
        limits, constraints={**limits.constraints, f"devices == {devices}": "it uses all devices of a cluster"}
    )


def beyond_target(plan: PlanDocument, registry: Registry) -> list[str]:
    """Decisions of a plan beyond the target of its problem, a sentence each without its full stop.

    Raises:
        InputError: there is no such target, or the plan is infeasible.
    """
    problem = structure(plan.problem, Problem)
    limits = target_limits(problem, registry)
    return [] if limits is None else violations(plan, limits, str(problem.search.target))


def reasons(plan: PlanDocument, registry: Registry, among: Collection[str] | None = None) -> dict[str, tuple[str, ...]]:
    """Reasons why each framework with limits gets no files of a feasible plan; empty if it does.

    `among` has the names of the exporters; None: all.
    """
    if plan.problem["cluster"].get("pools"):
        from nest.formulate.pools import on_only_pool

        plan = on_only_pool(plan)
    problem = structure(plan.problem, Problem)

    def beyond(name: str) -> tuple[str, ...]:
        found = tuple(violations(plan, limits_of(name, problem, registry, "--to"), name))
        if not found:  # An exporter may have no words for what its framework runs.
            exporter = registry.exporters()[name]
            getattr(exporter, "refuse", exporter.export)(plan)
        return found

    def against(name: str) -> tuple[str, ...]:
        try:
            return registry.run(lambda: beyond(name))
        except InputErrors as errors:
            return tuple(each.rstrip(".") for each in errors.problems)
        except InputError as error:
            return (str(error).rstrip("."),)

    exporters = sorted(registry.exporters().items())
    asked = (name for name, exporter in exporters if hasattr(exporter, "limits") and (among is None or name in among))
    return {name: against(name) for name in asked}


INTERLEAVED = "interleaved"
"""Schedule searched besides the usual `1f1b` without a target's limits: most frameworks with pipelines run it, and most
of NVIDIA's recipes for several stages use it (Megatron-Bridge)."""


def runs_on(plan: PlanDocument, registry: Registry) -> tuple[str, ...]:
    """Exporters that write files of a feasible plan, by name."""
    return tuple(name for name, refusals in reasons(plan, registry).items() if not refusals)


def wrong_runs_on(plan: PlanDocument, registry: Registry) -> tuple[str, ...]:
    """Registered exporters that refuse a plan whose `runs_on` names them, a sentence each.

    Others may have been installed, or extended, since.
    """
    return tuple(
        f"runs_on names {name}, which cannot run the plan: {why[0]}."
        for name, why in reasons(plan, registry, plan.runs_on or ()).items()
        if why
    )


def with_schedules(training: Training, limits: Limits) -> Training:
    """`training` with the schedules of a framework after its own."""
    return evolve(training, schedule=tuple(dict.fromkeys((*training.schedule, *(limits.schedules or ())))))


def within(problem: Problem, limits: Limits, registry: Registry) -> Problem:
    """Remove choices beyond the `limits` of the target; recompute modes and constraints are kept.

    Raises:
        InputErrors: decisions without any choice left, each with the choices of problem and target.
    """
    wrong: list[str] = []
    target, fixed, search = str(problem.search.target), problem.decided, problem.search

    def allowed(names: Iterable[Any], limited: Collection[Any] | None, decided: str, listed: str, what: str) -> Any:
        place, wanted = (f"fixed.{decided}", (fixed[decided],)) if decided in fixed else (listed, tuple(names))
        left = tuple(name for name in wanted if limited is None or name in limited)
        if not left:
            wrong.append(beyond(target, what, limited or (), place, wanted))
        return left if decided not in fixed else tuple(names)

    problem = evolve(problem, search=evolve(search, mixed=search.mixed and limits.mixed))
    strategies = dict(problem.strategies)
    if limits.strategies is not None:  # What it lacks has degree 1.
        registered, own = registry.strategies(), profile_degrees(problem.profile)
        degrees = allowed_degrees(strategies, fixed, {*registered, *own})
        mixed = search.mixed and limits.mixed
        taken = {*participating({*strategies, *fixed}, registered, mixed=mixed), *own.difference(registered), *degrees}
        for name in sorted(taken.difference(limits.strategies)):
            if name in degrees and not {1, False}.intersection(degrees[name].degrees):
                wrong.append(f"{degrees[name]}, but search.target {target} has no strategy {name!r}; leave it out.")
            if name in {*registered, *own}:
                strategies[name] = (1,)
    schedules = allowed(problem.training.schedule, limits.schedules, "schedule", "training.schedule", "schedules")
    zero = allowed(search.zero, limits.zero, "zero", "search.zero", "ZeRO stages")
    orders = allowed(search.rank_order, limits.rank_orders, "rank_order", "search.rank_order", "rank orders")
    everywhere = None if limits.zero_degrees else (ALL_RANKS,)
    degrees = allowed(search.zero_degree, everywhere, "zero_degree", "search.zero_degree", "shard groups (zero_degree)")
    if "optimizer" in problem.training.offload and "optimizer" not in limits.offload:
        wrong.append(f"search.target: {target} cannot keep the optimizer state on the host (training.offload).")
    if wrong:
        raise InputErrors(wrong)
    return evolve(
        problem,
        training=evolve(problem.training, schedule=schedules),
        search=evolve(problem.search, zero=zero, rank_order=orders, zero_degree=degrees),
        strategies=strategies,
    )


def beyond(target: str, what: str, has: Iterable[object], place: str, wanted: Iterable[object]) -> str:
    """Sentence that a problem asks only for things its target lacks."""
    return (
        f"{place} allows {', '.join(map(str, wanted))}, but search.target {target} has {what} "
        f"{', '.join(map(str, has)) or 'of no kind'} only; allow one of these, or choose another target."
    )


class Target(NamedTuple):
    """Outcome for a target that the problem does not name."""

    name: str | None  # Of the framework; None: the whole space is searched.
    why: str = ""  # Reason for none; empty otherwise.

    @property
    def sentence(self) -> str:
        """Sentence on what is searched, and how to change it."""
        if self.name is None:
            return f"No target: {self.why}."
        return f"Searching only plans that {self.name} can run (`--target none` lifts this)."


def with_target(problem: Problem, written: Mapping[str, Any], known: Registry) -> tuple[Problem, Target | None]:
    """Set the framework of the problem's stack as its target, or none if that cannot run what it names.

    Schedules default to all of the target or of the stack's framework; without a target, `interleaved` is among them.

    Returns:
        The problem, and the choice; None: there was none, as the problem names it, has a profile, or a stack without a
        framework.
    """
    if problem.model is None:
        return problem, None
    target = problem.search.framework
    device = None if "stack" in (written.get("training") or {}) else device_of(problem.cluster)
    names = _frameworks(problem.training.stack, device, known) if target is None else [target]
    if problem.search.target is not None:
        named = _with_schedules(problem, written, names, known)
        return (named if problem.search.target != NO_TARGET else _interleaving(named, written, known)), None
    chosen: Target | None = None
    for name in names:
        each = _implied(_with_schedules(problem, written, [name], known), name, written, known)
        chosen = each if chosen is None or each.name is not None else chosen
        if each.name is not None:
            break
    if problem.training.stack not in (None, NO_STACK) and not known.exporters():
        chosen = Target(None, "no exporter is installed")
    target = NO_TARGET if chosen is None or chosen.name is None else chosen.name
    if target == NO_TARGET:
        whole = _interleaving(_with_schedules(problem, written, names, known), written, known)
    else:
        whole = _with_schedules(problem, written, [target], known)
    return evolve(whole, search=evolve(problem.search, target=target)), chosen


def _interleaving(problem: Problem, written: Mapping[str, Any], known: Registry) -> Problem:
    """Add `interleaved` to the default schedules of a problem without target, unless pools forbid it."""
    named = "schedule" in (written.get("training") or {}) or INTERLEAVED not in known.schedules()
    if named or problem.cluster.pools is not None:
        return problem
    return evolve(problem, training=with_schedules(problem.training, Limits(schedules=(INTERLEAVED,))))


def schedule_notice(problem: Problem, written: Mapping[str, Any], known: Registry) -> str | None:
    """Note on the schedules searched by default; None: a list or target sets them, or there is no model."""
    schedules, decided = problem.training.schedule, problem.decided
    named = "schedule" in (written.get("training") or {}) or "schedule" in decided or decided.get("pp") == 1
    if problem.model is None or named or problem.search.target != NO_TARGET or {*known.schedules()} <= {*schedules}:
        return None
    return f"Searching the schedules {listed(schedules)}; list others in training.schedule."


def untargeted(problem: Problem, written: Mapping[str, Any], known: Registry) -> Problem:
    """Drop an unnamed target: decided plans are priced, whoever can run them."""
    if problem.model is None:
        return problem
    whole, _ = with_target(problem, written, known)
    return evolve(whole, search=evolve(problem.search, target=problem.search.target or NO_TARGET))


def _frameworks(stack: str | StackSpec | None, device: DeviceSpec | None, known: Registry) -> list[str]:
    """Exporters of the stack; for a stack implied by the precision, those of the `device` follow."""
    if stack is None or stack == NO_STACK:
        return []
    names = [*described(stack, known).targets, *([stack] if isinstance(stack, str) else [])]
    if device is not None and device.stack is not None:
        names += described(device.stack, known).targets
    exporters = known.exporters()
    return [each for each in dict.fromkeys(names) if hasattr(exporters.get(each), "limits")]


ANY_PROBLEM: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 8, "hidden": 64, "ffn": 256, "heads": 8, "vocab": 1024}},
    "training": {"global_batch": 8, "sequence_length": 128},
    "cluster": {"levels": [{"fanout": 8, "bandwidth": 1e9}]},
}
"""Stands in when limits are requested without a problem: they depend on a model and a training."""


def _with_schedules(problem: Problem, written: Mapping[str, Any], names: Iterable[str], known: Registry) -> Problem:
    """Add all schedules of the first of some frameworks if none is listed."""
    if "schedule" in (written.get("training") or {}):
        return problem
    for name in names:
        for each in (problem, structure(ANY_PROBLEM, Problem)):
            with suppress(InputError):  # It is no exporter, or trains nothing so; whoever needs it says so.
                limits = limits_of(name, each, known, "search.target")
                if problem.cluster.pools is not None:
                    from nest.formulate.pools import of_one_run

                    limits = of_one_run(limits, known)
                return evolve(problem, training=with_schedules(problem.training, limits))
    return problem


def _implied(problem: Problem, name: str, written: Mapping[str, Any], known: Registry) -> Target:
    try:
        limits = limits_of(name, problem, known, "search.target")
        reason = next(_beyond(problem, written, limits, known), None)
        if reason is not None:
            return Target(None, f"{name} cannot run {reason}")
        within(evolve(problem, search=evolve(problem.search, target=name)), limits, known)
    except InputError as error:
        return Target(None, str(error).splitlines()[0].rstrip("."))
    return Target(name)


def _beyond(problem: Problem, written: Mapping[str, Any], limits: Limits, known: Registry) -> Iterator[str]:
    """Named or plugged-in features that a framework lacks, the most telling first."""
    search, training, fixed = written.get("search") or {}, written.get("training") or {}, problem.decided
    if problem.search.mixed and not limits.mixed:
        yield "unequal stages (search.mixed)"
    if problem.search.granularity == "operator":
        yield "stages that split a layer (search.granularity)"
    # A list that says what it says when it is left out names nothing.
    orders = None if problem.search.rank_order == Search().rank_order else search.get("rank_order")
    zero = None if problem.search.zero == Search().zero else search.get("zero")
    yield from _listed("search.zero", zero, fixed.get("zero"), limits.zero)
    yield from _listed("training.schedule", training.get("schedule"), fixed.get("schedule"), limits.schedules)
    yield from _listed("search.rank_order", orders, fixed.get("rank_order"), limits.rank_orders)
    modes = None if limits.recompute is None else (*limits.recompute, OFFLOAD)
    yield from _listed("search.recompute", search.get("recompute"), fixed.get("recompute"), modes)
    if (search.get("recompute_layers") or "recompute_layers" in fixed) and not limits.partial_recompute:
        yield "recomputation of some blocks (recompute_layers)"
    if ("zero_degree" in search or "zero_degree" in fixed) and not limits.zero_degrees:
        yield "ZeRO over shard groups (zero_degree)"
    if limits.strategies is None:
        return
    strategies, every = known.strategies(), {*problem.strategies, *fixed}
    allowed = allowed_degrees(problem.strategies, fixed, strategies)
    for name in participating(every, strategies, mixed=problem.search.mixed):
        named = name in every
        brought = known.origin("strategies", name)[0] != DISTRIBUTION
        if name in limits.strategies or not (named or brought):
            continue
        if name not in allowed or set(allowed[name].degrees) - {1, False}:
            yield f"the strategy {name!r}" + ("" if named else f" of {known.origin('strategies', name)[0]}")


def _listed(place: str, written: Any, fixed: Any, has: Iterable[Any] | None) -> Iterator[str]:
    """Written choices that are missing."""
    if has is None:
        return
    named = [] if written is None else list(written) if isinstance(written, (list, tuple)) else [written]
    missing = [each for each in (*named, *([] if fixed is None else [fixed])) if each not in tuple(has)]
    if missing:
        yield f"{', '.join(map(str, missing))} ({place})"
