"""What a problem decides and allows, read once: every instance is made of this record, and no list is read again."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from attrs import evolve, frozen

from nest.catalogue import optimizer, precision
from nest.deployment import Limits
from nest.errors import InputError, InputErrors
from nest.formulate.cluster import any_cluster
from nest.formulate.risk import accepted_risk
from nest.formulate.shard import Allowed, allowed_degrees, chosen, micro_batches, participating, profile_degrees
from nest.formulate.space import (
    allowed_rank_orders,
    allowed_schedules,
    allowed_zero,
    allowed_zero_degrees,
    constraint_names,
    demands,
)
from nest.formulate.target import limits_of, limits_on, within
from nest.hooks.protocols import CostModel, LayerTimes, Strategy
from nest.hooks.registry import Registry
from nest.instance import CollectiveModel, Schedule
from nest.records import Record
from nest.spec import ClusterSpec, Problem, ProfileSpec, Training, TransformerSpec
from nest.spec.constraints import Constraint
from nest.spec.problem import Search


@frozen(eq=False, repr=False)
class Options(Record):
    """What a problem decides and allows.

    Attributes:
        training: how the model is trained.
        cluster: the machines, as written.
        model: as written; None: there is a profile.
        profile: candidates as numbers; None: there is a model.
        search: what the search may choose from, within the target.
        decided: values of `fixed`.
        stages: layers of each stage, or numbers of blocks; None: they are not fixed.
        pools: of each stage; None: they are not fixed.
        listed: degrees by strategy, as written, within the target.
        strategies: those that take part in candidates.
        degrees: restrictions by strategy.
        micro_batches: samples of a micro-batch, ascending; none of a profile.
        schedules: preferred first, like what follows.
        rank_orders: of ranks.
        zero: ZeRO stages.
        zero_degrees: ranks over which ZeRO may shard at most; None: all.
        demanded: what plans must satisfy, each with its place.
        names: what constraints may name.
        costs: prices operators.
        collectives: prices collectives.
        layer_times: puts the times of a layer's operators together.
        limits: what the target can run; None: there is none.
        risk: share of launches that may run out of memory; None: a margin, or a profile's bytes, decide.
        replayed: whether every plan's price is that of its replay.
    """

    training: Training
    cluster: ClusterSpec
    model: str | TransformerSpec | dict[str, Any] | None
    profile: ProfileSpec | str | None
    search: Search
    decided: Mapping[str, int | float | str | bool]
    stages: tuple[int | tuple[str, ...], ...] | None
    pools: tuple[str, ...] | None
    listed: Mapping[str, tuple[int | bool, ...]]
    strategies: Mapping[str, Strategy]
    degrees: Mapping[str, Allowed]
    micro_batches: tuple[int, ...]
    schedules: tuple[Schedule, ...]
    rank_orders: tuple[str, ...]
    zero: tuple[int, ...]
    zero_degrees: tuple[int | None, ...]
    demanded: tuple[tuple[str, Constraint], ...]
    names: frozenset[str]
    costs: CostModel
    collectives: CollectiveModel
    layer_times: LayerTimes
    limits: Limits | None
    risk: float | None
    replayed: bool

    def on(self, devices: int) -> "Options":
        """The same on so many devices, by which the limits of the target may count."""
        return evolve(self, limits=None if self.limits is None else limits_on(self.limits, devices))

    def within(self, problem: Problem, registry: Registry) -> "Options":
        """Those that the target of the `problem` has; recompute modes and constraints are kept.

        Raises:
            InputErrors: of some decision no choice is left, each with what the problem allows and what the target has.
        """
        if self.limits is None:
            return self
        narrowed = within(problem, self.limits, registry)
        search, fixed = narrowed.search, self.decided
        return evolve(
            self,
            training=narrowed.training,
            search=search,
            listed=narrowed.strategies,
            **_of_strategies(narrowed.strategies, fixed, search.mixed, profile_degrees(self.profile), registry),
            schedules=tuple(
                each for each in self.schedules if "schedule" in fixed or each.name in narrowed.training.schedule
            ),
            rank_orders=allowed_rank_orders(search.rank_order, fixed.get("rank_order")),
            zero=allowed_zero(search.zero, fixed.get("zero")),
            zero_degrees=allowed_zero_degrees(search.zero_degree, fixed.get("zero_degree")),
        )


def _of_strategies(
    listed: Mapping[str, tuple[int | bool, ...]],
    fixed: Mapping[str, object],
    mixed: bool,
    own: Collection[str],
    registry: Registry,
) -> dict[str, Any]:
    """The strategies that take part in candidates, and restrictions of these and of degrees of a profile's `own`."""
    registered = registry.strategies()
    return {
        "strategies": participating({*listed, *fixed}, registered, mixed=mixed),
        "degrees": allowed_degrees(listed, fixed, {*registered, *own}),
    }


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
    target, mistakes = search.framework, list[str]()

    def read(what: Callable[[], Any]) -> Any:
        try:
            return what()
        except InputErrors as errors:
            mistakes.extend(errors.problems)
        except InputError as error:
            mistakes.append(str(error))
        return None

    read(lambda: any_cluster(problem.cluster, registry))
    own = profile_degrees(problem.profile)
    strategies = read(lambda: _of_strategies(problem.strategies, fixed, search.mixed, own, registry))
    schedules = read(lambda: allowed_schedules(training.schedule, fixed.get("schedule"), registry.schedules()))
    costs = read(lambda: chosen(registry.cost_models(), problem.costs, "costs", "cost model"))
    collectives = read(
        lambda: chosen(registry.collective_models(), problem.collectives, "collectives", "collective model")
    )
    layer_times = read(
        lambda: chosen(registry.layer_times(), problem.layer_times, "layer_times", "model of layer times")
    )
    limits = read(lambda: target and limits_of(target, problem, registry, "search.target"))
    orders = read(lambda: allowed_rank_orders(search.rank_order, fixed.get("rank_order")))
    zero = read(lambda: allowed_zero(search.zero, fixed.get("zero")))
    zero_degrees = read(lambda: allowed_zero_degrees(search.zero_degree, fixed.get("zero_degree")))
    if model is not None:
        read(lambda: optimizer(training.optimizer))
        read(lambda: precision(training.precision).trained(training))
    names = constraint_names(registry, own)
    demanded, wrong = demands(problem.constraints, fixed, names)
    mistakes += wrong
    sizes = () if model is None else read(lambda: micro_batches(training, fixed.get("micro_batch")))
    if mistakes:
        raise InputErrors(mistakes)
    return Options(
        training=training,
        cluster=problem.cluster,
        model=model,
        profile=problem.profile,
        search=search,
        decided=fixed,
        stages=None if problem.fixed is None else problem.fixed.stages,
        pools=None if problem.fixed is None else problem.fixed.pools,
        listed=problem.strategies,
        **strategies,
        micro_batches=sizes,
        schedules=schedules,
        rank_orders=orders,
        zero=zero,
        zero_degrees=zero_degrees,
        demanded=tuple(demanded),
        names=names,
        costs=costs,
        collectives=collectives,
        layer_times=layer_times,
        limits=limits,
        risk=accepted_risk(training, model),
        replayed=problem.replayed,
    )


def check_lists(problem: Problem, registry: Registry) -> None:
    """Refuse what nobody knows in lists that are not looked at where everything is decided."""
    known = {*registry.strategies(), *profile_degrees(problem.profile)}
    fixed, mistakes = problem.decided, list[str]()
    for check in (
        lambda: allowed_degrees(problem.strategies, fixed, known),
        lambda: allowed_schedules(problem.training.schedule, fixed.get("schedule"), registry.schedules()),
    ):
        try:
            check()
        except InputError as error:
            mistakes.append(str(error))
    if mistakes:
        raise InputErrors(mistakes)
