"""If no plan fits: the plan with the least memory on its fullest device (PROBLEM.md section 5)."""

from __future__ import annotations

from math import inf

from attrs import evolve

from nest.instance import Instance, Solution
from nest.solve.effort import Deadline
from nest_cpsat.cases import Case, cases
from nest_cpsat.layer_model import LayerModel
from nest_cpsat.pricing import time_and_memory
from nest_cpsat.solver import Effort

PRECISION = 1e-6  # Relative tolerance of the least memory.
EFFORT = 1.0  # CP-SAT's deterministic seconds per question.
WHOLE_EFFORT = 20.0  # CP-SAT's deterministic seconds in all; then the best so far is returned.
ENOUGH = 2.0**64  # Device memories that hold any plan.


def least_memory(instance: Instance, deadline: Deadline) -> Solution | None:
    """Find the plan that needs the least memory; None: no plan is found for any memory.

    Schedules have one chunk per stage. At the deadline the best plan so far is returned.

    Raises:
        InputError: a constraint cannot be computed.
    """
    effort = Effort(1, 0, deadline)
    best: Solution | None = None
    needed = instance.cluster.memory * ENOUGH
    for case in cases(instance, len(instance.graph.layers)):
        below, capacity = instance.cluster.memory, needed * (1 - PRECISION)
        while below < capacity and not deadline.passed and sum(effort.spent) < WHOLE_EFFORT:
            found = _plan_within(instance, case, capacity, effort)
            if found is None:
                below = capacity
            else:
                best, needed = found
            if best is None:
                break
            capacity = min((below + needed) / 2, needed * (1 - PRECISION))
            if found is None and capacity <= below * (1 + PRECISION):
                break
    return best


def _plan_within(instance: Instance, case: Case, capacity: float, effort: Effort) -> tuple[Solution, float] | None:
    """A plan of a case within so many bytes per device, and its need; None: none is found."""
    machines = evolve(instance.cluster, memory=capacity)
    model = LayerModel(evolve(instance, cluster=machines), case, None)
    solver, status = effort.ask_once(model.model, EFFORT)
    if status not in ("OPTIMAL", "FEASIBLE"):
        return None
    solution, _ = model.solution(solver.value)
    _, memory = time_and_memory(instance, case, solution)
    return (solution, max(memory)) if max(memory) < inf else None
