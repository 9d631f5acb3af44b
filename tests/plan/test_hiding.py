"""Data-parallel communication that hides under compute as far as that lasts: prices by hand, and what bounds them."""

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from nest.instance import Candidate, Instance, ParameterGroup, RecomputeMode, Solution, StageDecision
from nest.plan.evaluate import evaluate
from tests.plan.mixed_plans import mixed_plans
from tests.small_instances import chain, cluster, instance

Plan = tuple[Instance, Solution]


def hidden(plan: Instance, exposed: float, hiding: bool) -> Instance:
    return evolve(plan, space=evolve(plan.space, exposed=exposed, hiding=hiding))


def one_layer(compute: float, extra: float = 0.0, **space: Any) -> Instance:
    """A layer on one device, two of which reduce 200 bytes in 1.01 s and gather 400 in 2.01 s; its step takes 0.8 s."""
    modes = tuple(
        RecomputeMode(name, [seconds], [0.0], [0.0], [0.0]) for name, seconds in (("none", 0.0), ("full", extra))
    )
    dense = ParameterGroup("dense", (0,), [400.0], [200.0], [0.0], [0.8])
    candidate = Candidate("one", {"tp": 1}, 1, 1, [compute / 3], [compute * 2 / 3], (dense,), modes, [])
    return instance([candidate], graph=chain(1), machines=cluster((2,)), hiding=True, **space)


def one_stage(zero: int, recompute: str = "none") -> Solution:
    return Solution(2, "dp-inner", "1f1b", (StageDecision((0,), 0, recompute, zero, 0),))


# Communication of ZeRO 0 to 3: 0, 0, 1.01 and 5.03 s in every micro-batch, 2.02, 3.02, 2.01 and 0 s once per batch.
@pytest.mark.parametrize(
    ("zero", "compute", "exposed", "time", "sync"),
    [
        (0, 1.5, 0.0, 1.5, 0.52 + 0.8),
        (0, 3.0, 0.0, 3.0, 0.8),
        (1, 1.5, 0.0, 1.5, 1.52 + 0.4),
        (2, 1.5, 0.0, 1.5, 0.51 + 0.4),
        (2, 0.5, 0.0, 1.01, 1.51 + 0.4),
        (2, 1.5, 0.5, 1.5 + 0.505, 1.005 + 0.4),
        (3, 1.5, 0.0, 5.03, 0.4),
        (3, 6.0, 0.0, 6.0, 0.4),
        (3, 6.0, 0.1, 6.503, 0.4),
    ],
)
def test_one_stage_by_hand(zero: int, compute: float, exposed: float, time: float, sync: float) -> None:
    (stage,) = evaluate(one_layer(compute, exposed=exposed), one_stage(zero)).stages
    assert stage.time == pytest.approx(time, rel=1e-12)
    assert stage.sync == pytest.approx(sync, rel=1e-12)


def test_recomputation_hides_too() -> None:
    plan = one_layer(1.0, extra=0.5, exposed=0.0)
    plain, full = (evaluate(plan, one_stage(1, name)).stages[0] for name in ("none", "full"))
    assert full.time == pytest.approx(plain.time + 0.5, rel=1e-12)
    assert full.sync == pytest.approx(plain.sync - 0.5, rel=1e-12)


@pytest.mark.longer
@given(mixed_plans(), st.floats(0, 1))
def test_what_hides_lies_between_the_constant_share_and_nothing_hidden(plan: Plan, exposed: float) -> None:
    given_plan, solution = plan
    least, found, most = (
        evaluate(hidden(given_plan, share, hiding), solution)
        for share, hiding in ((exposed, False), (exposed, True), (1.0, False))
    )
    for low, stage, high in zip(least.stages, found.stages, most.stages, strict=True):
        assert low.sharding <= stage.sharding <= high.sharding * (1 + 1e-12)
        assert low.sync <= stage.sync <= high.sync * (1 + 1e-12)
        work = stage.compute + stage.recompute
        # No more than the compute hides, and what shows beyond the share is what did not fit.
        assert stage.sharding >= high.sharding - work - 1e-9 * high.time
        if stage.sharding > low.sharding * (1 + 1e-9):
            assert stage.sharding == pytest.approx(high.sharding - work, rel=1e-9, abs=1e-9 * high.time)


@pytest.mark.longer
@given(mixed_plans())
def test_nothing_hides_where_all_shows(plan: Plan) -> None:
    given_plan, solution = plan
    found, plain = (evaluate(hidden(given_plan, 1.0, hiding), solution) for hiding in (True, False))
    assert found.batch_time == pytest.approx(plain.batch_time, rel=1e-12)
