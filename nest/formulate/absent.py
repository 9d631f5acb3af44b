"""Problems that name objects of plug-ins that are disabled (docs/reference/hooks.md, "Order, clashes, errors")."""

from attrs import evolve

from nest.hooks.registry import Registry
from nest.spec import Problem, ProfileSpec


def without_absent(problem: Problem, registry: Registry) -> Problem:
    """`problem` without the objects it names that are disabled.

    A strategy then has degree 1, whatever degrees it was given. The built-in default stands in for a model of costs,
    collectives or layer times, and for the schedules when no other is named.
    """
    strategies, schedules = registry.absent("strategies") - _in_profile(problem), registry.absent("schedules")
    named = tuple(name for name in problem.training.schedule if name not in schedules)
    kept = {
        name: value
        for name, value in problem.decided.items()
        if name not in strategies and not (name == "schedule" and value in schedules)
    }
    return evolve(
        problem,
        strategies={name: degrees for name, degrees in problem.strategies.items() if name not in strategies},
        training=evolve(problem.training, schedule=named or (next(iter(registry.schedules())),)),
        fixed=evolve(problem.fixed, values=kept) if problem.fixed is not None else None,
        costs=_present(problem.costs, registry.absent("cost_models")),
        collectives=_present(problem.collectives, registry.absent("collective_models")),
        layer_times=_present(problem.layer_times, registry.absent("layer_times")),
    )


def _in_profile(problem: Problem) -> set[str]:
    """Names of degrees that candidates have without any strategy."""
    profile = problem.profile
    candidates = profile.candidates if isinstance(profile, ProfileSpec) else ()
    return {name for candidate in candidates for name in candidate.degrees}


def _present(name: str | None, absent: frozenset[str]) -> str | None:
    return None if name in absent else name
