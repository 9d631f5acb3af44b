"""The `cluster` section of a problem, its calibration, and link profiles (FORMATS.md)."""

from collections.abc import Iterator
from typing import Any, ClassVar

from attrs import field, fields, frozen

from nest.errors import FieldError, FieldErrors
from nest.io.names import hint
from nest.records import Record
from nest.spec.device import ENGINE_RULE, DeviceSpec
from nest.spec.topology import DragonflySpec, FatTreeSpec, MatrixSpec, MeshSpec, RailOptimisedSpec, TorusSpec
from nest.spec.validators import above, all_different, at_least, between, every, not_empty
from nest.units import Bytes, BytesPerSecond, Seconds


@frozen(eq=False, repr=False)
class TierSpec(Record):
    """Links of one tier of a network.

    Attributes:
        link: name of a link in the catalogue, which supplies omitted figures.
        bandwidth: bytes per second, per device and direction; None: the link's.
        latency: seconds from end to end between two devices that meet in this tier; None: the link's.
        oversubscription: bandwidth downwards over bandwidth upwards of its switches, if the file does not count links;
            1 is none.
    """

    link: str | None = None
    bandwidth: BytesPerSecond | None = field(default=None, validator=above(0))
    latency: Seconds | None = field(default=None, validator=at_least(0))
    oversubscription: float = field(default=1.0, validator=at_least(1))


@frozen(eq=False, repr=False)
class LinkProfile(Record):
    """Figures for network files without any.

    Attributes:
        name: as in `nest topology profiles`; None: the profile is a file of its own.
        description: one line.
        device: name of the accelerator in the catalogue; None: from the problem.
        devices_per_host: accelerators of one host; None: those of the usual profile.
        host: links between the accelerators of one host; None: those of the usual profile.
        domain: links between the accelerators of several hosts in one NVLink domain, such as a rack; None: only the
            network connects hosts.
        tiers: of the network, the hosts' leaf switches first; the last serves all further ones; empty: those of
            the usual profile.
        sources: of each figure.
        tier_labels: labels of Kubernetes nodes that name the switches above each, outermost first.
    """

    name: str | None = None
    description: str = ""
    device: str | None = None
    devices_per_host: int | None = field(default=None, validator=at_least(1))
    host: TierSpec | None = None
    domain: TierSpec | None = None
    tiers: tuple[TierSpec, ...] = ()
    sources: tuple[str, ...] = ()
    tier_labels: tuple[str, ...] = ()


@frozen(eq=False, repr=False)
class LevelSpec(Record):
    """One level of the network, as written.

    Attributes:
        fanout: children per group.
        bandwidth: bytes per second, per device and direction; None: the link's.
        latency: seconds from end to end; None: the link's.
        name: for reports; None: `level 0`, `level 1`, ...
        link: name of a link in the catalogue, which gives what is left out.
    """

    fanout: int = field(validator=at_least(1))
    bandwidth: BytesPerSecond | None = field(default=None, validator=above(0))
    latency: Seconds | None = field(default=None, validator=at_least(0))
    name: str | None = None
    link: str | None = None


@frozen(eq=False, repr=False)
class ClusterCalibration(Record):
    """Calibration of predictions by runs on a cluster, written by `nest calibrate cluster`.

    Attributes:
        time: measured step times over predictions without it; factor on every predicted time.
        time_spread: remaining spread of times: standard deviation of the logarithm.
        memory: median of memory need over estimate; None: as on any cluster.
        memory_spread: standard deviation of its logarithm; None: the same.
        runs: number of runs.
        sources: of the runs.
    """

    time: float = field(validator=between(0.1, 10))
    time_spread: float = field(validator=between(0.001, 2))
    memory: float | None = field(default=None, validator=between(0.1, 10))
    memory_spread: float | None = field(default=None, validator=between(0.001, 2))
    runs: int = field(default=0, validator=at_least(0))
    sources: tuple[str, ...] = ()


@frozen(eq=False, repr=False)
class PoolSpec(Record):
    """One kind of device of a cluster with several (PROBLEM.md section 8).

    Attributes:
        name: used by candidates of a profile, plans and `between`.
        levels: of its network, innermost first.
        device: name in the catalogue, or the figures in place; needed with `model`.
        memory: bytes per device; None: the device's.
        reserve: bytes kept free on every device.
        engines: of one device; None: the device's.
        hosts: names of its machines along the devices, with equally many devices; None: unknown.
        devices_per_host: accelerators of one machine, as in a cluster.
        price: of one device for an hour, in any currency; None: unknown.
        zone: its location, by any name; None: unknown.
    """

    name: str = field(validator=not_empty)
    levels: tuple[LevelSpec, ...] = field(validator=not_empty)
    device: str | DeviceSpec | None = None
    memory: Bytes | None = field(default=None, validator=above(0))
    reserve: Bytes = field(default=Bytes(0.0), validator=at_least(0))
    engines: tuple[str, ...] | None = field(default=None, validator=ENGINE_RULE)
    hosts: tuple[str, ...] | None = field(default=None, validator=every(not_empty, all_different))
    devices_per_host: int | None = field(default=None, validator=at_least(1))
    price: float | None = field(default=None, validator=above(0))
    zone: str | None = None

    @property
    def cluster(self) -> "ClusterSpec":
        """The pool as a cluster of its own."""
        same = ("levels", "device", "memory", "reserve", "engines", "hosts", "devices_per_host", "price")
        return ClusterSpec(**{key: getattr(self, key) for key in same})


