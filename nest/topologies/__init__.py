"""Built-in topology importers: named clusters and networks of known shape (`nest_networks` reads files of tools)."""

from nest.hooks.protocols import TopologyImporter
from nest.hooks.spec import hook


@hook
def nest_topology_importers() -> list[TopologyImporter]:
    """Clusters of the catalogue, well-known networks by their parameters, measured matrices."""
    from nest.topologies.catalogue import CatalogueImporter
    from nest.topologies.generators import importers

    return [CatalogueImporter(), *importers]
