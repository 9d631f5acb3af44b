"""Why the second-best plan lost, in one line."""

from typing import Any

from nest.instance import Instance, Solution
from nest.plan import PricedPlan
from nest.report.evaluation import time_shares

_WORDS = {
    "compute": "computation and communication inside its slowest stage",
    "recompute": "recomputation",
    "pipeline": "communication between stages",
    "sharding": "ZeRO communication in every micro-batch",
    "bubble": "the pipeline bubble",
    "sync": "gradient reduction and optimizer step",
}


def label(instance: Instance, solution: Solution) -> str:
    """The plan's degrees in a few words: `tp 8, sp 8, pp 4, replicas 4, micro-batch 1`.

    Where stages use different candidates, how many there are stands for their degrees.
    """
    candidate = instance.candidates[solution.stages[0].candidate]
    degrees = [f"{name} {degree}" for name, degree in candidate.degrees.items() if degree != 1]
    used = len({stage.candidate for stage in solution.stages})
    if used > 1:
        degrees = [f"{used} candidates mixed"]
    shape = [
        f"pp {len(solution.stages)}",
        f"replicas {solution.replicas}",
        f"micro-batch {candidate.samples}",
    ]
    return ", ".join([*degrees, *shape])


def describe_runner_up(
    instance: Instance, best: tuple[Solution, PricedPlan], second: tuple[Solution, PricedPlan]
) -> dict[str, Any]:
    """The `runner_up` of a plan document: what it is, how much slower, and the part of its time that grew most."""
    (_, best_priced), (solution, priced) = best, second
    mine, theirs = time_shares(best_priced), time_shares(priced)
    grown = {name: theirs[name] - mine[name] for name in mine}
    worst = max(grown, key=lambda name: grown[name])
    slower = priced.batch_time / best_priced.batch_time - 1 if best_priced.batch_time > 0 else 0.0
    name = label(instance, solution)
    if slower <= 1e-12:
        reason = f"{name} is as fast, but uses more devices or stages, or comes later among equals"
    else:
        share = grown[worst] / best_priced.batch_time
        reason = f"{name} is {slower:.2%} slower: {_WORDS[worst]} takes {share:.2%} of the batch time more"
    return {
        "label": name,
        "batch_time": priced.batch_time,
        "slower_by": slower,
        "reason": reason,
    }
