"""What torchtitan's files run: there and back, and files as people write them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

import nest
from frameworks_tests.plans import DENSE, SPARSE, assert_same_run, on_stack, plan
from frameworks_tests.published import PUBLISHED, published_plan
from frameworks_tests.random_plans import plans
from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest.formulate.from_flags import start
from nest.formulate.model import resolve_model
from nest.hooks.architectures import architecture_of
from nest.hooks.pipelines import deployed
from nest.io import unstructure
from nest.spec import PlanDocument
from nest_frameworks import torchtitan
from nest_frameworks.torchtitan.models import FLAVORS, NEW, flavor
from nest_frameworks.torchtitan.reading import read


def back(document: PlanDocument, folder: Path) -> PlanDocument | None:
    """The plan that the exported file describes on the same cluster; None: 0.2 cannot run it."""
    try:
        files = torchtitan.export(document, "0.2")
    except InputError:
        return None
    written, problem = folder / torchtitan.TOML_FILE, folder / "problem.json"
    written.write_text(files[torchtitan.TOML_FILE])
    problem.write_text(json.dumps({key: document.problem[key] for key in ("nest", "model", "cluster")}))
    found = start(written, "torchtitan", problem)
    told = [note for note in found.notes if "file of the pipeline schedule" not in note and "of 16 devices" not in note]
    assert told == []
    return nest.evaluate(found.problem, fix={"rank_order": deployed(document).rank_order})


def same(document: PlanDocument, folder: Path) -> bool:
    """Whether the file gives the plan back; false: there is no file."""
    again = back(document, folder)
    if again is None:
        return False
    assert_same_run(document, again)
    return True


@pytest.mark.longer
@settings(max_examples=10)
@given(plans())
def test_files_say_the_plan(tmp_path_factory: pytest.TempPathFactory, document: PlanDocument) -> None:
    same(on_stack(document, "fsdp"), tmp_path_factory.mktemp("files"))


@pytest.mark.longer
@pytest.mark.parametrize(
    ("fixed", "model", "schedule"),
    [
        ({"dp": 16, "zero": 3}, DENSE, "1f1b"),
        ({"dp": 16, "zero": 2, "micro_batch": 2}, DENSE, "1f1b"),
        ({"dp": 16, "micro_batch": 2}, DENSE, "1f1b"),
        ({"tp": 2, "sp": True, "dp": 8, "zero": 3, "zero_degree": 4, "recompute": "full"}, DENSE, "1f1b"),
        ({"tp": 2, "sp": True, "cp": 2, "dp": 4, "zero": 3, "zero_degree": 4}, DENSE, "1f1b"),
        ({"pp": 4, "dp": 4, "zero": 1, "stages": [1, 3, 2, 2], "micro_batch": 2}, DENSE, "gpipe"),
        ({"pp": 4, "dp": 4, "zero": 1}, DENSE, "zero-bubble"),
        ({"pp": 2, "tp": 2, "sp": True, "dp": 4, "zero": 1, "chunks": 2}, DENSE, "interleaved"),
        ({"pp": 2, "dp": 8, "zero": 1, "chunks": 4}, DENSE, "interleaved"),
        ({"pp": 4, "dp": 4, "zero": 1, "chunks": 2}, DENSE, "zb-v"),
        ({"tp": 2, "sp": True, "dp": 8, "ep": 2, "etp": 2, "zero": 3}, SPARSE, "1f1b"),
        ({"tp": 2, "sp": True, "dp": 8, "ep": 4, "etp": 1, "zero": 3}, SPARSE, "1f1b"),
    ],
)
def test_every_decision_comes_back(fixed: dict[str, Any], model: Any, schedule: str, tmp_path: Path) -> None:
    assert same(plan(fixed, model, schedule=[schedule], stack="fsdp"), tmp_path)


@pytest.mark.longer
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_come_back(name: str, tmp_path: Path) -> None:
    assert same(on_stack(published_plan(name), "fsdp"), tmp_path)


@pytest.mark.parametrize("known", FLAVORS, ids=lambda known: f"{known.model} {known.name}")
def test_every_size_is_described(known: Any) -> None:
    found = read(
        f'[model]\nname = "{known.model}"\nflavor = "{known.name}"\n[parallelism]\ndata_parallel_shard_degree = 8'
    )
    model = architecture_of(unstructure(resolve_model(found.settings["model"], None)))
    assert flavor(model, NEW) == known


LLAMA = """
# Keys as in train_configs/llama3_405b.toml of torchtitan 0.2.
[job]
description = "Llama 3 405B training"
[model]
name = "llama3"
flavor = "405B"
tokenizer_path = "./assets/tokenizer"
converters = ["float8"]
[optimizer]
name = "AdamW"
lr = 8e-5
[lr_scheduler]
warmup_steps = 600
[training]
local_batch_size = 2
seq_len = 8192
max_norm = 1.0
steps = 3000
dataset = "c4"
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
enable_async_tensor_parallel = true
pipeline_parallel_degree = 1
context_parallel_degree = 1
[checkpoint]
enable = false
[activation_checkpoint]
mode = 'full'
[compile]
enable = true
components = ["model", "loss"]
[float8]
enable_fsdp_float8_all_gather = true
precompute_float8_dynamic_scale_for_fsdp = true
filter_fqns = ["output"]
"""


def test_a_file_as_people_write_it_is_read_whole() -> None:
    found = read(LLAMA, LaunchOptions(16))
    assert found.devices == 128
    assert read(LLAMA, LaunchOptions(32, 4)).devices == 128
    with pytest.raises(InputError, match="--part goes with"):
        read(LLAMA, LaunchOptions(16, part="language-model"))
    assert found.settings["model"] == "llama-3.1-405b"
    assert found.settings["training"] == {
        "global_batch": 32,
        "sequence_length": 8192,
        "tokens": 3000 * 32 * 8192,
        "precision": "fp8",
        "optimizer": "adamw",
        "stack": "fsdp",
        "kernels": "fused",
        "loss": "fused",
        "norms": "fused",
        "overlap": {"tensor": True},
    }
    assert found.settings["fixed"] == {
        "tp": 8,
        "sp": True,
        "cp": 1,
        "pp": 1,
        "dp": 16,
        "zero": 3,
        "micro_batch": 2,
        "recompute": "full",
        "schedule": "1f1b",
        "rank_order": "dp-inner",
    }
    assert [note.split()[0] for note in found.notes] == ["nest", "float8.enable_fsdp_float8_all_gather"]


def test_ranks_without_a_parallel_loss_gather_the_logits() -> None:
    """`disable_loss_parallel` of 0.2.2 makes the head's output whole on every rank (models/llama3, parallelize)."""
    found = read(LLAMA.replace("[checkpoint]", "disable_loss_parallel = true\n[checkpoint]"), LaunchOptions(16))
    assert found.settings["training"]["loss_parallel"] is False


