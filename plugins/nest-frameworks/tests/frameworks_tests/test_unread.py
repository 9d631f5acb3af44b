"""What a file says and nest does not read is refused where it may change layout, memory or model."""

from pathlib import Path
from typing import Any

import pytest

from frameworks_tests.test_megatron_read import DENSE, read
from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest_frameworks import deepspeed, maxtext_reading
from nest_frameworks.accelerate import read as read_accelerate
from nest_frameworks.megatron.reading.launch import find_launch
from nest_frameworks.megatron.reading.read import read_megatron
from nest_frameworks.megatron.reading.script import walk
from nest_frameworks.megatron.relatives.swift import read as read_swift
from nest_frameworks.megatron.relatives.verl import read as read_verl
from nest_frameworks.nanotron import read as read_nanotron
from nest_frameworks.torchtitan.reading import read as read_torchtitan
from nest_frameworks.trainers.reading import read_axolotl, read_llama_factory, read_transformers

RUN = "torchrun --nproc-per-node 8 pretrain_gpt.py " + " ".join(f"{flag} {value}" for flag, value in DENSE.items())
MAXTEXT = "python3 -m MaxText.train base.yml per_device_batch_size=1 ici_fsdp_parallelism=8 "
VERL = "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.strategy=fsdp "


@pytest.mark.parametrize(
    "script",
    [
        f"{RUN} $(cat flags.txt)",
        f"{RUN} `cat flags.txt`",
        f'ARGS=($(cat flags.txt))\n{RUN} "${{ARGS[@]}}"',
        f"mapfile -t ARGS < flags.txt\n{RUN} ${{ARGS[@]}}",
        f"read -r -a ARGS < flags.txt\n{RUN} ${{ARGS[@]}}",
        f'set -- $(cat flags.txt)\n{RUN} "$@"',
        f"EXTRA=$(python flags.py)\n{RUN} --swiglu $EXTRA",
        RUN.replace("--swiglu", "--swiglu $(cat flags.txt)"),
        RUN.replace("torchrun", "torchrun $(cat launch.txt)"),
    ],
)
def test_flags_out_of_a_command_are_refused(script: str) -> None:
    with pytest.raises(InputError, match=r"(content of |\$\((<|mapfile|read|python)).*(into the script|give --nodes)"):
        read_megatron(script)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (f"cat flags.txt | xargs {RUN}", r"\$\(xargs\.\.\..* stands among the flags"),
        (f"{RUN} --{{use-distributed-optimizer,overlap-grad-reduce}}", "does not expand braces"),
        (f"{RUN} --yaml-cfg conf.yaml", "its file replaces all flags"),
        (f"mpirun -n 8 python {RUN.partition('8 ')[2]} : -n 8 python other.py", "nest prices one program"),
    ],
)
def test_flags_that_are_elsewhere_are_refused(script: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_megatron(script)


FLAGS = "--swiglu\n--context-parallel-size 2\n"


@pytest.mark.parametrize(
    "script",
    [
        f"{RUN} $(cat flags.txt)",
        f"{RUN} `cat ./flags.txt`",
        f'P="$(cat flags.txt)"\nP="$P --bf16"\n{RUN} $P',
        f"F=flags.txt\nARGS=($(<$F))\n{RUN} ${{ARGS[@]}} --bf16",
        f'{RUN} $(cat "flags.txt" | xargs)',
        f"export $(cat .env)\n{RUN} --swiglu --context-parallel-size ${{CP:-1}}",
        f"cat > made.txt <<'E'\n{FLAGS}E\n{RUN} $(cat made.txt)",
    ],
)
def test_flags_out_of_a_file_beside_are_read(script: str, tmp_path: Path) -> None:
    (tmp_path / "flags.txt").write_text(FLAGS)
    (tmp_path / ".env").write_text("CP=2\n")
    found = read_megatron(script, LaunchOptions(nodes=2, folder=tmp_path))
    assert found.settings == read_megatron(f"{RUN} {FLAGS}".replace("\n", " "), LaunchOptions(nodes=2)).settings


@pytest.mark.parametrize(
    "script",
    [
        f"sed -i s/8/4/ flags.txt\n{RUN} $(cat flags.txt)",
        f"echo --swiglu > flags.txt\n{RUN} $(cat flags.txt)",
        f"python flags.py >> flags.txt\n{RUN} $(cat flags.txt)",
        f"{RUN} $(cat other.txt)",
        f"{RUN} $(cat flags.txt | grep tensor)",
        f"{RUN} $(cat flags.txt other.txt)",
        f"printf -v P -- --context-parallel-size=2\n{RUN} $P",
        f'P="$(cat flags.txt)"\n{RUN} "$P"',
    ],
)
def test_flags_out_of_a_file_that_a_script_may_change_are_refused(script: str, tmp_path: Path) -> None:
    (tmp_path / "flags.txt").write_text(FLAGS)
    with pytest.raises(InputError, match=r"does not see what it prints|script changes it|leave the quotes"):
        read_megatron(script, LaunchOptions(folder=tmp_path))


@pytest.mark.parametrize("call", ["bash inner.sh", "./inner.sh", "source inner.sh", "(cd ../runs && bash inner.sh)"])
def test_a_script_in_a_folder_that_is_entered_is_read(call: str, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "inner.sh").write_text(RUN)
    found = read_megatron(f'cd "$(dirname "$0")"\ncd runs\n{call}\n', LaunchOptions(folder=tmp_path))
    assert found.settings == read_megatron(RUN).settings


def test_a_file_of_flags_that_is_not_there_is_named() -> None:
    script = f'P="$(cat runs/nofile.txt)"\nP="$P --bf16"\n{RUN} $P'
    with pytest.raises(InputError, match=r"content of runs/nofile.txt stands among the flags, but that file is not"):
        read_megatron(script)


def test_variables_out_of_a_command_are_told() -> None:
    notes = read_megatron(f"export $(grep -v '#' .env | xargs)\n{RUN} --context-parallel-size ${{CP:-1}}").notes
    assert any("is not here, and nest assumes that it sets nothing: $(grep..." in note for note in notes)


@pytest.mark.parametrize(("flags", "told"), [("", True), (" --deepspeed --zero-stage 1", False)])
def test_domino_is_told(flags: str, told: bool) -> None:
    """deepspeedai/DeepSpeedExamples 9478a6f has such a script, training/DeepSpeed-Domino/pretrain_gpt3_13b.sh."""
    script = RUN.replace("torchrun --nproc-per-node 8", "deepspeed --num_gpus 8") + flags
    assert any("Domino" in note for note in read_megatron(script).notes) == told


def test_a_checkpoint_that_may_change_the_model_is_told() -> None:
    assert any("--use-checkpoint-args" in note for note in read_megatron(f"{RUN} --use-checkpoint-args").notes)


def test_values_out_of_a_command_are_not() -> None:
    told = "--save $(pwd) --data-path 1 $(ls data) --tensorboard-dir `pwd` --wandb-exp-name run-$(date)"
    assert read_megatron(f"{RUN} {told}").settings == read_megatron(RUN).settings


@pytest.mark.parametrize(
    ("reader", "text"),
    [(maxtext_reading.read, f"{MAXTEXT} $(cat settings)"), (read_verl, f"{VERL} $(cat overrides)")],
)
def test_settings_out_of_a_command_are_refused(reader: Any, text: str) -> None:
    with pytest.raises(InputError, match="nest does not see what it prints"):
        reader(text.replace("cat", "python"))
    with pytest.raises(InputError, match=r"the content of \w+ stands among .* that file is not here"):
        reader(text)


LLAMA_FACTORY = "model_name_or_path: x\nstage: sft\nfinetuning_type: full\ncutoff_len: 512\n"
AXOLOTL = "base_model: x\nmicro_batch_size: 1\nsequence_len: 512\n"
TITAN = '[model]\nname = "llama3"\nflavor = "8B"\n[parallelism]\ndata_parallel_shard_degree = 8\n'
SWIFT = "model: meta-llama/Llama-3.1-8B\nmax_length: 4096\nENV: {NPROC_PER_NODE: 8}\n"
NANOTRON = "parallelism: {dp: 2, pp: 1, tp: 4}\ntokens: {micro_batch_size: 1, sequence_length: 256}\n"
TRAINER = "per_device_train_batch_size: 1\nmax_length: 512\n"


@pytest.mark.parametrize(
    ("reader", "text", "key"),
    [
        (read_transformers, f"{TRAINER}parallelism_config: {{tp_size: 2}}", "parallelism_config.tp_size"),
        (read_transformers, f"{TRAINER}parallelism_config: mesh.json", "parallelism_config"),
        (read_axolotl, f"{AXOLOTL}pipeline_parallel_size: 2", "pipeline_parallel_size"),
        (read_torchtitan, f"{TITAN}tensor_shard_degree = 2", "parallelism.tensor_shard_degree"),
        (read_accelerate, "distributed_type: MULTI_GPU\npp_size: 2", "pp_size"),
        (
            read_accelerate,
            "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: z.json}",
            "`nest evaluate --from deepspeed` prices",
        ),
        (read_axolotl, f"{AXOLOTL}use_tensor_parallel: true", "use_tensor_parallel"),
        (read_axolotl, f"{AXOLOTL}overrides_of_model_config: {{num_hidden_layers: 4}}", "config.num_hidden_layers"),
        (read_axolotl, f"{AXOLOTL}adapter: lora\npeft_layers_to_transform: [0, 1]", "peft_layers_to_transform"),
        (read_axolotl, f"{AXOLOTL}relora_steps: 100", "relora_steps"),
        (read_axolotl, f"{AXOLOTL}quantize_moe_experts: True", "quantize_moe_experts"),
        (read_transformers, f"{TRAINER}freeze_embeddings: true", "freeze_embeddings"),
        (read_llama_factory, f"{LLAMA_FACTORY}use_mca: true", "use_mca"),
        (read_llama_factory, f"{LLAMA_FACTORY}tensor_model_parallel_size: 2\nfp8_param: true", "fp8_param"),
        (read_llama_factory, f"{LLAMA_FACTORY}freeze_language_model: true", "freeze_language_model"),
        (read_swift, f"{SWIFT}model_kwargs: {{num_hidden_layers: 4}}", "model_kwargs.num_hidden_layers"),
        (read_swift, f"{SWIFT}load_in_4bit: true", "load_in_4bit"),
        (read_swift, "NPROC_PER_NODE=8 megatron sft --config x.yaml --max_length 512\n", "takes its arguments from"),
        (deepspeed.read, '{"train_batch_size": 8, "zero_optimization": {"zero_hpz_partition_size": 8}}', "hpz"),
        (maxtext_reading.read, f"{MAXTEXT} ici_stage_parallelism=2", "ici_stage_parallelism"),
        (
            maxtext_reading.read,
            f"{MAXTEXT} model_name=llama3-8b override_model_config=true base_emb_dim=4",
            "override_model_config has base_emb_dim change llama3-8b",
        ),
        (read_megatron, f"{RUN} --virtual-shard-degree 2", "--virtual-shard-degree"),
        (read_axolotl, f"{AXOLOTL}activation_offloading: true", "activation_offloading is True"),
        (read_axolotl, f"{AXOLOTL}gradient_checkpointing: offload", "gradient_checkpointing is 'offload'"),
        (read_axolotl, f"{AXOLOTL}layer_offloading: true", "layer_offloading is True"),
        (read_axolotl, f"{AXOLOTL}tiled_mlp: true", "tiled_mlp is True"),
        (read_axolotl, f"{AXOLOTL}optimizer: muon", "optimizer is muon, whose state"),
        (read_axolotl, f"{AXOLOTL}adapter: lora\npeft_use_dora: true", "peft_use_dora is True"),
        (read_llama_factory, f"{LLAMA_FACTORY}use_muon: true", "use_muon is True"),
        (read_llama_factory, f"{LLAMA_FACTORY}use_adam_mini: true", "use_adam_mini is True"),
        (read_llama_factory, f"{LLAMA_FACTORY}use_unsloth_gc: true", "use_unsloth_gc is True"),
        (read_llama_factory, f"{LLAMA_FACTORY}shift_attn: true", "shift_attn is True"),
        (read_transformers, f"{TRAINER}optim: adafactor", "optim is adafactor, whose state"),
        (read_transformers, f"{TRAINER}use_peft: true\nuse_dora: true", "use_dora is True"),
        (read_accelerate, "distributed_type: FSDP\nparallelism_config: {sp_size: 2}", "sp_size is 2"),
        (
            read_accelerate,
            "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3, offload_param_device: cpu}",
            "offload_param_device is 'cpu'",
        ),
        (read_torchtitan, f"{TITAN}[optimizer]\nearly_step_in_backward = true", "early_step_in_backward is True"),
        (read_torchtitan, f"{TITAN}[fault_tolerance]\nenable = true", "fault_tolerance.enable is True"),
        (
            read_torchtitan,
            f"{TITAN}pipeline_parallel_expert_parallel_overlap = true",
            "parallel_overlap is True",
        ),
        (read_nanotron, f"{NANOTRON}model: {{model_config: {{sliding_window_size: 64}}}}", "sliding_window_size is 64"),
        (
            maxtext_reading.read,
            f"{MAXTEXT} parameter_memory_host_offload=true",
            "memory_host_offload is True",
        ),
        (maxtext_reading.read, f"{MAXTEXT} num_vocab_tiling=4", "num_vocab_tiling is 4"),
        (maxtext_reading.read, f"{MAXTEXT} mu_dtype=bfloat16", "mu_dtype is bfloat16"),
        (maxtext_reading.read, f"{MAXTEXT} attention_type=local_sliding", "attention_type is 'local_sliding'"),
        (read_swift, f"{SWIFT}fine_grained_activation_offloading: true", "fine_grained_activation_offloading is True"),
        (read_swift, f"{SWIFT}mtp_num_layers: 1", "mtp_num_layers is 1"),
        (read_verl, f"{VERL} actor_rollout_ref.model.enable_activation_offload=True", "enable_activation_offload is"),
        (read_llama_factory, f"{LLAMA_FACTORY}use_asft_loss: true", "runs a reference model beside"),
        (
            read_nanotron,
            f"{NANOTRON}infini_attention: {{turn_on_memory: true}}",
            "infini_attention.turn_on_memory is True",
        ),
        (read_swift, f"{SWIFT}megatron_extra_kwargs: '{{\"hidden_parallel\": 2}}'", "hidden_parallel is 2"),
        (read_swift, f"{SWIFT}megatron_extra_kwargs: {{tensor_model_parallel_size: x}}", "'x'"),
        *(
            (read_swift, f"{SWIFT}megatron_extra_kwargs: '{text}'", f"kwargs is '{text}'; it must be a JSON object of")
            for text in ("[1, 2]", "3", '{"a":')
        ),
        (read_nanotron, f"{NANOTRON}doremi: {{ref_model_resume_checkpoint_path: a}}", "doremi.ref_model_resume"),
        (
            read_swift,
            "NPROC_PER_NODE=8 \\\n swift sft --model x --deepspeed zero3\n",
            "`swift sft` runs Hugging Face's",
        ),
        (read_megatron, f"{RUN} --cpu-offloading-num-layers 1", "--cpu-offloading-num-layers 1 is not priced"),
        (read_megatron, f"{RUN} --geglu", "--geglu is no flag of Megatron-LM that nest reads"),
        (read_megatron, f"{RUN} --fp32-residual-connection", "--fp32-residual-connection is not priced"),
        (read_megatron, f"{RUN} --outer-dp-sharding-strategy optim", "--outer-dp-sharding-strategy optim is not"),
        (
            read_megatron,
            f"{RUN} --optimizer-cpu-offload --use-precision-aware-optimizer --optimizer-offload-fraction 0.5",
            "--optimizer-offload-fraction is 0.5",
        ),
    ],
)
def test_unread_keys_that_split_the_model_are_refused(reader: Any, text: str, key: str) -> None:
    with pytest.raises(InputError) as error:
        reader(text)
    assert key in str(error.value)


@pytest.mark.parametrize("value", ["1", "false", "null", "none"])
def test_unread_keys_that_ask_for_nothing_are_not(value: str) -> None:
    read_axolotl(f"{AXOLOTL}pipeline_parallel_size: {value}")
    read_axolotl(f"{AXOLOTL}colour: {value}")
    idle = "--cpu-offloading-num-layers 0 --outer-dp-sharding-strategy no_shard --megatron-fsdp-main-params-dtype fp32"
    read_megatron(f"{RUN} {idle}")


FULL = {"recompute_granularity": "full", "recompute_method": "block"}


@pytest.mark.parametrize(
    ("layers", "changed", "recomputed"),
    [
        ("8", {"num_layers": "32"}, None),
        ("8", {"num_layers": "32", "mtp_num_layers": "1"}, 8),
        ("99", {"num_layers": "32", "mtp_num_layers": "1"}, 8),
        ("4", {"num_virtual_stages_per_pipeline_rank": "2"}, None),
        ("3", {"num_virtual_stages_per_pipeline_rank": "2"}, 3),
        ("4", {"pipeline_model_parallel_layout": "Ettt|(tttt|)*6tttL", "num_layers": "30"}, None),
        ("3", {"pipeline_model_parallel_layout": "Ettt|(tttt|)*6tttL", "num_layers": "30"}, 3),
        ("10", {"decoder_first_pipeline_num_layers": "2"}, None),
        ("9", {"decoder_first_pipeline_num_layers": "2"}, 9),
        ("99", {}, None),
    ],
)
def test_blocks_that_are_recomputed_count_in_each_chunk(
    layers: str, changed: dict[str, str], recomputed: int | None
) -> None:
    """None: those of every chunk are all; layers that predict further tokens are never among them."""
    found = read(DENSE, **{**changed, **FULL, "recompute_num_layers": layers})
    assert found.settings["fixed"]["recompute"] == "full"
    assert found.settings["fixed"].get("recompute_layers") == recomputed
    assert not any("predict further tokens" in note for note in found.notes)


def test_a_fork_that_counts_recomputed_blocks_by_the_stage_is_refused_where_stages_have_chunks() -> None:
    told = {**FULL, "recompute_num_layers": "3"}
    by_stage = {**told, "enable_recompute_layers_per_pp_rank": ""}
    assert read(DENSE, **by_stage).settings == read(DENSE, **told).settings
    with pytest.raises(InputError, match=r"per-pp-rank is not priced: nest counts .* in each chunk"):
        read(DENSE, **by_stage, num_virtual_stages_per_pipeline_rank="2")


def test_more_blocks_than_stand_beside_those_that_predict_further_tokens_are_told() -> None:
    changed = {"pipeline_model_parallel_layout": "Et*10|t*10|t*10|t*2mL", "mtp_num_layers": "1"}
    for layers, told, recomputed in (("2", False, 2), ("5", True, 5), ("10", True, None)):
        found = read(DENSE, **{**changed, **FULL, "recompute_num_layers": layers})
        assert found.settings["fixed"].get("recompute_layers") == recomputed
        assert any("predict further tokens" in note for note in found.notes) == told


@pytest.mark.parametrize("end", ["first", "last"])
def test_ends_of_one_stage_are_the_model(end: str) -> None:
    alone = {"pipeline_model_parallel_size": "1", f"decoder_{end}_pipeline_num_layers": "32"}
    assert read(DENSE, **alone).settings == read(DENSE, pipeline_model_parallel_size="1").settings
    with pytest.raises(InputError, match="builds a model of 30 layers in place of --num-layers 32"):
        read(DENSE, **{**alone, f"decoder_{end}_pipeline_num_layers": "30"})


WHITE = ["\u00a0", "\f", "\v", "\u2028", "\u2029", "\u200b", "\ufeff", "\x85", "\x1c", "\u3000"]


@pytest.mark.parametrize("space", WHITE, ids=lambda each: f"U+{ord(each):04X}")
def test_white_space_that_parts_no_words_is_refused(space: str) -> None:
    number = f"U\\+{ord(space):04X}"
    for script in (f"{RUN}{space}--bf16", f"{space}\n{RUN}", f"ARGS=(--x{space}1)\n{RUN}", f"X=a{space}b; {RUN}"):
        with pytest.raises(InputError, match=f"line [12]: .*{number}"):
            read_megatron(script)
    with pytest.raises(InputError, match=number):
        read_megatron(f"A='--save{space}4'\n{RUN} $A")  # One word, as an expansion is parted by IFS.
    with pytest.raises(InputError, match=number):
        maxtext_reading.read(f"{MAXTEXT}ici{space}_tensor_parallelism=2")
    with pytest.raises(InputError, match=number):
        read_verl(f"{VERL} 'trainer{space}.nnodes=2'")
    assert walk(f"# a{space}b\npython x.py '{space}' \"{space}\"").calls[0].words == ("python", "x.py", space, space)


def test_a_script_with_nul_is_refused() -> None:
    with pytest.raises(InputError, match="NUL"):
        find_launch(f"{RUN}\0--bf16")
