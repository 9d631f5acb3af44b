"""Plans on pools that are decided: in which pool each stage lies, as somebody says or one pool after the other."""

from typing import Any

import pytest

import nest
from frameworks_tests.test_pools import problem as of_model
from nest.errors import InputError
from tests.oracle.pools import price
from tests.pooled_problems import plan as oracle_plan
from tests.pooled_problems import two_pools


def problem(**fixed: Any) -> dict[str, Any]:
    return {**of_model(fixed=fixed, search={"target": "none"}), "constraints": []}


def test_stages_fill_the_pools_in_their_order() -> None:
    plan = nest.evaluate(problem(tp=2, pp=5, replicas=1))
    assert [(stage.pool, stage.devices) for stage in plan.stages] == [
        ("new", (0, 2)),
        ("new", (2, 2)),
        ("old", (0, 2)),
        ("old", (2, 2)),
        ("old", (4, 2)),
    ]
    assert nest.check(plan).ok


def test_there_are_as_many_replicas_as_the_pools_hold() -> None:
    plan = nest.evaluate(problem(tp=2, pp=3))
    assert (plan.data_parallel, [stage.pool for stage in plan.stages]) == (2, ["new", "old", "old"])
    back = nest.evaluate(problem(tp=2, pp=3, pools=["old", "new", "old"]))
    assert (back.data_parallel, [stage.pool for stage in back.stages]) == (2, ["old", "new", "old"])
    assert [stage.devices for stage in back.stages] == [(0, 2), (0, 2), (4, 2)] or back.rank_order == "dp-inner"
    assert nest.check(back).ok


def test_measured_layers_take_a_candidate_of_each_pool() -> None:
    fixed = {
        "tp": 1,
        "stages": [["layer0", "layer1"], ["layer2"], ["layer3", "layer4"]],
        "pools": ["slow", "fast", "slow"],
    }
    asked = two_pools(fixed={**fixed, "replicas": 1, "rank_order": "pp-inner"})
    found = nest.evaluate(asked)
    expected = price(two_pools(), oracle_plan([([0, 1], "slow1", 0), ([2], "fast1", 0), ([3, 4], "slow1", 1)]))
    assert found.batch_time == pytest.approx(expected["batch_time"], rel=1e-9)


@pytest.mark.parametrize(
    ("fixed", "sentence"),
    [
        ({"pools": ["odl"]}, r"fixed\.pools\[0\] is 'odl', but no pool has this name; it is one of new, old"),
        ({"pp": 3, "pools": ["old", "new"]}, r"fixed\.pools has 2 pools for 3 stages"),
        ({"tp": 2, "pp": 7}, "7 stages, but the pools have no room"),
        ({"tp": 2, "pp": 4, "replicas": 2}, "4 stages in 2 replicas, but the pools have room for 3"),
        ({"tp": 8, "pools": ["new"]}, r"pool 'new' can run none of the decisions"),
    ],
)
def test_what_cannot_be_is_told(fixed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        nest.evaluate(problem(**fixed))


def test_a_search_decides_the_pools_of_stages_itself() -> None:
    with pytest.raises(InputError, match=r"fixed\.pools: `nest solve` chooses the pools"):
        nest.solve(problem(pp=2, pools=["old", "new"]))
    plain = {
        **problem(pp=2, pools=["old", "new"]),
        "cluster": {"device": "h100-sxm", "levels": [{"fanout": 4, "bandwidth": 1e11}]},
    }
    with pytest.raises(InputError, match="the cluster has no pools"):
        nest.evaluate(plain)
