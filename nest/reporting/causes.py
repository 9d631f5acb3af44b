"""Where the batch time of every stage goes."""

from collections.abc import Mapping

from nest.formulate.compute_alone import compute_alone
from nest.reporting.subject import Subject

TIME_CAUSES: Mapping[str, str] = {
    "compute": "compute",
    "collectives": "collectives inside layers",
    "recompute": "recomputation",
    "pipeline": "stage boundaries",
    "sharding": "ZeRO in every micro-batch",
    "ports": "waiting for ports",
    "sync": "gradients and update",
    "bubble": "bubble",
}
"""Causes of time in the order they are drawn, and what they are called."""


def time_causes(subject: Subject) -> tuple[dict[str, float], ...]:
    """Seconds of the batch by cause, for each stage; they add up to the batch time on every stage.

    Per micro-batch a stage computes, takes part in the collectives of its layers, runs again what was not kept,
    receives from its neighbours, takes part in ZeRO's communication and waits until its ports have sent all that hides
    (PROBLEM.md section 4); once per batch it
    reduces gradients and updates weights. In the rest, the bubble, it waits: for the pipeline to fill and drain, for
    slower stages, and for those whose gradients take longer. Of measured layers nobody knows the collectives, which
    are part of compute.
    """
    priced = subject.priced
    alone = {
        index: compute_alone(subject.formulation, index)
        for index in {stage.candidate for stage in subject.solution.stages}
    }
    found = []
    for decided, stage in zip(subject.solution.stages, priced.stages, strict=True):
        seconds = alone[decided.candidate]
        computing = stage.compute if seconds is None else float(seconds[list(decided.layers)].sum())
        # A model of layer times may deal them out so that rounding alone tells the two apart.
        computing = min(computing, stage.compute)
        count = priced.micro_batches
        causes = {
            "compute": count * computing,
            "collectives": count * (stage.compute - computing),
            "recompute": count * stage.recompute,
            "pipeline": count * (stage.arriving + stage.returning),
            "sharding": count * stage.sharding,
            "ports": count * stage.port_wait,
            "sync": stage.sync,
        }
        causes["bubble"] = max(priced.batch_time - sum(causes.values()), 0.0)
        found.append(causes)
    return tuple(found)
