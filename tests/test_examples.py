"""Every example runs, is optimal, checks, and gives the same bytes whatever the hash seed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLES = sorted(path.parent.name for path in (REPOSITORY / "examples").glob("*/problem.yaml"))


def run(*arguments: str, seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nest", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, tmp_path: Path) -> None:
    output = tmp_path / "plan.json"
    first = run("solve", f"examples/{name}/problem.yaml", "--json", "--output", str(output), seed="1")
    second = run("solve", f"examples/{name}/problem.yaml", "--json", seed="2")
    assert first.returncode == second.returncode == 0, first.stderr
    assert first.stderr == ""
    assert first.stdout == second.stdout == output.read_text()
    plan = json.loads(first.stdout)
    assert plan["status"] == "optimal"
    assert plan["fits"] is True
    assert plan["lower_bound"] == pytest.approx(plan["batch_time"], rel=1e-9)
    assert all(stage["memory"] <= plan["summary"]["memory_capacity"] for stage in plan["stages"])
    checked = run("check", str(output))
    assert checked.returncode == 0, checked.stdout


def test_every_example_is_listed() -> None:
    readme = (REPOSITORY / "examples" / "README.md").read_text()
    assert [name for name in EXAMPLES if f"({name}/problem.yaml)" not in readme] == []
