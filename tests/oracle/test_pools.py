"""The oracle on pools against the optima of an independent brute force, and against every plan of a small problem."""

import json

import pytest

from tests.oracle.check import same
from tests.oracle.pools import price, solve, violations
from tests.oracle.test_optima import explicit
from tests.pooled_problems import plan, two_pools


def published(record: dict) -> dict:
    """A published plan in the oracle's form."""
    decided = explicit({**record, "plan": {**record["plan"], "candidate": None}})
    for stage, pool in zip(decided["stages"], record["plan"]["pools"], strict=True):
        stage["candidate"] = record["plan"]["candidates"][pool]
    return decided


def test_the_oracle_finds_every_published_optimum_on_pools(shared):
    records = [json.loads(line) for line in (shared / "pools" / "optima.jsonl").read_text().splitlines()]
    assert len(records) >= 41
    for record in records:
        assert same(solve(record["problem"]).batch_time, record["batch_time"]), record["seed"]
        if record["plan"] is not None:
            numbers = price(record["problem"], published(record))
            assert numbers["fits"], record["seed"]
            assert same(numbers["batch_time"], record["batch_time"]), record["seed"]
            assert violations(record["problem"], published(record)) == [], record["seed"]


def test_a_solved_plan_is_priced_as_it_was_found():
    answer = solve(two_pools())
    assert violations(two_pools(), answer.plan) == []
    assert same(price(two_pools(), answer.plan)["batch_time"], answer.batch_time)


def test_a_message_between_pools_goes_over_the_link_that_joins_them():
    numbers = price(two_pools(), plan([([0, 1, 2], "fast1", 0), ([3, 4], "slow1", 0)]))
    front, behind = numbers["stages"]
    assert same(front["time"], 3 * 2.2 + 0.05 + 5 / 10)
    assert same(behind["time"], 1.7 * 3 * 1.8 + 0.05 + 5 / 10)
    assert (front["level_in"], front["level_out"], behind["level_in"], behind["level_out"]) == (-1, 2, 2, -1)


@pytest.mark.parametrize(
    ("stages", "rule"),
    [
        ([([0, 1], "fast1", 0), ([2, 3, 4], "fast2", 2)], "candidates of a pool are one"),
        ([([0, 1], "fast1", 1), ([2], "slow1", 0), ([3, 4], "fast1", 0)], "blocks of a pool are disjoint and in order"),
        ([([0, 1], "fast1", 4), ([2, 3, 4], "slow1", 0)], "blocks lie in the replica"),
    ],
)
def test_plans_that_are_none_break_a_rule(stages, rule):
    assert rule in violations(two_pools(), plan(stages))


def test_pools_that_nothing_joins_are_no_neighbours():
    problem = two_pools()
    del problem["cluster"]["between"]
    decided = plan([([0, 1, 2], "fast1", 0), ([3, 4], "slow1", 0)])
    assert violations(problem, decided) == ["neighbours are joined"]
    pools = {stage["candidate"][:4] for stage in solve(problem).plan["stages"]}
    assert len(pools) == 1
