"""Why a plan is the one: what it beats, and what would have to change for another, or for any, to be there."""

from collections.abc import Mapping, Sequence
from typing import Any

from nest.report.apart import apart
from nest.report.decisions import difference, whole
from nest.report.explanation import (
    FREEING,
    alternative_notes,
    alternative_rows,
    because,
    freeing_rows,
    kept_always,
    slower_by,
)
from nest.report.runner_up import other_risk_text, runner_up_text
from nest.reporting.records import Cell, Fold, Section, Table
from nest.reporting.sensitivity_chart import quantity
from nest.reporting.subject import Subject
from nest.spec import PlanDocument, Problem
from nest.units import format_seconds
from nest.whatif.alternatives import Question, recipe
from nest.whatif.explain import unrefuted
from nest.whatif.outcome import decided_values
from nest.whatif.parameters import Parameter, parameters
from nest.whatif.shadow_prices import relaxations, shadow_price
from nest.whatif.solver import Solver

RECIPE = "manual"
"""The planner whose plan stands for what one would launch without a planner."""

MORE = {"memory": (1.1, 1.25, 1.5, 2.0), "devices": (2.0, 4.0)}
"""Times a number of an infeasible problem that is asked whether a plan then fits, until one does."""


def why(subject: Subject, solver: Solver, asked: Sequence[Question] | None) -> tuple[Section, ...]:
    """What the plan beats; nothing where nothing is known of other plans.

    Args:
        subject: the plan.
        solver: of problems that differ from the plan's.
        asked: what is asked of it; None: nothing, so that only what the plan itself says is told.
    """
    told = _stated(subject.plan)
    if asked is not None:
        return (_beaten(subject, solver, asked, told),)
    return (Section("why", "Why this plan", paragraphs=told),) if told else ()


def _stated(plan: PlanDocument) -> tuple[str, ...]:
    """What the plan itself says of others, and of itself on a network that is no hierarchy."""
    told = []
    if plan.placement is not None:
        proved = "proved the best for this plan" if plan.placement.status == "optimal" else "the best found"
        told.append(
            f"The network is no hierarchy: levels come near it. On the network itself the batch takes "
            f"{format_seconds(plan.placement.batch_time)}, with the placement below, {proved}."
        )
    if plan.runner_up is not None and "reason" in plan.runner_up:
        told.append(runner_up_text(plan.runner_up))
    return (*told, *(other_risk_text(each) for each in plan.other_risks))


def _beaten(subject: Subject, solver: Solver, asked: Sequence[Question], told: Sequence[str]) -> Section:
    """The best plan without each choice and that of the rules of thumb, below what is `told` of the plan."""
    plan, least = subject.plan, apart(subject.plan)
    decided = decided_values(plan, subject.known)
    found = [unrefuted(plan, question, solver).to_dict() for question in asked]
    rows = [tuple(map(Cell, row)) for row in alternative_rows(found, decided)]
    notes = [*told, *alternative_notes(found, least)]
    if RECIPE in subject.known.planners():
        usual = recipe(plan, subject.problem, RECIPE, solver)
        if usual.plan is None:
            notes.append("Rules of thumb (`nest compare --planner manual`) find no plan that fits.")
        else:
            thumb: Mapping[str, Any] = usual.to_dict()
            then = difference(decided, usual.decided)
            rows.append((Cell("rules of thumb"), Cell(slower_by(thumb)), Cell(then), Cell(because(thumb))))
    header = ("instead", "slower by", "with", "because")
    table = Table("The best plan that decides one thing otherwise", header, tuple(rows), (0, 2, 3))
    always = tuple((Cell(kept), Cell(reason)) for kept, reason, _ in kept_always(found))
    fold = Fold("why", tables=(Table("What no plan decides otherwise", ("decision", "why"), always, (0, 1)),))
    return Section(
        "why",
        "Why this plan",
        paragraphs=tuple(notes),
        tables=(table,) if rows else (),
        more=(fold,) if always else (),
        more_title=f"No plan decides otherwise: {', '.join(kept.text for kept, _ in always)}",
    )


def freeing(plan: PlanDocument, problem: Problem, solver: Solver) -> Section:
    """What would let a plan fit where none does: each restriction left out, and more devices.

    Args:
        plan: says that there is none.
        problem: its own, self-contained.
        solver: knows so.
    """
    prices = [shadow_price(plan, each, solver).to_dict() for each in relaxations(problem, solver.plugins)]
    rows = [tuple(map(Cell, row)) for row in freeing_rows(prices)]
    for parameter in parameters(problem, solver.plugins):
        rows += _enough(parameter, problem, solver)
    if not rows:
        more = " or ".join(f"{factors[-1]:g} times the {name}" for name, factors in MORE.items())
        return Section("freeing", "What would fit", paragraphs=(f"No single change is enough, nor {more}.",))
    table = Table("With one thing changed, the best plan then", FREEING, tuple(rows), (0, 1, 2))
    return Section("freeing", "What would fit", tables=(table,))


def _enough(parameter: Parameter, problem: Problem, solver: Solver) -> list[tuple[Cell, ...]]:
    """The first of `MORE` of a number with which a plan fits, as a row of `freeing_rows`; none: nothing does."""
    for factor in MORE.get(parameter.name, ()):
        value = quantity(parameter.value * factor, parameter.unit)
        best = solver.plan(parameter.changed(problem, parameter.value * factor), f"{parameter.name} {value}")
        if best is not None and best.batch_time is not None:
            decided = whole(decided_values(best, solver.plugins))
            now = f"{parameter.name} {quantity(parameter.value, parameter.unit)}"
            return [(Cell(now), Cell(value), Cell(decided), Cell(format_seconds(best.batch_time), best.batch_time))]
    return []
