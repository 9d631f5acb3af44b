"""The conformance kit of nest finds nothing to object to."""

from nest.testing import assert_conforms
from nest_ulysses.strategy import Ulysses


def test_it_conforms() -> None:
    assert_conforms(Ulysses())
