"""Models of transformers and torchvision on eight local ranks: planned, applied, and compared with one process."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pip install torch` lets these tests run")
pytest.importorskip("transformers", reason="transformers is not installed")

import families  # noqa: E402
import nest  # noqa: E402
import nest_torch  # noqa: E402

HERE = Path(__file__).resolve().parent
HOW_TO = HERE.parents[2] / "docs" / "how-to" / "train-with-pytorch.md"
CLUSTER = {"device": "h100-sxm", "levels": [{"name": "node", "fanout": 8, "link": "nvlink4"}]}

pytestmark = pytest.mark.conformance

PLANS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"tp": 2, "sp": True, "pp": 2, "cp": 2}),
    ("llama", {"pp": 2, "tp": 2, "zero": 1, "schedule": "interleaved", "chunks": 2, "recompute": "full"}),
    ("qwen3", {"tp": 4, "sp": True, "zero": 3, "recompute": "full"}),
    ("mixtral", {"ep": 4, "zero": 1}),
    ("mixtral", {"ep": 2, "tp": 2, "etp": 2, "sp": True, "pp": 2}),
    ("gemma", {"tp": 2, "pp": 2, "sp": True, "zero": 1}),
    ("gpt2", {"tp": 2, "pp": 2, "zero": 1}),
    ("bert", {"tp": 2, "sp": True, "cp": 2, "zero": 3}),
    ("vit", {"tp": 2, "pp": 2, "zero": 0}),
    ("resnet50", {"pp": 2, "zero": 1, "micro_batch": 2}),
    ("resnet50", {"zero": 3, "micro_batch": 2}),
    ("torchvision_vit", {"pp": 4, "zero": 1, "schedule": "gpipe"}),
    ("llama", {"zero": 2, "zero_degree": 4}),
]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of a check import what makes the module."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("PYTHONPATH", str(HERE))


@pytest.mark.parametrize(("name", "fixed"), PLANS, ids=[f"{n}-{'-'.join(map(str, f))}" for n, f in PLANS])
def test_a_plan_trains_as_one_process_does(name: str, fixed: dict[str, Any]) -> None:
    make = getattr(families, name)
    with torch.device("meta"):
        module = make()
    training = {"global_batch": 32, "micro_batch": [fixed.get("micro_batch", 1)]}
    training["schedule"] = fixed.get("schedule", "1f1b")
    decided = {key: value for key, value in fixed.items() if key != "schedule"}
    plan = nest_torch.plan(module, families.inputs(name), CLUSTER, training=training, fixed=decided)
    assert plan.status == "optimal"
    assert nest.check(plan).ok
    found = nest_torch.check(make, plan, families.inputs(name), seconds=400)
    assert found.ok, "\n".join(map(str, found.differences))
    assert found.ranks == 8
    assert len(set(found.losses)) == len(found.losses) == 5
    print(f"{name} {fixed}: within {found.largest:.1e}")  # `pytest -s` shows the figures of the how-to.


def test_the_script_of_the_how_to_runs(tmp_path: Path) -> None:
    script = re.search(r"```python\n(.*?)```", HOW_TO.read_text(), re.DOTALL)
    assert script is not None
    assert len(script[1].strip().splitlines()) <= 25
    (tmp_path / "train.py").write_text(script[1])
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "8", "train.py"]
    done = subprocess.run(
        launcher,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    losses = re.findall(r"[0-7] (\d+\.\d{6})", done.stdout)  # Lines of several processes may run into one another.
    assert len(losses) == 8
    assert len(set(losses)) == 1
