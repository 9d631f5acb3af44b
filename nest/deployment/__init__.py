"""Plans in frameworks' terms: degrees, batches, layers of stages, and ranks of devices.

Belongs here: degrees, ranks, runs of layers and limits in a framework's terms. Does not: a framework's files.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nest.deployment.deployment import LANGUAGE_MODEL, MODEL_LEFT, Deployment, LaunchOptions, Reading, Run, deployment
from nest.deployment.limits import Limits, violations

if TYPE_CHECKING:
    from nest.deployment.ranks import MEGATRON_ORDER, Rank, rank_table
else:

    def __getattr__(name: str) -> Any:
        """Load rank tables on use: solving does not need them."""
        if name not in ("MEGATRON_ORDER", "Rank", "rank_table"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.ranks"), name)


__all__ = [
    "LANGUAGE_MODEL", "MEGATRON_ORDER", "MODEL_LEFT", "Deployment", "LaunchOptions", "Limits", "Rank",
    "Reading", "Run", "deployment", "rank_table", "violations",
]  # fmt: skip
