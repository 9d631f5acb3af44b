"""The command line as a person calls it, in this process."""

from collections.abc import Callable

import pytest

from nest.cli import app

Caller = Callable[..., tuple[int, str, str]]
"""The fixture `call`: runs `nest`; its exit code, standard output and standard error."""


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run `nest` with `arguments`; its exit code."""
    monkeypatch.setattr("sys.argv", ["nest", *arguments])
    with pytest.raises(SystemExit) as stop:
        app.main()
    return int(stop.value.code or 0)
