"""One search for a better plan, whatever the model: cases, bounds that settle most of them, CP-SAT for the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from math import inf
from typing import TYPE_CHECKING, TypeVar

from attrs import define, field, frozen

from nest.errors import InternalError
from nest.instance import Instance, Solution, Standing, chunks_of
from nest.solve.cpsat.bounds import ComputeBound
from nest.solve.cpsat.cases import Case, cases, has_ports
from nest.solve.cpsat.dealt_search import DealtCases
from nest.solve.cpsat.scaling import Scale, scale
from nest.solve.cpsat.verification import Price, Pricing, Verification
from nest.solve.effort import Deadline
from nest.tolerances import PROOF

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver, IntVar

Name = TypeVar("Name")

FIRST_EFFORT = 4.0
"""CP-SAT's deterministic seconds for a case at first; what is left open is taken up again with four times as much."""

FEW_CASES = 60
"""Cases up to which one joint model asks about all of them."""

NEAR = 1.05
"""Bounds settle a case by themselves when they are above the target by this factor; what is nearer is
for CP-SAT, unless that does not answer with its first effort."""

UNLISTED = "the time was up before all cases were listed"


EVERY = 0.1
"""Seconds between two looks at whether CP-SAT is to stop."""

ENDED = ("INFEASIBLE", "OPTIMAL")
"""Answers of CP-SAT that end a search."""

ALONE = 0.25
"""Share of the effort in which one worker is asked first. Interleaved workers of CP-SAT 9.15 can go on after they have
proved that there is no solution: a model of 21 variables that one settles in 0.01 s kept two busy for 80 s."""


@frozen
class Effort:
    """How CP-SAT may work.

    Attributes:
        workers: threads.
        seed: of its random numbers.
        deadline: when it stops.
    """

    workers: int
    seed: int
    deadline: Deadline

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return self.deadline.passed

    def ask(self, model: CpModel, deterministic: float) -> tuple[CpSolver, str]:
        """The solver that answered, and its answer, within so many deterministic seconds and the deadline.

        What ends a search, that there is no solution or no better one, is asked twice: with presolve and without. They
        are the parts of CP-SAT that were found to be wrong on their own; where they differ, the answer without counts.
        One worker is asked before several, with a share of the effort, and alone again for what it could tell.
        """
        workers = 1
        quick = self._solver(deterministic * (ALONE if self.workers > 1 else 1.0), workers)
        status = self._solved(quick, model)
        if status not in ENDED and self.workers > 1:
            workers = self.workers
            quick = self._solver(deterministic, workers)
            status = self._solved(quick, model)
        if status not in ENDED:
            return quick, status
        plain = self._solver(deterministic, workers)
        plain.parameters.cp_model_presolve = False
        again = self._solved(plain, model)
        same = again == status and (status == "INFEASIBLE" or plain.objective_value == quick.objective_value)
        return (quick, status) if same else (plain, again)

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
        """The solver's answer to the model, from a thread beside, so that this one can tell it to stop."""
        with ThreadPoolExecutor(1) as beside:
            found = beside.submit(solver.solve, model)
            try:
                while True:
                    try:
                        return solver.status_name(found.result(timeout=EVERY))
                    except TimeoutError:
                        if self.late:
                            solver.stop_search()
            finally:
                solver.stop_search()


@define
class Open:
    """A case that is not settled yet.

    Attributes:
        case: the case.
        bound: seconds no plan of it is below.
        margin: bounds leave out what is above the target by this factor.
        stuck: why it cannot be settled.
    """

    case: Case
    bound: float = field(converter=float)  # Arrays give numbers of NumPy, whose comparisons are no `bool`.
    margin: float = NEAR
    stuck: str | None = None


