"""Figures derived from a priced plan: shares of the batch time, utilisation, tokens per second."""

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from nest.instance import Instance, Solution
from nest.plan import PricedPlan
from nest.units import format_seconds

SHARE_NAMES = {
    "compute": "compute",
    "collectives": "collectives inside layers",
    "recompute": "recompute",
    "pipeline": "stage boundaries",
    "sharding": "ZeRO per micro-batch",
    "ports": "waiting for ports",
    "bubble": "bubble",
    "sync": "gradients and update",
}
"""What tables call the parts of the batch time (`time_shares`)."""


TOLD_FROM = 1e-3
"""Share of the batch time from which collectives inside layers are told one by one."""


def collectives_text(summary: Mapping[str, Any], batch_time: float) -> str:
    """What collectives inside layers take of a batch on the slowest stage, and what of it shows; empty: too little."""
    told = [
        f"{each['strategy']} over {each['level']} {format_seconds(each['seconds'])}, {_shown(each)}"
        for each in summary.get("collectives", ())
        if each["seconds"] > TOLD_FROM * batch_time
    ]
    return f"Collectives inside layers: {'; '.join(told)}" if told else ""


def _shown(each: Mapping[str, Any]) -> str:
    """What of a collective's seconds a framework does not hide."""
    share = each["shown"] / each["seconds"]
    if share < TOLD_FROM:
        return "none of it shown"
    return "all of it shown" if share > 1 - TOLD_FROM else f"{share:.0%} of it shown"


@frozen
class ModelFacts:
    """What is known of the model beside its layers' costs.

    Attributes:
        sequence_length: tokens per sample.
        flops_per_token: forward model FLOP per token (`nest models` prints the convention).
        peak: matrix peak of a device at the precision trained in, FLOP per second.
    """

    sequence_length: int
    flops_per_token: float
    peak: float


def time_shares(priced: PricedPlan) -> dict[str, float]:
    """Where the batch time goes, seconds; the parts add up to it.

    The slowest stage works on `M` micro-batches, which `compute`, `collectives` (what shows of those inside layers),
    `recompute`, `pipeline` (its boundaries), `sharding` (ZeRO communication in every micro-batch) and `ports` (what its
    busiest port needs beyond these) share. `bubble` is what the schedule adds to that, `sync` is the longest gradient
    reduction and optimizer step (PROBLEM.md section 4). Collectives that run again are part of `recompute`, those of
    layers that were measured whole are part of `compute`.
    """
    slowest = max(priced.stages, key=lambda stage: stage.time)
    count = priced.micro_batches
    parts = {
        "compute": count * (slowest.compute - slowest.collectives),
        "collectives": count * slowest.collectives,
        "recompute": count * slowest.recompute,
        "pipeline": count * (slowest.arriving + slowest.returning),
        "sharding": count * slowest.sharding,
        "ports": count * slowest.port_wait,
    }
    parts["bubble"] = priced.batch_time - priced.sync - sum(parts.values())
    parts["sync"] = priced.sync
    return parts


def figures(instance: Instance, solution: Solution, priced: PricedPlan, facts: ModelFacts | None) -> dict[str, Any]:
    """The `summary` of a plan document.

    Tokens per second are counted per device the plan uses. Model FLOP utilisation takes the backward pass as twice
    the forward and leaves recomputation out (PaLM, arXiv 2204.02311, appendix B).
    """
    used = solution.replicas * sum(stage.width for stage in priced.stages)
    found: dict[str, Any] = {
        "devices": instance.cluster.size,
        "devices_used": used,
        "idle_share": priced.idle_share,
        "time_shares": time_shares(priced),
        "memory_capacity": priced.device_memory,
    }
    if facts is not None and priced.batch_time > 0:
        tokens = instance.space.global_batch * facts.sequence_length / priced.batch_time
        found["tokens_per_second"] = tokens
        found["tokens_per_second_per_device"] = tokens / used
        found["model_flops_utilisation"] = 3 * facts.flops_per_token * tokens / (used * facts.peak)
    return found
