"""CP-SAT calls, guarded against its errors and its clock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import TYPE_CHECKING

from attrs import field, frozen

from nest.solve.effort import Deadline

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver

POLLING = 0.1  # Seconds between two checks for a stop.
FINAL = ("INFEASIBLE", "OPTIMAL")  # CP-SAT's answers that end a search.

ONE_WORKER_SHARE = 0.25
"""Share of the effort for a first try with one worker. Interleaved workers of CP-SAT 9.15 may continue after proving
infeasibility: a model of 21 variables that one worker settles in 0.01 s kept two busy for 80 s."""


@frozen
class Effort:
    """CP-SAT's resources; `spent` are the deterministic seconds of each question so far."""

    workers: int
    seed: int
    deadline: Deadline
    spent: list[float] = field(factory=list)

    def ask(self, model: CpModel, deterministic: float) -> tuple[CpSolver, str]:
        """Ask CP-SAT within so many deterministic seconds and the deadline.

        Final answers (infeasible or optimal) are confirmed without presolve: presolve and search were each found wrong
        on their own; if they differ, the answer without presolve counts. One worker is tried first with a share of the
        effort, and alone confirms what it can decide.
        """
        workers = 1
        quick = self._solver(deterministic * (ONE_WORKER_SHARE if self.workers > 1 else 1.0), workers)
        status = self._solved(quick, model)
        if status not in FINAL and self.workers > 1:
            workers = self.workers
            quick = self._solver(deterministic, workers)
            status = self._solved(quick, model)
        if status not in FINAL:
            return quick, status
        plain = self._solver(deterministic, workers)
        plain.parameters.cp_model_presolve = False
        again = self._solved(plain, model)
        same = again == status and (status == "INFEASIBLE" or plain.objective_value == quick.objective_value)
        return (quick, status) if same else (plain, again)

    def ask_once(self, model: CpModel, deterministic: float) -> tuple[CpSolver, str]:
        """Ask CP-SAT once, with one worker.

        For the many questions with small coefficients: every CP-SAT error found came with large ones
        (`nest_cpsat.scaling.LARGEST_COEFFICIENT`).
        """
        solver = self._solver(deterministic, 1)
        return solver, self._solved(solver, model)

    def _solver(self, deterministic: float, workers: int) -> CpSolver:
        from ortools.sat.python import cp_model

        solver = cp_model.CpSolver()
        solver.parameters.random_seed = self.seed
        solver.parameters.num_workers = workers
        # Several workers that are interleaved answer alike from run to run.
        solver.parameters.interleave_search = workers > 1
        solver.parameters.max_deterministic_time = deterministic
        if self.deadline.left < inf:
            solver.parameters.max_time_in_seconds = max(self.deadline.left, 0.01)
        solver.parameters.catch_sigint_signal = False
        return solver

    def _solved(self, solver: CpSolver, model: CpModel) -> str:
        """Solve in another thread, so that this one can stop it."""
        with ThreadPoolExecutor(1) as beside:
            answer = beside.submit(solver.solve, model)
            try:
                while True:
                    try:
                        status = solver.status_name(answer.result(timeout=POLLING))
                        self.spent.append(solver.deterministic_time)
                        return status
                    except TimeoutError:
                        if self.deadline.passed:
                            solver.stop_search()
            finally:
                solver.stop_search()
