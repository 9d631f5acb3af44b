"""Lower bounds on layers that are alike, which stages share evenly: there they are the step time, and nothing more."""

from itertools import product
from math import ceil, inf

import pytest
from attrs import evolve

from nest.instance import Instance, Level
from nest.plan.evaluate import evaluate
from nest.solve.dp.beside_compute import FirstBounds
from nest.solve.dp.chunks import ChunkSearch
from nest.solve.dp.compute_bounds import ComputeBounds
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.downsets import lattice, membership
from nest.solve.dp.floors import floors
from nest.solve.dp.listing import configurations
from nest.solve.dp.plain import PlainSearch
from nest.solve.dp.screen import ScreenTables
from nest.solve.dp.units import Splits
from nest.solve.solver import solve
from nest_cpsat.cases import Case, cases
from nest_cpsat.compute_bound import ComputeBound
from nest_cpsat.cuts import list_cuts
from nest_cpsat.least_costs import LeastCostCache
from nest_cpsat.path_models import PathModels
from tests.solve.alike_layers import LAYERS, of_alike_layers
from tests.solve.every_plan import Odd

DOWNSETS = lattice(membership([(1 << LAYERS) - (1 << place) for place in range(LAYERS, -1, -1)], LAYERS))
SETTINGS = list(product((0, 1, 2, 3), (1, 3, 6), (1, 2)))
"""ZeRO stages, micro-batches and replicas."""


def seconds(problem: Instance) -> float:
    """The step time of the best plan."""
    best = solve(problem, runner_up=False).solution
    assert best is not None
    return evaluate(problem, best).batch_time


def the_configuration(problem: Instance) -> Configuration:
    """The one of three stages."""
    (found,) = configurations(problem, LAYERS, Splits(problem).counts)[0]
    assert found.stage_counts == (3,)
    return found


def the_case(problem: Instance) -> Case:
    (found,) = cases(problem, LAYERS)
    return found


@pytest.mark.parametrize(("zero", "micro_batches", "replicas"), SETTINGS)
def test_bounds_ahead_of_stages_are_what_stages_take(zero: int, micro_batches: int, replicas: int) -> None:
    problem = of_alike_layers("one candidate", zero, micro_batches, replicas)
    exactly, configuration = pytest.approx(seconds(problem), rel=1e-6), the_configuration(problem)
    bounds, weights = FirstBounds(problem), problem.space.weights(configuration.schedule, micro_batches, 3)
    assert bounds.of_configuration(configuration) == exactly
    slowest = weights.slowest * bounds.slowest(configuration, 3)
    assert bounds.rest(configuration, weights, 3) + slowest == exactly
    search = PlainSearch(problem, [configuration], DOWNSETS)
    assert search.closer_bounds(configuration) == exactly


@pytest.mark.parametrize(("zero", "micro_batches", "replicas"), SETTINGS)
def test_bounds_of_the_proof_are_what_stages_take(zero: int, micro_batches: int, replicas: int) -> None:
    problem = of_alike_layers("one candidate", zero, micro_batches, replicas)
    step, case = seconds(problem), the_case(problem)
    cuts, costs = list_cuts(problem, 600), LeastCostCache(problem).of(case)
    assert cuts is not None
    assert PathModels(problem, cuts).bound(case, step * 1.5) == pytest.approx(step, rel=1e-6)
    assert costs.step_time(case, costs.total) <= step
    assert ComputeBound(problem).of(case) <= step * (1 + 1e-9)
    # Optimizer steps, and what limits make of a plan as fast as this one.
    alone = evolve(problem, space=evolve(problem.space, exposed=0.0, exposed_often=0.0))
    step = seconds(alone)
    case = the_case(alone)
    assert costs.step_time(case, costs.total) == pytest.approx(step, rel=1e-6)
    if micro_batches > 1:
        assert costs.slowest_limit(case, step, costs.total) == pytest.approx(costs.total / 3, rel=1e-6)
    assert costs.total_limit(case, step, costs.total) == pytest.approx(costs.total, rel=1e-6)


