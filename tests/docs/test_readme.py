"""The README's two lines are those that CI runs, and its figures are those that the benchmark prints."""

import json

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
    assert [command for block in blocks(README) if block.language == "console" for command in block.lines[:1]] == [
        f"$ nest solve {example}"
    ]


def test_ci_runs_the_second_line_and_nothing_else() -> None:
    script = (REPOSITORY / ".ci" / "run").read_text().splitlines()
    commands = [line for line in script if line.strip() and not line.startswith("#")]
    assert commands == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', set_up_lines()[1]]
    assert set_up_lines()[1] in (REPOSITORY / "CONTRIBUTING.md").read_text().splitlines()


def test_the_accuracy_quoted_is_that_of_the_benchmark() -> None:
    """What the benchmark found of the large set is kept with its command; other documents quote it."""
    results = REPOSITORY / "benchmarks" / "results" / "2026-11-21" / "fidelity"
    found = json.loads((results / "fidelity.json").read_text())
    command = next(line for line in (results / "fidelity.md").read_text().splitlines() if line.startswith("$ "))
    assert command.removeprefix("$ ") in README
    total = found["errors"][-1]["columns"]
    order, memory = found["ranking"]["all"], found["memory"][-1]
    quoted = " ".join(README.split())
    for claim in (
        f"of {found['priced']} published training runs",
        f"is off by {percent(total['validated']['mean'])} in the mean",
        f"and {percent(total['validated']['median'])} in the median",
        f"a constant utilisation by {percent(total['constant']['mean'])}",
        f"Of {order['pairs']} pairs of plans for one task that differ by more than 5 %, {order['right']} are",
        f"In {100 * order['close']:.0f} % of {order['sets']} sets of such plans the one predicted best is within 5 %",
        f"Peaks of memory are off by {percent(memory['errors']['mean'])} ({memory['errors']['count']} runs)",
    ):
        assert claim in quoted, f"README.md should say: {claim}"


def percent(share: float) -> str:
    """A share as the README writes it."""
    return f"{100 * share:.1f} %"
