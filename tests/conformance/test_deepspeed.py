"""DeepSpeed trains with what we write, on as many ranks as the plan has, and cuts pipelines where it cuts."""

import json
import tempfile
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import nest
from nest.hooks.pipelines import deployed
from nest.spec import PlanDocument
from nest_frameworks.common import data_ranks, problem_of, samples
from nest_frameworks.limits import ULYSSES, gradient_format
from tests.conformance.consumer import consume, needs
from tests.conformance.framework_plans import files_for
from tests.conformance.plans import DENSE_MODEL, problem

TRAIN = """
import importlib.util, os, tempfile
import torch
import torch._dynamo
import torch.multiprocessing as processes
import deepspeed
import deepspeed.runtime.zero.muon.muon_optimizer  # And _dynamo: else every rank imports them.
from torch.nn import Linear

class LlamaAttention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, Linear(8, 8, bias=False))

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

def built(files):
    if "deepspeed_pipeline.py" not in files:
        return LlamaModel()
    path = os.path.join(tempfile.mkdtemp(), "deepspeed_pipeline.py")
    open(path, "w").write(files["deepspeed_pipeline.py"])
    spec = importlib.util.spec_from_file_location("deepspeed_pipeline", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pipeline([Linear(8, 8) for _ in module.LAYERS], loss, blocks=["Linear"])

def loss(outputs, labels):
    return (outputs - labels).float().pow(2).mean()

def step(engine, samples):
    \"""The loss of one optimizer step.\"""
    if hasattr(engine, "train_batch"):
        return float(engine.train_batch(iter([samples] * engine.gradient_accumulation_steps())))
    for _ in range(engine.gradient_accumulation_steps()):
        found = loss(engine(samples[0]), samples[1])
        engine.backward(found)
        engine.step()
    return float(found.detach())

def told(files):
    torch.manual_seed(65)
    config = json.loads(files["deepspeed.json"])
    model = built(files)
    for parameter in model.parameters() if hasattr(model, "parts") else ():
        parameter.model_parallel = True  # As of layers that split themselves: norms skip copies on other ranks.
    engine, *_ = deepspeed.initialize(model=model, config=config,
                                      optimizer=torch.optim.AdamW(model.parameters(), lr=0.01))
    sizes = {"steps": engine.gradient_accumulation_steps(), "micro": engine.train_micro_batch_size_per_gpu(),
             "zero": engine.zero_optimization_stage(), "sequence": engine.sequence_parallel_size,
             "accumulated": str(engine.get_data_types()[1]), "reduced": str(engine.communication_data_type)}
    grid = getattr(engine, "grid", None)
    sizes["dp"] = grid.get_data_parallel_world_size() if grid else engine.dp_world_size
    sizes["pp"] = grid.get_pipe_parallel_world_size() if grid else 1
    sizes["tp"] = grid.get_slice_parallel_world_size() if grid else max(engine.autotp_size(), 1)
    if grid:
        sizes |= {"parts": model.parts, "interval": model.activation_checkpoint_interval}
    elif sizes["zero"] < 3:
        sizes["weight"] = list(model.layers[0].self_attn.q_proj.weight.shape)
    samples = [torch.ones(sizes["micro"], 2, 8, dtype=torch.bfloat16)] * 2
    losses = [step(engine, samples) for _ in range(2)]
    assert losses[1] < losses[0], losses
    return sizes | {"trained": engine.global_steps}

def rank(number, store, answers):
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(given["ranks"]))
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=given["ranks"])
    deepspeed.init_distributed("gloo")  # Which pipelines ask for before `initialize`.
    for plan, files in enumerate(given["plans"]):
        try:
            answers.put((plan, told(files)))
        except Exception as error:
            answers.put((plan, f"{type(error).__name__}: {error}"))
    torch.distributed.destroy_process_group()

answers = processes.get_context("fork").SimpleQueue()
with tempfile.TemporaryDirectory() as folder:
    processes.start_processes(rank, (f"{folder}/store", answers), given["ranks"], start_method="fork")
    found = [answers.get() for _ in range(given["ranks"] * len(given["plans"]))]
answer([[each for number, each in found if number == plan] for plan in range(len(given["plans"]))])
"""

EXTENSIONS = str(Path(tempfile.gettempdir()) / "nest-torch-extensions")
CPU = {"DS_ACCELERATOR": "cpu", "DS_BUILD_OPS": "0", "TORCH_EXTENSIONS_DIR": EXTENSIONS}


