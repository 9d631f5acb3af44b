"""The command line as a person calls it, in this process."""

import pytest

from nest.cli import app


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run `nest` with `arguments`; its exit code."""
    monkeypatch.setattr("sys.argv", ["nest", *arguments])
    with pytest.raises(SystemExit) as stop:
        app.main()
    return int(stop.value.code or 0)
