"""Stages that fill a device to the last digit: all programs agree on what fits (docs/explanation/numbers.md)."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from math import inf, nextafter
from typing import Any

import pytest
from attrs import evolve

from cpsat_tests.without_bounds import leave_cases_to_models
from nest.instance import Cluster, Instance, Solution
from nest.plan.evaluate import evaluate
from nest.solve.dp import solve
from nest.solve.dp.beside_compute import FirstBounds
from nest.solve.dp.listing import configurations
from nest.solve.dp.screen import ScreenTables
from nest.solve.dp.ties import fullest as fullest_stage
from nest.solve.dp.units import Splits
from nest.solve.effort import Deadline
from nest.solve.solver import solve as solve_any
from nest.tolerances import CONTENDING_MEMORY_SLACK, MEMORY_SLACK, SEARCHED_MEMORY_SLACK
from nest_cpsat import Price, graph_search, verify
from tests.small_instances import candidate, cluster, instance
from tests.solve.alike_layers import ALIKE, of_alike_layers
from tests.solve.every_plan import Odd

LAYERS = 6
SEEDS = (11, 22, 30)
"""Draws in which search and pricing disagree, were both to allow the same: one in each kind of space."""

SPACES: dict[str, dict[str, Any]] = {
    "one candidate": {"constraints": ("pp == 3",), "machines": cluster((4,))},
    "mixed": {"constraints": ("pp == 2",), "machines": cluster((3,)), "mixed": True},
    "several chunks": {"schedules": ("interleaved",), "machines": cluster((3,)), "global_batch": 3}
    | {"blocks": tuple((layer,) for layer in range(LAYERS))},
}


@cache
def roomy(space: str, seed: int) -> Instance:
    """A problem without limits on memory, in which stages hold sums of numbers that are not whole."""
    used = [candidate(LAYERS, seed=seed), candidate(LAYERS, seed=seed, name="wide", width=2, scale=0.4)]
    settings = {"zero": (0, 1), "rank_orders": ("pp-inner",), **SPACES[space]}
    return instance(used if space == "mixed" else used[:1], **settings)


@cache
def fullest(space: str, seed: int) -> tuple[float, float]:
    """Bytes of the fullest stage of the best plan where memory is no limit, and that plan's step time."""
    problem = roomy(space, seed)
    found = solve(problem, runner_up=False)
    assert found.solution is not None
    assert found.batch_time is not None
    return max(stage.memory for stage in evaluate(problem, found.solution).stages), found.batch_time


def with_memory(problem: Instance, memory: float) -> Instance:
    """The problem whose devices have so many bytes, those of all pools."""
    pools = problem.pools
    if pools is not None:
        members = (evolve(each, cluster=_with_memory(each.cluster, memory)) for each in pools.members)
        pools = evolve(pools, members=tuple(members))
    return evolve(problem, cluster=_with_memory(problem.cluster, memory), pools=pools)


def _with_memory(machines: Cluster, memory: float) -> Cluster:
    return evolve(machines, memory=memory, device_memory=memory)


def around(value: float, steps: int = 3) -> Iterator[float]:
    """The float64 next to a number, on both sides."""
    for towards in (0.0, inf):
        at = value
        for _ in range(steps):
            yield at
            at = nextafter(at, towards)


@pytest.mark.longer
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("space", SPACES)
def test_what_fills_a_device_fits(space: str, seed: int) -> None:
    memory, best = fullest(space, seed)
    for capacity in around(memory):
        found = solve(with_memory(roomy(space, seed), capacity), runner_up=False)
        assert found.batch_time is not None
        assert found.batch_time <= best * (1 + 1e-9)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("space", SPACES)
def test_what_a_search_finds_is_never_overfull(space: str, seed: int) -> None:
    """Also where a stage is just what one of the programs still allows."""
    memory, _ = fullest(space, seed)
    for slack in (MEMORY_SLACK, SEARCHED_MEMORY_SLACK, CONTENDING_MEMORY_SLACK):
        for capacity in around(memory / (1 + slack)):
            problem = with_memory(roomy(space, seed), capacity)
            found = solve(problem, runner_up=False)
            assert found.solution is None or evaluate(problem, found.solution).fits


@pytest.mark.longer
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("excess", [0.0, 2e-13, 3e-13, 4e-13, 7e-13, 2e-12, 1e-10, 5e-10])
def test_nothing_refutes_by_what_does_not_fit(space: str, excess: float) -> None:
    memory, _ = fullest(space, 1)
    problem = with_memory(roomy(space, 1), memory / (1 + excess))

    def pricing(solution: Solution) -> Price:
        priced = evaluate(problem, solution)
        return Price(priced.batch_time, priced.exceeding(CONTENDING_MEMORY_SLACK))

    assert verify(problem, solve(problem, runner_up=False).batch_time, pricing).status == "proved"


