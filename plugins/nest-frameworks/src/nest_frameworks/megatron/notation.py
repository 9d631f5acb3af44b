"""Formats of Megatron-LM: flags in shell and YAML files, their values, pipeline layouts, layer patterns.

`--pipeline-model-parallel-layout`: chunks are separated by `|`, in the order in which a micro-batch passes them: chunk
`k` is on pipeline rank `k % pp`. A chunk is a run of letters: `E` embedding, `t` transformer block, `m` block that
predicts further tokens, `L` loss. `x*n` repeats the letter before it `n` times, `(...)*n` the parentheses, which do not
nest; commas are ignored (megatron/core/transformer/pipeline_parallel_layer_layout.py of Megatron Core 0.16,
`parse_str_to_list`).

`--moe-layer-freq` and `--window-attn-skip-freq`: Python lists of 0 and 1, one for each layer.
"""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from shlex import quote
from shlex import split as shlex_split

from nest.errors import InputError

Value = bool | int | float | str | tuple[str, ...] | None
"""Value of a flag: True stands alone; several words follow one flag; False and None leave it out."""

Flags = dict[str, Value]
"""Values by flag, each with its hyphens."""


def given_flags(flags: Mapping[str, Value]) -> dict[str, bool | int | float | str | tuple[str, ...]]:
    """The flags that are given: those that are neither False nor None."""
    return {flag: value for flag, value in flags.items() if value is not None and value is not False}


def given_words(groups: Mapping[str, Flags]) -> tuple[str, ...]:
    """The words of a command line with all flags of `groups`."""
    given = [pair for flags in groups.values() for pair in given_flags(flags).items()]
    return tuple(word for flag, value in given for word in shlex_split(_words(flag, value)))


def shell_file(
    comments: Sequence[str], environment: Mapping[str, str], unset: Sequence[str], groups: Mapping[str, Flags]
) -> str:
    """A bash file to be sourced: an array for each group that says something, and `MEGATRON_ARGS` with all of them."""
    arrays = {name: given_flags(flags) for name, flags in groups.items() if given_flags(flags)}
    lines = ["#!/usr/bin/env bash", *(_comment(text) for text in comments)]
    lines += [f"export {name}={quote(value)}" for name, value in environment.items()]
    lines += [f"unset {name}" for name in unset]
    for name, flags in arrays.items():
        lines += [f"{name}=(", *(f"  {_words(flag, value)}" for flag, value in flags.items()), ")"]
    lines += ["MEGATRON_ARGS=(", *(f'  "${{{name}[@]}}"' for name in arrays), ")"]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    return f"# {' '.join(text.split())}"


def _words(flag: str, value: bool | int | float | str | tuple[str, ...]) -> str:
    if value is True:
        return flag
    words = value if isinstance(value, tuple) else (str(value),)
    return " ".join([flag, *(quote(word) for word in words)])


def yaml_file(comments: Sequence[str], environment: Mapping[str, str], groups: Mapping[str, Flags]) -> str:
    """The map of flags that Megatron-LM's functional tests read: `ENV_VARS` and `MODEL_ARGS`.

    Words are written as JSON writes them, which YAML reads alike.
    """
    lines = [_comment(text) for text in comments]
    if environment:
        lines += ["ENV_VARS:", *(f"  {name}: {json.dumps(value)}" for name, value in environment.items())]
    flags = [(flag, value) for group in groups.values() for flag, value in given_flags(group).items()]
    lines += ["MODEL_ARGS:", *(f"  {flag}: {_yaml(value)}" for flag, value in flags)]
    return "\n".join(lines) + "\n"


def _yaml(value: bool | int | float | str | tuple[str, ...]) -> str:
    """Several words stand in one pair of brackets, as Megatron-LM's `_run_training.sh` takes them apart."""
    return json.dumps(f"[{' '.join(value)}]" if isinstance(value, tuple) else value)


EMBEDDING, BLOCK, PREDICTION, LOSS = "E", "t", "m", "L"
LETTERS = EMBEDDING + BLOCK + PREDICTION + LOSS
FLAG = "--pipeline-model-parallel-layout"

