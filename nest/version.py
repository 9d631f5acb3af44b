"""The version of this distribution, for whoever runs it from a folder nothing was installed from, too."""

from time import time_ns

__version__ = "0.1.0"

LOADED = time_ns()
"""When nest was loaded, nanoseconds since 1970."""
