"""Networks of several dimensions: a device has links of its own in each, to those that share its other coordinates."""

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import prod

from attrs import frozen

from nest.network.builder import NetworkBuilder
from nest.network.graph import LinkGraph, check_size

RING, SWITCH, ALL_TO_ALL = "ring", "switch", "all-to-all"
"""How the devices of one row are joined: to their neighbours, to a switch, each to each."""


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
        """Whether every two devices of a row are equally far apart, as in a ring of three."""
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
