"""Arguments of Megatron-LM as flags and their values, as its parser takes them (`argparse`, no abbreviations)."""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

from attrs import define, field

from nest.errors import InputError, InputErrors
from nest.exporters.megatron.reading.tokens import UNKNOWN, UNSET, remedy

LARGEST = 10**12
_VALUE = re.compile(r"-\d.*|[^-].*|-|", re.DOTALL)

Chosen = TypeVar("Chosen")


@define
class FlagReader:
    """Flags whose mistakes are collected until `finish` reports them together.

    Attributes:
        words: what follows each flag; the last one counts.
        asked: flags somebody has asked for.
        problems: mistakes found so far.
        notes: what the reader of the result should know, a sentence each.
    """

    words: dict[str, tuple[str, ...]]
    asked: set[str] = field(factory=set)
    problems: list[str] = field(factory=list)
    notes: list[str] = field(factory=list)

    def has(self, flag: str) -> bool:
        """Whether `flag` is given."""
        self.asked.add(flag)
        return flag in self.words

    def word(self, flag: str, default: str | None = None) -> str | None:
        """What follows `flag`; `default` where it is not given."""
        if not self.has(flag):
            return default
        value = self.words[flag]
        if len(value) != 1:
            shown = " ".join(value).replace(UNKNOWN, "")
            self.problems.append(f"{flag} takes one value, and has {shown or 'none'}.")
            return default
        if UNKNOWN in value[0]:
            help_ = remedy(value[0])
            why = f"which nothing sets; give {help_}" if help_ else "which only a run would tell; write its value there"
            self.problems.append(f"{flag} is {value[0].replace(UNKNOWN, '')!r:.60}, {why}.")
            return default
        return value[0]

    def several(self, flag: str) -> tuple[str, ...]:
        """All that follows `flag`; nothing where it is not given."""
        return self.words[flag] if self.has(flag) else ()

    def integer(self, flag: str, *, minimum: int = 1) -> int | None:
        """The whole number behind `flag`; None where it is not given."""
        text = self.word(flag)
        if text is None:
            return None
        if not re.fullmatch(r"[+-]?[0-9]{1,13}", text.strip()) or not minimum <= int(text) <= LARGEST:
            self.problems.append(f"{flag} is {text!r:.60}; it must be a whole number of at least {minimum}.")
            return None
        return int(text)

    def number(self, flag: str) -> float | None:
        """The number behind `flag`; None where it is not given."""
        text = self.word(flag)
        if text is None:
            return None
        try:
            return float(text)
        except ValueError:
            self.problems.append(f"{flag} is {text!r:.60}; it must be a number.")
            return None

    def choice(self, flag: str, choices: dict[str, Chosen], default: Chosen) -> Chosen:
        """What stands in `choices` for the word behind `flag`."""
        text = self.word(flag)
        if text is None:
            return default
        if text not in choices:
            self.problems.append(f"{flag} is {text!r:.60}, and nest knows {', '.join(choices)}.")
            return default
        return choices[text]

    def problem(self, text: str) -> None:
        """Note a mistake: a sentence."""
        self.problems.append(text)

    def note(self, text: str) -> None:
        """Note what the reader of the result should know: a sentence."""
        self.notes.append(text)

    def finish(self) -> None:
        """Report the mistakes.

        Raises:
            InputErrors: there are some.
        """
        if self.problems:
            raise InputErrors(dict.fromkeys(self.problems))


def read_flags(words: Sequence[str]) -> FlagReader:
    """`words` as flags: what does not begin with a hyphen, or is a negative number, follows the flag in front.

    Raises:
        InputError: the first word is no flag.
    """
    return FlagReader(dict(_pairs(words)))


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    flag, values = "", list[str]()
    for word in words:
        if word.startswith("--") and len(word) > 2:
            if flag:
                yield flag, tuple(values)
            flag, equals, value = word.partition("=")
            flag = flag.replace("_", "-")  # As some forks, and DeepSpeed, write them.
            values = [value] if equals else []
        elif flag and values and UNSET.fullmatch(word):
            continue  # Told by `find_launch`.
        elif flag and _VALUE.fullmatch(word):
            values.append(word)
        elif UNKNOWN not in word and not flag:
            raise InputError(f"{word!r:.60} stands in front of the first flag of Megatron-LM.")
    if flag:
        yield flag, tuple(values)


