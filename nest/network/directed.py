"""Links in both directions, by the node they leave, as arrays to be walked many at a time."""

import numpy
from attrs import frozen

from nest.network.graph import LinkGraph, Numbers

STEPS_AT_ONCE = 2_000_000
"""Links looked at together: few enough that the arrays of one step take tens of megabytes."""


@frozen(eq=False)
class Directed:
    """The links of a graph in both directions, sorted by the node they leave.

    Attributes:
        nodes: number of nodes.
        begin: for each node the first of its links, and the number of links at the end.
        head: the node each link leads to.
        link: which link of the graph it is.
        forward: whether it leads from the first to the second end of that link.
    """

    nodes: int
    begin: Numbers
    head: Numbers
    link: Numbers
    forward: Numbers

    def steps(self, flat: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Every step out of the given states: positions in `flat`, links taken, states reached.

        A state is `source * nodes + node`: a walk from the source has come to the node.
        """
        node = flat % self.nodes
        counts = self.begin[node + 1] - self.begin[node]
        position = numpy.repeat(numpy.arange(len(flat)), counts)
        offset = numpy.arange(len(position)) - numpy.repeat(numpy.cumsum(counts) - counts, counts)
        taken = self.begin[node][position] + offset
        reached = flat[position] - node[position] + self.head[taken]
        return position, taken, reached

    def sources_at_once(self) -> int:
        """How many sources to walk from together."""
        return max(1, STEPS_AT_ONCE // max(1, len(self.head)))


def directed(graph: LinkGraph) -> Directed:
    """The links of `graph` in both directions."""
    one, two = graph.ends[:, 0], graph.ends[:, 1]
    tail, head = numpy.concatenate([one, two]), numpy.concatenate([two, one])
    count = len(one)
    order = numpy.argsort(tail, kind="stable")
    begin = numpy.zeros(len(graph.names) + 1, dtype=numpy.int64)
    numpy.cumsum(numpy.bincount(tail, minlength=len(graph.names)), out=begin[1:])
    return Directed(
        nodes=len(graph.names),
        begin=begin,
        head=head[order],
        link=order % count,
        forward=(order < count).astype(numpy.int64),
    )


def first_of_each(states: Numbers, marks: Numbers) -> Numbers:
    """`states` with each once; `marks` is room for a number per state, of any content."""
    positions = numpy.arange(len(states))
    marks[states] = positions
    found: Numbers = states[marks[states] == positions]
    return found
