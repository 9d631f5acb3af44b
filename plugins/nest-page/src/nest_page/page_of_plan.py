"""A plan as one HTML page: what it says of other plans is found here, and drawn by `nest_page.drawing`."""

import datetime
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import define, evolve

from nest.catalogue import unknown_name
from nest.hooks.protocols import Engine
from nest.hooks.registry import Registry
from nest.io import structure
from nest.public.planning import (
    Source,
    carried_problem,
    check_effort,
    evaluate,
    export_checked,
    naming,
    plan_summary,
    read_record,
    solution_of,
)
from nest.public.questions import (
    FACTORS,
    MEMORIES,
    Parameter,
    Question,
    Questions,
    Solver,
    answers,
    decided_values,
    front_of,
    parameters,
    relaxations,
    require_held,
    shadow_price,
)
from nest.public.text import whole
from nest.spec import PlanDocument, Problem
from nest_page.drawing import page, page_without_plan
from nest_page.pareto_chart import OwnPlan, pareto_figure
from nest_page.records import Cell, Section, Subject
from nest_page.sections import alternatives_section, freeing_section, why_section
from nest_page.sensitivity_chart import quantity, sensitivity_figure

PARTS = ("alternatives", "frontier", "sensitivity")
"""Parts of the page that take searches, and can be left out."""

MORE = {"memory": (1.1, 1.25, 1.5, 2.0), "devices": (2.0, 4.0)}
"""Factors by which a number of an infeasible problem grows until a plan fits."""

NOT_REPORTED_ON = "so nest writes no report"
"""End of the sentence on an invalid plan."""

Progress = Callable[[str, int, int], None]
"""Called with what is searched, how many searches were done before, and how many there are at most."""


OF_ONE_KIND = ("frontier",)
"""Parts that take clusters of one kind of device: devices and memory are no two numbers where pools have their own."""


@define
class _Searching:
    """Passes on what a solver tells, and which questions others have answered."""

    progress: Progress | None
    most: int
    done: int = 0
    here: bool = False

    def __call__(self, search: str, done: int) -> None:
        self.here = True
        if self.progress is not None:
            self.progress(search, self.done + done, self.most)

    def answered(self, question: Question, searches: int) -> None:
        """A question is answered, by so many searches."""
        self.done += searches
        if searches and not self.here and self.progress is not None:
            self.progress(question[0], self.done, self.most)
        self.here = False


def page_of(
    plan: Source | PlanDocument,
    known: Registry,
    without: Collection[str],
    time_limit: float | None,
    progress: Progress | None,
    engine: Engine | None = None,
    date: datetime.date | None = None,
) -> str:
    """The HTML page of a plan whose numbers hold (`nest.report_page`, which says what the arguments are).

    Raises:
        InputError: the plan cannot be read, or its numbers do not hold; there is no part called so; or the time limit
            is none.
    """
    for name in without:
        if name not in PARTS:
            raise unknown_name("--without", "part of the page that takes searches", name, PARTS)
    check_effort(time_limit)
    with naming(plan):
        read = read_record(plan, PlanDocument)[0]
    if read.problem["cluster"].get("pools"):
        without = {*without, *OF_ONE_KIND}
    with naming(plan, "problem"):
        if read.status == "infeasible":
            return _without_plan(read, known, without, time_limit, progress, date)
        read_subject = subject(read, known)
    plan, wanted = read_subject.plan, set(PARTS) - set(without)
    if plan.lower_bound is None or not read_subject.batch_time > 0:
        wanted -= {"alternatives"}
    found = _found(read_subject, wanted, time_limit, progress, engine)
    why = why_section(plan)
    if "alternatives" in wanted:
        usual = next((each.to_dict() for each in found["recipe"]), None)
        alternatives = [each.to_dict() for each in found["alternatives"]]
        why = (alternatives_section(plan, decided_values(plan, known), alternatives, usual),)

    files: dict[str, Mapping[str, str]] = {}

    def export(to: tuple[str, ...]) -> tuple[Mapping[str, str], Sequence[str]]:
        made = export_checked(read_subject.plan, to, known, before=files)
        if len(to) == 1:
            files[to[0]] = made.files
        return made.files, made.warnings

    return page(read_subject, export, why, tuple(_worth_sections(read_subject, wanted, found)), date)


