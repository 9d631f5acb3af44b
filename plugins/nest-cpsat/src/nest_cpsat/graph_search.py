"""Fastest plan of a graph with too many cuts for a dynamic program (PROBLEM.md sections 5 and 7).

Starting from a known plan, cases are searched best bound first, as in `search.py`, for better plans:

* limits at each boundary (`boundaries.py`) bound the case, and leave few cuts if the bound is near;
* few cuts are listed (`listing.py`), and the plan is a path through them (`listed_model.py`). If there are too many up
  to the best plan, a step time between bound and best is tried: it yields a new best plan or a new bound;
* otherwise variables assign each layer to a side of each boundary (`layer_model.py`), within the same limits.

Effort is counted in CP-SAT's deterministic seconds, so that every machine gives the same answer. Cases open at the end
leave a gap between best plan and bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, cast

from attrs import define, field

from nest.instance import Instance, Result, SearchProgress, Solution
from nest.solve.effort import Deadline
from nest.tolerances import PROOF
from nest_cpsat.boundaries import Boundaries, Limits, restrict
from nest_cpsat.cases import Case, OpenCase, cases, has_ports, parts_alike, told_apart
from nest_cpsat.compute_bound import ComputeBound
from nest_cpsat.layer_model import LayerModel
from nest_cpsat.layer_models import LayerModels
from nest_cpsat.least_costs import LeastCostCache
from nest_cpsat.listed_model import ListedStages
from nest_cpsat.listing import Listing
from nest_cpsat.path_model import PathModel
from nest_cpsat.placement import TooManyChoicesError, TooManyPlacesError
from nest_cpsat.pricing import exact_price, with_replay
from nest_cpsat.replay import Paths
from nest_cpsat.scaling import Limit, scale
from nest_cpsat.solver import Effort

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import IntVar

EFFORTS = (1.0, 4.0, 16.0)
"""CP-SAT's deterministic seconds per question, by round: open questions get more in the next."""

WHOLE_EFFORT = 20.0  # CP-SAT's deterministic seconds in all; one takes about a second of a core.
PARTS = (1.0, 1 / 4, 1 / 16)  # Parts of the way from bound to best up to which cuts are listed.

REACH = 3
"""Layers in a row that may change sides of a boundary near the best plan; fewer if that makes too many cuts or gains
nothing."""

IMPROVING = 0.5  # Deterministic seconds charged for one such search.

Progress = Callable[[SearchProgress], None]


def solve(
    instance: Instance,
    known: tuple[Solution, float] | None,
    deadline: Deadline,
    progress: Progress | None = None,
    bound: float = 0.0,
) -> Result:
    """Find the best plan, `optimal` if no plan is better by more than 1e-6 of its step time.

    Args:
        instance: with schedules of one chunk per stage.
        known: a plan that fits, with its step time in seconds; None: none is known.
        bound: known lower bound in seconds.

    Raises:
        InputError: a constraint cannot be computed.
        NoPlanYet: the deadline has passed without a plan.
    """
    search = GraphSearch(instance, Effort(1, 0, deadline if known is not None else deadline.patient()), known, progress)
    result = search.run(bound)
    if result.status == "feasible" and result.solution is None:
        raise deadline.no_plan_yet()
    return result


def price(instance: Instance, solution: Solution) -> float:
    """Step time (s) of a plan that fits, whatever its case."""
    stages = solution.stages
    schedule = next(each for each in instance.space.schedules if each.name == solution.schedule)
    widths = [instance.candidates[stage.candidate].width for stage in stages]
    micro_batches = instance.micro_batches(instance.candidates[stages[0].candidate], solution.replicas)
    assert micro_batches is not None
    used = tuple(sorted({stage.candidate for stage in stages}))
    case = Case(
        used,
        tuple(() for _ in used),
        max(widths),
        solution.replicas,
        solution.rank_order,
        schedule,
        len(stages),
        micro_batches,
        instance.space.weights(schedule, micro_batches, len(stages)),
        instance.space.hides(schedule.name),
        zero_degree=solution.zero_degree,
    )
    return with_replay(instance, solution, exact_price(instance, case, solution).batch_time)


