"""What of a layer runs where and after what: the tasks whose times make up the layer's."""

from collections.abc import Sequence
from enum import Enum

from attrs import frozen

from nest.graph import Operator
from nest.hooks.protocols import LayerTimes
from nest.spec.cluster import COMMUNICATION, MATRIX, VECTOR

MATRIX_KINDS = frozenset({"matmul", "attention", "router"})
"""Kinds of operator whose FLOP are those of matrix products; everything else that computes is element-wise."""


class Direction(Enum):
    """Which way a layer is run."""

    FORWARD = "forward"
    BACKWARD = "backward"


@frozen
class Timing:
    """How the times of a layer's operators become the layer's.

    Attributes:
        model: puts them together.
        engines: of the device, by name (docs/explanation/operator-scheduling.md).
        host_launch: seconds the host takes to launch a collective.
    """

    model: LayerTimes
    engines: tuple[str, ...]
    host_launch: float = 0.0

    def seconds(
        self,
        times: Sequence[tuple[float, float, float]],
        engines: Sequence[str],
        precedence: Sequence[tuple[int, int]],
        hidden: float = 0.0,
        host: float = 0.0,
    ) -> float:
        """Seconds of a layer in one direction.

        The longer of two things counts: computation with what shows of the collectives, and all collectives. No layer
        takes less than the host needs to launch it.

        Args:
            times: of each operator, seconds of computation, of communication that shows, and of communication that a
                framework hides under what it waits for and what waits for it.
            engines: the engine of each operator.
            precedence: `(before, after)`, indices of operators.
            hidden: seconds of communication that other operators hide, beside those of `times`: it keeps links busy all
                the same.
            host: seconds the host takes to launch all of it.
        """
        working = self.model.seconds([own + shown for own, shown, _ in times], engines, precedence)
        communication = sum(shown + hides for _, shown, hides in times)
        return max(working, communication + hidden, host)


def engine_of(operator: Operator, engines: Sequence[str]) -> str:
    """The engine that runs an operator; the matrix engine stands in for those that are not described."""
    computing = MATRIX if operator.kind in MATRIX_KINDS else VECTOR
    wanted = computing if operator.collective is None else COMMUNICATION
    return wanted if wanted in engines else MATRIX


def precedence(operators: Sequence[Operator]) -> tuple[tuple[int, int], ...]:
    """What waits for what, as pairs of indices: in the forward pass the second for the first, else the first for it.

    Whoever reads a tensor waits for the operator of the same layer that wrote it. An operator that writes nothing but
    has a collective, such as the sum of gradients in front of a split operator, hands on what it reads: the operators
    behind it in order that read the same tensor wait for it.

    Args:
        operators: of one layer, in an order in which every tensor is written before it is read.
    """
    sources: dict[str, int] = {}
    found: dict[tuple[int, int], None] = {}
    for index, operator in enumerate(operators):
        for tensor in operator.inputs:
            if tensor.name in sources:
                found.setdefault((sources[tensor.name], index))
        handed_on = operator.outputs
        if operator.collective is not None and not operator.outputs:
            handed_on = operator.inputs
        for tensor in handed_on:
            sources[tensor.name] = index
    return tuple(found)
