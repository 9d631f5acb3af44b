"""Plans that searches of neighbouring problems begin with, so that what is slower than them is cut at once."""

from collections.abc import Hashable
from math import inf
from operator import itemgetter

from attrs import define, evolve, field

from nest.errors import InputError
from nest.instance import Instance, Solution
from nest.plan.document import solution_of
from nest.plan.evaluate import PricedPlan
from nest.plan.evaluate import evaluate as price
from nest.plan.legality import permission_violations, structure_violations
from nest.report.plan_summary import needed_memory
from nest.spec import PlanDocument
from nest.tolerances import MEMORY_SLACK, TIE

MOST_STARTS = 16
"""Plans kept to begin searches with."""

MOST_PRICED = 2
"""Plans that are priced to begin a search with: to price one takes a tenth of a search, and mostly the first is the
best."""


@define(eq=False)
class Starts:
    """The latest plans, each once."""

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

    def best(self, instance: Instance) -> tuple[Solution, float] | None:
        """The fastest of them on an instance, with its step time, seconds; None: none is one of its plans."""
        return self.better(instance, None)

    def better(self, instance: Instance, known: tuple[Solution, float] | None) -> tuple[Solution, float] | None:
        """The fastest of them on an instance that is faster than a plan known of it; else that plan."""
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
            decided = _priced_on(instance, solution)
            if decided is not None:
                priced += 1
                self._longer[key] = decided[1].batch_time / least if least > 0 else 1.0
                if known is None or decided[1].batch_time < known[1] * (1 - TIE):
                    known = (decided[0], decided[1].batch_time)
            if known is not None and priced >= MOST_PRICED:
                break
        return known

    def keep(self, plan: PlanDocument) -> None:
        """Keep a plan with decisions; those met longest ago make room."""
        key = _decisions(plan)
        self._plans.pop(key, None)
        self._plans[key] = plan
        if len(self._plans) > MOST_STARTS:
            oldest = next(iter(self._plans))
            del self._plans[oldest]
            self._longer.pop(oldest, None)


def _had_room(instance: Instance, plan: PlanDocument) -> bool:
    """Whether a plan would have room if it needed as much memory as where it was found, which few questions change."""
    return instance.pools is not None or needed_memory(plan) <= instance.cluster.device_memory * (1 + MEMORY_SLACK)


def _on_all_devices(instance: Instance, plan: PlanDocument) -> Solution | None:
    """A plan's decisions, its replicas doubled or halved so that it uses as many devices as it may; None: it cannot.

    Its stages lie in a replica alike however many there are.
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
    """Seconds in which the slowest stage of a plan computes all micro-batches, which few schedules beat.

    Infinite where its replicas cannot share the batch.
    """
    candidates = instance.candidates
    batches = instance.micro_batches(candidates[solution.stages[0].candidate], solution.replicas)
    times = (
        (candidates[stage.candidate].forward + candidates[stage.candidate].backward)[list(stage.layers)].sum()
        for stage in solution.stages
    )
    return inf if batches is None else batches * float(max(times))


def decided_on(instance: Instance, plan: PlanDocument, *, permitted: bool = True) -> tuple[Solution, PricedPlan] | None:
    """A plan's decisions on an instance, priced; None where they do not fit or are none of its plans.

    Args:
        instance: of the other problem.
        plan: any plan with decisions.
        permitted: whether constraints and lists of choices, which do not bind plans nobody searched, count.
    """
    try:
        solution = solution_of(instance, plan)
    except InputError:  # A candidate is gone.
        return None
    return _priced_on(instance, solution, permitted=permitted)


def _priced_on(instance: Instance, solution: Solution, *, permitted: bool = True) -> tuple[Solution, PricedPlan] | None:
    """The same of decisions."""
    try:
        if structure_violations(instance, solution) or (permitted and permission_violations(instance, solution)):
            return None
        priced = price(instance, solution)
    except (InputError, ValueError):  # Blocks lie outside the cluster.
        return None
    return (solution, priced) if priced.fits else None


def _decisions(plan: PlanDocument) -> Hashable:
    """What a plan decides; alike for the same plan of problems that differ."""
    stages = tuple((each.layers, each.candidate, each.recompute, each.zero, each.devices) for each in plan.stages)
    return plan.data_parallel, plan.rank_order, plan.schedule, plan.zero_degree, stages
