"""For verbs of bundled distributions: the registry they are called with, and a new start without what fails."""

from nest.api import INSTALLED, registered, restarted
from nest.hooks.calls import Guarded, message
from nest.hooks.loader import named_plugins

__all__ = ["INSTALLED", "Guarded", "message", "named_plugins", "registered", "restarted"]
