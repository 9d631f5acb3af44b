"""Search for a better plan than the incumbent; without one, the search is the proof (PROBLEM.md section 7).

One loop over cases, best bound first, for all kinds of models: bounds prune most cases, CP-SAT settles the rest.
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
from nest.solve.effort import Deadline
from nest.tolerances import AGREEMENT, PROOF
from nest_cpsat.cases import Case, OpenCase, cases, has_ports
from nest_cpsat.chunk_model import ChunkModel
from nest_cpsat.chunk_models import ChunkModels
from nest_cpsat.comparison import bounds_only, compare
from nest_cpsat.cuts import list_cuts
from nest_cpsat.layer_model import LayerModel
from nest_cpsat.layer_models import LayerModels
from nest_cpsat.open_cases import NEAR, Beside, OpenCases
from nest_cpsat.path_model import PathModel
from nest_cpsat.path_models import PathModels
from nest_cpsat.placed_model import PlacedModel, PlacedModels
from nest_cpsat.placement import TooManyChoicesError, TooManyPlacesError
from nest_cpsat.replay import Paths
from nest_cpsat.scaling import Limit, scale
from nest_cpsat.solver import Effort
from nest_cpsat.verification import Price, Pricing, Verification

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver


MOST_CUTS = 600  # Most cuts with all stages between them listed: 600 make 180,000 stages, priced in seconds.
MOST_PRICED = 5_000_000  # Most modes of all listed stages that are priced: some 300 MB.
FIRST_EFFORT = 4.0  # CP-SAT's first deterministic seconds for a case; open cases get four times as many later.
FEW_CASES = 60  # Most cases in one joint model.
JOINT_EFFORT = 2.0  # CP-SAT's deterministic seconds for a joint model; then cases are solved one by one.

UNLISTED = "the time limit ran out before the search began"
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
    """Prove that no plan is better than `batch_time` by more than 1e-6 of it (PROBLEM.md sections 5 and 7).

    Args:
        batch_time: seconds of the plan; None: claim that there is no plan.
        pricing: prices a plan exactly.
        free: also search blocks anywhere in their replica and in any order.
        time_limit: seconds, or a deadline; unsettled cases then stay open.
        workers: threads of CP-SAT; each number of them gives reproducible answers.
        most_effort: CP-SAT's deterministic seconds in all; unsettled cases then stay open.
        beside: forked processes that bound cases if that takes long; None: none.

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
    names = max(len(instance.recompute_names(each)) for each in range(len(instance.candidates)))
    return min(MOST_CUTS, isqrt(2 * MOST_PRICED // max(names * len(instance.space.zero), 1)))


@define
class Search:
    """Search for plans below `best`, which falls as better plans are found."""

    instance: Instance
    pricing: Pricing
    effort: Effort
    best: float  # Seconds of the best known plan; infinite without one.
    plain: PathModels | LayerModels | PlacedModels  # Models of cases with one run of layers per stage.
    chunked: ChunkModels  # Models of cases of several chunks.
    progress: Progress | None = None
    ordered: bool = field(default=True, kw_only=True)  # Blocks keep pipeline order (monotone placement).
    most_effort: float = field(default=inf, kw_only=True)  # CP-SAT's deterministic seconds in all.
    beside: Beside | None = field(default=None, kw_only=True)  # Processes that bound cases; None: none.
    better: Solution | None = field(init=False, default=None)  # Best plan found.
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
        """Largest step time that counts as better; nothing is better than 0 s."""
        return self.best * (1 - PROOF) if self.best > 0 else -inf

    def run(self) -> Verification:
        """Run the search."""
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
        return self.effort.deadline.passed or self._spent > self.most_effort

    def _models_of(self, case: Case) -> PathModels | LayerModels | PlacedModels | ChunkModels:
        on_levels = not isinstance(self.plain, PlacedModels)
        return self.chunked if chunks_of(case.schedule) > 1 and on_levels else self.plain

    def _bound(self, case: Case, target: float) -> float:
        return self._models_of(case).bound(case, target)

    def _joint_proof(self, every: Sequence[Case]) -> bool:
        """Try to prove by one model of all cases, if few, that no plan is better; keep a better plan."""
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
        """Settle a case: no better plan exists, or its best is the new incumbent. False: still open.

        CP-SAT continues without plans that do not fit, and below each found plan.
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
        """True if a plan takes longer than modelled because its replay does."""
        if not case.replayed or price.batch_time <= seconds:
            return False
        assert self.instance.makespan is not None
        return self.instance.makespan(self.instance, solution) >= price.batch_time

    def _settled_by_contents(self, each: OpenCase, effort: float) -> bool:
        """True if the stages of a case of several chunks are too slow for any chunk borders."""
        models = self._models_of(each.case)
        if not isinstance(models, ChunkModels):
            return False
        model = models.outline(each, self.target * each.margin, self._limit)
        return model is not None and self._ask(each, model, None, effort)[1] == "INFEASIBLE"

    def _tries_all(self, each: OpenCase, overfull: Sequence[Any]) -> bool:
        """Settle a case by trying every placement, if links decide."""
        assert isinstance(self.plain, PlacedModels)
        found = self.plain.best_of_all(each.case, self.target, overfull)
        if found is None:
            each.stuck = "link traffic has only a lower bound"
            return False
        if found.solution is not None:
            price = self.pricing(found.solution)
            if any(price.overfull):
                each.stuck = "a stage fills its device to within rounding"
                return False
            if abs(price.batch_time - found.seconds) > AGREEMENT * found.seconds:
                raise InternalError(
                    f"trying every placement gives a plan {found.seconds} s, exact pricing {price.batch_time} s. "
                    "This is a bug in nest; please report it with the problem file."
                )
            self._improve(found.solution, price)
        return True

    def _ask(self, each: OpenCase, model: CpModel, limit: Limit | None, effort: float) -> tuple[CpSolver, str]:
        """Ask CP-SAT about a model of the case; record the bound, and the reason if there is no answer."""
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
        """Keep a plan that fits if it is better; tell whether it is."""
        if price.batch_time > self.best * (1 - PROOF / 2):
            return False
        self.best, self.better = price.batch_time, solution
        return True

    def _limit(self, case: Case, terms: int) -> Limit | None:
        """Scale of a case and its integer limit on the step time; None: any plan is better."""
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
            why = stuck[0] if len(stuck) == len(waiting) else "the time limit ran out"
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
