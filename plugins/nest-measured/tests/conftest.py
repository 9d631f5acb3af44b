"""Lets tests import the modules beside them, as the folder is no package, and use a table."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nest_measured.model import VARIABLE

sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets the cost model use a table of these operators."""

    def used(operators: list[dict[str, Any]], **other: Any) -> None:
        path = tmp_path / "table.json"
        path.write_text(json.dumps({"operators": operators, **other}))
        monkeypatch.setenv(VARIABLE, str(path))

    return used
