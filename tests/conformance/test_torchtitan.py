"""torchtitan reads what the exporter writes: 0.2.2 its TOML, 0.3.0 its Python."""

from typing import Any

import pytest

from nest_frameworks.torchtitan.reading import read
from tests.conformance.consumer import consume, needs, refusal, versions
from tests.conformance.framework_plans import KINDS, files_for

READ_TOML = """
import dataclasses, os, sys, tempfile
folder = tempfile.mkdtemp()
for name, text in given.items():
    open(os.path.join(folder, name), "w").write(text)
os.chdir(folder)
sys.path.insert(0, folder)
from torchtitan.config import ConfigManager
config = ConfigManager().parse_args(["--job.config_file", os.path.join(folder, "torchtitan.toml")])
"""

BUILD = (
    READ_TOML
    + """
import importlib
import torch
import torchtitan.distributed.parallel_dims as dims
from torchtitan.protocols.train_spec import get_train_spec
if config.experimental.custom_import:
    importlib.import_module(config.experimental.custom_import)
p = config.parallelism
world = (p.data_parallel_replicate_degree * p.data_parallel_shard_degree * p.context_parallel_degree
         * p.tensor_parallel_degree * p.pipeline_parallel_degree)
from torch.testing._internal.distributed.fake_pg import FakeStore
torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
dims.device_type = "cpu"
found = dims.ParallelDims(
    dp_replicate=p.data_parallel_replicate_degree, dp_shard=p.data_parallel_shard_degree, cp=p.context_parallel_degree,
    tp=p.tensor_parallel_degree, pp=p.pipeline_parallel_degree, ep=p.expert_parallel_degree,
    etp=p.expert_tensor_parallel_degree, world_size=world)
found.build_mesh()
sizes = {name: found._meshes[name].size() for name in found._meshes}
modules = None
if config.model.name == "llama3":
    spec = get_train_spec("llama3")
    arguments = spec.model_args[config.model.flavor]
    with torch.device("meta"):
        model = spec.model_cls(arguments)
    modules = {name for name, _ in model.named_modules()}
    known = [fqn in modules for part in (p.module_fqns_per_model_part or []) for fqn in part]
    assert all(known), "a module name is unknown"
    modules = [model.layers["0"].feed_forward.w1.weight.shape[0], len(model.layers),
               model.layers["0"].attention.wk.weight.shape[0]]
answer({"sizes": sizes, "config": dataclasses.asdict(p), "training": dataclasses.asdict(config.training),
        "recompute": config.activation_checkpoint.mode, "modules": modules})
"""
)

READ_SCHEDULE = """
import csv, io
from torch.distributed.pipelining.schedules import _Action, _validate_schedule
rows = enumerate(csv.reader(io.StringIO(given["text"])))
rows = {rank: [_Action.from_str(word) for word in row] for rank, row in rows}
found = _validate_schedule(rows, given["ranks"], given["stages"], given["micro_batches"])
answer({str(stage): rank for stage, rank in found.items()})
"""

RUN_CONFIGURATION = """
import importlib.util, dataclasses, os, tempfile
folder = tempfile.mkdtemp()
for name, text in given["files"].items():
    open(os.path.join(folder, name), "w").write(text)
spec = importlib.util.spec_from_file_location("torchtitan_plan", os.path.join(folder, "torchtitan_plan.py"))
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
if given["known"]:
    config = module.plan()
else:
    from torchtitan.models.llama3.config_registry import llama3_debugmodel
    config = module.apply(llama3_debugmodel())
config.__post_init__()
answer({"config": dataclasses.asdict(config.parallelism), "local": config.training.local_batch_size,
        "recompute": type(config.activation_checkpoint).__qualname__,
        "flavor": config.model_spec.flavor, "sequence": config.training.seq_len})
"""


def _needs_titan(version: str) -> None:
    needs("torchtitan", "torch")
    (found,) = versions("torchtitan")
    if found is None or not found.startswith(version):
        pytest.skip(f"the interpreter has torchtitan {found}, not {version}")


