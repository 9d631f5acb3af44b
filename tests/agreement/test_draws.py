"""The draws are telling: most have a plan, many are just tight, gaps pay in some, and numbers reach where few look."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from tests.agreement.candidates import BYTES, TIMES, records
from tests.agreement.compare import as_json, left_open, solved
from tests.agreement.corners import DECADES, USUAL, push
from tests.agreement.draws import SHARES, Draw, draw
from tests.agreement.problems import random_problem
from tests.oracle.brute_force import FITS, solve
from tests.oracle.network import Network
from tests.oracle.price import price


def leaves_a_gap(drawn: Draw) -> bool:
    """Whether the best plan leaves devices out between two stages."""
    widths = {candidate["name"]: candidate["width"] for candidate in drawn.problem["profile"]["candidates"]}
    stages = drawn.answer.plan["stages"] if drawn.answer.plan else []
    return any(two["offset"] - one["offset"] > widths[one["candidate"]] for one, two in pairwise(stages))


def is_tight(drawn: Draw) -> bool:
    """Whether the best plan needs what there is up to rounding."""
    needed = max(stage["memory"] for stage in price(drawn.problem, drawn.answer.plan)["stages"])
    return needed * FITS >= drawn.problem["cluster"]["memory"] * (1 - 1e-11)


@pytest.mark.longer
def test_few_plans_are_left_open_where_they_are_replayed():
    """Of plans that are replayed, all but one in twenty are the best of all."""
    replayed = left = 0
    for seed in range(120):
        drawn = draw(seed)
        if drawn.limits is None and drawn.problem["training"].get("price") == "replay" and drawn.answer.plan:
            replayed += 1
            left += left_open(drawn.problem, as_json(solved(drawn.problem).to_dict()), drawn.answer)
    assert replayed > 20
    assert left <= replayed / 20


def test_the_same_seed_gives_the_same_draw():
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


@pytest.mark.longer
def test_gaps_pay_where_groups_are_uneven():
    drawn = [draw(seed, "uneven") for seed in range(100)]
    assert sum(map(leaves_a_gap, drawn)) >= 8
    sizes = [Network(each.problem["cluster"]).size for each in drawn]
    assert sum(size & (size - 1) > 0 for size in sizes) > len(drawn) / 2


@pytest.mark.longer
def test_corners_reach_many_decades_huge_numbers_and_layers_that_lack_something():
    found: Counter[str] = Counter()
    for seed in range(120):
        random = Random(seed)
        problem = random_problem(random, "plain")
        corners = push(random, problem)
        found.update(corners)
        rows = [
            record[key]
            for candidate in problem["profile"]["candidates"]
            for record in records(candidate).values()
            for key in (TIMES | BYTES) & set(record)
        ]
        found["null"] += any(value is None for row in rows for value in row)
        rows = [[value for value in row if value] for row in rows]
        spread = max(max(row) / min(row) for row in rows if row)
        found["15 decades"] += "decades" in corners and spread >= 10.0 ** (DECADES - 1)
        found["1e26"] += any(value >= 1e26 for row in rows for value in row)
        assert all(value == 0 or 1e-30 <= value <= 1e30 for row in rows for value in row)
    assert min(found[name] for name in (*USUAL, "null", "15 decades", "1e26")) >= 5


@pytest.mark.slow
def test_most_draws_have_a_plan_and_some_only_just():
    drawn = [draw(seed) for seed in range(400)]
    plans = [each for each in drawn if each.answer.plan is not None]
    assert 0.8 < len(plans) / len(drawn) < 0.97
    assert sum(map(is_tight, plans)) > len(plans) / 5
    assert sum(len(each.answer.plan["stages"]) > 1 for each in plans) > len(plans) / 2
    assert sum(bool(each.answer.reachable_memory) for each in drawn) > len(drawn) / 40
    assert {each.kind for each in drawn} == set(SHARES)


@pytest.mark.slow
def test_tight_memory_decides():
    """Among the tight problems there are some whose best plan would be lost with a millionth less."""
    lost = 0
    for seed in range(200):
        drawn = draw(seed, "plain")
        if drawn.answer.plan is not None and is_tight(drawn):
            cluster = drawn.problem["cluster"]
            less = solve({**drawn.problem, "cluster": {**cluster, "memory": cluster["memory"] * (1 - 1e-6)}})
            lost += less.batch_time is None or less.batch_time > drawn.answer.batch_time * (1 + 1e-9)
    assert lost >= 20
