"""The instance of a solver (PROBLEM.md sections 1 to 3), and its answer."""

import heapq
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from math import inf
from typing import Any, NamedTuple

from attrs import asdict, evolve, field, frozen

from nest.errors import InputError
from nest.instance.candidate import Candidate
from nest.instance.cluster import Cluster, Level, Pools
from nest.instance.network import CollectiveModel, NetworkModel
from nest.instance.space import Space
from nest.records import Record


@frozen(eq=False, repr=False, slots=False)
class LayerGraph(Record):
    """Layers and the tensors between them.

    Attributes:
        layers: unique names.
        tensors: `(producer, consumers)` as layer indices; candidates have the bytes (`tensor_bytes`).

    Raises:
        InputError: layers are not unique, a tensor names an unknown layer or its own producer, or the graph has a
            cycle.
    """

    layers: tuple[str, ...]
    tensors: tuple[tuple[int, tuple[int, ...]], ...]

    def __attrs_post_init__(self) -> None:
        if len(set(self.layers)) != len(self.layers):
            repeated = next(name for name in self.layers if self.layers.count(name) > 1)
            raise InputError(f"two layers are named {repeated!r}; layer names must be unique.")
        count = len(self.layers)
        for producer, consumers in self.tensors:
            for layer in (producer, *consumers):
                if not 0 <= layer < count:
                    raise InputError(f"an edge names layer {layer}, but layers run from 0 to {count - 1}.")
            if producer in consumers:
                raise InputError(f"layer {self.layers[producer]!r} has an edge to itself.")
        self.topological_order()

    def successors(self) -> tuple[frozenset[int], ...]:
        """Readers of each layer's tensors."""
        successors: list[set[int]] = [set() for _ in self.layers]
        for producer, consumers in self.tensors:
            successors[producer].update(consumers)
        return tuple(frozenset(group) for group in successors)

    def topological_order(self) -> tuple[int, ...]:
        """Layers with producers before consumers, lowest index first among the free ones.

        Raises:
            InputError: the graph has a cycle; the text names its layers.
        """
        return self._order

    @cached_property
    def _order(self) -> tuple[int, ...]:
        successors = self.successors()
        waiting = [0] * len(self.layers)
        for consumers in successors:
            for consumer in consumers:
                waiting[consumer] += 1
        free = [layer for layer, count in enumerate(waiting) if count == 0]
        heapq.heapify(free)
        order = []
        while free:
            layer = heapq.heappop(free)
            order.append(layer)
            for successor in successors[layer]:
                waiting[successor] -= 1
                if waiting[successor] == 0:
                    heapq.heappush(free, successor)
        if len(order) < len(self.layers):
            stuck = [self.layers[layer] for layer, count in enumerate(waiting) if count > 0]
            names = ", ".join(stuck[:6]) + (", ..." if len(stuck) > 6 else "")
            raise InputError(f"the layer graph has a cycle through or before these layers: {names}.")
        return tuple(order)


@frozen(eq=False, repr=False)
class PlacedNetwork:
    """A network with the means to price plans placed on it.

    Attributes:
        model: paths, rings and links.
        factors: factors of each candidate's width: sizes of the rank sets of its collectives, innermost first; empty if
            layers were measured whole.
        repriced: reprices a candidate, by index, with collectives inside the block on such levels, one for each factor.
        collectives: prices a collective on one ring.
        price: seconds per step of a placed plan of an instance, and the stages without enough memory.
    """

    model: NetworkModel
    factors: tuple[tuple[int, ...], ...]
    repriced: Callable[[int, tuple[Level, ...]], Candidate]
    collectives: CollectiveModel
    price: "Callable[[Instance, Solution], tuple[float, tuple[bool, ...]]]"


