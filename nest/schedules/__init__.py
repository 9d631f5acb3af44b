"""Built-in pipeline schedules, a file for a kind: their `weights` give the bubble (PROBLEM.md section 4).

Belongs here: weights, orders and moments. Does not: the replay.

A new schedule is a file with the members of `nest.instance.schedule.Schedule`, a line in the list below, a test in
`tests/schedules`, and its name in the limits of the exporters whose frameworks run it.
"""

from nest.hooks.protocols import Schedule
from nest.hooks.spec import hook


@hook
def nest_schedules() -> list[Schedule]:
    """Return the schedules nest knows without plug-ins, the default first."""
    from nest.schedules.dualpipe import DualPipe, DualPipeV
    from nest.schedules.gpipe import GPipe
    from nest.schedules.interleaved import Interleaved
    from nest.schedules.one_forward_one_backward import NestBound, OneForwardOneBackward
    from nest.schedules.zero_bubble import ZBV, InterleavedZeroBubble, ZeroBubble, ZeroBubbleH2

    return [
        OneForwardOneBackward(),
        GPipe(),
        NestBound(),
        Interleaved(),
        ZeroBubble(),
        ZeroBubbleH2(),
        InterleavedZeroBubble(),
        ZBV(),
        DualPipe(),
        DualPipeV(),
    ]
