"""The README: one screen of prose whose commands, figures and picture are what nest says today."""

import re
import shlex
import tomllib
from typing import Any

import pytest
import typer

from nest.catalogue import devices
from nest.cli import app
from nest.hooks.registry import registry
from tests.docs import picture, trust
from tests.docs.document import REPOSITORY, blocks

README = (REPOSITORY / "README.md").read_text()
EXPLAINED = "\n".join(path.read_text() for path in sorted((REPOSITORY / "docs" / "explanation").glob("*.md")))
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
MOST_LINES = 100


def set_up_lines() -> list[str]:
    return [line for block in blocks(README) if block.language == "sh" for line in block.lines]


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES


def test_the_readme_has_two_lines_that_need_only_python_and_pip() -> None:
    first, second = set_up_lines()
    for line in (first, second):
        words = [part.split()[0] for part in line.split(" && ")]
        assert words[0] == "python3"
        assert all(word.startswith(".venv/bin/") for word in words[1:])
    example = first.split()[-1]
    assert (REPOSITORY / example).is_file()
    shown = [command for block in blocks(README) if block.language == "console" for command in block.lines]
    assert shown[0] == f"$ nest solve {example} --output plan.json"


def test_ci_runs_the_second_line_and_then_what_the_default_run_leaves_out() -> None:
    script = (REPOSITORY / ".ci" / "run").read_text().splitlines()
    commands = [line for line in script if line.strip() and not line.startswith("#")]
    others = ("ruff check .", "ruff format --check .", "mypy", "lint-imports", "pytest -m 'longer and not slow'")
    assert commands[:3] == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', set_up_lines()[1]]
    assert commands[3:] == [f".venv/bin/{other}" for other in others]
    assert set_up_lines()[1] in (REPOSITORY / "CONTRIBUTING.md").read_text().splitlines()


def test_commands_of_the_four_jobs_are_commands() -> None:
    """They name files of the reader, so that they are not run: their options are read."""
    commands = [shlex.split(line) for line in re.findall(r"^  `(nest .*)`$", README, re.MULTILINE)]
    assert len(commands) == 4
    group: Any = typer.main.get_command(app.app)
    for _, name, *arguments in commands:
        command = group.get_command(None, name)
        if hasattr(command, "get_command"):
            command, arguments = command.get_command(None, arguments[0]), arguments[1:]
        known = {option for each in command.params for option in each.opts}
        assert {argument for argument in arguments if argument.startswith("--")} <= known


@pytest.mark.longer
def test_the_picture_is_that_of_the_plan() -> None:
    for name, svg in picture.pictures().items():
        assert (picture.FOLDER / name).read_text() == svg, "python -m tests.docs.picture"
        assert f"docs/images/{name}" in README


def test_what_is_supported_is_what_there_is() -> None:
    described = {"operator_graph", "transformer"}
    families = set(registry().model_importers()) - described
    assert f"[{len(families)} families]" in README
    of_google = r"(TPU \w+), (\w+), (\w+) and (\w+)"
    named = re.findall(rf"NVIDIA (\w+) to (\w+), AMD (\w+) to (\w+), {of_google}, (Trainium \d)", README)[0]
    spelled = [name.lower().replace("tpu ", "tpu-").replace(" ", "") for name in named]
    assert [name for name in spelled if not any(name in device for device in devices())] == []
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert f"python-{'%20%7C%20'.join(versions)}-blue" in README
    assert f"Python {versions[0]} to {versions[-1]}" in README


def test_the_accuracy_quoted_is_what_was_found() -> None:
    """Pages on the cost model hold what the benchmarks printed. The README quotes its sums and means."""
    text = " ".join(EXPLAINED.split())
    found = trust.found()
    runs, sources, spreads = sum(row["runs"] for row in found["rows"]), len(found["rows"]), found["spreads"]
    _, alike = found["kinds"]["GPU"]
    own = found["own"]["plan"]
    ran, failed = re.findall(r"published runs: (\d+) ran, and (\d+) ran out of memory", text)[0]
    rejected, accepted = re.findall(r"rejects (\d+) of the runs that ran\. nest accepts (\d+) of the runs", text)[0]
    even = re.findall(r"^\| 0.5 \| 1 \| (\S+) % \| .*? \| (\S+) % \|", EXPLAINED, re.MULTILINE)[0]
    assert even == (f"{100 * int(rejected) / int(ran):.1f}", f"{100 * int(accepted) / int(failed):.1f}")
    usual = re.findall(r"^\| 0.2 \| \S+ \| (\S+ %) \| .*? \| (\S+ %) \|", EXPLAINED, re.MULTILINE)[0]
    for claim in (
        f"wrongly rejects {usual[0]} of {ran} published runs that worked, "
        f"wrongly accepts {usual[1]} of {failed} published runs that ran out of memory |",
        f"{trust.percent(found['mean'])} off on average, over {runs} published GPU runs of {sources} sources",
        f"{trust.percent(alike)} with every source weighted equally",
        f"On the {len(own['1']['sources'])} sources with more than three runs on one device, "
        "one own run [lowers the error](docs/how-to/calibrate.md#the-factor-of-one-plan) "
        f"from {trust.percent(own['0']['mean'])} to {trust.percent(own['1']['mean'])} |",
        f"| 80 % range of the step time | contains {100 * spreads['covered']:.0f} % of the measured times |",
        f"whose predicted times differ by {100 * spreads['apart']:.0f} % or more",
    ):
        assert claim in README, f"README.md should say: {claim}"
