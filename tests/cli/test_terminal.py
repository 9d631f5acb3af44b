"""What commands print on terminals of several widths, and what they do not print elsewhere."""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from nest.cli.app import app
from nest.report.text.layout import columns
from tests import processes
from tests.seeds import few

REPOSITORY = Path(__file__).resolve().parents[2]
WIDTHS = (40, 80, 200)
ESCAPE = "\x1b"


def _helper() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pseudo_terminal", Path(__file__).with_name("pseudo_terminal.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


pseudo_terminal = _helper()
on_terminal, at_widths = pseudo_terminal.on_terminal, pseudo_terminal.at_widths


def nest(*arguments: str) -> subprocess.CompletedProcess[str]:
    return processes.run([sys.executable, "-m", "nest", *arguments], cwd=REPOSITORY)


def plain(text: str) -> str:
    return re.sub(ESCAPE + r"\[[0-9;]*m", "", text)


def words(text: str) -> set[str]:
    """What is told, without the lines of tables and the colons of lists."""
    return {word.strip(":") for word in text.split() if word.strip("-:")}


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("plans") / "plan.json"
    assert nest("solve", "examples/measured-layers/problem.yaml", "-o", str(file)).returncode == 0
    return str(file)


COMMANDS = [
    ["devices"],
    ["devices", "h200-sxm"],
    ["clusters", "gb200-nvl72-superpod"],
    ["topology", "show", "examples/llama-2-7b-on-tpu-v4-torus/problem.yaml"],
    ["strategies"],
    ["models"],
    ["models", "deepseek-v3"],
    ["plugins"],
    ["export", "--list"],
    ["compare", "--list"],
    ["compare", "examples/measured-layers/problem.yaml", "--evaluations", "20"],
    ["evaluate", "examples/llama-3-70b-on-128-h100/problem.yaml", "--fix", "tp=8", "--fix", "pp=4"],
    ["check", "PLAN"],
    ["explain", "PLAN"],
    ["simulate", "PLAN", "--jitter", "0.1", "--runs", "5", "--slow-device", "1/0=1.3"],
]


@pytest.mark.longer
@pytest.mark.parametrize("command", few(COMMANDS, *COMMANDS[:10], ["check", "PLAN"]), ids=" ".join)
def test_output_fits_every_terminal_and_loses_nothing(command: list[str], plan: str, tmp_path: Path) -> None:
    command = [plan if part == "PLAN" else part for part in command]
    piped, on_terminals = at_widths(command, WIDTHS, tmp_path / "piped", REPOSITORY)
    assert ESCAPE not in piped
    widest = max(map(columns, piped.splitlines()))
    for width, shown in zip(WIDTHS, on_terminals, strict=True):
        told = plain(shown.output)
        assert shown.code == 0
        for line in told.splitlines():
            # A path or the like that is longer than the terminal is wide stays whole.
            assert columns(line) <= width or len(line.split()) == 1, line
        assert words(told) >= words(piped), words(piped) - words(told)
        if width >= widest:
            assert told == piped


def test_colours_are_for_terminals_that_want_them(plan: str) -> None:
    def shown(**environment: str) -> str:
        return str(on_terminal(["check", plan], 200, environment=environment).output)

    coloured = shown()
    assert re.fullmatch(r"\x1b\[32mThe plan holds:\x1b\[0m \d+ values recomputed and equal\.\nThe .*\n", coloured)
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert ESCAPE not in shown(**environment)
    assert ESCAPE in shown(NO_COLOR="")
    assert nest("check", plan).stdout == plain(coloured)


def test_what_is_wrong_is_told_in_lines_that_fit() -> None:
    shown = on_terminal(["devices", "h10-sxm"], 40)
    assert (shown.code, shown.output) == (2, "")
    lines = plain(shown.errors).splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(" ".join(lines).split()) == nest("devices", "h10-sxm").stderr.strip()
    assert shown.errors.startswith("\x1b[31mnest:\x1b[0m")


@pytest.mark.longer
def test_columns_of_the_environment_count_on_terminals_only() -> None:
    command = ["compare", "--list"]
    narrow = on_terminal(command, 200, environment={"COLUMNS": "60"}).output
    assert narrow == on_terminal(command, 60).output
    piped = processes.run([sys.executable, "-m", "nest", *command], env={**os.environ, "COLUMNS": "40"})
    assert piped.stdout == nest(*command).stdout


def _commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name in group.list_commands(None) if hasattr(group, "list_commands") else ():
        yield from _commands(group.get_command(None, name), (*path, name))


@pytest.mark.parametrize("command", [*_commands(typer.main.get_command(app))], ids=" ".join)
def test_help_of_every_command_fits_forty_columns(command: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"], terminal_width=38, prog_name="nest")  # As `_help_width` says.
    assert shown.exit_code == 0
    assert max(map(len, shown.output.splitlines())) <= 40


@pytest.mark.parametrize("command", [*_commands(typer.main.get_command(app))], ids=" ".join)
def test_help_of_every_command_fits_a_screen(command: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"], terminal_width=78, prog_name="nest")  # As `_help_width` says.
    assert len(shown.output.splitlines()) <= 40


def test_help_of_every_option_is_one_short_sentence() -> None:
    def long(command: Any, path: str) -> Iterator[str]:
        for each in command.params:
            told = getattr(each, "help", None) or ""
            if len(told.split()) > 15 or ". " in told.removesuffix("."):
                yield f"{path} {each.name}: {told}"
        for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
            yield from long(command.get_command(None, name), f"{path} {name}")

    assert [*long(typer.main.get_command(app), "nest")] == []
