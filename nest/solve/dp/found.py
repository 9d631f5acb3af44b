"""Plans a search met."""

import sys

from attrs import frozen

from nest.instance import Solution

Kind = tuple[tuple[int, ...], int, int]
"""What tells plans apart for people: candidates, replicas, number of stages."""

Rank = tuple[int, ...]
"""Order among equally fast plans: devices, stages, then the documented order of configurations."""

FIRST: Rank = ()
"""Ahead of every rank that a search gives."""

LAST: Rank = (sys.maxsize,)
"""Behind every rank that a search gives."""


@frozen
class Found:
    """A plan the search priced.

    Attributes:
        value: batch time, seconds.
        rank: where it stands among equals.
        solution: its decisions.
    """

    value: float
    rank: Rank
    solution: Solution

    @property
    def kind(self) -> Kind:
        """Its candidates, replicas and number of stages."""
        stages = self.solution.stages
        return tuple(sorted({stage.candidate for stage in stages})), self.solution.replicas, len(stages)