def test_the_number_of_ranks_is_asked_for_where_it_matters() -> None:
    with pytest.raises(InputError, match="give --nodes"):
        read(LLAMA)
    stated = read(LLAMA.replace("[training]", "[training]\nglobal_batch_size = 64"))
    assert stated.devices is None
    assert "dp" not in stated.settings["fixed"]
    assert any("all devices" in note for note in stated.notes)
    with pytest.raises(InputError, match="write the degree there"):
        read(LLAMA.replace("replicate_degree = 1", "replicate_degree = 2"))
    for changed, told in (("= -1", "make 32 ranks"), ("shard_degree = -1\ntensor_parallel_degree = 8", "multiple")):
        wrong = {"= -1": "= 4"}.get(changed, "shard_degree = -1\ntensor_parallel_degree = 7")
        with pytest.raises(InputError, match=told):
            read(LLAMA.replace(changed, wrong), LaunchOptions(16))


def test_sections_of_older_releases_are_read() -> None:
    """[training] and [experimental] had the degrees up to torchtitan 0.1, and [float8] switched 8 bits on."""
    degrees = "data_parallel_shard_degree = 2\n{}tensor_parallel_degree = 2\n{}pipeline_parallel_degree = 2\n"
    degrees += 'pipeline_parallel_schedule = "ZBVZeroBubble"\nenable_async_tensor_parallel = true\n'
    front = '[model]\nflavor = "8B"\n[float8]\nenable_float8_linear = true\n'
    older = read(f"{front}[training]\n{degrees.format('', '[experimental]' + chr(10))}")
    newer = read(f"{front}[parallelism]\n{degrees.format('', '')}")
    assert older.settings == newer.settings
    assert (older.settings["fixed"]["schedule"], older.settings["training"]["precision"]) == ("zb-v", "fp8")
    assert any("of older releases" in note for note in older.notes)
    with pytest.raises(InputError, match=r"experimental\.pipeline_parallel_degree is 4, which nest does not read"):
        read(f"[parallelism]\n{degrees.format('', '')}[experimental]\npipeline_parallel_degree = 4\n")


