"""Nodes of a cluster: its levels, the devices of each, and ranks on a part of them."""

from itertools import accumulate
from operator import mul

from attrs import evolve

from nest.catalogue.load import device, devices, named_cluster, profiles
from nest.errors import InputError
from nest.spec import ClusterSpec
from nest.units import Bytes


def with_levels(cluster: ClusterSpec) -> ClusterSpec:
    """`cluster` with levels and other content instead of a name of the catalogue."""
    named = cluster.topology if isinstance(cluster.topology, str) else cluster.name
    if named is None:
        return cluster
    entry = named_cluster(named)
    own = entry.memory
    if own is None and cluster.name is None:  # As `topology` it brings its usual device's memory, without that device.
        own = device(entry.device).memory
    return evolve(
        cluster,
        name=None,
        topology=None,
        levels=entry.levels,
        device=cluster.device if cluster.name is None else cluster.device or entry.device,
        memory=cluster.memory if own is None or cluster.memory is not None or cluster.device else Bytes(own),
    )


def node_size(cluster: ClusterSpec) -> int | None:
    """Devices of each node; None: unknown, or nodes differ.

    Innermost levels that make a usual machine of the device are one, unless the first is called `node`.
    """
    whole = with_levels(cluster)
    if whole.levels is None:
        return None
    sizes: list[int] = [*accumulate((level.fanout for level in whole.levels), mul)]
    if whole.hosts is not None:
        return sizes[-1] // len(whole.hosts)
    used = devices().get(whole.device) if isinstance(whole.device, str) else whole.device
    own = used.devices_per_host if used is not None else None
    if whole.devices_per_host or (own and sizes[0] % own == 0):
        return whole.devices_per_host or own
    usual = own or next((each.devices_per_host for each in profiles().values() if used and each.device == used.name), 0)
    return usual if usual in sizes and whole.levels[0].name != "node" else sizes[0]


def with_ranks(cluster: ClusterSpec, ranks: int) -> ClusterSpec:
    """`cluster` with as many devices of each node; itself if its nodes have no more, or are unknown.

    Raises:
        InputError: nodes of the cluster cannot be used in part.
    """
    size, whole = node_size(cluster), with_levels(cluster)
    if size is None or ranks >= size:
        return cluster
    first, *outer = whole.levels or ()
    fanout, left = divmod(first.fanout * ranks, size)
    if left or first.fanout < size:
        raise InputError(
            f"the run has {ranks} of the {size} devices of each node, and nest knows no network between these; give "
            f"--cluster a file with levels of nodes of {ranks}."
        )
    each = None if cluster.hosts else ranks
    return evolve(whole, levels=(evolve(first, fanout=fanout), *outer), devices_per_host=each)
