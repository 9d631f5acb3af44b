"""Lets the tests of the distributions in this folder run from a checkout, without installing them."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

sys.path[:0] = [str(folder) for folder in sorted(HERE.glob("*/src")) if str(folder) not in sys.path]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared test data that lies beside the repository; tests that need it skip where it is absent."""
    folder = HERE.parent.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the shared test data is not at {folder}")
    return folder