@frozen(eq=False, repr=False)
class Instance:
    """One optimisation problem in numbers.

    Attributes:
        cluster: devices and network.
        graph: layers and tensors between them.
        candidates: at least one.
        space: allowed plans.
        collectives: prices collectives.
        complete_to: step time (s) up to which no plan of a missing candidate exists; infinite: none is missing, 0:
            there was no time to price the others.
        network: the actual network if it is no hierarchy. `cluster` then has a single level on which every plan takes
            at most its time on the network, given these candidates and collectives.
        pools: of a cluster with several kinds of device. Each candidate then names its pool, and `cluster` is the first
            one's, except in the view of another (`at`): a stage is priced in its candidate's view.
        makespan: seconds of a plan's replay; 0: no longer than its closed form. None: closed forms are prices.

    Raises:
        InputError: a candidate does not fit the layer graph, or names an unknown pool, or none.
    """

    cluster: Cluster
    graph: LayerGraph
    candidates: tuple[Candidate, ...] = field()
    space: Space
    collectives: CollectiveModel
    complete_to: float = inf
    network: PlacedNetwork | None = None
    pools: Pools | None = None
    makespan: "Callable[[Instance, Solution], float] | None" = None
    _views: "dict[str, Instance]" = field(factory=dict, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if not self.candidates:
            raise InputError("there is no candidate to plan with.")
        for index, candidate in enumerate(self.candidates):
            self._check_pool(candidate)
            if len(candidate.forward) != len(self.graph.layers):
                raise InputError(
                    f"candidate {candidate.name!r}: forward has {len(candidate.forward)} numbers "
                    f"for {len(self.graph.layers)} layers."
                )
            if len(candidate.tensor_bytes) != len(self.graph.tensors):
                raise InputError(
                    f"candidate {candidate.name!r} has {len(candidate.tensor_bytes)} edge sizes "
                    f"for {len(self.graph.tensors)} edges."
                )
            levels = len(self.cluster_of(index).levels)
            if self.network is None and candidate.busy is not None and len(candidate.busy) != levels:
                raise InputError(
                    f"candidate {candidate.name!r}: busy has {len(candidate.busy)} rows for "
                    f"{levels} levels of the network."
                )

    def _check_pool(self, candidate: Candidate) -> None:
        if self.pools is None and candidate.pool is not None:
            raise InputError(
                f"candidate {candidate.name!r} is of pool {candidate.pool!r}, but the cluster has no pools."
            )
        if self.pools is not None and candidate.pool not in self.pools.names:
            names = ", ".join(self.pools.names)
            said = "names no pool" if candidate.pool is None else f"is of pool {candidate.pool!r}"
            raise InputError(f"candidate {candidate.name!r} {said}; the pools are {names}.")

    def pool_of(self, candidate: int) -> int:
        """Index of the pool of a candidate; 0 without pools."""
        name = self.candidates[candidate].pool
        return 0 if self.pools is None or name is None else self.pools.index(name)

    def cluster_of(self, candidate: int) -> Cluster:
        """Devices for stages of a candidate: those of its pool, or of the cluster."""
        return self.cluster if self.pools is None else self.pools.members[self.pool_of(candidate)].cluster

    def recompute_names(self, candidate: int) -> tuple[str, ...]:
        """Recompute modes for stages of a candidate: pure modes, then partial ones."""
        own = tuple(mode.name for mode in self.candidates[candidate].recompute)
        return _recompute_names(own, self.space.recompute, self.space.partial)

    @property
    def complete(self) -> bool:
        """True if no plan of another candidate is missing."""
        return self.complete_to == inf

    @property
    def size(self) -> int:
        """Number of devices, of all pools together."""
        return self.cluster.size if self.pools is None else self.pools.size

    def at(self, candidate: int) -> "Instance":
        """View of stages of a candidate, with the cluster and space of its pool; without pools, itself."""
        if self.pools is None:
            return self
        pool = self.pools.members[self.pool_of(candidate)]
        if pool.name not in self._views:
            space = self.space if pool.exposure is None else evolve(self.space, **asdict(pool.exposure))
            self._views[pool.name] = evolve(self, cluster=pool.cluster, space=space)
        return self._views[pool.name]

    def alone(self, pool: int) -> "tuple[Instance, tuple[int, ...]] | None":
        """Instance of one pool as a cluster of its own, and its candidates; None: the pool has none."""
        assert self.pools is not None
        name = self.pools.members[pool].name
        own = tuple(index for index, each in enumerate(self.candidates) if each.pool == name)
        if not own:
            return None
        seen = self.at(own[0])
        candidates = tuple(evolve(self.candidates[index], pool=None) for index in own)
        return evolve(seen, candidates=candidates, pools=None), own

    def micro_batches(self, candidate: Candidate, replicas: int) -> int | None:
        """`M` of PROBLEM.md section 3; None: so many replicas cannot share the batch."""
        share = replicas * candidate.samples
        batch = self.space.global_batch
        if share > batch or (batch % share and not self.space.uneven_batch):
            return None
        return -(-self.space.global_batch // share)


Placement = tuple[tuple[tuple[int, ...], ...], ...]
"""Devices of the block of each replica and stage, in the order of their ranks."""


@frozen(eq=False, repr=False)
class StageDecision(Record):
    """Decisions of one pipeline stage.

    Attributes:
        layers: indices, ascending; of all its chunks.
        candidate: index.
        recompute: name of its recompute mode.
        zero: ZeRO stage.
        offset: first device relative to the replica (`o_i` of PROBLEM.md section 3).
        chunks: layer indices of each of its chunks in pipeline order, ascending; empty: one chunk, or those of the even
            split.
    """

    layers: tuple[int, ...]
    candidate: int
    recompute: str
    zero: int
    offset: int
    chunks: tuple[tuple[int, ...], ...] = ()


@frozen(eq=False, repr=False)
class Solution(Record):
    """A plan as decisions only; `plan/evaluate` prices it.

    Attributes:
        replicas: data-parallel degree `d`.
        rank_order: `pp-inner` or `dp-inner`.
        schedule: name of the pipeline schedule.
        stages: in pipeline order.
        chunks: model chunks of each stage (`v` of PROBLEM.md section 4).
        zero_degree: most ranks for ZeRO sharding; None: all with equal parameters.
        placement: on a network that is no hierarchy, the devices of each block; None: given by offsets.
    """

    replicas: int
    rank_order: str
    schedule: str
    stages: tuple[StageDecision, ...]
    chunks: int = 1
    zero_degree: int | None = None
    placement: Placement | None = None

    def among(self, before: "Sequence[Candidate]", after: "Sequence[Candidate]") -> "Solution":
        """Renumber a plan from the candidates `before` to those of `after`, by name."""
        place = {each.name: index for index, each in enumerate(after)}
        stages = tuple(evolve(each, candidate=place[before[each.candidate].name]) for each in self.stages)
        return evolve(self, stages=stages)


class SearchProgress(NamedTuple):
    """State of a search.

    Attributes:
        best: step time (s) of the best plan so far; None: there is none yet.
        bound: lower bound in seconds.
        explored: settled share of the combinations of candidate, replicas, rank order, schedule, choices and number of
            stages, from 0 to 1.
        seconds: spent so far.
        priced: share of the candidates that are priced, from 0 to 1; the search begins when all are.
        proving: a second solver searches for a plan better than a known one.
    """

    best: float | None
    bound: float
    explored: float
    seconds: float
    priced: float = 1.0
    proving: bool = False


@frozen(eq=False, repr=False)
class Result(Record):
    """Result of a solver.

    Attributes:
        status: `optimal`, `near-optimal` (the simplest plan within a share of the least step time, which is the bound),
            `feasible` (stopped early) or `infeasible`.
        solution: None: there is none.
        batch_time: seconds, as priced by the solver.
        lower_bound: in seconds.
        runner_up: best solution met with other degrees, with its step time.
        fastest: if `solution` is simpler and slower, the fastest one, with its step time.
        safer: one that is likelier to fit, with its step time.
        simpler: an even simpler one, with its step time.
        diagnosis: if infeasible, the tightest limit and by how much.
        statistics: of the search, by name.
    """

    status: str
    solution: Solution | None = None
    batch_time: float | None = None
    lower_bound: float | None = None
    runner_up: tuple[Solution, float] | None = None
    fastest: tuple[Solution, float] | None = None
    safer: tuple[Solution, float] | None = None
    simpler: tuple[Solution, float] | None = None
    diagnosis: str | None = None
    statistics: dict[str, Any] = field(factory=dict)


@lru_cache(maxsize=1 << 8)
def _recompute_names(own: tuple[str, ...], allowed: tuple[str, ...] | None, parts: tuple[str, ...]) -> tuple[str, ...]:
    whole = (name for name in own if allowed is None or name in allowed)
    return (*whole, *(name for name in parts if {*name.split(":")[::2]} <= {*own}))