@pytest.mark.parametrize("space", SPACES)
def test_what_is_overfull_is_not_found(space: str) -> None:
    memory, best = fullest(space, 2)
    found = solve(with_memory(roomy(space, 2), memory / (1 + 2 * MEMORY_SLACK)), runner_up=False)
    assert found.batch_time is None or found.batch_time > best * (1 + 1e-9)


def filled(problem: Instance) -> Instance:
    """The problem whose devices have just what the fullest stage of its best plan needs, and that reserve."""
    best = solve_any(problem, runner_up=False).solution
    assert best is not None
    return with_memory(problem, max(stage.memory for stage in evaluate(problem, best).stages))


@pytest.mark.parametrize("zero", [0, 2, 3])
@pytest.mark.parametrize(
    ("space", "micro_batches"), [each for each in product(ALIKE, (1, 3, 6)) if each != ("several chunks", 1)]
)
def test_what_fills_all_devices_is_found_and_proved(
    space: str, zero: int, micro_batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No screen, bound or model asks for more memory than plans do, where hardly anything is left."""
    roomy = of_alike_layers(space, zero, micro_batches)
    problem = filled(roomy)
    best = solve_any(roomy, runner_up=False).batch_time
    assert best is not None
    assert solve_any(problem, runner_up=False).batch_time == pytest.approx(best, rel=1e-9)

    def pricing(solution: Solution) -> Price:
        priced = evaluate(problem, solution)
        return Price(priced.batch_time, priced.exceeding(CONTENDING_MEMORY_SLACK))

    assert verify(problem, None, pricing).status == "refuted"
    assert verify(with_memory(roomy, problem.cluster.memory * 0.98), None, pricing).status == "proved"
    if space not in {"pools", "several chunks"}:
        found = graph_search.solve(problem, None, Deadline(None))
        assert found.batch_time == pytest.approx(best, rel=2e-6)
    leave_cases_to_models(monkeypatch)
    assert verify(problem, None, pricing).status == "refuted"


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("micro_batches", [1, 6])
def test_stages_need_what_the_problem_says(zero: int, micro_batches: int) -> None:
    """State, one micro-batch of each layer, further ones, and with ZeRO 3 what is gathered (PROBLEM.md section 4)."""
    problem = of_alike_layers("one candidate", zero, micro_batches)
    best = solve(problem, runner_up=False).solution
    assert best is not None
    state = sum(size / (2 if zero >= least else 1) for size, least in ((3, 3), (5, 2), (7, 1)))
    further = min(micro_batches, 3) - 1
    needed = 2 * (state + 11 + further * 2) + (0.5 if zero == 3 else 0.0) + problem.cluster.reserve
    assert max(stage.memory for stage in evaluate(problem, best).stages) == pytest.approx(needed)
    assert fullest_stage(problem, best) == pytest.approx(needed)


@pytest.mark.parametrize("zero", [1, 3])
@pytest.mark.parametrize("space", ALIKE)
def test_of_all_choices_those_are_found_that_alone_fit(space: str, zero: int) -> None:
    """In just the memory for stages that all recompute, with the ZeRO stage that shards most."""
    # With one micro-batch all stages hold as much.
    roomy = of_alike_layers(space, zero, 3 if space == "several chunks" else 1, recompute=("full",))
    problem = filled(roomy)
    problem = evolve(problem, space=evolve(problem.space, zero=tuple(range(zero + 1)), recompute=("none", "full")))
    best = solve_any(roomy, runner_up=False).batch_time
    assert solve_any(problem, runner_up=False).batch_time == pytest.approx(best, rel=1e-9)
    if space not in {"pools", "mixed"}:
        tables = ScreenTables(problem, FirstBounds(problem))
        counts = Splits(problem).counts
        assert configurations(problem, LAYERS, counts, limit=best * (1 + 1e-9), tables=tables)[0]

    def pricing(solution: Solution) -> Price:
        priced = evaluate(problem, solution)
        return Price(priced.batch_time, priced.exceeding(CONTENDING_MEMORY_SLACK))

    assert verify(problem, None, pricing).status == "refuted"
    assert verify(problem, best, pricing).status == "proved"


def test_chunks_that_hold_nothing_leave_room() -> None:
    """Of two chunks of a stage one holds a micro-batch, the other none at any moment."""
    roomy = of_alike_layers("several chunks", 0, 6)
    (used,) = roomy.candidates
    modes = tuple(evolve(each, more=each.first) for each in used.recompute)
    space = evolve(roomy.space, schedules=(Odd((5.0, 1.0), ((1, 0),), chunks=2),))
    roomy = evolve(roomy, space=space, candidates=(evolve(used, recompute=modes),))
    problem = filled(roomy)
    assert problem.cluster.memory == pytest.approx(2 * (3 + 5 + 7) + 11 + problem.cluster.reserve)
    tables = ScreenTables(problem, FirstBounds(problem))
    assert configurations(problem, LAYERS, Splits(problem).counts, tables=tables)[0]
    assert solve(problem, runner_up=False).batch_time == solve(roomy, runner_up=False).batch_time
