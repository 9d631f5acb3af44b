"""The best path of every two devices, of the fewest hops and of those the widest, and what links carry on the way.

A level's bandwidth is what each device gets when all devices send (PROBLEM.md section 1: "per device, per direction").
A link between switches has the bandwidth it has, whoever uses it: four leaf switches of eight devices each, joined by
single links to a spine, give a device an eighth of such a link. Where a leaf has several ways up, its devices spread
over them, as equal-cost multi-path routing does (RFC 2992).
"""

import numpy
from attrs import frozen

from nest.instance.pairs import Pairs
from nest.network.graph import Floats, LinkGraph, Numbers

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
    first: Numbers = states[marks[states] == positions]
    return first


DIGITS = 9
"""Decimals kept of a load: sums of fractions of traffic are whole numbers again."""


Widths = tuple[tuple[frozenset[int], Floats], ...]
"""For some distances in hops, what a device gets of each link between devices so far apart (bytes per second)."""


def widths(graph: LinkGraph) -> Widths:
    """What each device gets of each link: all of it, or its share of a link between switches.

    Distances for which links count alike are together; every distance is in one of the sets, and where there is one
    set only it holds for all.
    """
    result = loads(graph)
    most = numpy.max(list(result.values()), axis=0) if result else numpy.zeros(len(graph.ends))
    if all((_shared(load) == _shared(most))[load > 0].all() for load in result.values()):
        return ((frozenset(result), graph.bandwidth / _shared(most)),)
    return tuple((frozenset([far]), graph.bandwidth / _shared(load)) for far, load in sorted(result.items()))


def _shared(load: Floats) -> Floats:
    """Among how many devices a link is divided; a single device gets no more than the link."""
    return numpy.maximum(load, 1.0)


def loads(graph: LinkGraph) -> dict[int, Floats]:
    """By distance in hops, the devices whose traffic each link carries; 0 for links at a device, which are its own.

    Every device sends as fast as one, evenly to all devices at that distance and evenly over all ways of so many hops.
    Of the two directions of a link the busier counts. Nothing where no link is shared.
    """
    trunks = graph.trunks
    if not graph.shared or not trunks.any():
        return {}
    walked = directed(graph)
    at_once = walked.sources_at_once()
    carried: dict[int, Floats] = {}
    for start in range(0, len(graph.devices), at_once):
        _add(graph, walked, graph.devices[start : start + at_once], carried)
    result = {}
    for far, load in carried.items():
        both = numpy.zeros(len(graph.ends))
        numpy.maximum.at(both, walked.link, load)
        result[far] = numpy.where(trunks, numpy.round(both, DIGITS), 0.0)
    return result


def _add(graph: LinkGraph, walked: Directed, sources: Numbers, carried: dict[int, Floats]) -> None:
    """Add what each directed link carries from `sources`, by the distance of the receivers."""
    distance, ways, steps = _walk(walked, sources)
    at_device = graph.is_device[numpy.arange(distance.size) % walked.nodes]
    for far in range(1, len(steps) + 1):
        receivers = numpy.flatnonzero((distance == far) & at_device)
        if not len(receivers):
            continue
        per_source = numpy.bincount(receivers // walked.nodes, minlength=len(sources))
        flow = numpy.zeros(distance.size)
        flow[receivers] = 1.0 / per_source[receivers // walked.nodes]
        total = carried.setdefault(far, numpy.zeros(len(walked.head)))
        for origin, taken, reached in reversed(steps[:far]):
            part = flow[reached] * (ways[origin] / ways[reached])
            flow += numpy.bincount(origin, part, minlength=distance.size)
            total += numpy.bincount(taken, part, minlength=len(walked.head))


def _walk(walked: Directed, sources: Numbers) -> tuple[Numbers, Floats, list[tuple[Numbers, Numbers, Numbers]]]:
    """Distances, numbers of shortest ways and, hop by hop, the steps of those ways: from where, what link, to where."""
    states = len(sources) * walked.nodes
    distance = numpy.full(states, -1, dtype=numpy.int64)
    ways, marks = numpy.zeros(states), numpy.zeros(states, dtype=numpy.int64)
    front = numpy.arange(len(sources)) * walked.nodes + sources
    distance[front], ways[front] = 0, 1.0
    steps: list[tuple[Numbers, Numbers, Numbers]] = []
    while len(front):
        position, taken, reached = walked.steps(front)
        fresh = distance[reached] < 0
        origin, taken, reached = front[position[fresh]], taken[fresh], reached[fresh]
        front = first_of_each(reached, marks)
        distance[front] = len(steps) + 1
        ways += numpy.bincount(reached, ways[origin], minlength=states)
        if len(front):
            steps.append((origin, taken, reached))
    return distance, ways, steps


FEMTOSECOND = 15
"""Decimals kept of a latency in seconds: links in another order add up to the same number."""


def pairs(graph: LinkGraph) -> Pairs:
    """Bandwidth, latency and hops between every two devices of `graph`, along widest-shortest paths.

    Of the paths with the fewest hops the widest counts (RFC 2676, "QoS Routing Mechanisms and OSPF Extensions"). Its
    bandwidth is that of its narrowest link; a link between switches counts as the share of a
    device when all send that far (`sharing`). Latencies of its links add up; where several paths are as wide, theirs is
    found hop by hop and is never less than that of the quickest. Devices pass on what is not for them.
    """
    walked = directed(graph)
    patterns = widths(graph)
    delay = graph.latency[walked.link]
    count, at_once = len(graph.devices), walked.sources_at_once()
    bandwidth, latency = numpy.empty((count, count)), numpy.empty((count, count))
    hops = numpy.empty((count, count), dtype=numpy.int16)
    for start in range(0, count, at_once):
        rows = slice(start, min(start + at_once, count))
        for distances, width in patterns:
            best = _best(walked, graph.devices[rows], width[walked.link], delay)
            widest, quickest, fewest = (values.reshape(-1, walked.nodes)[:, graph.devices] for values in best)
            meant = numpy.isin(fewest, [0, *distances]) if len(patterns) > 1 else numpy.ones(fewest.shape, dtype=bool)
            numpy.copyto(bandwidth[rows], widest, where=meant)
            numpy.copyto(latency[rows], quickest, where=meant)
            hops[rows] = fewest
    numpy.maximum(latency, latency.T.copy(), out=latency)
    numpy.round(latency, FEMTOSECOND, out=latency)
    return Pairs(tuple(graph.names[index] for index in graph.devices), bandwidth, latency, hops)


def _best(walked: Directed, sources: Numbers, width: Floats, delay: Floats) -> tuple[Floats, Floats, Numbers]:
    """Bandwidth, latency and hops from each source to each node, flat."""
    states = len(sources) * walked.nodes
    hops, marks = numpy.full(states, -1, dtype=numpy.int64), numpy.zeros(states, dtype=numpy.int64)
    best, quickest = numpy.zeros(states), numpy.full(states, numpy.inf)
    front = numpy.arange(len(sources)) * walked.nodes + sources
    hops[front], best[front], quickest[front] = 0, numpy.inf, 0.0
    depth = 0
    while len(front):
        depth += 1
        position, taken, reached = walked.steps(front)
        fresh = hops[reached] < 0
        origin, taken, reached = front[position[fresh]], taken[fresh], reached[fresh]
        widths = numpy.minimum(best[origin], width[taken])
        numpy.maximum.at(best, reached, widths)
        widest = widths == best[reached]
        numpy.minimum.at(quickest, reached[widest], quickest[origin[widest]] + delay[taken[widest]])
        front = first_of_each(reached, marks)
        hops[front] = depth
    return best, quickest, hops
