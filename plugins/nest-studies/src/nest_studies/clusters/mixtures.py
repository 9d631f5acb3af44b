"""Some nodes of each pool of a cluster: the problem on them, and how fast any plan there can be at most."""

from itertools import product
from math import inf, prod

import numpy
from attrs import define, evolve, field

from nest.errors import InputError
from nest.hooks.registry import Registry
from nest.instance import Instance, Schedule
from nest.public.planning import Formulation, PricedModels, formulate
from nest.public.questions import Nodes
from nest.spec import PoolSpec, Problem
from nest.tolerances import AGREEMENT

MOST = 2000
"""Mixtures that are asked about at most: each takes a search of seconds."""

Mixture = tuple[int, ...]
"""Nodes of each pool, in the order of the problem."""


@define(eq=False)
class Mixtures:
    """A problem on every mixture of nodes of its pools, each pool of so many nodes priced once.

    Attributes:
        problem: self-contained, on the whole cluster.
        known: registered strategies and the like.
        nodes: of each pool.

    Raises:
        InputError: there are too many mixtures.
    """

    problem: Problem
    known: Registry
    nodes: tuple[Nodes, ...] = field(init=False)
    _priced: PricedModels = field(factory=lambda: PricedModels(MOST))
    _ratios: dict[tuple[object, ...], float] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        # Levels as written are a hierarchy.
        every = tuple(Nodes.of(each.cluster) for each in self.pools)
        self.nodes = tuple(each for each in every if each is not None)
        count = prod(each.count + 1 for each in self.nodes) - 1
        if count > MOST:
            raise InputError(
                f"cluster.pools: {count:,} mixtures of nodes, but nest tries at most {MOST:,}; use pools of fewer "
                "nodes, or a larger devices_per_host."
            )

    @property
    def pools(self) -> tuple[PoolSpec, ...]:
        """Of the whole cluster."""
        assert self.problem.cluster.pools is not None
        return self.problem.cluster.pools

    def counts(self) -> tuple[Mixture, ...]:
        """The mixtures that make a cluster."""
        some = ([0, *(n for n in range(1, each.count + 1) if each.some(n) is not None)] for each in self.nodes)
        return tuple(mixture for mixture in product(*some) if any(mixture))

    @property
    def total(self) -> int:
        """Nodes of the whole cluster."""
        return sum(each.count for each in self.nodes)

    @property
    def devices_per_node(self) -> dict[str, int]:
        """By pool."""
        return {pool.name: each.devices for pool, each in zip(self.pools, self.nodes, strict=True)}

    @property
    def price(self) -> dict[str, float] | None:
        """Of a device and hour, by pool; None: nobody says of all."""
        prices = {pool.name: pool.price for pool in self.pools if pool.price is not None}
        return prices if len(prices) == len(self.pools) else None

    def used(self, mixture: Mixture) -> int:
        """Its nodes."""
        return sum(mixture)

    def devices(self, mixture: Mixture) -> int:
        """Of all its nodes."""
        return sum(count * each.devices for count, each in zip(mixture, self.nodes, strict=True))

    def hourly(self, mixture: Mixture) -> float:
        """Cost of an hour; without the prices of all pools, the number of devices."""
        prices = self.price
        if prices is None:
            return float(self.devices(mixture))
        each = zip(mixture, self.nodes, prices.values(), strict=True)
        return sum(count * nodes.devices * price for count, nodes, price in each)

    def named(self, mixture: Mixture) -> dict[str, int]:
        """Its nodes by the name of their pool."""
        return {pool.name: count for pool, count in zip(self.pools, mixture, strict=True)}

    def on(self, mixture: Mixture) -> Problem:
        """The problem on so many nodes of each pool, without those pools of which there is none."""
        pools = []
        for pool, count, nodes in zip(self.pools, mixture, self.nodes, strict=True):
            if count == nodes.count:
                pools.append(pool)
            elif count:
                levels = nodes.some(count)
                assert levels is not None
                machine = nodes.devices if pool.hosts else pool.devices_per_host
                pools.append(evolve(pool, levels=levels, hosts=None, devices_per_host=machine))
        names = {pool.name for pool in pools}
        between = tuple(each for each in self.problem.cluster.between or () if names.issuperset(each.pools))
        cluster = evolve(self.problem.cluster, pools=tuple(pools), between=between or None)
        fixed = self.problem.fixed
        return evolve(self.problem, cluster=cluster, fixed=fixed if fixed is None else evolve(fixed, pools=None))

    def formulated(self, mixture: Mixture) -> tuple[Problem, Instance, Formulation]:
        """The problem on so many nodes of each pool as solvers see it.

        Raises:
            InputError: it cannot be used, or allows no plan there.
        """
        problem = self.on(mixture)
        return problem, *formulate(problem, self.known, known=self._priced)

    def least(self, mixture: Mixture) -> float:
        """Seconds that no plan on so many nodes of each pool beats, from compute alone; infinite where there is none.

        A device of pool `q` takes `e_q` seconds for the whole model of a sample at least, and what plans leave to a
        pool of `P_q` devices in a step of `T` seconds is no more than `T P_q / (B e_q)` of the model there. A layer is
        a share of the model in each pool, and the least of these add up to `share`, as each layer is in some pool.
        """
        try:
            _, instance, _ = self.formulated(mixture)
        except InputError:
            return inf
        assert instance.pools is not None
        of_pools, speed = [], 0.0
        for index, pool in enumerate(instance.pools.members):
            own = [each for place, each in enumerate(instance.candidates) if instance.pool_of(place) == index]
            if not own:
                continue
            layers = numpy.min([each.width / each.samples * (each.forward + each.backward) for each in own], axis=0)
            if not layers.sum() > 0:
                return 0.0
            of_pools.append(layers / layers.sum())
            speed += pool.cluster.size / float(layers.sum())
        share = float(numpy.min(of_pools, axis=0).sum())
        seconds = share * instance.space.global_batch / speed
        return seconds * self._least_ratio(instance) * (1 - AGREEMENT)

    def _least_ratio(self, instance: Instance) -> float:
        """Of the step time to what the slowest stage takes for all micro-batches of a replica, at least."""
        counts = {
            instance.micro_batches(candidate, replicas)
            for candidate in {each.samples: each for each in instance.candidates}.values()
            for replicas in range(1, min(instance.size, instance.space.global_batch) + 1)
        } - {None}
        ratios = (self._ratio(instance, each, count) for each in instance.space.schedules for count in counts if count)
        return min(ratios, default=1.0)

    def _ratio(self, instance: Instance, schedule: Schedule, micro_batches: int) -> float:
        key = (schedule.name, micro_batches)
        if key not in self._ratios:
            every = (
                instance.space.weights(schedule, micro_batches, stages)
                for stages in range(1, len(instance.graph.layers) + 1)
            )
            # The slowest stage is among those that the sum adds up.
            weights = (each.slowest + (each.forward if each.uniform else 0.0) for each in every)
            self._ratios[key] = min(min(weights) / micro_batches, 1.0)
        return self._ratios[key]
