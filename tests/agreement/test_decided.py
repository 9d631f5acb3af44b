"""A plan that is decided and that a search might have found is never faster than what the search proves."""

import random as random_numbers
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nest
from nest.spec import PlanDocument
from tests.agreement.decided import Tally, examine, fault
from tests.seeds import seeds

STATED = ("search.target: ", "chunks is N, but of N blocks the search tries ")
"""How reasons begin for which no search tries a plan: its target cannot run it, or chunks of so many do not come out
even."""


EXPERTS = {"experts": 8, "top_k": 2, "moe_ffn": 1024}


@pytest.mark.longer
@settings(max_examples=3)
@given(st.randoms(use_true_random=False))
def test_no_plan_that_is_decided_is_faster_than_what_the_search_proves(random: random_numbers.Random) -> None:
    tally = Tally()
    examine(random, tally, plans=6)
    assert not tally.wrong


@pytest.mark.longer
@pytest.mark.parametrize("first", seeds(1, 12))
def test_few_plans_are_outside_what_is_searched_and_each_says_why(first: int) -> None:
    """Blocks of problems: the first in the default run, with fewer plans of each."""
    tally, number = Tally(), 1 if first == 0 else 20
    for seed in range(20 * first, 20 * first + number):
        examine(random_numbers.Random(seed), tally)
    assert not tally.wrong
    assert tally.counts["compared"] > tally.counts["outside"]
    assert all(each.startswith(STATED) for each in tally.reasons), tally.reasons


@pytest.mark.longer
@pytest.mark.parametrize(("target", "model"), [("torchtitan", {}), ("pytorch", {}), ("torchtitan", EXPERTS)])
@pytest.mark.parametrize("listed", [["all", 16], ["all", 4]])
def test_shard_groups_beside_all_ranks_make_no_plan_slower(
    target: str, model: dict[str, Any], listed: list[int | str]
) -> None:
    """All ranks hold the same parameters as those of context parallelism, which constraints do not count."""
    asked: dict[str, Any] = {
        "nest": 1,
        "model": {"transformer": {"layers": 4, "hidden": 1024, "ffn": 4096, "heads": 8, "vocab": 32000, **model}},
        "training": {"global_batch": 4, "sequence_length": 4096, "micro_batch": 1, "stack": "fsdp"},
        "cluster": {"device": "h100-sxm", "levels": [{"fanout": 8, "bandwidth": "100 GB/s"}]},
        "strategies": {"cp": [4], "tp": [1], **({"ep": [8]} if model else {})},
        "search": {"target": target, "zero": [2, 3], "within": 0, "zero_degree": ["all"]},
    }
    longer = {**asked, "search": {**asked["search"], "zero_degree": listed}}
    every, more = nest.solve(asked), nest.solve(longer)
    assert every.batch_time is not None
    assert more.batch_time is not None
    assert more.batch_time <= every.batch_time * (1 + 1e-9)


def test_what_is_faster_is_told() -> None:
    class Plan:
        def __init__(self, seconds: float | None) -> None:
            self.batch_time = self.lower_bound = seconds

    def told(best: float | None, plan: float) -> str | None:
        return fault(cast("PlanDocument", Plan(best)), cast("PlanDocument", Plan(plan)))

    assert told(2.0, 1.0)
    assert told(None, 1.0)
    assert not told(1.0, 2.0)
    assert not told(1.0, 1.0)
