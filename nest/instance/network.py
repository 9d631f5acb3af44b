"""A network that is no hierarchy, as solvers and pricing see it (PROBLEM.md section 1, "Arbitrary network")."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance.candidate import Array, Candidate

if TYPE_CHECKING:
    from nest.instance.cluster import Level
    from nest.instance.instance import Instance
    from nest.instance.protocols import CollectiveModel
    from nest.instance.solution import Solution

Numbers = NDArray[numpy.int64]


@frozen(eq=False)
class Ring:
    """A way to run collectives over some devices, as costly as a flat ring of these figures.

    Attributes:
        latency: seconds of a step.
        bandwidth: bytes per second that every member sends and receives.
        links: the directed links used, each once, ascending.
        shares: bytes that each of them carries in one phase, per byte of the full buffer.
    """

    latency: float
    bandwidth: float
    links: Numbers
    shares: Array


class NetworkModel(Protocol):
    """Paths, rings and links of a network; devices are numbered as in the cluster's levels."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the devices."""

    @property
    def bandwidth(self) -> Array:
        """Smallest bandwidth on the path of every two devices, shape `(devices, devices)`; infinite on the diagonal."""

    @property
    def latency(self) -> Array:
        """Sum of latencies on the path of every two devices, shape `(devices, devices)`; 0 on the diagonal."""

    @property
    def link_bandwidth(self) -> Array:
        """Bytes per second of each directed link, which all that cross it share; infinite where it is not shared."""

    @property
    def dimensions(self) -> object | None:
        """Where devices lie along each dimension, which rings may run over one after the other; None: it has none."""

    def path(self, source: int, target: int) -> Numbers:
        """The directed links of the path between two devices, in order."""

    def paths(self, sources: Numbers, targets: Numbers) -> tuple[Numbers, Numbers]:
        """The directed links of many paths, in no order: which of the paths, and the link."""

    def rings(self, members: Sequence[int]) -> tuple[Ring, ...]:
        """The ways to run a collective over two devices or more, none of which another beats in both figures."""

    def least_rings(self, count: int) -> tuple[tuple[float, float], ...]:
        """Latencies and bandwidths such that no ring over any `count` devices beats all of them for any buffer."""


@frozen(eq=False)
class PlacedNetwork:
    """A network with what plans placed on it are priced with.

    Attributes:
        model: paths, rings and links.
        factors: for each candidate, what its width is a product of: sizes of the sets of ranks that its collectives run
            over, innermost first; empty where layers were measured whole.
        repriced: a candidate, by index, with collectives inside the block on such levels, one for each of its factors.
        collectives: the model that prices a collective on one ring.
        price: seconds per step of a placed plan of an instance, and which stages need more memory than there is.
    """

    model: NetworkModel
    factors: tuple[tuple[int, ...], ...]
    repriced: "Callable[[int, tuple[Level, ...]], Candidate]"
    collectives: "CollectiveModel"
    price: "Callable[[Instance, Solution], tuple[float, tuple[bool, ...]]]"
