"""Clusters of several kinds of device: each pool in numbers, and the links between them (PROBLEM.md section 8)."""

from pathlib import Path

from attrs import evolve

from nest.catalogue import network_levels
from nest.errors import InputError
from nest.formulate.cluster import as_measured, build_cluster, build_pool, described, with_memory_risk
from nest.formulate.pooled_plans import one_run_each
from nest.formulate.stack import data_parallel_exposure
from nest.hooks.registry import Registry
from nest.instance import Link, Pool, Pools
from nest.instance.schedule import Schedule
from nest.io import is_file_name
from nest.spec import BetweenSpec, ClusterSpec, DeviceSpec, LevelSpec, PoolSpec, Problem
from nest.units import listed


def build_pools(spec: ClusterSpec, base: Path | None = None) -> tuple[Pools, tuple[DeviceSpec | None, ...]]:
    """The pools in numbers, and the device of each; None where it names none.

    Raises:
        InputError: a pool or a link cannot be used; the text names its place.
    """
    assert spec.pools is not None
    built = [build_pool(each, f"cluster.pools[{index}]", base) for index, each in enumerate(spec.pools)]
    members = tuple(Pool(each.name, cluster) for each, (cluster, _) in zip(spec.pools, built, strict=True))
    names = [each.name for each in members]
    links = tuple(
        (names.index(each.pools[0]), names.index(each.pools[1]), _link(each, f"cluster.between[{index}]"))
        for index, each in enumerate(spec.between or ())
    )
    return Pools(members, links), tuple(device for _, device in built)


def any_cluster(spec: ClusterSpec, registry: Registry) -> None:
    """Refuse a cluster that cannot be used, of one kind of device or of several."""
    if spec.pools is None:
        build_cluster(spec, registry)
    else:
        build_pools(spec)


def _link(spec: BetweenSpec, place: str) -> Link:
    """What joins two pools: as of a level that names the same link."""
    if spec.bandwidth is None and spec.link is None:
        raise InputError(f"{place}.bandwidth is missing; give it in bytes per second (`bandwidth: 12.5 GB/s`).")
    try:
        (level,) = network_levels((LevelSpec(1, spec.bandwidth, spec.latency, link=spec.link),), place)
    except InputError as error:
        raise InputError(str(error).replace(f"{place}[0]", place)) from None
    return Link(level.bandwidth, level.latency)


def pools_in_place(pools: tuple[PoolSpec, ...], base: Path | None) -> tuple[PoolSpec, ...]:
    """The pools with what files say of their devices read in."""
    return tuple(
        evolve(each, device=described(each.device, base, f"cluster.pools[{index}].device"))
        if isinstance(each.device, str) and is_file_name(each.device)
        else each
        for index, each in enumerate(pools)
    )


def measured_pools(problem: Problem) -> tuple[Pools, tuple[DeviceSpec | None, ...]]:
    """As `build_pools`, with the errors of estimates, the memory risk and what of communication is exposed."""
    pools, devices = build_pools(problem.cluster)
    members = []
    for pool, device in zip(pools.members, devices, strict=True):
        cluster, _ = as_measured(pool.cluster, device, problem)
        exposure = None if problem.model is None else data_parallel_exposure(problem, device)
        members.append(Pool(pool.name, with_memory_risk(cluster, problem), exposure))
    return evolve(pools, members=tuple(members)), devices


def refuse_chunks(schedules: tuple[Schedule, ...]) -> None:
    """Refuse schedules that stages on several pools do not run yet.

    Raises:
        InputError: one gives each stage several chunks, or each device two stages.
    """
    refused = dict.fromkeys(each.name for each in schedules if not one_run_each(each))
    if refused:
        raise InputError(
            f"training.schedule: {listed(tuple(refused))} gives each device several runs of layers, which plans on "
            "cluster.pools do not have; name schedules of one run for each stage, such as 1f1b or zero-bubble."
        )
