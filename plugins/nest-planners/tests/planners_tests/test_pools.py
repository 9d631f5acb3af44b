"""Rules for several kinds of device: their plans hold, are no faster than the best, and are what the rules say."""

from random import Random
from typing import Any

import pytest

import nest
from nest.testing import check_planner
from nest_planners.pools import Proportional, SlowestDevice
from tests.agreement.random_pools import random_pool_problem
from tests.pooled_problems import candidate, two_pools
from tests.seeds import seeds


def compared(problem: dict[str, Any], **options: Any) -> dict[str, Any]:
    found = nest.compare(problem, **options)
    for each in found.others:
        assert each.plan is None or nest.check(each.plan).ok, each.name
        assert each.plan is not None or each.reasons, each.name
    return {each.name: each for each in found.others}


@pytest.mark.longer
@pytest.mark.parametrize("planner", [SlowestDevice(), Proportional()])
def test_they_keep_to_what_planners_promise(planner: Any) -> None:
    assert [each for each in check_planner(planner) if not each.passed] == []


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(4, 60))
def test_no_plan_is_faster_than_ours(seed: int) -> None:
    problem = random_pool_problem(Random(seed))
    names = {each["pool"] for each in problem["profile"]["candidates"]}
    assert set(compared(problem)) == {*(f"{name} alone" for name in names), "slowest-device", "proportional"}


@pytest.mark.longer
def test_a_pool_alone_is_the_problem_without_the_others() -> None:
    problem = two_pools()
    alone = compared(problem)["slow alone"]
    del problem["cluster"]["pools"][0], problem["cluster"]["between"]
    problem["profile"]["candidates"] = problem["profile"]["candidates"][2:]
    assert alone.batch_time == pytest.approx(nest.solve(problem).batch_time)


@pytest.mark.longer
def test_layers_are_in_proportion_to_the_speed_of_devices() -> None:
    """Devices of 3 and 1 times a speed, one stage each: 9 of 12 equal layers on the fast one."""
    problem = two_pools()
    for pool in problem["cluster"]["pools"]:
        pool["memory"], pool["levels"] = 1e6, pool["levels"][:1]
        pool["levels"][0]["fanout"] = 1
    seconds = [1.0] * 12
    profile = problem["profile"]
    profile["layers"] = [f"layer{index}" for index in range(12)]
    profile["edges"] = [[index, index + 1] for index in range(11)]
    profile["candidates"] = [candidate("fast1", "fast", 1, seconds), candidate("slow1", "slow", 1, [3.0] * 12)]
    decided = compared(problem)["proportional"].plan
    layers = {stage.pool: len(stage.layers) for stage in decided.stages}
    assert layers == {"fast": 9, "slow": 3}


@pytest.mark.longer
def test_planners_of_one_kind_of_device_say_so() -> None:
    found = compared(two_pools(), planners=["manual"])
    assert found["manual"].reasons == ("It supports one device type only.",)
    assert list(found) == ["manual"]
