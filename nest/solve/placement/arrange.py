"""Placement of a plan's blocks on a network: good arrangements, improved by exchanging devices.

A heuristic; `nest_cpsat.placed_model` gives proofs on small networks.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations
from math import inf, prod

import numpy
from attrs import define, evolve, field

from nest.instance import Instance, NetworkModel, Placement, Solution
from nest.tolerances import AGREEMENT

MOST_EXCHANGES = 2_000
"""Exchanges tried in a search, at most a fifth of them for one plan; a wall-clock limit would make plans depend on the
machine. On a mesh of 64 devices one takes 5 ms."""

HOPEFUL, CLOSE = 1.1, 1.001
"""Factor over the best step time up to which a plan gets exchanges; factor over its bound at which they stop."""

MESSAGE = 2.0**20
"""Bytes of a message that defines near devices: at 50 GB/s they take 21 us, so that bandwidth decides."""


def device_orders(model: NetworkModel) -> tuple[tuple[int, ...], ...]:
    """Orders with near neighbours: by levels, and by nearest neighbours, without duplicates."""
    listed = tuple(range(len(model.names)))
    return tuple(dict.fromkeys((listed, _from_near_to_near(model))))


def _from_near_to_near(model: NetworkModel) -> tuple[int, ...]:
    """Nearest-neighbour order of the devices; ties go by number."""
    seconds = model.latency + MESSAGE / model.bandwidth
    left = numpy.ones(len(seconds), dtype=bool)
    order = [0]
    left[0] = False
    while left.any():
        row = numpy.where(left, seconds[order[-1]], inf)
        order.append(int(row.argmin()))
        left[order[-1]] = False
    return tuple(order)


def arrangements(replicas: int, widths: Sequence[int], orders: Sequence[Sequence[int]]) -> Iterator[Placement]:
    """Blocks along each order of the devices, in every order of replicas, stages and ranks, there and back.

    The fastest-varying dimension is nearest together: ranks of a block, stages of a pipeline, or replicas. Every other
    row may be reversed, so that row ends are near. Blocks of several widths stay whole.
    """
    if len(set(widths)) > 1:
        yield from _whole_blocks(replicas, widths, orders)
        return
    sizes = {"replica": replicas, "stage": len(widths), "rank": widths[0]}
    for order in orders:
        for nested in permutations(sizes):
            shape = [sizes[name] for name in nested]
            seats = numpy.array(order[: prod(shape)]).reshape(shape)
            for turned in (False, True):
                if turned:
                    seats = seats.copy()
                    seats[:, 1::2] = seats[:, 1::2, ::-1]
                    seats[1::2] = seats[1::2, ::-1]
                axes = [nested.index(name) for name in sizes]
                blocks = seats.transpose(axes).tolist()
                yield tuple(tuple(tuple(block) for block in replica) for replica in blocks)


def _whole_blocks(replicas: int, widths: Sequence[int], orders: Sequence[Sequence[int]]) -> Iterator[Placement]:
    """Blocks of several widths: replica by replica, and stage by stage."""
    firsts = numpy.cumsum([0, *widths]).tolist()
    for order in orders:
        rows = [order[replica * firsts[-1] :] for replica in range(replicas)]
        spans = list(pairwise(firsts))
        yield tuple(tuple(tuple(row[first:last]) for first, last in spans) for row in rows)
        starts = [[first * replicas + replica * (last - first) for first, last in spans] for replica in range(replicas)]
        yield tuple(
            tuple(tuple(order[start : start + width]) for start, width in zip(row, widths, strict=True))
            for row in starts
        )


@define
class Arranger:
    """Places plans on a network and keeps the results."""

    instance: Instance
    best: float = inf  # Least step time met, seconds.
    trials: int = MOST_EXCHANGES  # Exchanges left.
    _orders: tuple[tuple[int, ...], ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        assert self.instance.network is not None
        self._orders = device_orders(self.instance.network.model)

    def place(self, solution: Solution) -> tuple[Solution, float]:
        """Best placement found for the plan's blocks, and its time in seconds; an existing placement is tried, too."""
        assert self.instance.network is not None
        # On the level that nothing beats no placement of it is below this.
        bound = self.instance.network.price(evolve(self.instance, network=None), evolve(solution, placement=None))[0]
        widths = [self.instance.candidates[stage.candidate].width for stage in solution.stages]
        known = () if solution.placement is None else (solution.placement,)
        least, chosen = inf, None
        for placement in dict.fromkeys((*known, *arrangements(solution.replicas, widths, self._orders))):
            seconds = self.price(solution, placement)
            if seconds < least:
                least, chosen = seconds, placement
            if least <= bound * (1 + AGREEMENT):
                break
        assert chosen is not None
        if least <= self.best * HOPEFUL and least > bound * CLOSE:
            chosen, least = self._exchanged(solution, chosen, least, bound)
        self.best = min(self.best, least)
        return evolve(solution, placement=chosen), least

    def price(self, solution: Solution, placement: Placement) -> float:
        """Step time (s) with this placement."""
        assert self.instance.network is not None
        return self.instance.network.price(self.instance, evolve(solution, placement=placement))[0]

    def _exchanged(
        self, solution: Solution, placement: Placement, least: float, bound: float
    ) -> tuple[Placement, float]:
        """Improve a placement by exchanging two devices while that helps and trials are left."""
        trials, improving = min(MOST_EXCHANGES // 5, self.trials), True
        self.trials -= trials
        while improving and trials > 0:
            improving = False
            for swapped in _swaps(placement, len(self._orders[0])):
                trials -= 1
                seconds = self.price(solution, swapped)
                if seconds < least * (1 - AGREEMENT):
                    placement, least, improving = swapped, seconds, True
                    break
                if trials <= 0:
                    break
            if least <= bound * CLOSE:
                break
        self.trials += trials
        return placement, least


def _swaps(placement: Placement, devices: int) -> Iterator[Placement]:
    """Yield exchanges of two devices, at least one of them in use: with idle ones and those of other stages first."""
    seats = {
        device: (replica, stage)
        for replica, blocks in enumerate(placement)
        for stage, block in enumerate(blocks)
        for device in block
    }
    for one in sorted(seats):
        for two in range(devices):
            if two == one or (two in seats and two < one):
                continue
            other = {one: two, two: one}
            yield tuple(
                tuple(tuple(other.get(device, device) for device in block) for block in blocks) for blocks in placement
            )
