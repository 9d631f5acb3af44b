"""What agreement tests share."""

import pytest


@pytest.fixture(autouse=True)
def _counts_of_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn schedules hold what no order could; the guard that refuses them has tests of its own."""
    monkeypatch.setattr("nest.plan.certificate.too_few_in_flight", lambda *_: ())
