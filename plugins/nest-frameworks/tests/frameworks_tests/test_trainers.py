"""Files of LLaMA-Factory, Axolotl and Hugging Face's Trainer: there and back, and files as people write them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

import nest
from frameworks_tests.plans import DENSE, assert_same_run, on_stack, plan
from frameworks_tests.random_plans import plans
from nest.catalogue.spellings import catalogued
from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest.formulate.from_flags import start
from nest.hooks.pipelines import deployed
from nest.spec import PlanDocument
from nest_frameworks.trainers import writing
from nest_frameworks.trainers.reading import read_axolotl, read_llama_factory, read_transformers

EXPORTS = {
    "llama-factory": (writing.export_llama_factory, "deepspeed"),
    "axolotl": (writing.export_axolotl, "transformers"),
    "transformers": (writing.export_transformers, "transformers"),
}


def same(document: PlanDocument, name: str, folder: Path) -> bool:
    """Whether the files, with what the launch says, give the plan back; false: there are none."""
    try:
        files = EXPORTS[name][0](document)
    except InputError:
        return False
    shape = deployed(document)
    for file, text in files.items():
        (folder / file).write_text(text)
    problem = folder / "problem.json"
    kept = {key: document.problem[key] for key in ("nest", "model", "cluster")}
    said = ("attention", "sequence_length") if name == "transformers" else ()
    training = {key: document.problem["training"][key] for key in said if key in document.problem["training"]}
    problem.write_text(json.dumps({**kept, "training": {"global_batch": 1, **training}}))
    options = LaunchOptions(1, shape.world_size)
    found = start(folder / next(iter(files)), name, problem, options=options)
    assert not [note for note in found.notes if "not read" in note or "not priced" in note], found.notes
    assert_same_run(document, nest.evaluate(found.problem, fix={"rank_order": shape.rank_order}))
    return True


@pytest.mark.longer
@settings(max_examples=10)
@given(plans())
def test_files_say_the_plan(tmp_path_factory: pytest.TempPathFactory, document: PlanDocument) -> None:
    for name, (_, stack) in EXPORTS.items():
        same(on_stack(document, stack), name, tmp_path_factory.mktemp("files"))


@pytest.mark.longer
@pytest.mark.parametrize(
    ("name", "fixed", "training"),
    [
        ("llama-factory", {"dp": 16, "zero": 3}, {}),
        ("llama-factory", {"dp": 16, "zero": 2, "recompute": "full"}, {"overlap": {"data": False}}),
        ("llama-factory", {"dp": 16, "zero": 1, "micro_batch": 2}, {"precision": "fp16", "optimizer": "lion"}),
        ("llama-factory", {"dp": 8, "zero": 2}, {"offload": ["optimizer"], "precision": "fp32"}),
        ("llama-factory", {"dp": 16, "zero": 2}, {"trainable": {"lora": {"rank": 16, "targets": ["all-linear"]}}}),
        ("llama-factory", {"dp": 16, "zero": 3}, {"trainable": {"lora": {"rank": 4}}}),
        ("llama-factory", {"dp": 16, "zero": 3}, {"trainable": {"lora": {"rank": 4}, "stored": "nf4-double"}}),
        ("llama-factory", {"dp": 16, "zero": 2}, {"trainable": {"lora": {"rank": 4}, "stored": "nf4"}}),
        ("llama-factory", {"dp": 16, "zero": 2}, {"trainable": {"lora": {"rank": 4}, "stored": "int8"}}),
        ("axolotl", {"dp": 16, "zero": 3}, {"trainable": {"lora": {"rank": 4}, "stored": "nf4-double"}}),
        ("axolotl", {"dp": 16, "zero": 3}, {"trainable": {"lora": {"rank": 4}, "stored": "nf4"}}),
        ("axolotl", {"dp": 16, "zero": 2, "micro_batch": 2}, {"trainable": {"lora": {"rank": 4}, "stored": "int8"}}),
        ("axolotl", {"dp": 8, "zero": 3}, {"trainable": {"lora": {"rank": 16, "targets": ["all-linear"]}}}),
        ("axolotl", {"dp": 16, "zero": 3}, {"trainable": {"lora": {"rank": 4, "targets": ["q_proj", "o_proj"]}}}),
        ("axolotl", {"dp": 16, "zero": 3, "recompute": "full"}, {}),
        ("axolotl", {"dp": 8, "tp": 2, "zero": 3, "zero_degree": 4, "micro_batch": 2}, {"optimizer": "adam-8bit"}),
        ("axolotl", {"dp": 4, "cp": 2, "tp": 2, "zero": 3}, {"context_exchange": "ring"}),
        ("axolotl", {"dp": 8, "cp": 2, "zero": 3, "micro_batch": 1}, {"context_exchange": "all_gather"}),
        ("axolotl", {"dp": 16, "zero": 2, "micro_batch": 2}, {"precision": "fp16", "attention": "unfused"}),
        ("transformers", {"dp": 16, "zero": 3, "recompute": "full"}, {}),
        ("transformers", {"dp": 4, "cp": 2, "tp": 2, "zero": 3}, {"context_exchange": "ring"}),
        ("transformers", {"dp": 16, "recompute": "full"}, {"precision": "fp32"}),
    ],
)
def test_every_decision_comes_back(name: str, fixed: dict[str, Any], training: dict[str, Any], tmp_path: Path) -> None:
    assert same(plan(fixed, DENSE, stack=EXPORTS[name][1], **training), name, tmp_path)


QWEN_FULL = """
# hiyouga/LLaMA-Factory, examples/train_full/qwen3_full_sft.yaml, commit ff6d4d12
model_name_or_path: Qwen/Qwen3-4B-Instruct-2507
trust_remote_code: true
stage: sft
do_train: true
finetuning_type: full
deepspeed: examples/deepspeed/ds_z3_config.json
dataset: identity,alpaca_en_demo
template: qwen3_nothink
cutoff_len: 2048
max_samples: 1000
preprocessing_num_workers: 16
output_dir: saves/qwen3-4b/full/sft
plot_loss: true
overwrite_output_dir: true
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
learning_rate: 1.0e-5
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
resume_from_checkpoint: null
"""

ZERO_3 = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "zero_allow_untested_optimizer": True,
    "fp16": {"enabled": "auto", "loss_scale": 0},
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 3, "overlap_comm": False, "contiguous_gradients": True, "sub_group_size": 1e9},
}
"""hiyouga/LLaMA-Factory, examples/deepspeed/ds_z3_config.json, commit ff6d4d12."""


def test_llama_factory_with_deepspeed_as_people_write_it(tmp_path: Path) -> None:
    """Its files are named from the root of the repository."""
    (tmp_path / "examples" / "deepspeed").mkdir(parents=True)
    (tmp_path / "examples" / "train_full").mkdir()
    (tmp_path / "examples" / "deepspeed" / "ds_z3_config.json").write_text(json.dumps(ZERO_3))
    found = read_llama_factory(QWEN_FULL, LaunchOptions(1, 8, folder=tmp_path / "examples" / "train_full"))
    assert found.devices == 8
    assert found.settings == {
        "training": {
            "global_batch": 16,
            "sequence_length": 2048,
            "precision": "bf16",
            "gradients": "bf16",
            "optimizer": "adamw",
            "attention": "flash",
            "offload": [],
            "stack": "deepspeed",
            "overlap": {"data": False},
        },
        "fixed": {
            "micro_batch": 1,
            "recompute": "full",
            "zero": 3,
            "dp": 8,
            "tp": 1,
            "pp": 1,
            "sp": False,
        },
        "model": "qwen3-4b",
    }
    assert [note.split()[0] for note in found.notes] == ["nest", "nest", "these"]
    assert "auto" in found.notes[-1]


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"ds_z3_config.json, which is not there; put ds_z3_config.json beside this file, or its name"
    ):
        read_llama_factory(QWEN_FULL, LaunchOptions(1, 8, folder=tmp_path))


ASCEND = """
# hiyouga/LLaMA-Factory, examples/ascend/qwen3_full_sft_fsdp2.yaml, commit ff6d4d12
model_name_or_path: Qwen/Qwen3-8B
use_v1_kernels: true
flash_attn: fa2
stage: sft
finetuning_type: full
template: qwen3
cutoff_len: 2048
max_steps: 500
per_device_train_batch_size: 8
gradient_accumulation_steps: 1
learning_rate: 1.0e-5
bf16: true
"""

FSDP2 = """
# hiyouga/LLaMA-Factory, examples/accelerate/fsdp2_config.yaml, commit ff6d4d12
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_version: 2
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
"""


def test_what_accelerate_is_told_lies_beside(tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_text(FSDP2)
    found = read_llama_factory(ASCEND, LaunchOptions(folder=tmp_path))
    assert found.settings["model"] == "qwen3-8b"
    assert found.settings["training"]["tokens"] == 500 * 16 * 2048
    assert {"zero": 3, "dp": 2, "micro_batch": 8}.items() <= found.settings["fixed"].items()
    assert (found.settings["training"]["global_batch"], found.devices) == (16, 2)
    assert any("which lies beside" in note for note in found.notes)
    alone = read_llama_factory(ASCEND, LaunchOptions(1, 4))
    assert alone.settings["fixed"]["zero"] == 0
    assert any("nest assumes every device to hold all parameters" in note for note in alone.notes)


@pytest.mark.parametrize(
    ("line", "other", "told"),
    [
        # examples/train_lora/qwen3_lora_sft_ds3.yaml, qwen3_lora_dpo.yaml and extras/galore/llama3_full_sft.yaml
        ("finetuning_type: full", "finetuning_type: oft", "finetuning_type is oft, but nest prices full, lora and"),
        ("finetuning_type: full", "finetuning_type: freeze\nfreeze_trainable_modules: mlp", "name parts of layers"),
        ("bf16: true", "quantization_bit: 4", "quantization_bit asks for weights in 4 or 8 bits, which only"),
        ("finetuning_type: full", "additional_target: norm", "additional_target has norm, and nest knows embed_tokens"),
        ("stage: sft", "stage: dpo", "stage is dpo, but nest prices steps"),
        ("flash_attn: fa2", "use_galore: true", "use_galore is True"),
        ("flash_attn: fa2", "flash_attn: fast", "'fast', and nest knows disabled"),
        ("bf16: true", "bf16: true\nfp16: true", "takes one of them"),
    ],
)
def test_what_nest_does_not_price_is_refused(line: str, other: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_llama_factory(ASCEND.replace(line, other), LaunchOptions(1, 8))


def test_a_launch_that_nobody_describes_is_on_one_machine() -> None:
    found = read_llama_factory(ASCEND)
    assert found.devices == 8
    assert any("one machine" in note for note in found.notes)
    with pytest.raises(InputError, match=r"none of the keys of LLaMA-Factory stage, finetuning_type"):
        read_llama_factory("speed: 3")


def test_adapters_as_people_write_them() -> None:
    """As in examples/train_lora/qwen3_lora_sft.yaml of LLaMA-Factory, and llama-3/lora-1b.yml of Axolotl."""
    lora = ASCEND.replace("finetuning_type: full", "lora_rank: 8\nlora_target: all")
    found = read_llama_factory(lora, LaunchOptions(1, 8))
    assert found.settings["training"]["trainable"] == {"lora": {"rank": 8, "targets": ["all-linear"]}}
    text = HYBRID + (
        "adapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_dropout: 0.05\n"
        "lora_target_modules: [gate_proj, down_proj]\nlora_modules_to_save: [lm_head]\n"
    )
    trained = read_axolotl(text).settings["training"]["trainable"]
    assert trained == {"lora": {"rank": 16, "targets": ["gate_proj", "down_proj"]}, "layers": ["head"]}


@pytest.mark.parametrize("name", ["llama-factory", "axolotl"])
def test_layers_that_are_trained_beside_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="trains all of it"):
        EXPORTS[name][0](plan({"dp": 16, "zero": 3}, DENSE, trainable=["head"], stack=EXPORTS[name][1]))


def test_deepspeeds_file_must_agree(tmp_path: Path) -> None:
    (tmp_path / "ds_z3_config.json").write_text(json.dumps({**ZERO_3, "gradient_accumulation_steps": 3}))
    with pytest.raises(InputError, match="gradient_accumulation_steps is 3 in DeepSpeed's file, and 2 here"):
        read_llama_factory(QWEN_FULL, LaunchOptions(1, 8, folder=tmp_path))
    (tmp_path / "ds_z3_config.json").write_text(json.dumps({**ZERO_3, "bf16": {"enabled": False}}))
    with pytest.raises(InputError, match="DeepSpeed's file has precision fp32, and this one bf16"):
        read_llama_factory(QWEN_FULL, LaunchOptions(1, 8, folder=tmp_path))


HYBRID = """
# axolotl-ai-cloud/axolotl, examples/distributed-parallel/llama-3_1-8b-hsdp-tp.yaml, commit 067b021c
base_model: meta-llama/Llama-3.1-8B
plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]
dp_shard_size: 4
dp_replicate_size: 2
tensor_parallel_size: 2
dataset_prepared_path: last_run_prepared
special_tokens: {pad_token: <|end_of_text|>}
fsdp_version: 2
fsdp_config:
  offload_params: false
  state_dict_type: FULL_STATE_DICT
  auto_wrap_policy: TRANSFORMER_BASED_WRAP
  transformer_layer_cls_to_wrap: LlamaDecoderLayer
  reshard_after_forward: true
