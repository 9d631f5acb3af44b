"""The target of a problem that names none: the framework of its stack, where that can run what the problem names."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import evolve, frozen

from nest.deployment import Limits
from nest.errors import InputError
from nest.formulate.choices import allowed_degrees, taking_part
from nest.formulate.stack import described, device_of
from nest.formulate.target import limits_of, with_schedules, within
from nest.hooks.discovery import DISTRIBUTION
from nest.hooks.registry import Registry
from nest.spec import NO_STACK, Problem
from nest.spec.problem import NO_TARGET, OFFLOAD, Search


@frozen
class Target:
    """What became of a target that nobody named.

    Attributes:
        name: of the framework; None: the whole space is searched.
        why: of which stack it is, or why it steps aside.
    """

    name: str | None
    why: str

    @property
    def sentence(self) -> str:
        """What is searched, and how to search otherwise."""
        if self.name is None:
            return f"target: none; {self.why}."
        return (
            f"target: {self.name}, {self.why}: what it can run is searched; `search.target: none` searches all, and "
            "`nest explain` says what the limits cost."
        )


def with_target(problem: Problem, written: Mapping[str, Any], known: Registry) -> tuple[Problem, Target | None]:
    """`problem` with the framework of its stack as its target, or with none where that cannot run what it names.

    Schedules that nobody names are all that its framework has, the target or that of its stack.

    Args:
        problem: complete, its stack filled in.
        written: what was written of it.
        known: offers exporters and stacks.

    Returns:
        The problem, and what was chosen; None: there was no choice, as the problem says it, has a profile, or a stack
        without a framework.
    """
    if problem.model is None:
        return problem, None
    problem = _with_schedules(problem, written, known)
    if problem.search.target is not None:
        return problem, None
    every = [_implied(problem, name, written, known) for name in _frameworks(problem, written, known)]
    found = next((each for each in every if each.name is not None), next(iter(every), None))
    target = NO_TARGET if found is None or found.name is None else found.name
    return evolve(problem, search=evolve(problem.search, target=target)), found


def untargeted(problem: Problem, written: Mapping[str, Any], known: Registry) -> Problem:
    """`problem` with no target where it names none: what is decided is priced, whoever can run it."""
    if problem.model is None:
        return problem
    problem = _with_schedules(problem, written, known)
    return evolve(problem, search=evolve(problem.search, target=problem.search.target or NO_TARGET))


def _frameworks(problem: Problem, written: Mapping[str, Any], known: Registry) -> list[str]:
    """The exporter of the target, else those of the stack; behind a stack that the precision implies the device's."""
    if problem.search.framework is not None:
        return [problem.search.framework]
    stack, device = problem.training.stack, device_of(problem.cluster)
    if stack is None or stack == NO_STACK:
        return []
    names = [*described(stack, known).targets, *([stack] if isinstance(stack, str) else [])]
    if "stack" not in (written.get("training") or {}) and device is not None and device.stack is not None:
        names += described(device.stack, known).targets
    exporters = known.exporters()
    return [each for each in dict.fromkeys(names) if hasattr(exporters.get(each), "limits")]


def _with_schedules(problem: Problem, written: Mapping[str, Any], known: Registry) -> Problem:
    """The problem with all schedules of its framework where none is listed."""
    name = next(iter(_frameworks(problem, written, known)), None)
    if name is None or "schedule" in (written.get("training") or {}):
        return problem
    try:
        return with_schedules(problem, limits_of(name, problem, known, "search.target"))
    except InputError:  # It can run nothing of such a problem, or is none; whoever needs it says so.
        return problem


def _implied(problem: Problem, name: str, written: Mapping[str, Any], known: Registry) -> Target:
    try:
        limits = limits_of(name, problem, known, "search.target")
        asked = next(_beyond(problem, written, limits, known), None)
        if asked is not None:
            return Target(None, f"{name} cannot run {asked}")
        within(evolve(problem, search=evolve(problem.search, target=name)), limits, known)
    except InputError as error:
        return Target(None, str(error).splitlines()[0].rstrip("."))
    stack = problem.training.stack
    return Target(name, f"that of {stack if isinstance(stack, str) else 'its stack'}")


def _beyond(problem: Problem, written: Mapping[str, Any], limits: Limits, known: Registry) -> Iterator[str]:
    """What the problem names, or installed plug-ins bring, that a framework has not, the most telling first."""
    search, training, fixed = written.get("search") or {}, written.get("training") or {}, problem.decided
    if problem.search.mixed and not limits.mixed:
        yield "stages that are split differently (search.mixed)"
    if problem.search.granularity == "operator":
        yield "stages that part a layer (search.granularity)"
    # A list that says what it says when it is left out names nothing.
    orders = None if problem.search.rank_order == Search().rank_order else search.get("rank_order")
    zero = None if problem.search.zero == Search().zero else search.get("zero")
    yield from _listed("search.zero", zero, fixed.get("zero"), limits.zero)
    yield from _listed("training.schedule", training.get("schedule"), fixed.get("schedule"), limits.schedules)
    yield from _listed("search.rank_order", orders, fixed.get("rank_order"), limits.rank_orders)
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
