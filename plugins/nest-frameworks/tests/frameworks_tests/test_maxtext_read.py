"""What MaxText's settings run: there and back, and files as people write them."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

import nest
from frameworks_tests.plans import DENSE, SPARSE, assert_same_run, on_stack, plan, read_back
from frameworks_tests.random_plans import plans
from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest.hooks.pipelines import deployed
from nest.spec import PlanDocument
from nest_frameworks.maxtext import SCRIPT_FILE, export
from nest_frameworks.maxtext_reading import read


def there_and_back(document: PlanDocument, folder: Path) -> bool:
    """Whether the file gives the plan back; false: there is none."""
    try:
        text = export(document)[SCRIPT_FILE]
    except InputError:
        return False
    found = read_back(document, text, folder / SCRIPT_FILE, "maxtext")
    assert found.notes == ()
    shape = deployed(document)
    free = {"rank_order": shape.rank_order} if shape.stages == 1 or shape.data_parallel == 1 else {}
    assert_same_run(document, nest.evaluate(found.problem, fix=free))
    return True


@pytest.mark.longer
@settings(max_examples=10)
@given(plans())
def test_a_file_says_the_plan(tmp_path_factory: pytest.TempPathFactory, document: PlanDocument) -> None:
    there_and_back(on_stack(document, "maxtext"), tmp_path_factory.mktemp("files"))


@pytest.mark.parametrize(
    ("fixed", "model", "training"),
    [
        ({"dp": 16, "zero": 3, "recompute": "full"}, DENSE, {}),
        ({"dp": 16, "zero": 3, "zero_degree": 4, "micro_batch": 2}, DENSE, {"optimizer": "sgd"}),
        ({"dp": 8, "tp": 2, "sp": True, "zero": 1}, DENSE, {"gradients": "bf16"}),
        ({"dp": 4, "cp": 2, "tp": 2, "zero": 3}, DENSE, {"context_exchange": "ring"}),
        ({"dp": 8, "pp": 2, "zero": 0, "recompute": "full", "rank_order": "dp-inner"}, DENSE, {"schedule": ["gpipe"]}),
        ({"dp": 4, "pp": 2, "tp": 2, "recompute": "full", "rank_order": "pp-inner"}, DENSE, {"schedule": ["gpipe"]}),
        ({"dp": 16, "ep": 4, "zero": 3}, SPARSE, {}),
        ({"dp": 16, "zero": 0}, DENSE, {"precision": "fp32"}),
        ({"dp": 8, "tp": 2, "zero": 3}, {**DENSE, "tied_embeddings": True}, {}),
    ],
)
def test_every_decision_comes_back(fixed: dict[str, Any], model: Any, training: dict[str, Any], tmp_path: Path) -> None:
    assert there_and_back(plan(fixed, model, stack="maxtext", **training), tmp_path)


LLAMA = """
# AI-Hypercomputer/maxtext, src/maxtext/configs/gpu/models/llama2_7b.yml, commit e591f30
base_config: "base.yml"
run_name: "gpu_train_test"
hardware: "gpu"
steps: 30
per_device_batch_size: 4
max_target_length: 4096
model_name: "llama2-7b"
enable_checkpointing: false
attention: "cudnn_flash_te"
remat_policy: "minimal_with_context"
use_iota_embed: true
scan_layers: false
dataset_type: "synthetic"
async_checkpointing: false
max_segments_per_seq: 32
"""

SIXTEEN = r"""
# The same, src/maxtext/configs/gpu/a3/llama_2_7b/16vm.sh
set -e
export EXECUTABLE="train"
for ARGUMENT in "$@"; do
    IFS='=' read -r KEY VALUE <<< "$ARGUMENT"
    export "$KEY"="$VALUE"
done
export XLA_FLAGS="--xla_dump_to=$OUTPUT_PATH/HLO_dumps/
--xla_gpu_enable_triton_gemm=false"
python3 -m maxtext.trainers.pre_train.$EXECUTABLE "${CONFIGS_DIR:-$PWD}"/models/gpu/llama2_7b.yml run_name=$RUN_NAME \
    dcn_data_parallelism=16 ici_fsdp_parallelism=8 base_output_directory=$OUTPUT_PATH profiler=xplane
