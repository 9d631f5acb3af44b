"""What a problem decides and allows, read once: every instance is made of this record, and no list is read again."""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve, frozen

from nest.catalogue import optimizer, precision
from nest.deployment import Limits
from nest.errors import InputError, InputErrors
from nest.formulate.cluster import any_cluster
from nest.formulate.risk import accepted_risk
from nest.formulate.shard import (
    Allowed,
    Made,
    ShardedGraphs,
    allowed_degrees,
    chosen,
    micro_batches,
    participating,
    profile_degrees,
)
from nest.formulate.space import (
    allowed_rank_orders,
    allowed_schedules,
    allowed_zero,
    allowed_zero_degrees,
    constraint_names,
    demands,
)
from nest.formulate.target import limits_of, within
from nest.graph import OperatorGraph
from nest.hooks.protocols import CostModel, LayerTimes, Strategy, StrategyContext
from nest.hooks.registry import Registry
from nest.instance import CollectiveModel, Schedule
from nest.records import Record
from nest.spec import ClusterSpec, Problem, ProfileSpec, Training, TransformerSpec
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

    def within(self, problem: Problem, registry: Registry) -> "Options":
        """Those that the target of the `problem` has; recompute modes and constraints are kept.

        Raises:
            InputErrors: of some decision no choice is left, each with what the problem allows and what the target has.
        """
        if self.limits is None:
            return self
        narrowed, fixed, registered = within(problem, self.limits, registry), self.fixed.values, registry.strategies()
        search, listed, schedules = narrowed.search, narrowed.strategies, narrowed.training.schedule
        return evolve(
            self,
            training=narrowed.training,
            search=search,
            listed=listed,
            strategies=participating({*listed, *fixed}, registered, mixed=search.mixed),
            degrees=allowed_degrees(listed, fixed, {*registered, *profile_degrees(self.profile)}),
            schedules=tuple(each for each in self.schedules if "schedule" in fixed or each.name in schedules),
            rank_orders=allowed_rank_orders(search.rank_order, fixed.get("rank_order")),
            zero=allowed_zero(search.zero, fixed.get("zero")),
            zero_degrees=allowed_zero_degrees(search.zero_degree, fixed.get("zero_degree")),
        )


def read_options(problem: Problem, registry: Registry) -> Options:
    """What `problem` decides and allows, before anything is built from the rest.

    Args:
        problem: as written.
        registry: offers what it may name.

    Raises:
        InputErrors: every name that nobody knows, and every constraint and decision that cannot be read, each with its
            place.
    """
    training, search, fixed, model = problem.training, problem.search, problem.decided, problem.model
    registered, own, target = registry.strategies(), profile_degrees(problem.profile), search.framework
    models = registry.cost_models(), registry.collective_models(), registry.layer_times()
    checks: dict[str, Callable[[], Any]] = {
        "_cluster": lambda: any_cluster(problem.cluster, registry),
        "degrees": lambda: allowed_degrees(problem.strategies, fixed, {*registered, *own}),
        "schedules": lambda: allowed_schedules(training.schedule, fixed.get("schedule"), registry.schedules()),
        "costs": lambda: chosen(models[0], problem.costs, "costs", "cost model"),
        "collectives": lambda: chosen(models[1], problem.collectives, "collectives", "collective model"),
        "layer_times": lambda: chosen(models[2], problem.layer_times, "layer_times", "model of layer times"),
        "limits": lambda: target and limits_of(target, problem, registry, "search.target"),
        "rank_orders": lambda: allowed_rank_orders(search.rank_order, fixed.get("rank_order")),
        "zero": lambda: allowed_zero(search.zero, fixed.get("zero")),
        "zero_degrees": lambda: allowed_zero_degrees(search.zero_degree, fixed.get("zero_degree")),
    }
    if model is not None:
        checks["_optimizer"] = lambda: optimizer(training.optimizer)
        checks["_precision"] = lambda: precision(training.precision).trained(training)
        checks["micro_batches"] = lambda: micro_batches(training, fixed.get("micro_batch"))
    checks["demanded"] = lambda: demands(problem.constraints, fixed, constraint_names(registry, own))
    return Options(
        training=training,
        cluster=problem.cluster,
        model=model,
        profile=problem.profile,
        search=search,
        fixed=problem.fixed or Fixed({}),
        listed=problem.strategies,
        strategies=participating({*problem.strategies, *fixed}, registered, mixed=search.mixed),
        risk=accepted_risk(training, model),
        replayed=problem.replayed,
        **_read(checks),
    )


def check_lists(problem: Problem, registry: Registry) -> None:
    """Refuse what nobody knows in lists that are not looked at where everything is decided."""
    known, fixed = {*registry.strategies(), *profile_degrees(problem.profile)}, problem.decided
    _read(
        {
            "degrees": lambda: allowed_degrees(problem.strategies, fixed, known),
            "schedules": lambda: allowed_schedules(
                problem.training.schedule, fixed.get("schedule"), registry.schedules()
            ),
        }
    )


def _read(checks: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """What independent calls return, by name; what begins with `_` is only looked at.

    Raises:
        InputErrors: what is wrong with all of them.
    """
    read, mistakes = dict[str, Any](), list[str]()
    for name, check in checks.items():
        try:
            read[name] = check()
        except InputErrors as errors:
            mistakes += errors.problems
        except InputError as error:
            mistakes.append(str(error))
    if mistakes:
        raise InputErrors(mistakes)
    return {name: value for name, value in read.items() if not name.startswith("_")}
