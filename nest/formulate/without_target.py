"""Whether `search.target` is what leaves a problem without a plan."""

from collections.abc import Callable

from attrs import evolve

from nest.errors import InputError, NoPlanYet
from nest.formulate.instance import formulate
from nest.hooks.registry import Registry
from nest.instance import Instance
from nest.solve.effort import Deadline
from nest.spec import Problem
from nest.spec.problem import NO_TARGET


def told_of_target(
    problem: Problem, registry: Registry, feasible: Callable[[Instance, Deadline], bool], deadline: Deadline
) -> str:
    """Of a problem without a plan: whether there is one for others than its target; empty where it has none.

    Args:
        problem: as written.
        registry: offers what the problem names.
        feasible: whether an instance has a plan, until a deadline.
        deadline: after which nothing is said.
    """
    target = problem.search.framework
    if target is None:
        return ""
    try:
        opened = evolve(problem, search=evolve(problem.search, target=NO_TARGET))
        if feasible(formulate(opened, registry, deadline=deadline)[0], deadline):
            return f" With `search.target: none` there is a plan: what {target} cannot run is what binds."
    except (InputError, NoPlanYet):  # What the target leaves out may be more than can be searched.
        return ""
    return " There is none with `search.target: none` either."