"""

LARGE = r"""
# The same, src/maxtext/configs/gpu/a3/llama_3.1_405b/128vm.sh
python3 -m maxtext.trainers.pre_train.$EXECUTABLE base.yml run_name=$RUN_NAME \
    hardware=gpu steps=10 model_name=llama3.1-405b enable_checkpointing: False attention=cudnn_flash_te \
    remat_policy=full use_iota_embed=True scan_layers=True dataset_type=synthetic logits_dot_in_fp32=False \
    per_device_batch_size=1.0 max_target_length=8192 dcn_fsdp_parallelism=128 ici_fsdp_parallelism=8 \
    max_segments_per_seq=32 profiler=xplane
"""

OTHER = r"""
# The same, src/maxtext/configs/experimental/128b.sh
python3 -m maxtext.trainers.pre_train.train "${CONFIGS_DIR:-$PWD}"/base.yml run_name=$RUN_NAME\
    steps=30 per_device_batch_size=2 enable_checkpointing=false\
    remat_policy=minimal global_parameter_scale=128\
    ici_fsdp_parallelism=-1 ici_tensor_parallelism=8\
    max_target_length=2048 base_output_directory=$OUTPUT_PATH\
    dataset_path=$DATASET_PATH use_iota_embed=true reuse_example_batch=1\
    dataset_type=synthetic gcs_metrics=true attention='flash' quantization=""