@pytest.mark.parametrize(("micro_batches", "replicas"), list(product((1, 3, 6), (1, 2))))
def test_bounds_of_compute_are_all_there_is_where_nothing_else_takes_time(micro_batches: int, replicas: int) -> None:
    problem = of_alike_layers("one candidate", 0, micro_batches, replicas)
    (used,) = problem.candidates
    state = tuple(evolve(each, update=0 * each.update) for each in used.state)
    space = evolve(problem.space, exposed=0.0)
    problem = evolve(problem, candidates=(evolve(used, state=state),), space=space)
    exactly, configuration = pytest.approx(seconds(problem), rel=1e-9), the_configuration(problem)
    assert ComputeBounds(problem).of(0, configuration.schedule, micro_batches, (3,)) == exactly
    assert ComputeBound(problem).of(the_case(problem)) == exactly
    free = evolve(problem, space=evolve(space, constraints=()))
    batch, floor, least = micro_batches * replicas, floors(free)[1], inf
    for devices in range(1, problem.cluster.size + 1):
        for stages in (each for each in range(1, LAYERS + 1) if devices % each == 0):
            # Each micro-batch takes 3 s a layer; a batch that does not divide is in no plan.
            if (batch * stages) % devices == 0 and problem.cluster.size // (devices // stages) >= stages:
                slowest, of_replica = 3.0 * ceil(LAYERS / stages), batch * stages // devices
                least = min(least, (of_replica - 1) * slowest + 3.0 * LAYERS)
        assert floor.at(devices) == pytest.approx(least, rel=1e-9)


