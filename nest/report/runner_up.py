"""Why the second-best plan lost, in one line."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from nest.catalogue import time_spread
from nest.errors import InputErrors
from nest.instance import Instance, Solution
from nest.io import structure, unstructure
from nest.plan.document import document
from nest.plan.evaluate import PricedPlan
from nest.report.decisions import degrees_text
from nest.report.plan_summary import time_shares
from nest.spec import CandidateSummary, Decisions, OtherRisk, PlanDocument, StageDecisions, StageRecord
from nest.tolerances import AGREEMENT, BANDWIDTH_SHORTFALL, TIE

_WORDS = {
    "compute": "computation of its slowest stage",
    "collectives": "communication inside its layers",
    "recompute": "recomputation",
    "pipeline": "communication between stages",
    "sharding": "ZeRO communication in every micro-batch",
    "ports": "waiting for its network port",
    "bubble": "the pipeline bubble",
    "sync": "gradient reduction and optimizer step",
}

_WORTH_TELLING = 0.001
"""Of what a plan gains beside what it loses, share of the step time: less changes no decimal place that is shown."""


def label(instance: Instance, solution: Solution) -> str:
    """The plan's degrees in a few words: `tp 8, pp 4, replicas 4, micro-batch 1`.

    Where stages differ in a degree, all its values in pipeline order: `tp 8/4`; where candidates of the same degrees
    are mixed, how many there are.
    """
    used = [instance.candidates[index] for index in dict.fromkeys(stage.candidate for stage in solution.stages)]
    degrees = degrees_text([candidate.degrees for candidate in used])
    if len(used) > 1 and not any("/" in degree for degree in degrees):
        degrees.append(f"{len(used)} candidates mixed")
    shape = [
        f"pp {len(solution.stages)}",
        f"replicas {solution.replicas}",
        *([] if solution.zero_degree is None else [f"shard groups of {solution.zero_degree}"]),
        f"micro-batch {used[0].micro_batch or used[0].samples}",
    ]
    return ", ".join([*degrees, *shape])


def why(mine: Mapping[str, float], other: Mapping[str, float], batch_time: float, *, slower: bool) -> str:
    """What of the step time another plan spends more (or, where it is faster, less) on than this one, and less.

    Args:
        mine: time shares of the plan asked about, seconds (`nest.report.plan_summary.time_shares`).
        other: those of the other plan.
        batch_time: of the plan asked about, seconds; what differs is told as a share of it.
        slower: whether the other plan is slower.
    """
    (cause, share, word), *others = causes(grown(mine, other, batch_time), slower=slower)
    text = f"{_WORDS[cause]} takes {share:.2%} of the batch time {word}"
    for relief, share, opposite in others:
        text += f", {_WORDS[relief]} {share:.2%} {opposite}"
    return text


def grown(mine: Mapping[str, float], other: Mapping[str, float], batch_time: float) -> dict[str, float]:
    """By how much each part of the step time of another plan is longer, as a share of `batch_time`."""
    return {name: (other[name] - mine[name]) / batch_time for name in mine}


def causes(differences: Mapping[str, float], *, slower: bool) -> list[tuple[str, float, str]]:
    """The part of the step time that makes another plan slower, or faster, and what relieves it if worth telling.

    Args:
        differences: as `grown` gives them.
        slower: whether the other plan is slower.

    Returns:
        Each part's name, how large its difference is, and whether it takes `more` or `less`.
    """
    most, least = max(differences, key=differences.__getitem__), min(differences, key=differences.__getitem__)
    told = [(most, differences[most], "more"), (least, -differences[least], "less")]
    first, second = told if slower else reversed(told)
    return [first, second] if second[1] >= _WORTH_TELLING else [first]


Priced = tuple[Solution, PricedPlan, Sequence[float]]
"""Decisions, their price, and for each level of the network the step time with `BANDWIDTH_SHORTFALL` less of it."""


def describe_runner_up(instance: Instance, best: Priced, second: Priced) -> dict[str, Any]:
    """The `runner_up` of a plan document: what it is, how much slower, what part of it grew most, and when it wins."""
    (_, best_priced, best_slower), (solution, priced, slower_levels) = best, second
    mine, theirs = time_shares(best_priced), time_shares(priced)
    grown = {name: theirs[name] - mine[name] for name in mine}
    worst = max(grown, key=lambda name: grown[name])
    slower = priced.batch_time / best_priced.batch_time - 1 if best_priced.batch_time > 0 else 0.0
    name = label(instance, solution)
    if slower <= TIE:
        reason = f"{name} is as fast; among equals fewer devices count, then fewer stages, then what is listed first"
    else:
        share = grown[worst] / best_priced.batch_time
        reason = f"{name} is {slower:.2%} slower: {_WORDS[worst]} takes {share:.2%} of the batch time more"
    return {
        "label": name,
        "batch_time": priced.batch_time,
        "slower_by": slower,
        "reason": reason,
        "told_apart": instance.cluster.time_error is None or slower >= time_spread().apart,
        "wins_if": _wins_if(instance, best_slower, slower_levels),
        "decisions": unstructure(decisions_of(instance, solution, priced)),
    }


def _wins_if(instance: Instance, best: Sequence[float], second: Sequence[float]) -> list[dict[str, Any]]:
    """The levels that, with less bandwidth, make the runner-up the faster of the two; a tie is no change."""
    return [
        {"level": level.name, "bandwidth": 1 - BANDWIDTH_SHORTFALL, "batch_time": theirs, "plan_batch_time": mine}
        for level, mine, theirs in zip(instance.cluster.levels, best, second, strict=True)
        if theirs < mine * (1 - AGREEMENT)
    ]


def runner_up_text(runner_up: Mapping[str, Any]) -> str:
    """Why it lost, and where it would not have."""
    told = f"Runner-up: {runner_up['reason']}."
    if not runner_up.get("told_apart", True) and runner_up["slower_by"] > TIE:
        told += " Predictions do not tell them apart: measure both."
    found = runner_up.get("wins_if")
    if not found:
        return told
    levels = [f"bandwidth of {each['level']}" for each in found]
    return f"{told} The plan loses to it if {less_bandwidth(levels, 1 - found[0]['bandwidth'])}."


def other_risk_text(other: OtherRisk) -> str:
    """What another memory risk would give."""
    told = "faster" if other.slower_by < 0 else "slower"
    return (
        f"With training.memory_risk {other.memory_risk:g}: {other.label} is {abs(other.slower_by):.2%} {told}, and"
        f" {other.fit_probability:.0%} likely to fit."
    )


def less_bandwidth(bandwidths: Sequence[str], less: float) -> str:
    """That any one of some bandwidths, such as `bandwidth of node`, is lower by a share."""
    return f"the {' or the '.join(bandwidths)} is {less:.0%} lower"


def decisions_of(instance: Instance, solution: Solution, priced: PricedPlan) -> Decisions:
    """What is decided of a plan, as documents state it of another than their own."""
    plan = document(instance, solution, priced, status="feasible", lower_bound=None, problem={})
    stages = tuple(
        StageDecisions(stage.layers, stage.candidate, stage.recompute, stage.zero, stage.devices)
        for stage in plan.stages
    )
    assert isinstance(plan.candidate, CandidateSummary)
    return Decisions(
        plan.candidate,
        solution.replicas,
        solution.rank_order,
        solution.schedule,
        solution.chunks,
        solution.zero_degree,
        stages,
    )


def decided_plan(plan: PlanDocument, stated: object, place: str) -> PlanDocument:
    """The document that another plan stated in one would have, with nothing in it but its decisions.

    Args:
        plan: the document.
        stated: its decisions, in plain mappings.
        place: where they stand.

    Raises:
        InputErrors: they are no decisions; the text names the place.
    """
    if not isinstance(stated, Mapping):
        raise InputErrors([f"{place} must hold keys and values, is {stated!r:.60}."])
    try:
        found = structure(stated, Decisions)
    except InputErrors as error:
        raise InputErrors(f"{place}.{told}" for told in error.problems) from None
    stages = (
        StageRecord(each.layers, each.candidate, each.recompute, each.zero, each.devices, 0.0, 0.0, 0.0, 0.0, -1, -1)
        for each in found.stages
    )
    return evolve(
        plan,
        candidate=found.candidate,
        data_parallel=found.data_parallel,
        rank_order=found.rank_order,
        schedule=found.schedule,
        chunks=found.chunks,
        zero_degree=found.zero_degree,
        stages=tuple(stages),
        runner_up=None,
        other_risks=(),
        placement=None,
    )


def apart(plan: PlanDocument) -> float:
    """The least share of the step time by which another plan of one cluster is known to be slower; 0: any is.

    Times of measured layers are taken as they are.
    """
    return 0.0 if plan.batch_time_range is None else time_spread().apart