"""


def test_yaml_as_people_write_it() -> None:
    """Machines are the slices of GPUs: parameters are sharded within, and replicated between them."""
    found = read(LLAMA, LaunchOptions(2, 8))
    assert (found.devices, found.notes) == (16, ())
    assert found.settings["model"] == "llama-2-7b"
    assert found.settings["training"] == {
        "global_batch": 64,
        "sequence_length": 4096,
        "tokens": 64 * 4096 * 30,
        "precision": "bf16",
        "optimizer": "adamw",
        "stack": "maxtext",
    }
    assert found.settings["fixed"] == {
        "tp": 1,
        "sp": False,
        "cp": 1,
        "pp": 1,
        "dp": 16,
        "zero": 3,
        "zero_degree": 8,
        "recompute": "none",
        "micro_batch": 4,
    }


def test_the_policy_none_saves_nothing() -> None:
    text = LLAMA.replace("minimal_with_context", "none")
    assert read(text, LaunchOptions(2, 8)).settings["fixed"]["recompute"] == "full"


@pytest.mark.parametrize(
    ("policy", "mode", "again"),
    [
        ("minimal_flash", "none", None),
        ("minimal", "selective", ["attention"]),
        ("save_dot_with_context_except_mlp", "selective", ["mlp_up", "mlp_activated"]),
        ("save_dot_except_mlp", "selective", ["attention", "mlp_up", "mlp_activated"]),
        ("save_dot_except_mlpwi", None, "saves what nest does not price"),
        ("qkv_proj_offloaded", None, "saves what nest does not price"),
    ],
)
def test_a_policy_recomputes_what_it_does_not_save(policy: str, mode: str | None, again: Any) -> None:
    text = LLAMA.replace("minimal_with_context", policy)
    if mode is None:
        with pytest.raises(InputError, match=again):
            read(text, LaunchOptions(2, 8))
        return
    found = read(text, LaunchOptions(2, 8)).settings
    assert (found["fixed"]["recompute"], found["training"].get("selective")) == (mode, again)


def test_what_a_policy_saves_of_experts_is_not_known() -> None:
    text = LLAMA.replace("minimal_with_context", "save_dot_except_mlp").replace("llama2-7b", "mixtral-8x7b")
    with pytest.raises(InputError, match="does not know what it saves of experts"):
        read(text, LaunchOptions(2, 8))


def test_a_script_and_the_file_it_names(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"names llama2_7b.yml, which is not there; put that file beside it"):
        read(SIXTEEN, LaunchOptions(folder=tmp_path))
    (tmp_path / "llama2_7b.yml").write_text(LLAMA)
    found = read(SIXTEEN, LaunchOptions(folder=tmp_path))
    assert (found.devices, found.settings["training"]["global_batch"]) == (128, 512)
    assert {"dp": 128, "zero_degree": 8}.items() <= found.settings["fixed"].items()
    told = read(SIXTEEN.replace("profiler=xplane", "per_device_batch_size=2"), LaunchOptions(folder=tmp_path))
    assert told.settings["training"]["global_batch"] == 256  # The command line counts before the file.


def test_scripts_as_people_write_them() -> None:
    found = read(LARGE)
    assert (found.devices, found.notes) == (1024, ())
    assert found.settings["model"] == "llama-3.1-405b"
    assert {"dp": 1024, "zero": 3, "micro_batch": 1, "recompute": "full"}.items() <= found.settings["fixed"].items()
    other = read(OTHER, LaunchOptions(8, 4))
    assert "model" not in other.settings
    assert {"tp": 8, "dp": 4, "zero": 3, "recompute": "selective"}.items() <= other.settings["fixed"].items()
    assert [note.split()[0] for note in other.notes] == ["nest", "remat_policy", "decoder_block"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "the number of devices it follows from is not known: give --nodes"),
        ("ici_fsdp_parallelism: 3", "which are no micro-batches|no slices|make"),
        ("ici_fsdp_parallelism: 8\nici_fsdp_transpose_parallelism: 2", "along fsdp_transpose"),
        ("ici_fsdp_parallelism: 8\nici_tensor_parallelism: 2\nici_tensor_sequence_parallelism: 2", "reads one of them"),
        ("ici_fsdp_parallelism: 8\nici_pipeline_parallelism: 2", "num_pipeline_repeats is not 1"),
        ("ici_fsdp_parallelism: 8\nquantization: int8", "quantization is int8"),
        ("ici_fsdp_parallelism: 8\nper_device_batch_size: lots", "must be a number above 0"),
        ("ici_fsdp_parallelism: 8\nper_device_batch_size: 0.3", "no micro-batches"),
        (
            "ici_fsdp_parallelism: 8\nici_context_parallelism: 2\ncontext_parallel_strategy: usp",
            "nest knows all_gather",
        ),
    ],
)
def test_mistakes_are_told(line: str, told: str) -> None:
    text = LLAMA.replace("per_device_batch_size: 4\n", "") if "per_device" in line else LLAMA
    options = LaunchOptions(1, 8) if line.endswith(": 3") else LaunchOptions()
    with pytest.raises(InputError, match=told):
        read(f"{text}{line}\n", options)


def test_other_files_are_told() -> None:
    with pytest.raises(InputError, match="none of MaxText's settings"):
        read("speed: 3")
    with pytest.raises(InputError, match="never closed"):
        read("python train.py base.yml steps='3")
    found = read(f"{LLAMA}ici_fsdp_parallelism: 8\nspeed: 3\nuse_qwix_quantization: true\nattention_type: global\n")
    assert [note.split()[0] for note in found.notes] == ["use_qwix_quantization", "these"]


STAGES = """
per_device_batch_size: 1
max_target_length: 256
remat_policy: full
num_pipeline_repeats: 1
ici_fsdp_parallelism: 1
"""


@pytest.mark.parametrize(
    ("mesh", "order"),
    [
        ("ici_pipeline_parallelism: 2\nici_data_parallelism: 4\ndcn_data_parallelism: 1", "dp-inner"),
        ("ici_data_parallelism: 4\ndcn_pipeline_parallelism: 2\ndcn_data_parallelism: 2", "dp-inner"),
        ("ici_pipeline_parallelism: 4\ndcn_data_parallelism: 2", "pp-inner"),
        ("ici_pipeline_parallelism: 2\nici_data_parallelism: 2\ndcn_data_parallelism: 2", None),
    ],
)
def test_stages_are_outside_of_replicas_within_a_slice_and_between_them(mesh: str, order: str | None) -> None:
    """`mesh_axes` of configs/types.py: stage, data, fsdp, those of a slice inside of those between slices."""
    if order is None:
        with pytest.raises(InputError, match="an order of ranks that nest does not price"):
            read(STAGES + mesh)
    else:
        assert read(STAGES + mesh).settings["fixed"]["rank_order"] == order


@pytest.mark.parametrize(
    ("stages", "written"), [(2, False), (4, True), (8, False)], ids=["within", "a slice each", "beyond"]
)
def test_maxtext_runs_stages_inside_of_replicas_of_a_slice_only(stages: int, written: bool) -> None:
    document = plan(
        {"dp": 16 // stages, "pp": stages, "recompute": "full", "rank_order": "pp-inner", "micro_batch": 1},
        schedule=["gpipe"],
        global_batch=16 * 8,
    )
    if written:
        assert "ici_pipeline_parallelism=4" in export(document)[SCRIPT_FILE]
    else:
        with pytest.raises(InputError, match="stages outside of data parallelism"):
            export(document)


@pytest.mark.longer
def test_the_stack_keeps_16_bytes_a_parameter() -> None:
    """Weights, gradients and both moments in single precision (`weight_dtype`, `grad_dtype`)."""
    bytes_kept = [
        plan({"dp": 16, "zero": 0}, stack="maxtext", optimizer=name).stages[0].memory for name in ("adam", "sgd")
    ]
    once, twice = (
        plan({"dp": 16, "zero": 0}, stack="maxtext", weights_once=value).stages[0].memory for value in (True, False)
    )
    # Adam's moments are 8 of the 16 bytes; narrow copies that are kept would be 2 more.
    assert once == bytes_kept[0]
    assert (twice - once) * 4 == pytest.approx(bytes_kept[0] - bytes_kept[1], rel=0.01)


@pytest.mark.parametrize(("more", "optimizer"), [("", "adam-bf16"), ("mu_dtype: bfloat16\n", "adam-bf16")])
def test_moments_are_in_the_format_of_the_weights_where_nothing_is_said(more: str, optimizer: str) -> None:
    found = read(f"{LLAMA}weight_dtype: bfloat16\n{more}", LaunchOptions(1, 8))
    assert found.settings["training"]["optimizer"] == optimizer
    assert found.settings["training"]["master_gradients"] is False


@pytest.mark.parametrize(
    ("weights", "gradients", "kept"),
    [("bfloat16", "float32", "bf16"), ("float32", "bfloat16", "bf16"), ("float32", "float32", "fp32")],
)
def test_gradients_of_narrow_weights_are_narrow(weights: str, gradients: str, kept: str) -> None:
    """trainers/pre_train/train.py casts gradients in single precision alone to `grad_dtype`."""
    formats = f"weight_dtype: {weights}\ngrad_dtype: {gradients}\n"
    assert read(f"{LLAMA}{formats}", LaunchOptions(1, 8)).settings["training"]["gradients"] == kept
    left_out = read(f"{LLAMA}weight_dtype: {weights}\n", LaunchOptions(1, 8)).settings["training"]
    assert left_out.get("gradients") == ("bf16" if weights == "bfloat16" else None)


INSIDE = "per_device_batch_size: 1\nmax_target_length: 256\nremat_policy: full\nici_fsdp_parallelism: 8\n"


def test_slices_are_asked_for_where_an_axis_between_them_is_what_is_left() -> None:
    text = f"{INSIDE}dcn_data_parallelism: -1\n"
    with pytest.raises(InputError, match=r"number of slices it follows from is not known: give --nodes"):
        read(text)
    assert read(f"{text}num_slices: 4\n").settings["fixed"]["dp"] == 32
    assert read(text, LaunchOptions(4, 8)).settings["fixed"]["dp"] == 32
    assert read(INSIDE).settings["fixed"]["dp"] == 8


SCRIPT = """#!/bin/bash
export MODEL=llama2-7b
BATCH=2
python3 -m MaxText.train base_config=base.yml model_name=${MODEL} \\
  per_device_batch_size=$BATCH ici_fsdp_parallelism=8 max_target_length=4096\\
  remat_policy=full run_name=$(date +%s)\\

