"""Bandwidth between hosts of a fabric over the paths of messages, link by link."""

from collections.abc import Sequence
from itertools import groupby

import numpy
from numpy.typing import NDArray

from nest.network import pairs
from nest.network.graph import components
from nest_networks.switched.fabric import Fabric, FabricHost, fabric_graph
from nest_networks.switched.tiers import Tier
from nest_networks.switched.tree import SwitchTree

MOST_RAILS = 2048
"""Of all hosts together; paths between so many are walked in about two seconds."""

PLAIN = Tier("network", 1.0, None, 0.0)
"""Links that reach their nominal bandwidth."""

ROUNDING = 1e-9
"""Bandwidths that differ by less are the same."""


def lowered_uplinks(tree: SwitchTree, machines: Sequence[FabricHost], fabric: Fabric) -> dict[str, float]:
    """Lower the uplinks of `tree` until it promises no two hosts more than `nest.network.pairs` finds for them.

    A switch spreads its messages without regard to links farther on. A spine that has lost half of its cables to a leaf
    switch still carries as many messages to it as any other spine. Of the two switches on the way of a pair, the one
    with the smaller share is lowered.

    Nothing is lowered in fabrics of more than `MOST_RAILS` rails, or with a rate that is not known.
    """
    uplinks = dict(tree.uplinks)
    switches = {each.name: each.switches for each in machines}
    rails = [(host.name, *link) for host in tree.ordered for link in switches[host.name].items()]
    known = [(name, switch, width) for name, switch, width in rails if width is not None]
    if len(uplinks) < len(tree.parents) or len(known) < len(rails) or len(rails) > MOST_RAILS:
        return uplinks
    labels = [host.switch for host in tree.ordered]
    starts = _starts(labels)
    between = numpy.minimum.reduceat(_between(known, fabric), starts, axis=0)
    between = numpy.minimum.reduceat(between, starts, axis=1)
    ways = [_way(tree, labels[start]) for start in starts]
    for place in numpy.argsort(between, axis=None, kind="stable").tolist():
        one, two = (ways[each] for each in divmod(place, len(ways)))
        bandwidth = float(between.flat[place])
        if one[0] == two[0] or bandwidth == numpy.inf:
            continue
        below = [next(each for each in way if tree.parents[each] in other) for way, other in ((one, two), (two, one))]
        share, narrow = min((uplinks[each] / tree.counts[each], each) for each in below)
        if share > bandwidth * (1 + ROUNDING):
            uplinks[narrow] = bandwidth * tree.counts[narrow]
    return uplinks


def _way(tree: SwitchTree, leaf: str) -> list[str]:
    """The switches from `leaf` to the root."""
    way = [leaf]
    while way[-1] in tree.parents:
        way.append(tree.parents[way[-1]])
    return way


def _between(rails: Sequence[tuple[str, str, float]], fabric: Fabric) -> NDArray[numpy.float64]:
    """Bytes per second that each two hosts have between them, in the worse direction; infinite where no rails do.

    A host sends over all rails that reach the other, in proportion to their bandwidth, over each to the rail that has
    most from there.

    `rails`: host, leaf switch and bytes per second of each, those of a host side by side.
    """
    found = numpy.zeros((len(rails), len(rails)))
    for plane in _planes(rails, fabric):
        alone = [FabricHost(" ".join(rails[each][:2]), (rails[each][1:],)) for each in plane]
        if len(alone) > 1:
            found[numpy.ix_(plane, plane)] = pairs(fabric_graph(alone, fabric, PLAIN, PLAIN, 1, 1.0)).bandwidth
    starts = _starts([host for host, _, _ in rails])
    best = numpy.maximum.reduceat(found, starts, axis=1)
    own = numpy.array([[bandwidth] for _, _, bandwidth in rails])
    sent = numpy.add.reduceat(numpy.where(best > 0, own, 0.0), starts, axis=0)
    hosts = numpy.minimum.reduceat(numpy.where(best > 0, best / own, numpy.inf), starts, axis=0)
    hosts *= numpy.where(sent > 0, sent, 1.0)
    return numpy.minimum(hosts, hosts.T)


def _planes(rails: Sequence[tuple[str, str, float]], fabric: Fabric) -> list[list[int]]:
    """The rails that can reach one another, for each set of them."""
    switches = dict.fromkeys(switch for _, switch, _ in rails)
    waiting, links = list(switches), list[tuple[str, str]]()
    for switch in waiting:
        for other in fabric.beside(switch):
            links.append((switch, other))
            if other not in switches:
                switches[other] = None
                waiting.append(other)
    plane = {switch: index for index, each in enumerate(components(switches, links)) for switch in each}
    of = [plane[switch] for _, switch, _ in rails]
    order = sorted(range(len(rails)), key=of.__getitem__)
    return [list(each) for _, each in groupby(order, key=of.__getitem__)]


def _starts(labels: Sequence[str]) -> list[int]:
    """Starts of runs of one label."""
    return [index for index, label in enumerate(labels) if index == 0 or label != labels[index - 1]]
