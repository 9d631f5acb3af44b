"""Bandwidths between devices when all send, over paths of the fewest hops, and of those the widest.

A level's bandwidth is each device's when all send (PROBLEM.md section 1: "per device, per direction"). A link has
a fixed bandwidth: four leaf switches of eight devices each, joined by single links to a spine, give a device an eighth
of such a link; a link of a forwarding device is shared with the others. If several paths are as short and as wide,
messages spread over them, as in equal-cost multi-path routing (RFC 2992).
"""

from collections.abc import Iterator, Sequence

import numpy
from attrs import field, frozen
from numpy.typing import NDArray

from nest.instance.pairs import Hops, Pairs
from nest.network.graph import Floats, LinkGraph, Numbers

STEPS_AT_ONCE = 2_000_000  # Links processed together, so that the arrays of one step take tens of megabytes.


@frozen(eq=False)
class Directed:
    """Links of a graph in both directions, sorted by the node they leave."""

    nodes: int  # Number of nodes.
    begin: Numbers  # First link of each node, and the number of links at the end.
    head: Numbers  # Node that each link leads to.
    link: Numbers  # Link of the graph.
    forward: Numbers  # It leads from the first to the second end of that link.

    def steps(self, flat: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Every step from the given states: positions in `flat`, links taken, states reached.

        State `source * nodes + node`: a walk from the source is at the node.
        """
        node = flat % self.nodes
        counts = self.begin[node + 1] - self.begin[node]
        position = numpy.repeat(numpy.arange(len(flat)), counts)
        offset = numpy.arange(len(position)) - numpy.repeat(numpy.cumsum(counts) - counts, counts)
        taken = self.begin[node][position] + offset
        reached = flat[position] - node[position] + self.head[taken]
        return position, taken, reached

    def sources_at_once(self) -> int:
        """Number of sources to walk from together."""
        return max(1, STEPS_AT_ONCE // max(1, len(self.head)))


def directed(graph: LinkGraph) -> Directed:
    """Links of `graph` in both directions."""
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
    """Distinct `states`; `marks` is scratch space with a number per state."""
    positions = numpy.arange(len(states))
    marks[states] = positions
    first: Numbers = states[marks[states] == positions]
    return first


ATTOSECONDS = 1e18
"""Of a second. Latencies are added up in whole attoseconds, so that the order of links does not matter."""


def whole_attoseconds(latency: Floats) -> Floats:
    """Round latencies in seconds to whole attoseconds."""
    whole: Floats = numpy.rint(latency * ATTOSECONDS)
    return whole


@frozen(eq=False)
class _Steps:
    """Steps of best paths to the nodes so many hops away, from some sources."""

    origin: Numbers  # Place of each step's start among the states one hop nearer.
    taken: Numbers  # Directed link.
    reached: Numbers  # Place of its end among the states.
    states: Numbers  # `source * nodes + node`, each once.
    share: Floats  # Part of the traffic to the end on this step: all paths count alike.
    usual: NDArray[numpy.bool_]  # Steps of a message alone: to each end the one whose link is listed first.


def _best_paths(walked: Directed, sources: Numbers, width: Floats) -> list[_Steps]:
    """Steps of the widest paths of the fewest hops, hop by hop.

    A path is widest if it is widest to its last neighbour, and no other neighbour offers a wider one.

    Args:
        sources: nodes to walk from.
        width: of each directed link, bytes per second.
    """
    states = len(sources) * walked.nodes
    widest, marks = numpy.zeros(states), numpy.zeros(states, dtype=numpy.int64)
    seen = numpy.zeros(states, dtype=bool)
    front = numpy.arange(len(sources)) * walked.nodes + sources
    widest[front], seen[front] = numpy.inf, True
    ways, found = numpy.ones(len(front)), list[_Steps]()
    while True:
        origin, taken, states_reached = walked.steps(front)
        fresh = ~seen[states_reached]
        origin, taken, states_reached = origin[fresh], taken[fresh], states_reached[fresh]
        if not len(origin):
            return found
        offered = numpy.minimum(widest[front[origin]], width[taken])
        numpy.maximum.at(widest, states_reached, offered)
        best = offered == widest[states_reached]
        origin, taken, states_reached = origin[best], taken[best], states_reached[best]
        front = first_of_each(states_reached, marks)
        seen[front] = True
        marks[front] = numpy.arange(len(front))
        reached = marks[states_reached]
        sums: Floats = numpy.bincount(reached, ways[origin]).astype(numpy.float64)
        listed = numpy.full(len(front), len(walked.link))
        numpy.minimum.at(listed, reached, walked.link[taken])
        usual = walked.link[taken] == listed[reached]
        found.append(_Steps(origin, taken, reached, front, ways[origin] / sums[reached], usual))
        ways = sums


DIGITS = 9  # Decimals kept of a load, so that sums of fractions of traffic become integers.


def loads(graph: LinkGraph) -> tuple[Floats, ...]:
    """Devices whose traffic each link carries, for distances of 1, 2, ... hops; at most 1 if it limits nobody.

    Every device sends at full speed, evenly to all devices at that distance and over all best paths to each. Devices
    forward. Of a link's two directions the busier counts. Links at switches limit nobody if each device has their
    bandwidth (`shared: false`).
    """
    walked = directed(graph)
    limiting = graph.is_device[graph.ends].all(axis=1) | graph.shared
    carried: list[Floats] = []
    for sources in _batches(graph, walked):
        _add(graph, walked, _best_paths(walked, sources, graph.bandwidth[walked.link]), len(sources), carried)
    result = list[Floats]()
    for load in carried:
        both = numpy.zeros(len(graph.ends))
        numpy.maximum.at(both, walked.link, load)
        numpy.minimum(both, 1.0, out=both, where=~limiting)
        result.append(numpy.round(both, DIGITS))
    return tuple(result)


def _batches(graph: LinkGraph, walked: Directed) -> Iterator[Numbers]:
    at_once = walked.sources_at_once()
    for start in range(0, len(graph.devices), at_once):
        yield graph.devices[start : start + at_once]


def _add(graph: LinkGraph, walked: Directed, steps: list[_Steps], sources: int, carried: list[Floats]) -> None:
    """Add the load of each directed link from some sources, by distance of the receivers."""
    is_device = graph.is_device
    for far, last in enumerate(steps):
        source, node = numpy.divmod(last.states, walked.nodes)
        receives = is_device[node]
        flow = numpy.where(receives, 1.0, 0.0)
        flow /= numpy.maximum(numpy.bincount(source, receives, minlength=sources), 1.0)[source]
        if far == len(carried):
            carried.append(numpy.zeros(len(walked.head)))
        for index in range(far, -1, -1):
            step = steps[index]
            part = flow[step.reached] * step.share
            carried[far] += numpy.bincount(step.taken, part, minlength=len(walked.head))
            flow = numpy.bincount(step.origin, part, minlength=len(steps[index - 1].states) if index else sources)


MOST_PATTERNS = 16
"""Most patterns of shared links; with more, neighbouring distances are merged, each link at its larger load. Each
pattern takes a walk over all steps."""


@frozen(eq=False)
class _Pattern:
    """Distances at which links are shared alike, up to a factor."""

    loads: Floats  # Devices that share each link, at least 1, over the factor; 0: unused at these distances.
    factors: dict[int, float] = field(factory=dict)  # Factor on loads for each distance (in hops, less 1).

    def joined(self, far: int, load: Floats, factor: float) -> "_Pattern | None":
        """Add a distance; None: links are shared differently there."""
        used = load > 0
        scaled = numpy.where(used, numpy.maximum(load, 1.0) / factor, 0.0)
        both = used & (self.loads > 0)
        if (scaled[both] != self.loads[both]).any():
            return None
        return _Pattern(numpy.where(used, scaled, self.loads), {**self.factors, far: factor})


def _patterns(by_distance: Sequence[Floats]) -> list[_Pattern]:
    """Patterns of shared links over all distances; bandwidths are computed once for each."""
    found: list[_Pattern] = []
    for far, load in enumerate(by_distance):
        for factor in (1.0, float(max(load.max(), 1.0))):
            joined = [(index, each.joined(far, load, factor)) for index, each in enumerate(found)]
            fitting = [(index, each) for index, each in joined if each is not None]
            if fitting:
                found[fitting[0][0]] = fitting[0][1]
                break
        else:
            found.append(_Pattern(numpy.where(load > 0, numpy.maximum(load, 1.0), 0.0), {far: 1.0}))
    if len(found) <= MOST_PATTERNS:
        return found
    together = [list(map(int, each)) for each in numpy.array_split(numpy.arange(len(by_distance)), MOST_PATTERNS)]
    return [
        _Pattern(numpy.max([numpy.maximum(by_distance[far], 1.0) for far in each], axis=0), dict.fromkeys(each, 1.0))
        for each in together
    ]


def pairs(graph: LinkGraph) -> Pairs:
    """Bandwidth, latency and hops between every two devices of `graph` when all devices send.

    Of the paths with the fewest hops the widest count (widest-shortest paths, RFC 2676, "QoS Routing Mechanisms and
    OSPF Extensions"); messages spread over all of them. Every link counts as a device's share when all send that far
    (`loads`), or less far if that is worse, and never as more than the link. The narrowest link of all those paths
    counts, and the latency of the path of a message alone (`nest.network.linked`), in the worse direction.
    """
    walked = directed(graph)
    patterns = _patterns(list(numpy.maximum.accumulate(loads(graph))))
    delay = whole_attoseconds(graph.latency)[walked.link]
    count = len(graph.devices)
    bandwidth, latency = numpy.full((count, count), numpy.inf), numpy.zeros((count, count))
    hops = numpy.zeros((count, count), dtype=numpy.int16)
    column = numpy.full(walked.nodes, -1)
    column[graph.devices] = numpy.arange(count)
    first = 0
    for sources in _batches(graph, walked):
        steps = _best_paths(walked, sources, graph.bandwidth[walked.link])
        places = []
        for each in steps:
            source, node = numpy.divmod(each.states, walked.nodes)
            arrived = numpy.flatnonzero(column[node] >= 0)
            places.append((arrived, first + source[arrived], column[node[arrived]]))
        for far, (delays, (arrived, row, other)) in enumerate(
            zip(_delays(steps, len(sources), delay), places, strict=True)
        ):
            latency[row, other], hops[row, other] = delays[arrived], far + 1
        for pattern in patterns:
            width = (graph.bandwidth / numpy.maximum(pattern.loads, 1.0 / max(pattern.factors.values())))[walked.link]
            for far, narrowest in enumerate(_narrowest(steps, len(sources), width)):
                if far in pattern.factors:
                    arrived, row, other = places[far]
                    bandwidth[row, other] = narrowest[arrived] / pattern.factors[far]
                if far == max(pattern.factors):
                    break
        first += len(sources)
    numpy.minimum(bandwidth, bandwidth.T.copy(), out=bandwidth)
    numpy.maximum(latency, latency.T.copy(), out=latency)
    latency /= ATTOSECONDS
    return Pairs(tuple(graph.names[index] for index in graph.devices), bandwidth, latency, hops)


def _delays(steps: list[_Steps], sources: int, delay: Floats) -> Iterator[Floats]:
    """Latency of the usual path to each state, hop by hop."""
    total = numpy.zeros(sources)
    for step in steps:
        reached = numpy.empty(len(step.states))
        reached[step.reached[step.usual]] = (total[step.origin] + delay[step.taken])[step.usual]
        total = reached
        yield total


def _narrowest(steps: list[_Steps], sources: int, width: Floats) -> Iterator[Floats]:
    """Smallest width of a link on any of the best paths to each state, hop by hop."""
    least = numpy.full(sources, numpy.inf)
    for step in steps:
        reached = numpy.full(len(step.states), numpy.inf)
        numpy.minimum.at(reached, step.reached, numpy.minimum(least[step.origin], width[step.taken]))
        least = reached
        yield least


def forwards(graph: LinkGraph, hops: Hops) -> bool:
    """True if a device is on a shortest path between two others, and so may have to forward.

    `hops` are between every two devices, in the order of `graph.devices`.
    """
    count = len(hops)
    short = hops.astype(numpy.int8) if hops.max() < 64 else hops  # Sums of two fit.
    neighbours = numpy.bincount(graph.ends.reshape(-1), minlength=len(graph.names))[graph.devices]
    for device in numpy.flatnonzero(neighbours > 1).tolist():
        through = short[:, device, None] + short[None, device, :]
        # The device itself is at an end of `2 * count - 1` pairs.
        if numpy.count_nonzero(through == short) > 2 * count - 1:
            return True
    return False