sequence_len: 2048
sample_packing: true
attn_implementation: flash_attention_2
gradient_accumulation_steps: 1
micro_batch_size: 1
num_epochs: 2
optimizer: adamw_torch_fused
lr_scheduler: constant_with_warmup
learning_rate: 2e-6
bf16: true
tf32: true
"""


def test_axolotl_with_a_mesh_as_people_write_it() -> None:
    found = read_axolotl(HYBRID)
    assert found.devices == 16
    assert found.settings["model"] == "llama-3.1-8b"
    assert found.settings["training"]["global_batch"] == 8
    assert found.settings["fixed"] == {
        "micro_batch": 1,
        "recompute": "none",
        "zero": 3,
        "zero_degree": 4,
        "dp": 8,
        "tp": 2,
        "cp": 1,
        "pp": 1,
        "sp": False,
    }
    assert [note.split()[0] for note in found.notes] == ["the", "nest"]
    with pytest.raises(InputError, match="do not make the 8 processes"):
        read_axolotl(HYBRID, LaunchOptions(1, 8))


NARROW = dict.fromkeys(("master_weights", "master_gradients"), False)
"""Nothing is kept in single precision."""


@pytest.mark.parametrize(
    ("lines", "fixed", "training"),
    [
        # examples/distributed-parallel/qwen3-8b-fsdp-tp-cp.yaml
        ("context_parallel_size: 2", {"cp": 2, "dp": 4}, {"context_exchange": "all_gather"}),
        ("sequence_parallel_degree: 2\nring_attn_func: batch_ring", {"cp": 2}, {"context_exchange": "ring"}),
        # examples/llama-3/fft-8b-liger-fsdp.yaml
        ("fsdp: [full_shard, auto_wrap]", {"zero": 3, "dp": 16}, {}),
        ("fsdp: [shard_grad_op]\ngradient_accumulation_steps: 2", {"zero": 2}, {"accumulation": "whole"}),
        # examples/llama-3/fft-8b.yaml
        ("gradient_checkpointing: true", {"zero": 0, "recompute": "full"}, NARROW),
        ("optimizer: paged_adamw_8bit\nbatch_size: 8\nmicro_batch_size: 2", {"micro_batch": 2}, {"global_batch": 128}),
        ("eager_attention: true\nfp16: true\nbf16: false", {}, {"attention": "unfused", "precision": "fp16"}),
    ],
)
def test_axolotls_words(lines: str, fixed: dict[str, Any], training: dict[str, Any]) -> None:
    sharded = "fsdp_config: {reshard_after_forward: true}\n" if "parallel" in lines else ""
    text = f"base_model: NousResearch/Meta-Llama-3.1-8B\nsequence_len: 4096\nsample_packing: true\n{sharded}{lines}\n"
    if "parallel" in lines:
        fixed = {**fixed, "dp": 8}
    found = read_axolotl(text, LaunchOptions(2, 8))
    assert fixed.items() <= found.settings["fixed"].items()
    assert training.items() <= found.settings["training"].items()
    assert found.settings["model"] == "llama-3.1-8b"


@pytest.mark.parametrize(
    ("lines", "facts"),
    [
        ("plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]", {"loss": "chunked"}),
        ("plugins: axolotl.integrations.liger.LigerPlugin\nliger_rms_norm: true", {"norms": "fused"}),
        (
            "plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_rms_norm: true\nliger_glu_activation: true\n"
            "liger_fused_linear_cross_entropy: true",
            {"kernels": "fused", "norms": "fused", "loss": "chunked"},
        ),
        ("chunked_cross_entropy: true", {"loss": "fused"}),
        ("torch_compile: true", {"kernels": "fused", "norms": "fused", "loss": "unfused"}),
        ("attn_implementation: flash_attention_3", {"attention_kernel": "flash3"}),
        ("liger_rms_norm: true", {}),
    ],
)
def test_kernels_and_losses_are_as_the_file_says(lines: str, facts: dict[str, str]) -> None:
    text = f"base_model: NousResearch/Meta-Llama-3.1-8B\nsequence_len: 4096\nsample_packing: true\n{lines}\n"
    training = read_axolotl(text, LaunchOptions(1, 8)).settings["training"]
    said = ("kernels", "norms", "loss", "attention_kernel")
    assert {name: training[name] for name in said if name in training} == facts


def test_liger_is_as_the_file_says() -> None:
    fused = {"kernels": "fused", "norms": "fused", "loss": "chunked"}
    arguments = {"per_device_train_batch_size": 1, "max_length": 512, "use_liger_kernel": True}
    found = read_transformers(json.dumps(arguments), LaunchOptions(1, 8)).settings["training"]
    assert fused.items() <= found.items()
    with pytest.raises(InputError, match="all kernels of Liger or none"):
        read_transformers(json.dumps({**arguments, "liger_kernel_config": {"rope": False}}), LaunchOptions(1, 8))


@pytest.mark.parametrize("plugin", ["axolotl.integrations.kd.KDPlugin", "axolotl.integrations.spectrum.SpectrumPlugin"])
def test_plugins_that_change_the_model_are_refused(plugin: str) -> None:
    with pytest.raises(InputError, match=r"plugins has (KD|Spectrum)Plugin, which nest does not read"):
        read_axolotl(HYBRID.replace("axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin", plugin))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("adapter: qlora", "adapter is qlora, but load_in_4bit is not true"),
        ("adapter: lora\nload_in_4bit: true\nload_in_8bit: true", "are both given"),
        ("load_in_8bit: true", "load_in_8bit asks for weights in 4 or 8 bits, which only"),
        ("unfrozen_parameters: [lm_head]", "unfrozen_parameters"),
        ("expert_parallel_size: 2", "Axolotl's expert parallelism"),
        ("rl: dpo", "rl is dpo"),
        ("deepspeed: {zero_optimization: {stage: 3}}\ncontext_parallel_size: 8", "beside deepspeed"),
    ],
)
def test_what_axolotl_does_beyond_is_refused(line: str, told: str) -> None:
    """As in examples/{llama-3/qlora-fsdp-70b,mistral/bigstral/bigstral-ds-zero3}.yaml, expert_parallel and alst."""
    with pytest.raises(InputError, match=told):
        read_axolotl(f"{HYBRID}{line}\n")


def test_the_trainers_arguments_as_people_write_them() -> None:
    """FSDP as words, as in huggingface.co/docs/transformers/v4.57.1/fsdp; the script says model and length."""
    arguments = {
        "output_dir": "out",
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "bf16": True,
        "fsdp": "full_shard auto_wrap offload",
        "fsdp_config": {"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"], "activation_checkpointing": True},
        "accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": True}},
    }
    found = read_transformers(json.dumps(arguments), LaunchOptions(1, 8))
    assert found.settings["training"] == {
        "global_batch": 64,
        "precision": "bf16",
        "optimizer": "adamw",
        "stack": "transformers",
        "offload": ["optimizer"],
    }
    assert {"recompute": "full", "zero": 3, "dp": 8, "micro_batch": 4}.items() <= found.settings["fixed"].items()
    assert any("fsdp_offload_params: the optimizer's state and step are on the host" in note for note in found.notes)
    adapted = read_transformers(json.dumps({**arguments, "use_peft": True, "lora_r": 4}), LaunchOptions(1, 8))
    assert adapted.settings["training"]["trainable"] == {"lora": {"rank": 4, "targets": ["q_proj", "v_proj"]}}


@pytest.mark.parametrize(("workers", "nodes", "ranks"), [(4, None, 4), (16, None, 16), (4, 2, 16)])
def test_workers_of_ray_are_processes(workers: int, nodes: int | None, ranks: int) -> None:
    """examples/train_lora/qwen3_lora_sft_ray.yaml of LLaMA-Factory has these keys."""
    text = "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\nfinetuning_type: lora\nper_device_train_batch_size: 1\n"
    found = read_llama_factory(f"{text}ray_num_workers: {workers}\n", LaunchOptions(nodes))
    assert found.settings["training"]["global_batch"] == ranks


@pytest.mark.parametrize(
    ("lines", "layers"),
    [
        ("", [30, 31]),
        ("freeze_trainable_layers: -3", [0, 1, 2]),
        ("freeze_trainable_layers: 8\nuse_llama_pro: true", [3, 7, 11, 15, 19, 23, 27, 31]),
    ],
)
def test_layers_that_llama_factory_leaves_trained(lines: str, layers: list[int]) -> None:
    """`_setup_freeze_tuning` of src/llamafactory/model/adapter.py, of a model of 32 layers."""
    head = "model_name_or_path: meta-llama/Llama-3.1-8B\nstage: sft\nfinetuning_type: freeze\nbf16: true\n"
    found = read_llama_factory(f"{head}freeze_extra_modules: lm_head\n{lines}\n", LaunchOptions(1, 8))
    assert found.settings["training"]["trainable"] == [*(f"layers.{number}" for number in layers), "head"]


def test_what_fsdp_keeps_between_micro_batches_is_told() -> None:
    text = '{"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4, "fsdp": true}'
    found = read_transformers(text, LaunchOptions(1, 8))
    assert any("keeps whole gradients on every device, which is not priced" in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("unsloth/Llama-3.1-70B", "llama-3.1-70b"),
        ("Qwen/Qwen3-8B-Base", "qwen3-8b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("mistralai/Mistral-7B-Instruct-v0.1", "mistral-7b"),
        ("mistralai/Mistral-7B-v0.3", None),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("Qwen/Qwen3-4B", "qwen3-4b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("meta-llama/Llama-3.2-1B", "llama-3.2-1b"),
        ("Qwen/Qwen3-5B", None),
        ("/checkpoints/Qwen3-8B/", "qwen3-8b"),
    ],
)
def test_models_are_known_by_the_names_they_are_published_under(name: str, known: str | None) -> None:
    assert catalogued(name) == known


ARGUMENTS = {"per_device_train_batch_size": 1, "learning_rate": 1e-5}


@pytest.mark.parametrize("key", [{"packing": True}, {"max_length": 4096}, {"use_peft": False}])
def test_what_trls_files_leave_out_is_as_in_its_configuration(key: dict[str, Any]) -> None:
    """`SFTConfig` of trl 1.16: bf16, gradient checkpointing, 1,024 tokens."""
    found = read_transformers(json.dumps({**ARGUMENTS, **key}), LaunchOptions(1, 8))
    assert found.settings["training"]["precision"] == "bf16"
    assert found.settings["training"]["sequence_length"] == key.get("max_length", 1024)
    assert found.settings["fixed"]["recompute"] == "full"
    assert "SFTConfig" in " ".join(found.notes)


@pytest.mark.parametrize(
    ("said", "precision", "recompute"),
    [
        ({}, "fp32", "none"),
        ({"packing": True, "bf16": False}, "fp32", "full"),
        ({"packing": True, "fp16": True}, "fp16", "full"),
        ({"packing": True, "gradient_checkpointing": False}, "bf16", "none"),
        ({"packing": True, "max_seq_length": 2048}, "fp32", "none"),
    ],
)
def test_what_files_for_trl_say_wins(said: dict[str, Any], precision: str, recompute: str) -> None:
    """Releases that say `max_seq_length` have the defaults of `TrainingArguments`, as the Trainer has."""
    found = read_transformers(json.dumps({**ARGUMENTS, **said}), LaunchOptions(1, 8))
    assert found.settings["training"]["precision"] == precision
    assert found.settings["fixed"]["recompute"] == recompute


def test_axolotl_without_bf16_trains_in_single_precision() -> None:
    """Left out, bf16 is auto; false and no other, weights are float32 (utils/config/__init__.py)."""
    base = "base_model: NousResearch/Meta-Llama-3.1-8B\nsequence_len: 4096\nmicro_batch_size: 1\n"
    found = [read_axolotl(base + more, LaunchOptions(1, 8)).settings["training"] for more in ("", "bf16: false\n")]
    assert [each["precision"] for each in found] == ["bf16", "fp32"]


def test_trl_beside_accelerates_file_trains_in_bf16(tmp_path: Path) -> None:
    launch = "distributed_type: FSDP\nnum_processes: 8\nnum_machines: 1\nfsdp_config: {fsdp_version: 2}\n"
    (tmp_path / "accelerate.yaml").write_text(launch)
    options = LaunchOptions(folder=tmp_path)
    found = [read_transformers(json.dumps({**ARGUMENTS, **key}), options) for key in ({"packing": True}, {})]
    assert [each.settings["training"]["precision"] for each in found] == ["bf16", "fp32"]


QLORA = "micro_batch_size: 1\nsequence_len: 512\nadapter: qlora\nload_in_4bit: true\nlora_target_linear: true\n"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"base_model: meta-llama/Meta-Llama-3-8B\n{QLORA}", "nf4-double"),
        (f"base_model: x\n{QLORA}bnb_config_kwargs: {{bnb_4bit_use_double_quant: false}}", "nf4"),
        (f"base_model: x\n{QLORA.replace('qlora', 'lora')}", "nf4"),
        (f"base_model: x\n{QLORA.replace('qlora', 'lora').replace('4bit', '8bit')}", "int8"),
        (f"base_model: unsloth/Qwen2.5-7B-unsloth-bnb-4bit\n{QLORA}", "nf4-double"),
        (f"base_model: TechxGenus/Meta-Llama-3-8B-GPTQ\n{QLORA}", "int4"),
    ],
    ids=["double", "single", "called-lora", "eight", "unsloth", "gptq"],
)
def test_axolotl_keeps_frozen_weights_in_few_bits(text: str, kept: str) -> None:
    """`_set_quantization_config` of axolotl, loaders/model.py, commit 002a637c."""
    assert read_axolotl(text, LaunchOptions(1)).settings["training"]["trainable"]["stored"] == kept


@pytest.mark.longer
@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("quantization_bit: 4", "nf4-double"),
        ("quantization_bit: 4\nquantization_type: fp4\ndouble_quantization: false", "nf4"),
        ("quantization_bit: 8", "int8"),
    ],
)
def test_llama_factory_keeps_frozen_weights_in_few_bits(line: str, kept: str) -> None:
    text = f"model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\nfinetuning_type: lora\n{line}\n"
    found = read_llama_factory(text, LaunchOptions(1))
    assert (found.settings["training"]["trainable"]["stored"], found.settings["model"]) == (kept, "llama-3-8b")


def test_narrow_weights_are_refused_where_releases_differ_or_nobody_can_shard_them() -> None:
    head = "stage: sft\nfinetuning_type: lora\nquantization_bit: "
    for text, told in (
        (f"model_name_or_path: mistralai/Mixtral-8x7B-v0.1\n{head}4\n", "keeps the experts in 16 bits"),
        (f"model_name_or_path: x\n{head}4\nquantization_method: hqq\n", "nest reads bitsandbytes alone"),
        (f"model_name_or_path: x\n{head}3\n", "bitsandbytes has 4 and 8 bits"),
        (f"model_name_or_path: x/Llama-3-8B-AQLM-2Bit\n{head}4\n", "in a format that nest does not know"),
        (f"model_name_or_path: x\n{head}8\ndeepspeed: {{zero_optimization: {{stage: 3}}}}\n", "in 8 bits"),
    ):
        with pytest.raises(InputError, match=told):
            read_llama_factory(text, LaunchOptions(1))
