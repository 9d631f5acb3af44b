"""Objects of the catalogue: software stacks, named clusters and networks of known shape as topologies."""

from typing import Any

from nest.catalogue import clusters, device, named_cluster, network_levels, stacks
from nest.hooks.protocols import Stack, TopologyImporter
from nest.hooks.spec import hook
from nest.instance import Cluster


@hook
def nest_stacks() -> list[Stack]:
    """Return the defaults of frameworks, each figure with its source (`nest/library/stacks`)."""
    return list(stacks().values())


@hook
def nest_topology_importers() -> list[TopologyImporter]:
    """Return importers of the catalogue's clusters, well-known networks by parameters, and measured matrices."""
    from nest.network.shapes import importers

    return [CatalogueImporter(), *importers]


class CatalogueImporter:
    """The importer of clusters listed by `nest clusters`; `name-N` stands for `N` of its devices."""

    name = "catalogue"

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is such a name."""
        if not isinstance(source, str):
            return False
        family, _, size = source.rpartition("-")
        return source in clusters() or (family in clusters() and size.isdecimal())

    def load(self, source: Any) -> Cluster:
        """Return the cluster called `source`, with the memory of its usual device.

        Raises:
            InputError: the cluster cannot have so many devices.
        """
        entry = named_cluster(source, "cluster.topology")
        memory = device(entry.device).memory if entry.memory is None else entry.memory
        return Cluster(network_levels(entry.levels), memory)
