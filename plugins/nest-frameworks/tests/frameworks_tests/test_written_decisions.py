"""What single decisions are in the files of each framework."""

import ast
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

from frameworks_tests.plans import DENSE, SPARSE, plan
from frameworks_tests.reading import parsed
from nest.hooks.pipelines import deployed
from nest.hooks.placements import Placed, placement
from nest.hooks.registry import registry
from nest.spec import LevelSpec, PoolSpec
from nest.units import BytesPerSecond
from nest_frameworks import common
from nest_frameworks.common import shard_ranks
from nest_frameworks.kubernetes_jobs import _kept, jobset
from nest_frameworks.launchers import _rankfile, gpu_maps, nodes_of
from nest_frameworks.maxtext import _per_device
from nest_frameworks.slurm_job import sbatch

TITAN, PIPELINE = "torchtitan.toml", "deepspeed_pipeline.py"
WHOLE, SHARDED = {"dp": 16, "zero": 3}, {"dp": 16, "zero": 2, "micro_batch": 2}
STAGED = {"pp": 2, "dp": 8, "zero": 1, "micro_batch": 1}

Case = tuple[str, str, str, Any, dict[str, Any], dict[str, Any]]
DECISIONS: dict[str, Case] = {
    "deepspeed-zero-1-of-wide-gradients": (
        "deepspeed", "deepspeed.json", "zero_optimization.stage", 1, {"tp": 4, "dp": 1, "zero": 0}, {}
    ),
    "deepspeed-tensor-ranks": ("deepspeed", PIPELINE, "num_mp", "TENSOR_PARALLEL", STAGED, {}),
    "deepspeed-data-ranks": ("deepspeed", PIPELINE, "num_dp", "DATA_PARALLEL", STAGED, {}),
    "torchtitan-local-batch": ("torchtitan", TITAN, "training.local_batch_size", 4, STAGED, {}),
    "torchtitan-keeps-weights": ("torchtitan", TITAN, "parallelism.fsdp_reshard_after_forward", "never", STAGED, {}),
    "accelerate-keeps-weights": (
        "accelerate", "accelerate.yaml", "fsdp_config.fsdp_reshard_after_forward", False, SHARDED, {}
    ),
    "accelerate-reduces-each": ("accelerate", "accelerate_plan.py", "sync_each_batch", True, WHOLE, {}),
    "lightning-devices": ("lightning", "lightning_plan.py", "TRAINER.devices", 4, WHOLE, {}),
    "lightning-gradients": ("lightning", "lightning_plan.py", "reduce_dtype", "torch.float32", WHOLE, {}),
    "axolotl-checkpoints-once": (
        "axolotl", "axolotl.yaml", "gradient_checkpointing", False, {**WHOLE, "recompute": "full"}, {}
    ),
    "llama-factory-checkpoints": (
        "llama-factory", "llama_factory.yaml", "disable_gradient_checkpointing", False,
        {**WHOLE, "recompute": "full"}, {},
    ),
    "galvatron-zero-1": ("galvatron", "galvatron_config.json", "default_dp_type", "zero2", STAGED, {}),
    "galvatron-reduces-once": (
        "galvatron", "galvatron_overrides.sh", "runtime.parallel.async_grad_reduce", "True", STAGED, {}
    ),
    "nanotron-gradients": ("nanotron", "nanotron.yaml", "optimizer.accumulate_grad_in_fp32", True, {"dp": 16}, {}),
}  # fmt: skip
"""Framework, file, key, value; fixed decisions and keys of the training."""


@pytest.mark.parametrize("decision", DECISIONS)
def test_a_decision_has_its_key(decision: str) -> None:
    framework, file, key, value, fixed, training = DECISIONS[decision]
    found: Any = parsed(registry().exporters()[framework].export(plan(fixed, **training)))[file]
    for step in [key] if key in found else key.split("."):
        found = found[step]
    assert found == value


def test_the_last_norm_and_the_head_are_the_last_part_of_torchtitan() -> None:
    parts = parsed(registry().exporters()["torchtitan"].export(plan(STAGED)))[TITAN]["parallelism"]
    assert parts["module_fqns_per_model_part"][-1][-2:] == ["norm", "output"]
    assert parts["module_fqns_per_model_part"][0][0] == "tok_embeddings"


def test_maxtext_comes_to_the_batch_whatever_the_rounding() -> None:
    for devices in range(1, 64):
        for batch in range(1, 200):
            assert int(devices * _per_device(batch, devices)) == batch


def written(fixed: dict[str, Any], model: Any = DENSE) -> tuple[str, dict[str, Any]]:
    """The module for PyTorch, and what it says."""
    files = registry().exporters()["pytorch"].export(plan(fixed, model))
    return files["pytorch_plan.py"], parsed(files)["pytorch_plan.py"]


