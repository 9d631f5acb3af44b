"""What stages of several chunks cost and hold, against the pricing of plans (PROBLEM.md section 4)."""

from itertools import combinations

import pytest
from attrs import evolve

from nest.hooks.registry import registry
from nest.instance import ChunkedSchedule, Instance, Solution, StageDecision, chunks_of
from nest.plan.evaluate import evaluate
from nest.solve.dp import solve
from nest.solve.dp.configurations import configurations
from nest.solve.dp.interleaved import InterleavedSearch
from nest.solve.dp.virtual_stages import Splits
from nest.spec.constraints import parse
from tests.plan.mixed_plans import rich_candidate
from tests.small_instances import cluster, instance
from tests.solve.test_placement import crowded

LAYERS = 8


@pytest.fixture(scope="module")
def problem() -> Instance:
    """Two or four stages of two or four chunks, with and without stashed inputs, in every ZeRO stage."""
    interleaved = registry().schedules()["interleaved"]
    assert isinstance(interleaved, ChunkedSchedule)
    found = instance(
        [rich_candidate(LAYERS, "c", 2, (0, 1), seed=5)],
        machines=cluster((2, 3, 4)),
        blocks=tuple((layer,) for layer in range(LAYERS)),
        global_batch=24,
    )
    schedules = tuple(interleaved.with_chunks(chunks) for chunks in (2, 4))
    return evolve(found, space=evolve(found.space, schedules=schedules))


def test_stages_of_several_chunks_cost_and_hold_what_their_plan_does(problem: Instance) -> None:
    splits = Splits(problem)
    found, _ = configurations(problem, LAYERS, splits.counts)
    search = InterleavedSearch(problem, found, splits)
    compared = 0
    for configuration in found:
        for count in configuration.stage_counts:
            stages = search._stages(configuration, count)
            split = search._split(configuration, count)
            for row, choice in enumerate(stages.choices):
                decided = tuple(
                    StageDecision(split.stage(index), 0, choice.recompute, choice.zero, 2 * index)
                    for index in range(count)
                )
                chunks = chunks_of(configuration.schedule)
                solution = Solution(configuration.replicas, configuration.rank_order, "interleaved", decided, chunks)
                priced = evaluate(problem, solution).stages
                alone = [each.time - each.arriving - each.returning for each in priced]
                assert stages.memory[row].tolist() == pytest.approx([each.memory for each in priced], rel=1e-12)
                assert stages.time[row].tolist() == pytest.approx(alone, rel=1e-12)
                assert stages.sync[row].tolist() == pytest.approx([each.sync for each in priced], rel=1e-12)
                compared += count
    assert compared > 100


@pytest.mark.parametrize(("stages", "chunks"), [(2, 2), (2, 4), (4, 2)])
def test_layers_may_share_a_stage_in_chunks_of_their_own(stages: int, chunks: int, problem: Instance) -> None:
    homes = [layer * stages * chunks // LAYERS % stages for layer in range(LAYERS)]
    for one, other in combinations(range(LAYERS), 2):
        space = evolve(problem.space, constraints=(parse(f'same_stage("l{one}", "l{other}")'),))
        split = Splits(evolve(problem, space=space)).of(stages, chunks)
        assert (split is not None) == (homes[one] == homes[other])


@pytest.mark.parametrize("fanouts", [(5, 2), (4, 3)])
@pytest.mark.parametrize("sizes", [[0.1, 0.3, 0.1, 0.01, 0.3], [0.1, 0.1, 0.1, 0.01, 0.1], [1.0] * 5])
@pytest.mark.parametrize("order", ["pp-inner", "dp-inner"])
def test_no_placement_of_chunks_is_faster(fanouts: tuple[int, ...], sizes: list[float], order: str) -> None:
    """Three stages of two chunks on slots of two or three devices, which groups of four or five do not hold evenly."""
    crowd = crowded(fanouts, 2, order, sizes)
    space = evolve(
        crowd.space,
        global_batch=6,
        schedules=(registry().schedules()["interleaved"],),
        blocks=tuple((layer,) for layer in range(6)),
        constraints=(parse("pp == 3"), parse("replicas == 2")),
    )
    problem = evolve(crowd, space=space)
    found = solve(problem)
    assert found.solution is not None
    stages = found.solution.stages
    every = [
        evolve(
            found.solution, stages=tuple(evolve(each, offset=offset) for each, offset in zip(stages, at, strict=True))
        )
        for at in combinations(range(problem.cluster.size // 2), len(stages))
    ]
    least = min(evaluate(problem, each).batch_time for each in every)
    assert found.batch_time == pytest.approx(least, rel=1e-12)
