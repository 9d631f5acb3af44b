"""Memory risk: limits of the search, of fitting plans, and the search if nothing is likely enough to fit.

The limits differ: a search admits stages up to `Cluster.memory`, which `training.memory_risk` sets, while a plan fits
(`Cluster.fitting`) if it is more likely than not to fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import evolve

from nest.errors import NoPlanYet
from nest.formulate.formulation import Formulation
from nest.instance import Cluster, Instance, Result
from nest.plan.evaluate import evaluate
from nest.solve.effort import Deadline
from nest.spec import PlanDocument, Problem, Training
from nest.spec.problem import Search
from nest.tolerances import AGREEMENT

if TYPE_CHECKING:
    from nest.formulate.options import Options
    from nest.plan.priced import PricedPlan

RISK = 0.2
"""Default share of launches that may run out of memory (`training.memory_risk`).

Four launches in five then succeed instead of one in two. Dense models on 8 to 256 H100 pay 0 to 2.1 % of the step time
for it, less than the error of predictions (docs/explanation/memory.md, "How sure memory is")."""

EVEN_ODDS = 0.5
"""Risk at which a plan is as likely to fit as not: the criterion for a single plan, and the largest risk that a search
takes by default."""

WITHIN = 0.01  # Share of the least step time within which a simpler plan comes first (FORMATS.md, `search.within`).

LIKELIER_WITHIN = 0.1
"""Share of the step time given up for a likelier plan, if none is as likely to fit as `RISK` requires."""

LIKELIER = 0.1
"""Least gain in probability for which a likelier plan is taken: memory estimates distinguish no less. Else a stage
recomputes block after block for nothing: 6.9 % of a step for 0.2 points (2026-11-29)."""

Answer = tuple[Instance, Formulation, Result]
"""Result of a search, with its instance and what that was made of."""


def with_memory_risk(cluster: Cluster, options: Options) -> Cluster:
    """`cluster` with its error of estimates and the memory limit for the accepted risk.

    Bytes in a profile are exact unless a margin is written. A written margin limits both searches and fitting plans.
    """
    if options.risk is None or cluster.error is None:
        return cluster.with_margin(options.training.memory_margin or 0.0)
    return _at(cluster, options.risk)


def simpler_within(search: Search, model: object) -> float:
    """Share of the least step time by which a simpler plan may be slower and still come first."""
    return search.within if search.within is not None else 0.0 if model is None else WITHIN


def accepted_risk(training: Training, model: object) -> float | None:
    """Accepted share of launches that run out of memory; None: a margin, or a profile's bytes, decide."""
    if model is None or training.memory_margin is not None:
        return None
    return RISK if training.memory_risk is None else training.memory_risk


def leaves_risk_open(training: Training, model: object) -> bool:
    """True if the problem sets no memory risk."""
    return accepted_risk(training, model) is not None and training.memory_risk is None


def at_risk(problem: Problem, risk: float) -> Problem:
    """Problem with this memory risk."""
    return evolve(problem, training=evolve(problem.training, memory_risk=risk))


def at_even_odds(instance: Instance) -> Instance:
    """Instance with all plans that are more likely than not to fit; candidates do not depend on the risk."""
    return _on_clusters(instance, lambda cluster: _at(cluster, EVEN_ODDS))


def at_most(instance: Instance, risk: float) -> Instance:
    """Instance with only plans that run out of memory with a probability of at most `risk`."""
    return _on_clusters(instance, lambda cluster: min(cluster, _at(cluster, risk), key=lambda each: each.memory))


def _at(cluster: Cluster, risk: float) -> Cluster:
    if cluster.error is None:
        return cluster
    factor = cluster.error.factor
    return cluster.with_margin(factor(risk) - 1, factor(EVEN_ODDS) - 1)


def _on_clusters(instance: Instance, change: Callable[[Cluster], Cluster]) -> Instance:
    if instance.pools is None:
        return evolve(instance, cluster=change(instance.cluster))
    members = (evolve(each, cluster=change(each.cluster)) for each in instance.pools.members)
    pools = evolve(instance.pools, members=tuple(members))
    return evolve(instance, cluster=change(instance.cluster), pools=pools)


def likely_enough(fit_probability: float | None) -> bool:
    """True if a plan is as likely to fit as `RISK` requires; None: its bytes are exact."""
    return fit_probability is None or fit_probability >= 1 - RISK - AGREEMENT


