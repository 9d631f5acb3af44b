"""The catalogue: devices, links, clusters, precisions and optimizers by name.

The entries are data files in `nest/library`, one a file, in SI units, each with its sources.
"""

from nest.catalogue.entries import ClusterEntry, Link, Optimizer, Precision
from nest.catalogue.load import (
    clusters,
    device,
    devices,
    link,
    links,
    optimizer,
    optimizers,
    precision,
    precisions,
)
from nest.catalogue.names import unknown_name
from nest.catalogue.network import named_cluster, network_levels

__all__ = [
    "ClusterEntry",
    "Link",
    "Optimizer",
    "Precision",
    "clusters",
    "device",
    "devices",
    "link",
    "links",
    "named_cluster",
    "network_levels",
    "optimizer",
    "optimizers",
    "precision",
    "precisions",
    "unknown_name",
]