def subject(read: PlanDocument, known: Registry) -> Subject:
    """Subject of a page; figures that the plan file lacks, as files of older versions may, are worked out.

    Args:
        read: a feasible plan.
        known: registered exporters and the like.

    Raises:
        InputError: the plan's problem cannot be used, or its numbers do not hold.
    """
    instance, formulation = require_held(read, read, known, NOT_REPORTED_ON)
    problem = carried_problem(read, known)
    solution = solution_of(instance, read)
    priced = evaluate(instance, solution)
    figures = plan_summary(instance, solution, priced, problem, known, formulation)
    plan = evolve(read, summary={**figures, **read.summary})
    return Subject(plan, problem, instance, formulation, solution, priced, known)


def most_searches(asked: Iterable[Question]) -> int:
    """Searches that questions take at most; most of the answers are implied by others."""
    of_each = {"recipe": 0, "frontier": len(MEMORIES), "sensitivity": len(FACTORS)}
    return sum(of_each.get(part, 1) for part, _ in asked)


def _found(
    subject: Subject, parts: Collection[str], time_limit: float | None, progress: Progress | None, engine: Engine | None
) -> dict[str, list[Any]]:
    """The answers to the questions of some parts of the page, by part."""
    known, plan = subject.known, subject.plan
    solver = Solver(known, time_limit=time_limit)
    if plan.status == "optimal":
        solver.know(subject.problem, plan)
    parts = (*sorted(parts), *(["recipe"] if "alternatives" in parts else []))
    asked = Questions(plan, plan, parts, time_limit, known.installed(), solver)
    searching = solver.progress = _Searching(progress, most_searches(asked.every))
    found: dict[Question, Any] = {}
    for question, answer, searches in answers(asked, engine):
        found[question] = answer
        searching.answered(question, searches)
    result: dict[str, list[Any]] = {part: [] for part in parts}
    for question in asked.every:
        result[question[0]].append(found[question])
    return result


def _worth_sections(subject: Subject, parts: Collection[str], found: Mapping[str, Sequence[Any]]) -> Iterator[Section]:
    """Sections on the worth of more or less hardware, as far as they are wanted."""
    if "frontier" in parts:
        priced, fixed = subject.priced, subject.problem.fixed is not None
        memory = max(stage.upper_memory for stage in priced.stages)
        own = OwnPlan(memory, subject.plan.throughput or 0.0, priced.device_memory, fixed)
        front = front_of([point for points in found["frontier"] for point in points])
        yield Section("frontier", "Pareto front", figures=(pareto_figure(front, own),))
    if "sensitivity" in parts:
        if points := tuple(response for responses in found["sensitivity"] for response in responses):
            yield Section("sensitivity", "Sensitivity", figures=(sensitivity_figure(points),))
        else:
            why = "No number of this problem can be varied." if subject.batch_time else "The batch takes no time."
            yield Section("sensitivity", "Sensitivity", paragraphs=(why,))


def _without_plan(
    plan: PlanDocument,
    known: Registry,
    without: Collection[str],
    time_limit: float | None,
    progress: Progress | None,
    date: datetime.date | None,
) -> str:
    """The page of a problem without a plan."""
    require_held(plan, plan, known, NOT_REPORTED_ON)
    problem, freeing = carried_problem(plan, known), []
    if "alternatives" not in without:
        most = len(relaxations(problem, known)) + sum(map(len, MORE.values()))
        solver = Solver(known, time_limit=time_limit, progress=_Searching(progress, most))
        solver.know(problem, plan)
        prices = [shadow_price(plan, problem, each, solver).to_dict() for each in relaxations(problem, solver.plugins)]
        enough = [row for each in parameters(problem, known) for row in _enough(each, problem, solver)]
        more = " or ".join(f"{factors[-1]:g} times the {name}" for name, factors in MORE.items())
        freeing.append(freeing_section(prices, enough, more))
    return page_without_plan(plan, structure(plan.problem, Problem), known, freeing, date)


def _enough(parameter: Parameter, problem: Problem, solver: Solver) -> Iterator[tuple[Cell, ...]]:
    """The first of `MORE` of a number with which a plan fits, as a row of `freeing_section`; none: nothing does."""
    for factor in MORE.get(parameter.name, ()):
        value = quantity(parameter.value * factor, parameter.unit)
        best = solver.plan(parameter.changed(problem, parameter.value * factor), f"{parameter.name} {value}")
        if best is not None and best.batch_time is not None:
            decided = whole(decided_values(best, solver.plugins))
            now = f"{parameter.name} {quantity(parameter.value, parameter.unit)}"
            yield Cell(now), Cell(value), Cell(decided), Cell.seconds(best.batch_time)
            return
