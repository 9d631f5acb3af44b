"""What objects remember, and what goes when there is no room."""

import pytest
from attrs import define, field

from nest.reuse import Bounded, remembered


@define(eq=False, slots=False)
class _Adder:
    asked: list[str] = field(factory=list)

    @remembered
    def plus(self, one: int, other: int = 1) -> int:
        self.asked.append(f"{one} + {other}")
        return one + other

    @remembered
    def nothing(self, of: object) -> None:
        self.asked.append("nothing")


def test_an_object_asks_itself_once_for_the_same_arguments() -> None:
    adder, other = _Adder(), _Adder()
    assert [adder.plus(1, 2), adder.plus(1, 2), adder.plus(2, 1), adder.plus(1, other=2)] == [3, 3, 3, 3]
    assert adder.asked == ["1 + 2", "2 + 1", "1 + 2"]
    assert other.plus(1, 2) == 3
    assert other.asked == ["1 + 2"]


def test_none_and_the_identity_of_objects_without_equality_are_remembered() -> None:
    adder, one = _Adder(), _Adder()
    for each in (one, one, _Adder()):
        assert adder.nothing(each) is None
    assert adder.asked == ["nothing", "nothing"]


def test_an_override_remembers_apart_from_what_it_overrides() -> None:
    class Doubling(_Adder):
        @remembered
        def plus(self, one: int, other: int = 1) -> int:
            return 2 * super().plus(one, other)

    doubling = Doubling()
    assert [doubling.plus(1, 2), doubling.plus(1, 2), _Adder.plus(doubling, 1, 2)] == [6, 6, 3]


def test_a_failure_is_not_remembered() -> None:
    @define(slots=False)
    class Failing:
        left: int = 1

        @remembered
        def value(self) -> int:
            self.left -= 1
            if self.left >= 0:
                raise ValueError
            return self.left

    failing = Failing()
    with pytest.raises(ValueError, match=r"^$"):
        failing.value()
    assert failing.value() == failing.value() == -1


def test_what_was_used_longest_ago_makes_room_and_the_latest_stays() -> None:
    made: list[int] = []
    values = Bounded[int](5, float)

    def value(size: int) -> int:
        def make() -> int:
            made.append(size)
            return size

        found = values.of(size, make)
        values.make_room()
        return found

    assert [value(each) for each in (2, 3, 2, 1, 3, 9, 9, 1)] == [2, 3, 2, 1, 3, 9, 9, 1]
    assert made == [2, 3, 1, 3, 9, 1]
