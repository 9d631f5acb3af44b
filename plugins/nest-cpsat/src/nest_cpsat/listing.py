"""Cuts of plans below some step time, listed by boundary if few.

A graph may have millions of cuts of which a few hundred keep the limits of a boundary (`boundaries.py`): few sets have
the right share of the work behind them and little data across.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy
from attrs import define, field, frozen

from nest.instance import Instance, Solution
from nest.solve.inseparable import homes
from nest.tolerances import LIMIT_SLACK
from nest_cpsat.boundaries import Limits
from nest_cpsat.cases import Case
from nest_cpsat.cuts import Booleans, Cuts, Floats, Integers, inseparable_layers
from nest_cpsat.least_costs import LeastCosts

MOST_WORK = 4e8  # Most numbers to examine for one boundary's cuts: some seconds.
MOST_CUTS = 60_000  # Most cuts of one boundary for which stages to the next are listed.
MOST_COMPARED = 1e11  # Most layers to compare between two boundaries: some seconds.
BLOCK = 2**22  # Pairs of cuts compared at once: some 50 MB.
MOST_STAGE_LAYERS = 2e7  # Most layers of all stages together for pricing: 160 MB.


@define(eq=False)
class Listing:
    """Lists of cuts of an instance."""

    instance: Instance
    _groups: list[list[int]] = field(init=False)
    _order: list[int] = field(init=False)
    _readers: list[list[int]] = field(init=False)
    _before: Booleans = field(init=False)

    def __attrs_post_init__(self) -> None:
        members: dict[int, list[int]] = {}
        home = homes(self.instance.graph, inseparable_layers(self.instance))
        for layer, first in enumerate(home):
            members.setdefault(first, []).append(layer)
        number = {first: index for index, first in enumerate(members)}
        self._groups = list(members.values())
        readers: list[set[int]] = [set() for _ in self._groups]
        for producer, consumers in self.instance.graph.tensors:
            here = number[home[producer]]
            readers[here].update(number[home[each]] for each in consumers if number[home[each]] != here)
        self._readers = [sorted(each) for each in readers]
        self._order, self._before = _order(self._readers)

    def cuts(
        self, costs: LeastCosts, case: Case, limits: Limits, near: tuple[Solution, int] | None = None
    ) -> Cuts | None:
        """Cuts and stages of all plans within the limits; None: too many, or their costs are unknown.

        Each boundary has its own cuts, boundary 0 first, even if equal to another's.

        Args:
            near: a plan with as many stages, and the number of layers in a row that may change sides; None: all may.
        """
        space = self.instance.space
        if space.direct or space.even or space.partition is not None:
            return None
        layers = len(self.instance.graph.layers)
        rows: list[Booleans] = [numpy.ones((1, layers), dtype=bool)]
        for boundary in range(1, case.stages):
            fixed = None if near is None else self._fixed(near[0], boundary, near[1])
            listed = self._boundary(costs, limits, boundary, fixed)
            if listed is None or len(listed) > MOST_CUTS:
                return None
            rows.append(listed)
        rows.append(numpy.zeros((1, layers), dtype=bool))
        return _stages_between(self._crossing_seconds(costs, rows), costs, rows, limits)

    def _fixed(self, solution: Solution, boundary: int, reach: int) -> tuple[Booleans, Booleans]:
        """Groups of layers far from a plan's boundary, which stay behind it or before it."""
        after = {layer for stage in solution.stages[boundary:] for layer in stage.layers}
        behind = numpy.array([group[0] in after for group in self._groups], dtype=bool)
        makers: list[list[int]] = [[] for _ in self._groups]
        for maker, readers in enumerate(self._readers):
            for reader in readers:
                makers[reader].append(maker)
        stays = []
        for side, neighbours in ((behind, makers), (~behind, self._readers)):
            # Layers on this side from which so few steps lead across.
            close = numpy.zeros(len(behind), dtype=bool)
            for _ in range(reach):
                crossing = close | ~side
                close |= side & numpy.array([any(crossing[each] for each in own) for own in neighbours], dtype=bool)
            stays.append(side & ~close)
        return stays[0], stays[1]

    def _boundary(
        self, costs: LeastCosts, limits: Limits, boundary: int, fixed: tuple[Booleans, Booleans] | None
    ) -> Booleans | None:
        """Cuts within the limits of a boundary, by layer; None: too many partial cuts.

        Layers are decided in turn, readers first; `fixed` has the groups that stay behind and those that stay before.
        """
        count = len(self._groups)
        each = numpy.array([[values[group].sum() for group in self._groups] for values in (costs.work, costs.held)])
        slack = costs.total * LIMIT_SLACK
        behind_limit = limits.behind[boundary] + limits.least[boundary] + slack
        front_limit = limits.front[boundary] + limits.least[boundary] + slack
        most = limits.most[boundary] + slack
        behind, front = numpy.zeros((1, count), dtype=bool), numpy.zeros((1, count), dtype=bool)
        rooms = numpy.array([costs.rooms[boundary:].sum(), costs.rooms[:boundary].sum()]) * (1 + LIMIT_SLACK)
        # Rows of numbers for each cut begun: seconds that cross, that layers behind take, and those in front; and bytes
        # of the layers behind, and of those in front.
        sums = numpy.zeros((5, 1))
        limit = numpy.array([[most], [behind_limit], [front_limit], [rooms[0]], [rooms[1]]])
        pays = numpy.array([[0.0], [1.0], [1.0], [0.0], [0.0]])
        tensors, looked = self._tensors(costs.sends(boundary)), 0
        for layer in self._order:
            free, ahead = numpy.flatnonzero(~front[:, layer]), numpy.flatnonzero(self._before[layer])
            free = free[:0] if fixed is not None and fixed[1][layer] else free
            taken, left, added = behind[free], front[free], sums[:, free]
            taken[:, layer] = True
            added[[1, 3]] += each[:, [layer]]
            if fixed is not None and fixed[0][layer]:
                behind, front, sums = behind[:0], front[:0], sums[:, :0]
            sums[[2, 4]] += each[:, ahead] @ ~front[:, ahead].T
            front[:, ahead] = True
            behind, front = numpy.concatenate([taken, behind]), numpy.concatenate([left, front])
            sums = numpy.concatenate([added, sums], axis=1)
            for size, readers in tensors[layer]:
                out = numpy.flatnonzero(~behind[:, layer] & behind[:, readers].any(axis=1))
                sums[0, out] += size
            within = (sums + sums[0] * pays <= limit).all(axis=0)
            behind, front, sums = behind[within], front[within], sums[:, within]
            looked += behind.size
            if looked > MOST_WORK:
                return None
        behind = behind[behind.any(axis=1) & ~behind.all(axis=1)]
        rows = numpy.zeros((len(behind), len(self.instance.graph.layers)), dtype=bool)
        for index, group in enumerate(self._groups):
            rows[:, group] = behind[:, [index]]
        return rows

    def _tensors(self, sends: Floats) -> list[list[tuple[float, list[int]]]]:
        """For each group of layers, its tensors: seconds to send each, and the groups that read it."""
        number = {layer: index for index, group in enumerate(self._groups) for layer in group}
        tensors: list[list[tuple[float, list[int]]]] = [[] for _ in self._groups]
        for (producer, consumers), size in zip(self.instance.graph.tensors, sends.tolist(), strict=True):
            readers = sorted({number[each] for each in consumers} - {number[producer]})
            if size > 0 and readers:
                tensors[number[producer]].append((size, readers))
        return tensors

    def _crossing_seconds(self, costs: LeastCosts, rows: Sequence[Booleans]) -> list[Floats]:
        """Lower bound (s) on each cut's transfer on one side."""
        every = []
        for boundary, behind in enumerate(rows):
            seconds, sends = numpy.zeros(len(behind)), costs.sends(boundary).tolist()
            for (producer, consumers), size in zip(self.instance.graph.tensors, sends, strict=True):
                if size > 0 and consumers:
                    seconds += size * (~behind[:, producer] & behind[:, list(consumers)].any(axis=1))
            every.append(seconds + costs.latency[boundary] * (seconds > 0))
        return every


