"""Bounds on the speed of any plan on some nodes of a cluster."""

from collections.abc import Mapping, Sequence
from math import gcd, inf, lcm, prod

from attrs import define, evolve, field

from nest.catalogue import network_levels
from nest.hooks.registry import Registry
from nest.instance import Candidate, Instance, Level
from nest.public.planning import (
    Floor,
    Formulation,
    PricedModels,
    Wanted,
    as_measured,
    build_cluster,
    floors,
    formulate,
    layer_classes,
    load_model,
    micro_batches,
)
from nest.public.questions import Nodes
from nest.public.verbs import Guarded
from nest.spec import Problem
from nest.tolerances import AGREEMENT


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
        """Cost of an hour of so many nodes; without a price, their devices."""
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
        """Return whether all admitted blocks of fewer nodes are among those of more, and compute as long.

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