def _on(ranks: int, fixed: dict[str, Any], **training: Any) -> PlanDocument:
    """A plan on the devices of a node."""
    levels = [{"name": "node", "fanout": ranks, "bandwidth": "450 GB/s", "latency": "3 us"}]
    given = {
        **problem(DENSE_MODEL, {"global_batch": 2 * ranks, **training}, fixed),
        "cluster": {"device": "h100-sxm", "levels": levels},
    }
    return nest.evaluate(given)


def _sizes(plan: PlanDocument) -> dict[str, Any]:
    """What DeepSpeed's engine should say of a plan that it trains."""
    shape = deployed(plan)
    narrow = f"torch.{gradient_format(problem_of(plan).training).replace('bf', 'bfloat').replace('fp', 'float')}"
    sizes = {
        "steps": shape.micro_batches,
        "micro": samples(shape),
        # ZeRO 1 shards nothing on one data-parallel rank, and is what takes gradients wider than weights.
        "zero": max(shape.zero[0], int(narrow == "torch.float32")),
        "sequence": shape.degree(ULYSSES),
        "accumulated": narrow,
        "reduced": narrow,
        "dp": data_ranks(shape),
        "pp": shape.stages,
        "tp": shape.tp,
        "trained": 2,
    }
    if shape.stages > 1:
        parts = [0, *accumulate(len(run.layers) for run in shape.runs)]
        return sizes | {"parts": parts, "interval": int(shape.recompute[0] == "full")}
    return sizes | ({"weight": [8 // shape.tp, 8]} if sizes["zero"] < 3 else {})


def _trained(plans: list[PlanDocument], ranks: int) -> None:
    """`deepspeed.initialize` and two steps over gloo, without an `mpu`, are as planned on every rank."""
    needs("deepspeed", "torch", "transformers")
    given = {"plans": [dict(nest.export(plan, "deepspeed")) for plan in plans], "ranks": ranks}
    found = consume(TRAIN, given, of="deepspeed", seconds=1200, **CPU)
    assert found == [[_sizes(plan)] * ranks for plan in plans]


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "tp"), [(2, 2), (4, 2), (8, 4)])
def test_it_trains_with_zero_and_autotp(ranks: int, tp: int) -> None:
    wholes = [_on(ranks, {"dp": ranks, "zero": zero}) for zero in (1, 2, 3)]
    # AutoTP comes last: DeepSpeed keeps it switched on.
    splits = [_on(ranks, {"tp": tp, "dp": ranks // tp, "zero": zero}) for zero in ((1, 2) if tp < ranks else (0, 1))]
    _trained([_on(ranks, {"dp": ranks, "zero": 0}, gradients="bf16"), *wholes, *splits], ranks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "fixed"),
    [
        (2, {"pp": 2, "zero": 1, "recompute": "full"}),
        (4, {"pp": 4, "zero": 1, "stages": [1, 2, 3, 2]}),
        (4, {"pp": 2, "dp": 2, "zero": 1}),
        (8, {"tp": 2, "pp": 2, "dp": 2, "zero": 1}),
    ],
)
def test_its_pipelines_train(ranks: int, fixed: dict[str, Any]) -> None:
    _trained([_on(ranks, fixed)], ranks)


@pytest.mark.slow
def test_it_refuses_what_we_do_not_write() -> None:
    """Gradients wider than weights without ZeRO, and a batch that counts the samples of tensor-parallel ranks once."""
    needs("deepspeed", "torch", "transformers")
    narrow = json.loads(nest.export(_on(2, {"dp": 2, "zero": 0}, gradients="bf16"), "deepspeed")["deepspeed.json"])
    split = json.loads(nest.export(_on(2, {"tp": 2}), "deepspeed")["deepspeed.json"])
    mixed = {"data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "fp32"}
    plans = [{"deepspeed.json": json.dumps(each)} for each in (narrow | mixed, split | {"train_batch_size": 4})]
    found = consume(TRAIN, {"plans": plans, "ranks": 2}, of="deepspeed", seconds=1200, **CPU)
    assert all("unsupported mix" in each for each in found[0])
    assert all("train_batch_size is not equal" in each for each in found[1])


def test_interleaved_plans_are_refused_by_us() -> None:
    assert files_for("deepspeed", "interleaved") is None
