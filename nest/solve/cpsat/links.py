"""What boundaries between stages may go over, numbered (PROBLEM.md sections 1, 3 and 8).

On a cluster the numbers are its levels. On pools they are the levels of each pool in turn, innermost first, and then
the links that join two of them.
"""

from itertools import combinations
from typing import Any

import numpy
from attrs import frozen

from nest.instance import Instance, Level, Link
from nest.solve.cpsat.cases import Case


@frozen(eq=False)
class Links:
    """The numbered links of a case.

    Attributes:
        every: the links.
        own: for each candidate that the case may use, the numbers of its levels, in order.
        between: of candidates whose pools are joined, in the order of the case, the number of the link.
    """

    every: tuple[Level | Link, ...]
    own: dict[int, range]
    between: dict[tuple[int, int], int]

    def seconds(self, size: Any, number: int) -> Any:
        """Seconds to send `size` bytes, elementwise (PROBLEM.md section 1, point to point)."""
        link, sizes = self.every[number], numpy.asarray(size)
        return numpy.where(sizes > 0, link.latency + sizes / link.bandwidth, 0.0)

    def outward(self, candidate: int) -> list[int]:
        """Numbers of the links that lead from the pool of a candidate to others."""
        return [number for ends, number in self.between.items() if candidate in ends]

    def numbers(self, candidate: int) -> set[int]:
        """Numbers of the links that boundaries of stages with a candidate may go over."""
        return {*self.own[candidate], *self.outward(candidate)}

    def level(self, candidate: int, number: int) -> int | None:
        """The level of a candidate's cluster; None: the link leads to another pool."""
        own = self.own[candidate]
        return number - own.start if number in own else None


def links_of(instance: Instance, case: Case) -> Links:
    """The links of a case."""
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
