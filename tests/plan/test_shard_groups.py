"""ZeRO over shard groups smaller than all ranks: prices by hand, what all ranks have in common with them, the rules."""

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from nest.instance import Candidate, Instance, ParameterGroup, RecomputeMode, Solution, StageDecision
from nest.plan.check import check
from nest.plan.document import document, solution_of
from nest.plan.evaluate import evaluate
from nest.plan.legality import permission_violations, structure_violations
from nest.spec.constraints import parse
from tests.plan.mixed_plans import mixed_plans
from tests.small_instances import chain, cluster, instance


def one_layer(fanouts: tuple[int, int], **space: Any) -> Instance:
    """A layer that computes for 3 s on one device; levels of 100 and 10 B/s, 0.01 and 0.02 s."""
    none = RecomputeMode("none", [0.0], [0.0], [0.0], [0.0])
    dense = ParameterGroup("dense", (0,), [40.0], [20.0], [120.0], [0.8])
    candidate = Candidate("one", {"tp": 1}, 1, 1, [1.0], [2.0], (dense,), (none,), [])
    return instance([candidate], graph=chain(1), machines=cluster(fanouts), global_batch=24, **space)


def one_stage(zero: int, replicas: int, zero_degree: int | None) -> Solution:
    stage = StageDecision((0,), 0, "none", zero, 0)
    return Solution(replicas, "dp-inner", "1f1b", (stage,), zero_degree=zero_degree)


# Pairs in groups of two scatter 20 bytes in 0.01 + 20/2/100 = 0.11 s and gather 40 in 0.21 s. Their halves are
# summed over four groups of two in 2 * (3 * 0.02 + 3/4 * 10/10) = 1.62 s. All eight scatter in 0.11 + 0.06 + 0.75 s.
@pytest.mark.parametrize(
    ("zero", "time", "sync", "memory"),
    [
        (0, 3.0, 2 * 0.92 + 0.8, 40 + 20 + 120),
        (1, 3.0, 0.11 + 1.62 + 0.21 + 0.4, 40 + 20 + 60),
        (2, 3.11, 1.62 + 0.21 + 0.4, 40 + 10 + 60),
        (3, 3 + 0.11 + 2 * 0.21, 1.62 + 0.4, 20 + 10 + 60),
    ],
)
def test_pairs_of_eight_replicas_by_hand(zero: int, time: float, sync: float, memory: float) -> None:
    (stage,) = evaluate(one_layer((2, 4)), one_stage(zero, 8, 2)).stages
    assert stage.time == pytest.approx(time, rel=1e-12)
    assert stage.sync == pytest.approx(sync, rel=1e-12)
    assert stage.memory == pytest.approx(memory, rel=1e-12)


def test_the_slowest_shard_group_counts() -> None:
    """Of pairs on groups of three, the middle one lies across; 0.01 + 20/2/100 inside, 0.02 + 20/2/10 across."""
    (stage,) = evaluate(one_layer((3, 2)), one_stage(2, 6, 2)).stages
    assert stage.sharding == pytest.approx(1.02, rel=1e-12)


def test_a_shard_group_of_one_sums_gradients_as_without_zero() -> None:
    (stage,) = evaluate(one_layer((2, 4)), one_stage(3, 8, 1)).stages
    (plain,) = evaluate(one_layer((2, 4)), one_stage(0, 8, None)).stages
    assert stage.sync == pytest.approx(plain.sync, rel=1e-12)
    assert (stage.time, stage.memory) == (plain.time, plain.memory)


@pytest.mark.longer
@given(mixed_plans(), st.integers(0, 5))
def test_a_shard_group_of_all_ranks_changes_no_bit(drawn: tuple[Instance, Solution], more: int) -> None:
    problem, solution = drawn
    groups = [group for stage in solution.stages for group in problem.candidates[stage.candidate].state]
    most = solution.replicas * max(len(group.ranks) for group in groups)
    assert evaluate(problem, evolve(solution, zero_degree=most + more)) == evaluate(problem, solution)


def test_shard_groups_must_be_even() -> None:
    problem = one_layer((2, 4))
    assert structure_violations(problem, one_stage(1, 8, 4)) == []
    assert structure_violations(problem, one_stage(1, 8, 9)) == []
    (told,) = structure_violations(problem, one_stage(1, 8, 3))
    assert "the 8 ranks" in told
    assert "shard groups of 3" in told
    with pytest.raises(ValueError, match="shard groups of 3"):
        evaluate(problem, one_stage(1, 8, 3))


def test_shard_groups_must_be_allowed() -> None:
    problem = one_layer((2, 4), zero_degrees=(None, 2))
    assert permission_violations(problem, one_stage(1, 8, None)) == []
    assert permission_violations(problem, one_stage(1, 8, 2)) == []
    (told,) = permission_violations(problem, one_stage(1, 8, 4))
    assert "shard groups of 4" in told
    (told,) = permission_violations(
        evolve(problem, space=evolve(problem.space, zero_degrees=(2,))), one_stage(1, 8, None)
    )
    assert "all ranks" in told


@pytest.mark.parametrize(("zero_degree", "holds"), [(None, False), (2, True), (16, False)])
def test_all_ranks_count_as_the_data_parallel_ones_in_constraints(zero_degree: int | None, holds: bool) -> None:
    problem = one_layer((2, 4), zero_degrees=(None, 2, 16), constraints=["zero_degree < 8"])
    assert (permission_violations(problem, one_stage(1, 8, zero_degree)) == []) is holds
    exactly = evolve(problem, space=evolve(problem.space, constraints=(parse("zero_degree == dp"),)))
    assert (permission_violations(exactly, one_stage(1, 8, zero_degree)) == []) is (zero_degree is None)


def test_documents_say_the_shard_groups_and_checks_read_them() -> None:
    problem = one_layer((2, 4), zero_degrees=(None, 2))
    solution = one_stage(3, 8, 2)
    written = document(problem, solution, evaluate(problem, solution), status="feasible", lower_bound=None, problem={})
    assert written.to_dict()["zero_degree"] == 2
    assert solution_of(problem, written) == solution
    assert check(problem, written).ok
    report = check(problem, evolve(written, zero_degree=None))
    assert any("sync_time" in told for told in report.disagreements)
    assert "shard groups of 3" in check(problem, evolve(written, zero_degree=3)).disagreements[0]
    assert "zero_degree is 0" in check(problem, evolve(written, zero_degree=0)).disagreements[0]
