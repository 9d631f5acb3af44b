"""Memory risk: what a search admits, what is likely enough to fit, and the search where nothing is that likely.

Two limits are not the same: a search admits stages up to `Cluster.memory`, which `training.memory_risk` sets, while a
plan fits (`Cluster.fitting`) if it is more likely than not to, whatever risk its search takes.
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

RISK = 0.2
"""The share of launches that a search accepts to run out of memory, where nobody says (`training.memory_risk`).

Four launches in five then succeed, in place of one in two. Dense models on 8 to 256 H100 pay 0 to 2.1 % of the step
time for it, less than predictions can tell apart (docs/explanation/cost-model.md, "How sure memory is")."""

EVEN_ODDS = 0.5
"""The share at which a plan is as likely to fit as not: what a verdict on one plan goes by, and the largest share that
a search takes by itself."""

WITHIN = 0.01
"""Share of the least step time up to which a simpler plan is the first one (FORMATS.md, `search.within`)."""

LIKELIER_WITHIN = 0.1
"""Share of the step time that is given up for a likelier plan, where none is as likely to fit as `RISK` asks for."""

LIKELIER = 0.1
"""By how much a plan must be likelier to fit to be taken at all: estimates of memory tell no more apart. Else a stage
recomputes block after block for nothing: 6.9 % of a step for 0.2 points (2026-11-29)."""

Answer = tuple[Instance, Formulation, Result]
"""What a search answers, of which instance, and what that was made of."""


def with_memory_risk(cluster: Cluster, options: Options) -> Cluster:
    """`cluster`, with its error of estimates, whose stages must stay under what the accepted memory risk leaves them.

    Candidates of a profile state their bytes: they are exact unless a margin is written. A margin that is written says
    both what a search admits and what fits.
    """
    if options.risk is None or cluster.error is None:
        return cluster.with_margin(options.training.memory_margin or 0.0)
    return _at(cluster, options.risk)


def simpler_within(search: Search, model: object) -> float:
    """Share of the least step time by which a simpler plan may be slower and still be the first one."""
    return search.within if search.within is not None else 0.0 if model is None else WITHIN


def accepted_risk(training: Training, model: object) -> float | None:
    """The share of launches that may run out of memory; None: a margin, or a profile's bytes, decide what fits."""
    if model is None or training.memory_margin is not None:
        return None
    return RISK if training.memory_risk is None else training.memory_risk


def leaves_risk_open(training: Training, model: object) -> bool:
    """Whether nothing in a problem says how likely plans must be to fit."""
    return accepted_risk(training, model) is not None and training.memory_risk is None


def at_risk(problem: Problem, risk: float) -> Problem:
    """The problem of which so large a share of launches may run out of memory."""
    return evolve(problem, training=evolve(problem.training, memory_risk=risk))


def at_even_odds(instance: Instance) -> Instance:
    """The instance with all plans that are more likely than not to fit; candidates know nothing of the risk."""
    return _on_clusters(instance, lambda cluster: _at(cluster, EVEN_ODDS))


def at_most(instance: Instance, risk: float) -> Instance:
    """The instance with those plans alone that run out of memory with a probability of at most `risk`."""
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
    """Whether a plan is as likely to fit as `RISK` asks for; None: its bytes are exact."""
    return fit_probability is None or fit_probability >= 1 - RISK - AGREEMENT


def risk_of(problem: Problem, plan: PlanDocument) -> Problem:
    """The problem of a plan, at the risk at which the plan is among those searched.

    Where the problem leaves it open, a plan that is less likely to fit than `RISK` asks for belongs to the search at
    `EVEN_ODDS`, and so does the proof that there is none.
    """
    if leaves_risk_open(problem.training, problem.model) and not (plan.fits and likely_enough(plan.fit_probability)):
        return at_risk(problem, EVEN_ODDS)
    return problem


def at_risk_of(problem: Problem, plan: PlanDocument) -> Problem:
    """As `risk_of`, with the risk written: what other plans are held to that are compared with one."""
    problem = risk_of(problem, plan)
    risk = accepted_risk(problem.training, problem.model)
    return problem if risk is None else at_risk(problem, risk)


def admits(problem: Problem, plan: PlanDocument) -> bool:
    """Whether a search of a problem has the memory that a plan of it needs; whether it fits is another question."""
    risk = accepted_risk(problem.training, problem.model)
    if risk is None or plan.fit_probability is None:
        return plan.fits
    return plan.fit_probability >= 1 - risk - AGREEMENT


def took_even_odds(plan: PlanDocument) -> bool:
    """Whether a search that was told no risk took a plan that is less likely to fit than `RISK` asks for."""
    said = [plan.problem["training"].get(name) for name in ("memory_risk", "memory_margin")]
    return plan.lower_bound is not None and said == [None, None] and not likely_enough(plan.fit_probability)


def wrong_nearness(plan: PlanDocument, problem: Problem) -> tuple[str, ...]:
    """Why a plan is not near-optimal, if it says so: it takes longer than a simpler or a likelier plan may."""
    share = LIKELIER_WITHIN if took_even_odds(plan) else simpler_within(problem.search, problem.model)
    most = (plan.lower_bound or 0.0) * (1 + share) * (1 + AGREEMENT)
    if plan.status != "near-optimal" or (plan.batch_time or 0.0) <= most:
        return ()
    return (f"The status is near-optimal, but batch_time is more than {100 * share:g} % above lower_bound.",)


def searched_at_risk(problem: Problem, search: Callable[[Problem, float], Answer], deadline: Deadline) -> Answer:
    """The answer to a problem at its memory risk, else the likeliest plan of all that are more likely than not to fit.

    Only a problem that leaves its risk open is searched again, at `EVEN_ODDS`: of all plans within `LIKELIER_WITHIN` of
    the least step time there, which is the lower bound, the likeliest is the answer.

    Args:
        problem: self-contained.
        search: answers a problem, with all candidates that have plans of so large a share of the least step time more.
        deadline: until when plans are looked for.

    Raises:
        InputError: as `search`.
        NoPlanYet: as `search`.
    """
    answer = search(problem, 0.0)
    if answer[2].solution is not None or not leaves_risk_open(problem.training, problem.model):
        return answer
    daring = at_risk(evolve(problem, search=evolve(problem.search, within=0.0)), EVEN_ODDS)
    instance, formulation, result = search(daring, LIKELIER_WITHIN)
    return instance, formulation, likeliest(instance, result, deadline)


def likeliest(instance: Instance, result: Result, deadline: Deadline) -> Result:
    """The result of a search with the likeliest plan of all within `LIKELIER_WITHIN` of its plan in its place.

    Each search accepts `LIKELIER` less risk than the plan so far takes, or half-way to where there is none. On networks
    that are no hierarchy, and of tensors that are sent directly, the fastest stays: searches take minutes there.

    Args:
        instance: complete to that share of the step time; nothing in it is as likely to fit as `RISK` asks for.
        result: of its search; where that was stopped, it stays.
        deadline: until when plans are looked for.
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
            found = fastest_within(at_most(instance, tried), limit, deadline)
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
