"""What is no decoder like GPT's is refused, and flags of other versions are read."""

from typing import Any

import pytest

from nest.deployment import LaunchOptions, Reading
from nest.errors import InputError
from nest.hooks.architectures import hybrid_of
from nest_frameworks.megatron.reading.read import read_megatron

WIDTHS = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --vocab-size 1000 --seq-length 512"
BATCH = "--micro-batch-size 2 --global-batch-size 64 --max-position-embeddings 2048"


def read(flags: str, program: str = "pretrain_gpt.py", before: str = "", **options: Any) -> Reading:
    text = f"{before}\ntorchrun --nnodes 1 --nproc-per-node 8 {program} {WIDTHS} {BATCH} {flags}\n"
    return read_megatron(text, LaunchOptions(**options))


@pytest.mark.parametrize(
    ("program", "flags", "told"),
    [
        ("pretrain_t5.py", "", "pretrain_t5.py trains T5"),
        ("examples/bert/pretrain_bert.py", "", "trains BERT"),
        ("pretrain_ict.py", "", "a model that retrieves"),
        ("pretrain_retro.py", "", "a model that retrieves"),
        ("pretrain_vision_classify.py", "", "a vision model"),
        ("examples/mimo/train.py", "", "several modalities"),
        ("train_rl.py", "", "reinforcement"),
        ("train.py", "--actor-num-nodes 1 --advantage-estimator grpo", "reinforcement"),
        ("train_async.py", "--actor-num-nodes 1 --use-dynamic-batch-size", "--actor-num-nodes is a flag of slime"),
        ("examples/multimodal/train.py", "", "--part language-model"),
        ("pretrain_vlm.py", "", "--part language-model"),
        ("tools/preprocess_data.py", "", "trains nothing"),
        ("tools/run_text_generation_server.py", "", "trains nothing"),
        ("pretrain.py", "--encoder-num-layers 12 --decoder-num-layers 12", "--decoder-num-layers is a flag of T5"),
        ("pretrain.py", "--tokenizer-type BertWordPieceLowerCase", "is a flag of BERT"),
        ("pretrain_gpt.py", "--retro-add-retriever", "a model that retrieves"),
        ("pretrain_gpt.py", "--img-h 336 --img-w 336", "a vision-language model"),
        ("pretrain_qwen.py", "--mrope-section 24 20 20", "a vision-language model"),
        ("run_server.py", "--model-provider mamba", "trains nothing"),
        ("pretrain_gpt.py", "--num-tokens-to-generate 16", "a flag of text generation"),
    ],
)
def test_other_models_are_refused(program: str, flags: str, told: str) -> None:
    with pytest.raises(InputError, match="nest prices") as error:
        read(flags, program)
    assert told in str(error.value)


@pytest.mark.parametrize(
    "folder", ["/home/albert", "/export/home/me", "/opt/support", "/data/inference", "/mnt/t5x", "/opt/tools/lm"]
)
def test_folders_that_hold_a_program_say_nothing_of_it(folder: str) -> None:
    assert read("", f"{folder}/pretrain_gpt.py").devices == 8


def test_the_language_model_of_a_vision_language_model_is_priced_alone_and_says_so() -> None:
    found = read("--decoder-seq-length 1024 --freeze-ViT", "examples/multimodal/train.py", part="language-model")
    assert found.notes[0].startswith("only the language model is priced")
    assert found.settings["training"]["sequence_length"] == 1024


