"""What is kept from one case to the next: no more than there is room for, and nothing that an answer needs."""

from random import Random

import numpy
import pytest

import nest
from nest_cpsat import kept, search
from nest_cpsat.kept import kept as kept_values
from tests.agreement.problems import random_problem


def test_what_was_used_longest_ago_goes_when_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_KEPT", 200)
    made: list[int] = []
    values = kept_values()

    def value(number: int) -> tuple[numpy.ndarray, ...]:
        def make() -> tuple[numpy.ndarray, ...]:
            made.append(number)
            return numpy.zeros(10), numpy.zeros(number)

        return values.of(number, make)

    for number in (1, 2, 0, 1):
        value(number)
    # 88, 96 and 80 bytes: nothing goes before room is made, and then what was used longest ago.
    assert made == [1, 2, 0]
    values.make_room()
    for number in (1, 0, 2):
        value(number)
    assert made == [1, 2, 0, 2]


@pytest.mark.longer
@pytest.mark.parametrize("kind", ["plain", "mixed", "chunked"])
def test_a_proof_that_keeps_nothing_is_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "FEW_CASES", 0)
    problem = random_problem(Random(3), kind)
    asked = [nest.solve(problem, verify=True).verification or {}]
    monkeypatch.setattr(kept, "MOST_KEPT", 0)
    asked.append(nest.solve(problem, verify=True).verification or {})
    assert asked[0]["status"] == "proved"
    one, other = ({name: value for name, value in each.items() if name != "seconds"} for each in asked)
    assert one == other
