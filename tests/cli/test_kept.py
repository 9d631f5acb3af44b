"""What the command keeps for the next run where nobody says where (`NEST_CACHE`)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROBLEM = "examples/llama-2-7b-on-64-h100/problem.yaml"


def solved(home: Path, kept_in: str | None) -> str:
    """The plan that the command prints for a user with this home, who may say where things are kept."""
    taken = ("NEST_CACHE", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in taken}
    environment |= {"HOME": str(home)} | ({} if kept_in is None else {"NEST_CACHE": kept_in})
    arguments = [sys.executable, "-m", "nest", "solve", PROBLEM, "--json"]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.longer
@pytest.mark.skipif(sys.platform != "linux", reason="caches lie elsewhere on this system")
def test_the_command_keeps_plans_with_caches_unless_told_otherwise(tmp_path: Path) -> None:
    told = solved(tmp_path, "off")
    assert list(tmp_path.iterdir()) == []
    assert solved(tmp_path, None) == told
    (plan,) = (tmp_path / ".cache" / "nest").iterdir()
    before = plan.stat().st_ino
    assert solved(tmp_path, None) == told
    assert plan.stat().st_ino == before
    plan.write_text("damaged")
    assert solved(tmp_path, None) == told
