"""Commands on models whose samples have no tokens."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import nest
from nest.io import unstructure
from tests.formulate.test_sample_lengths import IMAGES, images

Call = Callable[..., tuple[int, str, str]]


def test_the_command_line_knows_images(tmp_path: Path, call: Call) -> None:
    graph = tmp_path / "graph.json"
    graph.write_text(json.dumps(unstructure(images())))
    code, out, _ = call("models", str(graph))
    assert code == 0
    assert "forward FLOP per sample" in out
    assert "token" not in out.replace("active per token", "")
    path = tmp_path / "problem.yaml"
    options = ("--model", str(graph), "--cluster", "dgx-h100-superpod-64", "--global-batch", "64", "-o", str(path))
    assert call("init", *options)[0] == 0
    assert "sequence_length" not in path.read_text()
    assert nest.evaluate(path).batch_time
    code, _, err = call("init", *options, "--force", "--sequence-length", "128")
    assert code == 2
    assert "does not use tokens" in " ".join(err.split())


@pytest.mark.longer
def test_frontiers_sweeps_and_explanations_do_without_tokens(tmp_path: Path, call: Call) -> None:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(IMAGES))
    study = tmp_path / "study.yaml"
    study.write_text("nest: 1\nbase: problem.json\nvary: {training.global_batch: [32, 64]}\n")
    rows = tmp_path / "rows.jsonl"
    assert call("sweep", str(study), "--output", str(rows), "--jobs", "1")[0] == 0
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [row["status"] for row in found] == ["optimal", "optimal"]
    assert [row["tokens_per_second_per_device"] for row in found] == [None, None]
    assert all(row["mfu"] > 0 for row in found)
    assert call("report", str(study), "--output", str(tmp_path / "study.html"))[0] == 0
    plan = nest.solve(IMAGES)
    assert nest.frontier(plan)
    assert nest.explain(plan)
