"""Best plans of related problems, each solved once."""

from collections.abc import Callable, Collection, Hashable, Sequence
from copy import copy
from functools import partial
from math import inf
from typing import TypeVar

from attrs import evolve, frozen

from nest.documents.document import checked_document, solved_document
from nest.errors import InputError
from nest.formulate.cluster import build_cluster
from nest.formulate.fixed_plan import decided_instance
from nest.formulate.formulation import Formulation
from nest.formulate.instance import Wanted, build_instance
from nest.formulate.priced_models import PricedModels
from nest.formulate.problem import Source, carried_problem, naming
from nest.hooks.registry import Registry, registry
from nest.instance import Instance, Result
from nest.plan.document import infeasible
from nest.report.plan_summary import needed_memory
from nest.solve.effort import Deadline
from nest.spec import PlanDocument, Problem
from nest.tolerances import LIMIT_SLACK
from nest.whatif.floors import FURTHER, CandidateBounds, Floors
from nest.whatif.parameters import Parameter, with_memory
from nest.whatif.starts import Known, StepTimes, WarmStarts, decided_on, decisions_of

WIDER, FURTHEST = 1.5, 8.0
"""Factors over `FURTHER` up to which candidates are priced next if there is no plan yet, before all are."""

MOST_INSTANCES = 4  # Instances kept, of all candidates and of few each: both ends of a range, and the middle.

Key = TypeVar("Key", bound=Hashable)

Progress = Callable[[str, int], None]  # Called with the current question and the number of solves done.


@frozen
class _Limits:
    """Limits within which a known plan is the best: most devices, and bytes each."""

    devices: int
    memory: float
    plan: PlanDocument | None


