"""The instance, PROBLEM.md sections 1 to 3 in numbers, all that a solver sees; and what it answers."""

import heapq
from collections.abc import Callable, Sequence
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from attrs import asdict, evolve, field, frozen

from nest.errors import InputError
from nest.instance.candidate import Candidate
from nest.instance.cluster import Cluster, Pools
from nest.instance.network import CollectiveModel
from nest.instance.schedule import Schedule, Weights, weights_of
from nest.records import Record
from nest.spec.constraints import Constraint

if TYPE_CHECKING:
    from nest.instance.network import PlacedNetwork


@frozen(eq=False, repr=False, slots=False)
class LayerGraph(Record):
    """The layers and the tensors between them.

    Attributes:
        layers: unique names.
        tensors: `(producer, consumers)` as layer indices; the bytes are the candidates' (`tensor_bytes`).

    Raises:
        InputError: layers are not unique, a tensor names a layer that is not there or its own producer, or
            the graph has a cycle.
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
        """For each layer, the layers that read its tensors."""
        successors: list[set[int]] = [set() for _ in self.layers]
        for producer, consumers in self.tensors:
            successors[producer].update(consumers)
        return tuple(frozenset(group) for group in successors)

    def topological_order(self) -> tuple[int, ...]:
        """Layers such that producers precede consumers, lowest index first among the free ones.

        Raises:
            InputError: the graph has a cycle; the text names its layers.
        """
        return self._order

    @cached_property
    def _order(self) -> tuple[int, ...]:
        """`topological_order`."""
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
class Usual(Record):
    """The decisions of a framework that is told nothing else.

    Attributes:
        schedule: name of the pipeline schedule.
        zero: ZeRO stage.
        rank_order: rank order.
    """

    schedule: str = ""
    zero: int = 0
    rank_order: str = ""


@frozen(eq=False, repr=False)
class Space(Record):
    """Which plans are allowed, beyond the candidates themselves (PROBLEM.md sections 3 and 5).

    Attributes:
        global_batch: samples per optimizer step.
        uneven_batch: whether `M` may be rounded up.
        exposed: share of data-parallel communication that is not hidden (`e`); with `hiding`, that no compute hides.
        exposed_often: the same of what ZeRO 2 and 3 send in every micro-batch; None: as `exposed`.
        whole_gradients: whether ZeRO 2 adds up the gradients of all micro-batches and reduces them once per batch, so
            that it costs and keeps what ZeRO 1 does; else it is that of PROBLEM.md section 4.
        adapters: whether adapters beside frozen weights are all that is trained, so that ZeRO 1 and 2 shard next to
            nothing: they cost and keep what ZeRO 0 does, as no framework gathers weights that no step changes.
        schedules: pipeline schedules to choose from, preferred first.
        rank_orders: rank orders to choose from, preferred first.
        zero: ZeRO stages to choose from, preferred first.
        recompute: names of recompute modes to choose from; None: all of a candidate's.
        constraints: what every plan must satisfy.
        partition: when given, the layers of each stage.
        mixed: whether stages of one plan may use different candidates with the same samples.
        together: groups of layers that no cut may part, beside those of `constraints`.
        blocks: what schedules of several chunks split: the layers of each transformer block, in order, the embedding
            with the first and the head with the last. None: no plan has several chunks.
        blocks_and_ends: the same where embedding and head count as blocks of their own: the first chunk may hold the
            embedding alone, the last the head alone. With `even` they count so where chunks come out even only so.
            None: they never do.
        even: whether the framework splits them evenly: stage `i` of `s` holds the `i`-th of `s` equal runs, and of
            schedules of several chunks only even splits are allowed.
        hidden_messages: names of the schedules with which messages between stages hide under the compute of the steady
            state, as far as that lasts (section "Messages that hide" of docs/explanation/problem.md).
        zero_degrees: ranks over which ZeRO may shard at most, to choose from, preferred first; None among them: all
            that hold the same parameters. One that divides the ranks of a parameter group into no equal shard groups
            is no choice.
        hiding: whether data-parallel communication overlaps with compute only as far as that lasts (section "Hiding" of
            docs/explanation/problem.md); else `exposed` says it all.
        synchronisation: seconds that what is sent once per batch takes, over those of the collective model.
        sharded_synchronisation: what that is multiplied by with ZeRO 1 and up.
        direct: whether a tensor that skips stages is sent straight from the stage that makes it to those that read it,
            in place of through the stages between; then schedules have one chunk for each stage, and there is no
            network but the cluster's levels.
        wishes: constraints that refuse no plan: of a plan that is already decided it is told which it does not satisfy.
        alike: whether the stages of a plan on several pools are split alike, whatever their devices
            (`Candidate.split`).
        replayed: whether every schedule's plans are priced by their replay, too; else those with `closed_form` are not
            (`training.price`).
        most_pools: pools that a plan may use; None: any number.
        usual: decisions that plans prefer where they cost little.
    """

    global_batch: int
    uneven_batch: bool
    exposed: float
    schedules: tuple[Schedule, ...]
    rank_orders: tuple[str, ...]
    zero: tuple[int, ...]
    recompute: tuple[str, ...] | None = None
    constraints: tuple[Constraint, ...] = ()
    partition: tuple[tuple[int, ...], ...] | None = None
    mixed: bool = False
    together: tuple[tuple[int, ...], ...] = ()
    blocks: tuple[tuple[int, ...], ...] = ()
    blocks_and_ends: tuple[tuple[int, ...], ...] = ()
    even: bool = False
    zero_degrees: tuple[int | None, ...] = (None,)
    hiding: bool = False
    synchronisation: float = 1.0
    sharded_synchronisation: float = 1.0
    wishes: tuple[Constraint, ...] = ()
    exposed_often: float | None = None
    whole_gradients: bool = False
    adapters: bool = False
    direct: bool = False
    hidden_messages: tuple[str, ...] = ()
    alike: bool = False
    replayed: bool = False
    most_pools: int | None = None
    usual: Usual = Usual()

    def replays(self, schedule: Schedule) -> bool:
        """Whether a schedule's plans are priced by their replay, too; what says no order of passes cannot be."""
        return hasattr(schedule, "order") and (self.replayed or not getattr(schedule, "closed_form", False))

    @property
    def often_exposed(self) -> float:
        """Share of what ZeRO sends in every micro-batch that is exposed, however much compute there is."""
        return self.exposed if self.exposed_often is None else self.exposed_often

    def hides(self, schedule: str) -> bool:
        """Whether messages between stages hide with the schedule of this name."""
        return schedule in self.hidden_messages

    def weights(self, schedule: Schedule, micro_batches: int, stages: int) -> Weights:
        """The weights of a schedule, as messages hide with it or not."""
        return weights_of(schedule, micro_batches, stages, hides=self.hides(schedule.name))

    def effective_zero(self, zero: int) -> int:
        """The ZeRO stage of PROBLEM.md section 4 by which a stage with `zero` sends and keeps."""
        if self.adapters and zero < 3:
            return 0
        return 1 if zero == 2 and self.whole_gradients else zero


