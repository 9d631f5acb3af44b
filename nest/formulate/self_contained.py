"""A problem with the files it refers to read into it."""

from pathlib import Path

from attrs import evolve

from nest.catalogue import clusters, devices
from nest.files import read
from nest.formulate.cluster import described
from nest.formulate.link_profile import is_file
from nest.formulate.sources import resolve_model
from nest.formulate.topology import in_place
from nest.hooks.registry import Registry, registry
from nest.spec import ClusterSpec, Problem, ProfileSpec


def self_contained(problem: Problem, base: Path | None, known: Registry | None = None) -> Problem:
    """`problem` with its model, profile, device and topology in place, so that a plan file can carry it alone.

    Args:
        problem: as written.
        base: folder that relative paths start from; None: the working directory.
        known: offers topology importers; None: those installed.

    Raises:
        InputError: a file it refers to cannot be read.
    """
    if problem.model is not None:
        problem = evolve(problem, model=resolve_model(problem.model, base))
    if isinstance(problem.profile, str):
        problem = evolve(problem, profile=read((base or Path()) / problem.profile, ProfileSpec))
    cluster = in_place(problem.cluster, known or registry(), base)
    if isinstance(cluster.device, str) and is_file(cluster.device):
        cluster = evolve(cluster, device=described(cluster.device, base))
    return evolve(problem, cluster=_with_machines(cluster))


def _with_machines(cluster: ClusterSpec) -> ClusterSpec:
    """`cluster` with the accelerators of one machine, where its device alone says how many those are.

    Machines of another size than its levels allow are left to the levels.
    """
    if cluster.hosts is not None or cluster.devices_per_host is not None:
        return cluster
    named = clusters().get(cluster.name or "")
    levels = cluster.levels if named is None else named.levels
    device = cluster.device or (None if named is None else named.device)
    # A name that is unknown is told with what else is wrong, when the problem is formulated.
    described = devices().get(device) if isinstance(device, str) else device
    each = None if described is None else described.devices_per_host
    if each is None or not levels or levels[0].fanout % each:
        return cluster
    return evolve(cluster, devices_per_host=each)
