"""The README's second line is the one that CI runs first, and its figures are those that the benchmark prints."""

import json
import re

from nest.catalogue import time_spread
from tests.docs.document import REPOSITORY, blocks

README = (REPOSITORY / "README.md").read_text()


def set_up_lines() -> list[str]:
    return [line for block in blocks(README) if block.language == "sh" for line in block.lines]


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


def test_the_accuracy_quoted_is_that_of_the_benchmark() -> None:
    """What the benchmark found with whole sources left out is kept with its command; documents quote it."""
    results = REPOSITORY / "benchmarks" / "results" / "2026-11-23" / "fidelity" / "sources-hidden-messages"
    found = json.loads(results.with_suffix(".json").read_text())
    command = next(line for line in results.with_suffix(".md").read_text().splitlines() if line.startswith("$ "))
    explanation = (REPOSITORY / "docs" / "explanation" / "cost-model.md").read_text()
    assert f"`{command.removeprefix('$ ')}`" in explanation
    total, alike, spreads = found["rows"]["all"], found["alike"]["others"], found["spreads"]
    assert spreads["apart"] <= time_spread().apart
    columns = [percent(total["others"][name]) for name in ("mean", "median")]
    told = " ".join(explanation.split())
    runs, fitted, left_out = re.findall(r"\| all runs alike \| (\d+) \| .*? \| .*? \| (.*?) \| (.*?) \|", told)[0]
    of_sources = re.findall(r"\| sources alike \| \| .*? \| .*? \| .*? \| (.*?) \|", told)[0]
    quoted = " ".join(README.split())
    for claim in (
        f"of {runs} published training runs of 18 sources",
        f"is off by {left_out} in the mean, and by {of_sources} with sources counted alike",
        f"in the fit the mean is {fitted}",
        f"For {found['priced']} of these runs and an earlier model, ranges held {spreads['covered']:.0%}".replace(
            "%", " %"
        ),
        f"{spreads['ordered']:.0%} of {spreads['pairs']} pairs of plans predicted".replace("%", " %"),
    ):
        assert claim in quoted, f"README.md should say: {claim}"
    for claim in (
        f"| fitted to other sources | {' | '.join([*columns, percent(found['most'])])} | {percent(alike['mean'])} |",
        f"are off by {percent(spreads['own']['mean'])} in the mean",
        f"half width is {percent(spreads['half_width'])} on average",
    ):
        assert claim in told, f"cost-model.md should say: {claim}"


def percent(share: float) -> str:
    """A share as the README writes it."""
    return f"{100 * share:.1f} %"
