"""The checker: what the decisions of a planner take, whoever made them, and whether they are a plan that fits."""

from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen

from benchmarks.planners.tracks import Task
from nest.errors import InputError
from nest.formulate.instance import build_instance
from nest.hooks.planning import assessed
from nest.hooks.registry import registry
from nest.instance import Instance, Solution
from nest.io import structure
from nest.plan.check import check
from nest.plan.document import document, solution_of
from nest.spec import PlanDocument, Problem
from nest.tolerances import AGREEMENT
from nest.units import format_bytes

DECIDED = ("data_parallel", "rank_order", "schedule", "stages")
"""Keys that every plan has; the others that decide something may be left out."""
OPEN = ("chunks", "zero_degree", "placement")
DERIVED = ("batch_time", "lower_bound", "throughput", "candidate", "micro_batches", "verification")
STAGE_DERIVED = ("time", "sync_time", "memory", "in_flight", "level_in", "level_out")


class FailedError(Exception):
    """A planner has no plan; the text says why."""


@frozen
class Row:
    """Result of one planner on one problem.

    Attributes:
        planner: its name.
        problem: the problem's.
        batch_time: seconds per step; None: it has no plan.
        ratio: of the step time to the optimum; None: it has no plan.
        reason: why it has none, a sentence.
    """

    planner: str
    problem: str
    batch_time: float | None = None
    ratio: float | None = None
    reason: str | None = None

    @property
    def refutes(self) -> bool:
        """Whether it is faster than what was proved to be the least: then the benchmark is wrong."""
        return self.ratio is not None and self.ratio < 1 - AGREEMENT


@frozen
class Judge:
    """Prices decisions on a problem."""

    task: Task
    problem: Problem = field(init=False)
    instance: Instance = field(init=False)

    @problem.default
    def _read(self) -> Problem:
        return structure(self.task.problem, Problem)

    @instance.default
    def _formulated(self) -> Instance:
        return build_instance(self.problem, registry())

    def decisions(self, plan: Mapping[str, Any]) -> Solution:
        """The decisions of a plan in the minimal form, or in nest's own, whose figures are not looked at.

        Raises:
            FailedError: it is no plan, or says that there is none.
        """
        if plan.get("status") == "infeasible":
            raise FailedError(str(plan.get("diagnosis") or "it says that no plan fits.")[:300])
        missing = [key for key in DECIDED if key not in plan]
        if missing:
            raise FailedError(f"its plan lacks {missing[0]}.")
        stages = plan["stages"]
        if not isinstance(stages, list) or not all(isinstance(each, Mapping) for each in stages):
            raise FailedError("stages is no list of stages.")
        whole = {key: plan[key] for key in (*DECIDED, *OPEN) if key in plan}
        whole |= dict.fromkeys(DERIVED) | {"nest": 1, "status": "feasible", "fits": False, "problem": self.task.problem}
        derived = (*STAGE_DERIVED, "upper_memory", "memory_breakdown", "bytes_out")
        whole["stages"] = [
            {key: value for key, value in stage.items() if key not in derived} | dict.fromkeys(STAGE_DERIVED, 0)
            for stage in stages
        ]
        try:
            read = structure(whole, PlanDocument)
            # Where devices are not named, blocks lie on them in their order.
            unplaced = evolve(self.instance, network=None) if read.placement is None else self.instance
            solution = solution_of(unplaced, read)
        except InputError as error:
            raise FailedError(f"its plan cannot be read: {error}") from error
        for number, (stage, decided) in enumerate(zip(read.stages, solution.stages, strict=True)):
            width = self.instance.candidates[decided.candidate].width
            if stage.devices[1] != width:
                count = stage.devices[1]
                raise FailedError(f"stages[{number}].devices has {count} devices; {stage.candidate!r} has {width}.")
        return solution

    def row(self, planner: str, solution: Solution) -> Row:
        """The price of decisions, if they are a plan of the problem that fits and that `nest check` confirms."""
        seen = assessed(self.instance, solution)
        if seen.priced is None:
            return self.failed(planner, f"it is no plan of the problem: {seen.faults[0]}.")
        if not seen.admitted:
            return self.failed(planner, f"its plan does not fit: {format_bytes(seen.missing)} too much.")
        made = document(
            self.instance,
            solution,
            seen.priced,
            status="feasible",
            lower_bound=0.0,  # Then `check` holds the plan to the lists and constraints of its problem.
            problem=self.problem.to_dict(),
        )
        report = check(self.instance, made)
        if not report.ok:
            return self.failed(planner, f"`nest check` disagrees: {report.disagreements[0]}")
        seconds = seen.priced.batch_time
        return Row(planner, self.task.name, seconds, seconds / self.task.optimum)

    def failed(self, planner: str, reason: str) -> Row:
        """The row of a planner without a plan."""
        return Row(planner, self.task.name, reason=" ".join(reason.split()))
