"""Graphs with too many cuts to list: never a false proof, and exact where collectives cost nothing."""

from random import Random
from typing import Any

import pytest

from cpsat_tests.asking import CLOSE, ask, instance_of, settles
from nest_cpsat import search
from tests.agreement.problems import random_problem
from tests.oracle.brute_force import solve
from tests.seeds import seeds


@pytest.fixture
def layers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No graph has few enough cuts."""
    monkeypatch.setattr(search, "MOST_CUTS", 0)


def never_contradicts(problem: dict[str, Any]) -> None:
    """No answer is false, whether the proof ends or not."""
    instance, best = instance_of(problem), solve(problem).batch_time
    if best is None:
        assert ask(instance, None).status == "proved"
        return
    assert ask(instance, best).status in ("proved", "open")
    found = ask(instance, best * 1.3)
    assert found.status in ("refuted", "open")
    assert found.bound is not None
    assert found.bound <= best
    assert found.better_batch_time is None or found.better_batch_time >= best * (1 - 1e-9)
    assert not found.settled or found.better_batch_time == pytest.approx(best, rel=CLOSE)


@pytest.mark.usefixtures("layers_alone")
@pytest.mark.parametrize("seed", seeds(15, 60, long=[1]))
def test_it_never_contradicts_brute_force(seed: int) -> None:
    never_contradicts(random_problem(Random(seed)))


@pytest.mark.longer
@pytest.mark.usefixtures("layers_alone")
@pytest.mark.parametrize("seed", seeds(6, 60))
def test_it_proves_the_optimum_where_collectives_are_hidden(seed: int) -> None:
    problem = random_problem(Random(seed + 100))
    problem["training"] |= {"exposed": 0.0, "hiding": False}
    settles(instance_of(problem), solve(problem).batch_time, 1.3)
