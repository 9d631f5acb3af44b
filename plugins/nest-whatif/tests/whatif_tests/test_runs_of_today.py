"""What runs today has one price, and stands beside plans on as many devices."""

from pathlib import Path
from typing import Any

import pytest

import nest
from frameworks_tests.test_from_megatron_command import CLUSTER, SCRIPT
from nest import api
from nest.deployment import LaunchOptions, deployment
from nest.formulate.from_flags import start
from nest.hooks.registry import registry
from nest.io import structure
from nest.spec import Problem
from nest.whatif.changes import changes_of
from nest.whatif.nodes import on_devices

MODEL = "{layers: 8, hidden: 256, ffn: 640, heads: 8, vocab: 1024, gated_mlp: true}"
PROBLEM = f"nest: 1\nmodel: {{transformer: {MODEL}}}\ntraining: {{global_batch: 32, sequence_length: 512}}\n{CLUSTER}"
DEGREES = "tensor_model_parallel_size: 8, sequence_parallel: true"
BRIDGED = f"train: {{global_batch_size: 32, micro_batch_size: 1}}\nmodel: {{{DEGREES}}}\n"
TITAN = "[model]\n[training]\nglobal_batch_size = 32\nlocal_batch_size = 1\nseq_len = 512\n[parallelism]\n"


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.longer
@pytest.mark.parametrize(
    ("framework", "text", "file"),
    [
        ("megatron", SCRIPT, "run.sh"),
        ("megatron", f"{SCRIPT.rstrip()} --overlap-grad-reduce --use-distributed-optimizer\n", "run.sh"),
        ("megatron", f"{SCRIPT.rstrip()} --attention-backend unfused --grad-reduce-in-bf16\n", "run.sh"),
        ("megatron-bridge", f"{BRIDGED}comm_overlap: {{tp_comm_overlap: true}}\n", "bridge.yaml"),
        ("torchtitan", f"{TITAN}tensor_parallel_degree = 8\nenable_async_tensor_parallel = true\n", "titan.toml"),
    ],
)
@pytest.mark.parametrize("more", ["", "strategies: {tp: [1, 2, 4, 8]}\n", "fixed: {zero: 1}\n"])
def test_compare_and_evaluate_price_a_file_alike(
    framework: str, text: str, file: str, more: str, tmp_path: Path
) -> None:
    script, problem = written(tmp_path, file, text), written(tmp_path, "problem.yaml", PROBLEM + more)
    options = LaunchOptions(nodes=2)
    alone = api.evaluate(start(script, framework, problem, options=options).problem)
    for given in (problem, structure(api.read_plan(api.solve(problem)).problem, Problem)):
        (entry,) = nest.compare(given, planners=[], flags={framework: [script]}, options=options).others
        assert entry.plan is not None, entry.reasons
        if given is problem:
            assert entry.plan.batch_time == pytest.approx(alone.batch_time, rel=1e-12)
            assert [stage.memory for stage in entry.plan.stages] == [stage.memory for stage in alone.stages]
        assert api.check(entry.plan).ok


def test_compare_evaluate_and_explain_price_a_file_alike_and_name_the_flag_that_gains_most(tmp_path: Path) -> None:
    script = written(tmp_path, "run.sh", SCRIPT)
    problem = written(tmp_path, "problem.yaml", f"{PROBLEM.replace('512}', '512, overlap: {tensor: true}}')}")
    started = start(script, "megatron", problem)
    alone = api.evaluate(started.problem)
    (entry,) = nest.compare(problem, planners=[], flags={"megatron": [script]}).others
    assert entry.plan is not None
    assert entry.plan.batch_time == alone.batch_time == nest.explain(alone, only=["binding"]).plan.batch_time
    best, *_ = changes_of(started.problem, alone, "megatron", registry(), started.devices).gaining()
    assert best.sentence(alone) in entry.remarks


@pytest.mark.longer
def test_a_run_that_trains_otherwise_is_no_plan_of_the_problem(tmp_path: Path) -> None:
    script = written(tmp_path, "run.sh", f"{SCRIPT.rstrip()} --attention-backend unfused\n")
    (entry,) = nest.compare(
        written(tmp_path, "problem.yaml", PROBLEM), planners=[], flags={"megatron": [script]}
    ).others
    assert not entry.counts
    assert any("attention" in reason and "prices it as the file has it" in reason for reason in entry.reasons)


@pytest.mark.longer
def test_another_model_is_told(tmp_path: Path) -> None:
    script = written(tmp_path, "run.sh", SCRIPT.replace("--hidden-size 256", "--hidden-size 512"))
    (entry,) = nest.compare(
        written(tmp_path, "problem.yaml", PROBLEM), planners=[], flags={"megatron": [script]}
    ).others
    assert "the file's model differs from the problem's; nest prices the problem's." in entry.remarks


LEVELS = [
    {"name": "node", "fanout": 8, "bandwidth": 450e9, "latency": 3e-6},
    {"name": "leaf", "fanout": 4, "bandwidth": 50e9, "latency": 6e-6},
    {"name": "spine", "fanout": 4, "bandwidth": 12e9, "latency": 1e-5},
]
TORUS = {"torus": {"shape": [4, 4], "bandwidth": 50e9, "latency": 1e-6}}


@pytest.mark.longer
@pytest.mark.parametrize(
    ("cluster", "devices", "size"),
    [
        ({"levels": LEVELS}, 8, 8),
        ({"levels": LEVELS}, 24, 24),
        ({"levels": LEVELS}, 4, 128),
        ({"name": "dgx-h100-superpod-1024"}, 8, 8),
        ({"topology": TORUS}, 4, 16),
    ],
)
def test_the_best_plan_has_as_many_devices_as_the_run(cluster: dict[str, Any], devices: int, size: int) -> None:
    model = {"transformer": {"layers": 4, "hidden": 64, "ffn": 256, "heads": 8, "vocab": 1024}}
    device = {} if "name" in cluster else {"device": "h100-sxm"}
    whole = structure(
        {
            "nest": 1,
            "model": model,
            "training": {"global_batch": 24, "sequence_length": 128},
            "cluster": {**cluster, **device},
        },
        Problem,
    )
    cut, told = on_devices(whole, devices, registry())
    assert f"on the {devices} devices of the run" in told
    best = api.solve(cut)
    assert best.summary["devices"] == size
    assert deployment(best).world_size <= devices
    assert on_devices(whole, None, registry()) == (whole, "")
