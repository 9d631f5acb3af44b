"""Where the batch time of every stage goes."""

from collections.abc import Mapping

from nest.report.evaluation import time_shares
from nest.reporting.subject import Subject

TIME_CAUSES: Mapping[str, str] = {
    "compute": "compute",
    "collectives": "collectives inside layers",
    "recompute": "recomputation",
    "pipeline": "stage boundaries",
    "sharding": "ZeRO in every micro-batch",
    "ports": "waiting for ports",
    "sync": "gradients and update",
    "bubble": "bubble: filling and draining",
    "waiting": "waiting for slower stages",
}
"""Causes of time in the order they are drawn, and what they are called."""


def time_causes(subject: Subject) -> tuple[dict[str, float], ...]:
    """Seconds of the batch by cause, for each stage; they add up to the batch time on every stage.

    Per micro-batch a stage computes, takes part in the collectives of its layers, runs again what was not kept,
    receives from its neighbours, takes part in ZeRO's communication and waits until its ports have sent all that hides
    (PROBLEM.md section 4); once per batch it
    reduces gradients and updates weights. In the rest it is idle: in the bubble, as long on every stage, while the
    pipeline fills and drains, and else for slower stages and for those whose gradients take longer. Of measured layers
    nobody knows the collectives, which are part of compute.
    """
    priced, found = subject.priced, []
    bubble = time_shares(priced)["bubble"]
    for stage in priced.stages:
        count = priced.micro_batches
        causes = {
            "compute": count * (stage.compute - stage.collectives),
            "collectives": count * stage.collectives,
            "recompute": count * stage.recompute,
            "pipeline": count * (stage.arriving + stage.returning),
            "sharding": count * stage.sharding,
            "ports": count * stage.port_wait,
            "sync": stage.sync,
        }
        idle = max(priced.batch_time - sum(causes.values()), 0.0)
        causes["bubble"] = min(max(bubble, 0.0), idle)
        causes["waiting"] = idle - causes["bubble"]
        found.append(causes)
    return tuple(found)
