"""Cases bounded in several processes: the answer is the same, wherever each is bounded."""

import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pytest

import nest
from nest.errors import InputError
from nest_cpsat import open_cases, search
from nest_cpsat.open_cases import answers
from nest_studies.engines import local
from tests.agreement.problems import random_problem


@pytest.fixture(autouse=True)
def never_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case is bounded by itself, and other processes are there from the start."""
    monkeypatch.setattr(search, "FEW_CASES", 0)
    monkeypatch.setattr(open_cases, "ALONE", -1.0)
    monkeypatch.setattr(local, "can_fork", lambda: True)


@pytest.mark.longer
@pytest.mark.parametrize("kind", ["plain", "mixed", "chunked"])
def test_the_proof_is_the_same_with_any_number_of_processes(kind: str) -> None:
    problem = random_problem(Random(6 if kind != "chunked" else 3), kind)
    plan, *others = (nest.solve(problem, verify=True, jobs=jobs) for jobs in (1, 2, 7))
    proofs = [plan.verification, *(each.verification for each in others), nest.verify(plan, jobs=2).verification]
    one, *same = ({**(each or {}), "seconds": 0} for each in proofs)
    assert one["status"] == "proved"
    assert one["cases"] > 1
    assert same == [one] * 3


def double(item: int) -> int:
    return 2 * item


def backwards(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    """What comes of the last item first, as another process would send it."""
    return (pickle.loads(pickle.dumps(function(each))) for each in reversed(items))


def broken(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    """One answer, and then the process is gone."""
    yield function(items[-1])
    raise InputError("a worker process ended")


@pytest.mark.parametrize("beside", [None, backwards, broken])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_answers_come_in_the_order_of_what_is_asked(count: int, beside: open_cases.Beside | None) -> None:
    assert answers(double, range(count), beside) == [double(item) for item in range(count)]


def test_a_process_that_is_killed_leaves_its_work_to_this_one() -> None:
    mine = os.getpid()

    def die_elsewhere(item: int) -> int:
        if os.getpid() != mine:
            os.kill(os.getpid(), signal.SIGKILL)
        return double(item)

    engine: Any = local.Local(3)
    assert answers(die_elsewhere, range(9), lambda function, items: engine.beside(function, items, function)) == [
        double(item) for item in range(9)
    ]
