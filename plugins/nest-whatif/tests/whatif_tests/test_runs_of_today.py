"""What runs today has one price, and stands beside plans on as many devices."""

from pathlib import Path

import pytest

import nest
from frameworks_tests.test_from_megatron_command import CLUSTER, SCRIPT
from nest import api
from nest.formulate.from_flags import start
from nest.hooks.registry import registry
from nest.whatif.changes import changes_of

MODEL = "{layers: 8, hidden: 256, ffn: 640, heads: 8, vocab: 1024, gated_mlp: true}"
PROBLEM = f"nest: 1\nmodel: {{transformer: {MODEL}}}\ntraining: {{global_batch: 32, sequence_length: 512}}\n{CLUSTER}"


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.longer
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