def test_blocks_of_two_devices_take_twice_as_many() -> None:
    narrow = of_alike_layers("one candidate", 0, 6)
    narrow = evolve(narrow, space=evolve(narrow.space, constraints=()))
    machines, (used,) = narrow.cluster, narrow.candidates
    levels = (Level("pair", 2, 10.0, 0.0), *machines.levels)
    wide = evolve(narrow, cluster=evolve(machines, levels=levels), candidates=(evolve(used, width=2),))
    one, two = floors(narrow)[1], floors(wide)[2]
    for devices in range(2 * machines.size + 1):
        assert two.at(devices) == one.at(devices // 2)


@pytest.mark.parametrize(("zero", "replicas"), list(product((0, 1, 2, 3), (1, 2))))
def test_bounds_of_chunks_are_what_they_take(zero: int, replicas: int) -> None:
    """Six layers on three stages make two chunks of one layer for each stage."""
    problem = of_alike_layers("several chunks", zero, 6, replicas)
    step, configuration = seconds(problem), the_configuration(problem)
    search = ChunkSearch(problem, [configuration], Splits(problem))
    (early,) = search.early_bounds(configuration).tolist()
    assert early == pytest.approx(step, rel=1e-6)
    assert search.worthwhile([configuration], step * (1 + 1e-9))[configuration.order].time == (3,)
    assert search.worthwhile([configuration], step * 0.98)[configuration.order].time == ()


@pytest.mark.parametrize(("zero", "micro_batches"), list(product((0, 1, 2, 3), (1, 6))))
def test_the_screen_leaves_what_fills_all_devices(zero: int, micro_batches: int) -> None:
    """And not what lacks a fiftieth, but of micro-batches in flight beyond the first, which it does not know."""
    for space in ("one candidate", "several chunks"):
        problem = of_alike_layers(space, zero, micro_batches)
        best = solve(problem, runner_up=False).solution
        if best is None:
            continue
        fullest = max(evaluate(problem, best).stages, key=lambda each: each.memory)
        single = fullest.state + sum(problem.candidates[0].mode("none").first) / 3 + problem.cluster.reserve
        for memory, found in ((fullest.memory, 1), (single, 1), (single * 0.98, 0)):
            tight = evolve(problem, cluster=evolve(problem.cluster, memory=memory))
            tables = ScreenTables(tight, FirstBounds(tight))
            left = configurations(tight, LAYERS, Splits(tight).counts, tables=tables)[0]
            assert len(left) == found


def test_layers_of_small_peaks_fill_stages_that_hold_more() -> None:
    """Of three stages, each with two chunks, one has a peak, and the others hold as much more."""
    problem = of_alike_layers("several chunks", 0, 6, 1)
    (used,) = problem.candidates
    none = used.mode("none")
    first, peak = none.first.copy(), none.peak.copy()
    first[[0, 2]], peak[1] = first[0] + 50.0, 50.0
    mode = evolve(none, first=first, peak=peak)
    roomy = evolve(problem, candidates=(evolve(used, recompute=(mode,)),))
    best = solve(roomy, runner_up=False).solution
    assert best is not None
    memory = max(stage.memory for stage in evaluate(roomy, best).stages)
    tight = evolve(roomy, cluster=evolve(roomy.cluster, memory=memory))
    assert seconds(tight) == seconds(roomy)


def test_bounds_know_that_each_stage_chooses_whether_to_shard() -> None:
    """Two stages reduce no longer sharded than the third does, which has far more weights than gradients, unsharded."""
    problem = of_alike_layers("one candidate", 0, 1)
    (used,) = problem.candidates
    weights, gradients = [3.0] * 4 + [20.0] * 2, [5.0] * 4 + [4.0] * 2
    state = (evolve(used.state[0], weights=weights, gradients=gradients),)
    space = evolve(problem.space, zero=(0, 1))
    problem = evolve(problem, candidates=(evolve(used, state=state),), space=space)
    found = FirstBounds(problem).of_configuration(the_configuration(problem))
    assert seconds(problem) * 0.9 < found <= seconds(problem) * (1 + 1e-9)


@pytest.mark.parametrize("weights", [(3.0, 0.5, 2.0, 1.0), (3.0, 2.0, 0.5, 1.0)])
def test_bounds_weigh_what_is_sent_as_the_passes_that_wait(weights: tuple[float, ...]) -> None:
    """With ZeRO 3 forward passes wait for weights, and gradients of inputs for weights and gradients."""
    problem = of_alike_layers("one candidate", 3, 6)
    problem = evolve(problem, space=evolve(problem.space, schedules=(Odd(weights, (1,)),)))
    found = FirstBounds(problem).of_configuration(the_configuration(problem))
    assert seconds(problem) * 0.9 < found <= seconds(problem) * (1 + 1e-9)


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_bounds_know_the_groups_that_shard(zero: int) -> None:
    """Of four replicas two shard, and what is left of gradients is reduced over the others."""
    problem = of_alike_layers("one candidate", zero, 3, 4)
    problem = evolve(problem, space=evolve(problem.space, zero_degrees=(2,)))
    configuration = the_configuration(problem)
    assert configuration.zero_degree == 2
    assert FirstBounds(problem).of_configuration(configuration) == pytest.approx(seconds(problem), rel=1e-6)


def test_the_proof_has_rooms_for_what_fills_all_devices() -> None:
    for zero, micro_batches in product((0, 1, 2), (1, 3, 6)):
        problem = of_alike_layers("one candidate", zero, micro_batches)
        best = solve(problem, runner_up=False).solution
        assert best is not None
        memory = max(stage.memory for stage in evaluate(problem, best).stages)
        tight = evolve(problem, cluster=evolve(problem.cluster, memory=memory))
        costs = LeastCostCache(tight).of(the_case(tight))
        assert costs.rooms.min() == pytest.approx(2 * costs.held[0], rel=1e-6)
        assert costs.rooms.min() >= 2 * costs.held[0] * (1 - 1e-9)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_bounds_know_that_nothing_is_recomputed_that_need_not_be(zero: int) -> None:
    problem = of_alike_layers("one candidate", zero, 6, recompute=("none", "full"))
    exactly, configuration = pytest.approx(seconds(problem), rel=1e-6), the_configuration(problem)
    assert FirstBounds(problem).of_configuration(configuration) == exactly
    search = PlainSearch(problem, [configuration], DOWNSETS)
    assert search.closer_bounds(configuration) == exactly