@pytest.mark.parametrize(
    ("program", "flags", "part", "told"),
    [
        ("pretrain_gpt.py", "", "language-model", "goes with vision-language models"),
        ("pretrain_vlm.py", "", "vision-model", "it takes language-model"),
        ("pretrain_vlm.py", "--freeze-LM", "language-model", "is not trained"),
        ("pretrain_vlm.py", "--encoder-pipeline-model-parallel-size 1", "language-model", "stages of its own"),
        ("pretrain_t5.py", "", "language-model", "trains T5"),
    ],
)
def test_parts_that_cannot_be_priced(program: str, flags: str, part: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        read(flags, program, part=part)
    assert told in str(error.value)


HYBRID = "--hybrid-layer-pattern MEM*E-/*E/*E --num-experts 8 --moe-shared-expert-intermediate-size 512 "
HYBRID += "--group-query-attention --num-query-groups 4 --moe-ffn-hidden-size 256 --moe-latent-size 128 "
HYBRID += "--disable-bias-linear --position-embedding-type none --mamba-state-dim 64"


def test_models_with_mamba_layers_are_built_as_their_pattern_says() -> None:
    found = read(HYBRID, "pretrain_hybrid.py").settings
    built = hybrid_of({**found["model"], "mtp": True})
    assert built is not None
    assert [type(block.attention).__name__ for block in built.hybrid[:3]] == ["StateSpace", "NoneType", "StateSpace"]
    assert len(built.hybrid) == 6 + 2
    assert built.predicting == 2
    assert found["training"]["mtp"] is True
    experts = built.hybrid[1].feed_forward
    assert (experts.experts, experts.width, experts.latent, experts.shared_width) == (8, 256, 128, 512)
    assert (built.hybrid[0].attention.heads, built.hybrid[0].attention.state) == (32, 64)
    assert any("--num-layers 24 is ignored" in note for note in read(HYBRID, "pretrain_hybrid.py").notes)
    with pytest.raises(InputError) as error:
        read("--hybrid-layer-pattern 'MMM|MMM' --pipeline-model-parallel-size 2", "pretrain_hybrid.py")
    assert "stages (|)" in str(error.value)
    assert "multiple" not in str(error.value)


@pytest.mark.parametrize(
    ("flags", "pattern"),
    [
        ("--hybrid-attention-ratio 0.1 --hybrid-mlp-ratio 0.4", "M-M-MM-*M-M-M-M-*MM-M-M-"),
        ("--hybrid-attention-ratio 0.25", "MMM*MM*MMM*MM*MMM*MM*MMM"),
        ("", 24 * "M"),
    ],
)
def test_shares_of_layers_are_spread_evenly(flags: str, pattern: str) -> None:
    assert read(flags, "pretrain_mamba.py").settings["model"]["hybrid_override_pattern"] == pattern


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("--hybrid-layer-pattern 'MM|MM'", "stages (|)"),
        ("--hybrid-layer-pattern MGM*", "has 'G'"),
        ("--hybrid-layer-pattern MM/MM", "predicts further tokens with layers 'MM'"),
        ("--hybrid-layer-pattern MEM", "a shared expert"),
        ("--hybrid-layer-pattern M-M --swiglu", "without a gate"),
        ("--hybrid-layer-pattern MM --multi-latent-attention", "--multi-latent-attention beside Mamba"),
        ("--hybrid-layer-pattern MM --mamba-num-groups 7", "--mamba-num-groups 7 does not divide"),
        ("--hybrid-attention-ratio 0.7 --hybrid-mlp-ratio 0.7", "must be shares"),
        ("--spec fork.layers hybrid_stack_spec", "builds layers of a fork"),
    ],
)
def test_mamba_layers_that_nest_does_not_build_are_refused(flags: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        read(flags, "pretrain_hybrid.py")
    assert told in str(error.value)


def test_steps_of_reinforcement_learning_are_priced_without_the_rest() -> None:
    assert "neither generating" in read("--perform-rl-step", "pretrain_gpt.py").notes[0]


def test_a_program_nobody_knows_is_told() -> None:
    assert "made_up.py is not known" in read("", "made_up.py").notes[0]


OLD = [
    ("--checkpoint-activations", {"recompute": "full"}, {"attention": "unfused"}),
    ("--checkpoint-activations --use-flash-attn-v2", {"recompute": "full"}, {"attention": "flash"}),
    ("--checkpoint-activations --checkpoint-num-layers 1", {"recompute": "full"}, {}),
    ("--checkpoint-num-layers 1", {"recompute": "none"}, {}),
    ("--activations-checkpoint-method uniform", {"recompute": "full"}, {"attention": "unfused"}),
    ("--activations-checkpoint-granularity selective", {"recompute": "selective"}, {}),
    ("--activations-checkpoint-method block --activations-checkpoint-num-layers 24", {"recompute": "full"}, {}),
    ("--activations-checkpoint-method block --activations-checkpoint-num-layers 5", {"recompute_layers": 5}, {}),
    ("--activations-checkpoint-method block", {"recompute": "full", "recompute_layers": 1}, {}),
    ("--recompute-activations", {"recompute": "selective"}, {}),
    ("--recompute-granularity full --recompute-method uniform", {"recompute": "full"}, {}),
    ("--model-parallel-size 4", {"tp": 4, "dp": 2}, {}),
    ("--DDP-impl torch", {}, {"attention": "unfused", "overlap": {"data": True, "tensor": False, "experts": False}}),
    ("--DDP-impl local", {}, {"overlap": {"data": False, "tensor": False, "experts": False}}),
    ("--deepspeed --zero-stage 2", {"zero": 2}, {}),
    ("--zero-stage 2", {"zero": 0}, {}),
    ("--deepspeed --zero-stage 0 --bf16", {"zero": 1}, {}),
    ("--deepspeed --zero-stage 0 --fp16", {"zero": 0}, {"precision": "fp16"}),
    ("--deepspeed --zero-stage 1 --num-experts 1 --topk 2", {"zero": 1}, {}),
    ("--deepspeed --deepspeed_config ds.json --zero-stage 1", {"zero": 3}, {"offload": ["optimizer"]}),
    ("--deepspeed --deepspeed_config $(dirname $0)/elsewhere.json --zero-stage 2", {"zero": 2}, {}),
    ("--use_distributed_optimizer", {"zero": 1}, {}),
]  # fmt: skip

CONFIG = """
STAGE=3
cat <<EOT > ds.json
{"zero_optimization": {"stage": $STAGE, "offload_optimizer": {"device": "cpu"}}}
EOT
"""


@pytest.mark.parametrize(("flags", "fixed", "training"), OLD)
def test_flags_of_other_versions(flags: str, fixed: dict[str, Any], training: dict[str, Any]) -> None:
    found = read(flags, before=CONFIG).settings
    assert {name: found["fixed"][name] for name in fixed} == fixed
    assert {name: found["training"][name] for name in training} == training


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("--deepspeed --deepspeed_config elsewhere.json", "not to be found here"),
        ("--deepspeed --deepspeed_config broken.json", "no JSON"),
        ("--deepspeed --zero-stage 4", "ZeRO has no stage 4"),
        ("--deepspeed --zero-stage 1 --ds-sequence-parallel-size 4", "Ulysses"),
        ("--deepspeed --zero-stage 1 --num-experts 64 128", "Megatron-DeepSpeed"),
    ],
)
def test_what_deepspeed_does_and_nest_does_not(flags: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        read(flags, before="cat > broken.json <<'EOT'\n{stage: CONFIG_STAGE}\nEOT\n")
    assert told in str(error.value)


def test_a_configuration_that_lies_beside_the_script(tmp_path: Any) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    assert read("--deepspeed --deepspeed_config ds.json", folder=tmp_path).settings["fixed"]["zero"] == 2


def test_shorter_sequences_of_deepspeed_are_told(tmp_path: Any) -> None:
    (tmp_path / "ds.json").write_text('{"curriculum_learning": {"enabled": true}}')
    told = read("--deepspeed --deepspeed_config $(dirname $0)/ds.json --fp16", folder=tmp_path).notes
    assert any("curriculum_learning of $(dirname.../ds.json is not priced" in each for each in told)


def test_old_flags_and_what_is_read_of_them_are_told() -> None:
    told = " ".join(read("--checkpoint-activations --deepspeed --zero-stage 1").notes)
    assert "--checkpoint-activations of older versions" in told
    assert "ZeRO 1, as --zero-stage says" in told


def test_queries_and_windows_of_forks_are_read() -> None:
    """alibaba/Pai-Megatron-Patch has these flags in examples/starcoder and examples/mistral."""
    head = "torchrun --nproc-per-node 8 pretrain_gpt.py"
    bare = WIDTHS.replace("--swiglu", "")
    forked, plain = (
        read_megatron(f"{head} {bare} --micro-batch-size 1 --bf16 {flags}\n").settings
        for flags in (
            "--attention-head-type multiquery --sliding-window 256",
            "--group-query-attention --num-query-groups 1 --window-size 255,0",
        )
    )
    assert forked == plain


def test_the_first_versions_called_a_micro_batch_the_batch_size() -> None:
    found = read_megatron(f"torchrun --nproc-per-node 8 pretrain_gpt.py {WIDTHS} --batch-size 4 --fp16\n")
    assert found.settings["fixed"]["micro_batch"] == 4
    assert found.settings["training"]["global_batch"] == 4 * 8
