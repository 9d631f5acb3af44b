"""Facts that a problem leaves open: step times under their other values, and the plans to measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve

from nest.errors import InputError
from nest.formulate.fixed_plan import decided_formulation
from nest.formulate.risk import WITHIN
from nest.formulate.stack import value_of
from nest.hooks.registry import Registry
from nest.instance import Instance
from nest.io import unstructure
from nest.plan.document import solution_of
from nest.plan.evaluate import evaluate
from nest.report.other_plans import apart, decided_plan
from nest.report.plan_summary import whole_training
from nest.spec import PlanDocument, Problem, TimeRange, UnknownFact, with_value
from nest.tolerances import AGREEMENT

OTHERS = ("fastest", "runner_up", "safer", "simpler")  # Other plans of a document, by key.
THIS = "plan"  # The document's own plan, in `to_measure`.
MOST = 3  # Launches before one plan is taken.


def with_unknown(plan: PlanDocument, problem: Problem, known: Registry) -> PlanDocument:
    """Return a document with step times under other values of unknown facts, a range over them, and plans to measure.

    The plan stays the best under the values that its search took.

    Raises:
        InputError: `training.unknown` names a key or value that is none.
    """
    seconds, span, summary = plan.batch_time, plan.batch_time_range, plan.summary
    if seconds is None or span is None:
        return plan
    others = _others(plan)
    facts = _facts(plan, others, problem, known)
    plan = evolve(plan, to_measure=_to_measure(plan, others, facts))
    if not facts:
        return plan
    times = (seconds, *(fact.batch_time for fact in facts))
    wider = TimeRange(span.probability, span.low * min(times) / seconds, span.high * max(times) / seconds)
    whole = whole_training(problem.training, problem.cluster, seconds, wider, summary)
    summary = {**summary, "training": whole} if "training" in summary else summary
    return evolve(plan, unknown=facts, batch_time_range=wider, summary=summary)


def wrong_unknown(plan: PlanDocument, problem: Problem, known: Registry) -> list[str]:
    """Return faults in the unknown facts of a valid plan, and in its plans to measure."""
    if not plan.unknown and not plan.to_measure:
        return []
    others = _others(plan)
    facts = _facts(plan, others, problem, known)
    faults = [] if plan.to_measure == _to_measure(plan, others, facts) else ["to_measure lists other plans."]
    stated, derived = ({fact.key: fact for fact in each} for each in (plan.unknown, facts))
    for key in dict.fromkeys((*stated, *derived)):
        if key not in stated or key not in derived or not _alike(stated[key], derived[key]):
            faults.append(f"unknown: the step times for {key} differ from recomputed ones.")
    return faults


def _alike(stated: UnknownFact, derived: UnknownFact) -> bool:
    mine, theirs = ({"plan": each.batch_time, **each.others} for each in (stated, derived))
    values = (unstructure([each.taken, each.other]) for each in (stated, derived))
    same = len({repr(each) for each in values}) == 1 and mine.keys() == theirs.keys()
    return same and all(abs(mine[name] - theirs[name]) <= AGREEMENT * theirs[name] for name in mine)


def _others(plan: PlanDocument) -> dict[str, PlanDocument]:
    """Other plans in a document, by their key there, with only decisions and step time."""
    found = {}
    for name in OTHERS:
        other: Any = getattr(plan, name)
        stated = {} if other is None else other if isinstance(other, Mapping) else unstructure(other)
        if stated.get("decisions") is not None:
            decided = decided_plan(plan, stated["decisions"], f"{name}.decisions")
            found[name] = evolve(decided, batch_time=stated["batch_time"])
    return found


def _facts(
    plan: PlanDocument, others: Mapping[str, PlanDocument], problem: Problem, known: Registry
) -> tuple[UnknownFact, ...]:
    """Facts that change the plan's step time by more than plans may differ (`WITHIN`), the costliest first."""
    found, seconds = [], plan.batch_time or 0.0
    for key, other in (problem.training.unknown or {}).items():
        changed = with_value(problem.training, key, other)
        if changed == problem.training:
            continue
        price = _prices(evolve(problem, training=changed), known)
        try:
            own = price(plan)
            if abs(own - seconds) > WITHIN * seconds:
                beside = {name: price(each) for name, each in others.items()}
                taken, instead = (value_of(each, key) for each in (problem.training, changed))
                found.append(UnknownFact(key, taken, instead, own, beside))
        except InputError:  # A decision needs the value that was taken, such as a mode of recomputation.
            continue
    return tuple(sorted(found, key=lambda fact: (-abs(fact.batch_time - seconds), fact.key)))


def _prices(problem: Problem, known: Registry) -> Callable[[PlanDocument], float]:
    """Function from a plan to its seconds of a step; plans of one candidate share its prices."""
    instances: dict[str, Instance] = {}

    def price(plan: PlanDocument) -> float:
        kind = repr(plan.candidate)
        if kind not in instances:
            instances[kind] = decided_formulation(problem, plan, known)[0]
        return evaluate(instances[kind], solution_of(instances[kind], plan)).batch_time

    return price


def _to_measure(
    plan: PlanDocument, others: Mapping[str, PlanDocument], facts: tuple[UnknownFact, ...]
) -> tuple[str, ...]:
    """Choose at most `MOST` plans to launch: the plan, those best under another value, and some too close to call.

    Of these the next one differs most from those chosen, so that one launch tells more than another would.
    """
    seconds, chosen = plan.batch_time or 0.0, [THIS]
    for fact in facts:
        best = min(others, key=lambda name: fact.others[name], default=None)
        if best is not None and best not in chosen and fact.others[best] * (1 + WITHIN) < fact.batch_time:
            chosen.append(best)
    plans = {THIS: plan, **others}
    close = [name for name, each in others.items() if (each.batch_time or 0.0) < seconds * (1 + apart(plan))]
    while len(chosen) < MOST:
        unlike = {name: min(_unlike(plans[name], plans[each]) for each in chosen) for name in close}
        best = max(close, key=lambda name: unlike[name], default=None)
        if best is None or not unlike[best]:
            break
        chosen.append(best)
    return tuple(chosen[:MOST]) if len(chosen) > 1 else ()


def _unlike(one: PlanDocument, other: PlanDocument) -> int:
    """Number of kinds of decisions in which plans differ; where layers are cut is none."""
    return sum(mine != theirs for mine, theirs in zip(_kinds(one), _kinds(other), strict=True))


def _kinds(plan: PlanDocument) -> tuple[object, ...]:
    candidate, stages = plan.candidate, plan.stages
    assert candidate is not None
    degrees = {name: degree for name, degree in candidate.degrees.items() if degree > 1}
    kept = ({stage.zero for stage in stages}, {stage.recompute_name for stage in stages})
    return (degrees, candidate.micro_batch, len(stages), plan.data_parallel, plan.schedule, plan.chunks, *kept)