@pytest.mark.parametrize("kind", KINDS)
def test_its_configuration_manager_reads_the_toml_and_builds_the_mesh(kind: str) -> None:
    _needs_titan("0.2.")
    files = files_for("torchtitan", kind)
    assert files is not None
    found = consume(BUILD, files, of="torchtitan")
    sizes, told = found["sizes"], found["config"]
    assert sizes["pp"] == {"dense": 2, "moe": 2, "uneven": 4, "interleaved": 4, "zero3": 1}[kind]
    assert sizes["tp"] == 2
    assert sizes["fsdp"] == {"dense": 4, "moe": 4, "uneven": 2, "interleaved": 2, "zero3": 8}[kind]
    assert sizes["ep"] == (4 if kind == "moe" else 1)
    assert told["fsdp_reshard_after_forward"] == ("always" if kind == "zero3" else "never")
    if kind != "moe":
        assert found["modules"] == [1024, 8, 128]
    if kind == "uneven":
        assert [len(part) for part in told["module_fqns_per_model_part"]] == [2, 2, 3, 4]
    if kind == "interleaved":
        assert told["pipeline_parallel_schedule"] == "Interleaved1F1B"
        assert len(told["module_fqns_per_model_part"]) == 8


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "zero3"])
def test_torch_validates_the_schedule(kind: str) -> None:
    needs("torch")
    files = files_for("torchtitan", kind)
    assert files is not None
    ranks = 2 if kind in ("dense", "moe") else 4
    stages = ranks * (2 if kind == "interleaved" else 1)
    micro_batches = 32 // (16 // 2 // ranks)
    given = {"text": files["pipeline_schedule.csv"], "ranks": ranks, "stages": stages, "micro_batches": micro_batches}
    assert consume(READ_SCHEDULE, given, of="torchtitan") == {str(stage): stage % ranks for stage in range(stages)}
    rows = [row.split(",") for row in given["text"].splitlines()]
    rows[0].append(rows[0].pop(0))
    assert refusal(READ_SCHEDULE, {**given, "text": "\n".join(map(",".join, rows))}, of="torchtitan") is not None


def test_an_unknown_key_would_be_refused() -> None:
    _needs_titan("0.2.")
    files = files_for("torchtitan", "dense")
    assert files is not None
    broken = {**files, "torchtitan.toml": files["torchtitan.toml"].replace("pipeline_parallel_degree", "pipes")}
    assert refusal(READ_TOML, broken, of="torchtitan") is not None


@pytest.mark.parametrize("kind", KINDS)
def test_the_python_configuration_is_a_run(kind: str) -> None:
    _needs_titan("0.3.")
    files = files_for("torchtitan", kind)
    assert files is not None
    found = consume(RUN_CONFIGURATION, {"files": files, "known": False}, of="torchtitan")
    assert found["config"]["pipeline_parallel_degree"] == {"zero3": 1, "dense": 2, "moe": 2}.get(kind, 4)
    assert found["recompute"] == ("FullAC.Config" if kind in ("dense", "zero3") else "NoneType")
    assert found["sequence"] == 512


@pytest.mark.parametrize("config", ["llama-3-8b", "qwen3-8b", "qwen3-30b-a3b", "deepseek-v3"])
def test_known_sizes_are_found(config: str) -> None:
    _needs_titan("0.3.")
    files, flavor = known(config)
    found = consume(RUN_CONFIGURATION, {"files": files, "known": True}, of="torchtitan")
    assert found["flavor"] == flavor


def known(name: str) -> tuple[dict[str, Any], str]:
    """Files for a plan of a published model on 8 devices, and torchtitan's name of its size."""
    from frameworks_tests.published import PUBLISHED, published_plan
    from nest.hooks.registry import registry

    return dict(registry().exporters()["torchtitan"].export(published_plan(name))), PUBLISHED[name]


COUNT = """
import torch
from torchtitan.config.job_config import ActivationCheckpoint
from torchtitan.distributed import activation_checkpoint
counts = []
for rank in given["ranks"]:
    activation_checkpoint._layer_sac_count = 0  # Ranks are processes.
    for size in rank:
        part = torch.nn.Module()
        part.layers = torch.nn.ModuleDict({str(index): torch.nn.Identity() for index in range(size)})
        activation_checkpoint.apply_ac(
            part, ActivationCheckpoint(mode="selective", selective_ac_option=given["option"])
        )
        counts.append(sum("CheckpointWrapper" in type(each).__name__ for each in part.layers.values()))
answer(counts)
"""


@pytest.mark.parametrize("option", ["2", "3", "5"])
@pytest.mark.parametrize(
    ("schedule", "ranks"), [("1F1B", [[8], [9], [8], [7]]), ("Interleaved1F1B", [[4, 4], [5, 4], [4, 4], [4, 3]])]
)
def test_every_nth_block_is_counted_as_the_reader_does(schedule: str, ranks: list[list[int]], option: str) -> None:
    _needs_titan("0.2")
    counts = consume(COUNT, {"ranks": ranks, "option": option}, of="torchtitan")
    parallelism = f"pipeline_parallel_degree = 4\npipeline_parallel_schedule = '{schedule}'"
    found = read(
        f"[model]\nflavor = '8B'\n[parallelism]\ndata_parallel_shard_degree = 2\n{parallelism}\n"
        f"[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = '{option}'\n"
    )
    assert found.settings["fixed"].get("recompute_layers", 0) == min(counts)
    told = f"runs {min(counts)} blocks" if min(counts) == max(counts) else f"runs {min(counts)} to {max(counts)} blocks"
    assert any(told in note for note in found.notes)
