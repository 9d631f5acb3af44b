"""From a problem's `cluster` section to the cluster in numbers."""

import math
from itertools import pairwise
from pathlib import Path

from attrs import evolve

from nest.catalogue import device, named_cluster, network_levels
from nest.errors import InputError
from nest.files import read, there_is
from nest.formulate.link_profile import is_file
from nest.formulate.topology import read_in
from nest.hooks.registry import Registry
from nest.instance import Cluster, Level
from nest.spec import ClusterSpec, DeviceSpec
from nest.units import Bytes, format_bytes, format_decimal

MOST_DEVICES = 2**20
"""More devices than any cluster has; beyond it a fan-out is a slip, and tables over devices would not fit."""

FASTER = 2
"""Times the bandwidth inside, from which on a level's is told: networks have such levels, but seldom."""


def build_cluster(spec: ClusterSpec, registry: Registry, base: Path | None = None) -> tuple[Cluster, DeviceSpec | None]:
    """The cluster in numbers and its device; None when the section names none.

    Args:
        spec: the section as written.
        registry: offers topology importers.
        base: folder that a relative `topology` path starts from; None: the working directory.

    Raises:
        InputError: something is missing, unknown or impossible; the text names the place.
    """
    if sum(given is not None for given in (spec.levels, spec.name, spec.topology)) != 1:
        raise InputError("cluster: give its network once, as `levels`, as `topology` or by the name of a cluster.")
    spec, found = read_in(spec, registry, base)
    if spec.name is not None:
        entry = named_cluster(spec.name)
        own = entry.memory if spec.device is None else None
        named = evolve(spec, device=spec.device or entry.device, memory=_first(spec.memory, own))
        return _assembled(named, network_levels(entry.levels), base)
    if isinstance(found, Cluster):
        own = found.memory if spec.device is None else None
        return _assembled(evolve(spec, memory=_first(spec.memory, own)), found.levels, base)
    if found is not None:
        return _assembled(spec, found.best.levels, base)
    return _assembled(spec, network_levels(spec.levels or ()), base)


def described(name: str | DeviceSpec, base: Path | None = None, place: str = "cluster.device") -> DeviceSpec:
    """The device that `name` stands for: figures in place, an entry of the catalogue, or a file of figures.

    Args:
        name: what is written.
        base: folder that relative paths start from; None: the working directory.
        place: where it is written, for errors.

    Raises:
        InputError: there is no such device or file, or the file cannot be read.
    """
    if isinstance(name, DeviceSpec):
        return name
    if not is_file(name):
        return device(name, place)
    path = (base or Path()) / name
    if there_is(path) != "file":
        raise InputError(f"{place}: there is no file {str(path)!r:.200}; `nest devices` lists the names known.")
    return read(path, DeviceSpec)


def _first(written: float | None, own: float | None) -> Bytes | None:
    """The memory as written, else the cluster's own; None: the device's."""
    chosen = own if written is None else written
    return None if chosen is None else Bytes(chosen)


def _assembled(spec: ClusterSpec, levels: tuple[Level, ...], base: Path | None) -> tuple[Cluster, DeviceSpec | None]:
    chosen = None if spec.device is None else described(spec.device, base)
    if chosen is not None:
        chosen = evolve(chosen, engines=spec.engines or chosen.engines)
        _check_device(chosen)
    memory = spec.memory
    if memory is None and chosen is not None:
        memory = chosen.memory
    if memory is None:
        raise InputError(
            "cluster.device is missing; name one that `nest devices` lists, or, with a profile, give the bytes of one "
            "device alone (`memory: 80 GB`)."
        )
    if spec.reserve >= memory:
        raise InputError(
            f"cluster.reserve is {format_bytes(spec.reserve)}, which leaves nothing of the {format_bytes(memory)} of a "
            "device."
        )
    devices = math.prod(level.fanout for level in levels)
    if devices > MOST_DEVICES:
        raise InputError(f"cluster.levels: the fan-outs make {devices} devices; at most {MOST_DEVICES} can be planned.")
    _check_hosts(spec, devices)
    return Cluster(levels, memory, spec.reserve), chosen


def _check_hosts(spec: ClusterSpec, devices: int) -> None:
    """Refuse hosts that cannot have the devices, equally many each."""
    per_host = spec.devices_per_host
    if spec.hosts is None:
        if per_host is not None and devices % per_host:
            raise InputError(
                f"cluster.devices_per_host is {per_host}, but the {devices} devices of the network do not make whole "
                "hosts."
            )
        return
    hosts = len(spec.hosts)
    if devices % hosts or (per_host is not None and hosts * per_host != devices):
        each = "" if per_host is None else f" of {per_host} devices (devices_per_host)"
        raise InputError(
            f"cluster.hosts names {hosts} hosts{each}, but the network has {devices} devices; all "
            "hosts have equally many."
        )


def _check_device(spec: DeviceSpec) -> None:
    for kind, share in spec.efficiency.items():
        if not 0 < share <= 1:
            raise InputError(f"cluster.device.efficiency.{kind} is {share}; it must be above 0 and at most 1.")


def told_of_levels(spec: ClusterSpec) -> str | None:
    """That a level is `FASTER` than the one inside it, as where the order was mistaken; None: none is."""
    try:
        levels = network_levels(spec.levels or ())
    except InputError:  # Names nobody knows are told with all others.
        return None
    for inner, outer in pairwise(levels):
        if outer.fanout > 1 and outer.bandwidth > FASTER * inner.bandwidth:
            return (
                f"cluster.levels: {outer.name}, {format_decimal(outer.bandwidth, 'B/s')}, is faster than {inner.name}, "
                f"{format_decimal(inner.bandwidth, 'B/s')}, inside it; levels are written innermost first."
            )
    return None
