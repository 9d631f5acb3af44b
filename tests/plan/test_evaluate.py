"""Pricing of plans whose stages use different candidates: one computed by hand, certificates, properties."""

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given

from nest.instance import Candidate, Instance, ParameterGroup, RecomputeMode, Solution, StageDecision
from nest.plan.evaluate import evaluate
from tests.plan.mixed_plans import blocks, mixed_plans
from tests.small_instances import cluster, instance

Plan = tuple[Instance, Solution]

# Three levels, groups of 2, 4 and 28 devices; 100, 10 and 1 B/s; 0.01, 0.02 and 0.03 s.
MACHINES = cluster((2, 2, 7))


def by_hand() -> Instance:
    """Four layers in a row, held by one device or by four, of which every other holds the same parameters."""
    zeros, ones = [0.0] * 4, [1.0] * 4
    held, shared = [10.0, 20.0, 30.0, 40.0], [4.0, 8.0, 12.0, 16.0]
    one = Candidate(
        "one",
        {"tp": 1},
        1,
        1,
        [1, 2, 3, 4],
        [2, 4, 6, 8],
        (ParameterGroup("dense", (0,), held, held, [6 * size for size in held], [0.1, 0.2, 0.3, 0.4]),),
        (RecomputeMode("none", zeros, [3.0] * 4, [2.0] * 4, ones),),
        [5, 6, 7],
    )
    four = Candidate(
        "four",
        {"tp": 4},
        4,
        1,
        [0.25, 0.5, 0.75, 1],
        [0.5, 1, 1.5, 2],
        (ParameterGroup("dense", (0, 2), shared, shared, [6 * size for size in shared], [0.04, 0.08, 0.12, 0.16]),),
        (RecomputeMode("none", zeros, ones, [0.5] * 4, [0.25] * 4, stash_inputs=True),),
        [2, 3, 4],
    )
    return instance([one, four], machines=MACHINES, mixed=True)


def decided(rank_order: str) -> Solution:
    """The third layer on four devices; device 0 and device 3 of each replica idle."""
    rows = [(0, 0, 1), (0, 1, 2), (1, 3, 4), (0, 2, 8)]
    stages = (StageDecision((layer,), used, "none", zero, offset) for layer, (used, zero, offset) in enumerate(rows))
    return Solution(2, rank_order, "1f1b", tuple(stages))


# Replicas of K = 4 * floor(28 / 8) = 12 devices and M = 4; in flight 4, 3, 2, 1; A = 3, B = 1. Messages of n bytes take
# 0.02 + n/10 over level 1 and 0.03 + n over level 2. What the stages reduce over:
#   pp-inner: one {0, 12}, shape (1, 1, 2): 0.03 + n/2;  four {0, 2, 12, 14}, shape (1, 2, 2): 0.05 + n/20 + n/4
#   dp-inner: one {0, 1},  shape (2, 1, 1): 0.01 + n/200; four {0, 2, 4, 6}, shape (1, 2, 2): the same
BY_HAND: dict[str, dict[str, Any]] = {
    "pp-inner": {
        # Devices 1, 2 and 13, 14 share a group of four; were replicas 14 apart, 15 and 16 would not.
        "levels": [-1, 1, 2, 2, -1],
        "first": [1, 2, 4, 8],
        "times": [3 + 0.52, 6 + 0.52 + 6.03, 2.25 + 3.03 + 4.03 + 3 * 3.65, 12 + 7.03 + 20.03],
        "syncs": [2 * 5.03 + 0.1, 2 * 10.03 + 0.2 / 2, 0.12 / 4, 20.03 + 0.4 / 2],
        "batch": 3 * 39.06 + (3.52 + 12.55 + 20.26 + 39.06) + 20.23,
    },
    "dp-inner": {
        "levels": [-1, 2, 2, 2, -1],
        "first": [2, 4, 8, 16],
        "times": [3 + 5.03, 6 + 5.03 + 6.03, 2.25 + 3.03 + 4.03 + 3 * 3.65, 12 + 7.03 + 0.21],
        "syncs": [2 * 0.06 + 0.1, 2 * 0.11 + 0.2 / 2, 0.12 / 4, 0.21 + 0.4 / 2],
        "batch": 3 * 20.26 + (8.03 + 17.06 + 20.26 + 19.24) + 0.41,
    },
}
MEMORY = [
    10 + 10 + 60 + 3 + 1 + 3 * 2,
    20 + 20 + 120 / 2 + 3 + 1 + 2 * 2,
    (12 + 12 + 72) / 4 + 1 + 0.25 + 1 * (0.5 + 3),
    40 + 40 / 2 + 240 / 2 + 3 + 1,
]


