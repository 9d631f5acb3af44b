"""What a sequence length rules out is told, and only that."""

from typing import Any

import pytest

import nest
from nest.errors import InputError
from nest.formulate.problem import EVEN, sequence_length_notice, whole_problem
from nest.hooks.registry import registry
from nest.spec import Problem


def problem(length: int, **sections: Any) -> dict[str, Any]:
    return {
        "nest": 1,
        "model": {"transformer": {"layers": 2, "hidden": 512, "ffn": 1024, "heads": 8, "vocab": 1000}},
        "training": {"global_batch": 8, "sequence_length": length},
        "cluster": {"device": "h100-sxm", "levels": [{"fanout": 4, "link": "nvlink4"}]},
        **sections,
    }


def told(written: dict[str, Any]) -> str | None:
    return sequence_length_notice(whole_problem(written, registry())[0], registry())


def test_degrees_that_do_not_divide_the_sequence_are_told_with_the_length_that_they_divide() -> None:
    sentence = told(problem(1023))
    assert sentence is not None
    assert sentence.startswith("training.sequence_length: 1023 tokens do not divide evenly, which rules out ")
    assert "sp 2, 4" in sentence
    assert "cp 2, 4" in sentence
    assert sentence.endswith("; 1024 would not.")


@pytest.mark.parametrize("length", [EVEN, 8 * EVEN, 1000])
def test_nothing_is_told_where_nothing_is_ruled_out(length: int) -> None:
    assert told(problem(length)) is None


def test_nothing_is_told_of_degrees_that_are_not_allowed() -> None:
    assert told(problem(1023, strategies={"cp": [1], "sp": False})) is None
    assert told(problem(1023, strategies={"tp": [3]})) is None  # What is wrong the search says.


def test_the_degrees_ruled_out_are_those_of_no_plan() -> None:
    for degree in (2, 4):
        fixed = problem(1023, fixed={"cp": degree})
        with pytest.raises(InputError, match="cp can be 1 only"):
            nest.solve(fixed)
        assert nest.solve(problem(1024, fixed={"cp": degree})).status == "optimal"


def test_people_are_told_as_a_search_begins() -> None:
    from nest import api

    sentences: list[str] = []
    api.solve(problem(1023), message=sentences.append)
    assert [each for each in sentences if "1023 tokens" in each]
    assert isinstance(whole_problem(problem(1023), registry())[0], Problem)
