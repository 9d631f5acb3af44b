"""Builds the instance that solvers see from a written problem."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from nest.catalogue import optimizer, precision
from nest.errors import InputError, InputErrors
from nest.formulate.cluster import any_cluster, as_measured, build_cluster, with_experts
from nest.formulate.formulation import Formulation as Formulation
from nest.formulate.model import load_model
from nest.formulate.options import Options
from nest.formulate.risk import accepted_risk, with_memory_risk
from nest.formulate.shard import allowed_degrees, chosen, micro_batches, participating, profile_degrees
from nest.formulate.space import (
    allowed_rank_orders,
    allowed_schedules,
    allowed_zero,
    allowed_zero_degrees,
    build_space,
    constraint_names,
    demands,
)
from nest.formulate.target import limits_of, limits_on, within
from nest.graph import Block
from nest.hooks.protocols import StrategyContext
from nest.hooks.registry import Registry
from nest.instance import Instance, Level, RingPricing
from nest.plan.evaluate import makespan
from nest.records import Record
from nest.solve.effort import Deadline, Waiting
from nest.spec import Problem
from nest.spec.problem import Fixed

if TYPE_CHECKING:
    from nest.formulate.formulation import FirstPlan
    from nest.formulate.kept_model import KeptModel
    from nest.formulate.priced_models import PricedModels
    from nest.formulate.worth import BoundedCandidates


@frozen(eq=False, repr=False)
class Wanted(Record):
    """Requests on an instance besides its problem.

    Attributes:
        levels: replacement for the problem's network; None: the problem's.
        binding: plans must satisfy `constraints`; else these are the space's `wishes`.
        among: names of requested candidates: of a model known on another network or device, no others are priced. None:
            all.
        first_plan: finds a good plan of an instance with few candidates; of many others, those that cannot be as fast
            are left out (`nest.formulate.worth`) unless earlier prices are reused. None: price all.
        step_time_limit: step time (s) of relevant plans: of many candidates, others may be left out
            (`Instance.complete_to`).
        compute_only_limit: same on a network with free communication.
    """

    levels: tuple[Level, ...] | None = None
    binding: bool = True
    among: Collection[str] | None = None
    first_plan: Callable[[Instance], FirstPlan | None] | None = None
    step_time_limit: float = inf
    compute_only_limit: float = 0.0


def build_instance(
    problem: Problem, registry: Registry, wanted: Wanted = Wanted(), known: PricedModels | None = None
) -> Instance:
    """Build the instance of a problem; see `formulate`."""
    return formulate(problem, registry, wanted, known)[0]


def options_of(problem: Problem, registry: Registry) -> Options:
    """Decisions and choices of a problem, without disabled plug-ins, and within its target.

    Raises:
        InputErrors: something in the problem cannot be used; the text names the place.
    """
    problem = without_missing_plugins(problem, registry)
    options = read_options(problem, registry)
    if options.limits is None:
        return options
    narrowed, fixed, registered = within(problem, options.limits, registry), options.fixed.values, registry.strategies()
    search, listed, schedules = narrowed.search, narrowed.strategies, narrowed.training.schedule
    return evolve(
        options,
        training=narrowed.training,
        search=search,
        listed=listed,
        strategies=participating({*listed, *fixed}, registered, mixed=search.mixed),
        degrees=allowed_degrees(listed, fixed, {*registered, *profile_degrees(options.profile)}),
        schedules=tuple(each for each in options.schedules if "schedule" in fixed or each.name in schedules),
        rank_orders=allowed_rank_orders(search.rank_order, fixed.get("rank_order")),
        zero=allowed_zero(search.zero, fixed.get("zero")),
        zero_degrees=allowed_zero_degrees(search.zero_degree, fixed.get("zero_degree")),
    )


def formulate(
    asked: Problem | Options,
    registry: Registry,
    wanted: Wanted = Wanted(),
    known: PricedModels | KeptModel | Formulation | None = None,
    waiting: Waiting | None = None,
) -> tuple[Instance, Formulation]:
    """Build the instance of a problem, and what it was made of.

    Args:
        asked: the problem as written, or its `options_of`.
        registry: offers importers, strategies, cost models, and schedules.
        known: reused prices: models priced before with this registry, prices of this model from an earlier run, or a
            formulation of the same problem with fewer candidates.
        waiting: gets the share of candidates priced. Those not priced by its deadline, which leaves most of the time to
            the search, are left out, spread evenly. None: no deadline.

    Raises:
        InputError: something in the problem cannot be used; the text names the place.
        NoPlanYet: the time is up before anything could be priced.
    """
    options = asked if isinstance(asked, Options) else options_of(asked, registry)
    waiting = waiting or Waiting(Deadline(), None)
    if options.cluster.pools is not None:
        if wanted.binding and options.fixed.pools is not None:
            raise InputError("fixed.pools: `nest solve` chooses the pools; use `nest evaluate`, or leave it out.")
        return _on_pools(options, registry, wanted, known, waiting)
    cluster, device = build_cluster(options.cluster, registry)
    cluster, device = as_measured(cluster, device, options.cluster, options.model is not None, options.training.stack)
    cluster, network, collectives = with_memory_risk(cluster, options), None, options.collectives
    if wanted.levels is not None:
        cluster = evolve(cluster, levels=wanted.levels)
    elif options.cluster.topology is not None:
        from nest.formulate.network import placeable, with_network
        from nest.network import optimistic_level

        network = placeable(options.cluster, registry, all_ports=bool(options.training.all_ports))
        if network is not None:
            cluster = evolve(cluster, levels=(optimistic_level(network),))
            collectives = RingPricing(collectives, network.least_rings)
    share = options.training.global_batch / cluster.size
    limits = options.limits and limits_on(options.limits, cluster.size)

    def of_candidates(made: Formulation) -> Instance:
        return Instance(
            cluster=with_experts(cluster, device, options.cluster) if made.experts else cluster,
            graph=made.graph,
            candidates=made.candidates,
            space=build_space(evolve(options, limits=limits), registry, made, device, wanted.binding),
            collectives=options.collectives,
            complete_to=made.complete_to * share,
            makespan=makespan,
        )

    if options.profile is not None:
        from nest.formulate.profile import from_profile

        formulation = from_profile(options, cluster)
    else:
        from nest.formulate.candidates import Devices, from_model, repriced

        devices, most, first_plan = (
            Devices(cluster, device, collectives),
            wanted.step_time_limit / share,
            wanted.first_plan,
        )

        def begun(some: Formulation) -> FirstPlan | None:
            return None if first_plan is None else first_plan(of_candidates(some))

        def resume_pricing(bounded: BoundedCandidates) -> Formulation:
            bounded.waiting.follow(waiting.deadline, waiting.progress)
            return bounded.begun(begun, share, cluster.memory)

        few = (None, inf) if network is not None else (None if first_plan is None else begun, most)
        price = partial(from_model, options, registry, devices, waiting, *few)
        if isinstance(known, Formulation) and known.bounded is not None:
            wide = known.bounded.up_to(most, 0.0)
            formulation = wide if wide.complete_to else evolve(known, complete_to=0.0)
        elif network is not None or known is None or isinstance(known, Formulation):
            formulation = price()
        else:
            from nest.formulate.priced_models import PricedModels, pricing_key

            key = pricing_key(options, registry, cluster, device)

            def reprice(found: Formulation, other_blocks: bool, few: Formulation | None) -> Formulation:
                return repriced(found, options, devices, waiting, wanted.among, other_blocks, few)

            if isinstance(known, PricedModels):
                of_key = partial(known.of, key, price, reprice, up_to=most, computed=wanted.compute_only_limit / share)
                formulation = of_key(keep=wanted.among is None)
                if wanted.among is not None and not {each.name for each in formulation.candidates} >= {*wanted.among}:
                    formulation = of_key()
            else:
                formulation = known.priced(key, price, reprice, None if first_plan is None else resume_pricing)
        formulation = formulation.of(cluster, options.training)  # What prices no layer may differ.
    instance = of_candidates(formulation)
    if network is not None:
        instance = with_network(instance, formulation, network)
    return instance, formulation


def _on_pools(
    options: Options,
    registry: Registry,
    wanted: Wanted,
    known: PricedModels | KeptModel | Formulation | None,
    waiting: Waiting,
) -> tuple[Instance, Formulation]:
    """Instance of a problem with `cluster.pools`, and what it was made of; arguments as in `formulate`."""
    from nest.formulate.pools import measured_pools, refuse_chunks

    pools, devices = measured_pools(options)
    cluster = pools.members[0].cluster
    if options.profile is not None:
        from nest.formulate.profile import from_profile

        formulation = from_profile(options, cluster, pools)
    else:
        from nest.formulate.candidates import Devices, from_model, on_pools, repriced
        from nest.formulate.priced_models import PricedModels, pricing_key

        def price(there: Devices) -> Formulation:
            anew = partial(from_model, options, registry, there, waiting)
            if not isinstance(known, PricedModels):
                return anew()
            key = pricing_key(options, registry, there.cluster, there.device)

            def reprice(found: Formulation, other_blocks: bool, few: Formulation | None) -> Formulation:
                return repriced(found, options, there, waiting, wanted.among, other_blocks, few)

            whole = known.of(evolve(key, model=(*key.model, there.pool)), anew, reprice, keep=wanted.among is None)
            return whole.of(there.cluster, options.training)

        every = [
            Devices(pool.cluster, device, options.collectives, pool.name, f"cluster.pools[{index}]")
            for index, (pool, device) in enumerate(zip(pools.members, devices, strict=True))
        ]
        formulation = on_pools(every, price)
    if formulation.experts:
        widened = [
            evolve(pool, cluster=with_experts(pool.cluster, device, options.cluster))
            for pool, device in zip(pools.members, devices, strict=True)
        ]
        pools = evolve(pools, members=tuple(widened))
        cluster = widened[0].cluster
    limited = evolve(options, limits=options.limits and limits_on(options.limits, pools.size))
    space = build_space(limited, registry, formulation, devices[0], wanted.binding)
    refuse_chunks(space.schedules)
    return (
        Instance(
            cluster=cluster,
            graph=formulation.graph,
            candidates=formulation.candidates,
            space=space,
            collectives=options.collectives,
            complete_to=inf if formulation.complete_to else 0.0,
            pools=pools,
            makespan=makespan,
        ),
        formulation,
    )


def without_missing_plugins(problem: Problem, registry: Registry) -> Problem:
    """Drop disabled plug-ins that a problem names.

    A strategy then has degree 1. Built-in defaults replace models of costs, collectives or layer times, and the
    schedules if no other is named.
    """
    strategies, schedules = (
        registry.missing("strategies") - profile_degrees(problem.profile),
        registry.missing("schedules"),
    )
    named = tuple(name for name in problem.training.schedule if name not in schedules)
    restrictions = {
        name: value
        for name, value in problem.decided.items()
        if name not in strategies and not (name == "schedule" and value in schedules)
    }
    return evolve(
        problem,
        strategies={name: degrees for name, degrees in problem.strategies.items() if name not in strategies},
        training=evolve(problem.training, schedule=named or (next(iter(registry.schedules())),)),
        fixed=evolve(problem.fixed, values=restrictions) if problem.fixed is not None else None,
        costs=_present(problem.costs, registry.missing("cost_models")),
        collectives=_present(problem.collectives, registry.missing("collective_models")),
        layer_times=_present(problem.layer_times, registry.missing("layer_times")),
    )


def _present(name: str | None, absent: frozenset[str]) -> str | None:
    return None if name in absent else name


def model_blocks(problem: Problem, registry: Registry) -> tuple[Block, ...]:
    """Sharded graph of every combination of strategies, degrees and micro-batch sizes; one layer of each class.

    Raises:
        InputError: something in the problem cannot be used, or it has a profile instead of a model.
    """
    if problem.model is None:
        raise InputError("profile: a profile has no operators; give a `model`.")
    options = read_options(problem, registry)
    cluster, _ = build_cluster(problem.cluster, registry)
    from nest.formulate.layer_classes import layer_classes

    graph = layer_classes(load_model(problem.model, problem.training, registry)).graph
    return options.sharded(graph, StrategyContext(cluster, problem.training)).every()


def read_options(problem: Problem, registry: Registry) -> Options:
    """Decisions and choices of a problem, before anything else is built.

    Raises:
        InputErrors: every unknown name, and every unreadable constraint and decision, each with its place.
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
    """Refuse unknown names in lists that decided problems do not otherwise read."""
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
    """Results of independent calls by name; names that begin with `_` are only checked.

    Raises:
        InputErrors: the errors of all calls.
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
