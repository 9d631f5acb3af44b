"""Operators with their times, gathered by the layers that strategies see and the parts that are planned."""

from collections.abc import Callable, Iterable, Sequence

from attrs import frozen

from nest.graph import Operator
from nest.hooks.protocols import OperatorCost


@frozen
class PricedOperator:
    """An operator and its times, seconds per micro-batch.

    Attributes:
        operator: the operator.
        cost: of its computation.
        forward: communication in the forward pass.
        backward: communication in the backward pass.
    """

    operator: Operator
    cost: OperatorCost
    forward: float
    backward: float


Times = Callable[[PricedOperator], tuple[float, float]]
"""Seconds of computation and of communication of an operator, in one direction."""


def forward_times(row: PricedOperator) -> tuple[float, float]:
    """Of the forward pass."""
    return row.cost.forward, row.forward


def backward_times(row: PricedOperator) -> tuple[float, float]:
    """Of the backward pass."""
    return row.cost.backward, row.backward


@frozen
class PricedLayer:
    """The operators of one layer.

    Attributes:
        rows: all, in order.
        parts: the same, dealt to what is planned: the layer as a whole, or each of its operators.
        passing: bytes that a cut between parts may leave on their way inside the layer, at most.
    """

    rows: tuple[PricedOperator, ...]
    parts: tuple[tuple[PricedOperator, ...], ...]
    passing: float = 0.0

    def seconds(self, times: Times, overlap: bool, among: frozenset[str] | None = None) -> list[float]:
        """Seconds of each part; they add up to the layer's, in which the longer of both kinds may hide the other.

        Args:
            times: of an operator.
            overlap: whether communication hides under computation (`training.overlap.tensor`).
            among: names of the operators that count; None: all.
        """

        def counted(rows: Sequence[PricedOperator]) -> list[tuple[float, float]]:
            return [times(row) for row in rows if among is None or row.operator.name in among]

        whole = _duration(counted(self.rows), overlap)
        return shares(whole, [_duration(counted(part), False) for part in self.parts])


def _duration(times: Iterable[tuple[float, float]], overlap: bool) -> float:
    """Seconds of computation and communication; with `overlap` the longer hides the other."""
    rows = list(times)
    computation, communication = sum(row[0] for row in rows), sum(row[1] for row in rows)
    return max(computation, communication) if overlap else computation + communication


def shares(whole: float, weights: Sequence[float]) -> list[float]:
    """`whole` dealt out in proportion to `weights`; nothing where they are all 0."""
    total = sum(weights)
    return [whole * (weight / total) if total else 0.0 for weight in weights]
