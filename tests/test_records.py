"""Records are compared, hashed and printed as those that attrs writes it for."""

from itertools import product
from typing import Any

import pytest
from attrs import field, frozen

from nest.records import Record


class WithOwn:
    @frozen
    class Sample:
        name: object
        count: float = 1.0
        place: str = field(default="", eq=False)
        long: str = field(default="", repr=False)


class WithShared:
    @frozen(eq=False, repr=False)
    class Sample(Record):
        name: object
        count: float = 1.0
        place: str = field(default="", eq=False)
        long: str = field(default="", repr=False)


@frozen(eq=False, repr=False)
class Alone(Record):
    name: object


VALUES: tuple[tuple[Any, ...], ...] = (("a",), ("a", 1), ("a", 2), ("a", 1, "there"), ("a", 1, "", "more"), ((),))


@pytest.mark.parametrize(("one", "other"), [*product(VALUES, repeat=2)])
def test_records_are_compared_hashed_and_printed_as_attrs_does(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    own, shared = WithOwn.Sample(*one), WithShared.Sample(*one)
    equal = own == WithOwn.Sample(*other)
    assert (shared == WithShared.Sample(*other)) is equal
    assert (shared != WithShared.Sample(*other)) is not equal
    assert len({shared, WithShared.Sample(*other)}) == 2 - equal
    assert repr(shared) == repr(own).replace("WithOwn", "WithShared")


def test_a_record_equals_none_of_another_class() -> None:
    assert WithShared.Sample("a") != WithOwn.Sample("a")
    assert Alone("a") != "a"
    assert Alone("a") == Alone("a")


def test_what_cannot_be_hashed_makes_a_record_that_cannot() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Alone([]))
