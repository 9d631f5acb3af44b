"""A problem with the files it refers to read into it."""

from pathlib import Path

from attrs import evolve

from nest.catalogue import clusters
from nest.files import read, structure
from nest.formulate.cluster import described
from nest.formulate.cluster_calibration import cluster_calibration
from nest.formulate.link_profile import is_file
from nest.formulate.sources import resolve_model
from nest.formulate.stack import device_of, with_stack
from nest.formulate.topology import in_place
from nest.hooks.registry import Registry, registry
from nest.spec import NO_STACK, ClusterSpec, PlanDocument, Problem, ProfileSpec


def self_contained(problem: Problem, base: Path | None, known: Registry | None = None) -> Problem:
    """`problem` with its model, profile, device, topology and stack in place, so that a plan file can carry it alone.

    What its stack fills in is written out (`nest.formulate.stack`).

    Args:
        problem: as written.
        base: folder that relative paths start from; None: the working directory.
        known: offers topology importers and stacks; None: those installed.

    Raises:
        InputError: a file it refers to cannot be read.
    """
    known = known or registry()
    if problem.model is not None:
        problem = evolve(problem, model=resolve_model(problem.model, base))
    if isinstance(problem.profile, str):
        problem = evolve(problem, profile=read((base or Path()) / problem.profile, ProfileSpec))
    cluster = in_place(problem.cluster, known, base)
    if isinstance(cluster.device, str) and is_file(cluster.device):
        cluster = evolve(cluster, device=described(cluster.device, base))
    cluster = evolve(cluster, calibration=cluster_calibration(cluster, base))
    whole = evolve(problem, cluster=_with_machines(cluster))
    return with_stack(whole, device_of(cluster), known, base)


def carried_problem(plan: PlanDocument, known: Registry) -> Problem:
    """The self-contained problem that a plan carries, as it was planned.

    Raises:
        InputError: the plan's problem cannot be used.
    """
    problem = structure(plan.problem, Problem)
    if problem.model is not None and problem.training.stack is None:  # It was made before there were stacks.
        problem = evolve(problem, training=evolve(problem.training, stack=NO_STACK))
    return self_contained(problem, None, known)


def _with_machines(cluster: ClusterSpec) -> ClusterSpec:
    """`cluster` with the accelerators of one machine, where its device alone says how many those are.

    Machines of another size than its levels allow are left to the levels.
    """
    if cluster.hosts is not None or cluster.devices_per_host is not None:
        return cluster
    named = clusters().get(cluster.name or "")
    levels = cluster.levels if named is None else named.levels
    device = device_of(cluster)
    each = None if device is None else device.devices_per_host
    if each is None or not levels or levels[0].fanout % each:
        return cluster
    return evolve(cluster, devices_per_host=each)
