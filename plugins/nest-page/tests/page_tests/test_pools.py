"""The page of a plan on pools: a map of each pool, and the pool of every stage."""

import re

import pytest

import nest
from tests.pooled_problems import two_pools


@pytest.mark.longer
def test_each_pool_has_a_map_and_every_stage_its_pool() -> None:
    plan = nest.solve(two_pools(search={"zero": [0], "rank_order": ["pp-inner"]}))
    page = nest.report_page(plan, without=["alternatives"])
    for pool, size in (("fast", 4), ("slow", 6)):
        assert f"Stages on the cluster: pool {pool}" in page
        assert f"The {size} devices of pool {pool} by stage" in page
    assert "bandwidth between slow and fast" in page
    assert "on 4 fast and 6 slow" in page
    assert "fast: 2 groups of 2 devices, and slow: 3 groups of 2 devices" in page
    stages = page[page.index("Decisions and figures of every stage") :]
    assert re.search(r">pool<", stages)
    used = {stage.pool for stage in plan.stages}
    assert used == {"fast", "slow"}
    assert all(re.search(rf">{pool}<", stages) for pool in used)
