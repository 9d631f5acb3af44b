"""`nest evaluate --from-megatron`: what people run today."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import call

SCRIPT = """
torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --num-layers 8 --hidden-size 256 --num-attention-heads 8 \\
  --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --seq-length 512 \\
  --max-position-embeddings 512 --untie-embeddings-and-output-weights --bf16 --micro-batch-size 1 \\
  --global-batch-size 32 --tensor-model-parallel-size 8 --sequence-parallel --pipeline-model-parallel-size 2
"""

CLUSTER = """
cluster:
  device: h100-sxm
  levels:
    - {name: node, fanout: 8, bandwidth: 450 GB/s, latency: 3 us}
    - {name: rail, fanout: 2, bandwidth: 50 GB/s, latency: 6 us}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    script, cluster = tmp_path / "run today.sh", tmp_path / "cluster.yaml"
    script.write_text(SCRIPT)
    cluster.write_text(CLUSTER)
    return str(script), str(cluster)


def test_flags_are_priced(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, cluster = files
    arguments = ("evaluate", "--from-megatron", script, "--cluster", cluster, "--vocabulary", "1024")
    assert call(monkeypatch, *arguments, "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["candidate"]["degrees"]["tp"] == 8
    assert len(plan["stages"]) == 2
    assert plan["data_parallel"] == 1
    assert call(monkeypatch, *arguments) == 0
    assert "\nTP 8, PP 2, DP 1, micro-batch 1 x 32, 1F1B" in capsys.readouterr().out
    assert call(monkeypatch, *arguments, "--for", "0.1") == 2
    assert "--for 0.1: nest knows megatron-core" in capsys.readouterr().err


@pytest.mark.longer
def test_the_best_plan_is_at_least_as_fast_and_its_problem_is_written(
    files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, cluster = files
    problem = tmp_path / "open.json"
    Path(cluster).write_text(CLUSTER.replace("fanout: 2", "fanout: 4"))  # The run has half of its devices.
    arguments = ("evaluate", "--from-megatron", script, "--cluster", cluster, "--vocabulary", "1024", "--against-best")
    assert call(monkeypatch, *arguments, "--write-problem", str(problem), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["best"]["status"] in ("optimal", "near-optimal")
    assert found["best"]["batch_time"] <= found["plan"]["batch_time"]
    assert found["best"]["summary"]["devices"] == found["plan"]["summary"]["devices_used"] == 16
    written = json.loads(problem.read_text())
    assert "fixed" not in written
    assert written["search"]["target"] == "megatron"
    assert call(monkeypatch, "solve", str(problem), "--json") == 0
    assert json.loads(capsys.readouterr().out)["batch_time"] == found["best"]["batch_time"]
    assert call(monkeypatch, *arguments) == 0
    assert "The best plan takes" in capsys.readouterr().out


@pytest.mark.longer
def test_every_command_prices_a_script_alike(
    files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, problem, plan = files[0], tmp_path / "problem.yaml", tmp_path / "plan.json"
    large = SCRIPT.replace("256", "4096").replace("512", "4096").replace("heads 8", "heads 32")
    large = large.replace("--pipeline-model-parallel-size 2", "--use-distributed-optimizer")
    Path(script).write_text(large)
    widths = "{layers: 8, hidden: 4096, ffn: 10880, heads: 32, vocab: 32000}"
    training = "{global_batch: 32, sequence_length: 4096, overlap: {data: true, tensor: true}}"
    problem.write_text(f"nest: 1\nmodel: {{transformer: {widths}}}\ntraining: {training}\n{CLUSTER}")

    def told(*arguments: str) -> dict[str, Any]:
        assert call(monkeypatch, *arguments, "--json") == 0
        printed = capsys.readouterr().out
        plan.write_text(printed)
        return json.loads(printed)  # type: ignore[no-any-return]

    run = ("--from-megatron", script)
    compared = told("compare", str(problem), "--planner", "manual", *run)["others"]
    (row,) = (each for each in compared if each["summary"] == "a file of megatron")
    best = told("evaluate", str(problem), *run, "--against-best")["plan"]
    evaluated = told("evaluate", str(problem), *run)
    explained = told("explain", str(plan), "--only", "binding")
    assert row["batch_time"] == best["batch_time"] == evaluated["batch_time"] == explained["batch_time"]
    assert "overlap" in " ".join(row["reasons"])


@pytest.mark.longer
def test_a_problem_says_what_flags_do_not(
    files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, _ = files
    problem = tmp_path / "problem.yaml"
    model = "{layers: 8, hidden: 256, ffn: 640, heads: 8, vocab: 777}"
    problem.write_text(
        f"nest: 1\nmodel: {{transformer: {model}}}\n"
        "training: {global_batch: 4, sequence_length: 64, precision: fp32}\n"
        f"fixed: {{zero: 1, tp: 1, stages: [2, 6]}}\n{CLUSTER}"
    )
    assert call(monkeypatch, "evaluate", "--from-megatron", script, str(problem), "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["problem"]["model"]["transformer"]["vocab"] == 777
    assert plan["problem"]["training"]["global_batch"] == 32
    assert plan["problem"]["training"]["precision"] == "bf16"
    assert [len(stage["layers"]) for stage in plan["stages"]] == [5, 5]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--vocabulary", "1024"), "add --cluster or a problem"),
        (("--cluster", "CLUSTER"), "--vocabulary"),
        (("--cluster", "CLUSTER", "--vocabulary", "1024", "--nodes", "0"), "--nodes is 0"),
        (("--cluster", "CLUSTER", "--vocabulary", "1024", "--nodes", "3"), "no multiple of 16"),
        (("--cluster", "no-such-cluster", "--vocabulary", "1024"), "no-such-cluster"),
    ],
)
def test_what_is_missing_is_asked_for(
    arguments: tuple[str, ...],
    told: str,
    files: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script, cluster = files
    given = [cluster if each == "CLUSTER" else each for each in arguments]
    assert call(monkeypatch, "evaluate", "--from-megatron", script, *given) == 2
    assert told in capsys.readouterr().err


def test_more_devices_than_the_cluster_has_are_refused(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, cluster = files
    arguments = ("evaluate", "--from-megatron", script, "--cluster", cluster, "--vocabulary", "1024", "--nodes", "4")
    assert call(monkeypatch, *arguments) == 2
    assert "the run uses 32 devices, but the cluster has 16" in capsys.readouterr().err


def test_options_of_flags_need_flags(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "evaluate", "problem.yaml", "--nodes", "2") == 2
    assert "--from-megatron" in capsys.readouterr().err
    assert call(monkeypatch, "evaluate") == 2
    assert "needs a problem file" in capsys.readouterr().err


@pytest.mark.parametrize("section", ["training: 5", "fixed: tp", "training: {overlap: 1.5}"])
def test_a_section_of_the_problem_that_is_none_is_refused(
    files: tuple[str, str],
    section: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    problem = tmp_path / "problem.yaml"
    problem.write_text(f"{CLUSTER}{section}\n")
    script = Path(files[0])
    script.write_text(f"{SCRIPT.rstrip()} --overlap-grad-reduce\n")
    assert call(monkeypatch, "evaluate", "--from-megatron", str(script), str(problem), "--vocabulary", "1024") == 2
    told = capsys.readouterr().err
    assert told.startswith(f"nest: {problem}:7: {section.partition(':')[0]}")
    assert "must hold keys and values" in told


@pytest.mark.longer
def test_what_stands_behind_two_hyphens_is_the_script_s(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, cluster = files
    path = Path(script)
    path.write_text(SCRIPT.replace("--nnodes 2", "--nnodes $1").replace("batch-size 32", "batch-size $GBS"))
    arguments = ("evaluate", "--from-megatron", script, "--cluster", cluster, "--vocabulary", "1024", "--json")
    assert call(monkeypatch, *arguments, "--", "2", "GBS=64") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["problem"]["training"]["global_batch"] == 64
    assert "16 ranks: 2 nodes x 8" in printed.err
    assert call(monkeypatch, *arguments) == 2
    assert "give --nodes" in capsys.readouterr().err


Priced = Callable[..., tuple[dict[str, Any], str]]


@pytest.fixture
def priced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Priced:
    """The plan of a script, and the notes on it, or the error."""

    def run(text: str, *arguments: str) -> tuple[dict[str, Any], str]:
        (tmp_path / "run.sh").write_text(text)
        asked = ("evaluate", "--from-megatron", str(tmp_path / "run.sh"), "--vocabulary", "1024", *arguments, "--json")
        code = call(monkeypatch, *asked)
        told = capsys.readouterr()
        return json.loads(told.out) if code == 0 else {}, told.err

    return run


APART = SCRIPT.replace("--nnodes 2 --nproc-per-node 8", "--nnodes 8 --nproc-per-node 2").replace("-size 8", "-size 4")


def test_a_run_on_a_part_of_each_node_is_priced_over_as_many_nodes(priced: Priced) -> None:
    """Its tensor parallelism leaves the node, as it does in nodes of as many devices."""
    near, _ = priced(APART, "--cluster", "dgx-h100-superpod", "--nodes", "2", "--devices-per-node", "8")
    far, told = priced(APART, "--cluster", "dgx-h100-superpod")
    assert "the run has 2 ranks per node; nest prices nodes of 2 devices." in told
    assert far["batch_time"] > near["batch_time"]
    assert far["problem"]["cluster"]["levels"][0]["fanout"] == 2
    many = APART.replace("nnodes 8", "nnodes 256").replace("batch-size 32", "batch-size 512")
    _, told = priced(many, "--cluster", "dgx-h100-superpod")
    assert "512 devices, but the cluster has 128 nodes, and the run uses 2 devices of each (256)." in told


@pytest.mark.parametrize(
    "launcher",
    [
        "srun -N 8 -n 16 python",
        "srun -N 8 --ntasks-per-node 2 python",
        "mpirun -np 16 -N 2 python",
        "accelerate launch --num_machines 8 --num_processes 16",
    ],
)
def test_every_launcher_says_how_many_ranks_a_node_has(launcher: str, priced: Priced) -> None:
    text = APART.replace("torchrun --nnodes 8 --nproc-per-node 2", launcher)
    plan, told = priced(f"#SBATCH --nodes=8\n{text}", "--cluster", "dgx-h100-superpod")
    assert "nest prices nodes of 2 devices" in told
    assert plan["problem"]["cluster"]["devices_per_host"] == 2


def test_levels_inside_a_node_cannot_be_used_in_part(priced: Priced, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    inner = "{fanout: 4, bandwidth: 450 GB/s}, {fanout: 16, bandwidth: 50 GB/s}"
    file.write_text(f"cluster: {{device: h100-sxm, devices_per_host: 8, levels: [{inner}]}}\n")
    _, told = priced(APART, "--cluster", str(file))
    assert "the run has 2 of the 8 devices of each node" in told


def test_a_level_inside_a_usual_machine_is_no_node(priced: Priced, tmp_path: Path) -> None:
    """AWS's g6e.48xlarge has 8 L40S, here on four PCIe switches; a level called `node` is one of any size."""
    file = tmp_path / "cluster.yaml"
    switches = "{fanout: 2, bandwidth: 30 GB/s}, {fanout: 4, bandwidth: 20 GB/s}, {fanout: 4, bandwidth: 10 GB/s}"
    file.write_text(f"cluster: {{device: l40s, levels: [{switches}]}}\n")
    _, told = priced(SCRIPT, "--cluster", str(file))
    assert "ranks per node" not in told
    _, told = priced(SCRIPT.replace("--nproc-per-node 8", "--nproc-per-node gpu"), "--cluster", str(file))
    assert "16 ranks: 2 nodes x 8, from torchrun --nnodes and the machines of the cluster." in told
    _, told = priced(APART, "--cluster", str(file))
    assert "the run has 2 of the 8 devices of each node" in told
    file.write_text(f"cluster: {{device: l40s, levels: [{switches.replace('{', '{name: node, ', 1)}]}}\n")
    _, told = priced(SCRIPT.replace("--nproc-per-node 8", "--nproc-per-node gpu"), "--cluster", str(file))
    assert "4 ranks are no multiple of 16" in told


@pytest.mark.parametrize("written", ["cluster: p5.48xlarge\n", "cluster: {name: p5.48xlarge}\n", CLUSTER])
def test_nodes_have_the_devices_of_the_problem_s_cluster(written: str, priced: Priced, tmp_path: Path) -> None:
    (tmp_path / "problem.yaml").write_text(f"nest: 1\n{written}")
    bare = SCRIPT.replace("torchrun --nnodes 2 --nproc-per-node 8", "python")
    plan, told = priced(bare, str(tmp_path / "problem.yaml"), "--nodes", "2")
    assert "16 ranks: 2 nodes x 8, from --nodes and the machines of the cluster." in told
    assert plan["data_parallel"] == 1


def test_a_type_of_a_cloud_has_as_many_machines_as_the_run(priced: Priced) -> None:
    plan, _ = priced(SCRIPT, "--cluster", "p5.48xlarge")
    assert plan["problem"]["cluster"]["name"] == "p5.48xlarge-16"
    plan, _ = priced(APART, "--cluster", "P5.48xlarge", "--nodes", "16")
    assert [level["fanout"] for level in plan["problem"]["cluster"]["levels"]] == [2, 16]


def test_what_lines_set_differently_is_named_as_the_script_does(priced: Priced) -> None:
    text = SCRIPT.replace("-size 8", "-size $TP").replace("--nnodes 2", "--nnodes $N")
    _, told = priced(f"[ -f x ] && TP=8 || TP=4\nN=2\n{text}", "--cluster", "dgx-h100-superpod")
    assert "--tensor-model-parallel-size is '$TP of line 1', which only a run would tell" in told
    _, told = priced(f"TP=4\nN=2\n[ -f x ] && N=4\n{text}", "--cluster", "dgx-h100-superpod")
    assert "torchrun --nnodes is '$N of line 3'" in told
