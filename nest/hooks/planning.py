"""Inputs and answers of planners (`nest_planners`)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from nest.errors import InputError
from nest.instance import ChunkedSchedule, Instance, Level, Result, Schedule, Solution
from nest.plan.evaluate import PricedPlan, evaluate
from nest.plan.legality import permission_violations, structure_violations
from nest.tolerances import CONTENDING_MEMORY_SLACK

LONGEST_OPTION = 12
"""Most digits of a number in a planner's option."""


@frozen
class Proposal:
    """Decisions of a planner.

    Attributes:
        solution: the decisions; None: no plan found.
        remarks: a sentence each; without a plan, the reasons.
        bound: lower bound (s per step) by the planner's own objective; None: none.
        decisions: instead of `solution`, the content of the problem's `fixed`: for a plan without a candidate in the
            instance, such as another micro-batch. `nest evaluate` prices it.
    """

    solution: Solution | None
    remarks: tuple[str, ...] = ()
    bound: float | None = None
    decisions: Mapping[str, Any] | None = None


@frozen
class Assessment:
    """Decisions assessed on the planned problem.

    Attributes:
        faults: reasons why they are no plan, a sentence each; empty: they are one, which may not fit.
        priced: every number of the plan; None: it is none.
    """

    faults: tuple[str, ...]
    priced: PricedPlan | None

    @property
    def admitted(self) -> bool:
        """True for a plan within the memory of the problem's search (`training.memory_risk`)."""
        return self.priced is not None and self.priced.admitted

    @property
    def refutes(self) -> bool:
        """True if memory is so low that, if they are faster, the search's best plan was not the best."""
        return self.priced is not None and not any(self.priced.exceeding(CONTENDING_MEMORY_SLACK))

    @property
    def missing(self) -> float:
        """Bytes of its fullest stage beyond the search's limit; 0 if admitted or no plan."""
        if self.priced is None or self.priced.admitted:
            return 0.0
        return max(stage.memory for stage in self.priced.stages) - self.priced.capacity


@frozen
class PlannerContext:
    """Helpers of a planner besides the instance.

    Attributes:
        seed: of random numbers.
        evaluations: number of plans that a planner may price.
        assess: assesses decisions on the instance; `nest.plan.evaluate` prices plans.
        search: the exact dynamic program, for any instance: its result may belong to another problem.
        on_network: the instance with another network of as many devices: network-dependent parts are priced again, and
            candidates keep their places.
    """

    seed: int
    evaluations: int
    assess: Callable[[Solution], Assessment]
    search: Callable[[Instance], Result]
    on_network: Callable[[Sequence[Level]], Instance]


def whole_options(name: str, options: Mapping[str, str], least: Mapping[str, int]) -> dict[str, int]:
    """Integer options of a planner, from `least` on, by name.

    Raises:
        InputError: the planner `name` has no such option, or it is no such number.
    """
    for option, value in options.items():
        if option not in least:
            raise InputError(f"planner {name!r} has no option {option!r}; it has {', '.join(least)}.")
        if not value.isdecimal() or len(value) > LONGEST_OPTION or int(value) < least[option]:
            raise InputError(f"planner {name!r}: {option} is {value!r}; it is a whole number from {least[option]}.")
    return {option: int(value) for option, value in options.items()}


def assessed(instance: Instance, solution: Solution) -> Assessment:
    """Assess decisions."""
    faults = structure_violations(instance, solution) or permission_violations(instance, solution)
    return Assessment(tuple(faults), None if faults else evaluate(instance, solution))


def widened(instance: Instance, solution: Solution, known: Mapping[str, Schedule]) -> Instance:
    """Instance in which stages may differ in their candidates, with the decisions' schedule from `known`."""
    schedule, schedules = known.get(solution.schedule), instance.space.schedules
    if isinstance(schedule, ChunkedSchedule) and solution.chunks > 1:
        schedule = schedule.with_chunks(solution.chunks)
    if schedule is not None and schedule not in schedules:
        schedules = (*schedules, schedule)
    return evolve(instance, space=evolve(instance.space, schedules=schedules, mixed=True, even=False))
