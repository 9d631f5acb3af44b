"""The catalogue: devices, links, clusters, link profiles, precisions, optimizers and stacks by name.

Belongs here: readers of the library, names and spellings. Does not: what one problem decides.

The entries are data files in `nest/library`, one a file, in SI units, each with its sources.
"""

from nest.catalogue.entries import Calibration, ClusterEntry, Link, Optimizer, Precision, TimeSpread
from nest.catalogue.load import (
    calibrations,
    clusters,
    device,
    devices,
    enlarged,
    estimate_error,
    known_cluster,
    library_models,
    link,
    links,
    named_cluster,
    network_levels,
    optimizer,
    optimizers,
    precision,
    precisions,
    profile,
    profiles,
    published_devices,
    scale_up_levels,
    stacks,
    time_spread,
    two_vendors,
    unknown_name,
)

__all__ = [
    "Calibration", "ClusterEntry", "Link", "Optimizer", "Precision", "TimeSpread", "calibrations", "clusters",
    "device", "devices", "enlarged", "estimate_error", "known_cluster", "library_models", "link", "links",
    "named_cluster", "network_levels", "optimizer", "optimizers", "precision", "precisions", "profile", "profiles",
    "published_devices", "scale_up_levels", "stacks", "time_spread", "two_vendors", "unknown_name",
]  # fmt: skip
