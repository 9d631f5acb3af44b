"""From a problem as written to the instance solvers see."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cache, partial
from math import inf
from typing import TYPE_CHECKING, Any

from attrs import evolve

from nest.catalogue import optimizer, precision
from nest.deployment import Limits
from nest.errors import InputError, InputErrors
from nest.formulate.cluster import any_cluster, as_measured, build_cluster
from nest.formulate.formulation import Formulation as Formulation
from nest.formulate.model import load_model
from nest.formulate.risk import with_memory_risk
from nest.formulate.shard import allowed_degrees, chosen, profile_degrees, sharded_graphs
from nest.formulate.space import (
    allowed_rank_orders,
    allowed_schedules,
    allowed_zero,
    allowed_zero_degrees,
    build_space,
    demands,
)
from nest.formulate.target import limits_on, target_limits, within
from nest.graph import Block
from nest.hooks.protocols import StrategyContext
from nest.hooks.registry import Registry
from nest.instance import Instance, Level, Pool, RingPricing, SearchProgress
from nest.plan.evaluate import makespan
from nest.solve.effort import Deadline
from nest.spec import DeviceSpec, Problem

if TYPE_CHECKING:
    from nest.formulate.formulation import FirstPlan
    from nest.formulate.kept_model import KeptModel
    from nest.formulate.priced_models import PricedModels
    from nest.formulate.worth import BoundedCandidates


def build_instance(
    problem: Problem,
    registry: Registry,
    levels: tuple[Level, ...] | None = None,
    *,
    priced: PricedModels | None = None,
    among: Collection[str] | None = None,
    up_to: float = inf,
) -> Instance:
    """The instance of `problem`; `formulate` says more."""
    return formulate(problem, registry, levels, priced=priced, among=among, up_to=up_to)[0]


def formulate(
    problem: Problem,
    registry: Registry,
    levels: tuple[Level, ...] | None = None,
    progress: Callable[[SearchProgress], None] | None = None,
    *,
    binding: bool = True,
    deadline: Deadline | None = None,
    priced: PricedModels | None = None,
    among: Collection[str] | None = None,
    first_plan: Callable[[Instance], FirstPlan | None] | None = None,
    up_to: float = inf,
    silent_to: float = 0.0,
    known: Formulation | None = None,
    kept: KeptModel | None = None,
) -> tuple[Instance, Formulation]:
    """The instance of `problem`, and what it was made of.

    Args:
        problem: as written.
        registry: offers importers, strategies, models of cost, and schedules.
        levels: the network, in place of the problem's; None: the problem's.
        progress: told now and then which share of the candidates is priced.
        binding: whether plans must satisfy `constraints`; else these are the space's `wishes`.
        deadline: when the search ends, which is left most of the time: candidates that cannot be priced until then are
            left out, evenly among all. None: all are priced.
        priced: models priced before with this registry, which are not priced again; None: there are none.
        among: names of the candidates that are asked about: of a model that `priced` knows on another network or
            device no others are priced. None: all are.
        first_plan: finds a good plan of an instance with few of the candidates: of many others those are left out that
            cannot be as fast (`nest.formulate.worth`), where nothing priced before is kept. None: nobody looks for one.
        up_to: step time, seconds, of plans that matter: of many candidates others may be left out
            (`Instance.complete_to`).
        silent_to: the same on a network on which nothing that is sent takes time.
        known: what the same problem was formulated as with fewer candidates; None: nothing of it is known.
        kept: what an earlier run priced of its model; None: nothing is known of one.

    Raises:
        InputError: something in the problem cannot be used; the text names the place.
        NoPlanYet: the time is up before anything could be priced.
    """
    problem = without_missing_plugins(problem, registry)
    of_target = cache(partial(target_limits, problem, registry))
    check_names(problem, registry, of_target)
    limits = of_target()
    if limits is not None:
        problem = within(problem, limits, registry)
    if problem.cluster.pools is not None:
        return _on_pools(problem, registry, progress, deadline or Deadline(), limits, binding, priced, among)
    cluster, device = build_cluster(problem.cluster, registry)
    cluster, device = as_measured(cluster, device, problem)
    cluster = with_memory_risk(cluster, problem)
    network = None
    if levels is not None:
        cluster = evolve(cluster, levels=levels)
    elif problem.cluster.topology is not None:
        from nest.formulate.network import placeable, with_network
        from nest.network import optimistic_level

        network = placeable(problem, registry)
    collectives = chosen(registry.collective_models(), problem.collectives, "collectives", "collective model")
    pricing_collectives = collectives
    if network is not None:
        cluster = evolve(cluster, levels=(optimistic_level(network),))
        pricing_collectives = RingPricing(collectives, network.least_rings)

    def of_candidates(made: Formulation) -> Instance:
        """The instance with the candidates of a formulation."""
        limits_here = limits if limits is None else limits_on(limits, cluster.size)
        return Instance(
            cluster=cluster,
            graph=made.graph,
            candidates=made.candidates,
            space=build_space(problem, registry, made, device, limits_here, binding),
            collectives=collectives,
            complete_to=made.complete_to * share,
            makespan=makespan,
        )

    share = problem.training.global_batch / cluster.size
    if problem.profile is not None:
        from nest.formulate.profile import from_profile

        formulation = from_profile(problem, registry, cluster)
    else:
        from nest.formulate.candidates import from_model, repriced

        most = up_to / share

        due = deadline or Deadline()

        def begun(some: Formulation) -> FirstPlan | None:
            return None if first_plan is None else first_plan(of_candidates(some))

        def begun_again(bounded: BoundedCandidates) -> Formulation:
            bounded.waiting.follow(due, progress)
            return bounded.begun(begun, share, cluster.memory)

        def price() -> Formulation:
            place = (registry, cluster, device, pricing_collectives, progress, due)
            if network is not None:
                return from_model(problem, *place)
            return from_model(problem, *place, first_plan=None if first_plan is None else begun, up_to=most)

        if known is not None and known.bounded is not None:
            wide = known.bounded.up_to(most, 0.0)
            formulation = wide if wide.complete_to else evolve(known, complete_to=0.0)
        elif network is not None or (priced is None and kept is None):
            formulation = price()
        else:
            from nest.formulate.priced_models import pricing_key

            def again(known: Formulation, other_blocks: bool, few: Formulation | None) -> Formulation:
                place = (registry, cluster, device, progress, due, among)
                return repriced(known, problem, *place, other_blocks, few)

            key = pricing_key(problem, registry, cluster, device, collectives)
            if priced is None:
                assert kept is not None
                formulation = kept.priced(key, price, again, None if first_plan is None else begun_again)
            else:
                asked = partial(priced.of, key, price, again, up_to=most, computed=silent_to / share)
                formulation = asked(keep=among is None)
                if among is not None and not {each.name for each in formulation.candidates} >= {*among}:
                    formulation = asked()
            formulation = formulation.of(cluster, problem.training)  # What prices no layer may differ.
    instance = of_candidates(formulation)
    if network is not None:
        instance = with_network(instance, formulation, network)
    return instance, formulation


def _on_pools(
    problem: Problem,
    registry: Registry,
    progress: Callable[[SearchProgress], None] | None,
    deadline: Deadline,
    limits: Limits | None,
    binding: bool,
    priced: PricedModels | None,
    among: Collection[str] | None,
) -> tuple[Instance, Formulation]:
    """The instance of a problem with `cluster.pools`, and what it was made of; arguments as of `formulate`."""
    if binding and problem.fixed is not None and problem.fixed.pools is not None:
        raise InputError(
            "fixed.pools says in which pool each stage lies, which a search decides; price that plan with "
            "`nest evaluate`, or leave it out."
        )
    from nest.formulate.pools import measured_pools, refuse_chunks

    pools, devices = measured_pools(problem)
    cluster = pools.members[0].cluster
    collectives = chosen(registry.collective_models(), problem.collectives, "collectives", "collective model")
    if problem.profile is not None:
        from nest.formulate.profile import from_profile

        formulation = from_profile(problem, registry, cluster, pools)
    else:
        from nest.formulate.candidates import on_pools, repriced

        def known(pool: Pool, device: DeviceSpec | None, price: Callable[[], Formulation]) -> Formulation:
            if priced is None:
                return price()
            from nest.formulate.priced_models import pricing_key

            key = pricing_key(problem, registry, pool.cluster, device, collectives)

            def again(found: Formulation, other_blocks: bool, few: Formulation | None) -> Formulation:
                place = (registry, pool.cluster, device)
                return repriced(found, problem, *place, progress, deadline, among, other_blocks, few)

            whole = priced.of(evolve(key, model=(*key.model, pool.name)), price, again, keep=among is None)
            return whole.of(pool.cluster, problem.training)

        formulation = on_pools(problem, registry, pools, devices, collectives, progress, deadline, known)
    limits = limits if limits is None else limits_on(limits, pools.size)
    space = build_space(problem, registry, formulation, devices[0], limits, binding)
    refuse_chunks(space.schedules)
    return (
        Instance(
            cluster=cluster,
            graph=formulation.graph,
            candidates=formulation.candidates,
            space=space,
            collectives=collectives,
            complete_to=inf if formulation.complete_to else 0.0,
            pools=pools,
            makespan=makespan,
        ),
        formulation,
    )


def without_missing_plugins(problem: Problem, registry: Registry) -> Problem:
    """`problem` without the objects it names that are disabled.

    A strategy then has degree 1, whatever degrees it was given. The built-in default stands in for a model of costs,
    collectives or layer times, and for the schedules when no other is named.
    """
    strategies, schedules = registry.missing("strategies") - profile_degrees(problem), registry.missing("schedules")
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
    """The sharded graph of every combination of strategies, degrees and micro-batch sizes; one layer of each class.

    Raises:
        InputError: something in the problem cannot be used, or it has a profile in place of a model.
    """
    if problem.model is None:
        raise InputError("profile gives candidates as numbers, of which nothing tells the operators; give model.")
    check_names(problem, registry)
    cluster, _ = build_cluster(problem.cluster, registry)
    from nest.formulate.layer_classes import layer_classes

    graph = layer_classes(load_model(problem.model, problem.training, registry)).graph
    return sharded_graphs(graph, problem, registry, StrategyContext(cluster, problem.training)).every()


def check_names(problem: Problem, registry: Registry, of_target: Callable[[], Limits | None] | None = None) -> None:
    """Refuse names nobody knows, and constraints that cannot be read, before anything is built from the rest.

    Args:
        problem: as written.
        registry: offers what it may name.
        of_target: gives the limits of its target; None: they are asked for.

    Raises:
        InputErrors: every such name and constraint, each with its place.
    """
    limits = of_target or partial(target_limits, problem, registry)
    mistakes = [mistake for check in _checks(problem, registry, limits) for mistake in _mistakes(check)]
    mistakes += demands(problem, registry, profile_degrees(problem))[1]
    if mistakes:
        raise InputErrors(mistakes)


def check_lists(problem: Problem, registry: Registry) -> None:
    """Refuse what nobody knows in lists that are not looked at where everything is decided."""
    mistakes = [mistake for check in _lists(problem, registry) for mistake in _mistakes(check)]
    if mistakes:
        raise InputErrors(mistakes)


def _lists(problem: Problem, registry: Registry) -> Iterator[Callable[[], Any]]:
    yield lambda: allowed_degrees(problem, {*registry.strategies(), *profile_degrees(problem)})
    yield lambda: allowed_schedules(problem, registry)


def _checks(problem: Problem, registry: Registry, limits: Callable[[], Limits | None]) -> Iterator[Callable[[], Any]]:
    """Calls that are independent of each other; each raises an error or does nothing."""
    yield lambda: any_cluster(problem.cluster, registry)
    yield from _lists(problem, registry)
    yield lambda: chosen(registry.cost_models(), problem.costs, "costs", "cost model")
    yield lambda: chosen(registry.collective_models(), problem.collectives, "collectives", "collective model")
    yield lambda: chosen(registry.layer_times(), problem.layer_times, "layer_times", "model of layer times")
    yield limits
    yield lambda: allowed_rank_orders(problem)
    yield lambda: allowed_zero(problem)
    yield lambda: allowed_zero_degrees(problem)
    if problem.model is not None:
        yield lambda: optimizer(problem.training.optimizer)
        yield lambda: precision(problem.training.precision).trained(problem.training)


def _mistakes(check: Callable[[], Any]) -> tuple[str, ...]:
    try:
        check()
    except InputErrors as errors:
        return errors.problems
    except InputError as error:
        return (str(error),)
    return ()
