"""What a problem decides and allows: every instance is made of this record, and no list is read again."""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from nest.deployment import Limits
from nest.formulate.shard import Allowed, Made, ShardedGraphs
from nest.graph import OperatorGraph
from nest.hooks.protocols import CostModel, LayerTimes, Strategy, StrategyContext
from nest.instance import CollectiveModel, Schedule
from nest.records import Record
from nest.spec import ClusterSpec, ProfileSpec, Training, TransformerSpec
from nest.spec.constraints import Constraint
from nest.spec.problem import Fixed, Search


@frozen(eq=False, repr=False)
class Options(Record):
    """What a problem decides and allows.

    Attributes:
        training: how the model is trained.
        cluster: the machines, as written.
        model: as written; None: there is a profile.
        profile: candidates as numbers; None: there is a model.
        search: what the search may choose from, within the target.
        fixed: decisions that are taken.
        listed: degrees by strategy, as written, within the target.
        strategies: those that take part in candidates.
        degrees: restrictions by strategy.
        schedules: preferred first, like what follows.
        rank_orders: of ranks.
        zero: ZeRO stages.
        zero_degrees: ranks over which ZeRO may shard at most; None: all.
        demanded: what plans must satisfy, each with its place.
        costs: prices operators.
        collectives: prices collectives.
        layer_times: puts the times of a layer's operators together.
        limits: what the target can run; None: there is none.
        risk: share of launches that may run out of memory; None: a margin, or a profile's bytes, decide.
        replayed: whether every plan's price is that of its replay.
        micro_batches: samples of a micro-batch, ascending; none of a profile.
    """

    training: Training
    cluster: ClusterSpec
    model: str | TransformerSpec | dict[str, Any] | None
    profile: ProfileSpec | str | None
    search: Search
    fixed: Fixed
    listed: Mapping[str, tuple[int | bool, ...]]
    strategies: Mapping[str, Strategy]
    degrees: Mapping[str, Allowed]
    schedules: tuple[Schedule, ...]
    rank_orders: tuple[str, ...]
    zero: tuple[int, ...]
    zero_degrees: tuple[int | None, ...]
    demanded: tuple[tuple[str, Constraint], ...]
    costs: CostModel
    collectives: CollectiveModel
    layer_times: LayerTimes
    limits: Limits | None
    risk: float | None
    replayed: bool
    micro_batches: tuple[int, ...] = ()

    def sharded(
        self,
        graph: OperatorGraph,
        context: StrategyContext,
        watch: Callable[[], None] = lambda: None,
        made: Made | None = None,
    ) -> ShardedGraphs:
        """The blocks of `graph` with the strategies and sizes that are allowed; arguments as of `ShardedGraphs`."""
        return ShardedGraphs(graph, self.strategies, self.degrees, self.micro_batches, context, watch, made)
