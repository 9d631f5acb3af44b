"""Explanations: parts, plans of every kind, and what is refused."""

import json
import os
import sys
from collections import deque
from queue import Queue
from threading import Event, Thread
from time import sleep
from typing import Any

import pytest

import nest
from nest.errors import InputError, InternalError
from nest.hooks.registry import registry
from nest.units import percent
from nest.whatif.solver import Solver
from nest_studies.engines import local
from nest_studies.engines.local import Local
from nest_whatif import questions
from nest_whatif.explain import PARTS
from nest_whatif.text.explanation import explanation_text
from tests.shared_answers import FOLDER

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")

PROBLEM: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 4, "hidden": 512, "ffn": 1024, "heads": 8, "vocab": 1024}},
    "training": {"global_batch": 8, "sequence_length": 128, "micro_batch": [1, 2]},
    "cluster": {
        "device": "h100-sxm",
        "levels": [
            {"name": "node", "fanout": 2, "bandwidth": 4e11, "latency": 3e-6},
            {"name": "rack", "fanout": 2, "bandwidth": 5e10, "latency": 6e-6},
        ],
    },
    "strategies": {"cp": [1], "sp": [1]},
    "constraints": ["replicas <= 2"],
}

FEW: dict[str, Any] = {**PROBLEM, "strategies": {"tp": [1], "cp": [1], "sp": [1]}}
"""The same with few candidates: where it matters who answers, and not what."""


@pytest.mark.longer
def test_all_parts_are_told_and_are_the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, "")  # Searches are counted here; an answer that another test found has none to tell.
    plan = nest.solve(PROBLEM)
    shares: list[float] = []
    found = nest.explain(plan, progress=lambda _, share: shares.append(share))
    assert found.parts == PARTS
    assert found.best is plan
    assert found.binding
    assert found.prices
    assert found.alternatives
    assert found.flips
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] < 1
    assert len(shares) == found.solves
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told == json.loads(json.dumps(nest.explain(plan.to_dict()).to_dict()))
    text = explanation_text(told)
    for title in ("Bottlenecks", "Cost of restrictions", "Best alternatives", "Sensitivity"):
        assert title in text
    assert "`replicas <= 2`" in text
    for each in found.prices:
        assert each.written in text
    for other in found.alternatives:
        if other.outcome.reason is not None:
            assert percent(other.outcome.relative) in text


@pytest.mark.longer
def test_a_plan_that_is_not_the_best_is_told_what_is() -> None:
    plan = nest.evaluate(PROBLEM, fix={"tp": 2, "pp": 2})
    told = nest.explain(plan, only=["binding", "constraints"]).to_dict()
    best = nest.solve(plan.problem)
    assert told["best_batch_time"] == best.batch_time
    assert not told["searched"]
    fixed = next(each for each in told["constraints"] if each["place"] == "fixed.tp")
    assert fixed["costs"]
    assert fixed["relative"] < 0
    if best.batch_time < plan.batch_time:  # type: ignore[operator]
        assert "The best plan takes" in explanation_text(told)


@pytest.mark.longer
def test_a_plan_that_does_not_fit_and_whose_problem_has_none() -> None:
    small = {**PROBLEM["cluster"], "memory": 3e7, "reserve": 0}
    plan = nest.evaluate({**PROBLEM, "cluster": small}, fix={"tp": 2, "pp": 2})
    assert not plan.fits
    told = nest.explain(plan).to_dict()
    assert told["best_batch_time"] is None
    assert all(each["refusal"] or each["relative"] for each in told["alternatives"] if each["asked"])
    text = explanation_text(told)
    assert "a search of its problem finds none. Memory is tightest" in text
    assert "too much" in text
    assert "Cost of restrictions" in text
    assert "cluster.memory 28.6 MiB  any amount of memory  tp 2" in text


