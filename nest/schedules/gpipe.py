"""GPipe (arXiv 1811.06965, section 2): all forward passes, then all backward passes."""

from collections.abc import Sequence

from nest.hooks.protocols import Pass


class GPipe:
    """Each stage runs every micro-batch forward before the first one backward."""

    name = "gpipe"
    closed_form = True

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float]:
        """Return `A = M - 1`, `B = 1` (PROBLEM.md section 4): with equal stages a bubble of `(s - 1) t`."""
        return float(micro_batches - 1), 1.0

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> int:
        """Return `M` (PROBLEM.md section 4)."""
        return micro_batches

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        """Return every forward pass, then every backward pass (the paper's figure 2c)."""
        return tuple(Pass(kind, index) for kind in ("forward", "backward") for index in range(micro_batches))

    def suffices(self, forward: Sequence[float], backward: Sequence[float]) -> bool:
        """Return whether one stage has the longest passes of both kinds: then `(M - 1) (max f + max b) + sum t`.

        The proof is in docs/explanation/proofs.md, "Where nothing need be replayed".
        """
        return max(forward) + max(backward) <= max(sum(each) for each in zip(forward, backward, strict=True))
