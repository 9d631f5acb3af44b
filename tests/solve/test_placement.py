"""Where blocks lie: levels between slots as PROBLEM.md section 3 has them, and no placement beats the one found."""

from itertools import combinations
from math import prod

import numpy
import pytest
from attrs import evolve
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nest.instance import Candidate, Cluster, Instance, Level, RecomputeMode, StageDecision
from nest.plan.evaluate import evaluate
from nest.solve.dp import solve
from nest.solve.dp.configurations import slots
from nest.solve.dp.listing import mixed_configurations
from nest.solve.dp.mixed import MixedSearch
from nest.solve.dp.rules import Exclusions
from nest.solve.search import BestFirst
from tests.small_instances import downsets_of, instance

FANOUTS = [(4,), (2, 3), (3, 2), (5, 2), (2, 7), (3, 3), (1, 4, 2), (2, 2, 3), (4, 3), (2, 2, 7)]


@pytest.mark.parametrize("order", ["pp-inner", "dp-inner"])
@pytest.mark.parametrize("fanouts", FANOUTS)
def test_levels_between_slots(fanouts: tuple[int, ...], order: str) -> None:
    machines = Cluster(tuple(Level(f"l{i}", f, 1.0, 0.0) for i, f in enumerate(fanouts)), 1.0)
    for width in (w for w in range(1, 5) if machines.admits(w)):
        for replicas in range(1, machines.size // width + 1):
            places = slots(machines, width, replicas, order)
            size = width * (machines.size // (replicas * width))
            assert places.count == size // width
            for a, b in combinations(range(places.count), 2):
                worst = -1
                for r in range(replicas):
                    starts = [
                        r * size + s * width if order == "pp-inner" else s * width * replicas + r * width
                        for s in (a, b)
                    ]
                    devices = [d for start in starts for d in range(start, start + width)]
                    worst = max(worst, machines.level(min(devices), max(devices)))
                assert places.steps[a:b].max() == worst


def crowded(fanouts: tuple[int, ...], replicas: int, order: str, sizes: list[float]) -> Instance:
    """Layers that need a device each, in a row, with tensors of these sizes; each level has a tenth of the last one."""
    zeros = numpy.zeros(len(sizes) + 1)
    used = Candidate(
        "c", {}, 1, 1, zeros + 1, zeros + 2, (), (RecomputeMode("none", zeros, zeros, zeros, zeros),), sizes
    )
    return instance(
        [used],
        machines=Cluster(tuple(Level(f"l{i}", f, 10.0**-i, 0.0) for i, f in enumerate(fanouts)), 1.0),
        global_batch=2 * replicas,
        rank_orders=(order,),
        zero=(0,),
        constraints=[f"pp == {len(zeros)}", f"replicas == {replicas}"],
    )


@st.composite
def crowds(draw: st.DrawFn) -> tuple[tuple[int, ...], int, str, list[float]]:
    """Groups of uneven numbers of slots, more slots than stages, and tensors of which some are large."""
    fanouts = draw(st.sampled_from([(5, 2), (7, 2), (5, 2, 2), (3, 3), (3, 2, 2), (4, 3)]))
    stages = draw(st.sampled_from([2, 3, 4, 4, 4]))
    replicas = prod(fanouts) // draw(st.integers(stages + 1, 7))
    sizes = draw(st.lists(st.sampled_from([0.0, 0.01, 1.0, 3.0]), min_size=stages - 1, max_size=stages - 1))
    return fanouts, replicas, draw(st.sampled_from(["dp-inner", "dp-inner", "pp-inner"])), sizes


@given(crowds())
@settings(max_examples=12)
# Slots of two devices in groups of five, of which the third lies in both: it is left out, or its neighbours are.
@example(((5, 2), 2, "dp-inner", [3.0, 0.01, 3.0]))
@example(((5, 2), 2, "dp-inner", [1.0, 3.0, 3.0]))
def test_no_placement_is_faster(crowd: tuple[tuple[int, ...], int, str, list[float]]) -> None:
    problem = crowded(*crowd)
    found = solve(problem)
    assert found.solution is not None
    stages = found.solution.stages
    every = [
        evolve(found.solution, stages=tuple(map(_at, stages, offsets)))
        for offsets in combinations(range(problem.cluster.size // found.solution.replicas), len(stages))
    ]
    least = min(evaluate(problem, each).batch_time for each in every)
    assert found.batch_time == pytest.approx(least, rel=1e-12)
    assert _best_mixed(problem) == pytest.approx(least, rel=1e-12)


def _best_mixed(problem: Instance) -> float:
    """The step time of the best plan that the search of mixed plans finds, without one to beat."""
    found = mixed_configurations(problem, len(problem.graph.layers), 0, Exclusions())
    search = BestFirst([MixedSearch(problem, found, downsets_of(problem.graph))], started=0.0)
    search.find_best()
    assert search.best is not None
    return search.best.value


def _at(stage: StageDecision, offset: int) -> StageDecision:
    return evolve(stage, offset=offset)
