"""Networks of ASTRA-sim's analytical backend, of both generations of its files, and its logical dimensions.

`topology`, `npus_count`, `bandwidth` and `latency` (GiB/s and ns, one item a dimension, the fastest first):
astra-sim/astra-network-analytical@599a047 common/network-parser/NetworkParser.cpp. Its documentation says GB/s, and
common/NetworkFunction (`bw_GBps_to_Bpns`) takes a GB for 2^30 bytes. The JSON of its first version calls the same
`topologies-per-dim`, `units-count`, `links-count`, `link-bandwidth` and `link-latency` (ASTRA-sim's documentation,
getting-started/argument-network-config) and counts 10^9 bytes: analytical/src/topology/Topology.cc divides bytes by
GB/s for ns. A device has links of its own in each dimension, to those that
share its other coordinates.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from math import isfinite, prod
from typing import Any

from attrs import frozen

from nest.errors import InputError
from nest.network.graph import LinkGraph, NetworkBuilder, check_size
from nest.network.imported import Imported
from nest.spec import LevelSpec
from nest.units import BytesPerSecond, Seconds

RING, SWITCH, ALL_TO_ALL = "ring", "switch", "all-to-all"
"""Joins of the devices of one row: to their neighbours, to a switch, each to each."""


@frozen
class Dimension:
    """One dimension of such a network.

    Attributes:
        kind: how the devices of one row are joined.
        size: devices of a row.
        bandwidth: of one link, bytes per second and direction.
        latency: of one link, seconds.
    """

    kind: str
    size: int
    bandwidth: float
    latency: float

    @property
    def uniform(self) -> bool:
        """True if every two devices of a row are equally far apart, as in a ring of three."""
        return self.kind != RING or self.size <= 3

    @property
    def end_to_end(self) -> float:
        """Seconds between two devices of a row that is `uniform`: by a switch a message takes two links."""
        return self.latency * (2 if self.kind == SWITCH else 1)


def product_graph(dimensions: Sequence[Dimension]) -> LinkGraph:
    """The devices, numbered with the first dimension fastest and called by their numbers, with their links.

    Raises:
        InputError: there are too many devices, or fewer than two.
    """
    sizes = [each.size for each in dimensions]
    count = prod(sizes)
    check_size(count, count, count * len(sizes))
    network = NetworkBuilder()
    for index in range(count):
        network.device(str(index))
    for axis, dimension in enumerate(dimensions):
        stride = prod(sizes[:axis])
        for row in _rows(sizes, axis):
            members = [row + place * stride for place in range(dimension.size)]
            for one, two in _joined(network, dimension, axis, members):
                network.link(one, two, dimension.bandwidth, dimension.latency)
    return network.built()


def _rows(sizes: Sequence[int], axis: int) -> Iterator[int]:
    """The first device of every row along a dimension."""
    strides = [prod(sizes[:other]) for other in range(len(sizes))]
    others = [range(1 if other == axis else size) for other, size in enumerate(sizes)]
    for point in product(*others):
        yield sum(place * stride for place, stride in zip(point, strides, strict=True))


def _joined(
    network: NetworkBuilder, dimension: Dimension, axis: int, members: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """The two ends of each link of a row."""
    if dimension.kind == SWITCH:
        middle = network.switch(f"switch {axis}.{members[0]}")
        yield from ((member, middle) for member in members)
    elif dimension.kind == RING:
        closed = len(members) > 2  # Two devices in a ring have one link.
        yield from pairwise(members)
        if closed:
            yield members[-1], members[0]
    else:
        yield from ((one, two) for index, one in enumerate(members) for two in members[index + 1 :])


KINDS = {"ring": RING, "switch": SWITCH, "fullyconnected": ALL_TO_ALL, "alltoall": ALL_TO_ALL}
"""ASTRA-sim's building blocks, in small letters; the first version called the last one `AllToAll`."""

KEYS = ("topology", "npus_count", "bandwidth", "latency")
OLD_KEYS = ("topologies-per-dim", "units-count", "link-bandwidth", "link-latency")
OLD_LINKS = "links-count"
LARGEST = 1e12
"""Of any figure: a device count, GB/s or ns far beyond what is built."""

GIGABYTE, OLD_GIGABYTE = 2.0**30, 1e9
"""Bytes of a GB in bandwidths of today's files, and of the first version's."""

LOGICAL = "logical-dims"
"""The only key of the files that ASTRA-sim takes beside an ns-3 topology."""