@pytest.mark.longer
def test_an_infeasible_plan_is_told_what_to_loosen_and_by_how_much() -> None:
    small = {**PROBLEM["cluster"], "memory": 3e7, "reserve": 0}
    plan = nest.solve({**PROBLEM, "cluster": small, "constraints": ["pp == 1"], "training": {**PROBLEM["training"]}})
    assert plan.status == "infeasible"
    found = nest.explain(plan)
    assert found.binding == ()
    assert found.alternatives == ()
    memory = next(each for each in found.prices if each.place == "cluster.memory")
    assert memory.costs
    assert memory.outcome.plan is not None
    (least,) = found.flips
    assert least.changed_at is not None
    enough = {**small, "memory": least.changed_at}
    assert nest.solve({**PROBLEM, "cluster": enough, "constraints": ["pp == 1"]}).status != "infeasible"
    too_little = {**small, "memory": least.same_at}
    assert nest.solve({**PROBLEM, "cluster": too_little, "constraints": ["pp == 1"]}).status == "infeasible"
    text = explanation_text(found.to_dict())
    assert text.startswith("No feasible plan. Memory is tightest")
    assert "Cost of restrictions" in text


@pytest.mark.longer
@pytest.mark.parametrize("missing", ["summary", "time_shares", "memory_capacity", "devices", "idle_share"])
def test_figures_that_a_plan_lacks_are_made_up_for(missing: str) -> None:
    plan = nest.solve(PROBLEM)
    written = plan.to_dict()
    written["summary"].pop(missing, None)
    if missing == "summary":
        del written["summary"]
    asked = ["binding", "alternatives"]
    assert nest.explain(written, only=asked).to_dict() == nest.explain(plan, only=asked).to_dict()


@pytest.mark.longer
def test_a_plan_that_does_not_hold_is_not_explained() -> None:
    written = nest.solve(PROBLEM).to_dict()
    with pytest.raises(InputError, match="fails its check, so nest does not explain it"):
        nest.explain({**written, "batch_time": 2 * written["batch_time"]})


@pytest.mark.longer
def test_parts_nobody_knows_are_refused() -> None:
    with pytest.raises(InputError, match="unknown part 'price'; the parts are binding"):
        nest.explain(nest.solve(PROBLEM), only=["price"])


@pytest.mark.longer
@on_linux
def test_a_process_that_is_forked_has_what_this_one_has_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "can_fork", lambda: True)
    made, here = {"sum": 3}, os.getpid()

    def forked(item: int) -> tuple[int, bool]:
        return item + made["sum"], os.getpid() == here

    def slow(item: int) -> tuple[int, bool]:
        sleep(0.05)
        return forked(item)

    answers = [*Local(2).beside(slow, range(8), forked)]
    assert sorted(answer for answer, _ in answers) == [*range(3, 11)]
    assert {mine for _, mine in answers} == {True, False}


@pytest.mark.longer
def test_what_is_forked_shares_prices_and_tells_no_progress() -> None:
    plan, known = nest.solve(FEW), registry()
    solver = Solver(progress=lambda *_: None)
    silent = questions.Questions(plan, plan, PARTS, None, known.installed(), solver).silent
    assert silent is not None
    assert silent.solver is not None
    assert silent.solver.progress is None
    assert silent.solver._priced is solver._priced
    versions = {**known.installed(), "somebody's": "1.0"}
    assert questions.Questions(plan, plan, PARTS, None, versions, solver).silent is None


def test_threads_of_others_are_not_forked() -> None:
    waiting = Event()
    thread = Thread(target=waiting.wait)
    thread.start()
    try:
        assert not local.can_fork()
    finally:
        waiting.set()
        thread.join()


@pytest.mark.longer
@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_every_item_is_answered_once_by_this_process_or_another(jobs: int) -> None:
    assert sorted(Local(jobs).beside(len, ["", "a", "bb", "ccc"])) == [0, 1, 2, 3]


class Unreadable:
    """A worker whose answers cannot be read."""

    def give(self, item: object) -> None:
        pass

    def take(self) -> object:
        raise ValueError("cut short")


def test_an_answer_that_cannot_be_read_is_not_waited_for() -> None:
    answers = Queue[object]()
    local._fed(Unreadable(), deque([1, 2]), answers)  # type: ignore[arg-type]
    told = answers.get_nowait()
    assert isinstance(told, InternalError)
    assert "cut short" in str(told)
    assert answers.empty()