def test_blocks_are_split_as_torchtitan_does() -> None:
    """32 blocks and two ends make 34 over 8 parts: 5 for the first two, 4 for others, less an end."""
    text = '[model]\nflavor = "8B"\n[parallelism]\ndata_parallel_shard_degree = 2\npipeline_parallel_degree = 4\n'
    assert read(text).settings["fixed"]["stages"] == [8, 9, 8, 7]
    fixed = read(text + 'pipeline_parallel_schedule = "Interleaved1F1B"\n').settings["fixed"]
    assert (fixed["schedule"], fixed["chunks"], fixed["zero"]) == ("interleaved", 2, 1)
    assert [len(stage) for stage in fixed["stages"]] == [9, 9, 8, 8]
    assert fixed["stages"][3][-1] == "head"
    with pytest.raises(InputError, match="do not fit 4 pipeline stages"):
        read(text + "pipeline_parallel_layers_per_stage = 4\n")


def test_second_chunks_that_are_mirrored_end_where_the_first_begin() -> None:
    text = '[model]\nflavor = "8B"\n[parallelism]\ndata_parallel_shard_degree = 2\npipeline_parallel_degree = 4\n'
    fixed = read(text + 'pipeline_parallel_schedule = "ZBVZeroBubble"\n').settings["fixed"]
    assert (fixed["schedule"], fixed["chunks"]) == ("zb-v", 2)
    assert (fixed["stages"][0][0], fixed["stages"][0][-1]) == ("embedding", "head")