class Solver:
    """Solves problems, and remembers plans and counts.

    Plans have no runner-up, and on non-hierarchical networks no placement; otherwise like `nest.solve`.

    Attributes:
        solves: problems solved so far.
        time_limit: seconds for each solve, after which its best plan so far counts; None: no limit.
        progress: called before each solve with its purpose and the number done.
    """

    def __init__(
        self, plugins: Registry | None = None, *, time_limit: float | None = None, progress: Progress | None = None
    ) -> None:
        self.solves = 0
        self.plugins = plugins or registry()
        self.time_limit = time_limit
        self.progress = progress
        self._known: dict[str, PlanDocument | None] = {}
        self._answers: dict[Hashable, PlanDocument | None] = {}
        self._within: dict[str, list[_Limits]] = {}
        self._starts, self._times = WarmStarts(), StepTimes()
        self._priced = PricedModels()
        self._instances: dict[str, Instance] = {}
        self._floors = CandidateBounds(self.plugins, self._priced)
        self._of_few: dict[tuple[str, frozenset[str]], Instance] = {}

    def with_new_counters(self) -> "Solver":
        """Solver with a count of 0 that shares what makes searches fast: starting plans, and prices.

        Repeated questions are not searched again, but count: the number of searches of an answer does not depend on
        earlier questions.
        """
        other = copy(self)
        other.solves, other._known, other._within, other._times = 0, dict(self._known), {}, StepTimes()
        return other

    def plan(
        self,
        problem: Problem,
        asking: str = "",
        start: PlanDocument | None = None,
        floors: Floors | None = None,
        *,
        diagnosed: bool = True,
    ) -> PlanDocument | None:
        """Best plan of a problem, or the document with the reason for none; None: the problem allows no plan at all.

        Args:
            problem: self-contained.
            asking: the question, for progress.
            start: a plan to start from, if it is one of the problem's; it wins ties.
            floors: candidates that may win: those slower than a known plan need no price. None: unknown.
            diagnosed: explain infeasibility in the document.
        """
        key = problem.text
        known = self._known.get(key)
        if key not in self._known or (diagnosed and known is not None and known.diagnosis == ""):
            if self.progress is not None:
                self.progress(asking, self.solves)
            begun = self._key(problem), None if start is None else decisions_of(start), diagnosed
            if begun not in self._answers:
                self._answers[begun] = self.plugins.run(lambda: self._solved(problem, start, floors, diagnosed))
            self._known[key] = self._answers[begun]
            self.solves += 1
        return self._known[key]

    def know(self, problem: Problem, plan: PlanDocument) -> None:
        """Record the best plan of `problem`, which is then not solved."""
        self._known.setdefault(problem.text, plan)
        if plan.batch_time is not None:
            self._starts.keep(plan)

    def time_on(self, problem: Problem, plan: PlanDocument) -> float | None:
        """Step time (s) of a plan's decisions on another problem; None: they do not fit, or are none of its.

        Args:
            problem: self-contained: the plan's own, changed.
            plan: any plan with decisions.
        """
        return self.times_on(problem, (plan,))[0]

    def times_on(self, problem: Problem, plans: Sequence[PlanDocument]) -> tuple[float | None, ...]:
        """Same as `time_on` for several plans: only their candidates are priced."""
        used = frozenset(stage.candidate for plan in plans for stage in plan.stages)
        return tuple(self._time_on(problem, plan, used) for plan in plans)

    def _time_on(self, problem: Problem, plan: PlanDocument, among: frozenset[str]) -> float | None:
        try:
            if plan.lower_bound is None:  # What nobody searched need not be among what is searched.
                decided = decided_on(decided_instance(problem, plan, self.plugins), plan, permitted=False)
                return None if decided is None else decided[1].batch_time
            return self._times.of(self._key(problem), plan, partial(self._instance, problem, among))
        except InputError:
            return None

    def within(
        self,
        problem: Problem,
        devices: int,
        memory: float,
        size: int,
        asking: str = "",
        start: PlanDocument | None = None,
        *,
        diagnosed: bool = True,
    ) -> PlanDocument | None:
        """Best plan of a problem with at most so many devices, of so much memory.

        Solved unless implied: the best plan within wider limits that is within these is the best here, too; and without
        a plan within wider limits there is none. The plan's problem may have wider limits.

        Args:
            problem: self-contained.
            devices: most devices.
            memory: bytes each, with the reserve.
            size: devices of the cluster.
            asking: the question, for progress.
            start: see `plan`.
            diagnosed: see `plan`.
        """
        answers = self._within.setdefault(with_memory(problem, 1.0).text, [])
        wider = (each for each in answers if each.devices >= devices and each.memory >= memory)
        for each in wider:
            if _settles(each.plan, devices, memory):
                return each.plan
        limited = problem if devices >= size else at_most(problem, devices)
        plan = self.plan(with_memory(limited, memory), asking, start, diagnosed=diagnosed)
        answers.append(_Limits(devices, memory, plan))
        return plan

    def floors(self, problem: Problem, parameter: Parameter, factor: float) -> Floors | None:
        """Candidates that may have plans of so many seconds with a parameter multiplied by a factor, for `plan`.

        None: unknown. Cost models of plug-ins may be faster on slower links, and other parameters change more than
        times.

        Args:
            problem: self-contained, with the current value of the parameter.
            factor: above 0. A device or level that much faster speeds up no plan by more, as step times are sums and
                maxima of times; no faster link beats free communication.

        Raises:
            InputError: the problem cannot be used.
        """
        best = self._known.get(problem.text)
        return self._floors.of(problem, parameter, factor, None if best is None else best.batch_time, self._instance)

    def _solved(
        self, problem: Problem, start: PlanDocument | None, floors: Floors | None, diagnosed: bool
    ) -> PlanDocument | None:
        try:
            instance, result = self._searched_for(problem, start, floors, diagnosed)
        except InputError:  # No list of choices allows it, or the cluster cannot be: an answer, too.
            return None
        if result.solution is None:
            return infeasible(problem.to_dict(), result.diagnosis or "", statistics=result.statistics)
        plan = solved_document(instance, None, result, problem, self.plugins)
        self._starts.keep(plan)
        self._times.know(self._key(problem), plan)
        return plan

    def _searched_for(
        self, problem: Problem, start: PlanDocument | None, floors: Floors | None, diagnosed: bool
    ) -> tuple[Instance, Result]:
        """Result, and an instance with all candidates it may depend on."""
        from nest.solve.solver import solve

        search = partial(solve, time_limit=self.time_limit, runner_up=False, diagnosed=diagnosed)
        if floors is not None:
            instance, known, preferred = self._narrowed(problem, start, floors)
            return instance, search(instance, known=known, preferred=preferred, cache=self._floors.cache)
        guess = up_to = self._guess(problem, start)
        while True:
            instance = self._instance(problem, up_to=up_to)
            known, preferred = self._begun(problem, instance, start)
            if known is None or known[1] <= instance.complete_to:
                result = search(instance, known=known, preferred=preferred, cache=self._floors.cache)
                seconds = result.batch_time
                if instance.complete or (seconds is not None and seconds <= instance.complete_to):
                    return instance, result
            else:
                seconds = known[1]
            # A candidate that is not priced may have a plan as fast.
            up_to = instance.complete_to * WIDER if seconds is None else seconds * FURTHER
            up_to = up_to if up_to < guess * FURTHEST else inf

    def _guess(self, problem: Problem, start: PlanDocument | None = None) -> float:
        """Step time (s) up to which candidates are priced at first: slightly beyond a known plan.

        Infinite without one, or with a time limit.
        """
        plan = self._starts.latest if start is None or start.batch_time is None else start
        if self.time_limit is not None or plan is None or plan.batch_time is None:
            return inf
        samples: int = plan.problem["training"]["global_batch"]
        return FURTHER * plan.batch_time * problem.training.global_batch / samples

    def instance(self, problem: Problem, *, complete: bool = True) -> Instance:
        """Instance of a problem with all its candidates, or with those priced.

        Raises:
            InputError: from `build_instance`.
        """
        return self._instance(problem, up_to=inf if complete else self._guess(problem))

    def _instance(self, problem: Problem, among: frozenset[str] | None = None, up_to: float = inf) -> Instance:
        """Instance of a problem; the latest are kept, as plans are priced on what is searched next.

        Args:
            problem: self-contained.
            among: names of requested candidates; None: all.
            up_to: step time (s) to which it must be complete.

        Raises:
            InputError: from `build_instance`.
        """
        key = self._key(problem)
        known = self._instances.get(key)
        if among is None:
            if known is not None and known.complete_to * (1 + LIMIT_SLACK) < up_to:
                del self._instances[key]
            return _latest(self._instances, key, lambda: self._built(problem, None, up_to))
        if known is not None and (known.complete or {each.name for each in known.candidates} >= among):
            return known
        more = next((names for of, names in reversed(self._of_few) if of == key and names >= among), among)
        return _latest(self._of_few, (key, more), lambda: self._built(problem, among, self._guess(problem)))

    def _key(self, problem: Problem) -> str:
        # What is disabled meanwhile is in no instance made after that.
        return f"{len(self.plugins.warnings)} {problem.text}"

    def _built(self, problem: Problem, among: Collection[str] | None, up_to: float) -> Instance:
        if not self._priced.begun:
            self._priced.begun = True
            if problem.model is not None:
                from nest.formulate.kept_model import KeptModel

                kept = KeptModel.of_problem(problem, self.plugins, Deadline(self.time_limit))
                self._floors.begin(kept.lend(self._priced))
        wanted = Wanted(among=among, step_time_limit=up_to)
        return self.plugins.run(lambda: build_instance(problem, self.plugins, wanted, self._priced))

    def _narrowed(
        self, problem: Problem, start: PlanDocument | None, floors: Floors
    ) -> tuple[Instance, Known | None, bool]:
        """Instance without candidates that are too slow, and the start of its search, as in `_begun`."""
        used = self._starts.candidates | {stage.candidate for stage in (() if start is None else start.stages)}
        first = self._instance(problem, frozenset(used)) if used else None
        known, preferred = (None, False) if first is None else self._begun(problem, first, start)
        worth = floors(inf if known is None else known[1] * (1 + LIMIT_SLACK))
        if first is None or known is None:
            instance = self._instance(problem, frozenset(worth) or None)
            return instance, *self._begun(problem, instance, start)
        names = [first.candidates[stage.candidate].name for stage in known[0].stages]
        instance = self._instance(problem, frozenset({*worth, *names}))
        return instance, (known[0].among(first.candidates, instance.candidates), known[1]), preferred

    def _begun(self, problem: Problem, instance: Instance, start: PlanDocument | None) -> tuple[Known | None, bool]:
        """Fastest known plan of an instance, with its step time, and whether it wins ties.

        That is `start` or one of the latest: a search of a neighbouring problem mostly finds it, or a similar one, and
        slower plans are pruned at once. Only `start` wins ties: the answer must not depend on which plans were found
        before.
        """
        priced = partial(self._times.on, self._key(problem))
        own = None if start is None else priced(instance, start)
        known = self._starts.better(instance, own, priced)
        return known, known is own


