"""Accelerate loads what the exporter writes."""

from typing import Any

import pytest

from tests.conformance.consumer import consume, needs, refusal
from tests.conformance.framework_plans import KINDS, files_for

READ = """
import os, tempfile
folder = tempfile.mkdtemp()
path = os.path.join(folder, "accelerate.yaml")
open(path, "w").write(given["accelerate.yaml"])
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import FullyShardedDataParallelPlugin
config = load_config_from_file(path)
prefix = "parallelism_config_"
sizes = {key.removeprefix(prefix): value for key, value in config.parallelism_config.items() if key.endswith("_size")}
parallelism = ParallelismConfig(**sizes)
import torch
from torch.testing._internal.distributed.fake_pg import FakeStore
torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=config.num_processes)
mesh = parallelism.build_device_mesh("cpu")
plugin = None
if config.fsdp_config:
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=config.fsdp_config["fsdp_version"],
        reshard_after_forward=config.fsdp_config["fsdp_reshard_after_forward"],
        activation_checkpointing=config.fsdp_config["fsdp_activation_checkpointing"]).fsdp_version
answer({"type": str(config.distributed_type.value), "processes": config.num_processes, "machines": config.num_machines,
        "mesh": dict(zip(mesh.mesh_dim_names, mesh.shape)), "fsdp": config.fsdp_config, "plugin": plugin,
        "precision": str(config.mixed_precision)})
"""

SCRIPT = """
import importlib.util, os, tempfile
folder = tempfile.mkdtemp()
path = os.path.join(folder, "accelerate_plan.py")
open(path, "w").write(given["accelerate_plan.py"])
spec = importlib.util.spec_from_file_location("accelerate_plan", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
os.environ["ACCELERATE_USE_CPU"] = "true"
found = module.accelerator()
answer([found.gradient_accumulation_steps, module.PER_DEVICE_BATCH_SIZE, module.GLOBAL_BATCH_SIZE])
"""


def _files(kind: str) -> dict[str, Any]:
    needs("accelerate", "torch")
    files = files_for("accelerate", kind)
    assert files is not None
    return files


@pytest.mark.parametrize("kind", ["dense", "zero3"])
def test_the_configuration_is_loaded(kind: str) -> None:
    if kind == "dense":  # Its tensor parallelism is that of Transformers.
        needs("transformers")
    found = consume(READ, _files(kind), of="accelerate")
    assert found["type"] == "FSDP"
    assert (found["processes"], found["machines"]) == (16, 2)
    assert found["mesh"] == ({"dp_shard": 8, "tp": 2} if kind == "dense" else {"dp_shard": 16})
    assert found["fsdp"]["fsdp_reshard_after_forward"] is True
    assert found["fsdp"]["fsdp_activation_checkpointing"] is (kind == "dense")
    assert found["plugin"] == 2
    assert "bf16" in found["precision"].lower()


@pytest.mark.parametrize("kind", ["dense", "zero3"])
def test_the_batch_is_the_plans(kind: str) -> None:
    steps, each, batch = consume(SCRIPT, _files(kind), of="accelerate")
    assert batch == steps * each * (8 if kind == "dense" else 16)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("dense", "zero3")])
def test_what_it_cannot_run_is_refused_by_us(kind: str) -> None:
    assert files_for("accelerate", kind) is None


def test_an_unknown_key_would_be_refused() -> None:
    broken = _files("dense")
    broken["accelerate.yaml"] += "pipeline_size: 2\n"
    assert refusal(READ, broken, of="accelerate") is not None
