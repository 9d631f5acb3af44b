"""Whether stages fit into a replica at all: where the first of them can start at the latest.

Blocks behind leave the more room the later they start, so the latest start of a downset's stages decides whether others
fit in front; the levels between them do not matter here.
"""

from collections.abc import Callable, Sequence

import numpy
from numpy.typing import NDArray

from nest.instance import Array
from nest.solve.dp.meter import Meter
from nest.solve.dp.mixed.recurrence import Member, State
from nest.solve.dp.mixed.tally import Tally
from nest.solve.dp.pairs import Rows

Allowed = Callable[[int, int], NDArray[numpy.bool_]]
"""Of a member and a stage number from the end, which of the member's stages may be used."""


def packable(
    members: Sequence[Member],
    stages: int,
    size: int,
    tally: Tally,
    downsets: int,
    allowed: Allowed,
    window: Callable[[int, int], Rows],
    meter: Meter,
) -> NDArray[numpy.bool_]:
    """For 1 to `stages` stages, whether the whole model fits into a replica of `size` devices.

    Args:
        members: what stages may use.
        stages: most stages.
        size: devices of a replica.
        tally: what the stages must add up to.
        downsets: number of downsets.
        allowed: which stages may be used.
        window: of a member and a stage number, the stages that can be part of a whole.
        meter: counts the work.
    """
    start = numpy.full(downsets, numpy.inf)
    start[0] = -float(size)
    starts: dict[State, Array] = {tally.start: start}  # The negative of the latest start; infinite: none.
    found = numpy.zeros(stages, dtype=bool)
    for stage in range(1, stages + 1):
        following: dict[State, Array] = {}
        for index, member in enumerate(members):
            rows = window(index, stage)
            if not len(rows):
                continue
            usable = allowed(index, stage)[rows.pairs]
            smaller = member.tables.pairs.smaller[rows.pairs]
            for state, behind in starts.items():
                after = tally.step(state, member.width)
                if after is None:
                    continue
                # The latest multiple of the width that leaves the block in front of those behind it.
                latest = numpy.ceil((behind[smaller] + member.width) / member.width) * member.width
                latest[~usable | (latest > 0)] = numpy.inf
                rows.lower(following.setdefault(after, numpy.full(downsets, numpy.inf)), latest)
                meter.count(len(rows))
        starts = following
        found[stage - 1] = any(tally.accepts(state) and numpy.isfinite(each[-1]) for state, each in starts.items())
    return found
