"""The planner's first plan against the oracle's simplest plan on random problems."""

import pytest

from tests.agreement import simplest
from tests.agreement.fuzz import agree
from tests.agreement.simplest import KINDS, Case, case, disagreements, examine
from tests.oracle.document import document_of
from tests.seeds import blocks, few

FIRST = 4
"""Problems of each kind in the default run, beside those that tell."""
TELLING = {
    "schedules": (4, 8, 21, 25),
    "mixed schedules": (6, 15, 21),
    "plain": (4, 14, 17, 20, 23, 24),
    "mixed": (7, 8, 11, 15, 18),
    "chunked": (4, 5, 6, 8, 12),
    "uneven": (5, 11, 17, 18),
    "sharded": (9, 17, 18),
    "sharded mixed": (11, 21, 22),
    "pools": (11, 16, 17, 20, 21),
}
"""Further ones, in which the simplest plan is another than the fastest."""
DECISIONS = ("candidate", "data_parallel", "rank_order", "schedule", "chunks", "zero_degree", "stages")
SIMPLER = ("answer: a slower plan, which is simpler", "answer: a simpler plan, as fast")


SLOWER = 17
"""A plain problem whose simplest plan is slower than the fastest, and with none that is simpler yet."""


def told_of(asked: Case, plan: dict, seconds: float) -> dict:
    """How a document that takes so long tells of another plan."""
    document = document_of(asked.problem, plan)
    return {
        "batch_time": document["batch_time"],
        "slower_by": document["batch_time"] / seconds - 1,
        "memory": max(stage["memory"] for stage in document["stages"]),
        "decisions": {name: document[name] for name in DECISIONS},
    }


def answered() -> tuple[Case, dict]:
    """A problem with the document of its first plan as it should be."""
    asked = case(SLOWER, "plain")
    document, answer = document_of(asked.problem, asked.expected.plan), asked.drawn.answer
    fastest = told_of(asked, answer.plan, document["batch_time"])
    said = {"status": "near-optimal", "lower_bound": answer.batch_time, "fastest": fastest, "simpler": None}
    return asked, {**document, **said}


def told(asked: Case, document: dict, monkeypatch) -> str:
    monkeypatch.setattr(simplest, "document_of", lambda problem: document)
    return " ".join(disagreements(asked, checked=False))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"status": "optimal", "fastest": None}, "status is optimal, but should be near-optimal"),
        ({"status": "infeasible", "batch_time": None}, "status is infeasible, but there is a plan"),
        ({"lower_bound": 0.0}, "lower_bound is 0.0"),
        ({"fastest": None}, "does not say which is the fastest"),
        ({"batch_time": 1e9}, "batch_time is 1000000000.0, more than"),
    ],
)
def test_a_wrong_answer_is_told(changes, sentence, monkeypatch):
    asked, document = answered()
    assert sentence in told(asked, {**document, **changes}, monkeypatch)


def test_a_first_plan_that_is_not_the_simplest_is_told(monkeypatch):
    asked, document = answered()
    fastest = {**document_of(asked.problem, asked.drawn.answer.plan), "status": "optimal"}
    assert "the key is" in told(asked, {**document, **fastest, "fastest": None}, monkeypatch)


def test_a_plan_that_is_told_to_be_simpler_but_is_not_is_told(monkeypatch):
    asked, document = answered()
    document["simpler"] = told_of(asked, asked.expected.plan, document["batch_time"])
    assert "simpler has the key" in told(asked, document, monkeypatch)


@pytest.mark.longer
@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind in KINDS for seed in range(FIRST)])
def test_the_first_plan_is_the_simplest_within_a_share(kind, seed):
    agree(examine, [seed], kind)


@pytest.mark.parametrize(
    ("kind", "seed"), few([(kind, seed) for kind, seeds in TELLING.items() for seed in seeds], ("pools", 17))
)
def test_the_first_plan_is_a_simpler_one_than_the_fastest(kind, seed):
    seen = agree(examine, [seed], kind)
    assert any(seen[name] for name in SIMPLER)


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks(1000, 4000))
def test_the_first_plan_of_many_problems_is_the_simplest_within_a_share(block):
    seen = agree(examine, block)
    assert seen[SIMPLER[0]] > 1
