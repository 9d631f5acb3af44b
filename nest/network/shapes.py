"""Networks given by parameters, a record of `nest.spec` each, and measured matrices."""

from collections.abc import Callable, Sequence
from itertools import combinations
from math import prod
from typing import Any

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.errors import InputError
from nest.instance.pairs import Pairs
from nest.network.graph import LinkGraph, NetworkBuilder, check_size, grid
from nest.spec import DragonflySpec, FatTreeSpec, MatrixSpec, MeshSpec, RailOptimisedSpec, TorusSpec


@frozen
class ParametricNetwork:
    """An importer of one kind of network.

    Attributes:
        name: key of its descriptions in problems.
        spec: record of such a description.
        build: builds its devices, switches and links, or its pairs.
    """

    name: str
    spec: type
    build: Callable[[Any], LinkGraph | Pairs]

    def accepts(self, source: Any) -> bool:
        """True if `source` describes such a network."""
        return isinstance(source, self.spec)

    def load(self, source: Any) -> LinkGraph | Pairs:
        """Build the network.

        Raises:
            InputError: too many devices, fewer than two, or an impossible value.
        """
        return self.build(source)


def _torus(source: TorusSpec) -> LinkGraph:
    wrap = source.wrap * len(source.shape) if len(source.wrap) == 1 else source.wrap
    return grid(source.shape, wrap, source.bandwidth, source.latency)


def _mesh(source: MeshSpec) -> LinkGraph:
    return grid(source.shape, [False] * len(source.shape), source.bandwidth, source.latency)


def _dragonfly(source: DragonflySpec) -> LinkGraph:
    """Dragonfly: devices `group.router.device`, routers and links.

    Kim, Dally, Scott and Abts, "Technology-driven, highly-scalable dragonfly topology", ISCA 2008. The `a * h` links of
    a group to others are spread evenly; the remainder stays unused.
    """
    groups = source.a * source.h + 1 if source.groups is None else source.groups
    routers = groups * source.a
    check_size(routers * source.p, routers * (source.p + 1), routers * (source.p + source.a + source.h))
    network = NetworkBuilder()
    names = [(group, router) for group in range(groups) for router in range(source.a)]
    for group, router in names:
        for device in range(source.p):
            network.device(f"{group}.{router}.{device}")
    switches = [network.switch(f"router {group}.{router}") for group, router in names]
    for index, switch in enumerate(switches):
        for device in range(source.p):
            network.link(index * source.p + device, switch, source.bandwidth, source.latency)
    _link_groups(network, source, switches, groups)
    return network.built()