@frozen(eq=False)
class _Pairs:
    """Pairs of cuts of neighbouring boundaries that enclose a stage, as indices into their lists."""

    first: Integers
    last: Integers


def _stages_between(
    crossing: Sequence[Floats], costs: LeastCosts, rows: Sequence[Booleans], limits: Limits
) -> Cuts | None:
    """Stages between neighbouring boundaries within the limit on the slowest; None: too many."""
    pairs: list[_Pairs] = []
    work, held = ([behind @ values for behind in rows] for values in (costs.work, costs.held))
    limit = limits.slowest + costs.total * LIMIT_SLACK
    reached, stages = numpy.zeros(1, dtype=numpy.int64), 0
    for index in range(len(rows) - 1):
        ahead, after = rows[index][reached], rows[index + 1]
        if len(ahead) * after.size > MOST_COMPARED:
            return None
        # Differences of sums have lost no more than a share of the whole.
        room = costs.rooms[index] + float(held[0][0]) * LIMIT_SLACK
        longest = (work[index] + crossing[index])[reached]
        shortest = work[index + 1] - crossing[index + 1]
        inside = after.T.astype(numpy.float32)
        size, block = after.sum(axis=1), max(BLOCK // max(len(after), 1), 1)
        found = []
        for start in range(0, len(ahead), block):
            own = ahead[start : start + block]
            bytes_held = held[index][reached[start : start + block], None] - held[index + 1][None, :]
            inner = (longest[start : start + block, None] - shortest[None, :] <= limit) & (bytes_held <= room)
            inner &= (own.astype(numpy.float32) @ inside == size) & (own.sum(axis=1)[:, None] > size)
            found.append(numpy.argwhere(inner) + numpy.array([[start, 0]]))
            stages += len(found[-1])
            if stages * after.shape[1] > MOST_STAGE_LAYERS:
                return None
        first, last = numpy.concatenate(found or [numpy.zeros((0, 2), dtype=numpy.int64)]).T
        pairs.append(_Pairs(reached[first], last))
        reached = numpy.unique(last)
    _leave_dead_ends_out(pairs, [len(each) for each in rows])
    starts = numpy.cumsum([0, *(len(each) for each in rows)])
    return Cuts(
        numpy.concatenate(rows),
        numpy.concatenate([each.first + starts[index] for index, each in enumerate(pairs)]),
        numpy.concatenate([each.last + starts[index + 1] for index, each in enumerate(pairs)]),
    )


def _leave_dead_ends_out(pairs: list[_Pairs], counts: Sequence[int]) -> None:
    """Keep only stages that lead from the first cut to the last."""
    reached = numpy.ones(counts[0], dtype=bool)
    for index, each in enumerate(pairs):
        kept = reached[each.first]
        pairs[index] = _Pairs(each.first[kept], each.last[kept])
        reached = numpy.zeros(counts[index + 1], dtype=bool)
        reached[pairs[index].last] = True
    reached = numpy.ones(counts[-1], dtype=bool)
    for index in reversed(range(len(pairs))):
        each = pairs[index]
        kept = reached[each.last]
        pairs[index] = _Pairs(each.first[kept], each.last[kept])
        reached = numpy.zeros(counts[index], dtype=bool)
        reached[pairs[index].first] = True


def _order(readers: Sequence[Sequence[int]]) -> tuple[list[int], Booleans]:
    """Order of groups with readers first, branch by branch; and for each group, itself and its ancestors.

    Raises:
        ValueError: cyclic groups.
    """
    count = len(readers)
    waiting = [len(each) for each in readers]
    makers: list[list[int]] = [[] for _ in readers]
    for maker, each in enumerate(readers):
        for reader in each:
            makers[reader].append(maker)
    free = [group for group in range(count) if waiting[group] == 0]
    order: list[int] = []
    while free:
        group = free.pop()
        order.append(group)
        for maker in makers[group]:
            waiting[maker] -= 1
            if waiting[maker] == 0:
                free.append(maker)
    if len(order) < count:
        raise ValueError("groups of layers kept together depend on each other both ways")
    before = numpy.zeros((count, count), dtype=bool)
    for group in reversed(order):
        before[group, group] = True
        for maker in makers[group]:
            before[group] |= before[maker]
    return order, before
