"""A strategy nobody foresaw, from a distribution of its own, changes a plan; no file of `nest/solve` knows of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nest

PLUGIN = """
from attrs import evolve
from nest.graph import Tensor
from nest.hooks import hook


class Halving:
    '''Splits the inner width of feed-forward networks over two devices, and forgets to add the results up.'''

    name = "halving"
    after = ("tp", "sp")

    def degrees(self, block, context):
        return [1, 2] if context.cluster.admits(2 * block.width) else [1]

    def apply(self, block, degree, context):
        def split(shape):
            return tuple((axis, size // degree if axis == "ffn" else size) for axis, size in shape)

        return block.with_axis(self.name, degree).applied(self.name, degree, block.graph.map_shapes(split))


@hook
def nest_strategies():
    return [Halving()]
"""

SCRIPT = """
import json, sys
import nest

plan = nest.solve(json.loads(sys.argv[1])).to_dict()
print(json.dumps({key: plan[key] for key in ("status", "candidate", "batch_time", "plugins")}))
"""

PROBLEM = {
    "nest": 1,
    "model": {"transformer": {"layers": 4, "hidden": 4096, "ffn": 65536, "heads": 32, "vocab": 1000}},
    "training": {"global_batch": 1, "sequence_length": 4096, "micro_batch": [1], "stack": "none"},
    "cluster": {"device": "a100-sxm-80g", "levels": [{"fanout": 2, "bandwidth": "300 GB/s"}]},
    "strategies": {"tp": [1]},
}


def plan(site: Path, **environment: str) -> dict[str, Any]:
    """The plan of a new process that finds installed distributions in `site` too."""
    path = [str(site), str(Path(nest.__file__).resolve().parent.parent)]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{SCRIPT}", json.dumps(PROBLEM)],
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin", **environment},
    )
    return dict(json.loads(done.stdout))


@pytest.mark.longer
def test_a_strategy_of_another_distribution_changes_the_plan(tmp_path: Path) -> None:
    before = plan(tmp_path)
    (tmp_path / "halving.py").write_text(PLUGIN)
    information = tmp_path / "toy_halving-3.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-halving\nVersion: 3\n")
    (information / "entry_points.txt").write_text("[nest]\nhalving = halving\n")
    after = plan(tmp_path)
    assert before["status"] == after["status"] == "optimal"
    assert "halving" not in before["candidate"]["degrees"]
    assert after["candidate"]["degrees"]["halving"] == 2
    assert after["batch_time"] < before["batch_time"]
    assert after["plugins"]["toy-halving"] == "3"
    assert plan(tmp_path, NEST_DISABLED_PLUGINS="toy-halving") == before


def test_solvers_name_no_strategy() -> None:
    for path in (Path(nest.__file__).parent / "solve").rglob("*.py"):
        text = path.read_text()
        assert "halving" not in text
        assert "nest.strategies" not in text
