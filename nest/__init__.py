"""nest plans the training of large models on clusters, and proves its plans optimal."""

# ruff: noqa: E402
from nest.cli import stop_at_once

stop_at_once()  # All else takes a while to load.

# These packages are loaded before the verbs of the same names are, so that no later import of a solver or a replay can
# put the package in the verb's place.
import nest.simulate
import nest.solve  # noqa: F401
from nest.api import (
    check,
    compare,
    evaluate,
    explain,
    export,
    frontier,
    recommend,
    report_page,
    sensitivity,
    simulate,
    solve,
    study_page,
    sweep,
    verify,
)
from nest.version import __version__

__all__ = [
    "__version__",
    "check",
    "compare",
    "evaluate",
    "explain",
    "export",
    "frontier",
    "recommend",
    "report_page",
    "sensitivity",
    "simulate",
    "solve",
    "study_page",
    "sweep",
    "verify",
]
