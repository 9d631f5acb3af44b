"""What planners are given and what they answer (`nest_planners`)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from nest.errors import InputError
from nest.instance import ChunkedSchedule, Instance, Level, Result, Schedule, Solution
from nest.plan.evaluate import PricedPlan, evaluate
from nest.plan.legality import permission_violations, structure_violations
from nest.tolerances import CONTENDING_MEMORY_SLACK

LONGEST_OPTION = 12
"""Digits of the longest number that an option of a planner may be."""


@frozen
class Proposal:
    """What a planner decides.

    Attributes:
        solution: the decisions; None: it finds no plan.
        remarks: what to tell of them, a sentence each; of no plan, why there is none.
        bound: seconds per step that no plan is below by the planner's own objective; None: it proves nothing.
        decisions: in place of `solution`, what `fixed` of the problem would say: for a plan that the instance has no
            candidate for, such as another micro-batch. `nest evaluate` prices it.
    """

    solution: Solution | None
    remarks: tuple[str, ...] = ()
    bound: float | None = None
    decisions: Mapping[str, Any] | None = None


@frozen
class Assessment:
    """What decisions come to on the problem that is planned.

    Attributes:
        faults: why they are no plan of the problem, a sentence each; none: they are one, which may yet not fit.
        priced: every number of the plan; None: it is none.
    """

    faults: tuple[str, ...]
    priced: PricedPlan | None

    @property
    def admitted(self) -> bool:
        """Whether they are a plan of the problem with the memory that its search allows (`training.memory_risk`)."""
        return self.priced is not None and self.priced.admitted

    @property
    def refutes(self) -> bool:
        """Whether they have so little memory that, if they are faster, no plan was the best that a search found."""
        return self.priced is not None and not any(self.priced.exceeding(CONTENDING_MEMORY_SLACK))

    @property
    def missing(self) -> float:
        """Bytes that its fullest stage needs beyond those a search allows; 0 where it is admitted or no plan."""
        if self.priced is None or self.priced.admitted:
            return 0.0
        return max(stage.memory for stage in self.priced.stages) - self.priced.capacity


@frozen
class PlannerContext:
    """What a planner may use beside the instance.

    Attributes:
        seed: of random numbers; planners that draw none do not look at it.
        evaluations: plans that a planner which tries plans out may price.
        assess: what decisions come to on the instance; plans are priced by `nest.plan.evaluate`.
        search: the exact dynamic program, for any instance: its result may be that of another problem.
        on_network: the instance with another network, level by level as many devices in all: what depends on the
            network is priced anew, and candidates keep their places.
    """

    seed: int
    evaluations: int
    assess: Callable[[Solution], Assessment]
    search: Callable[[Instance], Result]
    on_network: Callable[[Sequence[Level]], Instance]


def whole_options(name: str, options: Mapping[str, str], least: Mapping[str, int]) -> dict[str, int]:
    """The options of a planner that are whole numbers, from `least` on, by name.

    Raises:
        InputError: the planner called `name` has no such option, or it is no such number.
    """
    for option, value in options.items():
        if option not in least:
            raise InputError(f"planner {name!r} has no option {option!r}; it has {', '.join(least)}.")
        if not value.isdecimal() or len(value) > LONGEST_OPTION or int(value) < least[option]:
            raise InputError(f"planner {name!r}: {option} is {value!r}; it is a whole number from {least[option]}.")
    return {option: int(value) for option, value in options.items()}


def assessed(instance: Instance, solution: Solution) -> Assessment:
    """What decisions come to."""
    faults = structure_violations(instance, solution) or permission_violations(instance, solution)
    return Assessment(tuple(faults), None if faults else evaluate(instance, solution))


def widened(instance: Instance, solution: Solution, known: Mapping[str, Schedule]) -> Instance:
    """The instance where stages may differ in their candidates, and with the decisions' schedule of those `known`."""
    schedule, schedules = known.get(solution.schedule), instance.space.schedules
    if isinstance(schedule, ChunkedSchedule) and solution.chunks > 1:
        schedule = schedule.with_chunks(solution.chunks)
    if schedule is not None and schedule not in schedules:
        schedules = (*schedules, schedule)
    return evolve(instance, space=evolve(instance.space, schedules=schedules, mixed=True, even=False))