class AstraSimImporter:
    """Reads the network file of ASTRA-sim's analytical backend."""

    name = "astra-sim"
    profiled = True
    examples = (
        {"topology": ["Switch", "Switch"], "npus_count": [8, 4], "bandwidth": [400, 50], "latency": [936, 1000]},
    )

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is a mapping with the keys of such a file, or with logical dimensions."""
        return isinstance(source, Mapping) and (
            set(KEYS[:2]) <= set(source) or OLD_KEYS[0] in source or LOGICAL in source
        )

    def load(self, source: Mapping[str, Any], profile: object = None) -> Imported:
        """Levels where every two devices of a row are equally far apart in every dimension, else devices and links.

        Raises:
            InputError: a key is missing, or a value cannot be; sentences begin with the key. Logical dimensions alone
                have no links.
        """
        if LOGICAL in source:
            raise InputError(
                f"{LOGICAL} has no links, bandwidths or latencies. Import the ns-3 topology (`.txt`) of the simulation."
            )
        dimensions = _dimensions(source)
        if not all(each.uniform for each in dimensions):
            return Imported(product_graph(dimensions), assumptions=_assumptions(dimensions, OLD_KEYS[0] in source))
        levels = tuple(
            LevelSpec(each.size, BytesPerSecond(each.bandwidth), Seconds(each.end_to_end), f"dimension {index}")
            for index, each in enumerate(dimensions)
        )
        return Imported(levels, assumptions=_assumptions(dimensions, OLD_KEYS[0] in source))


def _assumptions(dimensions: Sequence[Dimension], old: bool) -> tuple[str, ...]:
    assumptions = [] if old else ["Reading bandwidths in GiB/s (2^30 bytes), as ASTRA-sim does."]
    if any(each.kind == ALL_TO_ALL and each.size > 2 for each in dimensions):
        assumptions.append(
            "FullyConnected: a device sends over one of its links at a time, so it has the bandwidth of one link."
        )
    if len(dimensions) > 1 and all(each.uniform for each in dimensions):
        assumptions.append("Each message uses one dimension, as in ASTRA-sim: latencies do not add up.")
        if any(far.bandwidth > near.bandwidth for near, far in pairwise(dimensions)):
            assumptions.append(
                "An outer dimension is faster than an inner one; messages that cross both take the slower one."
            )
    return tuple(assumptions)


def _dimensions(source: Mapping[str, Any]) -> list[Dimension]:
    """Those of a file; of the first version, with several links of a device.

    Of these a ring takes two, to each other device goes an equal part, to a switch all.
    """
    old = OLD_KEYS[0] in source
    kinds_key, sizes_key, bandwidth_key, latency_key = OLD_KEYS if old else KEYS
    gigabyte = OLD_GIGABYTE if old else GIGABYTE
    kinds = _kinds(source, kinds_key)
    sizes = _sizes(source, sizes_key, len(kinds))
    links: Sequence[float | None] = [None] * len(kinds)
    if old:
        links = _numbers(source, OLD_LINKS, len(kinds), positive=True)
    bandwidths = _numbers(source, bandwidth_key, len(kinds), positive=True)
    latencies = _numbers(source, latency_key, len(kinds), positive=False)
    dimensions = []
    for kind, size, count, bandwidth, latency in zip(kinds, sizes, links, bandwidths, latencies, strict=True):
        ways = {SWITCH: 1, RING: min(2, size - 1), ALL_TO_ALL: size - 1}[kind]
        share = 1.0 if count is None else count / ways
        dimensions.append(Dimension(kind, size, share * bandwidth * gigabyte, latency / 1e9))
    return dimensions


def _listed(source: Mapping[str, Any], key: str) -> list[Any]:
    value = source.get(key)
    if value is None:
        raise InputError(f"{key} is missing; an ASTRA-sim network gives one item for each dimension.")
    entries = list(value) if isinstance(value, (list, tuple)) else [value]
    if not entries:
        raise InputError(f"{key} must not be empty; give one item for each dimension.")
    return entries


def _kinds(source: Mapping[str, Any], key: str) -> list[str]:
    kinds = []
    for index, word in enumerate(_listed(source, key)):
        kind = KINDS.get(str(word).lower().replace("_", "").replace("-", ""))
        if kind is None:
            raise InputError(f"{key}[{index}] is {word!r:.40}; ASTRA-sim has Ring, Switch and FullyConnected.")
        kinds.append(kind)
    return kinds


def _numbers(source: Mapping[str, Any], key: str, count: int, *, positive: bool) -> list[float]:
    values = _listed(source, key)
    if len(values) != count:
        raise InputError(f"{key} has {len(values)} items for {count} dimensions; give one for each.")
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
            raise InputError(f"{key}[{index}] is {value!r:.40}, not a number; fill it in.")
        if value > LARGEST:
            raise InputError(f"{key}[{index}] is {value:g}, more than any network has.")
        if value < 0 or (positive and value == 0):
            raise InputError(f"{key}[{index}] must be {'above' if positive else 'at least'} 0, is {value:g}.")
    return [float(value) for value in values]


def _sizes(source: Mapping[str, Any], key: str, count: int) -> list[int]:
    sizes = _numbers(source, key, count, positive=True)
    for index, value in enumerate(sizes):
        if value != int(value) or value < 2:
            raise InputError(f"{key}[{index}] must be a whole number of at least 2 devices, is {value:g}.")
    return [int(value) for value in sizes]
