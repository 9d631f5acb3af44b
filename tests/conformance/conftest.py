"""Every test here asks a real consumer, and has the marker that says so."""

import pytest

HERE = "tests/conformance/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(HERE):
            item.add_marker(pytest.mark.conformance)
