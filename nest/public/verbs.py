"""For verbs of bundled distributions: the registry they are called with, and a new start without what fails."""

from nest.api import INSTALLED, evaluate, registered, restarted, solve
from nest.hooks.calls import Guarded, message
from nest.hooks.loader import named_plugins

__all__ = [
    "INSTALLED", "Guarded", "evaluate", "message", "named_plugins", "registered", "restarted", "solve",
]  # fmt: skip
