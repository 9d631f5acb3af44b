"""What a step of a plan costs: its devices, and what goes from one zone to another."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from nest.instance import Instance, Solution
from nest.plan.evaluate import PricedPlan
from nest.spec import ClusterSpec, Problem

SECONDS_AN_HOUR = 3600.0
GIGABYTE = 1e9
"""Bytes by which clouds charge what leaves a zone."""


def price_of_an_hour(cluster: ClusterSpec, summary: Mapping[str, Any]) -> float | None:
    """What an hour of the devices that a plan uses costs; None: nobody says of all of them.

    Args:
        cluster: as written.
        summary: of the plan.
    """
    if cluster.pools is None:
        return None if cluster.price is None else cluster.price * float(summary["devices_used"])
    prices, total = {each.name: each.price for each in cluster.pools}, 0.0
    for each in summary["pools"]:
        price, used = prices[each["name"]], each["devices_used"]
        if price is None and used:
            return None
        total += (price or 0.0) * used
    return total


def cost_of_a_step(
    problem: Problem, instance: Instance, solution: Solution, priced: PricedPlan, summary: Mapping[str, Any]
) -> dict[str, float] | None:
    """The `summary.cost` of a plan; None: nobody says what its devices cost.

    Returns:
        `step`: currency for an optimizer step; `egress`: what of that is paid for bytes that leave their pool, where
        something is; `token`: currency for a token, where the problem says how many there are.
    """
    hour = price_of_an_hour(problem.cluster, summary)
    if hour is None:
        return None
    cost = {"step": hour * priced.batch_time / SECONDS_AN_HOUR}
    if any(each.egress is not None for each in problem.cluster.between or ()):
        cost["egress"] = egress_of_a_step(problem.cluster, instance, solution, priced.micro_batches)
        cost["step"] += cost["egress"]
    if problem.training.sequence_length is not None:
        cost["token"] = cost["step"] / (problem.training.global_batch * problem.training.sequence_length)
    return cost


def egress_of_a_step(cluster: ClusterSpec, instance: Instance, solution: Solution, micro_batches: int) -> float:
    """Currency for the bytes of a step that leave their pool over a link that charges for them."""
    charged = {frozenset(each.pools): each.egress for each in cluster.between or () if each.egress is not None}
    if not charged:
        return 0.0
    sent = sent_between_pools(instance, solution, micro_batches)
    return sum(charged.get(pair, 0.0) * count / GIGABYTE for pair, count in sent.items())


def sent_between_pools(instance: Instance, solution: Solution, micro_batches: int) -> dict[frozenset[str], float]:
    """Bytes of a step that each two pools send each other, both ways, by their names; pairs without any are left out.

    Over the boundary behind a stage go the tensors that stages up to it make and later ones read; every device of the
    stage sends its candidate's bytes of each forward, and every device of the next stage its own of their gradients.
    """
    home = {layer: index for index, stage in enumerate(solution.stages) for layer in stage.layers}
    sent: dict[frozenset[str], float] = {}
    for behind, stages in enumerate(pairwise(solution.stages)):
        ends = [instance.candidates[stage.candidate] for stage in stages]
        pools = frozenset(str(each.pool) for each in ends)
        if len(pools) < 2:
            continue
        crossing = [
            index
            for index, (producer, consumers) in enumerate(instance.graph.tensors)
            if home[producer] <= behind < max((home[each] for each in consumers), default=-1)
        ]
        both = sum(end.width * float(end.tensor_bytes[crossing].sum()) for end in ends)
        sent[pools] = sent.get(pools, 0.0) + both * micro_batches * solution.replicas
    return sent
