"""The planner against the oracle on random problems with pools, and against published optima."""

import json
from collections import Counter
from itertools import groupby

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from tests.agreement.compare import as_json, complaint, disagreements, planner
from tests.agreement.draws import draw, hangs_on_rounding
from tests.agreement.fuzz import compare
from tests.agreement.random_pools import random_pool_problem
from tests.oracle.check import check_document, same
from tests.seeds import blocks, seeds

streams = strategies.randoms(use_true_random=False)


def examine(seed: int) -> Counter[str]:
    """Compare a problem; what its best plan is like."""
    drawn = draw(seed, "pools")
    wrong = compare(drawn)
    assert not wrong or hangs_on_rounding(drawn), complaint(f"pools seed {seed}", drawn.problem, wrong)
    if drawn.answer.plan is None:
        return Counter(["no plan"])
    pools = [stage["candidate"].partition("-")[0] for stage in drawn.answer.plan["stages"]]
    returns = len(list(groupby(pools))) > len(set(pools))
    return Counter([f"{len(set(pools))} pools", *["comes back"] * returns])


@pytest.mark.longer
def test_the_planner_agrees_with_the_oracle_on_pools():
    seen: Counter[str] = Counter()
    for seed in range(10):
        seen += examine(seed)
    assert seen["2 pools"] > 1
    assert seen["1 pools"] > 1
    assert seen["no plan"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks(1000, 6000))
def test_the_planner_agrees_with_the_oracle_on_many_pools(block):
    for seed in block:
        examine(seed)


@pytest.mark.longer
@settings(derandomize=True, deadline=None, database=None, max_examples=4, suppress_health_check=list(HealthCheck))
@given(random=streams)
def test_the_planner_agrees_with_the_oracle_on_odd_pools(random):
    problem = random_pool_problem(random)
    wrong = disagreements(problem)
    assert not wrong, complaint("hypothesis", problem, wrong)


@pytest.mark.parametrize("third", seeds(1, of=3))
def test_the_planner_finds_the_published_optima_on_pools(shared, third):
    for line in (shared / "pools" / "optima.jsonl").read_text().splitlines()[(third + 1) % 3 :: 3]:
        record = json.loads(line)
        document = as_json(planner().solve(record["problem"]).to_dict())
        assert same(document["batch_time"], record["batch_time"]), record["seed"]
        assert check_document(document) == [], record["seed"]
        assert planner().check(document).ok, record["seed"]
