"""The conformance kit of nest finds nothing to object to."""

import pytest

from nest.testing import assert_conforms
from nest_sharp.model import Sharp


@pytest.mark.longer
def test_it_conforms() -> None:
    assert_conforms(Sharp())
