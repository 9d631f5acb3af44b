"""A plan as frameworks see it: degrees, batches, what each stage runs, and which rank is which device."""

from nest.deployment.deployment import LANGUAGE_MODEL, Deployment, LaunchOptions, Reading, Run, deployment
from nest.deployment.limits import Limits, violations
from nest.deployment.ranks import MEGATRON_ORDER, Rank, rank_table

__all__ = [
    "LANGUAGE_MODEL",
    "MEGATRON_ORDER",
    "Deployment",
    "LaunchOptions",
    "Limits",
    "Rank",
    "Reading",
    "Run",
    "deployment",
    "rank_table",
    "violations",
]
