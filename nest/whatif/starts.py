"""Starting plans for searches of neighbouring problems, which prune slower ones at once."""

from collections.abc import Callable, Hashable
from math import inf
from operator import itemgetter

from attrs import define, evolve, field

from nest.errors import InputError
from nest.instance import Instance, Solution
from nest.plan.document import solution_of
from nest.plan.evaluate import PricedPlan
from nest.plan.evaluate import evaluate as price
from nest.plan.legality import permission_violations, structure_violations
from nest.spec import PlanDocument
from nest.tolerances import MEMORY_SLACK, TIE

MOST_STARTS = 16
"""Most plans kept to start searches from."""

MOST_PRICED = 2  # Plans priced to start a search: each takes a tenth of a search, and mostly the first is the best.


Known = tuple[Solution, float]  # A plan that fits, with its step time in seconds.


@define(eq=False)
class StepTimes:
    """Step times (s) of plans on the problems of a question, each priced once."""

    _known: dict[tuple[str, Hashable], float | None] = field(factory=dict)

    def know(self, problem: str, plan: PlanDocument) -> None:
        """Record the step time of a plan's document."""
        self._known[problem, decisions_of(plan)] = plan.batch_time

    def of(self, problem: str, plan: PlanDocument, instance: Callable[[], Instance]) -> float | None:
        """Step time of a plan's decisions on a problem; None: they do not fit, or are none of its plans."""
        key = problem, decisions_of(plan)
        if key not in self._known:
            decided = decided_on(instance(), plan)
            self._known[key] = None if decided is None else decided[1].batch_time
        return self._known[key]

    def on(self, problem: str, instance: Instance, plan: PlanDocument) -> Known | None:
        """Same with the decisions."""
        seconds = self.of(problem, plan, lambda: instance)
        return None if seconds is None else (solution_of(instance, plan), seconds)


def known_on(instance: Instance, plan: PlanDocument) -> Known | None:
    """A plan's decisions on an instance, with its step time; None: they do not fit, or are none of its plans."""
    return _known(decided_on(instance, plan))


def _known(decided: tuple[Solution, PricedPlan] | None) -> Known | None:
    return None if decided is None else (decided[0], decided[1].batch_time)


@define(eq=False)
class WarmStarts:
    """The latest distinct plans."""

    _plans: dict[Hashable, PlanDocument] = field(factory=dict)
    _longer: dict[Hashable, float] = field(factory=dict)

    @property
    def candidates(self) -> set[str]:
        """Names of the candidates of their stages."""
        return {stage.candidate for plan in self._plans.values() for stage in plan.stages}

    @property
    def latest(self) -> PlanDocument | None:
        """The latest; None: there is none."""
        return next(reversed(self._plans.values()), None)

    def best(self, instance: Instance) -> Known | None:
        """Fastest of them on an instance, with its step time in seconds; None: none is one of its plans."""
        return self.better(instance, None, known_on)

    def better(
        self, instance: Instance, known: Known | None, price: Callable[[Instance, PlanDocument], Known | None]
    ) -> Known | None:
        """Fastest of them on an instance if faster than the known plan; else that plan. `price` is like `known_on`."""
        every = [
            (_least_seconds(instance, solution), key, solution)
            for key, plan in reversed(self._plans.items())
            if _had_room(instance, plan) and (solution := _on_all_devices(instance, plan)) is not None
        ]
        # Of what they compute plans mostly take as much longer as they took where they were priced last.
        guessed = sorted(((each[0] * self._longer.get(each[1], 1.0), *each) for each in every), key=itemgetter(0))
        priced = 0
        for _, least, key, solution in guessed:
            if least >= (inf if known is None else known[1]):
                continue
            plan = self._plans[key]
            as_found = solution.replicas == plan.data_parallel
            its = price(instance, plan) if as_found else _known(_priced_on(instance, solution))
            if its is not None:
                priced += 1
                self._longer[key] = its[1] / least if least > 0 else 1.0
                if known is None or its[1] < known[1] * (1 - TIE):
                    known = its
            if known is not None and priced >= MOST_PRICED:
                break
        return known

    def keep(self, plan: PlanDocument) -> None:
        """Keep a plan with decisions; the oldest is dropped."""
        key = decisions_of(plan)
        self._plans.pop(key, None)
        self._plans[key] = plan
        if len(self._plans) > MOST_STARTS:
            oldest = next(iter(self._plans))
            del self._plans[oldest]
            self._longer.pop(oldest, None)


def _had_room(instance: Instance, plan: PlanDocument) -> bool:
    """True if a plan fits when it needs as much memory as where it was found, which few questions change."""
    room = instance.cluster.memory * (1 + MEMORY_SLACK)
    return instance.pools is not None or all(stage.memory <= room for stage in plan.stages)


def _on_all_devices(instance: Instance, plan: PlanDocument) -> Solution | None:
    """A plan's decisions with replicas doubled or halved to use all allowed devices; None: impossible.

    The places of its stages in a replica do not depend on their number.
    """
    try:
        solution = solution_of(instance, plan)
        if instance.pools is not None or solution.placement is not None:
            return solution
        first, replicas = instance.candidates[solution.stages[0].candidate], solution.replicas
        devices = sum(instance.candidates[stage.candidate].width for stage in solution.stages)
        limits = [each for each in instance.space.constraints if each.names() == {"devices"}]
        while 2 * replicas * devices <= instance.cluster.size and instance.micro_batches(first, 2 * replicas):
            replicas *= 2
        while not all(each.holds({"devices": replicas * devices}) for each in limits):
            if replicas % 2:
                return None
            replicas //= 2
    except InputError:  # A candidate is gone.
        return None
    return solution if replicas == solution.replicas else evolve(solution, replicas=replicas)


def _least_seconds(instance: Instance, solution: Solution) -> float:
    """Compute time (s) of all micro-batches on the slowest stage, which few schedules beat.

    Infinite if its replicas cannot share the batch.
    """
    candidates = instance.candidates
    batches = instance.micro_batches(candidates[solution.stages[0].candidate], solution.replicas)
    times = (
        (candidates[stage.candidate].forward + candidates[stage.candidate].backward)[list(stage.layers)].sum()
        for stage in solution.stages
    )
    return inf if batches is None else batches * float(max(times))


def decided_on(instance: Instance, plan: PlanDocument, *, permitted: bool = True) -> tuple[Solution, PricedPlan] | None:
    """Priced decisions of a plan on an instance; None: they do not fit or are none of its plans.

    Args:
        instance: of the other problem.
        plan: any plan with decisions.
        permitted: apply constraints and lists of choices, which do not bind plans that no search found.
    """
    try:
        solution = solution_of(instance, plan)
    except InputError:  # A candidate is gone.
        return None
    return _priced_on(instance, solution, permitted=permitted)


def _priced_on(instance: Instance, solution: Solution, *, permitted: bool = True) -> tuple[Solution, PricedPlan] | None:
    try:
        if structure_violations(instance, solution) or (permitted and permission_violations(instance, solution)):
            return None
        priced = price(instance, solution)
    except (InputError, ValueError):  # Blocks lie outside the cluster.
        return None
    return (solution, priced) if priced.admitted else None


def decisions_of(plan: PlanDocument) -> Hashable:
    """Key of a plan's decisions; equal for the same plan of different problems."""
    stages = tuple(
        (each.layers, each.chunks, each.candidate, each.recompute_name, each.zero, each.devices) for each in plan.stages
    )
    return plan.data_parallel, plan.rank_order, plan.schedule, plan.chunks, plan.zero_degree, plan.placement, stages
