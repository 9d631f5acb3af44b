"""What more or less of something is worth: questions that are answered by searches."""

from collections.abc import Callable, Collection

from attrs import define

from nest.catalogue.names import unknown_name
from nest.formulate.cluster import build_cluster
from nest.hooks.registry import Registry
from nest.reporting.frontier_chart import OwnPlan, frontier_figure
from nest.reporting.records import Section
from nest.reporting.sensitivity_chart import sensitivity_figure
from nest.reporting.subject import Subject
from nest.spec import Problem
from nest.whatif.parameters import parameters
from nest.whatif.pareto_front import MEMORIES, device_counts, pareto_front
from nest.whatif.sensitivity import FACTORS, responses
from nest.whatif.solver import Solver

PARTS = ("alternatives", "frontier", "sensitivity")
"""Parts of the page that take searches, and can be left out."""

Progress = Callable[[str, int, int], None]
"""Told what is being searched, for which part, how many searches were done before, and how many there are at most."""


def check_parts(without: Collection[str]) -> None:
    """Refuse names of no part.

    Raises:
        InputError: a part is called otherwise.
    """
    for name in without:
        if name not in PARTS:
            raise unknown_name("--without", "part of the page that takes searches", name, PARTS)


@define
class Searching:
    """What a solver tells, with the part of the page it searches for and how many searches there are at most.

    Attributes:
        progress: told; None: nobody is.
        most: searches.
        part: of the page.
    """

    progress: Progress | None
    most: int
    part: str = PARTS[0]

    def __call__(self, asking: str, done: int) -> None:
        """Tell it."""
        if self.progress is not None:
            self.progress(f"{self.part}: {asking}", done, self.most)


def most_searches(problem: Problem, without: Collection[str], known: Registry) -> int:
    """Searches that the frontier and the sensitivity take at most; most of the answers are implied by others.

    Args:
        problem: of the plan, self-contained.
        without: parts that are left out.
        known: offers topology importers.
    """
    cluster, _ = build_cluster(problem.cluster, known)
    asked = {
        "frontier": len(device_counts(cluster)) * len(MEMORIES),
        "sensitivity": len(parameters(problem, known)) * len(FACTORS),
    }
    return sum(count for part, count in asked.items() if part not in without)


def answers(subject: Subject, solver: Solver, without: Collection[str], searching: Searching) -> tuple[Section, ...]:
    """The sections of the parts that are wanted.

    Args:
        subject: the plan.
        solver: of problems that differ from the plan's.
        without: parts that are left out.
        searching: is told which part is searched.
    """
    found = []
    for part, answer in (("frontier", _frontier), ("sensitivity", _sensitivity)):
        if part not in without:
            searching.part = part
            found.append(answer(subject, solver))
    return tuple(found)


def _frontier(subject: Subject, solver: Solver) -> Section:
    priced = subject.priced
    own = OwnPlan(
        max(stage.upper_memory for stage in priced.stages),
        subject.plan.throughput or 0.0,
        priced.device_memory,
        subject.problem.fixed is not None,
    )
    figure = frontier_figure(pareto_front(subject.plan, solver), own)
    return Section("frontier", "Frontier", figures=(figure,))


def _sensitivity(subject: Subject, solver: Solver) -> Section:
    found = responses(subject.plan, solver)
    if not found:
        why = "No number of this problem can be varied." if subject.batch_time else "The batch takes no time."
        return Section("sensitivity", "Sensitivity", paragraphs=(why,))
    return Section("sensitivity", "Sensitivity", figures=(sensitivity_figure(found),))
