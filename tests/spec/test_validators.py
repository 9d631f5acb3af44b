"""Rules: what they refuse, and that they say the same in the words of JSON schema."""

import math
from typing import Any

import jsonschema
import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from nest.errors import FieldErrors
from nest.spec.validators import Rule, above, all_different, at_least, between, degree, each, every, not_empty, one_of

NUMBERS = (0, 1, 2, 3, 0.5, 1.0, 1.5, -1, -0.5, 10)
RULES: dict[str, tuple[Rule, tuple[Any, ...]]] = {
    "at_least": (at_least(1), NUMBERS),
    "above": (above(0), NUMBERS),
    "between": (between(0, 1), NUMBERS),
    "one_of": (one_of(("a", "b")), ("a", "b", "c", "")),
    "not_empty": (not_empty, ([], [1], {}, {"a": 1}, "", "a")),
    "all_different": (all_different, ([], [1], [1, 1], ["a", "b", "a"])),
    "each": (each(at_least(1)), ([], [1], [0, 1, -1])),
    "every": (every(not_empty, each(at_least(1)), all_different), ([], [1], [0], [2, 2], [0, 0])),
    "degree": (degree(), (0, 1, 2, -1, True, False)),
}


@pytest.mark.parametrize("name", RULES)
def test_records_and_schemas_refuse_the_same(name: str) -> None:
    rule, values = RULES[name]
    verdicts = [not list(rule.mistakes(value)) for value in values]
    assert verdicts == [jsonschema.Draft202012Validator(rule.keywords).is_valid(value) for value in values]
    assert len(set(verdicts)) == 2  # the values tell rules apart


@given(st.floats(allow_nan=True, allow_infinity=True) | st.integers())
def test_numbers_that_are_none_are_refused(value: float) -> None:
    strange = isinstance(value, float) and not math.isfinite(value)
    large = isinstance(value, int) and abs(value) > 2**53
    told = [sentence for _, sentence in at_least(-math.inf).mistakes(value)]
    assert bool(told) is (strange or large)


def test_paths_lead_to_what_is_wrong() -> None:
    @define
    class Record:
        table: dict[str, list[int]] = field(validator=each(every(not_empty, each(at_least(1)))))
        left_out: int | None = field(default=None, validator=at_least(1))

    Record({"a.b": [1], "c": [2]})
    with pytest.raises(FieldErrors) as error:
        Record({"a.b": [1, 0], "c": [], "d": [-1]})
    assert [(each_.steps, each_.sentence) for each_ in error.value.errors] == [
        (("table", "a.b", 1), "must be at least 1, is 0"),
        (("table", "c"), "must not be empty"),
        (("table", "d", 0), "must be at least 1, is -1"),
    ]
    assert str(error.value.errors[0]) == "table.a.b[1] must be at least 1, is 0"


def test_what_is_there_twice_is_told_with_the_first_place_of_it() -> None:
    assert list(all_different.mistakes(["a", "b", "c", "a", "b"])) == [
        ((3,), "is 'a', as is the item at [0]; each may be there once"),
        ((4,), "is 'b', as is the item at [1]; each may be there once"),
    ]
