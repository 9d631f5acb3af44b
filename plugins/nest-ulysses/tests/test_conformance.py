"""The conformance kit of nest finds nothing to object to."""

import pytest

from nest.testing import assert_conforms
from nest_ulysses.strategy import Ulysses


@pytest.mark.longer
def test_it_conforms() -> None:
    assert_conforms(Ulysses())
