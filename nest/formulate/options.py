"""Decisions and choices of a problem, in one record from which every instance is made."""

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
    """Decisions and choices of a problem."""

    training: Training
    cluster: ClusterSpec  # As written.
    model: str | TransformerSpec | dict[str, Any] | None  # As written; None: there is a profile.
    profile: ProfileSpec | str | None  # Candidates as numbers; None: there is a model.
    search: Search  # Choices of the search, within the target.
    fixed: Fixed  # Decisions.
    listed: Mapping[str, tuple[int | bool, ...]]  # Degrees by strategy, as written, within the target.
    strategies: Mapping[str, Strategy]  # Those that take part in candidates.
    degrees: Mapping[str, Allowed]  # Restrictions by strategy.
    schedules: tuple[Schedule, ...]  # Preferred first, like what follows.
    rank_orders: tuple[str, ...]  # Of ranks.
    zero: tuple[int, ...]  # ZeRO stages.
    zero_degrees: tuple[int | None, ...]  # Ranks over which ZeRO may shard at most; None: all.
    demanded: tuple[tuple[str, Constraint], ...]  # Constraints on plans, each with its place.
    costs: CostModel  # Prices operators.
    collectives: CollectiveModel  # Prices collectives.
    layer_times: LayerTimes  # Combines the times of a layer's operators.
    limits: Limits | None  # Of the target; None: no target.
    # Accepted share of launches that run out of memory; None: a margin, or a profile's bytes, decide.
    risk: float | None
    replayed: bool  # Every plan is priced by its replay.
    micro_batches: tuple[int, ...] = ()  # Samples of a micro-batch, ascending; empty for a profile.

    def sharded(
        self,
        graph: OperatorGraph,
        context: StrategyContext,
        watch: Callable[[], None] = lambda: None,
        made: Made | None = None,
    ) -> ShardedGraphs:
        """Blocks of `graph` with the allowed strategies and sizes; arguments of `ShardedGraphs`."""
        return ShardedGraphs(graph, self.strategies, self.degrees, self.micro_batches, context, watch, made)
