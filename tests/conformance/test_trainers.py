"""Lightning runs the strategy that nest writes, and its mesh."""

from collections.abc import Mapping
from typing import Any

from frameworks_tests.plans import plan
from nest.hooks.registry import registry
from tests.conformance.consumer import consume, needs

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


def test_lightning_runs_the_strategy() -> None:
    needs("lightning", "torch")
    text = files("lightning", {"dp": 8, "tp": 2, "zero": 3, "recompute": "full", "micro_batch": 1})["lightning_plan.py"]
    found = consume(STRATEGY, text, of="lightning")
    assert found["mesh"] == {"data_parallel": 8, "tensor_parallel": 2}
    assert found["steps"] == 4
    assert found["type"] == "FSDPModule"
    assert found["blocks"].startswith("FSDP")
    assert found["local"] == 1
