"""Mistakes found before anything is built: unknown names, and decisions that the problem's own lists leave out."""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from nest.catalogue import optimizer, precision
from nest.errors import InputError, InputErrors
from nest.formulate.cluster import build_cluster
from nest.formulate.constraints import (
    allowed_rank_orders,
    allowed_schedules,
    allowed_zero,
    allowed_zero_degrees,
    demands,
    profile_modes,
)
from nest.formulate.shard import allowed_degrees, chosen
from nest.formulate.target import target_limits
from nest.hooks.registry import Registry
from nest.instance import ChunkedSchedule, Schedule, chunks_of
from nest.spec import Problem, ProfileSpec
from nest.spec.problem import OFFLOAD, RANK_ORDERS, RECOMPUTE_MODES, ZERO_STAGES


def check_names(problem: Problem, registry: Registry, base: Path | None = None) -> None:
    """Refuse names nobody knows, and constraints that cannot be read, before anything is built from the rest.

    Raises:
        InputErrors: every such name and constraint, each with its place.
    """
    found = [told for check in _checks(problem, registry, base) for told in _mistakes(check)]
    found += demands(problem, registry, _profile_degrees(problem))[1]
    if found:
        raise InputErrors(found)


def check_lists(problem: Problem, registry: Registry) -> None:
    """Refuse what nobody knows in lists that are not looked at where everything is decided."""
    found = [told for check in _lists(problem, registry) for told in _mistakes(check)]
    if found:
        raise InputErrors(found)


def _lists(problem: Problem, registry: Registry) -> Iterator[Callable[[], Any]]:
    yield lambda: allowed_degrees(problem, {*registry.strategies(), *_profile_degrees(problem)})
    yield lambda: allowed_schedules(problem, registry)


def _checks(problem: Problem, registry: Registry, base: Path | None) -> Iterator[Callable[[], Any]]:
    """Calls that are independent of each other; each raises an error or does nothing."""
    yield lambda: build_cluster(problem.cluster, registry, base)
    yield from _lists(problem, registry)
    yield lambda: chosen(registry.cost_models(), problem.costs, "costs", "cost model")
    yield lambda: chosen(registry.collective_models(), problem.collectives, "collectives", "collective model")
    yield lambda: chosen(registry.layer_times(), problem.layer_times, "layer_times", "model of layer times")
    yield lambda: target_limits(problem, registry)
    yield lambda: allowed_rank_orders(problem)
    yield lambda: allowed_zero(problem)
    yield lambda: allowed_zero_degrees(problem)
    if problem.model is not None:
        yield lambda: optimizer(problem.training.optimizer)
        yield lambda: precision(problem.training.precision).trained(problem.training)


def _mistakes(check: Callable[[], Any]) -> tuple[str, ...]:
    try:
        check()
    except InputErrors as errors:
        return errors.problems
    except InputError as error:
        return (str(error),)
    return ()


def _profile_degrees(problem: Problem) -> set[str]:
    profile = problem.profile
    if not isinstance(profile, ProfileSpec):
        return set()
    return {name for candidate in profile.candidates for name in candidate.degrees}


@frozen
class Contradiction:
    """A decision that a list leaves out.

    Attributes:
        name: of the decision.
        value: what `fixed` says.
        place: path of the list.
        allowed: what the list says.
    """

    name: str
    value: object
    place: str
    allowed: tuple[object, ...]

    def __str__(self) -> str:
        return (
            f"fixed.{self.name} is {_shown(self.value)}, but {self.place} allows "
            f"{', '.join(_shown(each) for each in self.allowed)} only; change one of them."
        )


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def refuse_contradictions(problem: Problem, written: Mapping[str, Any], registry: Registry) -> None:
    """Refuse decisions that the problem's own lists leave out, with both places, and then what else is wrong with it.

    `written` is the problem as a mapping, without the lists that nobody wrote: these contradict nothing.

    Raises:
        InputErrors: there is such a decision.
    """
    found = list(_contradictions(problem, written, registry))
    if not found:
        return
    problems = [str(each) for each in found]
    others = {str(each): each.place for each in found}
    try:
        check_names(problem, registry)
    except InputErrors as errors:
        problems += errors.problems
    except InputError as error:
        problems.append(str(error))
    raise InputErrors(problems, others)


def _contradictions(problem: Problem, written: Mapping[str, Any], registry: Registry) -> Iterator[Contradiction]:
    training, search, decided = problem.training, problem.search, problem.decided
    lists: tuple[tuple[str, str, Collection[Any] | None, Collection[object] | None], ...] = (
        ("micro_batch", "training", training.micro_batch, range(1, training.global_batch + 1)),
        ("schedule", "training", training.schedule, registry.schedules()),
        ("rank_order", "search", search.rank_order, RANK_ORDERS),
        ("zero", "search", search.zero, ZERO_STAGES),
        ("zero_degree", "search", search.zero_degree, None),
        ("recompute", "search", search.recompute, _modes(problem)),
    )
    for name, section, allowed, known in lists:
        if name not in decided or allowed is None or name not in (written.get(section) or ()):
            continue
        value = decided[name]
        # What is no such value at all is told as that.
        if value not in allowed and (known is None or value in known):
            yield Contradiction(name, value, f"{section}.{name}", tuple(allowed))
    for name, degrees in problem.strategies.items():
        if name in decided and not any(_same_degree(decided[name], each) for each in degrees):
            yield Contradiction(name, decided[name], f"strategies.{name}", degrees)
    yield from _chunks(problem, registry)


def _modes(problem: Problem) -> set[str]:
    return {*RECOMPUTE_MODES, OFFLOAD, *profile_modes(problem)}


def _same_degree(decided: object, allowed: int | bool) -> bool:
    """Whether a strategy may have a degree that `fixed` and the list both allow; true is the highest, false 1."""
    if decided is True or allowed is True:
        return (decided is True or _is_above_1(decided)) and (allowed is True or _is_above_1(allowed))
    return max(decided, 1) == max(allowed, 1) if isinstance(decided, int) else True


def _is_above_1(degree: object) -> bool:
    return isinstance(degree, int) and degree > 1


def _chunks(problem: Problem, registry: Registry) -> Iterator[Contradiction]:
    """Chunks that no schedule deals."""
    chunks, fixed = problem.decided.get("chunks"), problem.decided.get("schedule")
    names = problem.training.schedule if fixed is None else (fixed,)
    known = registry.schedules()
    if (
        isinstance(chunks, bool)
        or not isinstance(chunks, int)
        or chunks < 1
        or not all(each in known for each in names)
    ):
        return
    if not any(_deals(known[str(each)], chunks) for each in names):
        yield Contradiction("chunks", chunks, "training.schedule" if fixed is None else "fixed.schedule", names)


def _deals(schedule: Schedule, chunks: int) -> bool:
    return chunks > 1 if isinstance(schedule, ChunkedSchedule) else chunks_of(schedule) == chunks
