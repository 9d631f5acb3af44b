"""Commands on models whose samples have no tokens."""

import json
from collections.abc import Callable
from pathlib import Path

import nest
from nest.io import unstructure
from tests.formulate.test_sample_lengths import images

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
