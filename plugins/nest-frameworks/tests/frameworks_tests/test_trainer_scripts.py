"""Trainings of LLaMA-Factory, Axolotl and Hugging Face's Trainer as people start them: scripts, adapters, parts."""

from pathlib import Path
from typing import Any

import pytest

from nest.deployment import LaunchOptions, Reading
from nest.errors import InputError
from nest_frameworks import nest_plan_readers

READERS = {each.name: each for each in nest_plan_readers()}
FLAGS = "--model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --bf16"
CLI = f"llamafactory-cli train --stage sft --finetuning_type full --cutoff_len 1024 {FLAGS}"
MOE = "{base_model: Qwen/Qwen3-30B-A3B, sequence_len: 512, micro_batch_size: 1, adapter: lora, "


def read(reader: str, text: str, **options: Any) -> Reading:
    return READERS[reader].read_launch(text, LaunchOptions(**options))


@pytest.mark.parametrize(
    ("reader", "text", "devices", "batch"),
    [
        ("llama-factory", f"CUDA_VISIBLE_DEVICES=0,1,2,3 {CLI}\n", 4, 32),
        ("llama-factory", f"export NNODES=2 NPROC_PER_NODE=8\n{CLI}\n", 16, 128),
        ("transformers", f"echo {FLAGS}\nsrun bash -c 'torchrun --nproc_per_node 2 train.py {FLAGS}'\n", 2, 16),
        ("llama-factory", f"llamafactory-cli chat --model_name_or_path x\n{CLI}\n", 8, 64),
        ("transformers", f"torchrun --nproc_per_node=2 train_mem.py {FLAGS} --fsdp 'full_shard auto_wrap'\n", 2, 16),
        ("transformers", f"torchrun --nnodes 2 --nproc-per-node 8 -m fastchat.train {FLAGS}\n", 16, 128),
        ("transformers", f"deepspeed --num_gpus 4 train.py {FLAGS} --deepspeed z.json\n", 4, 32),
        ("llama-factory", "llamafactory-cli train run.yaml --per_device_train_batch_size 2\n", 8, 16),
        ("llama-factory", "llamafactory-cli train run.yaml per_device_train_batch_size=2\n", 8, 16),
        ("transformers", f"accelerate launch --config_file z.yaml train.py {FLAGS}\n", 4, 32),
        ("transformers", f"accelerate launch --config_file z.deep.yaml train.py {FLAGS}\n", 16, 128),
        ("transformers", f"accelerate launch --config_file z.yaml train.py {FLAGS} --deepspeed z.json\n", 4, 32),
        ("transformers", f"torchrun --nproc_per_node=2 sft.py --config small.yaml {FLAGS}\n", 2, 16),
        ("transformers", "A=1 accelerate launch --config_file z.yaml sft.py --config model.yaml\n", 4, 32),
        ("transformers", "A=1 accelerate launch --config_file z.yaml sft.py model.yaml\n", 4, 32),
        (
            "transformers",
            f'accelerate launch --config_file=z.yaml --num_processes 2 train.py {FLAGS} $MORE "$@"\n',
            2,
            16,
        ),
    ],
)
def test_flags_of_a_script_are_keys(reader: str, text: str, devices: int, batch: int, tmp_path: Path) -> None:
    (tmp_path / "z.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}')
    (tmp_path / "z.yaml").write_text(
        "{distributed_type: FSDP, mixed_precision: bf16, num_processes: 4, fsdp_config: {fsdp_version: 2}}"
    )
    (tmp_path / "z.deep.yaml").write_text(
        "{distributed_type: DEEPSPEED, num_machines: 2, num_processes: 16, deepspeed_config: "
        "{deepspeed_config_file: z.json, zero3_init_flag: true}}"
    )
    (tmp_path / "model.yaml").write_text(
        "per_device_train_batch_size: 2\ngradient_accumulation_steps: 4\nmodel_name_or_path: Qwen/Qwen3-8B\n"
    )
    (tmp_path / "small.yaml").write_text("{per_device_train_batch_size: 1, fsdp: full_shard}")
    (tmp_path / "run.yaml").write_text(
        "{stage: sft, finetuning_type: full, model_name_or_path: Qwen/Qwen3-8B, bf16: true}"
    )
    found = read(reader, text, folder=tmp_path)
    assert (found.devices, found.settings["training"]["global_batch"]) == (devices, batch)
    assert found.settings["model"] == "qwen3-8b"
    assert found.settings["fixed"]["zero"] == (3 if any(each in text for each in ("full_shard", "z.", "small")) else 0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("llamafactory-cli train missing.yaml\n", "takes its arguments from 'missing.yaml', which is not here"),
        ("llamafactory-cli chat --model_name_or_path x\n", "there is no call of a program"),
        (f"{CLI} --stage dpo\n", "stage is dpo"),
        (f"{CLI} --max_steps $(wc -l x)\n", "max_steps is '$(wc...', which only a run would tell"),
        (f"{CLI} --pipeline_degree 2\n", "pipeline_degree is 2, which nest does not read"),
    ],
)
def test_scripts_that_cannot_be_priced(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read("llama-factory", text, folder=tmp_path)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("launch", "flags", "told"),
    [
        ("accelerate launch --config_file y.yaml", "", "names y.yaml, which is not here"),
        ("accelerate launch --num_processes 8 --use_fsdp", "", "--use_fsdp shards, which nest does not read"),
        ("accelerate launch --num-processes 8 --use-deepspeed --zero-stage 3", "", "--use-deepspeed shards"),
        ("deepspeed --num_gpus 8", "--deepspeed", "deepspeed names no file"),
        ("torchrun --nproc_per_node 8", "--num_generations 8", "num_generations is 8, but nest prices steps"),
        ("torchrun --nproc_per_node 8 run_dpo.py", "", "run_dpo.py trains by dpo"),
    ],
)
def test_how_a_launch_shards_is_not_passed_over(launch: str, flags: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read("transformers", f"{launch} train.py {FLAGS} {flags}\n", folder=tmp_path)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("said", "targets", "told"),
    [
        ("lora_target_linear: true", ["q_proj", "k_proj", "v_proj", "o_proj"], ""),
        ("lora_target_modules: [q_proj, up_proj]", ["q_proj"], ""),
        ("lora_target_modules: '.*self_attn.(q|v)_proj'", ["q_proj", "v_proj"], ""),
        (
            "lora_target_modules: [q_proj], lora_target_parameters: [mlp.experts.down_proj]",
            ["q_proj", "down_proj"],
            "",
        ),
        ("lora_target_parameters: [router.weight]", None, "nest knows gate_up_proj, down_proj of experts"),
        ("lora_target_modules: '(a+)+b'", None, "a regular expression that nest does not match"),
        ("lora_target_modules: '.*_norm$'", None, "which matches no projection"),
        ("quantize_moe_experts: true", None, "needs load_in_4bit or load_in_8bit"),
        ("load_in_4bit: true", None, "unless quantize_moe_experts is true"),
    ],
)
def test_adapters_beside_experts(said: str, targets: list[str] | None, told: str) -> None:
    if targets is None:
        with pytest.raises(InputError) as error:
            read("axolotl", f"{MOE}{said}}}")
        assert told in str(error.value)
        return
    assert read("axolotl", f"{MOE}{said}}}").settings["training"]["trainable"]["lora"]["targets"] == targets


