"""The draws are telling: most have a plan, many are just tight, gaps pay in some, and numbers reach where few look."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from tests.agreement.candidates import BYTES, TIMES, records
from tests.agreement.compare import as_json, left_open, solved
from tests.agreement.corners import DECADES, USUAL, push
from tests.agreement.draws import Draw, draw
from tests.agreement.problems import random_problem
from tests.oracle.network import Network


def leaves_a_gap(drawn: Draw) -> bool:
    """Whether the best plan leaves devices out between two stages."""
    widths = {candidate["name"]: candidate["width"] for candidate in drawn.problem["profile"]["candidates"]}
    stages = drawn.answer.plan["stages"] if drawn.answer.plan else []
    return any(two["offset"] - one["offset"] > widths[one["candidate"]] for one, two in pairwise(stages))


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