LONGEST = 100_000
"""Letters a layout may stand for; models have hundreds of blocks."""

_REPEATED_PART = re.compile(r"\(([^()]+)\)\*(\d+)")
_REPEATED_LETTER = re.compile(r"(.)\*(\d+)")


def write_layout(chunks: Sequence[str]) -> str:
    """`chunks`, each a run of letters, in the grammar; runs of one letter are shortened."""
    return "|".join("".join(_run(letter, len(list(run))) for letter, run in groupby(chunk)) for chunk in chunks)


def _run(letter: str, length: int) -> str:
    return letter if length == 1 else f"{letter}*{length}"


def read_layout(text: str) -> tuple[str, ...]:
    """The chunks that `text` describes, each a run of letters.

    Raises:
        InputError: the text is not in the grammar.
    """
    plain = _expanded(_expanded(text.replace(",", ""), _REPEATED_PART), _REPEATED_LETTER)
    strange = sorted({letter for letter in plain if letter not in LETTERS + "|"})
    if strange:
        raise InputError(
            f"{FLAG} {text!r:.80} has {strange[0]!r}; it is made of {', '.join(LETTERS)}, `|`, and repetitions such as "
            "`t*8` and `(tt|)*3`, whose parentheses do not nest."
        )
    return tuple(plain.split("|"))


def _expanded(text: str, repetition: re.Pattern[str]) -> str:
    """`text` with each repetition written out."""
    length = len(text) + sum(len(part) * _count(number) for part, number in repetition.findall(text))
    if length > LONGEST:
        raise InputError(f"{FLAG} {text!r:.80} stands for more than {LONGEST} letters.")
    return repetition.sub(lambda match: match.group(1) * int(match.group(2)), text)


def _count(number: str) -> int:
    """`number`, but not more than is too many: Python reads no number of thousands of digits."""
    return int(number) if len(number) < len(str(LONGEST)) + 1 else LONGEST + 1


def check_layout(chunks: Sequence[str], layers: int, stages: int, further: int) -> None:
    """Refuse chunks that are no layout of a model over pipeline ranks.

    Args:
        chunks: each a run of letters.
        layers: transformer blocks.
        stages: pipeline ranks.
        further: blocks behind these that predict further tokens.

    Raises:
        InputError: as Megatron Core's `validate_layer_layout` and Megatron-LM's `validate_args` would, or an end of the
            model is missing.
    """
    letters = "".join(chunks)
    written = f"{FLAG} {write_layout(chunks)!r:.120}"
    if len(chunks) % stages:
        raise InputError(
            f"{written} has {len(chunks)} chunks, which --pipeline-model-parallel-size {stages} does not divide."
        )
    if letters.count(BLOCK) != layers:
        raise InputError(f"{written} has {letters.count(BLOCK)} transformer layers, but --num-layers is {layers}.")
    for letter, end, place in ((EMBEDDING, letters[:1], "first"), (LOSS, letters[-1:], "last")):
        if letters.count(letter) != 1 or end != letter:
            raise InputError(f"{written} must have {letter} exactly once, as its {place} letter.")
    if letters.count(PREDICTION) != further:
        raise InputError(f"{written} has {letters.count(PREDICTION)} {PREDICTION}, but --mtp-num-layers is {further}.")
    if not further:
        return
    if BLOCK in letters[letters.index(PREDICTION) :]:
        raise InputError(f"{written} has a transformer layer behind {PREDICTION}, which predicts further tokens.")
    # `validate_layer_layout`: they are built with the last virtual stage of a pipeline rank.
    where = [index for index, chunk in enumerate(chunks) if PREDICTION in chunk]
    if len(where) > 1 or where[0] < len(chunks) - stages:
        raise InputError(f"{written} must have all {PREDICTION} in one chunk, the last of its pipeline rank.")


LONGEST_PATTERN = 10_000
"""Layers a pattern may speak of; models have hundreds."""

_LISTED = re.compile(r"[\d\s\[\](),+*]*")


