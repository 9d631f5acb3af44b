"""The network of a plan's problem, for exporters."""

from nest.errors import InputError
from nest.hooks.registry import registry
from nest.instance import Cluster
from nest.instance.pairs import Pairs
from nest.io import structure
from nest.network.graph import LinkGraph
from nest.network.imported import Imported
from nest.spec import ClusterSpec, LevelSpec, PlanDocument


def cluster_spec(plan: PlanDocument) -> ClusterSpec:
    """The `cluster` section of a plan's problem.

    Raises:
        InputErrors: it is none.
    """
    return structure(plan.problem["cluster"], ClusterSpec)


def network_of(spec: ClusterSpec) -> Cluster | LinkGraph | Pairs | tuple[LevelSpec, ...]:
    """The network of a self-contained `cluster` section; of one given by levels, those.

    Raises:
        InputError: no registered importer knows it.
    """
    source = spec.topology if spec.name is None else spec.name
    if source is None:
        return spec.levels or ()
    for importer in registry().topology_importers().values():
        if importer.accepts(source):
            found = importer.load(source)
            return found.network if isinstance(found, Imported) else found
    raise InputError(f"cluster: no importer knows {str(source)!r:.200}, so that nobody can tell the plan's network.")