def _link_groups(network: NetworkBuilder, source: DragonflySpec, switches: list[int], groups: int) -> None:
    """Links between the routers of a group, and between groups."""
    local = _first(source.local_bandwidth, source.bandwidth), _first(source.local_latency, source.latency)
    remote = _first(source.global_bandwidth, source.bandwidth), _first(source.global_latency, source.latency)
    for group in range(groups):
        members = switches[group * source.a : (group + 1) * source.a]
        for one, two in combinations(members, 2):
            network.link(one, two, *local)
    others = groups - 1
    rounds = source.a * source.h // others if others else 0
    for group in range(groups):
        for turn in range(rounds):
            for step in range(others):
                other = (group + step + 1) % groups
                if group < other:  # The other end of port `step` is port `others - 1 - step` of the other group.
                    port, back = turn * others + step, turn * others + others - 1 - step
                    one = switches[group * source.a + port // source.h]
                    network.link(one, switches[other * source.a + back // source.h], *remote)


def _first(own: float | None, usual: float) -> float:
    return usual if own is None else own


def _rail_optimised(source: RailOptimisedSpec) -> LinkGraph:
    """GPUs `node.gpu`, NVLink switches, leaf switches (one for each rail of a unit), spine and links.

    NVIDIA DGX SuperPOD reference architecture, https://docs.nvidia.com/dgx-superpod/.
    """
    unit = source.nodes if source.unit is None else source.unit
    devices, units = source.nodes * source.gpus, source.nodes // unit
    check_size(devices, devices + source.nodes + units * source.gpus + 1, 2 * devices + units * source.gpus)
    network = NetworkBuilder()
    gpus = [[network.device(f"{node}.{gpu}") for gpu in range(source.gpus)] for node in range(source.nodes)]
    leaves = [[network.switch(f"leaf {part}.{rail}") for rail in range(source.gpus)] for part in range(units)]
    for node, members in enumerate(gpus):
        inside = network.switch(f"nvlink {node}")
        for rail, gpu in enumerate(members):
            network.link(gpu, inside, source.nvlink_bandwidth, source.nvlink_latency / 2)
            network.link(gpu, leaves[node // unit][rail], source.bandwidth, source.latency)
    if source.spine and (units > 1 or source.gpus > 1):
        spine = network.switch("spine")
        for row in leaves:
            for leaf in row:
                network.link(leaf, spine, unit * source.bandwidth / source.oversubscription, source.latency)
    return network.built()


def _fat_tree(source: FatTreeSpec) -> LinkGraph:
    """Fat tree: k-ary of equal switches (Al-Fares et al., SIGCOMM 2008), or tier by tier (Leiserson, 1985)."""
    if source.k is not None:
        return _of_switches(source.k, source)
    return _by_tiers(source.fanout or (), source)


def _of_switches(k: int, source: FatTreeSpec) -> LinkGraph:
    """`k` pods of `k/2` edge and `k/2` aggregation switches, `(k/2)**2` core switches, `k/2` devices per edge switch.

    Oversubscribed links between switches are slower by the ratio, as if there were fewer.
    """
    half = k // 2
    check_size(k * half * half, k * half * half + k * k + half * half, 3 * k * half * half)
    ratio = _ratios(source.oversubscription, 2)
    upper = source.bandwidth / ratio[0], source.latency
    top = source.bandwidth / ratio[0] / ratio[1], source.latency
    network = NetworkBuilder()
    for device in range(k * half * half):
        network.device(str(device))
    core = [[network.switch(f"core {row}.{column}") for column in range(half)] for row in range(half)]
    for pod in range(k):
        edges = [network.switch(f"edge {pod}.{index}") for index in range(half)]
        middle = [network.switch(f"aggregation {pod}.{index}") for index in range(half)]
        for index, edge in enumerate(edges):
            first = (pod * half + index) * half
            for device in range(first, first + half):
                network.link(device, edge, source.bandwidth, source.latency)
            for switch in middle:
                network.link(edge, switch, *upper)
        for row, switch in zip(core, middle, strict=True):
            for root in row:
                network.link(switch, root, *top)
    return network.built()


def _by_tiers(fanout: Sequence[int], source: FatTreeSpec) -> LinkGraph:
    """A tree whose links carry the traffic of all devices below, divided by the oversubscription of the tiers below."""
    devices = prod(fanout)
    check_size(devices, 2 * devices, 2 * devices)
    ratio = _ratios(source.oversubscription, len(fanout) - 1)
    network = NetworkBuilder()
    below = [network.device(str(device)) for device in range(devices)]
    bandwidth = float(source.bandwidth)
    for tier, children in enumerate(fanout):
        parents = [network.switch(f"tier {tier}.{index}") for index in range(len(below) // children)]
        for index, child in enumerate(below):
            network.link(child, parents[index // children], bandwidth, source.latency)
        if tier < len(ratio):
            bandwidth = bandwidth * children / ratio[tier]
        below = parents
    return network.built()


def _ratios(written: Sequence[float], tiers: int) -> list[float]:
    """Oversubscription of each tier below the top; 1 by default."""
    return [*written, *[1.0] * (tiers - len(written))]


def _matrix(source: MatrixSpec) -> Pairs:
    """Measured pairs, as reported by nccl-tests or osu_bw.

    Of both directions the lower bandwidth and the higher latency are taken.
    """
    count = len(source.bandwidth)
    check_size(count, count, 0)
    if count < 2:
        raise InputError("the matrix has one device; a network joins at least two.")
    names = source.names or tuple(str(index) for index in range(count))
    repeated = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if repeated is not None:
        raise InputError(f"the matrix has several devices called {repeated!r:.60}; give each a name of its own.")
    bandwidth = _filled(source.bandwidth, "bandwidth", numpy.inf)
    if isinstance(source.latency, tuple):
        latency = _filled(source.latency, "latency", 0.0)
    else:
        latency = numpy.full((count, count), float(source.latency))
        numpy.fill_diagonal(latency, 0.0)
    _check(bandwidth, "bandwidth", "above 0", bandwidth > 0)
    _check(latency, "latency", "at least 0", latency >= 0)
    return Pairs(names, numpy.minimum(bandwidth, bandwidth.T), numpy.maximum(latency, latency.T))


def _filled(rows: Sequence[Sequence[float | None]], name: str, itself: float) -> NDArray[numpy.float64]:
    """`rows` as an array; the meaningless diagonal becomes `itself`."""
    matrix = numpy.array(rows, dtype=numpy.float64)  # What is missing becomes NaN.
    numpy.fill_diagonal(matrix, itself)
    _check(matrix, name, "given", ~numpy.isnan(matrix))
    return matrix


def _check(matrix: NDArray[numpy.float64], name: str, must: str, good: NDArray[numpy.bool_]) -> None:
    if not good.all():
        row, column = numpy.argwhere(~good)[0].tolist()
        value = "is missing" if numpy.isnan(matrix[row, column]) else f"is {matrix[row, column]:g}"
        raise InputError(f"matrix.{name}[{row}][{column}] {value}; between two devices it must be {must}.")


importers = (
    ParametricNetwork("torus", TorusSpec, _torus),
    ParametricNetwork("mesh", MeshSpec, _mesh),
    ParametricNetwork("dragonfly", DragonflySpec, _dragonfly),
    ParametricNetwork("rail-optimised", RailOptimisedSpec, _rail_optimised),
    ParametricNetwork("fat-tree", FatTreeSpec, _fat_tree),
    ParametricNetwork("matrix", MatrixSpec, _matrix),
)
