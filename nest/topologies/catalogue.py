"""Clusters of the catalogue as topologies."""

from typing import Any

from nest.catalogue import clusters, device, named_cluster, network_levels
from nest.instance import Cluster


class CatalogueImporter:
    """Reads the name of a cluster that `nest clusters` lists; `name-N` stands for `N` of its devices."""

    name = "catalogue"

    def accepts(self, source: Any) -> bool:
        """Whether `source` is such a name."""
        if not isinstance(source, str):
            return False
        family, _, size = source.rpartition("-")
        return source in clusters() or (family in clusters() and size.isdecimal())

    def load(self, source: Any) -> Cluster:
        """The cluster called `source`, with the memory of its usual device.

        Raises:
            InputError: the cluster cannot have so many devices.
        """
        entry = named_cluster(source, "cluster.topology")
        memory = device(entry.device).memory if entry.memory is None else entry.memory
        return Cluster(network_levels(entry.levels), memory)