COSTLY = {
    "--rampup-batch-size": "the batch that it ends with is taken",
    "--step-batch-size-schedule": "the batch of --global-batch-size is taken",
    "--fp8-margin": "",
    "--fp4-param-gather": "weights are taken to be gathered in bf16",
    "--keep-fp8-transpose-cache": "",
    "--fp32-residual-connection": "what passes between layers is taken to be as precise as the rest",
    "--moe-latent-size": "experts are taken to work on the model's width",
    "--moe-layer-recompute": "it is taken to recompute nothing",
    "--moe-shared-expert-overlap": "shared experts are taken to wait for the exchange",
    "--hierarchical-context-parallel-sizes": "context parallelism is taken to be of one kind",
    "--hybrid-context-parallel": "every sequence is taken to be split alike",
    "--cpu-offloading-num-layers": "activations are taken to stay on the device",
    "--fine-grained-activation-offloading": "activations are taken to stay on the device",
    "--checkpoint-in-cpu": "activations are taken to stay on the device",
    "--distribute-saved-activations": "every rank is taken to keep the inputs of layers",
    "--partition-activations": "every rank is taken to keep the inputs of layers",
    "--memory-centric-tiled-linear": "layers are taken to run in one piece",
    "--split-transformers": "layers are taken to be recomputed whole",
    "--random-ltd": "all tokens are taken to pass all layers",
    "--first-last-layers-bf16": "all layers are taken to run in 8 bits",
    "--no-rope-freq": "all layers are taken to rotate queries and keys",
    "--linear-attention-freq": "all layers are taken to attend to every key",
    "--experimental-attention-variant": "attention is taken to be plain",
    "--heterogeneous-layers-config-path": "all layers are taken to be alike",
    "--heterogeneous-layers-config-encoded-json": "all layers are taken to be alike",
    "--attention-output-gate": "attention is taken to have no gate",
    "--enable-zbh1-pipeline": "the schedule is taken to be 1F1B",
    "--standalone-embedding-stage": "the first stage is taken to hold layers as well",
    "--microbatch-group-size-per-virtual-pipeline-stage": "it is taken to be the pipeline-parallel size",
    "--defer-embedding-wgrad-compute": "",
    "--outer-dp-sharding-strategy": "replicas of shards are taken to hold all of the optimizer's state",
    "--tensor-parallel-num-weight-shards": "weights are taken not to be sharded further",
    "--expert-tensor-parallel-num-weight-shards": "weights are taken not to be sharded further",
    "--overlap-cpu-optimizer-d2h-h2d": "copies to the host are taken to wait",
    "--no-scatter-gather-tensors-in-pipeline": "",
    "--use-bnb-optimizer": "the optimizer's state is taken to be in single precision",
    "--freeze-all-layers": "all weights are taken to be trained",
    "--bitfit": "all weights are taken to be trained",
    "--lora-r": "all weights are taken to be trained",
    "--lora-rank": "all weights are taken to be trained",
    "--lora-target-modules": "all weights are taken to be trained",
    "--load-teacher": "the teacher of a distillation is left out",
    "--kd": "the teacher of a distillation is left out",
    "--skip-train": "it is taken to train",
    "--cuda-graph-impl": "",
    "--use-legacy-models": "",
    "--spec": "the model is taken to be what the other flags say",
}
"""What is assumed where a flag is given; empty: it is only named."""

_DECIDING = re.compile(r"parallel-size$|parallelism$|num-experts$|-schedule$|zero-bubble$")
"""Flags that change the plan, whosever they are: `--depth-tensor-model-parallel-size`, `--moe-num-experts`."""

_TELLING = frozenset({"--num-layers", "--hidden-size", "--global-batch-size", "--tensor-model-parallel-size"})
"""Without one of these, and with as many flags that nobody knows, a program is another than Megatron-LM."""

HARMLESS = """
DDP-impl abort-on-unmet-* activation-func-clamp-value app-tag-* apply-residual-connection-post-layernorm
calc-ft-timeouts check-* codecarbon-* contigious-checkpointing cuda-graph-modules cuda-graph-scope deepspeed-*
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
moe-grouped-gemm moe-permute-fusion moe-router-* moe-token-dispatcher-type moe-z-* mscale mscale-all-dim mtp-loss-*
nccl-* no-bias-dropout-fusion no-bias-gelu-fusion no-bias-swiglu-fusion no-check-* no-ckpt-* no-create-*
no-gradient-accumulation-fusion no-load-* no-masked-softmax-fusion no-mmap-bin-files no-persist-layer-norm
no-position-embedding no-rope-fusion no-save-* norm-epsilon num-workers one-logger-* per-split-* profile*
recompute-modules rerun-* reset-* reuse-grad-buf-for-mxfp8-param-ag rope-scaling-factor rope-type rotary-base
rotary-interleaved rotary-percent rotary-scaling-factor rotary-seq-len-interpolation-factor save save-* seed
sgd-momentum split straggler-* te-rng-* tensorboard-* test-* tiktoken-* timing-* tokenizer-* tp-comm-overlap-cfg
train-* transformer-impl use-checkpoint-* use-dist-* use-mcore-models use-nccl-ub use-precision-aware-optimizer
use-rope-scaling use-sharp valid-* vocab-file wandb-* weight-decay weight-decay-*
"""
"""Patterns of flags, without their hyphens, that change no cost that nest counts."""


def tell_unpriced(flags: FlagReader, *, unread: bool = True) -> None:
    """Note what is given and not priced, and once what nobody has asked for, if `unread`."""
    costly = [f"{flag} ({assumed})" if assumed else flag for flag, assumed in COSTLY.items() if flags.has(flag)]
    if costly:
        flags.note(f"given, and not priced: {'; '.join(costly)}.")
    others = [flag for flag in flags.words if flag not in flags.asked and not _harmless(flag)]
    for flag in filter(_DECIDING.search, others):
        flags.problem(f"{flag} is of a fork of Megatron-LM, cuts or orders the work in its own way, and is not priced.")
    if 2 * len(others) > len(flags.words) and _TELLING.isdisjoint(flags.words):
        flags.problem(
            f"few flags here are Megatron-LM's, and none says how it trains; others: {', '.join(others[:8])}."
        )
    if unread and others:
        flags.note(f"nest does not know these flags, nor whether they cost anything: {', '.join(sorted(others))}.")


def _harmless(flag: str) -> bool:
    return any(fnmatchcase(flag.removeprefix("--"), pattern) for pattern in HARMLESS.split())
