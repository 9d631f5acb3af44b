"""The path of messages between two devices, link by link (PROBLEM.md section 1, "Arbitrary network")."""

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance.network import Numbers
from nest.instance.pairs import Floats


@frozen(eq=False)
class Routes:
    """Paths between every two devices, and their figures for a message alone."""

    names: tuple[str, ...]  # Of the devices.
    bandwidth: Floats  # Smallest on the path, bytes per second, devices by devices; infinite on the diagonal.
    latency: Floats  # Sum over the path, seconds, devices by devices; 0 on the diagonal.
    hops: Numbers  # Links on the path, devices by devices.
    link_bandwidth: Floats  # Bytes per second of each directed link, shared by all that cross it; infinite: unshared.
    nodes: Numbers  # Node of each device, numbered as in the file.
    tails: Numbers  # Node that each directed link leaves.
    heads: Numbers  # Node that each directed link leads to.
    # For each device and each node the last directed link on the path, -1 at the device itself; None: every ordered
    # pair of devices has its own directed link, `source * devices + target` of their nodes.
    last: NDArray[numpy.int32] | None

    @property
    def size(self) -> int:
        """Number of devices."""
        return len(self.names)

    def path(self, source: int, target: int) -> Numbers:
        """Directed links from one device to another, in order; none to itself."""
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
        """Directed links of many paths, in no order: index of the path, and the link."""
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
