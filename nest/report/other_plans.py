"""Other plans beside one: why the second-best lost."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve, fields

from nest.catalogue import time_spread
from nest.errors import InputErrors
from nest.instance import Instance, Solution
from nest.io import structure, unstructure
from nest.plan.document import document
from nest.plan.evaluate import PricedPlan
from nest.report.decisions import degrees_text
from nest.report.plan_summary import time_shares
from nest.spec import Decisions, PlanDocument, StageDecisions, StageRecord
from nest.tolerances import AGREEMENT, BANDWIDTH_SHORTFALL, TIE
from nest.units import listed, percent

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

_LONGER = {
    "compute": "its slowest stage computes longer",
    "collectives": "more time in collectives",
    "recompute": "more recomputation",
    "pipeline": "more pipeline P2P",
    "sharding": "more ZeRO communication",
    "ports": "busier network ports",
    "bubble": "a larger bubble",
    "sync": "longer gradient sync",
}

TOO_CLOSE = "Too close to call: measure both."  # Advice on two plans that predictions cannot separate.
_WORTH_TELLING = 0.001  # Least gain told beside the loss, share of the step time: less changes no shown decimal place.

ON_NETWORK = (
    "The network is no hierarchy: nest priced its real paths. The time holds for the devices in the plan's `placement`."
)
"""Note on a plan for a network that is no hierarchy."""


def label(instance: Instance, solution: Solution) -> str:
    """Return the plan's degrees in short: `tp 8, pp 4, replicas 4, micro-batch 1`.

    If stages differ in a degree, all its values in pipeline order: `tp 8/4`; of mixed candidates with the same degrees,
    their names.
    """
    used = [instance.candidates[index] for index in dict.fromkeys(stage.candidate for stage in solution.stages)]
    degrees = degrees_text([candidate.degrees for candidate in used])
    if len(used) > 1 and not any("/" in degree for degree in degrees):
        degrees.append(f"candidates {listed([candidate.name for candidate in used])}")
    shape = [
        f"pp {len(solution.stages)}",
        f"replicas {solution.replicas}",
        *([] if solution.zero_degree is None else [f"shard groups of {solution.zero_degree}"]),
        f"micro-batch {used[0].micro_batch or used[0].samples}",
    ]
    return ", ".join([*degrees, *shape])


def why(mine: Mapping[str, float], other: Mapping[str, float], batch_time: float, *, slower: bool) -> str:
    """Describe where another plan spends more of the step time (or, if faster, less), and where less.

    `mine` and `other` are time shares in seconds (`time_shares`); differences are shares of `batch_time`.
    """
    (cause, share, word), *others = causes(grown(mine, other, batch_time), slower=slower)
    text = f"{_WORDS[cause]} takes {percent(share)} of the step time {word}"
    for relief, share, opposite in others:
        text += f", {_WORDS[relief]} {percent(share)} {opposite}"
    return text


def grown(mine: Mapping[str, float], other: Mapping[str, float], batch_time: float) -> dict[str, float]:
    """Return the growth of each part of the step time in another plan, as a share of `batch_time`."""
    return {name: (other[name] - mine[name]) / batch_time for name in mine}


def causes(differences: Mapping[str, float], *, slower: bool) -> list[tuple[str, float, str]]:
    """Return the part of the step time that makes another plan slower, or faster, and the part that offsets it.

    Each by its name, the size of its difference (as in `grown`), and `more` or `less`.
    """
    most, least = max(differences, key=differences.__getitem__), min(differences, key=differences.__getitem__)
    extremes = [(most, differences[most], "more"), (least, -differences[least], "less")]
    first, second = extremes if slower else reversed(extremes)
    return [first, second] if second[1] >= _WORTH_TELLING else [first]


Priced = tuple[Solution, PricedPlan, Sequence[float]]
"""Decisions, their price, and for each level of the network the step time with `BANDWIDTH_SHORTFALL` less of it."""


def describe_runner_up(instance: Instance, best: Priced, second: Priced) -> dict[str, Any]:
    """Describe the `runner_up` of a plan document: its decisions, time difference, cause, and when it wins."""
    (_, best_priced, best_slower), (solution, priced, slower_levels) = best, second
    mine, theirs = time_shares(best_priced), time_shares(priced)
    longer = {name: theirs[name] - mine[name] for name in mine}
    worst = max(longer, key=lambda name: longer[name])
    slower = priced.batch_time / best_priced.batch_time - 1 if best_priced.batch_time > 0 else 0.0
    name = label(instance, solution)
    if slower <= TIE:
        reason = f"{name} is as fast; among equals fewer devices count, then fewer stages, then what is listed first"
    else:
        share = longer[worst] / best_priced.batch_time
        reason = f"{name} is {slower:.2%} slower: {_WORDS[worst]} takes {share:.2%} of the batch time more"
    return {
        "label": name,
        "batch_time": priced.batch_time,
        "slower_by": slower,
        "reason": reason,
        "cause": worst,
        "told_apart": instance.cluster.time_error is None or slower >= time_spread().apart,
        "wins_if": _wins_if(instance, best_slower, slower_levels),
        "decisions": unstructure(decisions_of(instance, solution, priced)),
    }


def _wins_if(instance: Instance, best: Sequence[float], second: Sequence[float]) -> list[dict[str, Any]]:
    """Return the levels whose bandwidth, if lower, makes the runner-up the faster one; a tie is no change."""
    return [
        {"level": level.name, "bandwidth": 1 - BANDWIDTH_SHORTFALL, "batch_time": theirs, "plan_batch_time": mine}
        for level, mine, theirs in zip(instance.cluster.levels, best, second, strict=True)
        if theirs < mine * (1 - AGREEMENT)
    ]


def runner_up_text(runner_up: Mapping[str, Any]) -> str:
    """Describe why it lost, and where it would not have."""
    sentence = f"Runner-up: {runner_up['label']}, "
    if runner_up["slower_by"] <= TIE:
        sentence += "as fast; nest prefers fewer devices, then fewer stages."
    else:
        cause = f" ({_LONGER[runner_up['cause']]})" if "cause" in runner_up else ""
        sentence += f"{percent(runner_up['slower_by'])} slower{cause}."
        sentence += "" if runner_up.get("told_apart", True) else f" {TOO_CLOSE}"
    levels_lost = runner_up.get("wins_if")
    if not levels_lost:
        return sentence
    levels = [f"bandwidth of {each['level']}" for each in levels_lost]
    return f"{sentence} It wins if {less_bandwidth(levels, 1 - levels_lost[0]['bandwidth'])}."


def less_bandwidth(bandwidths: Sequence[str], less: float) -> str:
    """Return that any one of some bandwidths, such as `bandwidth of node`, is lower by a share."""
    return f"the {' or the '.join(bandwidths)} is {percent(less, 0)} lower"


def decisions_of(instance: Instance, solution: Solution, priced: PricedPlan) -> Decisions:
    """Return the decisions of a plan, as documents state those of other plans."""
    plan = document(instance, solution, priced, status="feasible", lower_bound=None, problem={})
    stages = tuple(StageDecisions(**_alike(stage, StageDecisions)) for stage in plan.stages)
    return Decisions(**{**_alike(plan, Decisions), "stages": stages})


def _alike(record: object, kind: type[StageDecisions | Decisions]) -> dict[str, Any]:
    return {each.name: getattr(record, each.name) for each in fields(kind)}


def decided_plan(plan: PlanDocument, stated: object, place: str) -> PlanDocument:
    """Return the document of another plan stated in one, with only its decisions.

    Args:
        stated: its decisions, in plain mappings.
        place: of them, for messages.

    Raises:
        InputErrors: they are no decisions.
    """
    if not isinstance(stated, Mapping):
        raise InputErrors([f"{place} must hold keys and values, is {stated!r:.60}."])
    try:
        decisions = structure(stated, Decisions)
    except InputErrors as error:
        raise InputErrors(f"{place}.{problem}" for problem in error.problems) from None
    unknown: dict[str, Any] = dict.fromkeys(("time", "sync_time", "memory", "in_flight"), 0.0)
    unknown |= {"level_in": -1, "level_out": -1}
    stages = (StageRecord(**_alike(each, StageDecisions), **unknown) for each in decisions.stages)
    gone = dict.fromkeys(("runner_up", "fastest", "safer", "simpler", "placement"))
    return evolve(plan, **{**_alike(decisions, Decisions), "stages": tuple(stages), **gone})


def apart(plan: PlanDocument) -> float:
    """Return the least share by which another plan of a cluster is surely slower; 0: any, for measured layers."""
    return 0.0 if plan.batch_time_range is None else time_spread().apart
