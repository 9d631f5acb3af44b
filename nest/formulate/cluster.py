"""The `cluster` section in numbers: levels, memory, measured speed; many machines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import asdict, evolve

from nest.catalogue import (
    TimeSpread,
    device,
    estimate_error,
    link,
    named_cluster,
    network_levels,
    time_spread,
    two_vendors,
)
from nest.errors import InputError
from nest.hooks.registry import Registry
from nest.instance import Cluster, EstimateError, Level, Link, Pool, Pools
from nest.io import is_file_name, read, there_is
from nest.spec import (
    BetweenSpec,
    ClusterCalibration,
    ClusterSpec,
    DeviceSpec,
    LevelSpec,
    MatrixPeaks,
    PoolSpec,
    TierSpec,
    ranges,
)
from nest.spec.device import Coefficients
from nest.units import Bytes, BytesPerSecond, FlopPerSecond, Seconds, format_bytes

if TYPE_CHECKING:
    from nest.network.imported import Imported

MOST_DEVICES = 2**20  # Most devices of a cluster; a larger fan-out is a slip, and tables over devices would not fit.


def build_cluster(spec: ClusterSpec, registry: Registry, base: Path | None = None) -> tuple[Cluster, DeviceSpec | None]:
    """Convert a section to a cluster in numbers and its device; None: it names none.

    Raises:
        InputError: the section cannot be used, or has several kinds of device (`nest.formulate.pools`).
    """
    if spec.pools is not None:
        raise InputError("cluster.pools: this command supports one device type only; run it on each pool.")
    if sum(given is not None for given in (spec.levels, spec.name, spec.topology)) != 1:
        raise InputError("cluster: give one network: `levels`, `topology` or the name of a cluster.")
    imported_network = None
    if not by_levels(spec):
        from nest.formulate.topology import read_in

        spec, imported_network = read_in(spec, registry, base)
    if spec.name is not None:
        entry = named_cluster(spec.name)
        own = entry.memory if spec.device is None else None
        named = evolve(spec, device=spec.device or entry.device, memory=_first(spec.memory, own))
        return _assembled(named, network_levels(entry.levels), base)
    if isinstance(imported_network, Cluster):
        own = imported_network.memory if spec.device is None else None
        return _assembled(evolve(spec, memory=_first(spec.memory, own)), imported_network.levels, base)
    if imported_network is not None:
        return _assembled(spec, imported_network.best.levels, base)
    return _assembled(spec, network_levels(spec.levels or ()), base)


def any_cluster(spec: ClusterSpec, registry: Registry) -> None:
    """Validate a cluster with one or several kinds of device."""
    if spec.pools is None:
        build_cluster(spec, registry)
    else:
        build_pools(spec)


def by_levels(spec: ClusterSpec) -> bool:
    """True if no importer is needed: the section gives levels, pools, or a name of the catalogue."""
    return spec.topology is None and spec.link_profile is None and not (spec.name and is_file_name(spec.name))


def described(name: str | DeviceSpec, base: Path | None = None, place: str = "cluster.device") -> DeviceSpec:
    """Resolve a device: figures in place, an entry of the catalogue, or a file of figures.

    Raises:
        InputError: there is no such device or file, or the file cannot be read; the text names `place`.
    """
    if isinstance(name, DeviceSpec):
        return name
    if not is_file_name(name):
        return device(name, place)
    path = (base or Path()) / name
    if there_is(path) != "file":
        raise InputError(f"{place}: there is no file {str(path)!r:.200}; `nest devices` lists the names known.")
    return read(path, DeviceSpec)


def _first(written: float | None, own: float | None) -> Bytes | None:
    """Memory as written, else the cluster's own; None: the device's."""
    chosen = own if written is None else written
    return None if chosen is None else Bytes(chosen)


def build_pool(spec: PoolSpec, place: str) -> tuple[Cluster, DeviceSpec | None]:
    """Convert one pool to a cluster in numbers and its device; errors name `place`."""
    return _assembled(spec.cluster, network_levels(spec.levels, f"{place}.levels"), None, place)


def build_pools(spec: ClusterSpec) -> tuple[Pools, tuple[DeviceSpec | None, ...]]:
    """Convert pools to numbers, with the device of each; None: it names none.

    Raises:
        InputError: a pool or a link cannot be used; the text names its place.
    """
    assert spec.pools is not None
    built = [build_pool(each, f"cluster.pools[{index}]") for index, each in enumerate(spec.pools)]
    members = tuple(Pool(each.name, cluster) for each, (cluster, _) in zip(spec.pools, built, strict=True))
    names = [each.name for each in members]
    devices = tuple(device for _, device in built)
    links = tuple(
        (names.index(each.pools[0]), names.index(each.pools[1]), _link(each, f"cluster.between[{index}]"))
        for index, each in enumerate(spec.between or ())
    )
    for one, two, _ in links:
        if two_vendors(devices[one], devices[two]):
            raise InputError(
                f"cluster.between: pools {names[one]!r} and {names[two]!r} have devices of two vendors, and NCCL "
                "and RCCL share no process group. Remove their link; nest then plans each pool alone."
            )
    return Pools(members, links), devices


def _link(spec: BetweenSpec, place: str) -> Link:
    """Link between two pools, like a level with the same link."""
    if spec.bandwidth is None and spec.link is None:
        raise InputError(f"{place}.bandwidth is missing; give it in bytes per second (`bandwidth: 12.5 GB/s`).")
    try:
        (level,) = network_levels((LevelSpec(1, spec.bandwidth, spec.latency, link=spec.link),), place)
    except InputError as error:
        raise InputError(str(error).replace(f"{place}[0]", place)) from None
    return Link(level.bandwidth, level.latency)


def _assembled(
    spec: ClusterSpec, levels: tuple[Level, ...], base: Path | None, place: str = "cluster"
) -> tuple[Cluster, DeviceSpec | None]:
    chosen = None if spec.device is None else described(spec.device, base, f"{place}.device")
    if chosen is not None:
        chosen = evolve(chosen, engines=spec.engines or chosen.engines)
        _check_device(chosen, place)
    memory = spec.memory
    if memory is None and chosen is not None:
        memory = chosen.memory
    if memory is None:
        raise InputError(
            f"{place}.device is missing; name one that `nest devices` lists. With a profile, `memory: 80 GB` is enough."
        )
    if spec.reserve >= memory:
        raise InputError(
            f"{place}.reserve is {format_bytes(spec.reserve)}, but a device has only {format_bytes(memory)}; "
            "reserve less."
        )
    devices = math.prod(level.fanout for level in levels)
    if devices > MOST_DEVICES:
        raise InputError(f"{place}.levels: the fan-outs make {devices} devices; nest plans at most {MOST_DEVICES}.")
    _check_hosts(spec, devices, place)
    return Cluster(levels, memory, spec.reserve), chosen


def _check_hosts(spec: ClusterSpec, devices: int, place: str) -> None:
    """Check that the hosts have equal shares of the devices."""
    per_host = spec.devices_per_host
    if spec.hosts is None:
        if per_host is not None and devices % per_host:
            raise InputError(
                f"{place}.devices_per_host is {per_host}, which does not divide the {devices} devices of the network."
            )
        return
    hosts = len(spec.hosts)
    if devices % hosts or (per_host is not None and hosts * per_host != devices):
        each = "" if per_host is None else f" of {per_host} devices (devices_per_host)"
        raise InputError(
            f"{place}.hosts names {hosts} hosts{each}, but the network has {devices} devices; all hosts need "
            "equally many."
        )


def _check_device(spec: DeviceSpec, place: str) -> None:
    for kind, share in spec.efficiency.items():
        if not 0 < share <= 1:
            raise InputError(f"{place}.device.efficiency.{kind} is {share}; it must be above 0 and at most 1.")


def cluster_calibration(cluster: ClusterSpec, base: Path | None = None) -> ClusterCalibration | None:
    """Calibration of a cluster, with its file read; None: none is given."""
    written = cluster.calibration
    if not isinstance(written, str):
        return written
    path = (base or Path()) / written
    if there_is(path) != "file":
        raise InputError(
            f"cluster.calibration: there is no file {str(path)!r:.200}; `nest calibrate cluster RUNS --output FILE` "
            "writes one."
        )
    return read(path, ClusterCalibration)


def time_scale(cluster: ClusterSpec) -> float:
    """Factor of a calibration on all predicted times."""
    known = cluster_calibration(cluster)
    return 1.0 if known is None else known.time


def as_measured(
    cluster: Cluster, device: DeviceSpec | None, spec: ClusterSpec, modelled: bool = True, stack: object = None
) -> tuple[Cluster, DeviceSpec | None]:
    """Apply the errors of estimates on a `stack`, and slow down cluster and device by a calibration.

    Every time grows by that factor: roofs are lower and latencies higher, while peaks for utilisation stay.

    Raises:
        InputError: a profile, whose times are measured, has a calibration; or its file cannot be read.
    """
    known = cluster_calibration(spec)
    if not modelled:
        if known is not None:
            raise InputError("cluster.calibration: a profile has measured times; leave the calibration out.")
        return cluster, device
    memory = estimate_error(stack if isinstance(stack, str) else None)
    if known is None:
        return evolve(cluster, error=memory, time_error=usual_spread(device).stranger), device
    measured = evolve(
        cluster,
        levels=tuple(_slower_level(level, known.time) for level in cluster.levels),
        error=EstimateError(known.memory or memory.median, known.memory_spread or memory.spread),
        time_error=EstimateError(1.0, known.time_spread),
    )
    return measured, None if device is None else _slower_device(device, known.time)


def with_experts(cluster: Cluster, device: DeviceSpec | None, spec: ClusterSpec) -> Cluster:
    """The cluster with the error of step times of models with experts, where it has no own runs."""
    if cluster.time_error is None or spec.calibration is not None:
        return cluster
    return evolve(cluster, time_error=usual_spread(device, experts=True).stranger)


def usual_spread(device: DeviceSpec | None, experts: bool = False) -> TimeSpread:
    """The spread of step times on devices like this one."""
    generation, measured = ("", False) if device is None else (device.generation, device.calibration != Coefficients())
    return time_spread(generation, calibrated=measured, experts=experts)


def _slower_level(level: Level, factor: float) -> Level:
    lines = tuple(
        evolve(line, base=line.base * factor, step=line.step * factor, bandwidth=line.bandwidth / factor)
        for line in level.lines
    )
    return evolve(level, bandwidth=level.bandwidth / factor, latency=level.latency * factor, lines=lines)


def _slower_device(device: DeviceSpec, factor: float) -> DeviceSpec:
    peaks = {name: peak and FlopPerSecond(peak / factor) for name, peak in asdict(device.peak).items()}
    launch = min(device.calibration.host_launch * factor, ranges()["host_launch"].high)
    return evolve(
        device,
        peak=MatrixPeaks(**peaks),
        memory_bandwidth=BytesPerSecond(device.memory_bandwidth / factor),
        host_bandwidth=device.host_bandwidth and BytesPerSecond(device.host_bandwidth / factor),
        host_memory_bandwidth=device.host_memory_bandwidth and BytesPerSecond(device.host_memory_bandwidth / factor),
        launch_overhead=Seconds(device.launch_overhead * factor),
        calibration=evolve(device.calibration, host_launch=launch),
    )


FABRIC = "fabric"  # Name of the level between machines.


def from_file(
    cluster: ClusterSpec, registry: Registry, base: Path | None, importer: str | None = None, hosts: int = 1
) -> ClusterSpec:
    """Same as `in_place`, for a `topology` that must be a file; with several `hosts` it describes one machine."""
    from nest.formulate.topology import file_of, given_profile, imported, in_place, named, with_imported
    from nest.network.imported import Imported

    file = file_of(cluster.topology, base)
    if file is None:
        raise InputError(f"{cluster.topology}: there is no such file.")
    if hosts == 1:
        return in_place(cluster, registry, base, importer)
    content = imported(cluster, registry, base, importer)
    profile = given_profile(cluster, base)
    tier = profile.tiers[0] if profile is not None and profile.tiers else None
    with named(file if isinstance(file, Path) else file.path):
        machine = content if isinstance(content, Imported) else Imported(content)
        return with_imported(cluster, cluster_of(machine, hosts, tier), registry)


def cluster_of(machine: Imported, hosts: int, tier: TierSpec | None = None) -> Imported:
    """Cluster of `hosts` machines like `machine`, joined by a non-blocking network.

    The NICs of a machine give each device's bandwidth on the outermost level, or `tier` if the file gives none.

    Raises:
        InputError: no bandwidth is given, there are no hosts, or the file has a network of its own.
    """
    if hosts < 1:
        raise InputError(f"there must be at least one host, not {hosts}.")
    if hosts == 1:
        return machine
    if machine.hosts or machine.devices_per_host is None:
        raise InputError(f"the file does not describe a single machine; leave --hosts {hosts} out.")
    levels, notes = _machine_levels(machine)
    between = machine.nics or tier
    if between is None:
        raise InputError("the file has no network adapter bandwidth; add --link-profile.")
    bandwidth = _bandwidth(between)
    notes.append(
        f"assumed: {hosts} machines on a non-blocking network of {bandwidth / 1e9:g} GB/s per device and "
        f"direction ({('the sum of its adapters' if machine.nics else 'from the link profile')})."
    )
    return evolve(
        machine,
        network=(*levels, LevelSpec(hosts, BytesPerSecond(bandwidth), between.latency, FABRIC, between.link)),
        hosts=(),
        assumptions=(*machine.assumptions, *notes),
        adapters=None,
    )


def _bandwidth(tier: TierSpec) -> float:
    """Nominal bytes per second, per device and direction."""
    nominal = tier.bandwidth
    if nominal is None and tier.link is not None:
        nominal = BytesPerSecond(link(tier.link, "tiers[0].link").bandwidth or 0.0)
    if not nominal:
        raise InputError("tiers[0].bandwidth is missing in the link profile; give it in bytes per second.")
    return nominal / tier.oversubscription


def _machine_levels(machine: Imported) -> tuple[tuple[LevelSpec, ...], list[str]]:
    """Levels of one machine, and the assumptions behind them."""
    network = machine.network
    if isinstance(network, tuple):
        return network, []
    notes = []
    if isinstance(network, Cluster):
        levels = network.levels
    else:
        from nest.network import reduce

        reduced = reduce(network)
        levels = reduced.best.levels
        if reduced.names != reduced.pairs.names:
            notes.append(f"order of the devices along the levels: {', '.join(reduced.names)}.")
        if not reduced.best.exact:
            notes.append(f"the levels are {reduced.best.stretch.mean:.2f}x as slow as the real paths on average.")
    written = (
        LevelSpec(level.fanout, BytesPerSecond(level.bandwidth), Seconds(level.latency), level.name) for level in levels
    )
    return tuple(written), notes
