"""A network as solvers and pricing see it: paths, rings and links, devices numbered as in the cluster's levels."""

from collections.abc import Sequence
from functools import lru_cache

from nest.instance.network import Numbers, Ring
from nest.instance.pairs import Floats
from nest.network.least import LeastRings
from nest.network.product import Product
from nest.network.rings import Rings
from nest.network.routes import Routes

MOST_PATHS = 65_536
"""Paths kept: a search walks the same ones again and again."""


class PathNetwork:
    """`NetworkModel` on the links that there are."""

    def __init__(self, routes: Routes, product: Product | None, *, all_ports: bool = False) -> None:
        """A network of these routes and, if it has any, dimensions.

        Args:
            routes: the path of every two devices.
            product: the dimensions; None: it has none.
            all_ports: whether collectives drive all ports of a device at once.
        """
        self._routes = routes
        self._product = product
        self._path = lru_cache(maxsize=MOST_PATHS)(routes.path)
        self._rings = Rings(routes, product, all_ports=all_ports)
        self._least = LeastRings(routes, product, all_ports=all_ports)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the devices."""
        return self._routes.names

    @property
    def bandwidth(self) -> Floats:
        """Smallest bandwidth on the path of every two devices, bytes per second; infinite on the diagonal."""
        return self._routes.bandwidth

    @property
    def latency(self) -> Floats:
        """Sum of latencies on the path of every two devices, seconds; 0 on the diagonal."""
        return self._routes.latency

    @property
    def link_bandwidth(self) -> Floats:
        """Bytes per second of each directed link; infinite where it is not shared."""
        return self._routes.link_bandwidth

    @property
    def routes(self) -> Routes:
        """The paths, with the directed links' ends."""
        return self._routes

    @property
    def dimensions(self) -> Product | None:
        """Where devices lie along each dimension; None: the network is no product."""
        return self._product

    def path(self, source: int, target: int) -> Numbers:
        """The directed links of the path between two devices, in order."""
        return self._path(source, target)

    def paths(self, sources: Numbers, targets: Numbers) -> tuple[Numbers, Numbers]:
        """The directed links of many paths, in no order: which of the paths, and the link."""
        return self._routes.paths(sources, targets)

    def rings(self, members: Sequence[int]) -> tuple[Ring, ...]:
        """The ways to run a collective over two devices or more, none of which another beats, by ascending latency."""
        return self._rings.over(members)

    def least_rings(self, count: int) -> tuple[tuple[float, float], ...]:
        """Latencies and bandwidths such that no ring over any `count` devices beats all of them for any buffer."""
        return self._least.of(count)