def test_a_local_batch_that_is_left_out_is_torchtitan_s() -> None:
    found = read("[parallelism]\ndata_parallel_shard_degree = 4\n").settings
    assert (found["fixed"]["micro_batch"], found["training"]["global_batch"]) == (8, 32)
    assert found["training"]["sequence_length"] == 2048


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = 'op'", "priced as nest's selective"),
        ("[training]\nenable_cpu_offload = true", "enable_cpu_offload: the optimizer's state and step are on the"),
        ("[training]\ndtype = 'bfloat16'", "kept in the format in which they are reduced"),
        ("[model]\nflavor = 'debugmodel'", "no figures of torchtitan's llama3 debugmodel"),
        ("[warp]\nspeed = 9", "these keys were not read: warp.speed"),
    ],
)
def test_what_is_not_understood_is_told(line: str, told: str) -> None:
    found = read(f"{line}\n[parallelism]\ndata_parallel_shard_degree = 8\n")
    assert any(told in note for note in found.notes), found.notes
    assert found.settings["training"].get("master_gradients", True) is ("bfloat16" not in line)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("tensor_parallel_degree = 0", "tensor_parallel_degree is 0; it must be a whole number of at least 1"),
        ("fsdp_reshard_after_forward = 'sometimes'", "nest knows default, always, never"),
        ("pipeline_parallel_degree = 2\npipeline_parallel_schedule = 'Zigzag'", "'Zigzag', and nest knows 1f1b"),
        ("pipeline_parallel_degree = 2\nmodule_fqns_per_model_part = [['layers.1']]", "must list the blocks"),
        ("enable_async_tensor_parallel = 'yes'", "must be true or false"),
    ],
)
def test_mistakes_are_told(line: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read(f"[parallelism]\ndata_parallel_shard_degree = 8\n{line}\n")
    with pytest.raises(InputError, match="none of torchtitan's sections"):
        read("a = 1")


@pytest.mark.parametrize(
    ("compiled", "kernels", "loss"),
    [
        ("", "eager", "eager"),
        ("[compile]\nenable = false\n", "eager", "eager"),
        ("[compile]\nenable = true\n", "fused", "fused"),
        ("[training]\ncompile = true\n", "fused", "fused"),
        ('[compile]\nenable = true\ncomponents = ["loss"]\n', "eager", "fused"),
    ],
)
def test_what_is_not_compiled_runs_operator_by_operator(compiled: str, kernels: str, loss: str) -> None:
    text = f'[model]\nname = "llama3"\nflavor = "8B"\n[parallelism]\ndata_parallel_shard_degree = 8\n{compiled}'
    training = read(text).settings["training"]
    assert (training["kernels"], training["loss"], training["norms"]) == (kernels, loss, "fused")


def test_norms_before_torchtitan_0_2_are_several_kernels() -> None:
    text = "[training]\ncompile = false\nglobal_batch_size = 64\n[parallelism]\ndata_parallel_shard_degree = 8\n"
    assert read(text).settings["training"]["norms"] == "eager"


@pytest.mark.longer
def test_eager_mode_takes_longer_and_keeps_more() -> None:
    cluster = {"device": "h100-sxm", "levels": [{"fanout": 8, "link": "nvlink4"}]}
    text = '[model]\nname = "llama3"\nflavor = "8B"\n[parallelism]\ntensor_parallel_degree = 4\n'
    options = LaunchOptions(nodes=1, devices_per_node=8)
    eager, compiled = (
        nest.evaluate({"nest": 1, "cluster": cluster, **read(f"{text}{how}", options).settings})
        for how in ("", "[compile]\nenable = true\n")
    )
    assert (eager.batch_time or 0.0) > 1.02 * (compiled.batch_time or 0.0)
    assert eager.stages[0].memory > 1.2 * compiled.stages[0].memory


@pytest.mark.longer
def test_a_published_run_in_eager_mode_with_tensor_parallelism_is_within_the_range() -> None:
    """docs/performance.md of pytorch/torchtitan, 3faaa1a (2024-08-23): Llama 3.1 405B on 128 H100 of 95 GB.

    109 tokens a second on each GPU, without torch.compile (train_configs/llama3_405b.toml, 441e22c). Without tensor
    parallelism it ran out of memory. The keys are those of its release.
    """
    fabric = {"fanout": 16, "bandwidth": "50 GB/s", "link": "infiniband"}
    levels = [{"fanout": 8, "bandwidth": "450 GB/s", "link": "nvlink"}, fabric]
    cluster = {"device": "h100-sxm", "levels": levels, "memory": "95 GB"}
    text = (
        '[model]\nname = "llama3"\nflavor = "405B"\nnorm_type = "rmsnorm"\n[activation_checkpoint]\nmode = "full"\n'
        "[training]\nbatch_size = 2\nseq_len = 8192\ncompile = false\ndata_parallel_degree = -1\n"
    )
    both, sharded = (
        nest.evaluate({"nest": 1, "cluster": cluster, **read(f"{text}{degree}", LaunchOptions(16, 8)).settings})
        for degree in ("tensor_parallel_degree = 8\n", "")
    )
    assert both.data_parallel == 16
    assert both.fits
    assert not sharded.fits
    assert both.batch_time_range is not None
    assert both.batch_time_range.low < 2 * 8192 / 8 / 109 < both.batch_time_range.high


@pytest.mark.parametrize(("converters", "refused"), [("[]", False), ('["quantize.grouped_mm.float8"]', True)])
def test_settings_of_formats_that_no_converter_uses_are_left_out(converters: str, refused: bool) -> None:
    """torchtitan a8899e4 has such a file, deepseek_v3_671b.toml."""
    text = f"[model]\nconverters = {converters}\n[parallelism]\ndata_parallel_shard_degree = 8\n"
    text += '[quantize.grouped_mm.float8]\nfqns = ["experts"]\n'
    if not refused:
        assert read(text).settings["training"]["precision"] == "bf16"
        return
    with pytest.raises(InputError, match=r"quantize\.grouped_mm\.float8\.fqns"):
        read(text)


@pytest.mark.parametrize(("kind", "zero"), [("fsdp", 3), ("ddp", 0)])
def test_the_degree_of_data_parallelism_of_the_first_releases_is_read(kind: str, zero: int) -> None:
    found = read(f'[training]\ndata_parallel_degree = 8\ndata_parallel_type = "{kind}"\nbatch_size = 1\n')
    assert (found.settings["fixed"]["dp"], found.settings["fixed"]["zero"]) == (8, zero)
