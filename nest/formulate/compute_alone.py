"""What the layers of a candidate would take if its collectives took no time."""

from collections.abc import Sequence

from attrs import evolve

from nest.formulate.instance import Formulation
from nest.formulate.price import candidate
from nest.instance import Array, Level


class _Free:
    """Collectives that take no time."""

    name = "free"

    def time(
        self,
        kind: str,
        bytes: float,  # noqa: A002
        shape: Sequence[int],
        levels: Sequence[Level],
        members: int | None = None,
    ) -> float:
        """0 s."""
        return 0.0


def compute_alone(formulation: Formulation, index: int) -> Array | None:
    """Seconds of each layer per micro-batch, forward and backward, without the collectives inside the layer.

    What these add to a layer is the difference to the candidate's own times: where a framework hides collectives under
    compute, only what is not hidden. Messages from device to device inside a layer, as of a ring of context
    parallelism, count as collectives.

    Args:
        formulation: of a problem.
        index: of the candidate.

    Returns:
        Seconds by layer; None for a profile, which gives layers as a whole.
    """
    if formulation.pricing is None or formulation.kinds is None:
        return None
    pricing = evolve(formulation.pricing, collectives=_Free())
    priced = candidate("alone", formulation.sharded[index], formulation.kinds, pricing)
    found: Array = priced.forward + priced.backward
    return found