def _latest(known: dict[Key, Instance], key: Key, build: Callable[[], Instance]) -> Instance:
    found = known.pop(key, None) or build()
    known[key] = found
    if len(known) > MOST_INSTANCES:
        del known[next(iter(known))]
    return found


def at_most(problem: Problem, devices: int) -> Problem:
    """Problem with plans of at most so many devices."""
    return evolve(problem, constraints=(*problem.constraints, f"devices <= {devices}"))


def devices_used(plan: PlanDocument) -> int:
    """Devices of a plan with decisions."""
    return (plan.data_parallel or 0) * sum(stage.devices[1] for stage in plan.stages)


def _is_within(plan: PlanDocument, devices: int, memory: float) -> bool:
    return plan.batch_time is not None and devices_used(plan) <= devices and needed_memory(plan) <= memory


def _settles(plan: PlanDocument | None, devices: int, memory: float) -> bool:
    """True if the best plan within wider limits determines the best within these."""
    if plan is None or plan.status == "infeasible":
        return True
    return plan.status == "optimal" and _is_within(plan, devices, memory)


def require_held(
    plan: Source | PlanDocument, read: PlanDocument, known: Registry, so: str
) -> tuple[Instance, Formulation]:
    """Instance of a plan, and what it was made of; refuses a plan whose numbers do not hold.

    Args:
        plan: its source, for errors; not read again, as it may be a pipe.
        read: the plan.
        so: consequence, for the message.

    Raises:
        InputError: they do not hold, or the plan's problem cannot be used.
    """
    with naming(plan, "problem"):
        report, instance, formulation = checked_document(read, known)
    if not report.ok:
        raise InputError(f"the plan fails its check, {so}: {report.disagreements[0]}")
    return instance, formulation


def problem_of(plan: PlanDocument, solver: Solver) -> Problem:
    """Self-contained problem of a plan whose numbers hold; records a proved plan as its best.

    Raises:
        InputError: the problem cannot be used.
    """
    problem = carried_problem(plan, solver.plugins)
    if plan.status == "optimal":
        solver.know(problem, plan)
        if problem.cluster.pools is None:
            cluster, _ = build_cluster(problem.cluster, solver.plugins)
            solver.know(with_memory(problem, cluster.device_memory), plan)  # The same, written out.
    return problem
