"""Hugging Face's parser takes what the exporters around its Trainer write; Lightning runs its strategy's mesh."""

from collections.abc import Mapping
from typing import Any

import pytest

from frameworks_tests.plans import plan
from frameworks_tests.reading import parsed
from nest.hooks.registry import registry
from tests.conformance.consumer import consume, needs

ARGUMENTS = """
import os
os.environ["ACCELERATE_USE_CPU"] = "true"
from transformers import HfArgumentParser, TrainingArguments
found, = HfArgumentParser(TrainingArguments).parse_dict({**given, "use_cpu": True}, allow_extra_keys=False)
kwargs = found.accelerator_config.gradient_accumulation_kwargs
answer([found.per_device_train_batch_size, found.gradient_accumulation_steps, found.bf16, str(found.optim.value),
        found.gradient_checkpointing, kwargs])
"""

STRATEGY = """
import os, tempfile, importlib.util
path = os.path.join(tempfile.mkdtemp(), "lightning_plan.py")
open(path, "w").write(given)
spec = importlib.util.spec_from_file_location("lightning_plan", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
import lightning, torch
from lightning.fabric.strategies.model_parallel import _setup_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
world = module.TRAINER["num_nodes"] * module.TRAINER["devices"]
torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
strategy = module.strategy()
trainer = lightning.Trainer(accelerator="cpu", strategy=strategy, logger=False, enable_checkpointing=False,
                            **{**module.TRAINER, "num_nodes": 1, "devices": 1})
mesh = _setup_device_mesh(module.DATA_PARALLEL, module.TENSOR_PARALLEL, world, torch.device("cpu"))
blocks = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()) for _ in range(2)])
model = torch.nn.Sequential(*blocks, torch.nn.Linear(8, 8))
holder = torch.nn.Module(); holder.blocks = blocks; holder.head = torch.nn.Linear(8, 8)
module.wrap(holder, holder.blocks, mesh)
x = torch.ones(2, 8)
for block in holder.blocks:
    x = block(x)
x.sum().backward()
answer({"mesh": dict(zip(mesh.mesh_dim_names, mesh.shape)), "steps": trainer.accumulate_grad_batches,
        "type": type(holder).__name__, "blocks": type(holder.blocks[0]).__name__,
        "local": next(holder.blocks[0].parameters()).to_local().shape[0]})
"""


def files(name: str, fixed: Mapping[str, Any], **training: Any) -> dict[str, str]:
    return dict(registry().exporters()[name].export(plan(fixed, **training)))


@pytest.mark.parametrize(
    ("fixed", "steps", "checkpointed", "kwargs"),
    [
        ({"dp": 16, "zero": 3, "recompute": "full", "micro_batch": 1}, 2, False, {"sync_each_batch": True}),
        ({"dp": 8, "recompute": "full", "micro_batch": 2}, 2, True, None),
    ],
)
def test_the_trainers_arguments_are_parsed(
    fixed: dict[str, Any], steps: int, checkpointed: bool, kwargs: dict[str, Any] | None
) -> None:
    needs("transformers", "accelerate", "torch")
    given = parsed(files("transformers", fixed))["training_args.json"]
    # bf16 asks for a GPU.
    found = consume(ARGUMENTS, {**given, "bf16": False}, of="transformers")
    assert found == [fixed["micro_batch"], steps, False, "adamw_torch_fused", checkpointed, kwargs]


def test_lightning_runs_the_strategy() -> None:
    needs("lightning", "torch")
    text = files("lightning", {"dp": 8, "tp": 2, "zero": 3, "recompute": "full", "micro_batch": 1})["lightning_plan.py"]
    found = consume(STRATEGY, text, of="lightning")
    assert found["mesh"] == {"data_parallel": 8, "tensor_parallel": 2}
    assert found["steps"] == 4
    assert found["type"] == "FSDPModule"
    assert found["blocks"].startswith("FSDP")
    assert found["local"] == 1
