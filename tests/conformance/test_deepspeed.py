"""DeepSpeed's configuration class accepts the JSON, and its pipeline module cuts where the plan cuts."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.consumer import consume, needs, refusal
from tests.conformance.framework_plans import KINDS, files_for, plan_for

READ = """
import torch
from torch.testing._internal.distributed.fake_pg import FakeStore
torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=16)
import deepspeed.comm as comm
comm.init_distributed(dist_backend="fake", dist_init_required=False)
from deepspeed.runtime.config import DeepSpeedConfig
class Ranks:
    def get_data_parallel_world_size(self):
        return given["data_parallel"]
config = DeepSpeedConfig(given["config"], mpu=Ranks())
answer({"batch": config.train_batch_size, "micro": config.train_micro_batch_size_per_gpu,
        "steps": config.gradient_accumulation_steps, "zero": int(config.zero_optimization_stage),
        "tp": config.tensor_parallel_config.autotp_size, "pipeline": config.pipeline,
        "checkpoints": config.activation_checkpointing_config.number_checkpoints,
        "bf16": config.bfloat16_config.enabled,
        "ep": getattr(config.expert_parallel_config, "autoep_size", 1)})
"""

CUT = """
import importlib.util, os, tempfile
import torch
from torch.testing._internal.distributed.fake_pg import FakeStore
folder = tempfile.mkdtemp()
path = os.path.join(folder, "deepspeed_pipeline.py")
open(path, "w").write(given["text"])
os.environ["LOCAL_RANK"] = "0"
torch.distributed.init_process_group("fake", store=FakeStore(), rank=given["rank"], world_size=16)
import deepspeed.comm as comm
comm.init_distributed(dist_backend="fake", dist_init_required=False)
spec = importlib.util.spec_from_file_location("deepspeed_pipeline", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
layers = [torch.nn.Linear(4, 4) for _ in module.LAYERS]
found = module.pipeline(layers, loss_fn=None, blocks=["Linear"])
answer({"parts": found.parts, "mine": [found._local_start, found._local_stop],
        "interval": found.activation_checkpoint_interval})
"""

EXTENSIONS = str(Path(tempfile.gettempdir()) / "nest-torch-extensions")
CPU = {"DS_ACCELERATOR": "cpu", "DS_BUILD_OPS": "0", "TORCH_EXTENSIONS_DIR": EXTENSIONS}
RANKS = {"dense": 8, "moe": 16, "uneven": 4, "zero3": 16}


def _files(kind: str) -> dict[str, str]:
    needs("deepspeed", "torch")
    files = files_for("deepspeed", kind)
    assert files is not None
    return files


def _given(kind: str) -> dict[str, Any]:
    return {"config": json.loads(_files(kind)["deepspeed.json"]), "data_parallel": RANKS[kind]}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "interleaved"])
def test_its_configuration_accepts_the_json(kind: str) -> None:
    found = consume(READ, _given(kind), **CPU)
    plan = plan_for("deepspeed", kind)
    assert found["batch"] == 32 == found["micro"] * found["steps"] * RANKS[kind]
    assert found["zero"] == plan.stages[0].zero
    assert found["tp"] == (2 if kind == "dense" else 0)
    assert found["ep"] == (4 if kind == "moe" else 1)
    assert found["bf16"]
    assert found["checkpoints"] == (8 if kind in ("dense", "uneven") else None)


def test_interleaved_plans_are_refused_by_us() -> None:
    assert files_for("deepspeed", "interleaved") is None


def test_a_batch_that_is_no_product_would_be_refused() -> None:
    given = _given("dense")
    given["config"]["train_batch_size"] = 33
    assert "batch" in (refusal(READ, given, **CPU) or "")


def test_an_unknown_key_of_zero_would_be_refused() -> None:
    given = _given("dense")
    given["config"]["zero_optimization"]["stages"] = 1
    assert refusal(READ, given, **CPU) is not None


@pytest.mark.parametrize(("rank", "mine"), [(0, [0, 2]), (5, [2, 4]), (9, [4, 7]), (15, [7, 10])])
def test_the_pipeline_is_cut_where_the_plan_cuts(rank: int, mine: list[int]) -> None:
    found = consume(CUT, {"text": _files("uneven")["deepspeed_pipeline.py"], "rank": rank}, **CPU)
    assert found == {"parts": [0, 2, 4, 7, 10], "mine": mine, "interval": 1}