@pytest.mark.parametrize("rank_order", ["pp-inner", "dp-inner"])
def test_a_mixed_plan_costs_what_section_4_gives_by_hand(rank_order: str) -> None:
    expected = BY_HAND[rank_order]
    priced = evaluate(by_hand(), decided(rank_order))
    assert priced.micro_batches == 4
    assert [stage.in_flight for stage in priced.stages] == [4, 3, 2, 1]
    assert [stage.level_in for stage in priced.stages] == expected["levels"][:-1]
    assert [stage.level_out for stage in priced.stages] == expected["levels"][1:]
    assert [stage.first_device for stage in priced.stages] == expected["first"]
    assert [stage.width for stage in priced.stages] == [1, 1, 4, 1]
    assert [stage.time for stage in priced.stages] == pytest.approx(expected["times"], rel=1e-12)
    assert [stage.sync for stage in priced.stages] == pytest.approx(expected["syncs"], rel=1e-12)
    assert [stage.memory for stage in priced.stages] == pytest.approx(MEMORY, rel=1e-12)
    assert priced.batch_time == pytest.approx(expected["batch"], rel=1e-12)


@pytest.mark.longer
@given(mixed_plans())
def test_blocks_are_apart_and_boundaries_reach_as_far_as_their_devices(plan: Plan) -> None:
    problem, solution = plan
    placed = blocks(problem, solution)
    devices = [device for stage in placed for block in stage for device in block]
    assert len(set(devices)) == len(devices)
    assert min(devices) >= 0
    assert max(devices) < problem.cluster.size
    priced = evaluate(problem, solution)
    assert [(stage.first_device, stage.width) for stage in priced.stages] == [
        (stage[0].start, len(stage[0])) for stage in placed
    ]
    reach = [
        max(
            problem.cluster.level(min(*here, *there), max(*here, *there))
            for here, there in zip(placed[index], placed[index + 1], strict=True)
        )
        for index in range(len(placed) - 1)
    ]
    assert [stage.level_out for stage in priced.stages] == [*reach, -1]
    assert [stage.level_in for stage in priced.stages] == [-1, *reach]


def test_stages_with_different_samples_have_no_price() -> None:
    problem = by_hand()
    one, four = problem.candidates
    with pytest.raises(ValueError, match="different sizes"):
        evaluate(evolve(problem, candidates=(one, evolve(four, samples=2))), decided("dp-inner"))


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("hides", [(), ("1f1b",)])
def test_activations_arrive_for_forward_passes_and_gradients_for_backward_ones(
    direct: bool, hides: tuple[str, ...]
) -> None:
    """Of four stages of one layer each, over boundaries of 0.02 + n/10 seconds or less."""
    problem = by_hand()
    problem = evolve(problem, space=evolve(problem.space, direct=direct, hidden_messages=hides))
    rows = zip(range(4), (0, 1, 2, 3), strict=True)
    stages = tuple(StageDecision((layer,), 0, "none", 0, offset) for layer, offset in rows)
    # Levels 0, 1 and 0: 0.01 + 5/100, 0.02 + 6/10, 0.01 + 7/100.
    over = [0.0, 0.06, 0.62, 0.08, 0.0]
    priced = evaluate(problem, Solution(1, "pp-inner", "1f1b", stages))
    for index, stage in enumerate(priced.stages):
        (found,), arriving, returning = stage.passes, over[index], over[index + 1]
        beside, forward = (1.0 if hides else 0.0), float(index + 1)
        assert (stage.arriving, stage.returning) == pytest.approx((arriving, returning))
        assert (found.arriving, found.returning) == pytest.approx((beside * arriving, beside * returning))
        assert found.forward == pytest.approx(forward + (1 - beside) * arriving)
        assert found.backward == pytest.approx(2 * forward + (1 - beside) * returning)
