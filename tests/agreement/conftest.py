"""What agreement tests share."""

from collections.abc import Iterator

import pytest

from tests.agreement.drawn_schedules import counts_of_no_order


@pytest.fixture(autouse=True)
def _counts_of_no_order() -> Iterator[None]:
    with counts_of_no_order():
        yield
