"""Where no plan fits: the plan that needs the least memory on its fullest device (PROBLEM.md section 5)."""

from __future__ import annotations

from math import inf

from attrs import evolve

from nest.instance import Instance, Solution
from nest.solve.cpsat.cases import Case, cases
from nest.solve.cpsat.layer_model import LayerModel
from nest.solve.cpsat.pricing import time_and_memory
from nest.solve.cpsat.solver import Effort
from nest.solve.effort import Deadline

PRECISION = 1e-6
"""Share by which another plan may need less."""

EFFORT = 1.0
"""CP-SAT's deterministic seconds for one question."""

WHOLE_EFFORT = 20.0
"""The same for all together; after them the least so far must do."""

ENOUGH = 2.0**64
"""Times the memory of a device, with which any plan fits that can run at all."""


def least_memory(instance: Instance, deadline: Deadline) -> Solution | None:
    """The plan found that needs the least; None where none is found however much memory there is.

    Args:
        instance: the problem; its schedules have one chunk for each stage.
        deadline: when the best so far must do.

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
    """A plan of a case on devices of so many bytes, and what it needs; None: none is found."""
    machines = evolve(instance.cluster, memory=capacity)
    model = LayerModel(evolve(instance, cluster=machines), case, None)
    solver, status = effort.ask_once(model.model, EFFORT)
    if status not in ("OPTIMAL", "FEASIBLE"):
        return None
    solution, _ = model.solution(solver.value)
    _, memory = time_and_memory(instance, case, solution)
    return (solution, max(memory)) if max(memory) < inf else None
