"""The README's two lines are those that CI runs, and its figures are those that the benchmark prints."""

import json
import re
import subprocess
import sys
from pathlib import Path

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
    """The benchmark's page shows what it prints, and is tested against that where the data is."""
    benchmarks = blocks((REPOSITORY / "benchmarks" / "README.md").read_text())
    command, *printed = next(block.lines for block in benchmarks if block.language == "console")
    assert command.removeprefix("$ ") in README
    runs, priced, refused = re.findall(r"\d+", printed[0])
    summary = next(line for line in printed if line.startswith("all "))
    count, middle, least, most, error, memory, memory_runs = re.findall(r"[\d.]+", summary)
    pairs, apart, right = re.findall(r"\d+", printed[-1])
    assert count == priced
    quoted = " ".join(README.split())
    for claim in (
        f"of {runs} published training runs",
        f"priced {priced} with the plans they ran and refused {refused}",
        f"The median prediction is {middle} of the measured batch time, from {least} to {most}",
        f"the mean absolute error is {error} %",
        f"Of {pairs} pairs of plans for one task that differ by more than {apart} %, {right} are put in the right",
        f"Predicted peak memory is {memory} of the measured (median of {memory_runs} runs)",
    ):
        assert claim in quoted, f"README.md should say: {claim}"


def test_the_benchmark_prices_and_refuses(tmp_path: Path) -> None:
    problem = {
        "nest": 1,
        "model": {"transformer": {"layers": 2, "hidden": 64, "ffn": 256, "heads": 4, "vocab": 1000}},
        "training": {"global_batch": 8, "sequence_length": 128},
        "cluster": {"device": "a100-sxm-80g", "levels": [{"fanout": 2, "bandwidth": "300 GB/s"}]},
        "fixed": {"tp": 2},
    }
    rows = [
        {"id": "a", "group": "us", "problem": problem, "measured": {"batch_time": 1e9, "peak_memory": 1e30}},
        {"id": "b", "group": "us", "problem": {**problem, "fixed": {"ep": 2}}, "measured": {"batch_time": 1.0}},
    ]
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    printed = subprocess.run(
        [sys.executable, "benchmarks/fidelity.py", str(path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert printed[0] == "2 runs: 1 priced, 1 refused"
    assert "fixed.ep" in printed[1]
    assert re.fullmatch(r"us +1 +0.00 +0.00 +0.00 +100.0 % +0.00 \(1\)", printed[4])
