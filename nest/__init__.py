"""nest plans the training of large models on clusters, and proves its plans optimal."""

# ruff: noqa: E402
from typing import TYPE_CHECKING, Any

from nest.cli import stop_at_once

stop_at_once()  # All else takes a while to load.

# These packages are loaded before the verbs of the same names are, so that no later import of a solver or a replay can
# put the package in the verb's place.
import nest.simulate
import nest.solve  # noqa: F401
from nest.api import check, evaluate, export, simulate, solve, verify
from nest.version import __version__

if TYPE_CHECKING:
    from nest_whatif.verbs import compare, explain, frontier, sensitivity

__all__ = [
    "__version__", "check", "compare", "evaluate", "explain", "export", "frontier", "sensitivity", "simulate",
    "solve", "verify",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """A verb of a bundled distribution, such as `nest.sweep` (entry points of the group `nest.verbs`)."""
    from nest.hooks.bundled import bundled_verb

    return bundled_verb(name)
