"""Architecture and network of a problem, as its importers read them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

from nest.errors import InputError
from nest.hooks.registry import registry
from nest.io import structure
from nest.spec import Architecture, ClusterSpec, LevelSpec, PlanDocument, TransformerSpec

if TYPE_CHECKING:
    from nest.instance import Cluster
    from nest.instance.pairs import Pairs
    from nest.network import LinkGraph


def architecture(plan: PlanDocument) -> Architecture | None:
    """Transformer of the plan's problem; None: it has measured layers or an operator graph."""
    return architecture_of(plan.problem.get("model"))


def architecture_of(model: Any) -> Architecture | None:
    """Transformer of a self-contained problem's `model`; None: it is something else.

    Raises:
        InputErrors: the description contradicts itself.
    """
    built = _built(model)
    return built if built is not None and built.blocks else None


def hybrid_of(model: Any) -> Architecture | None:
    """Hybrid of a self-contained problem's `model`, whose blocks are in `hybrid`; None: it is something else.

    Raises:
        InputErrors: the description contradicts itself.
    """
    built = _built(model)
    return built if built is not None and built.hybrid else None


def _built(model: Any) -> Architecture | None:
    if model is None:
        return None
    source = model
    if isinstance(model, Mapping) and set(model) == {TransformerSpec.WRITTEN_UNDER}:
        widths = model[TransformerSpec.WRITTEN_UNDER]
        if not isinstance(widths, Mapping):
            raise InputError(f"{TransformerSpec.WRITTEN_UNDER} must hold keys and values, is {widths!r:.60}.")
        source = structure(widths, TransformerSpec)
    known = registry()
    for importer in known.model_importers().values():
        if hasattr(importer, "architecture") and importer.accepts(source):
            # All frameworks get limits for one model; a copy is safe from changes by callers.
            key = (importer.name, deepcopy(source))
            made: Architecture = known.memoized("architecture", key, partial(importer.architecture, source))
            return made
    return None


def cluster_spec(plan: PlanDocument) -> ClusterSpec:
    """The `cluster` section of a plan's problem.

    Raises:
        InputErrors: it is invalid.
    """
    return structure(plan.problem["cluster"], ClusterSpec)


def network_of(spec: ClusterSpec) -> Cluster | LinkGraph | Pairs | tuple[LevelSpec, ...]:
    """Network of a self-contained `cluster` section; its levels if it gives these.

    Raises:
        InputError: no registered importer knows it.
    """
    source = spec.topology if spec.name is None else spec.name
    if source is None:
        return spec.levels or ()
    for importer in registry().topology_importers().values():
        if importer.accepts(source):
            from nest.network.imported import Imported

            network = importer.load(source)
            return network.network if isinstance(network, Imported) else network
    raise InputError(f"cluster: no importer knows {str(source)!r:.200}; install the plug-in of the plan's network.")