@frozen(eq=False, repr=False)
class Instance:
    """One optimisation problem in numbers.

    Attributes:
        cluster: devices and network.
        graph: layers and tensors between them.
        candidates: what strategies contribute; at least one.
        space: which plans are allowed.
        collectives: the model that prices collectives.
        complete_to: step time, seconds, up to which no plan of another candidate is missing; infinite: there is none,
            0: there was no time to price the others.
        network: the network as it is, where it is no hierarchy. Then `cluster` has a single level, and with it
            candidates and collectives are such that no plan on the network beats what it takes on that level.
        pools: the cluster's, where it has several kinds of device. Each candidate then names its pool, and `cluster` is
            the first one's, but for a view from another (`at`): whoever prices a stage takes its candidate's view.
        makespan: seconds of a plan's replay; 0: it takes no longer than its closed form. None: closed forms are prices.

    Raises:
        InputError: a candidate does not fit the layer graph, or names a pool that is not there, or none.
    """

    cluster: Cluster
    graph: LayerGraph
    candidates: tuple[Candidate, ...] = field()
    space: Space
    collectives: CollectiveModel
    complete_to: float = inf
    network: "PlacedNetwork | None" = None
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
        """Index of the pool of a candidate; 0 where the cluster has no pools."""
        name = self.candidates[candidate].pool
        return 0 if self.pools is None or name is None else self.pools.index(name)

    def cluster_of(self, candidate: int) -> Cluster:
        """The devices on which stages of a candidate run: those of its pool, or of the cluster."""
        return self.cluster if self.pools is None else self.pools.members[self.pool_of(candidate)].cluster

    @property
    def complete(self) -> bool:
        """Whether no plan of another candidate is missing, whatever it takes."""
        return self.complete_to == inf

    @property
    def size(self) -> int:
        """Number of devices, of all pools together."""
        return self.cluster.size if self.pools is None else self.pools.size

    def at(self, candidate: int) -> "Instance":
        """The instance as stages of a candidate see it, with the cluster and the space of its pool; else itself."""
        if self.pools is None:
            return self
        pool = self.pools.members[self.pool_of(candidate)]
        if pool.name not in self._views:
            space = self.space if pool.exposure is None else evolve(self.space, **asdict(pool.exposure))
            self._views[pool.name] = evolve(self, cluster=pool.cluster, space=space)
        return self._views[pool.name]

    def alone(self, pool: int) -> "tuple[Instance, tuple[int, ...]] | None":
        """The instance of one pool as a cluster of its own, and which candidates it has; None: the pool has none."""
        assert self.pools is not None
        name = self.pools.members[pool].name
        own = tuple(index for index, each in enumerate(self.candidates) if each.pool == name)
        if not own:
            return None
        seen = self.at(own[0])
        candidates = tuple(evolve(self.candidates[index], pool=None) for index in own)
        return evolve(seen, candidates=candidates, pools=None), own

    def micro_batches(self, candidate: Candidate, replicas: int) -> int | None:
        """`M` of PROBLEM.md section 3, or None when so many replicas cannot share the batch."""
        share = replicas * candidate.samples
        batch = self.space.global_batch
        if share > batch or (batch % share and not self.space.uneven_batch):
            return None
        return -(-self.space.global_batch // share)


Placement = tuple[tuple[tuple[int, ...], ...], ...]
"""For each replica and stage the devices of the block, in the order of their ranks."""


@frozen(eq=False, repr=False)
class StageDecision(Record):
    """One pipeline stage as decided.

    Attributes:
        layers: layer indices, ascending; of all its chunks.
        candidate: index of its candidate.
        recompute: name of its recompute mode.
        zero: ZeRO stage.
        offset: first device relative to the replica (`o_i` of PROBLEM.md section 3).
        chunks: layer indices of each of its chunks in pipeline order, ascending; none: it has one chunk, or those of
            the even split.
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
        zero_degree: ranks over which ZeRO shards, at most; None: all that hold the same parameters.
        placement: on a network that is no hierarchy, the devices of each block; None: where offsets say.
    """

    replicas: int
    rank_order: str
    schedule: str
    stages: tuple[StageDecision, ...]
    chunks: int = 1
    zero_degree: int | None = None
    placement: Placement | None = None

    def among(self, before: "Sequence[Candidate]", after: "Sequence[Candidate]") -> "Solution":
        """The same plan of `before`, where candidates stand as in `after`, told by their names."""
        place = {each.name: index for index, each in enumerate(after)}
        stages = tuple(evolve(each, candidate=place[before[each.candidate].name]) for each in self.stages)
        return evolve(self, stages=stages)


class SearchProgress(NamedTuple):
    """How far a search is.

    Attributes:
        best: step time of the best plan so far, seconds; None when there is none yet.
        bound: no plan is faster, seconds.
        explored: share of the combinations of candidate, replicas, rank order, schedule, choices and number of stages
            that are settled, from 0 to 1.
        seconds: spent so far.
        priced: share of the candidates that are priced, from 0 to 1; the search begins when all are.
        proving: whether it is a second solver's search, for a plan that is better than one known before.
    """

    best: float | None
    bound: float
    explored: float
    seconds: float
    priced: float = 1.0
    proving: bool = False


@frozen(eq=False, repr=False)
class Result(Record):
    """What a solver found.

    Attributes:
        status: `optimal`, `near-optimal` (the simplest plan within a share of the least step time, which is the bound),
            `feasible` (stopped early) or `infeasible`.
        solution: None when there is none.
        batch_time: seconds, as the solver priced the solution.
        lower_bound: no plan is faster, seconds.
        runner_up: the best solution met with other degrees, with its step time.
        fastest: where `solution` is a simpler and slower one, the fastest, with its step time.
        safer: one that is likelier to fit, with its step time.
        simpler: one that is simpler yet, with its step time.
        diagnosis: when infeasible, what is tightest and by how much.
        statistics: what the search did, by name.
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
