"""Lets the tests of the distributions in this folder run from a checkout, with the fixtures of nest's own tests."""

import sys
from pathlib import Path

from tests.cli.conftest import call  # noqa: F401
from tests.conftest import shared  # noqa: F401

HERE = Path(__file__).resolve().parent

sys.path[:0] = [str(folder) for folder in sorted(HERE.glob("*/src")) if str(folder) not in sys.path]
