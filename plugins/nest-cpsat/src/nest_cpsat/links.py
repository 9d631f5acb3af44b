"""Numbered links between stages (PROBLEM.md sections 1, 3 and 8).

On a cluster the numbers are its levels. On pools they are the levels of each pool in turn, innermost first, then the
links between pools.
"""

from itertools import combinations
from typing import Any

import numpy
from attrs import frozen

from nest.instance import Instance, Level, Link
from nest_cpsat.cases import Case


@frozen(eq=False)
class Links:
    """Numbered links (`every`) of a case."""

    every: tuple[Level | Link, ...]
    own: dict[int, range]  # For each candidate, the numbers of its levels in order.
    # For candidates with linked pools, in the order of the case, the number of the link.
    between: dict[tuple[int, int], int]

    def seconds(self, size: Any, number: int) -> Any:
        """Seconds to send `size` bytes, elementwise (PROBLEM.md section 1, point to point)."""
        link, sizes = self.every[number], numpy.asarray(size)
        return numpy.where(sizes > 0, link.latency + sizes / link.bandwidth, 0.0)

    def outward(self, candidate: int) -> list[int]:
        """Numbers of the links from a candidate's pool to others."""
        return [number for ends, number in self.between.items() if candidate in ends]

    def numbers(self, candidate: int) -> set[int]:
        """Numbers of the links at boundaries of stages with a candidate."""
        return {*self.own[candidate], *self.outward(candidate)}

    def level(self, candidate: int, number: int) -> int | None:
        """Level in a candidate's cluster; None: a link to another pool."""
        own = self.own[candidate]
        return number - own.start if number in own else None


def links_of(instance: Instance, case: Case) -> Links:
    """Links of a case."""
    if instance.pools is None:
        levels = instance.cluster.levels
        return Links(levels, dict.fromkeys(range(len(instance.candidates)), range(len(levels))), {})
    every: list[Level | Link] = []
    own, between = {}, {}
    for candidate in case.candidates:
        levels = instance.cluster_of(candidate).levels
        own[candidate] = range(len(every), len(every) + len(levels))
        every += levels
    for pair in combinations(case.candidates, 2):
        link = instance.pools.link(*map(instance.pool_of, pair))
        if link is not None:
            between[pair] = len(every)
            every.append(link)
    return Links(tuple(every), own, between)
