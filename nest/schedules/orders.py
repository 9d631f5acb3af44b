"""What orders of several schedules have in common."""

from collections.abc import Sequence

from nest.hooks.protocols import Pass


def in_turn(forward: Sequence[Pass], backward: Sequence[Sequence[Pass]], ahead: int) -> tuple[Pass, ...]:
    """`ahead` forward passes, then what runs backward and forward in turn, then the rest.

    Args:
        forward: forward passes.
        backward: for each forward pass, what runs backward of it or of another one.
        ahead: forward passes before the first backward one.
    """
    found = [*forward[:ahead]]
    for index, passes in enumerate(backward):
        found += [*passes, *forward[ahead + index : ahead + index + 1]]
    return tuple(found)


def one_by_one(stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
    """One forward, one backward (PipeDream-Flush, arXiv 2006.09503, section 3.2): `s - i + 1` micro-batches ahead."""
    forward = [Pass("forward", index) for index in range(micro_batches)]
    return in_turn(forward, [[Pass("backward", index)] for index in range(micro_batches)], stages - stage + 1)