def risk_of(problem: Problem, plan: PlanDocument) -> Problem:
    """Problem of a plan, at the risk at which a search includes the plan.

    If the problem leaves it open, a plan less likely to fit than `RISK` requires belongs to the search at `EVEN_ODDS`,
    and so does a proof that there is none.
    """
    if leaves_risk_open(problem.training, problem.model) and not (plan.fits and likely_enough(plan.fit_probability)):
        return at_risk(problem, EVEN_ODDS)
    return problem


def at_risk_of(problem: Problem, plan: PlanDocument) -> Problem:
    """Same as `risk_of`, with the risk written, for plans that are compared with one."""
    problem = risk_of(problem, plan)
    risk = accepted_risk(problem.training, problem.model)
    return problem if risk is None else at_risk(problem, risk)


def admits(problem: Problem, plan: PlanDocument | PricedPlan) -> bool:
    """True if a search of the problem has the memory for its plan; fitting is another question."""
    risk = accepted_risk(problem.training, problem.model)
    if risk is None or plan.fit_probability is None:
        return plan.fits
    return plan.fit_probability >= 1 - risk - AGREEMENT


def took_even_odds(plan: PlanDocument) -> bool:
    """True if a search with default risk took a plan less likely to fit than `RISK` requires."""
    said = [plan.problem["training"].get(name) for name in ("memory_risk", "memory_margin")]
    return plan.lower_bound is not None and said == [None, None] and not likely_enough(plan.fit_probability)


def wrong_nearness(plan: PlanDocument, problem: Problem) -> tuple[str, ...]:
    """Reasons why a plan that claims to be near-optimal is not: slower than allowed for a simpler or likelier plan."""
    share = LIKELIER_WITHIN if took_even_odds(plan) else simpler_within(problem.search, problem.model)
    most = (plan.lower_bound or 0.0) * (1 + share) * (1 + AGREEMENT)
    if plan.status != "near-optimal" or (plan.batch_time or 0.0) <= most:
        return ()
    return (f"The status is near-optimal, but batch_time is more than {100 * share:g} % above lower_bound.",)


def searched_at_risk(problem: Problem, search: Callable[[Problem, float], Answer], deadline: Deadline) -> Answer:
    """Solve a problem at its memory risk; else return the likeliest plan that is more likely than not to fit.

    Only a problem with an open risk is searched again, at `EVEN_ODDS`: the answer is the likeliest plan within
    `LIKELIER_WITHIN` of the least step time there, which is the lower bound.

    Args:
        problem: self-contained.
        search: solves a problem with all candidates that have plans within such a share of the least step time.

    Raises:
        InputError: see `search`.
        NoPlanYet: see `search`.
    """
    answer = search(problem, 0.0)
    if answer[2].solution is not None or not leaves_risk_open(problem.training, problem.model):
        return answer
    daring = at_risk(evolve(problem, search=evolve(problem.search, within=0.0)), EVEN_ODDS)
    instance, formulation, result = search(daring, LIKELIER_WITHIN)
    return instance, formulation, likeliest(instance, result, deadline)


def likeliest(instance: Instance, result: Result, deadline: Deadline) -> Result:
    """Replace the plan of a result by the likeliest one within `LIKELIER_WITHIN`.

    Each search accepts `LIKELIER` less risk than the plan so far, or half-way to a risk without a plan. On
    non-hierarchical networks, and with direct tensors, the fastest plan stays: searches take minutes there.

    Args:
        instance: complete to that share of the step time; no plan is as likely to fit as `RISK` requires.
        result: a stopped search's result stays.
    """
    from nest.solve.decision import fastest_within

    placed = instance.network is not None or instance.space.direct
    if placed or deadline.passed or result.solution is None or result.batch_time is None:
        return result
    limit, best, seconds = result.batch_time * (1 + LIKELIER_WITHIN), result.solution, result.batch_time
    none, risk, half_way = RISK, 1 - evaluate(instance, best).fit_probability, True
    while risk - none > LIKELIER:
        tried = min((none + risk) / 2, risk - LIKELIER) if half_way else risk - LIKELIER
        try:
            found, _ = fastest_within(at_most(instance, tried), limit, deadline)
        except NoPlanYet:
            break
        if found is not None and found.solution is not None and found.batch_time is not None:
            best, seconds = found.solution, found.batch_time
            risk, half_way = 1 - evaluate(instance, best).fit_probability, True
        elif half_way and not deadline.passed:
            none, half_way = tried, False
        else:
            break
    if best == result.solution:
        return result
    slower = result.status == "optimal" and seconds > result.batch_time * (1 + AGREEMENT)
    status, fastest = "near-optimal" if slower else result.status, (result.solution, result.batch_time)
    return evolve(result, status=status, solution=best, batch_time=seconds, runner_up=None, fastest=fastest)
