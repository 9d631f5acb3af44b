"""`nest init`: what it writes can be solved as it is."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nest
from nest.catalogue import clusters, library_models
from nest.formulate.risk import RISK
from nest.io import read, read_mapping
from nest.spec import Problem
from tests import processes
from tests.command_line import call as called

FLAGS = ("--model", "llama-3-8b", "--cluster", "dgx-h100-superpod-64", "--global-batch", "64")
WHOLE = (*FLAGS, "--sequence-length", "4096")


def test_what_is_written_can_be_solved(call, tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    assert call("init", *WHOLE, "-o", path)[0] == 0
    problem = read(path, Problem)
    assert (problem.model, problem.cluster.name) == ("llama-3-8b", "dgx-h100-superpod-64")
    assert (problem.training.global_batch, problem.training.sequence_length) == (64, 4096)
    assert nest.evaluate(path, fix={"tp": 8}).batch_time


def test_every_key_that_is_commented_out_may_be_written(call, tmp_path: Path) -> None:
    """The comments tell of keys there are, and of defaults that are those."""
    path = tmp_path / "problem.yaml"
    call("init", *WHOLE, "-o", path)
    bare = read(path, Problem)
    usual = ("# micro_batch", "# precision", "# optimizer", "# memory_risk")
    lines = [line for line in path.read_text().splitlines() if "# tokens:" not in line]
    opened = [line.replace("# ", "", 1) if any(each in line for each in usual) else line for line in lines]
    path.write_text("\n".join(opened))
    assert read_mapping(path).mapping["training"]["precision"] == bare.training.precision
    assert read_mapping(path).mapping["training"]["memory_risk"] == RISK
    assert nest.evaluate(path).batch_time == nest.evaluate(bare).batch_time
    keys = ("# stack", "# reserve", "# strategies", "# search", "# constraints")
    path.write_text("\n".join(line.replace("# ", "", 1) if any(k in line for k in keys) else line for line in opened))
    told = read(path, Problem)
    assert (told.training.stack, told.search.target, told.cluster.reserve) == ("megatron-core", "megatron", 4 * 2**30)
    assert told.strategies
    assert told.constraints


@settings(
    deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.sampled_from(sorted(library_models())),
    st.sampled_from(sorted(clusters())),
    st.integers(1, 10**6),
    st.integers(1, 10**6),
)
def test_any_model_on_any_cluster_makes_a_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: str, cluster: str, batch: int, length: int
) -> None:
    path = tmp_path / "problem.yaml"
    words = ["--model", model, "--cluster", cluster, "--global-batch", str(batch), "--sequence-length", str(length)]
    code = called(monkeypatch, "init", *words, "--force", "--output", str(path))
    assert code == 0
    read_back = read(path, Problem)
    assert (read_back.model, read_back.cluster.name, read_back.training.global_batch) == (model, cluster, batch)


def test_files_are_named_as_the_problem_sees_them(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(library_models()["llama-3-8b"].config))
    (tmp_path / "cluster.yaml").write_text("cluster: {device: h100-sxm, levels: [{fanout: 8, link: nvlink4}]}\n")
    (tmp_path / "torus.yaml").write_text("torus: {shape: [2, 2], bandwidth: 100 GB/s, latency: 1 us}\n")
    (tmp_path / "deeper").mkdir()
    words = ["--model", "config.json", "--global-batch", 8, "--sequence-length", 1024]
    assert call("init", *words, "--cluster", "cluster.yaml", "-o", "deeper/one.yaml")[0] == 0
    assert call("init", *words, "--cluster", "torus.yaml", "--device", "a100-sxm-80g", "-o", "deeper/two.yaml")[0] == 0
    for name in ("one", "two"):
        assert nest.evaluate(tmp_path / "deeper" / f"{name}.yaml").batch_time
    code, _, errors = call("init", *words, "--cluster", "torus.yaml", "-o", "three.yaml")
    assert code == 2
    assert "--device" in errors
    assert not (tmp_path / "three.yaml").exists()


def test_without_a_terminal_it_names_what_is_missing(tmp_path: Path) -> None:
    ended = processes.run([sys.executable, "-m", "nest", "init", *FLAGS], cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.startswith("nest: nest init needs --sequence (no terminal to prompt on)")
    empty = processes.run([sys.executable, "-m", "nest", "init", *FLAGS, "--sequence-length", ""], cwd=tmp_path)
    assert (empty.returncode, empty.stderr) == (2, ended.stderr)
    assert list(tmp_path.iterdir()) == []


def test_on_a_terminal_it_asks_for_the_rest(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    class Keyboard(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Keyboard("many\n32\n\n"))
    path = tmp_path / "problem.yaml"
    code, _, errors = call("init", *FLAGS[:4], "-o", path)
    assert code == 0
    assert "global batch" in errors
    assert read(path, Problem).training.global_batch == 32
    assert read(path, Problem).training.sequence_length == 4096
    monkeypatch.setattr("sys.stdin", Keyboard(""))
    assert call("init", *FLAGS[:4], "-o", tmp_path / "other.yaml")[0] == 130


def test_a_file_is_replaced_only_on_demand(call, tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    path.write_text("mine\n")
    code, _, errors = call("init", *WHOLE, "-o", path)
    assert (code, path.read_text()) == (2, "mine\n")
    assert "--force" in errors
    assert call("init", *WHOLE, "-o", path, "--force")[0] == 0
