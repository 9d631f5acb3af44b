"""What makes the search fast: every entry of the list stands where it is said to, and changes no answer."""

from importlib import import_module
from random import Random

import pytest

from benchmarks.scale.accelerators import ACCELERATORS
from benchmarks.scale.gains import Gain, complaints, gains_page
from benchmarks.scale.switched_off import standing, switch_off
from nest.formulate.instance import build_instance
from nest.hooks.registry import registry
from nest.instance import Instance, Result
from nest.io import structure
from nest.solve.solver import solve
from nest.spec import Problem
from tests.agreement.problems import random_problem

KINDS = ("plain", "mixed", "chunked")
"""Kinds of random problems."""


@pytest.fixture(scope="module")
def solved() -> list[tuple[Instance, Result]]:
    problems = (structure(random_problem(Random(0), kind), Problem) for kind in KINDS)
    return [(each, solve(each)) for each in (build_instance(problem, registry()) for problem in problems)]


@pytest.mark.longer
@pytest.mark.parametrize("name", ACCELERATORS)
def test_it_stands_where_it_is_looked_for_and_changes_no_answer(
    name: str, solved: list[tuple[Instance, Result]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for switch in ACCELERATORS[name].switches:
        held, there = standing(switch)
        monkeypatch.setattr(held, switch.name, switch.instead(there))
    for instance, expected in solved:
        found = solve(instance)
        assert (found.status, found.solution, found.batch_time, found.lower_bound) == (
            expected.status,
            expected.solution,
            expected.batch_time,
            expected.lower_bound,
        )


def test_what_is_gone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is renamed or removed must leave the list, or the table would say that it gains nothing."""
    monkeypatch.delattr(import_module("nest.solve.search"), "PROMISING")
    with pytest.raises(AttributeError):
        switch_off("quick")


def test_gains_are_told_and_complained_about() -> None:
    gains = {
        "quick": {"one": Gain(1.0), "other": Gain(None)},
        "joint": {"one": Gain(1.31), "other": Gain(6.0, least=True, same=False)},
    }
    page = gains_page({"date": "2026-11-29"}, gains, ("one", "other"))
    assert "| `quick` | 1.00 |  | a plan of promising leaves |" in page
    assert "| `joint` | 1.31 | > 6.00 (other answer) |" in page
    assert complaints(gains) == ["`quick` gains less than 1.3 on every row", "`joint` changes the answer of other"]
