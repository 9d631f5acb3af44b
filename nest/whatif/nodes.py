"""A cluster of which some nodes are used only: what its network is then, and how fast any plan on it can be at most."""

from collections.abc import Mapping, Sequence
from math import ceil, gcd, inf, lcm, prod

from attrs import define, evolve, field, frozen

from nest.catalogue import network_levels
from nest.formulate.cluster import as_measured, build_cluster
from nest.formulate.formulation import Formulation
from nest.formulate.instance import Wanted, formulate
from nest.formulate.layer_classes import layer_classes
from nest.formulate.model import load_model
from nest.formulate.priced_models import PricedModels
from nest.formulate.shard import micro_batches
from nest.hooks.calls import Guarded
from nest.hooks.registry import Registry
from nest.instance import Candidate, Instance, Level
from nest.solve.dp.floors import Floor, floors
from nest.spec import ClusterSpec, LevelSpec, Problem
from nest.tolerances import AGREEMENT
from nest.whatif.parameters import with_levels
from nest.whatif.solver import at_most


@frozen
class Nodes:
    """The nodes of a cluster of levels.

    Attributes:
        levels: of the whole cluster, innermost first.
        inside: levels that lie within a node.
        devices: of a node.
    """

    levels: tuple[LevelSpec, ...]
    inside: int
    devices: int

    @classmethod
    def of(cls, cluster: ClusterSpec) -> "Nodes | None":
        """The machines of a cluster, or where they do not align with its levels the groups of the innermost one.

        None: its network is no hierarchy that is written as levels, so that nothing says what a part of it is.
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
        """Nodes' parts of the first level that is not inside one: more than 1 where a level holds several machines."""
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
        """The network of so many nodes; None: they make no even groups.

        They fill as few groups of each level as can hold them evenly, of the outermost level first. Where groups
        cannot be even, all levels around a node are taken for one, as slow as the slowest of them.
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
        """The problem on so many of the nodes, without their names; None: they make no even groups."""
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
    """The problem on as many devices of its cluster as a run has, and a sentence on it; empty: the run has them all."""
    if devices is None or problem.cluster.pools is not None:
        return problem, ""
    size = build_cluster(problem.cluster, known)[0].size
    if devices >= size:
        return problem, ""
    nodes = Nodes.of(problem.cluster)
    fewer = None
    if nodes is not None and nodes.count * nodes.devices == size and devices % nodes.devices == 0:
        fewer = nodes.on(problem, devices // nodes.devices)
    told = f"the best plan is searched on {devices} of the cluster's {size} devices, as many as the run has."
    if fewer is None:
        fewer = at_most(problem, devices)
    return fewer, told


def _even(count: int, fanouts: Sequence[int]) -> tuple[int, ...] | None:
    """How many children groups of each level have, innermost first, to hold so many evenly; None: they cannot."""
    *inner, outer = fanouts
    if not inner:
        return (count,) if count <= outer else None
    for groups in range(ceil(count / prod(inner)), outer + 1):
        if count % groups == 0 and (rest := _even(count // groups, inner)) is not None:
            return (*rest, groups)
    return None


@define(eq=False)
class Sizes:
    """A problem on every number of nodes of its cluster, each bounded.

    Attributes:
        problem: self-contained, on the whole cluster.
        known: registered strategies and the like.
        nodes: of the cluster; None: it can only be used as a whole.
        priced: models priced before: blocks of fewer nodes are mostly those of more.
    """

    problem: Problem
    known: Registry
    nodes: Nodes | None
    priced: PricedModels = field(factory=PricedModels)
    _real: Mapping[int, Floor] = field(factory=dict)
    _free: Mapping[int, Floor] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if self.nodes is not None and self.nodes.count > 1 and self._same_blocks():
            self._real, self._free = self._floors()

    def counts(self) -> tuple[int, ...]:
        """Numbers of nodes that make a cluster, ascending."""
        nodes = self.nodes
        if nodes is None:
            return (1,)
        return tuple(count for count in range(1, nodes.count + 1) if nodes.some(count) is not None)

    @property
    def total(self) -> int:
        """Nodes of the whole cluster."""
        return 1 if self.nodes is None else self.nodes.count

    @property
    def devices_per_node(self) -> int:
        """Of every node."""
        cluster, _ = build_cluster(self.problem.cluster, self.known)
        return cluster.size // self.total

    @property
    def price(self) -> float | None:
        """Of a device and hour; None: nobody says."""
        return self.problem.cluster.price

    def used(self, count: int) -> int:
        """So many."""
        return count

    def devices(self, count: int) -> int:
        """Of so many nodes."""
        return count * self.devices_per_node

    def hourly(self, count: int) -> float:
        """What an hour of so many nodes costs; where nobody says, their devices."""
        return self.devices(count) * (1.0 if self.price is None else self.price)

    def named(self, count: int) -> None:
        """Nothing: nodes are of one kind."""

    def on(self, count: int) -> Problem:
        """The problem on so many nodes, one of `counts`."""
        problem = self.problem if self.nodes is None else self.nodes.on(self.problem, count)
        assert problem is not None
        return problem

    def formulated(self, count: int) -> tuple[Problem, Instance, Formulation]:
        """The problem on so many nodes as solvers see it.

        Raises:
            InputError: it cannot be used, or allows no plan there.
        """
        problem = self.on(count)
        return problem, *formulate(problem, self.known, known=self.priced)

    def least(self, count: int) -> float:
        """Seconds that no plan on so many nodes beats, from compute alone; 0: nothing is known.

        Blocks that reach beyond the first level around nodes count as if what they send took no time: how long it
        takes depends on how many nodes that level's groups have then.
        """
        if self.nodes is None or not self._real:
            return 0.0
        cluster, _ = build_cluster(self.on(count).cluster, self.known)
        within = cluster.capacities[min(self.nodes.inside, len(cluster.levels) - 1)]
        same = cluster.levels[min(self.nodes.inside, len(cluster.levels) - 1)]
        whole = network_levels(self.nodes.levels)[self.nodes.inside]
        if evolve(same, fanout=1) != evolve(whole, fanout=1):  # All levels around a node are taken for one.
            within = cluster.capacities[self.nodes.inside - 1] if self.nodes.inside else 1
        seconds = (
            (self._real if width <= within else self._free)[width].at(cluster.size)
            for width in self._real
            if cluster.admits(width)
        )
        return min(seconds, default=inf) * (1 - AGREEMENT)

    def _same_blocks(self) -> bool:
        """Whether blocks of fewer nodes are among those of more, as far as these are admitted, and compute as long.

        Not where a strategy takes the highest degree possible, nor where stages have candidates of their own; what
        strategies and models of costs of plug-ins read of a cluster is not known.
        """
        allowed = [*self.problem.strategies.values(), tuple(self.problem.decided.values())]
        registered = (self.known.strategies(), self.known.cost_models(), self.known.layer_times())
        models = (*registered, self.known.collective_models(), self.known.model_importers())
        return (
            self.problem.model is not None
            and not self.problem.search.mixed
            and not any(degree is True for degrees in allowed for degree in degrees)
            and not any(isinstance(each, Guarded) for kind in models for each in kind.values())
        )

    def _floors(self) -> tuple[Mapping[int, Floor], Mapping[int, Floor]]:
        """The floors of all widths that any number of nodes admits: on the network, and as if nothing took time on it.

        These are for blocks beyond the first level around nodes: where that is the last one, there are none. Levels
        further out are those of the whole cluster with one group each, so that what is priced serves for it.
        """
        assert self.nodes is not None
        whole, device = build_cluster(self.problem.cluster, self.known)
        levels, first = (
            as_measured(whole, device, self.problem.cluster, self.problem.model is not None)[0].levels,
            self.nodes.inside,
        )
        # Every width of a block that divides some number of devices divides this.
        sizes = self._sizes() ** self.nodes.count.bit_length()
        every = self.nodes.each * lcm(*(gcd(sizes, count) for count in range(1, self.nodes.count + 1)))

        def with_groups_of(fanout: int) -> tuple[Level, ...]:
            outer = (evolve(level, fanout=1) for level in levels[first + 1 :])
            return (*levels[:first], evolve(levels[first], fanout=fanout), *outer)

        instance, formulation = formulate(self.problem, self.known, Wanted(levels=with_groups_of(every)), self.priced)
        inside = prod(level.fanout for level in levels[:first])
        cluster = evolve(whole, levels=with_groups_of(whole.size // inside))

        def of(candidates: Sequence[Candidate]) -> Mapping[int, Floor]:
            narrow = tuple(each for each in candidates if each.width <= whole.size)
            return floors(evolve(instance, cluster=cluster, candidates=narrow))

        real = of(instance.candidates)
        return real, of(formulation.computing()) if len(self.nodes.fanouts) > 1 else real

    def _sizes(self) -> int:
        """A number that every degree divides a power of: degrees divide sizes of the model, or of micro-batches."""
        problem = self.problem
        assert problem.model is not None
        graph = layer_classes(load_model(problem.model, problem.training, self.known)).graph
        shapes = [shape for each in graph.operators for shape in (each.space, *(p.shape for p in each.parameters))]
        return lcm(
            *micro_batches(problem.training, problem.decided.get("micro_batch")),
            *(size for shape in shapes for _, size in shape if size),
        )
