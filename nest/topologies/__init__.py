"""Built-in topology importers: one a file."""

from nest.hooks.protocols import TopologyImporter
from nest.hooks.spec import hook


@hook
def nest_topology_importers() -> list[TopologyImporter]:
    """Clusters of the catalogue."""
    from nest.topologies.catalogue import CatalogueImporter

    return [CatalogueImporter()]