def test_experts_in_few_bits_and_their_kernels_count() -> None:
    said = f"{MOE}load_in_4bit: true, quantize_moe_experts: true, experts_implementation: eager, "
    training = read("axolotl", f"{said}plugins: [axolotl.integrations.kernels.KernelsPlugin]}}").settings["training"]
    assert training["trainable"]["stored"] == "nf4"
    assert training["expert_products"] == "sequential"


@pytest.mark.parametrize(("dequantize", "model"), [("true", "gpt-oss-20b"), ("false", None)])
def test_published_formats_count_unless_they_are_widened(dequantize: str, model: str | None) -> None:
    text = (
        "{base_model: openai/gpt-oss-20b, sequence_len: 512, micro_batch_size: 1, adapter: lora, "
        f"model_quantization_config: Mxfp4Config, model_quantization_config_kwargs: {{dequantize: {dequantize}}}}}"
    )
    if model is None:
        with pytest.raises(InputError, match="model_quantization_config is 'Mxfp4Config'"):
            read("axolotl", text)
        return
    assert read("axolotl", text).settings["model"] == model


SEEING = {
    "llama-factory": "{stage: sft, cutoff_len: 512, model_name_or_path: Qwen/Qwen3-VL-8B-Instruct}",
    "ms-swift": "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-VL-8B-Instruct --max_length 4096\n",
    "verl": "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-VL-8B-Instruct trainer.nnodes=1 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 trainer.n_gpus_per_node=8\n",
}


@pytest.mark.parametrize("reader", SEEING)
def test_the_language_model_of_a_vision_language_model_is_priced_if_that_is_asked(reader: str) -> None:
    text = SEEING[reader]
    with pytest.raises(InputError, match="--part language-model prices its language model alone"):
        read(reader, text)
    found = read(reader, text, part="language-model")
    assert found.settings["model"] == "qwen3-8b"
    assert any("vision encoder" in note for note in found.notes)
    with pytest.raises(InputError, match="it takes language-model"):
        read(reader, text, part="encoder")
    with pytest.raises(InputError, match="goes with vision-language models"):
        read(reader, text.replace("-VL-8B-Instruct", "-8B"), part="language-model")


def test_files_that_a_script_writes_are_read() -> None:
    sharded = 'cat <<EOF > z.json\n{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}\nEOF\n'
    arguments = "cat > run.yaml <<EOF\nstage: sft\nfinetuning_type: full\nbf16: true\ndeepspeed: z.json\nEOF\n"
    found = read("llama-factory", f"{sharded}{arguments}NPROC_PER_NODE=4\nllamafactory-cli train run.yaml\n").settings
    assert {"zero": 3, "dp": 4}.items() <= found["fixed"].items()
    settings = "cat > a.yaml <<EOF\ndistributed_type: FSDP\nnum_processes: 4\nfsdp_config: {fsdp_version: 2}\nEOF\n"
    launched = "accelerate launch --config_file a.yaml t.py --per_device_train_batch_size 2 --max_length 64"
    assert {"zero": 3, "dp": 4}.items() <= read("transformers", settings + launched).settings["fixed"].items()
