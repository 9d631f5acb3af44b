"""How many devices' traffic a link between switches carries at once.

A level's bandwidth is what each device gets when all devices send (PROBLEM.md section 1: "per device, per direction").
A link between switches has the bandwidth it has, whoever uses it: four leaf switches of eight devices each, joined by
single links to a spine, give a device an eighth of such a link. Where a leaf has several ways up, its devices spread
over them, as equal-cost multi-path routing does (RFC 2992).
"""

import numpy

from nest.network.directed import Directed, directed, first_of_each
from nest.network.graph import Floats, LinkGraph, Numbers

DIGITS = 9
"""Decimals kept of a load: sums of fractions of traffic are whole numbers again."""


Widths = tuple[tuple[frozenset[int], Floats], ...]
"""For some distances in hops, what a device gets of each link between devices so far apart (bytes per second)."""


def widths(graph: LinkGraph) -> Widths:
    """What each device gets of each link: all of it, or its share of a link between switches.

    Distances for which links count alike are together; every distance is in one of the sets, and where there is one
    set only it holds for all.
    """
    found = loads(graph)
    most = numpy.max(list(found.values()), axis=0) if found else numpy.zeros(len(graph.ends))
    if all((_shared(load) == _shared(most))[load > 0].all() for load in found.values()):
        return ((frozenset(found), graph.bandwidth / _shared(most)),)
    return tuple((frozenset([far]), graph.bandwidth / _shared(load)) for far, load in sorted(found.items()))


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
    found = {}
    for far, load in carried.items():
        both = numpy.zeros(len(graph.ends))
        numpy.maximum.at(both, walked.link, load)
        found[far] = numpy.where(trunks, numpy.round(both, DIGITS), 0.0)
    return found


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