def write_pattern(values: Sequence[int]) -> str:
    """`values` as such a list: `([0]*3+[1]*58)`."""
    runs = [(value, len(list(run))) for value, run in groupby(values)]
    return "(" + "+".join(f"[{value}]" if length == 1 else f"[{value}]*{length}" for value, length in runs) + ")"


def read_pattern(flag: str, text: str) -> tuple[int, ...]:
    """The numbers that `text` lists: brackets, commas, `+` and `*` only; nothing is evaluated as Python.

    Raises:
        InputError: it is no such list; the text names `flag`.
    """
    try:
        if not _LISTED.fullmatch(text):
            raise ValueError(text)
        return tuple(_listed(ast.parse(" ".join(text.split()), mode="eval").body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"{flag} {text!r:.80} is no list such as ([0]*3+[1]*58).") from None


def _listed(tree: ast.expr) -> list[int]:
    """The numbers of a sum of products of lists and counts."""
    match tree:
        case ast.List(elts=elements):
            return [_number(element) for element in elements]
        case ast.BinOp(left=first, op=ast.Add(), right=second):
            return [*_listed(first), *_listed(second)]
        case ast.BinOp(left=repeated, op=ast.Mult(), right=times):
            entries, count = _listed(repeated), _number(times)
            if len(entries) * count <= LONGEST_PATTERN:
                return entries * count
    raise ValueError(ast.dump(tree))


def _number(tree: ast.expr) -> int:
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return tree.value
    raise ValueError(ast.dump(tree))


STACK, OLD_STACK = "megatron-core", "megatron-lm"
"""Stack that runs the flags (`nest.spec.StackSpec`): Megatron Core, and Megatron-LM of the years of fp16."""


SPEAKERS = {
    "precision": ("--bf16", "--fp16", "--fp8-format", "--fp4-format"),
    "optimizer": ("--optimizer", "--exp-avg-dtype", "--exp-avg-sq-dtype"),
    "attention": ("--attention-backend", "--use-flash-attn"),
    "attention_kernel": ("--attention-backend", "--use-flash-attn"),
    "graphs": ("--cuda-graph-impl", "--enable-cuda-graph", "--external-cuda-graph"),
    "kernels": ("--no-bias-swiglu-fusion", "--no-bias-gelu-fusion"),
    "norms": ("--no-bias-swiglu-fusion", "--no-bias-gelu-fusion"),
    "loss": ("--cross-entropy-loss-fusion",),
    "stack": (),
    "overlap": ("--overlap-grad-reduce", "--DDP-impl", "--tp-comm-overlap", "--overlap-moe-expert-parallel-comm"),
    "dispatch": ("--moe-token-dispatcher-type",),
    "expert_products": ("--moe-grouped-gemm",),
    "context_exchange": ("--cp-comm-type",),
    "selective": ("--recompute-modules",),
    "expert_capacity": ("--moe-expert-capacity-factor",),
    "offload": ("--optimizer-cpu-offload",),
    "primary_weights": ("--fp8-format",),
    "gradients": ("--grad-reduce-in-bf16", "--accumulate-allreduce-grads-in-fp32", "--main-grads-dtype"),
    "master_gradients": ("--main-grads-dtype",),
    "master_weights": (),
}
"""The flags that say something of each key."""


COSTLY = {
    "--rampup-batch-size": "the batch that it ends with is taken",
    "--step-batch-size-schedule": "the batch of --global-batch-size is taken",
    "--fp8-margin": "",
    "--fp4-param-gather": "nest assumes weights to be gathered in bf16",
    "--keep-fp8-transpose-cache": "",
    "--moe-shared-expert-overlap": "nest assumes shared experts to wait for the exchange",
    "--extra-vocab-size": "nest assumes the vocabulary that is given",
    "--first-last-layers-bf16": "nest assumes all layers to run in 8 bits",
    "--no-rope-freq": "nest assumes all layers to rotate queries and keys",
    "--defer-embedding-wgrad-compute": "",
    "--overlap-cpu-optimizer-d2h-h2d": "nest assumes copies to the host to wait",
    "--no-scatter-gather-tensors-in-pipeline": "",
    "--no-fp8-weight-transpose-cache": "",
    "--num-layers-at-start-in-bf16": "nest assumes all layers to run in 8 bits",
    "--num-layers-at-end-in-bf16": "nest assumes all layers to run in 8 bits",
    "--use-checkpoint-args": "nest assumes the model to be what the flags say, not the checkpoint",
    "--skip-train": "nest assumes it to train",
    "--use-legacy-models": "",
    "--spec": "nest assumes the model to be what the other flags say",
}
"""Assumptions for given flags; empty: the flag is only named."""


CHANGING = {
    "--fp32-residual-connection": "nest assumes what passes between layers to be as precise as the rest",
    "--moe-latent-size": "nest assumes experts to work on the model's width",
    "--moe-layer-recompute": "nest assumes it to recompute nothing",
    "--hybrid-context-parallel": "nest assumes every sequence to be split alike",
    "--cpu-offloading-num-layers": "nest assumes activations to stay on the device",
    "--fine-grained-activation-offloading": "nest assumes activations to stay on the device",
    "--checkpoint-in-cpu": "nest assumes activations to stay on the device",
    "--distribute-saved-activations": "nest assumes every rank to keep the inputs of layers",
    "--partition-activations": "nest assumes every rank to keep the inputs of layers",
    "--memory-centric-tiled-linear": "nest assumes layers to run in one piece",
    "--split-transformers": "nest assumes layers to be recomputed whole",
    "--random-ltd": "nest assumes all tokens to pass all layers",
    "--linear-attention-freq": "nest assumes all layers to attend to every key",
    "--experimental-attention-variant": "nest assumes attention to be plain",
    "--heterogeneous-layers-config-path": "nest assumes all layers to be alike",
    "--heterogeneous-layers-config-encoded-json": "nest assumes all layers to be alike",
    "--attention-output-gate": "nest assumes attention to have no gate",
    "--enable-zbh1-pipeline": "nest assumes the schedule to be 1F1B",
    "--standalone-embedding-stage": "nest assumes the first stage to hold layers as well",
    "--microbatch-group-size-per-virtual-pipeline-stage": "nest assumes it to be the pipeline-parallel size",
    "--outer-dp-sharding-strategy": "nest assumes replicas of shards to hold all of the optimizer's state",
    "--tensor-parallel-num-weight-shards": "nest assumes weights not to be sharded further",
    "--expert-tensor-parallel-num-weight-shards": "nest assumes weights not to be sharded further",
    "--use-bnb-optimizer": "nest assumes the optimizer's state to be in single precision",
    "--freeze-all-layers": "nest assumes all weights to be trained",
    "--bitfit": "nest assumes all weights to be trained",
    "--lora-r": "nest assumes all weights to be trained",
    "--lora-rank": "nest assumes all weights to be trained",
    "--lora-target-modules": "nest assumes all weights to be trained",
    "--load-teacher": "nest assumes no teacher of a distillation",
    "--kd": "nest assumes no teacher of a distillation",
    "--megatron-fsdp-main-params-dtype": "nest assumes the optimizer's weights to be in single precision",
}
"""Flags that change layout, memory or model, with what nest prices in their place; they are refused."""

USUAL = {"--outer-dp-sharding-strategy": "no_shard", "--megatron-fsdp-main-params-dtype": "fp32"}
USUAL |= dict.fromkeys(("--tensor-parallel-num-weight-shards", "--expert-tensor-parallel-num-weight-shards"), "1")
"""Their values that ask for nothing."""


HARMLESS = """
apply-query-key-layer-scaling head-lr-mult fp8-interval fp8-wgrad tp-comm-bulk-* tp-comm-split-* tp-comm-atomic-*
tp-comm-overlap-* tp-comm-bootstrap-backend inference-* rl-* dino-* distrib-optim-fully-* fsdp-manual-registration
fsdp-all-gather-in-start-param-sync strict-fsdp-* no-data-sharding memory-efficient-layer-norm
use-torch-optimizer-for-cpu-offload pipeline-model-parallel-comm-backend tp-only-amax-red
moe-pad-experts-for-cuda-graph-inference
DDP-impl abort-on-unmet-* activation-func-clamp-value app-tag-* apply-residual-connection-post-layernorm
calc-ft-timeouts check-* codecarbon-* contigious-checkpointing deepspeed-*
disable-gloo-* disable-mem-efficient-ln disable-msc ds-fused-adam embed-layernorm embedding-weights-in-fp32
enable-msc end-weight-decay export-te-* fim-* finetune force-ds-sequence-parallel fp16-lm-cross-entropy ft-*
glu-linear-offset hysteresis initial-loss-scale inprocess-* kill-switch-* layernorm-epsilon lazy-mpu-init loss-scale*
mid-level-* min-loss-scale mmap-warmup moe-eval-* moe-loss-coeff moe-min-capacity moe-token-drop-policy
moe-train-capacity-factor muon-* no-barrier-* no-contiguous-* no-initialization no-one-logger no-pipeline-parallel
no-query-key-layer-scaling no-async-tensor-model-parallel-allreduce no-log-* master-addr
use-mpi moe-per-layer-logging trigger-path verify-checkpoint* use-fused-sdpa
wgrad-deferral-limit no-tracking no-use-tokenizer-* num-dataset-* object-storage-* onnx-safe openai-gelu otel-*
override-* phase-transition-* pretrained-checkpoint profile-backward result-rejected-* rotary-position-* sample-*
sft sft-* skip-tokenizer softmax-type squared-relu start-weight-decay sync-tp-* synchronize-each-layer universal-*
use-cpu-initialization use-fused-* use-pin-memory use-ring-exchange-p2p use-te warmup yarn-* zero-allgather-*
zero-contigious-gradients zero-reduce-*
adam-beta1 adam-beta2 adam-eps adlr-* apply-layernorm-1p async-save attention-dropout attention-softmax-in-fp32
auto-detect-ckpt-format bias-swiglu-fusion calculate-per-token-loss ckpt-* clip-grad cp-comm-type create-* data*
ddp-average-in-collective ddp-bucket-size ddp-num-buckets decoupled-* delay-wgrad-compute deterministic-mode
disable-symmetric-registration dist-* distributed-backend distributed-timeout-minutes empty-unused-memory-level
enable-experimental enable-ft-* eod-mask-loss eval-* exit-* fp4-recipe fp8-amax-compute-algo fp8-amax-history-len
fsdp-double-buffer hidden-dropout init-* load local-rank log-* logging-* lr lr-* make-vocab-size-divisible-by
manual-gc manual-gc-eval manual-gc-interval max-position-embeddings merge-file min-lr mock-data moe-aux-*
moe-permute-fusion moe-router-* moe-token-dispatcher-type moe-z-* mscale mscale-all-dim mtp-loss-*
nccl-* no-bias-dropout-fusion no-check-* no-ckpt-* no-create-*
no-gradient-accumulation-fusion no-load-* no-masked-softmax-fusion no-mmap-bin-files no-persist-layer-norm
no-position-embedding no-rope-fusion no-save-* norm-epsilon num-workers one-logger-* per-split-* profile*
recompute-modules rerun-* reset-* reuse-grad-buf-for-mxfp8-param-ag rope-scaling-factor rope-type rotary-base
rotary-interleaved rotary-percent rotary-scaling-factor rotary-seq-len-interpolation-factor save save-* seed
sgd-momentum split straggler-* te-rng-* tensorboard-* test-* tiktoken-* timing-* tokenizer-* tp-comm-overlap-cfg
train-* transformer-impl use-checkpoint-* use-dist-* use-mcore-models use-nccl-ub use-precision-aware-optimizer
use-rope-scaling use-sharp valid-* vocab-file wandb-* weight-decay weight-decay-*
"""
"""Patterns of flags, without their hyphens, that change no cost that nest counts."""
