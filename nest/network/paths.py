"""The best path of every two devices: of the fewest hops, and of those the widest."""

import numpy

from nest.instance.pairs import Pairs
from nest.network.directed import Directed, directed, first_of_each
from nest.network.graph import Floats, LinkGraph, Numbers
from nest.network.sharing import widths

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
            found = _best(walked, graph.devices[rows], width[walked.link], delay)
            widest, quickest, fewest = (values.reshape(-1, walked.nodes)[:, graph.devices] for values in found)
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