@frozen(eq=False, repr=False)
class BetweenSpec(Record):
    """Link between two pools; stages of unconnected pools are never neighbours.

    Attributes:
        pools: their names.
        bandwidth: bytes per second, per device and direction; None: the link's.
        latency: seconds from end to end; None: the link's.
        link: name of a link in the catalogue, which supplies omitted figures.
        egress: price of a gigabyte (10^9 bytes) between the pools in either direction, in the currency of their prices;
            None: free.
    """

    pools: tuple[str, str]
    bandwidth: BytesPerSecond | None = field(default=None, validator=above(0))
    latency: Seconds | None = field(default=None, validator=at_least(0))
    link: str | None = None
    egress: float | None = field(default=None, validator=above(0))


@frozen(eq=False, repr=False)
class ClusterSpec(Record):
    """The machines, as written: `levels`, a named cluster, a topology, or pools.

    Attributes:
        levels: innermost first; None when `name` or `topology` gives them.
        device: name in the catalogue, or the figures in place; needed with `model`.
        memory: bytes per device; None: the device's.
        reserve: bytes kept free on every device.
        topology: the network by its links: a file, a graph in place, or the parameters of a well-known one; reduced to
            levels.
        name: a name from `nest clusters`, or a file with a `cluster` section.
        engines: of one device; None: the device's.
        hosts: names of the machines along the devices, with equally many devices; None: unknown.
        devices_per_host: accelerators of one machine; None: the devices divided evenly among `hosts`, or the innermost
            level's without hosts.
        link_profile: figures missing in the file of `topology`: a name from `nest topology profiles`, a file, or the
            figures in place.
        calibration: by runs on it: a file of `nest calibrate cluster`, or the figures in place; with `model` only, as
            the times of a profile are measured.
        price: of one device for an hour, in any currency; None: unknown.
        assumed: assumptions of the importer of a file, a sentence each; None: none.
        pools: kinds of device, in place of all other keys; None: one kind.
        between: links between the pools; None: none.
    """

    WRITTEN_SHORT: ClassVar[str] = "name"

    levels: tuple[LevelSpec, ...] | None = field(default=None, validator=not_empty)
    device: str | DeviceSpec | None = None
    memory: Bytes | None = field(default=None, validator=above(0))
    reserve: Bytes = field(default=Bytes(0.0), validator=at_least(0))
    topology: (
        str
        | TorusSpec
        | MeshSpec
        | DragonflySpec
        | RailOptimisedSpec
        | FatTreeSpec
        | MatrixSpec
        | dict[str, Any]
        | None
    ) = None
    name: str | None = None
    engines: tuple[str, ...] | None = field(default=None, validator=ENGINE_RULE)
    hosts: tuple[str, ...] | None = field(default=None, validator=every(not_empty, all_different))
    devices_per_host: int | None = field(default=None, validator=at_least(1))
    link_profile: str | LinkProfile | None = None
    calibration: str | ClusterCalibration | None = None
    price: float | None = field(default=None, validator=above(0))
    assumed: tuple[str, ...] | None = None
    pools: tuple[PoolSpec, ...] | None = field(default=None, validator=not_empty)
    between: tuple[BetweenSpec, ...] | None = None

    def __attrs_post_init__(self) -> None:
        errors = [*self._beside_pools(), *self._pool_errors()]
        if errors:
            raise FieldErrors(errors)

    def _beside_pools(self) -> Iterator[FieldError]:
        if self.pools is None:
            if self.between:
                yield FieldError(("between",), "joins pools, but there are none; give pools")
            return
        for each in fields(ClusterSpec):
            if each.name not in ("pools", "between", "assumed") and getattr(self, each.name):
                yield FieldError((each.name,), "and pools exclude each other; give it in each pool")

    def _pool_errors(self) -> Iterator[FieldError]:
        names = [each.name for each in self.pools or ()]
        for index, name in enumerate(names):
            if names.index(name) < index:
                yield FieldError(("pools", index, "name"), f"is {name!r}, the name of an earlier pool")
        owner: dict[str, int] = {}
        for index, each in enumerate(self.pools or ()):
            for host in each.hosts or ():
                if owner.setdefault(host, index) != index:
                    yield FieldError(("pools", index, "hosts"), f"names {host!r:.60}, as does pools[{owner[host]}]")
        between = self.between or () if self.pools else ()
        joined = [frozenset(each.pools) for each in between]
        for index, pair in enumerate(joined):
            place = ("between", index, "pools")
            for end, name in enumerate(between[index].pools):
                if name not in names:
                    meaning = hint(name, names)
                    yield FieldError(
                        (*place, end), f"is {name!r}, but no pool has this name" + f"; {meaning}" * bool(meaning)
                    )
            if len(pair) < 2:
                yield FieldError(place, "must name two different pools")
            elif joined.index(pair) < index:
                yield FieldError(place, f"are joined by between[{joined.index(pair)}] already")
            zones = {each.zone for each in self.pools or () if each.name in pair}
            if between[index].egress is not None and len(zones) == 1 and zones != {None}:
                yield FieldError(("between", index, "egress"), "is paid between zones, and both pools stand in one")


@frozen(eq=False, repr=False)
class ClusterOfFile(Record):
    """A file with only a `cluster` section, written by `nest topology import`.

    Attributes:
        cluster: the section.
    """

    cluster: ClusterSpec
