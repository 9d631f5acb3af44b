"""Stages that all recompute as many of their first blocks: how many of them a model needs at least."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from nest.instance import Array, Partial
from nest.solve.dp.parts import PartModes
from nest.solve.dp.sums import CandidateSums
from nest.tolerances import LIMIT_SLACK

MOST_LIMITS = 1e6
"""Limits that a whole chain may add up to: differences of its sums are then wrong by four roundings, each of 2**-53 of
so many limits at most, which is less than half of `LIMIT_SLACK` of one limit. Of a longer chain nothing is said."""


class FirstBlocks(NamedTuple):
    """The numbers of first blocks that stages of a chain may have in one mode, the others being in a lighter one.

    Sums are over the layers of the chain, the last layer of the model first, arrays of shape `(layers + 1,)`.

    Attributes:
        heavy: seconds that run again, bytes of one micro-batch in flight and of each further one, in the one mode.
        light: the same in the other mode.
        place: how many layers each downset has. Shape `(downsets,)`.
        touched: how many blocks each downset holds a part of. Shape `(downsets,)`.
        numbers: of first blocks, ascending.
        behind: for each of them and each number of layers, how many of those lie behind the first blocks. Shape
            `(numbers, layers + 1)`.
    """

    heavy: Sequence[Array]
    light: Sequence[Array]
    place: NDArray[numpy.int32]
    touched: NDArray[numpy.int64]
    numbers: Sequence[int]
    behind: NDArray[numpy.int32]

    def fewest(
        self, beside: tuple[Array, Array, Array], in_flight: Sequence[float], time_limit: float, room: float
    ) -> NDArray[numpy.int64]:
        """Stages that are needed at least with each number of first blocks, as `nest.solve.dp.bounds.fewest_stages`.

        A stage that ends at a cut can also begin later: the blocks that it recomputes stay the first ones. So stages
        that, from the last one on, reach as far as they can leave no more to those in front.

        Args:
            beside: of each downset seconds that are computed, and bytes of state, sharded as far as it may be; and
                transient bytes of the layers between it and the next, in either mode at least.
            in_flight: micro-batches in flight of stage `j` from the end, at index `j - 1`.
            time_limit: most seconds a stage may take per micro-batch.
            room: most bytes it may take.

        Returns:
            Stages, shape `(numbers,)`; one more than `in_flight` has where so many do not do.
        """
        whole, most = len(self.place) - 1, len(in_flight)
        if not self._tells(beside, max(in_flight), time_limit, room):
            return numpy.ones(len(self.behind), dtype=numpy.int64)
        time_limit, room = time_limit * (1 + LIMIT_SLACK), room * (1 + LIMIT_SLACK)
        # As many first blocks as stages have time for are all of them.
        seconds = beside[0] + self.light[0][self.place]
        longest = seconds.searchsorted(seconds + time_limit, side="right") - 1
        blocks = int((self.touched[longest] - self.touched).max()) + 1
        told_apart = min(int(numpy.searchsorted(self.numbers, blocks)) + 1, len(self.numbers))
        fewest = numpy.full(told_apart, most + 1)
        numbers, starts = numpy.arange(told_apart), numpy.zeros(told_apart, dtype=numpy.int64)
        for index, flying in enumerate(in_flight):
            ends = self._ends(beside, numbers, starts, flying - 1, time_limit, room)
            fewest[numbers[ends == whole]] = index + 1
            # No stage further in front can hold what the one with the fewest micro-batches in flight cannot.
            goes_on = (ends < whole) & ((ends > starts) | (flying > min(in_flight[index:])))
            goes_on &= seconds[-1] - seconds[ends] <= (most - index - 1) * time_limit * (1 + LIMIT_SLACK)
            numbers, starts = numbers[goes_on], ends[goes_on]
            if not len(numbers):
                break
        return fewest[numpy.minimum(numpy.arange(len(self.numbers)), told_apart - 1)]

    def _tells(self, beside: tuple[Array, Array, Array], in_flight: float, time_limit: float, room: float) -> bool:
        """Whether differences of the sums are as good as the limits ask for."""
        compute, state, _ = beside
        seconds = compute[-1] + max(self.heavy[0][-1], self.light[0][-1])
        held = state[-1] + max(each[1][-1] + (in_flight - 1) * each[2][-1] for each in (self.heavy, self.light))
        return bool(seconds <= MOST_LIMITS * time_limit and held <= MOST_LIMITS * room and numpy.isfinite(held))

    def _ends(
        self,
        beside: tuple[Array, Array, Array],
        numbers: NDArray[numpy.int64],
        starts: NDArray[numpy.int64],
        further: float,
        time_limit: float,
        room: float,
    ) -> NDArray[numpy.int64]:
        """The last downset at which the stage behind each of `starts` may end; the start itself where none is."""
        compute, state, peak = beside
        longest = compute.searchsorted(compute[starts.max()] + time_limit, side="right")
        ends = numpy.arange(int(starts.min()) + 1, int(longest))
        begun, begin = self.place[ends], self.place[starts][:, None]
        # Where the first blocks of each stage end, and its others begin.
        middle = numpy.maximum(self.behind[numbers[:, None], begun], begin)

        def between(beside: Array, heavy: Array, light: Array) -> Array:
            """Sums over all stages, shape `(starts, ends)`."""
            front, rear = beside[ends] + heavy[begun], beside[starts][:, None] + light[begin]
            total: Array = front - rear + (light - heavy)[middle]
            return total

        heavy, light = (each[1] + further * each[2] for each in (self.heavy, self.light))
        behind = ends > starts[:, None]
        held = between(state, heavy, light)
        held += numpy.maximum.accumulate(numpy.where(behind, peak[ends - 1], 0.0), axis=1)
        fits = behind & (between(compute, self.heavy[0], self.light[0]) <= time_limit) & (held <= room)
        found: NDArray[numpy.int64] = numpy.where(fits, ends, starts[:, None]).max(axis=1, initial=0)
        return numpy.maximum(found, starts)


def first_blocks(sums: CandidateSums, numbers: Sequence[Partial]) -> FirstBlocks | None:
    """Those of parts of the same two modes; None where downsets branch."""
    modes = sums.modes
    assert isinstance(modes, PartModes)
    along = modes.along(numbers[0])
    if along is None:
        return None
    split, sums_of_modes = along
    heavy, light = zip(*sums_of_modes, strict=True)
    counts = [each.layers for each in numbers]
    touched, behind = split.touched[split.place], numpy.array([split.behind(count) for count in counts])
    return FirstBlocks(heavy, light, split.place, touched, counts, behind)
