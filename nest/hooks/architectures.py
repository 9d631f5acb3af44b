"""What a plan's model is made of, for exporters."""

from collections.abc import Mapping
from typing import Any

from nest.hooks.registry import registry
from nest.io import structure
from nest.spec import Architecture, PlanDocument, TransformerSpec


def architecture(plan: PlanDocument) -> Architecture | None:
    """The transformer that the plan's problem describes; None: it has measured layers or an operator graph."""
    return architecture_of(plan.problem.get("model"))


def architecture_of(model: Any) -> Architecture | None:
    """The transformer that a self-contained problem's `model` describes; None: it is something else.

    Raises:
        InputErrors: the description contradicts itself.
    """
    source = model
    if isinstance(model, Mapping) and set(model) == {TransformerSpec.WRITTEN_UNDER}:
        source = structure(dict(model[TransformerSpec.WRITTEN_UNDER]), TransformerSpec)
    for importer in registry().model_importers().values():
        if hasattr(importer, "architecture") and importer.accepts(source):
            result: Architecture = importer.architecture(source)
            return result
    return None
