"""Processes of this machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from whatif_tests.test_explain import FEW

SCRIPT = """
import sys
from nest_studies.engines.local import Local

for answer in Local(3).beside(str, range(9), str):
    print(answer, flush=True)
    sys.stdin.read()
"""
"""Waits for ever with the first answer, while the processes beside it wait to be asked for more."""


@pytest.mark.longer
@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
def test_forked_processes_end_with_the_one_that_started_them() -> None:
    command = [sys.executable, "-c", SCRIPT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip().isdigit()
        process.kill()
        # What they print to is closed once all of them have ended.
        assert process.communicate(timeout=60) == ("", None)


@pytest.mark.longer
@pytest.mark.parametrize(
    "call",
    [
        "nest.recommend('problem.json', within=1e9, clusters=['p5.48xlarge-8', 'BM.GPU.A100-v2.8-8']).met",
        "nest.sweep('study.json', output='rows.csv', jobs=2).solved == 2",
        "len(nest.explain(nest.solve('problem.json'), jobs=2).alternatives) > 0",
    ],
    ids=["recommend", "sweep", "explain"],
)
def test_a_script_needs_no_guard(call: str, tmp_path: Path) -> None:
    """What a process of its own answers does not begin the script once more."""
    problem = {**FEW, "training": {**FEW["training"], "tokens": 10**6, "schedule": "1f1b"}}
    (tmp_path / "problem.json").write_text(json.dumps(problem))
    study = {"nest": 1, "base": "problem.json", "vary": {"training.global_batch": [8, 16]}}
    (tmp_path / "study.json").write_text(json.dumps(study))
    preparation = "import nest, nest_studies.engines.local, nest_whatif.questions\nnest_whatif.questions.ALONE = 0.0\n"
    spawning = "nest_studies.engines.local.can_fork = lambda: False\n"
    script = tmp_path / "script.py"
    script.write_text(f"{preparation}{spawning}print('begun')\nprint({call})\n")
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert (done.stdout, done.stderr) == ("begun\nTrue\n", "")
