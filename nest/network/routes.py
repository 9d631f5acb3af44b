"""The one path that messages between two devices take, link by link (PROBLEM.md section 1, "Arbitrary network")."""

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance.network import Numbers
from nest.instance.pairs import Floats


@frozen(eq=False)
class Routes:
    """Paths between every two devices, and what a message alone gets on them.

    Attributes:
        names: of the devices.
        bandwidth: smallest on the path, bytes per second, devices by devices; infinite on the diagonal.
        latency: sum over the path, seconds, devices by devices; 0 on the diagonal.
        hops: links on the path, devices by devices.
        link_bandwidth: bytes per second of each directed link that all who cross it share; infinite: not shared.
        nodes: of each device, the node it is; nodes are numbered as in the file.
        tails: of each directed link, the node it leaves.
        heads: of each directed link, the node it leads to.
        last: for each device and each node the last directed link on the way there, -1 at the device itself; None:
            every ordered pair of devices has a directed link of its own, `source * devices + target` of their nodes.
    """

    names: tuple[str, ...]
    bandwidth: Floats
    latency: Floats
    hops: Numbers
    link_bandwidth: Floats
    nodes: Numbers
    tails: Numbers
    heads: Numbers
    last: NDArray[numpy.int32] | None

    @property
    def size(self) -> int:
        """Number of devices."""
        return len(self.names)

    def path(self, source: int, target: int) -> Numbers:
        """The directed links from one device to another, in order; none to itself."""
        if source == target:
            return numpy.empty(0, dtype=numpy.int64)
        if self.last is None:
            return numpy.array([self.nodes[source] * self.size + self.nodes[target]])
        last, start, node = self.last[source], self.nodes[source], self.nodes[target]
        links = []
        while node != start:
            links.append(int(last[node]))
            node = self.tails[links[-1]]
        return numpy.array(links[::-1], dtype=numpy.int64)

    def paths(self, sources: Numbers, targets: Numbers) -> tuple[Numbers, Numbers]:
        """The directed links of many paths in no order: which of the paths, and the link."""
        which = numpy.flatnonzero(sources != targets)
        if self.last is None:
            return which, self.nodes[sources[which]] * self.size + self.nodes[targets[which]]
        node, found = self.nodes[targets], []
        while len(which):
            links = self.last[sources[which], node[which]].astype(numpy.int64)
            found.append((which, links))
            node[which] = self.tails[links]
            which = which[node[which] != self.nodes[sources[which]]]
        if not found:
            return which, which
        return numpy.concatenate([each for each, _ in found]), numpy.concatenate([links for _, links in found])
