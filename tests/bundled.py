"""Imported first, it lets modules that run by `python -m` import the tests of bundled distributions, as pytest does."""

import sys
from pathlib import Path

FOLDERS = sorted(map(str, (Path(__file__).resolve().parents[1] / "plugins").glob("*/tests")))

sys.path += [folder for folder in FOLDERS if folder not in sys.path]
