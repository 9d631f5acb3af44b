"""The first plan: the simplest of those that are hardly slower than the fastest (docs/explanation/first-plan.md).

Plans are compared by the entries of `ORDER`, one after the other. Each is a search of its own: is there a plan within
the limit that has less of it? Where there is none, that is proved, and the next entry decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil
from typing import Any, NamedTuple

from attrs import evolve

from nest.formulate.risk import at_most
from nest.formulate.target import WITHIN
from nest.instance import Instance, Result, Solution, chunks_of
from nest.plan.evaluate import PricedPlan, evaluate
from nest.plan.legality import evenly_split
from nest.report.decisions import FOLLOWS
from nest.solve import dp
from nest.solve.dp import SearchCache, TooManyCuts
from nest.solve.effort import Deadline
from nest.spec.constraints import parse
from nest.tolerances import AGREEMENT

LIKELY, STEP = 0.95, 0.05
"""Probability to fit from which on a plan is as safe as one with more of it, and the steps that count below: the spread
of the estimate, which a few hundred runs tell, says nothing of smaller ones."""


class Plan(NamedTuple):
    """A plan of an instance with its price.

    Attributes:
        instance: the problem.
        solution: its decisions.
        priced: its numbers.
    """

    instance: Instance
    solution: Solution
    priced: PricedPlan


class Entry(NamedTuple):
    """What plans are compared by.

    Attributes:
        name: of the entry.
        reason: why less of it is simpler: a clause that reads on after "because".
        amount: how much a plan has of it.
        at_most: the instance with the plans alone that have at most so much of it.
        less: the amounts below one that plans may have, ascending.
        next: which of them is asked for first: 0, the least, where searches for less are far quicker, or -1, the most.
    """

    name: str
    reason: str
    amount: Callable[[Plan], int]
    at_most: Callable[[Instance, int], Instance]
    less: Callable[[Instance, int], Iterable[int]] = lambda _, amount: range(amount)
    next: int = -1

    @classmethod
    def either(
        cls, name: str, reason: str, has: Callable[[Plan], bool], without: Callable[[Instance], Instance]
    ) -> Entry:
        """An entry that a plan has or has not, with the instance without such plans."""
        return cls(
            name, reason, lambda plan: int(has(plan)), lambda instance, most: instance if most else without(instance)
        )


def _constrained(instance: Instance, *texts: str) -> Instance:
    constraints = (*instance.space.constraints, *map(parse, texts))
    return evolve(instance, space=evolve(instance.space, constraints=constraints))


def _mixed(plan: Plan) -> bool:
    return len({stage.candidate for stage in plan.solution.stages}) > 1


def _unmixed(instance: Instance) -> Instance:
    return evolve(instance, space=evolve(instance.space, mixed=False, most_pools=1))


def _further_pools(plan: Plan) -> int:
    if plan.instance.pools is None:
        return 0
    return len({plan.instance.pool_of(stage.candidate) for stage in plan.solution.stages}) - 1


def _fewer_pools(instance: Instance, most: int) -> Instance:
    return evolve(instance, space=evolve(instance.space, most_pools=most + 1))


def _fewer_chunks(instance: Instance, further: int) -> list[int]:
    return sorted({chunks_of(schedule) - 1 for schedule in instance.space.schedules}.intersection(range(further)))


def _uneven(plan: Plan) -> bool:
    return not _mixed(plan) and bool(plan.instance.space.blocks) and not evenly_split(plan.instance, plan.solution)


def _even(instance: Instance) -> Instance:
    # Where plans may still be mixed, all of them are.
    several = instance.pools is not None and instance.space.most_pools != 1
    if not instance.space.blocks or instance.space.mixed or several:
        return instance
    return evolve(instance, space=evolve(instance.space, even=True))


def _unlike(plan: Plan) -> bool:
    return len({(stage.recompute, stage.zero) for stage in plan.solution.stages}) > 1


RECOMPUTED = {"none": 0, "full": 3}
"""How much recompute modes run again; any other mode runs parts of a block again."""

SELECTIVE = 1
"""How much such a mode does."""


def _recomputed(plan: Plan) -> int:
    return max(RECOMPUTED.get(stage.recompute, SELECTIVE) for stage in plan.solution.stages)


def _recomputing(instance: Instance, most: int) -> Instance:
    modes = dict.fromkeys(mode.name for candidate in instance.candidates for mode in candidate.recompute)
    fewer = [name for name in modes if RECOMPUTED.get(name, SELECTIVE) <= most]
    return _constrained(instance, f"recompute in {fewer or ['none']}")


def _strategies(instance: Instance) -> list[str]:
    """Names of strategies that may have a degree of their own."""
    names = {name for candidate in instance.candidates for name in candidate.degrees}
    return sorted(names.difference(FOLLOWS))


def _degrees(plan: Plan) -> int:
    used = [plan.instance.candidates[stage.candidate].degrees for stage in plan.solution.stages]
    return sum(any(degrees.get(name, 1) > 1 for degrees in used) for name in _strategies(plan.instance))


def _fewer_degrees(instance: Instance, most: int) -> Instance:
    names = _strategies(instance)
    return _constrained(instance, f"{' + '.join(f'({name} > 1)' for name in names)} <= {most}") if names else instance


def _unusual_zero(plan: Plan) -> bool:
    usual = plan.instance.space.usual.zero
    others = any(stage.zero != usual for stage in plan.solution.stages)
    return others or plan.solution.zero_degree is not None


def _usual_zero(instance: Instance) -> Instance:
    zero = _constrained(instance, f"zero == {instance.space.usual.zero}")
    every = tuple(each for each in zero.space.zero_degrees if each is None)
    return evolve(zero, space=evolve(zero.space, zero_degrees=every)) if every != zero.space.zero_degrees else zero


def _unusual_order(plan: Plan) -> bool:
    one = len(plan.solution.stages) == 1 or plan.solution.replicas == 1
    return not one and plan.solution.rank_order != plan.instance.space.usual.rank_order


def _usual_order(instance: Instance) -> Instance:
    return _constrained(instance, f"rank_order == '{instance.space.usual.rank_order}' or pp == 1 or replicas == 1")


def _idle(plan: Plan) -> bool:
    widths = (plan.instance.candidates[stage.candidate].width for stage in plan.solution.stages)
    return plan.solution.replicas * sum(widths) < plan.instance.size


def _unlikely(plan: Plan) -> int:
    """Steps by which a plan is less likely to fit than `LIKELY`."""
    if plan.instance.cluster.error is None:
        return 0
    return max(0, ceil((LIKELY - plan.priced.fit_probability) / STEP - AGREEMENT))


SHAPE = (
    Entry.either("mixed", "stages that are all alike have one set of launch flags", _mixed, _unmixed),
    Entry("pools", "every further kind of device is one more to keep healthy", _further_pools, _fewer_pools),
    Entry.either(
        "pipeline",
        "a run without a pipeline has no bubble, no balance of stages and one program on all devices",
        lambda plan: len(plan.solution.stages) > 1,
        lambda instance: _constrained(instance, "pp == 1"),
    ),
    Entry.either(
        "schedule",
        "1F1B is in every framework and the best tested schedule",
        lambda plan: plan.solution.schedule != plan.instance.space.usual.schedule,
        lambda instance: _constrained(instance, f"schedule == '{instance.space.usual.schedule}'"),
    ),
    Entry(
        "chunks",
        "each chunk of a stage adds messages and in-flight activations",
        lambda plan: plan.solution.chunks - 1,
        lambda instance, most: _constrained(instance, f"chunks <= {most + 1}"),
        _fewer_chunks,
        next=0,
    ),
)
"""What makes a plan simpler before its number of stages does."""

STRUCTURE = (
    *SHAPE,
    Entry(
        "stages",
        "fewer stages have fewer messages, a smaller bubble and fewer places to fail",
        lambda plan: len(plan.solution.stages) - 1,
        lambda instance, most: _constrained(instance, f"pp <= {most + 1}"),
    ),
    Entry.either("uneven", "frameworks split layers evenly unless told otherwise", _uneven, _even),
    Entry.either(
        "unlike",
        "most frameworks have one recompute policy and one ZeRO stage for all stages",
        _unlike,
        lambda instance: _constrained(instance, "uniform(recompute)", "uniform(zero)"),
    ),
    Entry("recompute", "recomputation is work that trains nothing", _recomputed, _recomputing),
    Entry("degrees", "each further kind of parallelism is one more that must work", _degrees, _fewer_degrees),
)
"""What makes a plan simpler by itself."""

ORDER = (
    *STRUCTURE,
    Entry.either("zero", "the framework's own recipes use its usual ZeRO stage", _unusual_zero, _usual_zero),
    Entry.either("rank order", "the framework lays out its ranks so by default", _unusual_order, _usual_order),
    Entry.either(
        "idle",
        "devices that do nothing are paid for",
        _idle,
        lambda instance: _constrained(instance, f"devices == {instance.size}"),
    ),
    Entry(
        "fit",
        "a run that is out of memory is lost",
        _unlikely,
        lambda instance, most: at_most(instance, 1 - (LIKELY - STEP * most)),
    ),
)
"""Entries in the order in which they decide; then the step time, the bytes of the fullest stage, and the documented
order of ties."""


def with_first_plan(
    instance: Instance, result: Result, within: float, deadline: Deadline, cache: SearchCache | None = None
) -> Result:
    """The result of a search with the simplest plan that takes at most a share `within` longer than the best.

    Only searches of the dynamic program are followed up: on networks and of tensors that are sent directly the fastest
    plan is the first one, as of graphs with too many cuts.

    Args:
        instance: the problem; no candidate of a plan within the limit is missing.
        result: of its search.
        within: share of the least step time; 0: the fastest plan is the first one.
        deadline: when the simplest plan so far is taken.
        cache: of problems searched before.

    Raises:
        InputError: a constraint cannot be computed.
    """
    best, least, bound = result.solution, result.batch_time, result.lower_bound
    if best is None or least is None or not bound or not within or not follows_up(instance):
        return result
    near = least <= bound * (1 + within)
    if deadline.passed:
        return result
    # Where a proof leaves more open than the share, the share is one of the best plan met.
    plan, seconds = _Search(instance, (bound if near else least) * (1 + within), deadline, cache).simplest(best, least)
    if seconds <= bound * (1 + AGREEMENT):
        return evolve(result, solution=plan, batch_time=seconds)
    faster = (best, least) if seconds > least * (1 + AGREEMENT) else None
    result = evolve(result, solution=plan, batch_time=seconds, fastest=faster, runner_up=None)
    return evolve(result, status="near-optimal", fastest=faster or (plan, seconds)) if near else result


COSTS_LITTLE = 0.05
"""Share of the step time that a safer plan, or a simpler one than the first, may take longer to be told of."""


def with_alternatives(
    instance: Instance, result: Result, deadline: Deadline, cache: SearchCache | None = None
) -> Result:
    """The result with a safer plan and a simpler one than the first, where they cost little.

    Args:
        instance: the problem; no candidate of a plan that costs little more is missing.
        result: of its search, with its first plan.
        deadline: when searches end.
        cache: of problems searched before.

    Raises:
        InputError: a constraint cannot be computed.
    """
    plan, seconds = result.solution, result.batch_time
    if plan is None or not seconds or not follows_up(instance):
        return result
    search = _Search(instance, seconds * (1 + COSTS_LITTLE), deadline, cache)
    simpler = search.simplest(plan, seconds, STRUCTURE)
    return evolve(
        result,
        safer=search.safer(plan),
        simpler=None if simpler[0] == plan or search.is_like(simpler[0], plan) else simpler,
    )


def follows_up(instance: Instance) -> bool:
    """Whether simpler plans of an instance are searched."""
    return instance.network is None and not instance.space.direct


class _Search:
    """Searches of what is left of an instance, up to a step time."""

    def __init__(self, instance: Instance, limit: float, deadline: Deadline, cache: SearchCache | None) -> None:
        self.instance, self.limit, self.deadline = instance, limit * (1 + AGREEMENT), deadline
        self.cache = cache or SearchCache()

    def simplest(self, best: Solution, seconds: float, order: Sequence[Entry] = ORDER) -> tuple[Solution, float]:
        """The simplest plan, `best` being the fastest of those left, and its step time.

        Throughout, the best plan so far is the fastest of those left.
        """
        left, given = self.instance, best
        for entry in order:
            amount = entry.amount(self._priced(best))
            untried = list(entry.less(left, amount))
            while untried and not self.deadline.passed:
                less = untried.pop(entry.next)
                found = self._fastest(entry.at_most(left, less), best, self.limit)
                if found is not None:
                    best, seconds = found
                    amount = entry.amount(self._priced(best))
                # Where there is none of so much, there is none of less.
                untried = [each for each in untried if (each > less if found is None else each < amount)]
            left = entry.at_most(left, amount)
        if best == given and order is not ORDER:
            return best, seconds
        return self._emptiest(left, *(self._fastest(left, best, seconds, ties=True) or (best, seconds)))

    def _emptiest(self, left: Instance, best: Solution, seconds: float) -> tuple[Solution, float]:
        """The plan with the fewest bytes on its fullest stage of those as fast; without chunks, a search gives it."""
        while best.chunks > 1 and left.pools is None and not self.deadline.passed:
            less = (1 - AGREEMENT) * max(stage.memory for stage in self._priced(best).priced.stages)
            found = self._fastest(evolve(left, cluster=evolve(left.cluster, memory=less)), best, seconds)
            if found is None:
                break
            best, seconds = found
        return best, seconds

    def safer(self, plan: Solution) -> tuple[Solution, float] | None:
        """The simplest plan that is hardly slower than the fastest of those `LIKELY` to fit; None: there is none.

        Plans with more chunks, or a pipeline where the first plan has none, are no plans that somebody changes to.
        """
        fit, priced = ORDER[-1], self._priced(plan)
        if fit.amount(priced) == 0:
            return None
        likely = fit.at_most(self.instance, 0)
        for entry in SHAPE:
            likely = entry.at_most(likely, entry.amount(priced))
        found = self._fastest(likely, plan, self.limit)
        if found is None:
            return None
        hardly = _Search(likely, min(self.limit, found[1] * (1 + WITHIN)), self.deadline, self.cache)
        return hardly.simplest(*found)

    def is_like(self, one: Solution, other: Solution) -> bool:
        """Whether neither of two plans is the simpler one."""
        plans = [self._priced(each) for each in (one, other)]
        return len({tuple(entry.amount(plan) for entry in STRUCTURE) for plan in plans}) == 1

    def _priced(self, solution: Solution) -> Plan:
        return Plan(self.instance, solution, evaluate(self.instance, solution))

    def _fastest(
        self, instance: Instance, known: Solution, limit: float, *, ties: bool = False
    ) -> tuple[Solution, float] | None:
        """The fastest plan of an instance within the limit; None: there is none but what is known."""
        asked: dict[str, Any] = {"known": (known, limit), "runner_up": False, "diagnosed": False}
        try:
            if instance.pools is not None:
                from nest.solve.dp.pool_solver import solve as solve_on_pools

                result = solve_on_pools(instance, self.deadline, **asked)
            else:
                result = dp.solve(instance, self.deadline, preferred=False, cache=self.cache, ties=ties, **asked)
        except TooManyCuts:
            return None
        if result.solution is None or result.batch_time is None or result.solution == known:
            return None
        return result.solution, result.batch_time
