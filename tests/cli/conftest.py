"""What tests of commands share."""

import pytest

from tests import command_line


@pytest.fixture
def call(monkeypatch, capsys):
    """Run `nest`: its exit code, standard output and standard error."""

    def calling(*arguments):
        code = command_line.call(monkeypatch, *map(str, arguments))
        return code, *capsys.readouterr()

    return calling
