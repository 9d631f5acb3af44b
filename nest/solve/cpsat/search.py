"""The search for a plan better than the one given; where there is none, that is the proof (PROBLEM.md section 7).

One loop over cases, best bound first, whatever their models: bounds prune most of them, CP-SAT settles the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from itertools import islice
from math import inf, isqrt
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field

from nest.errors import InternalError
from nest.instance import Instance, SearchProgress, Solution, chunks_of
from nest.solve.cpsat.cases import Case, OpenCase, cases, has_ports
from nest.solve.cpsat.chunk_model import ChunkModel
from nest.solve.cpsat.chunk_models import ChunkModels
from nest.solve.cpsat.comparison import bounds_only, compare
from nest.solve.cpsat.cuts import list_cuts
from nest.solve.cpsat.layer_model import LayerModel
from nest.solve.cpsat.layer_models import LayerModels
from nest.solve.cpsat.open_cases import NEAR, Beside, OpenCases
from nest.solve.cpsat.path_model import PathModel
from nest.solve.cpsat.path_models import PathModels
from nest.solve.cpsat.placed_model import PlacedModel, PlacedModels
from nest.solve.cpsat.placement import TooManyChoicesError, TooManyPlacesError
from nest.solve.cpsat.replay import Paths
from nest.solve.cpsat.scaling import Limit, scale
from nest.solve.cpsat.solver import Effort
from nest.solve.cpsat.verification import Price, Pricing, Verification
from nest.solve.effort import Deadline
from nest.tolerances import AGREEMENT, PROOF

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver


MOST_CUTS = 600
"""Cuts up to which the stages between them are listed: 600 make 180,000 stages, priced in seconds."""

MOST_PRICED = 5_000_000
"""Modes of all listed stages together up to which these are priced: some 300 MB."""

FIRST_EFFORT = 4.0
"""CP-SAT's deterministic seconds for a case at first; what is left open is taken up again with four times as much."""

FEW_CASES = 60
"""Cases up to which one joint model asks about all of them."""

JOINT_EFFORT = 2.0
"""CP-SAT's deterministic seconds for a joint model; after them it is case by case."""

UNLISTED = "the time was up before all cases were listed"
Progress = Callable[[SearchProgress], None]


def verify(
    instance: Instance,
    batch_time: float | None,
    pricing: Pricing,
    *,
    free: bool = False,
    time_limit: float | Deadline | None = None,
    workers: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
    most_effort: float = inf,
    beside: Beside | None = None,
) -> Verification:
    """Whether no plan is better than `batch_time` by more than 1e-6 of it (PROBLEM.md sections 5 and 7).

    Args:
        instance: the problem.
        batch_time: seconds of the plan given; None: the claim is that there is no plan at all.
        pricing: prices a plan exactly.
        free: also ask for plans whose blocks lie anywhere in their replica and in any order.
        time_limit: seconds after which what is not settled is left open; or a deadline.
        workers: threads of CP-SAT; the answer is the same from run to run for each number of them.
        seed: of CP-SAT.
        progress: called now and then with how far the proof is.
        most_effort: CP-SAT's deterministic seconds in all, after which what is not settled is left open.
        beside: other processes, forked from this one, that bound cases where that takes long; None: it is alone.

    Raises:
        InputError: a constraint cannot be computed.
        InternalError: CP-SAT's model and exact pricing disagree on a plan.
    """
    started = time.monotonic()
    effort = Effort(workers, seed, Deadline.of(time_limit))
    # What stages receive directly does not depend on their cuts alone.
    cuts = None if instance.space.direct else list_cuts(instance, _most_cuts(instance))
    plain: PathModels | LayerModels | PlacedModels
    if instance.network is not None:
        plain = PlacedModels(instance, cuts)
    else:
        plain = LayerModels(instance) if cuts is None else PathModels(instance, cuts)
    chunked = ChunkModels(instance)
    best = inf if batch_time is None else batch_time
    shared = instance, pricing, effort
    search = Search(*shared, best, plain, chunked, progress, most_effort=most_effort, beside=beside)
    answer = search.run()
    if free and instance.network is None and not instance.space.direct:
        unordered = Search(*shared, search.best, plain, chunked, progress, ordered=False, beside=beside)
        answer = evolve(answer, free=unordered.run())
    return evolve(answer, seconds=time.monotonic() - started)


