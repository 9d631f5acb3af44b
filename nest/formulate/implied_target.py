"""The target of a problem that names none: the framework of its stack, where that can run what the problem names."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import evolve, frozen

from nest.deployment import Limits
from nest.errors import InputError
from nest.formulate.choices import allowed_degrees, taking_part
from nest.formulate.stack import described
from nest.formulate.target import limits_of, within
from nest.hooks.manager import DISTRIBUTION
from nest.hooks.registry import Registry
from nest.spec import Problem
from nest.spec.problem import NO_TARGET, OFFLOAD


@frozen
class Target:
    """What became of a target that nobody named.

    Attributes:
        name: of the framework; None: the whole space is searched.
        why: of which stack it is, or what it cannot run, to follow its name.
    """

    name: str | None
    why: str


def with_target(problem: Problem, written: Mapping[str, Any], known: Registry) -> tuple[Problem, Target | None]:
    """`problem` with the framework of its stack as its target, or with none where that cannot run what it names.

    Schedules that nobody names are all that the framework has.

    Args:
        problem: complete, its stack filled in.
        written: what was written of it.
        known: offers exporters and stacks.

    Returns:
        The problem, and what was chosen; None: the problem says it, or has a profile.
    """
    if problem.search.target is not None or problem.model is None:
        return problem, None
    chosen = _implied(problem, written, known)
    if chosen.name is None:
        return evolve(problem, search=evolve(problem.search, target=NO_TARGET)), chosen
    return _for(problem, chosen.name, written, known), chosen


def _for(problem: Problem, name: str, written: Mapping[str, Any], known: Registry) -> Problem:
    """The problem for one framework, with all its schedules where none is named."""
    limits = limits_of(name, problem, known, "search.target")
    training = problem.training
    if "schedule" not in written.get("training", {}) and "schedule" not in problem.decided and limits.schedules:
        training = evolve(training, schedule=tuple(dict.fromkeys((*training.schedule, *limits.schedules))))
    return evolve(problem, training=training, search=evolve(problem.search, target=name))


def _implied(problem: Problem, written: Mapping[str, Any], known: Registry) -> Target:
    stack = problem.training.stack
    targets = () if stack is None else described(stack, known).targets
    exporters = known.exporters()
    name = next((each for each in targets if hasattr(exporters.get(each), "limits")), None)
    if name is None:
        return Target(None, "the stack has no framework that nest exports to")
    try:
        limits = limits_of(name, problem, known, "search.target")
        asked = next(_beyond(problem, written, limits, known), None)
        if asked is None:
            within(_for(problem, name, written, known), limits, known)
    except InputError as error:
        asked = str(error).splitlines()[0]
    return Target(name, f"that of {stack}") if asked is None else Target(None, f"{name} cannot run {asked}")


def _beyond(problem: Problem, written: Mapping[str, Any], limits: Limits, known: Registry) -> Iterator[str]:
    """What the problem names, or installed plug-ins bring, that a framework has not, the most telling first."""
    search, training, fixed = written.get("search") or {}, written.get("training") or {}, problem.decided
    if problem.search.mixed and not limits.mixed:
        yield "stages that are split differently (search.mixed)"
    yield from _listed("search.zero", search.get("zero"), fixed.get("zero"), limits.zero)
    yield from _listed("training.schedule", training.get("schedule"), fixed.get("schedule"), limits.schedules)
    yield from _listed("search.rank_order", search.get("rank_order"), fixed.get("rank_order"), limits.rank_orders)
    modes = None if limits.recompute is None else (*limits.recompute, OFFLOAD)
    yield from _listed("search.recompute", search.get("recompute"), fixed.get("recompute"), modes)
    if ("zero_degree" in search or "zero_degree" in fixed) and not limits.zero_degrees:
        yield "ZeRO over shard groups (zero_degree)"
    if limits.strategies is None:
        return
    strategies = known.strategies()
    allowed = allowed_degrees(problem, strategies)
    for name in taking_part(problem, strategies):
        named = name in problem.strategies or name in fixed
        brought = known.origin("strategies", name)[0] != DISTRIBUTION
        if name in limits.strategies or not (named or brought):
            continue
        if name not in allowed or set(allowed[name].degrees) - {1, False}:
            yield f"the strategy {name!r}" + ("" if named else f" of {known.origin('strategies', name)[0]}")


def _listed(place: str, written: Any, fixed: Any, has: Iterable[Any] | None) -> Iterator[str]:
    """Choices that are written and not there."""
    if has is None:
        return
    named = [] if written is None else list(written) if isinstance(written, (list, tuple)) else [written]
    missing = [each for each in (*named, *([] if fixed is None else [fixed])) if each not in tuple(has)]
    if missing:
        yield f"{', '.join(map(str, missing))} ({place})"