"""


def test_a_script_is_read_as_the_shell_reads_it() -> None:
    found = read(SCRIPT).settings
    assert found["model"] == "llama-2-7b"
    assert (found["training"]["sequence_length"], found["fixed"]["micro_batch"]) == (4096, 2)


def test_a_size_out_of_a_command_or_of_no_variable_is_refused() -> None:
    for value in ("$(jq .fsdp c.json)", "$UNSET"):
        with pytest.raises(InputError, match="ici_fsdp_parallelism is"):
            read(SCRIPT.replace("ici_fsdp_parallelism=8", f"ici_fsdp_parallelism={value}"))


def test_a_named_model_may_have_fewer_layers() -> None:
    """As in MaxText's scripts/run_olmo3_7b_grain_smoke.sh, commit e591f30c."""
    text = (
        "model_name: olmo3-7b-pt\noverride_model_config: true\nbase_num_decoder_layers: 4\nper_device_batch_size: 1\n"
    )
    model = read(f"{text}ici_fsdp_parallelism: 8\nmax_target_length: 8192\n").settings["model"]
    assert model["num_hidden_layers"] == len(model.get("layer_types", range(4))) == 4
    assert model["hidden_size"] == 4096
    with pytest.raises(InputError, match="base_emb_dim change olmo3-7b-pt"):
        read(f"{text}ici_fsdp_parallelism: 8\nmax_target_length: 8192\nbase_emb_dim: 64\n")
