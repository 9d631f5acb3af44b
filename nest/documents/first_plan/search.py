"""Searches for the first plan and those beside it, one for each criterion of `ORDER`.

Is there a plan within the limit that has less of it? If not, that is proved, and the next criterion decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve

from nest.documents.first_plan.order import ORDER, SHAPE, STRUCTURE, Entry, Plan
from nest.formulate.risk import WITHIN
from nest.instance import Instance, Result, Solution
from nest.plan.evaluate import evaluate
from nest.plan.layout import chunk_layers
from nest.solve import dp
from nest.solve.dp import SearchCache, TooManyCuts
from nest.solve.effort import Deadline
from nest.tolerances import AGREEMENT


def with_first_plan(
    instance: Instance, result: Result, within: float, deadline: Deadline, cache: SearchCache | None = None
) -> Result:
    """Return a search's result with the simplest plan at most a share `within` slower than the best.

    Only searches of the dynamic program are followed up: on networks, for tensors sent directly, and for graphs with
    too many cuts, the fastest plan is the first one.

    Args:
        instance: the problem; no candidate of a plan within the limit is missing.
        result: of its search.
        within: share of the least step time; 0: the fastest plan is the first one.
        deadline: then the simplest plan so far is taken.
        cache: of problems searched before.

    Raises:
        InputError: a constraint cannot be computed.
    """
    best, least, bound = result.solution, result.batch_time, result.lower_bound
    if best is None or least is None or not bound or not within or not follows_up(instance):
        return result
    if deadline.passed:
        return result
    # Where a proof leaves more open than half the share, the share is one of the best plan met.
    begin = bound if least <= bound * (1 + within / 2) else least
    plan, seconds = _Search(instance, begin * (1 + within), deadline, cache).simplest(best, least)
    near = seconds <= bound * (1 + within) * (1 + AGREEMENT)
    if seconds <= bound * (1 + AGREEMENT):
        return evolve(result, solution=plan, batch_time=seconds)
    faster = (best, least) if seconds > least * (1 + AGREEMENT) else None
    result = evolve(result, solution=plan, batch_time=seconds, fastest=faster, runner_up=None)
    return evolve(result, status="near-optimal", fastest=faster or (plan, seconds)) if near else result


COSTS_LITTLE = 0.05  # Most additional share of the step time of a reported safer or simpler plan.


def with_alternatives(
    instance: Instance, result: Result, deadline: Deadline, cache: SearchCache | None = None
) -> Result:
    """Return the result with a safer plan and a simpler one than the first, if they cost little.

    Args:
        instance: the problem; no candidate of a plan that costs little more is missing.
        result: of its search, with its first plan.
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
    """Return whether simpler plans of an instance are searched."""
    return instance.network is None and not instance.space.direct


class _Search:
    """Searches of restricted instances, up to a step time."""

    def __init__(self, instance: Instance, limit: float, deadline: Deadline, cache: SearchCache | None) -> None:
        self.instance, self.limit, self.deadline = instance, limit * (1 + AGREEMENT), deadline
        self.cache = cache or SearchCache()

    def simplest(self, best: Solution, seconds: float, order: Sequence[Entry] = ORDER) -> tuple[Solution, float]:
        """Return the simplest plan and its step time; `best` is the fastest.

        Throughout, the best plan so far is the fastest of those left.
        """
        left, given = self.instance, best
        for entry in order:
            amount = entry.amount(Plan(self.instance, best))
            untried = list(entry.less(left, amount))
            while untried and not self.deadline.passed:
                less = untried.pop(entry.next)
                found = self._fastest(entry.at_most(left, less), best, self.limit)
                if found is None:
                    # Then there is none of less, and what is refuted is not searched again.
                    left, untried = entry.more(left, less), [each for each in untried if each > less]
                else:
                    best, seconds = found
                    amount = entry.amount(Plan(self.instance, best))
                    untried = [each for each in untried if each < amount]
            left = entry.at_most(left, amount)
        if best == given and order is not ORDER:
            return best, seconds
        return self._emptiest(left, *(self._fastest(left, best, seconds, ties=True) or (best, seconds)))

    def _emptiest(self, left: Instance, best: Solution, seconds: float) -> tuple[Solution, float]:
        """Return the plan with the fewest bytes on its fullest stage of those as fast, without chunks by a search."""
        while best.chunks > 1 and left.pools is None and not self.deadline.passed:
            less = (1 - AGREEMENT) * max(stage.memory for stage in evaluate(self.instance, best).stages)
            found = self._fastest(evolve(left, cluster=evolve(left.cluster, memory=less)), best, seconds)
            if found is None or self._spread(found[0]) > self._spread(best):
                break
            best, seconds = found
        return best, seconds

    def _spread(self, plan: Solution) -> int:
        """Return the excess, in transformer blocks, of a plan's largest chunk over the smallest."""
        runs = [set(run) for run in chunk_layers(self.instance, plan)]
        counts = [sum(block[0] in run for block in self.instance.space.blocks) for run in runs]
        return max(counts) - min(counts)

    def safer(self, plan: Solution) -> tuple[Solution, float] | None:
        """Return the simplest plan hardly slower than the fastest of those `LIKELY` to fit; None: there is none.

        Nobody changes to plans with more chunks, or with a pipeline if the first plan has none: these are left out.
        """
        fit, first = ORDER[-1], Plan(self.instance, plan)
        if fit.amount(first) == 0:
            return None
        likely = fit.at_most(self.instance, 0)
        for entry in SHAPE:
            likely = entry.at_most(likely, entry.amount(first))
        found = self._fastest(likely, plan, self.limit)
        if found is None:
            return None
        hardly = _Search(likely, min(self.limit, found[1] * (1 + WITHIN)), self.deadline, self.cache)
        return hardly.simplest(*found)

    def is_like(self, one: Solution, other: Solution) -> bool:
        plans = [Plan(self.instance, each) for each in (one, other)]
        return len({tuple(entry.amount(plan) for entry in STRUCTURE) for plan in plans}) == 1

    def _fastest(
        self, instance: Instance, known: Solution, limit: float, *, ties: bool = False
    ) -> tuple[Solution, float] | None:
        """Return the fastest plan of an instance within the limit; None: none but the known one."""
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
