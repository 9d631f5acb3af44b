"""DeepSpeed's configuration class accepts the JSON, and its pipeline module cuts where the plan cuts."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

import nest
from tests.conformance.consumer import consume, needs, refusal
from tests.conformance.framework_plans import KINDS, files_for, plan_for
from tests.conformance.plans import DENSE_MODEL, problem

READ = """
import torch
from torch.testing._internal.distributed.fake_pg import FakeStore
torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=16)
import deepspeed.comm as comm
comm.init_distributed(dist_backend="fake", dist_init_required=False)
from deepspeed.runtime.config import DeepSpeedConfig
if given["stages"] > 1:
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology, PipelineParallelGrid
    topology = PipeModelDataParallelTopology(num_pp=given["stages"], num_mp=1, num_dp=16 // given["stages"])
    config = DeepSpeedConfig(given["config"], mpu=PipelineParallelGrid(topology=topology))
else:
    config = DeepSpeedConfig(given["config"])
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

INITIALIZE = """
import torch
import torch.multiprocessing as processes
import deepspeed

class LlamaAttention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, torch.nn.Linear(8, 8, bias=False))

    def forward(self, x):
        return self.o_proj(self.q_proj(x) * self.k_proj(x) + self.v_proj(x))

class LlamaDecoderLayer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = LlamaAttention()

    def forward(self, x):
        return x + self.self_attn(x)

class LlamaModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([LlamaDecoderLayer(), LlamaDecoderLayer()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

def told(config):
    model = LlamaModel()
    optimizer = torch.optim.AdamW(model.parameters())
    try:
        engine, *_ = deepspeed.initialize(model=model, config=config, optimizer=optimizer)
        engine.backward(engine(torch.ones(1, 2, 8, dtype=torch.bfloat16)).sum())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return {
        "tp": engine.autotp_size(),
        "weight": list(model.layers[0].self_attn.q_proj.weight.shape),
        "micro": engine.train_micro_batch_size_per_gpu(),
        "steps": engine.gradient_accumulation_steps(),
        "accumulated": str(engine.get_data_types()[1]),
        "reduced": str(engine.communication_data_type),
        "sequence": engine.sequence_parallel_size,
    }

def rank(number, store, configs, answers):
    import os
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(given["ranks"]))
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=given["ranks"])
    for config in configs:
        answers.put((number, told(config)))
    torch.distributed.destroy_process_group()

import tempfile
answers = processes.get_context("fork").SimpleQueue()
with tempfile.TemporaryDirectory() as folder:
    arguments = (f"{folder}/store", given["configs"], answers)
    processes.start_processes(rank, arguments, given["ranks"], start_method="fork")
    found = [answers.get() for _ in range(given["ranks"] * len(given["configs"]))]
answer([[each for number, each in found if number == rank] for rank in range(given["ranks"])])
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
    return {"config": json.loads(_files(kind)["deepspeed.json"]), "stages": len(plan_for("deepspeed", kind).stages)}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "interleaved"])
def test_its_configuration_accepts_the_json(kind: str) -> None:
    found = consume(READ, _given(kind), of="deepspeed", **CPU)
    plan = plan_for("deepspeed", kind)
    assert found["micro"] * found["steps"] * RANKS[kind] == 32
    if found["tp"] == 0:  # Beside AutoTP it counts tensor-parallel ranks too.
        assert found["batch"] == 32
    assert found["zero"] == plan.stages[0].zero
    assert found["tp"] == (2 if kind == "dense" else 0)
    assert found["ep"] == (4 if kind == "moe" else 1)
    assert found["bf16"]
    assert found["checkpoints"] == (8 if kind in ("dense", "uneven") else None)


def _on(ranks: int, fixed: dict[str, Any], **training: Any) -> dict[str, Any]:
    """What is written for a plan on the devices of a node."""
    levels = [{"name": "node", "fanout": ranks, "bandwidth": "450 GB/s", "latency": "3 us"}]
    given = {**problem(DENSE_MODEL, training, fixed), "cluster": {"device": "h100-sxm", "levels": levels}}
    written: dict[str, Any] = json.loads(nest.export(nest.evaluate(given), "deepspeed")["deepspeed.json"])
    return written


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "tp"), [(2, 2), (4, 2), (8, 4)])
def test_it_starts_with_what_we_write(ranks: int, tp: int) -> None:
    """`deepspeed.initialize` and a backward pass over gloo, without an `mpu`; AutoTP among the plans."""
    needs("deepspeed", "torch", "transformers")
    narrow = _on(ranks, {"dp": ranks, "zero": 0}, gradients="bf16")
    # DeepSpeed adds up gradients of several data-parallel ranks in fp32 from ZeRO 1 on.
    splits = [_on(ranks, {"tp": tp, "dp": ranks // tp, "zero": zero}) for zero in ((1, 2) if tp < ranks else (1, 0))]
    mixed = {"data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "fp32"}
    wholes = [_on(ranks, {"dp": ranks, "zero": zero}) for zero in (1, 2, 3)]
    # AutoTP comes last: DeepSpeed keeps it switched on.
    configs = [narrow, *wholes, narrow | mixed, splits[0] | {"train_batch_size": 32}, *splits]
    wide = {"micro": 1, "sequence": 1, "accumulated": "torch.float32", "reduced": "torch.float32"}
    whole = {**wide, "tp": 0, "weight": [8, 8], "steps": 32 // ranks}
    narrowed = {**whole, "accumulated": "torch.bfloat16", "reduced": "torch.bfloat16"}
    split = {**wide, "tp": tp, "weight": [8 // tp, 8], "steps": 32 * tp // ranks}
    for told in consume(INITIALIZE, {"configs": configs, "ranks": ranks}, of="deepspeed", seconds=1200, **CPU):
        assert told[0] == narrowed
        assert told[1:4] == [whole] * 3
        assert "unsupported mix" in told[4]
        assert "train_batch_size is not equal" in told[5]
        assert told[6:] == [split] * 2


def test_interleaved_plans_are_refused_by_us() -> None:
    assert files_for("deepspeed", "interleaved") is None


def test_a_batch_that_is_no_product_would_be_refused() -> None:
    given = _given("zero3")
    given["config"]["train_batch_size"] = 33
    assert "batch" in (refusal(READ, given, of="deepspeed", **CPU) or "")


def test_an_unknown_key_of_zero_would_be_refused() -> None:
    given = _given("dense")
    given["config"]["zero_optimization"]["stages"] = 1
    assert refusal(READ, given, of="deepspeed", **CPU) is not None


@pytest.mark.parametrize(("rank", "mine"), [(0, [0, 2]), (5, [2, 4]), (9, [4, 7]), (15, [7, 10])])
def test_the_pipeline_is_cut_where_the_plan_cuts(rank: int, mine: list[int]) -> None:
    found = consume(CUT, {"text": _files("uneven")["deepspeed_pipeline.py"], "rank": rank}, of="deepspeed", **CPU)
    assert found == {"parts": [0, 2, 4, 7, 10], "mine": mine, "interval": 1}
