"""Where the blocks of a plan may lie on a network: good arrangements, and exchanges of devices that improve them.

Nothing here proves anything: `nest.solve.cpsat.placed_model` does, on networks small enough.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations
from math import inf, prod

import numpy
from attrs import define, evolve, field

from nest.instance import Instance, NetworkModel, Placement, Solution
from nest.tolerances import AGREEMENT

MOST_EXCHANGES = 2_000
"""Exchanges tried in a search, a fifth of them at most for one plan; a limit by the clock would make plans depend on
the machine. On a mesh of 64 devices one takes 5 ms."""

HOPEFUL, CLOSE = 1.1, 1.001
"""Times the best step time, up to which a plan as arranged is worth exchanges; and times its bound, from which on."""

MESSAGE = 2.0**20
"""Bytes by which near devices are told: at 50 GB/s they take 21 us, so that bandwidth decides."""


def device_orders(model: NetworkModel) -> tuple[tuple[int, ...], ...]:
    """Orders in which neighbours are near: as the levels have the devices, and from near to near, each once."""
    listed = tuple(range(len(model.names)))
    return tuple(dict.fromkeys((listed, _from_near_to_near(model))))


def _from_near_to_near(model: NetworkModel) -> tuple[int, ...]:
    """Each device followed by the nearest that is left, first by what it is itself near to, then by number."""
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

    What varies fastest lies nearest together: ranks of a block, stages of a pipeline, or replicas, which are what
    gradients are reduced over. Every other row may turn round, so that the ends of rows are near. Blocks of several
    widths stay whole.
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
    """Blocks of several widths: replica after replica, and stage after stage."""
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
    """Places plans on a network and keeps what it found.

    Attributes:
        instance: with the network.
        best: the least step time met, seconds.
        trials: exchanges left.
    """

    instance: Instance
    best: float = inf
    trials: int = MOST_EXCHANGES
    _orders: tuple[tuple[int, ...], ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        assert self.instance.network is not None
        self._orders = device_orders(self.instance.network.model)

    def place(self, solution: Solution) -> tuple[Solution, float]:
        """The plan with its blocks where they take least time of what is tried, and that time, seconds.

        Where it is placed already, that placement is one of those tried.
        """
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
        """Seconds per step with blocks there."""
        assert self.instance.network is not None
        return self.instance.network.price(self.instance, evolve(solution, placement=placement))[0]

    def _exchanged(
        self, solution: Solution, placement: Placement, least: float, bound: float
    ) -> tuple[Placement, float]:
        """The placement, or what exchanges of two devices make of it: as long as one pays, or trials are left."""
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
    """The placement with two devices exchanged, one of which is used: idle ones and those of other stages first."""
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
