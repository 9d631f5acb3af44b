"""The planner's first plan against the oracle's simplest plan on random problems."""

from collections import Counter

import pytest

from tests.agreement import simplest
from tests.agreement.simplest import KINDS, Case, case, disagreements, examine
from tests.oracle.document import document_of
from tests.seeds import blocks

FIRST = 4
"""Problems of each kind in the default run, beside those that tell."""
TELLING = {
    "schedules": (4, 8, 21, 25),
    "mixed schedules": (6, 15, 21),
    "plain": (4, 14, 17, 20, 23, 24),
    "mixed": (7, 8, 11, 15, 18),
    "chunked": (4, 5, 6, 8, 12),
    "uneven": (5, 11, 17, 18),
    "sharded": (9, 17, 18, 24),
    "sharded mixed": (11, 21, 22),
    "pools": (11, 16, 17, 20, 21),
}
"""Further ones, in which the simplest plan is another than the fastest."""
SIMPLER = ("answer: a slower plan, which is simpler", "answer: a simpler plan, as fast")


def agree(seeds, kind: str | None = None) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        counts, wrong = examine(seed, kind)
        assert not wrong, wrong[0]
        seen += counts
    return seen


def answered(asked: Case, plan: dict, **changes) -> dict:
    """The document of a plan as it should be, but for the changes."""
    document, least = document_of(asked.problem, plan), asked.drawn.answer.batch_time
    near = document["batch_time"] > least * (1 + 1e-9)
    fastest = {"batch_time": least, "slower_by": least / document["batch_time"] - 1}
    said = {"status": "near-optimal" if near else "optimal", "fastest": fastest if near else None}
    return {**document, "lower_bound": least, **said, **changes}


SLOWER = 17
"""A plain problem whose simplest plan is slower than the fastest."""


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, None),
        ({"status": "optimal", "fastest": None}, "status is optimal, but should be near-optimal"),
        ({"status": "infeasible"}, "status is infeasible, but there is a plan"),
        ({"lower_bound": 0.0}, "lower_bound is 0.0"),
        ({"fastest": None}, "does not say which is the fastest"),
        ({"fastest": {"batch_time": 0.0, "slower_by": -1.0}}, "fastest takes 0.0"),
        ({"fastest": {"batch_time": None, "slower_by": 0.0}}, "fastest is said to be 0.0 slower"),
        ({"data_parallel": 1, "batch_time": 1e9}, "batch_time is 1000000000.0, more than"),
    ],
)
def test_a_wrong_answer_is_told(changes, told, monkeypatch):
    asked = case(SLOWER, "plain")
    document = answered(asked, asked.expected.plan, **changes)
    if changes.get("fastest") and document["fastest"]["batch_time"] is None:
        document["fastest"]["batch_time"] = asked.drawn.answer.batch_time
    if changes.get("status") == "infeasible":
        document |= {"batch_time": None}
    monkeypatch.setattr(simplest, "document_of", lambda problem: document)
    wrong = disagreements(asked, checked=False)
    assert wrong == [] if told is None else any(told in line for line in wrong)


def test_a_plan_that_is_not_the_simplest_is_told(monkeypatch):
    asked = case(SLOWER, "plain")
    document = answered(asked, asked.drawn.answer.plan)
    monkeypatch.setattr(simplest, "document_of", lambda problem: document)
    assert any("the key is" in line for line in disagreements(asked, checked=False))


@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind in KINDS for seed in range(FIRST)])
def test_the_first_plan_is_the_simplest_within_a_share(kind, seed):
    agree([seed], kind)


@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind, seeds in TELLING.items() for seed in seeds])
def test_the_first_plan_is_a_simpler_one_than_the_fastest(kind, seed):
    seen = agree([seed], kind)
    assert any(seen[name] for name in SIMPLER)


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks(1000, 4000))
def test_the_first_plan_of_many_problems_is_the_simplest_within_a_share(block):
    seen = agree(block)
    assert seen[SIMPLER[0]] > 1
