"""Built-in pipeline schedules, one a file: the pipeline bubble is what their `weights` say (PROBLEM.md section 4).

A new schedule is a file here with what `nest.instance.schedule.Schedule` asks for, a line in the list below, a test in
`tests/schedules`, and its name in the limits of the exporters whose frameworks run it.
"""

from nest.hooks.protocols import Schedule
from nest.hooks.spec import hook


@hook
def nest_schedules() -> list[Schedule]:
    """The schedules nest knows without plug-ins, the default first."""
    from nest.schedules.dualpipe import DualPipe, DualPipeV
    from nest.schedules.gpipe import GPipe
    from nest.schedules.interleaved import Interleaved
    from nest.schedules.interleaved_zero_bubble import InterleavedZeroBubble
    from nest.schedules.nest_bound import NestBound
    from nest.schedules.one_forward_one_backward import OneForwardOneBackward
    from nest.schedules.zb_v import ZBV
    from nest.schedules.zero_bubble import ZeroBubble, ZeroBubbleH2

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
