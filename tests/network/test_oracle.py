"""Paths, rings and what links carry, against the oracle's, which is written from PROBLEM.md alone."""

from collections.abc import Callable
from itertools import combinations, permutations
from random import Random

import pytest

from nest.hooks.architectures import network_of
from nest.io import structure
from nest.network import PathNetwork, network_model, reduce
from nest.spec import ClusterSpec
from tests.agreement.random_topologies import KINDS, random_forwarding, random_topology
from tests.oracle.rings import Rings
from tests.oracle.topology import Topology
from tests.seeds import few

SIZES = (0.0123, 1.07, 10.3, 1000.1)
"""Bytes of a buffer; none at which two rings take exactly as long."""


ALIKE = "links all alike"


def drawn(kind: str, seed: int) -> dict:
    random = Random(f"rings of {kind} {seed}")
    return random_forwarding(random) if kind == ALIKE else random_topology(random, kind)


def model_of(topology: dict, *, all_ports: bool = False) -> PathNetwork:
    """The network, devices in the order of its levels."""
    network = network_of(structure({"topology": topology}, ClusterSpec))
    reduced = reduce(network)
    return network_model(network, reduced.best.order, all_ports=all_ports)


def ends_of(model: PathNetwork) -> Callable[[int], tuple[int, int]]:
    """The two ends of a directed link, by their places in the file."""
    return lambda link: (int(model.routes.tails[link]), int(model.routes.heads[link]))


@pytest.mark.parametrize("kind", [*KINDS, ALIKE])
@pytest.mark.parametrize("seed", range(3))
def test_paths_are_the_oracles(kind: str, seed: int) -> None:
    topology = drawn(kind, seed)
    network, model = Topology(topology), model_of(topology)
    ends, place = ends_of(model), {name: index for index, name in enumerate(model.names)}
    assert sorted(model.names) == sorted(network.names)
    for one, two in permutations(range(network.size), 2):
        here, there = place[network.names[one]], place[network.names[two]]
        links = [network.links[index] for index in network.path[one][two]]
        assert [ends(link) for link in model.path(here, there)] == [(link.source, link.target) for link in links]
        assert [model.link_bandwidth[link] for link in model.path(here, there)] == [link.capacity for link in links]
        assert model.bandwidth[here, there] == network.bandwidth[one][two]
        assert model.latency[here, there] == pytest.approx(network.latency[one][two], rel=1e-12)


@pytest.mark.parametrize("all_ports", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, ALIKE])
@pytest.mark.parametrize("seed", few(range(3), 1))
def test_rings_take_as_long_and_carry_as_much_as_the_oracles(kind: str, seed: int, all_ports: bool) -> None:
    topology = drawn(kind, seed)
    network, model = Topology(topology), model_of(topology, all_ports=all_ports)
    rings, ends = Rings(network, all_ports=all_ports), ends_of(model)
    place = {name: index for index, name in enumerate(model.names)}
    for count in range(2, network.size + 1):
        share = (count - 1) / count
        for members in combinations(range(network.size), count):
            offered = model.rings([place[network.names[device]] for device in members])
            for size in SIZES:
                expected = rings.cheapest(members, size)
                seconds = [(count - 1) * each.latency + share * size / each.bandwidth for each in offered]
                assert min(seconds) == pytest.approx(expected.phase(size), rel=1e-9)
                found = offered[seconds.index(min(seconds))]
                carried = {ends(link): each for link, each in zip(found.links, found.shares, strict=True)}
                assert carried == pytest.approx(
                    {(network.links[e].source, network.links[e].target): each for e, each in expected.shares.items()}
                )
