"""Stages that all recompute the same number of first blocks: how many a model needs at least."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from nest.instance import Array, Partial
from nest.solve.dp.parts import PartModes
from nest.solve.dp.sums import CandidateSums
from nest.tolerances import LIMIT_SLACK

MOST_LIMITS = 1e6
"""Most limits that a whole chain may sum to. Differences of its sums then err by four roundings, each at most 2**-53 of
that, below half of `LIMIT_SLACK` of one limit. Longer chains get no answer."""


class FirstBlocks(NamedTuple):
    """Possible numbers of first blocks of stages of a chain in one mode, the others being in a lighter one.

    Sums are over the layers of the chain, the model's last layer first, of shape `(layers + 1,)`.
    """

    # Seconds of recomputation, bytes of one micro-batch in flight and of each further one, in the one mode.
    heavy: Sequence[Array]
    light: Sequence[Array]  # Same in the other mode.
    place: NDArray[numpy.int32]  # Layers of each downset. Shape `(downsets,)`.
    touched: NDArray[numpy.int64]  # Blocks of which each downset holds a part. Shape `(downsets,)`.
    numbers: Sequence[int]  # Of first blocks, ascending.
    # Layers behind the first blocks, by number of blocks and of layers. Shape `(numbers, layers + 1)`.
    behind: NDArray[numpy.int32]

    def fewest(
        self, beside: tuple[Array, Array, Array], in_flight: Sequence[float], time_limit: float, room: float
    ) -> NDArray[numpy.int64]:
        """Least stages for each number of first blocks, as `nest.solve.dp.bounds.fewest_stages`. Shape `(numbers,)`.

        A stage that ends at a cut may begin later: its recomputed blocks stay the first ones. So if each stage, from
        the last, reaches as far as it can, the least is left to earlier stages. The result is `len(in_flight) + 1` if
        too few.

        Args:
            beside: by downset, seconds of compute and bytes of state, sharded as far as possible; and transient bytes
                of the layers up to the next, the least of both modes.
            in_flight: micro-batches in flight of stage `j` from the end, at index `j - 1`.
            time_limit: most seconds of a stage per micro-batch.
            room: most bytes of a stage.
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
        """True if differences of the sums are precise enough for the limits."""
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
        """Last possible end of the stage behind each of `starts`; the start itself if there is none."""
        compute, state, peak = beside
        longest = compute.searchsorted(compute[starts.max()] + time_limit, side="right")
        ends = numpy.arange(int(starts.min()) + 1, int(longest))
        begun, begin = self.place[ends], self.place[starts][:, None]
        # Where the first blocks of each stage end, and its others begin.
        middle = numpy.maximum(self.behind[numbers[:, None], begun], begin)

        def between(beside: Array, heavy: Array, light: Array) -> Array:
            """Sums over all stages. Shape `(starts, ends)`."""
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
    """First blocks of partial modes of one pair; None if downsets branch."""
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
