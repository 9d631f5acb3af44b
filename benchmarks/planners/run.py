"""Planners on the tasks of a track: built-in ones, those of plug-ins, and programs."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import nest
from benchmarks.planners.judge import FailedError, Judge, Row
from benchmarks.planners.programs import plan_of
from benchmarks.planners.tracks import Task
from nest.formulate.pools import takes_pools
from nest.hooks.registry import registry
from nest.instance import Solution
from nest.plan.document import solution_of
from nest_whatif.compare import Task as Priced
from nest_whatif.compare import chosen_planners, named
from nest_whatif.verbs import EVALUATIONS, SEED

OURS = "nest"
UNNAMED = "program"

Planner = Callable[[Judge], Solution]
"""Decides the problem of a judge; raises `FailedError` where it has no plan."""


def planners(names: Sequence[str], commands: Sequence[str], time_limit: float) -> dict[str, Planner]:
    """What plans, by name: nest, then planners, then programs.

    Args:
        names: of registered planners, with options where they have any (`mcmc:seed=3`), and `nest`; none: all that
            plan one kind of device.
        commands: of programs, `NAME=COMMAND` or the command alone.
        time_limit: seconds for each planner and problem.

    Raises:
        InputError: there is no planner of a name, or it has no such option.
    """
    known = registry()
    chosen_planners([name for name in names if name != OURS], known)  # Refuses names and options that there are not.
    every = [OURS, *(name for name, each in known.planners().items() if not takes_pools(each))]
    chosen = dict.fromkeys(names or every)
    found: dict[str, Planner] = {}
    for name in chosen:
        found[name] = partial(_searched if name == OURS else partial(_registered, name), time_limit)
    for given in commands:
        name, command = _named(given)
        place = sum(each.partition(" #")[0] == name for each in found) + 1
        found[name if place == 1 else f"{name} #{place}"] = partial(_program, command, time_limit)
    return found


def rows(chosen: dict[str, Planner], tasks: Sequence[Task]) -> Iterator[Row]:
    """What each planner comes to on each task, planner by planner; a failure is a row."""
    judges = [Judge(task) for task in tasks]
    for name, planner in chosen.items():
        for judge in judges:
            try:
                yield judge.row(name, planner(judge))
            except FailedError as error:
                yield judge.failed(name, str(error))
            except Exception as error:  # Whatever a planner does wrong is its own row, not the end of the table.
                yield judge.failed(name, f"it failed: {type(error).__name__}: {error}")


def _named(given: str) -> tuple[str, str]:
    """The name of a program and its command."""
    name, equals, command = given.partition("=")
    return (name, command) if equals and re.fullmatch(r"[\w-]+", name) else (UNNAMED, given)


def _searched(time_limit: float, judge: Judge) -> Solution:
    plan = nest.solve(judge.task.problem, time_limit=time_limit)
    if plan.status == "infeasible":
        raise FailedError(plan.diagnosis or "it finds no plan.")
    return solution_of(judge.instance, plan)


def _registered(written: str, time_limit: float, judge: Judge) -> Solution:
    """As `nest compare` asks planners, with the limit of plug-ins for all of them."""
    known = registry()
    task = Priced(
        judge.task.problem,
        judge.problem,
        known,
        bound=None,
        seed=SEED,
        evaluations=EVALUATIONS,
        time_limit=time_limit,
        evaluate=nest.evaluate,
        planner_limit=time_limit,
    )
    entry = task.made_by(written, "planners", named(written, known)[0], partial(task.planned, written))
    if entry.plan is None or entry.reasons:
        raise FailedError(" ".join((*entry.reasons, *entry.remarks)))
    return solution_of(judge.instance, entry.plan)


def _program(command: str, time_limit: float, judge: Judge) -> Solution:
    return judge.decisions(plan_of(command, judge.task.problem, time_limit))
