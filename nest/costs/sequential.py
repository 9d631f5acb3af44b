"""One operator after the other: a layer takes as long as all of its operators together."""

from collections.abc import Sequence
from math import fsum


class Sequential:
    """The sum, whatever the engines."""

    name = "sequential"

    def seconds(
        self, durations: Sequence[float], engines: Sequence[str], precedence: Sequence[tuple[int, int]]
    ) -> float:
        """Seconds of the operators together, rounded once: names and order change nothing."""
        return fsum(durations)