@define
class GraphSearch:
    """Search for the fastest plan; `known` is the best so far with its step time in seconds."""

    instance: Instance
    effort: Effort
    known: tuple[Solution, float] | None
    progress: Progress | None = None
    _started: float = field(init=False, factory=time.monotonic)
    _costs: LeastCostCache = field(init=False)
    _boundaries: Boundaries = field(init=False)
    _listing: Listing = field(init=False)
    _layers: LayerModels = field(init=False)
    _unlistable: dict[Case, float] = field(init=False, factory=dict)
    _cases: int = field(init=False, default=0)
    _settled_by: dict[str, int] = field(init=False, factory=dict)
    _paths: Paths = field(init=False, factory=Paths)

    def __attrs_post_init__(self) -> None:
        self._costs = LeastCostCache(self.instance)
        self._boundaries = Boundaries(self.instance, self.effort)
        self._listing = Listing(self.instance)
        self._layers = LayerModels(self.instance)

    @property
    def best(self) -> float:
        """Seconds of the best known plan; infinite without one."""
        return inf if self.known is None else self.known[1]

    @property
    def target(self) -> float:
        """Largest step time that counts as better."""
        return self.best * (1 - PROOF) if self.best > 0 else -inf

    @property
    def spent(self) -> bool:
        """True if no effort is left."""
        return self.effort.deadline.passed or sum(self.effort.spent) > WHOLE_EFFORT

    def run(self, bound: float = 0.0) -> Result:
        """Run the search, given a known lower bound in seconds."""
        waiting = self._best_first()
        for effort in EFFORTS:
            left: list[OpenCase] = []
            for index, each in enumerate(waiting):
                if each.bound > self.target:
                    self._count("bound")
                elif self.spent or not self._settles(each, effort):
                    left.append(each)
                self._report([*left, *waiting[index + 1 :]])
            waiting = sorted((each for each in left if each.bound <= self.target), key=lambda each: each.bound)
            if not waiting or self.spent:
                break
        return self._answer(waiting, bound)

    def _best_first(self) -> list[OpenCase]:
        """Cases that bounds leave, most promising first."""
        quick, waiting = ComputeBound(self.instance), []
        for case in cases(self.instance, self._layers.most_stages, apart=False):
            self._cases += 1
            bound = quick.of(case)
            if bound <= self.target:
                waiting.append(OpenCase(case, bound, 1.0))
            else:
                self._count("bound from compute")
        waiting.sort(key=lambda each: each.bound)
        for each in waiting:
            costs = self._costs.of(each.case)
            each.bound = max(each.bound, costs.step_time(each.case, costs.total))
        if parts_alike(self.instance):
            left = [each for each in waiting if each.bound <= self.target]
            apart = [OpenCase(case, each.bound, 1.0) for each in left for case in told_apart(self.instance, each.case)]
            self._cases, waiting = self._cases + len(apart) - len(left), apart
        return sorted(waiting, key=lambda each: each.bound)

    def _settles(self, each: OpenCase, effort: float) -> bool:
        """Settle a case: no better plan exists, or its best is the new incumbent. False: still open."""
        if self.best == inf or not any(each.case.least_weights):
            return self._settled_by_model(each, effort)
        while each.bound <= self.target and not self.spent:
            step = self._listed(each)
            if step is None:
                self._improve(each)
                return self._settled_by_model(each, effort)
            target, stages = step
            if stages is not None and not self._asked(each, target, stages, effort):
                return self._settled_by_model(each, effort)
        return each.bound > self.target

    def _listed(self, each: OpenCase) -> tuple[float, ListedStages | None] | None:
        """List the stages of a case up to some step time; None: that is too near the bound.

        If no plan keeps the limits, raise the bound of the case; there are no stages then.
        """
        costs, case = self._costs.of(each.case), each.case
        for part in PARTS:
            way = (self.target - each.bound) * part
            if way > self._unlistable.get(case, inf) / 2 or self.spent:
                continue
            target = each.bound + way if part < 1 else self.target
            limits = self._boundaries.limits(costs, case, target)
            if limits is None:
                self._raise(each, target)
                return target, None
            each.bound = max(each.bound, min(limits.bound, target))
            cuts = self._listing.cuts(costs, case, limits)
            if cuts is not None:
                return target, ListedStages.of(self.instance, case, cuts)
            self._unlistable[case] = way
        return None

    def _asked(self, each: OpenCase, target: float, stages: ListedStages, effort: float) -> bool:
        """Let CP-SAT look for a plan below `target`; take the best or raise the bound. False: undecided."""
        overfull: tuple[Any, ...] = ()
        excluded: list[Any] = []
        self._walk(each, stages)
        while not self.spent:
            try:
                model = stages.model(
                    min(target, self.target),
                    lambda case, terms: self._limit(case, terms, min(target, self.target)),
                    overfull,
                    paths=self._paths.of(each.case),
                    excluded=excluded,
                )
            except (TooManyChoicesError, TooManyPlacesError):
                return False
            if model is None:
                self._raise(each, min(target, self.target))
                return True
            solver, status = self.effort.ask(model.model, effort)
            if status == "INFEASIBLE":
                self._raise(each, min(target, self.target))
                return True
            if status not in ("OPTIMAL", "FEASIBLE"):
                return False
            overfull, taken = self._take(each, model, solver.value, overfull, excluded)
            if taken and status == "OPTIMAL":
                assert model.limit is not None
                each.bound = max(each.bound, min(model.limit[0].seconds(solver.best_objective_bound), self.target))
            if taken:
                return each.bound > self.target
        return False

    def _take(
        self,
        each: OpenCase,
        model: PathModel | LayerModel,
        value: Callable[[Any], int],
        overfull: tuple[Any, ...],
        excluded: list[Any],
    ) -> tuple[tuple[Any, ...], bool]:
        """Price a solution and keep it if better; also tell whether it takes as long as modelled.

        Solutions that do not fit go to `overfull`, plans with a longer replay to `excluded`.
        """
        solution, choices = model.solution(value)
        price = exact_price(self.instance, each.case, solution)
        if any(price.overfull):
            return (*overfull, *(one for one, over in zip(choices, price.overfull, strict=True) if over)), False
        seconds = with_replay(self.instance, solution, price.batch_time)
        if seconds < self.best:
            self.known = solution, seconds
        if seconds > price.batch_time:
            self._paths.exclude(each.case, model, value, choices, excluded)
        return overfull, seconds == price.batch_time

    def _improve(self, each: OpenCase) -> None:
        """Search all cuts near the best plan while that finds better plans."""
        reach, limits = REACH, self._boundaries.limits(self._costs.of(each.case), each.case, self.target)
        while limits is not None and reach and not self.spent and self.known is not None:
            before, known = self.best, self.known[0]
            if len(known.stages) != each.case.stages or known.replicas != each.case.replicas:
                return
            cuts = self._listing.cuts(self._costs.of(each.case), each.case, limits, (known, reach))
            self.effort.spent.append(IMPROVING)
            if cuts is not None:
                self._walk(each, ListedStages.of(self.instance, each.case, cuts))
            if self.best >= before * (1 - PROOF):
                reach -= 1

    def _walk(self, each: OpenCase, stages: ListedStages) -> None:
        """Try some good plans between listed cuts."""
        for plan in stages.plans(self.target, ()):
            price = exact_price(self.instance, each.case, plan)
            if price.batch_time < self.best and not any(price.overfull):
                seconds = with_replay(self.instance, plan, price.batch_time)
                self.known = (plan, seconds) if seconds < self.best else self.known

    def _settled_by_model(self, each: OpenCase, effort: float) -> bool:
        """Try to settle a case by a model of all layers, for any number of cuts."""
        overfull: tuple[Any, ...] = ()
        while not self.spent:
            model = self._whole_model(each, overfull)
            if model is None:
                self._raise(each, self.target)
                return True
            solver, status = self.effort.ask(model.model, effort)
            if status == "INFEASIBLE":
                self._raise(each, self.target)
                return True
            if model.limit is not None:
                each.bound = max(each.bound, min(model.limit[0].seconds(solver.best_objective_bound), self.target))
            if status not in ("OPTIMAL", "FEASIBLE"):
                return each.bound > self.target
            before = self.best
            overfull, taken = self._take(each, model, solver.value, overfull, each.excluded)
            if taken and self.best == before:
                return each.bound > self.target
        return False

    def _whole_model(self, each: OpenCase, overfull: Sequence[Any]) -> LayerModel | None:
        """Model of all plans of a case below the best; None: there are none."""
        limits: Limits | None = None
        if self.best < inf and any(each.case.least_weights):
            limits = self._boundaries.limits(self._costs.of(each.case), each.case, self.target)
            if limits is None:
                return None
        model = self._layers.model(each, self.target, overfull, self._limit, ordered=True)
        if limits is not None:
            for boundary in range(1, each.case.stages):
                row, crossing = model.behind[boundary], model.crossing[boundary - 1]
                restrict(model.model, self._costs.of(each.case), limits, each.case, boundary, row, crossing)
        self._begin_at_best(model)
        return model

    def _begin_at_best(self, model: LayerModel) -> None:
        """Hint at the best known plan, if it has as many stages."""
        if self.known is None or len(self.known[0].stages) != len(model.behind) - 1:
            return
        behind: set[int] = set()
        for stage, row in zip(self.known[0].stages[:0:-1], model.behind[-2:0:-1], strict=True):
            behind.update(stage.layers)
            for layer, literal in enumerate(row):
                model.model.add_hint(cast("IntVar", literal), layer in behind)

    def _limit(self, case: Case, terms: int, target: float | None = None) -> Limit | None:
        """Scale of a case and its integer limit on the step time; None: any plan is better."""
        if self.best == inf:
            return None
        terms += has_ports(self.instance, case)
        scaled = scale(case.weights, case.stages, self.best, terms, apart=case.apart)
        return scaled, scaled.limit(self.target if target is None else target)

    def _raise(self, each: OpenCase, bound: float) -> None:
        """Record that no plan of the case takes `bound` or less."""
        each.bound = max(each.bound, nextafter(bound, inf))
        if each.bound > self.target:
            self._count("CP-SAT")

    def _count(self, reason: str) -> None:
        self._settled_by[reason] = self._settled_by.get(reason, 0) + 1

    def _report(self, waiting: Sequence[OpenCase]) -> None:
        if self.progress is not None:
            bound = min([self.target, *(each.bound for each in waiting)])
            explored = 1 - len(waiting) / max(self._cases, 1)
            best = None if self.known is None else self.known[1]
            self.progress(SearchProgress(best, max(bound, 0.0), explored, time.monotonic() - self._started))

    def _answer(self, waiting: Sequence[OpenCase], known_bound: float) -> Result:
        statistics = {
            "candidates": len(self.instance.candidates),
            "combinations": self._cases,
            "questions": len(self.effort.spent),
            "settled_by": dict(sorted(self._settled_by.items())),
        }
        bound = max(min([self.target, *(each.bound for each in waiting)]), min(known_bound, self.target), 0.0)
        proved, complete_to = not waiting, self.instance.complete_to
        if self.known is None:
            return Result("infeasible" if proved and complete_to > 0 else "feasible", statistics=statistics)
        solution, seconds = self.known
        if seconds > complete_to:  # A plan of a candidate that is missing may be faster.
            proved, bound = False, min(bound, complete_to)
        return Result("optimal" if proved else "feasible", solution, seconds, bound, statistics=statistics)
