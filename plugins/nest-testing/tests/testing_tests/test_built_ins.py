"""What ships with nest passes the kit that strangers are asked to pass."""

from threading import Event
from typing import Any

import pytest

from nest.hooks.registry import registry
from nest.public.checks import DISTRIBUTION, KINDS
from nest.testing import assert_conforms, check
from nest_testing.conformance import check_within, kind_of

BUILT_INS = [
    (kind, name)
    for kind in KINDS
    for name in getattr(registry(), kind)()
    if registry().origin(kind, name)[0] == DISTRIBUTION
]


def built_in(kind: str, name: str) -> Any:
    return getattr(registry(), kind)()[name]


@pytest.mark.longer
@pytest.mark.parametrize(("kind", "name"), BUILT_INS)
def test_it_conforms(kind: str, name: str) -> None:
    assert_conforms(built_in(kind, name))


@pytest.mark.parametrize(("kind", "name"), BUILT_INS)
def test_its_kind_is_told_by_what_it_offers(kind: str, name: str) -> None:
    assert kind_of(built_in(kind, name)) == kind


def test_what_is_no_plug_in_object_is_told() -> None:
    with pytest.raises(ValueError, match="object offers what no kind asks for"):
        check(object())
    with pytest.raises(ValueError, match="no kind 'weights'"):
        check(object(), "weights")


@pytest.mark.longer
def test_what_does_not_come_back_is_given_up() -> None:
    never = Event()

    class Sleeper:
        name = "sleeper"

        def export(self, plan: Any) -> dict[str, str]:
            never.wait()
            return {}

    (finding,) = check_within(0.05, Sleeper(), "exporters")
    assert (finding.check, finding.passed) == ("it finishes in time", False)
    assert "0.05 seconds" in finding.told
    never.set()
    assert check_within(60.0, built_in("schedules", "1f1b"), "schedules") == check(built_in("schedules", "1f1b"))


def test_an_object_that_interrupts_the_checks_is_told_of_at_once() -> None:
    class Interrupting:
        name = "interrupting"

        def export(self, plan: Any) -> dict[str, str]:
            raise KeyboardInterrupt

    (finding,) = check_within(60.0, Interrupting(), "exporters")
    assert (finding.passed, finding.told) == (False, "the checks ended as it raised KeyboardInterrupt")
