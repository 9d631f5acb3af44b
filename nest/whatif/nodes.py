"""Partial use of a cluster's nodes, and the resulting network."""

from collections.abc import Sequence
from math import ceil, prod

from attrs import evolve, frozen

from nest.catalogue import network_levels
from nest.catalogue.nodes import with_levels
from nest.formulate.cluster import build_cluster
from nest.hooks.registry import Registry
from nest.spec import ClusterSpec, LevelSpec, Problem
from nest.whatif.solver import at_most


@frozen
class Nodes:
    """Nodes of a cluster of levels.

    Attributes:
        levels: of the whole cluster, innermost first.
        inside: number of levels within a node.
        devices: of a node.
    """

    levels: tuple[LevelSpec, ...]
    inside: int
    devices: int

    @classmethod
    def of(cls, cluster: ClusterSpec) -> "Nodes | None":
        """Machines of a cluster, or groups of its innermost level if machines do not align with levels.

        None: its network is no hierarchy written as levels, so that parts of it are undefined.
        """
        levels = with_levels(cluster).levels
        if levels is None:
            return None
        size = prod(level.fanout for level in levels)
        machine = size // len(cluster.hosts) if cluster.hosts else cluster.devices_per_host
        for devices in (machine or levels[0].fanout, levels[0].fanout):
            inside, below = 0, 1
            while inside < len(levels) - 1 and below * levels[inside].fanout <= devices:
                below *= levels[inside].fanout
                inside += 1
            if devices % below == 0 and levels[inside].fanout % (devices // below) == 0:
                return cls(levels, inside, devices)
        raise AssertionError("a group of the innermost level is a node")

    @property
    def each(self) -> int:
        """Nodes in a group of the first level outside: more than 1 if a level holds several machines."""
        return self.devices // prod(level.fanout for level in self.levels[: self.inside])

    @property
    def fanouts(self) -> tuple[int, ...]:
        """Nodes of the first level around them, and groups of those further out."""
        first, *further = (level.fanout for level in self.levels[self.inside :])
        return (first // self.each, *further)

    @property
    def count(self) -> int:
        """Nodes of the whole cluster."""
        return prod(self.fanouts)

    def some(self, count: int) -> tuple[LevelSpec, ...] | None:
        """Network of so many nodes; None: they make no even groups.

        They fill as few groups of each level as possible, from the outermost level on. If groups cannot be even, all
        levels around a node count as one, as slow as the slowest of them.
        """
        inner, outer = self.levels[: self.inside], self.levels[self.inside :]
        even = _even(count, self.fanouts)
        if even is None:
            if self.each > 1:
                return None
            slowest = min(reversed(network_levels(outer)), key=lambda level: level.bandwidth)
            index = next(i for i, level in reversed([*enumerate(network_levels(outer))]) if level == slowest)
            return (*inner, evolve(outer[index], fanout=count))
        fanouts = (even[0] * self.each, *even[1:])
        levels = [*inner, *(evolve(level, fanout=fanout) for level, fanout in zip(outer, fanouts, strict=True))]
        while len(levels) > 1 and levels[-1].fanout == 1:
            levels.pop()
        return tuple(levels)

    def on(self, problem: Problem, count: int) -> Problem | None:
        """Problem on so many of the nodes, without their names; None: they make no even groups."""
        if count == self.count:
            return problem
        levels = self.some(count)
        if levels is None:
            return None
        cluster = with_levels(problem.cluster)
        machine = len(cluster.hosts or ()) and self.devices
        return evolve(
            problem,
            cluster=evolve(cluster, levels=levels, hosts=None, devices_per_host=machine or cluster.devices_per_host),
        )


def on_devices(problem: Problem, devices: int | None, known: Registry) -> tuple[Problem, str]:
    """Problem on a run's number of devices, and a sentence on it; empty: the run has all devices."""
    if devices is None or problem.cluster.pools is not None:
        return problem, ""
    size = build_cluster(problem.cluster, known)[0].size
    if devices >= size:
        return problem, ""
    nodes = Nodes.of(problem.cluster)
    whole = nodes is not None and nodes.count * nodes.devices == size and devices % nodes.devices == 0
    fewer = nodes.on(problem, devices // nodes.devices) if nodes is not None and whole else None
    told = f"searching the best plan on the {devices} devices of the run (the cluster has {size})."
    return fewer or at_most(problem, devices), told


def _even(count: int, fanouts: Sequence[int]) -> tuple[int, ...] | None:
    """Children of groups of each level, innermost first, that hold so many evenly; None: impossible."""
    *inner, outer = fanouts
    if not inner:
        return (count,) if count <= outer else None
    for groups in range(ceil(count / prod(inner)), outer + 1):
        if count % groups == 0 and (rest := _even(count // groups, inner)) is not None:
            return (*rest, groups)
    return None
