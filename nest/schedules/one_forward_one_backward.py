"""One forward, one backward (PipeDream-Flush, arXiv 2006.09503, section 3.2; Megatron-LM's default), and its bound."""

from collections.abc import Sequence

from nest.hooks.protocols import Pass


class OneForwardOneBackward:
    """Each stage alternates forward and backward passes once the pipeline is full."""

    name = "1f1b"
    closed_form = True

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float]:
        """Return `A = M - 1`, `B = 1` (PROBLEM.md section 4): with equal stages a bubble of `(s - 1) t`."""
        return float(micro_batches - 1), 1.0

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> int:
        """Return `min(M, s - i + 1)` (PROBLEM.md section 4)."""
        return min(micro_batches, stages - stage + 1)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        """Return `s - i + 1` forward passes, one for each stage left, then a backward and a forward pass in turn."""
        forward, backward = ([Pass(kind, each) for each in range(micro_batches)] for kind in ("forward", "backward"))
        return in_turn(forward, [[each] for each in backward], stages - stage + 1)

    def suffices(self, forward: Sequence[float], backward: Sequence[float]) -> bool:
        """Return whether `max f + max b <= min t + max t`.

        The proof is in docs/explanation/proofs.md, "Where nothing need be replayed".
        """
        times = [sum(each) for each in zip(forward, backward, strict=True)]
        return max(forward) + max(backward) <= min(times) + max(times)


class NestBound(OneForwardOneBackward):
    """The bound of the NEST paper: stages as long as the slowest, with the memory and the order of the same."""

    name = "nest"

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float]:
        """Return `A = M + s - 1`, `B = 0` (PROBLEM.md section 4): `M + s - 1` slots of the slowest stage."""
        return float(micro_batches + stages - 1), 0.0


def in_turn(forward: Sequence[Pass], backward: Sequence[Sequence[Pass]], ahead: int) -> tuple[Pass, ...]:
    """Return `ahead` forward passes, then backward and forward passes in turn, then the rest.

    Args:
        backward: for each forward pass, the backward passes that follow it, of any micro-batch.
        ahead: forward passes before the first backward one.
    """
    order = [*forward[:ahead]]
    for index, passes in enumerate(backward):
        order += [*passes, *forward[ahead + index : ahead + index + 1]]
    return tuple(order)
