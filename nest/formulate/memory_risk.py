"""How much more memory than estimated a plan is taken to need (`training.memory_risk`, `training.memory_margin`)."""

from nest.instance import Cluster
from nest.spec import Problem

RISK = 0.5
"""The share of launches that one accepts to run out of memory, where nobody says (`training.memory_risk`).

A launch that fails costs minutes, and the next plan is at hand; a plan that is slower than the one that would have fit
costs its share of the whole training (docs/explanation/cost-model.md, "How sure memory is")."""


def with_memory_risk(cluster: Cluster, problem: Problem) -> Cluster:
    """`cluster`, whose stages must stay under what the memory risk that the problem accepts leaves them.

    Candidates of a profile state their bytes: they are exact unless a margin is written.

    Args:
        cluster: with the error of estimates (`nest.formulate.cluster_calibration.as_measured`).
        problem: as written.
    """
    margin, risk = problem.training.memory_margin, accepted_risk(problem)
    if margin is None:
        margin = 0.0 if cluster.error is None or risk is None else cluster.error.factor(risk) - 1
    return cluster.with_margin(margin)


def accepted_risk(problem: Problem) -> float | None:
    """The share of launches that may run out of memory; None: a margin, or a profile's bytes, decide what fits."""
    if problem.model is None or problem.training.memory_margin is not None:
        return None
    return RISK if problem.training.memory_risk is None else problem.training.memory_risk