def _most_cuts(instance: Instance) -> int:
    """Cuts up to which the stages between them are listed."""
    names = max(len(instance.recompute_names(each)) for each in range(len(instance.candidates)))
    return min(MOST_CUTS, isqrt(2 * MOST_PRICED // max(names * len(instance.space.zero), 1)))


@define
class Search:
    """A search for plans below `best`, which falls as better plans are found.

    Attributes:
        instance: the problem.
        pricing: prices a plan exactly.
        effort: how CP-SAT may work.
        best: seconds of the best plan known; infinite where none is.
        plain: models of cases whose stages hold one run of layers each.
        chunked: models of cases of several chunks.
        progress: called now and then with how far the search is.
        ordered: whether blocks lie in pipeline order (monotone placement).
        most_effort: CP-SAT's deterministic seconds in all, after which what is not settled is left open.
        beside: other processes that bound cases; None: this one is alone.
        better: the best plan found.
    """

    instance: Instance
    pricing: Pricing
    effort: Effort
    best: float
    plain: PathModels | LayerModels | PlacedModels
    chunked: ChunkModels
    progress: Progress | None = None
    ordered: bool = field(default=True, kw_only=True)
    most_effort: float = field(default=inf, kw_only=True)
    beside: Beside | None = field(default=None, kw_only=True)
    better: Solution | None = field(init=False, default=None)
    _given: float = field(init=False)
    _started: float = field(init=False, factory=time.monotonic)
    _models: int = field(init=False, default=0)
    _pruned: int = field(init=False, default=0)
    _cases: int = field(init=False, default=0)
    _error: float = field(init=False, default=0.0)
    _spent: float = field(init=False, default=0.0)
    _paths: Paths = field(init=False, factory=Paths)

    def __attrs_post_init__(self) -> None:
        self._given = self.best

    @property
    def target(self) -> float:
        """A plan that takes this or less is better; nothing is better than a plan that takes no time."""
        return self.best * (1 - PROOF) if self.best > 0 else -inf

    def run(self) -> Verification:
        """The answer."""
        if self.effort.deadline.passed or not self.instance.complete:
            return self._answer([], UNLISTED)
        few = list(islice(cases(self.instance, self.plain.most_stages), FEW_CASES + 1))
        if 0 < len(few) <= FEW_CASES and self.best > 0 and self._joint_proof(few):
            self._cases = len(few)
            return self._answer([])
        found = OpenCases(
            self.instance, self.plain.most_stages, self._bound, self.target * NEAR, self.effort.deadline, self.beside
        )
        listed = found.listed()
        self._cases = found.count
        if listed is None:
            return self._answer([], UNLISTED)
        waiting = found.best_first(listed)
        self._cases = found.count
        self._pruned = found.count - len(waiting)
        effort = FIRST_EFFORT
        while any(each.stuck is None for each in waiting) and not self._over:
            left: list[OpenCase] = []
            for index, each in enumerate(waiting):
                if each.bound > self.target * each.margin:
                    self._pruned += 1
                elif each.stuck is not None or self._over or not self._settles(each, effort):
                    left.append(each)
                self._report([*left, *waiting[index + 1 :]])
            waiting, effort = left, effort * 4
        # Where the time was up, bounds settle what CP-SAT was to be asked besides.
        left = [each for each in waiting if each.bound <= self.target]
        self._pruned += len(waiting) - len(left)
        return self._answer(left)

    @property
    def _over(self) -> bool:
        """Whether no more is to be asked."""
        return self.effort.deadline.passed or self._spent > self.most_effort

    def _models_of(self, case: Case) -> PathModels | LayerModels | PlacedModels | ChunkModels:
        on_levels = not isinstance(self.plain, PlacedModels)
        return self.chunked if chunks_of(case.schedule) > 1 and on_levels else self.plain

    def _bound(self, case: Case, target: float) -> float:
        return self._models_of(case).bound(case, target)

    def _joint_proof(self, every: Sequence[Case]) -> bool:
        """Whether one model of all cases, which are few, proves that there is no better plan; one found is taken."""
        if not isinstance(self.plain, PathModels) or any(chunks_of(case.schedule) > 1 for case in every):
            return False
        joint = self.plain.joint_model(every, self._limit, ordered=self.ordered)
        if joint is None:
            return False
        model, parts = joint
        self._models += 1
        solver, status = self.effort.ask(model, JOINT_EFFORT)
        if status in ("OPTIMAL", "FEASIBLE"):
            solution, _ = next(part.solution(solver.value) for part in parts if solver.value(part.chosen))
            price = self.pricing(solution)
            if not any(price.overfull):
                self._improve(solution, price)
        return status == "INFEASIBLE"

    def _settles(self, each: OpenCase, effort: float) -> bool:
        """Whether the case is settled: it holds no better plan, or its best is now the one to beat.

        CP-SAT is asked again without what does not fit after all, and below a plan that it found.
        """
        if self._settled_by_contents(each, effort):
            return True
        overfull: tuple[Any, ...] = ()
        enough = self._spent + effort
        while True:
            each.paths = self._paths.of(each.case)
            try:
                model = self._models_of(each.case).model(
                    each, self.target * each.margin, overfull, self._limit, ordered=self.ordered
                )
            except (TooManyChoicesError, TooManyPlacesError) as reason:
                each.stuck = str(reason)
                return False
            if model is None:
                self._pruned += not overfull
                return True
            solver, status = self._ask(each, model.model, model.limit, effort)
            if status in ("INFEASIBLE", "MODEL_INVALID", "UNKNOWN"):
                return status == "INFEASIBLE" or (status == "UNKNOWN" and each.bound > self.target)
            solution, choices = model.solution(solver.value)
            price = self.pricing(solution)
            if any(price.overfull):
                overfull += tuple(choice for choice, over in zip(choices, price.overfull, strict=True) if over)
                continue
            if model.limit is None:
                self._improve(solution, price)
                continue
            optimal, (scaled, _) = status == "OPTIMAL", model.limit
            above = scaled.seconds(solver.objective_value) + scaled.error
            if not isinstance(self.plain, PlacedModels) and self._replayed(each.case, solution, price, above):
                assert isinstance(model, (PathModel, ChunkModel, LayerModel))
                self._paths.exclude(each.case, model, solver.value, choices, each.excluded)
                self._improve(solution, price)
                if self._over or self._spent > enough:
                    return False
                continue
            compare(model, price, scaled.seconds(solver.objective_value), scaled.error, optimal=optimal)
            better = self._improve(solution, price)
            if bounds_only(model) and optimal:
                above = price.batch_time > scaled.seconds(solver.objective_value) + scaled.error
                if above and isinstance(model, PlacedModel) and not model.inexact:
                    return self._tries_all(each, overfull)
                if not better and model.inexact:
                    each.stuck = model.inexact
                    return False
                if above:
                    # The model's best is not the case's best: collectives cost more.
                    if not better:
                        return False
                    continue
            bound = scaled.seconds(solver.best_objective_bound)
            if bound <= self.target and not better and optimal:
                each.stuck = "integers are too coarse"
            return bound > self.target

    def _replayed(self, case: Case, solution: Solution, price: Price, seconds: float) -> bool:
        """Whether a plan takes longer than the seconds that its model says because its replay does."""
        if not case.replayed or price.batch_time <= seconds:
            return False
        assert self.instance.makespan is not None
        return self.instance.makespan(self.instance, solution) >= price.batch_time

    def _settled_by_contents(self, each: OpenCase, effort: float) -> bool:
        """Whether the stages of a case of several chunks are too slow wherever its chunks begin."""
        models = self._models_of(each.case)
        if not isinstance(models, ChunkModels):
            return False
        model = models.outline(each, self.target * each.margin, self._limit)
        return model is not None and self._ask(each, model, None, effort)[1] == "INFEASIBLE"

    def _tries_all(self, each: OpenCase, overfull: Sequence[Any]) -> bool:
        """Whether trying every placement, where links decide, settles the case."""
        assert isinstance(self.plain, PlacedModels)
        found = self.plain.best_of_all(each.case, self.target, overfull)
        if found is None:
            each.stuck = "what links carry is bounded from below only"
            return False
        if found.solution is not None:
            price = self.pricing(found.solution)
            if any(price.overfull):
                each.stuck = "a stage is as full as a device, but for rounding"
                return False
            if abs(price.batch_time - found.seconds) > AGREEMENT * found.seconds:
                raise InternalError(
                    f"trying every placement gives a plan {found.seconds} s, exact pricing {price.batch_time} s. "
                    "This is a bug in nest; please report it with the problem file."
                )
            self._improve(found.solution, price)
        return True

    def _ask(self, each: OpenCase, model: CpModel, limit: Limit | None, effort: float) -> tuple[CpSolver, str]:
        """CP-SAT's answer on a model of the case; notes the bound it gives, and what keeps it from an answer."""
        self._models += 1
        solver, status = self.effort.ask(model, effort)
        self._spent += solver.deterministic_time
        if status == "MODEL_INVALID":
            each.stuck = f"CP-SAT refuses the model: {model.validate()}"
        elif status == "UNKNOWN":
            each.margin = 1.0
        if limit is not None and status not in ("INFEASIBLE", "MODEL_INVALID"):
            each.bound = max(each.bound, min(limit[0].seconds(solver.best_objective_bound), self.target))
        return solver, status

    def _improve(self, solution: Solution, price: Price) -> bool:
        """Whether a plan that fits is better; then it is the one to beat."""
        if price.batch_time > self.best * (1 - PROOF / 2):
            return False
        self.best, self.better = price.batch_time, solution
        return True

    def _limit(self, case: Case, terms: int) -> Limit | None:
        """The scale of a case and its limit on the step time in integers; None where any plan is better."""
        if self.best == inf:
            return None
        # What a stage waits for ports is a number of its own.
        terms += has_ports(self.instance, case)
        scaled = scale(case.weights, case.stages, self.best, terms, apart=case.apart)
        self._error = max(self._error, scaled.error / self.best)
        return scaled, scaled.limit(self.target)

    def _report(self, waiting: Sequence[OpenCase]) -> None:
        if self.progress is not None:
            bound = min([self.target, *(each.bound for each in waiting)])
            explored = 1 - len(waiting) / max(self._cases, 1)
            best = None if self.best == inf else self.best
            self.progress(SearchProgress(best, bound, explored, time.monotonic() - self._started, proving=True))

    def _answer(self, waiting: Sequence[OpenCase], reason: str | None = None) -> Verification:
        if reason is None and waiting:
            stuck = [each.stuck for each in waiting if each.stuck is not None]
            why = stuck[0] if len(stuck) == len(waiting) else "the time is up"
            reason = f"{len(waiting)} cases are not settled: {why}"
        bound = max(min([self.target, *(each.bound for each in waiting)]), 0.0) if reason != UNLISTED else 0.0
        return Verification(
            status="refuted" if self.better is not None else "proved" if reason is None else "open",
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