@define
class Search:
    """A search for plans below `best`, which falls as better plans are found; how a case is asked is for subclasses.

    Attributes:
        instance: the problem.
        pricing: prices a plan exactly.
        effort: how CP-SAT may work.
        best: seconds of the best plan known; infinite where none is.
        progress: told now and then how far the search is.
        ordered: whether blocks lie in pipeline order (monotone placement).
        better: the best plan found.
    """

    instance: Instance
    pricing: Pricing
    effort: Effort
    best: float
    progress: Callable[[Standing], None] | None = None
    ordered: bool = field(default=True, kw_only=True)
    better: Solution | None = field(init=False, default=None)
    _dealt: DealtCases = field(init=False)
    _given: float = field(init=False)
    _started: float = field(init=False, factory=time.monotonic)
    _models: int = field(init=False, default=0)
    _pruned: int = field(init=False, default=0)
    _cases: int = field(init=False, default=0)
    _error: float = field(init=False, default=0.0)

    def __attrs_post_init__(self) -> None:
        self._given = self.best
        self._dealt = DealtCases(self.instance)

    @property
    def target(self) -> float:
        """A plan that takes this or less is better; nothing is better than a plan that takes no time."""
        return self.best * (1 - PROOF) if self.best > 0 else -inf

    def run(self) -> Verification:
        """The answer."""
        if self.effort.deadline.passed or not self.instance.complete:
            return self._answer([], UNLISTED)
        quick = ComputeBound(self.instance)
        few: list[Case] = []
        waiting: list[Open] = []
        for case in cases(self.instance, self.most_stages()):
            if self.effort.late:
                return self._answer([], UNLISTED)
            self._cases += 1
            if len(few) <= FEW_CASES:
                few.append(case)
            if (bound := quick.of(case)) <= self.target * NEAR:
                waiting.append(Open(case, bound))
        if 0 < len(few) <= FEW_CASES and self.best > 0 and self.none_of_few(few):
            return self._answer([])
        self._pruned = self._cases - len(waiting)
        waiting = self._promising(waiting)
        effort = FIRST_EFFORT
        while any(each.stuck is None for each in waiting) and not self.effort.late:
            left: list[Open] = []
            for index, each in enumerate(waiting):
                if each.bound > self.target * each.margin:
                    self._pruned += 1
                elif each.stuck is not None or self.effort.late or not self._settles(each, effort):
                    left.append(each)
                self._tell([*left, *waiting[index + 1 :]])
            waiting, effort = left, effort * 4
        # Where the time was up, bounds settle what CP-SAT was to be asked besides.
        left = [each for each in waiting if each.bound <= self.target]
        self._pruned += len(waiting) - len(left)
        return self._answer(left)

    def most_stages(self) -> int:
        """More stages than this no plan has."""
        return len(self.instance.graph.layers)

    def none_of_few(self, every: Sequence[Case]) -> bool:
        """Whether one model of all cases, which are few, proves that there is no better plan."""
        return False

    def bound(self, case: Case) -> float:
        """Seconds no plan of the case is below, as far as that matters for `target * NEAR`."""
        return 0.0

    def settles(self, each: Open, effort: float) -> bool:
        """Whether the case is settled: it holds no better plan, or its best is now the one to beat."""
        raise NotImplementedError

    def _settles(self, each: Open, effort: float) -> bool:
        """Whether the case is settled, whatever it is; cases of several chunks are the same for all searches."""
        if chunks_of(each.case.schedule) > 1:
            return self._dealt.settles(self, each, effort)
        return self.settles(each, effort)

    def _promising(self, waiting: Sequence[Open]) -> list[Open]:
        """The cases that bounds leave, most promising first."""
        kept = []
        for each in sorted(waiting, key=lambda each: each.bound):
            if each.bound <= self.target * NEAR and not self.effort.late:
                dealt = chunks_of(each.case.schedule) > 1
                each.bound = max(each.bound, self._dealt.bound(each.case) if dealt else self.bound(each.case))
            if each.bound <= self.target * NEAR and each.bound < inf:
                kept.append(each)
            else:
                self._pruned += 1
        return sorted(kept, key=lambda each: each.bound)

    def asked(self, each: Open, model: CpModel, scaled: Scale | None, effort: float) -> tuple[CpSolver, str]:
        """CP-SAT's answer on a model of the case; notes the bound it gives, and what keeps it from an answer."""
        self._models += 1
        solver, status = self.effort.ask(model, effort)
        if status == "MODEL_INVALID":
            each.stuck = f"CP-SAT refuses the model: {model.validate()}"
        elif status == "UNKNOWN":
            each.margin = 1.0
        if scaled is not None and status not in ("INFEASIBLE", "MODEL_INVALID"):
            each.bound = max(each.bound, min(scaled.seconds(solver.best_objective_bound), self.target))
        return solver, status

    def judged(
        self,
        each: Open,
        model: CpModel,
        read: Callable[[Callable[[IntVar], int]], tuple[Solution, Sequence[Name]]],
        scaled: Scale | None,
        effort: float,
    ) -> bool | frozenset[Name]:
        """What CP-SAT's answer to a model of the whole case says.

        Whether the case is settled; or, when it must be asked again, the names of what does not fit after all. There
        are none when a plan was found without a limit on time and there is one to beat now.

        Args:
            each: the case.
            model: its model.
            read: from the values of variables to the plan and, for each stage, the name of what it uses.
            scaled: the model's unit of time; None: it has no limit on time.
            effort: CP-SAT's deterministic seconds.
        """
        solver, status = self.asked(each, model, scaled, effort)
        if status in ("INFEASIBLE", "MODEL_INVALID", "UNKNOWN"):
            return status == "INFEASIBLE" or (status == "UNKNOWN" and each.bound > self.target)
        solution, names = read(solver.value)
        price = self.pricing(solution)
        if any(price.overfull):
            return frozenset(name for name, over in zip(names, price.overfull, strict=True) if over)
        self.agrees(price, scaled, solver.objective_value)
        better = self.takes(solution, price)
        if scaled is None:
            return frozenset()
        finer = better or status != "OPTIMAL"
        return self.settled_by(each, scaled.seconds(solver.best_objective_bound), finer)

    def takes(self, solution: Solution, price: Price) -> bool:
        """Whether a plan that fits is better; then it is the one to beat."""
        if price.batch_time > self.best * (1 - PROOF / 2):
            return False
        self.best, self.better = price.batch_time, solution
        return True

    def agrees(self, price: Price, scaled: Scale | None, batch_ticks: float) -> None:
        """Every plan CP-SAT finds is priced exactly; the two must agree within the error bound."""
        if scaled is None:
            return
        seconds = scaled.seconds(batch_ticks)
        if not seconds <= price.batch_time <= seconds + scaled.error:
            raise InternalError(
                f"CP-SAT's model gives a plan {seconds} s, exact pricing {price.batch_time} s; they may differ by "
                f"{scaled.error} s. This is a bug in nest; please report it with the problem file."
            )

    def settled_by(self, each: Open, bound: float, finer: bool) -> bool:
        """Whether a case whose plans all take `bound` seconds is settled; `finer`: asking again can tell more."""
        if bound <= self.target and not finer:
            each.stuck = "integers are too coarse"
        return bound > self.target

    def scaled(self, case: Case, terms: int) -> tuple[Scale | None, int | None]:
        """The scale of a case and its limit on the batch time in integers; None where any plan is better."""
        if self.best == inf:
            return None, None
        # What a stage waits for ports is a number of its own.
        scaled = scale(case.weights, case.stages, self.best, terms + has_ports(self.instance, case))
        self._error = max(self._error, scaled.error / self.best)
        return scaled, scaled.limit(self.target)

    def _tell(self, waiting: Sequence[Open]) -> None:
        if self.progress is not None:
            bound = min([self.target, *(each.bound for each in waiting)])
            explored = 1 - len(waiting) / max(self._cases, 1)
            best = None if self.best == inf else self.best
            self.progress(Standing(best, bound, explored, time.monotonic() - self._started, proving=True))

    def _answer(self, waiting: Sequence[Open], reason: str | None = None) -> Verification:
        reason = reason or _reason(waiting)
        bound = max(min([self.target, *(each.bound for each in waiting)]), 0.0) if reason != UNLISTED else 0.0
        status = "refuted" if self.better is not None else "proved" if reason is None else "open"
        return Verification(
            status=status,
            batch_time=None if self._given == inf else self._given,
            bound=None if bound == inf else bound,
            better=self.better,
            better_batch_time=self.best if self.better is not None else None,
            settled=reason is None,
            models=self._models,
            pruned=self._pruned,
            cases=self._cases,
            error=self._error,
            seconds=time.monotonic() - self._started,
            seed=self.effort.seed,
            workers=self.effort.workers,
            version=version("ortools"),
            reason=reason,
        )


def _reason(waiting: Sequence[Open]) -> str | None:
    if not waiting:
        return None
    stuck = [each.stuck for each in waiting if each.stuck is not None]
    told = stuck[0] if len(stuck) == len(waiting) else "the time is up"
    return f"{len(waiting)} cases are not settled: {told}"