def test_meshes_have_their_fastest_dimension_last() -> None:
    """As the rank table counts: with nothing sharded the ranks of context parallelism replicate."""
    assert list(written({"dp": 8, "cp": 2, "zero": 0})[1]["MESH"]) == ["pp", "dp_replicate", "cp", "dp_shard", "tp"]
    assert list(written({"dp": 8, "cp": 2, "zero": 3})[1]["MESH"]) == ["pp", "dp_replicate", "dp_shard", "cp", "tp"]
    experts = written({"dp": 8, "tp": 2, "ep": 2, "etp": 2, "zero": 0}, SPARSE)[1]["EXPERT_MESH"]
    assert list(experts) == ["pp", "edp", "ep", "etp"]


def function(text: str, name: str, **known: Any) -> Any:
    """One function of a module, run with these names and the module's own constants."""
    tree = ast.parse(text)
    kept = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == name]
    kept_names = [each for each in tree.body if isinstance(each, ast.Assign)]
    space = dict(known)
    exec(compile(ast.Module([*kept_names, *kept], []), "pytorch_plan.py", "exec"), space)
    return space[name]


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_fsdp_holds_back_what_the_zero_stage_says(zero: int) -> None:
    told: dict[str, bool] = {}
    model = SimpleNamespace(
        set_requires_gradient_sync=lambda on: told.update(reduced=on),
        set_reshard_after_backward=lambda on: told.update(resharded=on),
    )
    before = function(written({"dp": 8, "zero": zero, "micro_batch": 2})[0], "before_backward")
    before(model, 0)
    assert told == {"reduced": zero >= 2, "resharded": zero == 3}
    before(model, 1)
    assert told == {"reduced": True, "resharded": True}


def test_as_many_blocks_are_checkpointed_as_the_plan_recomputes(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper, fsdp = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper", "torch.distributed.fsdp"
    for path in (wrapper, fsdp):
        parts = path.split(".")
        for depth in range(1, len(parts) + 1):
            name = ".".join(parts[:depth])
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules[wrapper].checkpoint_wrapper = lambda block: ("again", block)  # type: ignore[attr-defined]
    sys.modules[fsdp].fully_shard = lambda module, **_: module  # type: ignore[attr-defined]
    text, _ = written({"dp": 1, "tp": 2, "recompute": "full", "recompute_layers": 3})
    inside = SimpleNamespace(**{str(number): number for number in range(8)})
    model = SimpleNamespace(get_submodule=lambda path: inside if path == "layers" else None)
    function(text, "wrap")({f"layers.{number}": number for number in range(8)}, model, None)
    assert [isinstance(getattr(inside, str(number)), tuple) for number in range(8)] == [True] * 3 + [False] * 5


def test_shards_are_whole_groups_of_context_parallelism() -> None:
    shape = deployed(plan({"dp": 8, "cp": 2, "zero": 3, "zero_degree": 8}))
    assert shard_ranks(shape, "a framework") == 4


def test_of_pools_the_smallest_scale_up_network_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    network = LevelSpec(2, BytesPerSecond(5e10), link="infiniband-ndr")
    pools = [
        PoolSpec(f"of {size}", (LevelSpec(size, BytesPerSecond(4e11), link="nvlink4"), network)) for size in (8, 4)
    ]
    monkeypatch.setattr(common, "cluster_spec", lambda _: SimpleNamespace(pools=pools))
    stages = [SimpleNamespace(pool=pool.name) for pool in pools]
    assert common.domain_of(SimpleNamespace(stages=stages)) == 4  # type: ignore[arg-type]


def moved(document: Any) -> tuple[Placed, ...]:
    """Ranks on the accelerators of their machines in the opposite order."""
    return tuple(evolve(each, gpu=3 - each.gpu) for each in placement(document))


def test_accelerators_are_told_in_the_order_of_ranks_and_slots_are_processes() -> None:
    placed = moved(plan({"dp": 16}))
    nodes = nodes_of(placed)
    assert gpu_maps(nodes, "name") == ["export CUDA_VISIBLE_DEVICES=3,2,1,0"]
    slots = [line.rpartition("=")[2] for line in _rankfile(placed, nodes).splitlines()]
    assert slots == ["0", "1", "2", "3"] * 4


def test_a_batch_script_asks_for_a_task_a_rank() -> None:
    text = sbatch(plan({"dp": 16}))["slurm_job.sh"]
    assert "#SBATCH --nodes=4\n#SBATCH --ntasks=16\n#SBATCH --gpus-per-node=4\n" in text


def test_pods_ask_for_all_accelerators_and_leave_the_shell_its_variables() -> None:
    document = plan({"dp": 16})
    assert "nvidia.com/gpu: 4\n" in jobset(document)["jobset.yaml"]
    assert _kept("echo $(hostname) $((1 + 2)) $HOME") == "echo $$(hostname) $$((1 + 2)) $HOME"
