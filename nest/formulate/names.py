"""Names a problem gives to registered and catalogued things: all that nothing answers to, at once."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nest.catalogue import optimizer, precision
from nest.errors import InputError, InputErrors
from nest.formulate.choices import allowed_degrees, chosen
from nest.formulate.cluster import build_cluster
from nest.formulate.constrain import allowed_rank_orders, allowed_schedules, allowed_zero, allowed_zero_degrees, demands
from nest.formulate.target import target_limits
from nest.hooks.registry import Registry
from nest.spec import Problem, ProfileSpec


def check_names(problem: Problem, registry: Registry, base: Path | None = None) -> None:
    """Refuse names nobody knows, and constraints that cannot be read, before anything is built from the rest.

    Args:
        problem: as written.
        registry: offers what names may stand for.
        base: folder that relative paths start from; None: the working directory.

    Raises:
        InputErrors: every such name and constraint, each with its place.
    """
    found = [told for check in _checks(problem, registry, base) for told in _mistakes(check)]
    found += demands(problem, registry, _profile_degrees(problem))[1]
    if found:
        raise InputErrors(found)


def check_lists(problem: Problem, registry: Registry) -> None:
    """Refuse what nobody knows in lists that are not looked at where everything is decided.

    Raises:
        InputErrors: every such name, each with its place.
    """
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
