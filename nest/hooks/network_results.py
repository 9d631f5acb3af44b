"""Whether networks that plug-ins return can be planned on."""

from typing import Any

import numpy

from nest.hooks.guard import Nonsense
from nest.instance.cluster import Cluster, Level
from nest.instance.pairs import Pairs
from nest.network.graph import LinkGraph
from nest.network.imported import Imported
from nest.spec import LevelSpec
from nest.units import LARGEST


def sound_network(found: Any) -> Cluster | LinkGraph | Pairs | Imported:
    """`found`, a cluster, or a network by links or pairs.

    Raises:
        Nonsense: it is none of them, or has figures no network has; the text says what.
    """
    if isinstance(found, Imported):
        _check_words(found)
        if isinstance(found.network, tuple):
            _check_levels(found.network)
        else:
            sound_network(found.network)
        return found
    if isinstance(found, Cluster):
        _check_cluster(found)
        return found
    if isinstance(found, LinkGraph):
        _check_links(found)
        return found
    if isinstance(found, Pairs):
        _check_pairs(found)
        return found
    raise Nonsense(f"{found!r:.60} is no Cluster, LinkGraph or Pairs")


def _check_words(found: Imported) -> None:
    words = [*found.hosts, *found.assumptions, *([] if found.device is None else [found.device])]
    if isinstance(found.network, Imported) or not all(isinstance(word, str) for word in words):
        raise Nonsense("hosts, device and assumptions are not all words, or the network is none")
    if len(set(found.hosts)) < len(found.hosts):
        raise Nonsense("two hosts share a name")


def _check_levels(found: tuple[Any, ...]) -> None:
    if not found:
        raise Nonsense("it has no levels")
    for level in found:
        if not isinstance(level, LevelSpec):
            raise Nonsense(f"{level!r:.60} is no LevelSpec")


def _check_pairs(found: Pairs) -> None:
    apart = ~numpy.eye(found.size, dtype=bool)
    _check("bandwidth", found.bandwidth[apart], above=0.0)
    _check("latency", found.latency[apart])
    if (found.bandwidth != found.bandwidth.T).any() or (found.latency != found.latency.T).any():
        raise Nonsense("the pairs differ in the two directions")


def _check_cluster(found: Cluster) -> None:
    for level in found.levels:
        if not isinstance(level, Level) or type(level.fanout) is not int:
            raise Nonsense(f"{level!r:.60} is no level with a whole fan-out")
    _check("bandwidth", numpy.array([level.bandwidth for level in found.levels], dtype=float), above=0.0)
    _check("latency", numpy.array([level.latency for level in found.levels], dtype=float))
    _check("memory", numpy.array([found.memory, found.reserve], dtype=float))


def _check_links(found: LinkGraph) -> None:
    links = len(found.ends)
    if found.ends.shape != (links, 2) or found.bandwidth.shape != (links,) or found.latency.shape != (links,):
        raise Nonsense("the links, their bandwidths and their latencies differ in number")
    nodes = numpy.concatenate([found.ends.ravel(), found.devices])
    if nodes.dtype.kind not in "iu" or ((nodes < 0) | (nodes >= len(found.names))).any():
        raise Nonsense("a link or a device is none of the nodes")
    if len(set(found.names)) < len(found.names) or len(found.devices) < 2:
        raise Nonsense("two nodes share a name, or there are fewer than two devices")
    _check("bandwidth", found.bandwidth, above=0.0)
    _check("latency", found.latency)


def _check(what: str, values: Any, above: float = -1.0) -> None:
    good = (values >= 0) & (values > above) & (values <= LARGEST)
    if not good.all():
        raise Nonsense(f"a {what} is {values[~good][0]:g}")
