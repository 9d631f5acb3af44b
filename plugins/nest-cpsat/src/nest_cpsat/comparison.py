"""Comparison of CP-SAT's model with exact pricing."""

from __future__ import annotations

from nest.errors import InternalError
from nest_cpsat.chunk_model import ChunkModel
from nest_cpsat.layer_model import LayerModel
from nest_cpsat.path_model import PathModel
from nest_cpsat.placed_model import PlacedModel
from nest_cpsat.tier_model import TierModel
from nest_cpsat.verification import Price

Model = PathModel | LayerModel | ChunkModel


def bounds_only(model: Model) -> bool:
    """True if the model's best plan may take longer than modelled."""
    return isinstance(model, (LayerModel, PlacedModel, TierModel)) or (
        isinstance(model, ChunkModel) and bool(model.inexact)
    )


def compare(model: Model, price: Price, seconds: float, error: float, *, optimal: bool) -> None:
    """Check that the model's time and the exact price agree within the error bound.

    Raises:
        InternalError: they differ. A model that only bounds is checked only if its plan is optimal.
    """
    if bounds_only(model):
        if optimal and price.batch_time < seconds:
            raise InternalError(
                f"CP-SAT's model gives a plan at least {seconds} s, exact pricing {price.batch_time} s. "
                "This is a bug in nest; please report it with the problem file."
            )
    elif not seconds <= price.batch_time <= seconds + error:
        raise InternalError(
            f"CP-SAT's model gives a plan {seconds} s, exact pricing {price.batch_time} s; they may differ by "
            f"{error} s. This is a bug in nest; please report it with the problem file."
        )
