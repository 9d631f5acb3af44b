"""The conformance kit of nest finds nothing to object to, once there is a table."""

from collections.abc import Callable

import pytest

from nest.testing import assert_conforms, check
from nest_measured.model import VARIABLE, Measured

NORM = {"kind": "norm", "sizes": {"bytes": 131072}, "forward": 1e-6, "backward": 2e-6}


@pytest.mark.longer
def test_it_conforms(use: Callable[..., None]) -> None:
    use([NORM])
    assert_conforms(Measured())


@pytest.mark.longer
def test_without_a_table_the_doctor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    (failed,) = (finding for finding in check(Measured()) if not finding.passed)
    assert failed.check == "some device is priced"
    assert VARIABLE in failed.told
