"""Flags that are told of: those that cost something nest does not price, and those nobody asked for."""

from nest.exporters.megatron.reading.flags import FlagReader

COSTLY = {
    "--mtp-num-layers": "the layers that predict further tokens are left out",
    "--rampup-batch-size": "the batch that it ends with is taken",
    "--fp8-margin": "",
    "--moe-latent-size": "experts are taken to work on the model's width",
    "--moe-layer-recompute": "it is taken to recompute nothing",
    "--hierarchical-context-parallel-sizes": "context parallelism is taken to be of one kind",
    "--hybrid-context-parallel": "every sequence is taken to be split alike",
    "--cpu-offloading-num-layers": "activations are taken to stay on the device",
    "--fine-grained-activation-offloading": "activations are taken to stay on the device",
    "--distribute-saved-activations": "every rank is taken to keep the inputs of layers",
    "--first-last-layers-bf16": "all layers are taken to run in 8 bits",
    "--no-rope-freq": "all layers are taken to rotate queries and keys",
    "--linear-attention-freq": "all layers are taken to attend to every key",
    "--experimental-attention-variant": "attention is taken to be plain",
    "--heterogeneous-layers-config-path": "all layers are taken to be alike",
    "--attention-output-gate": "attention is taken to have no gate",
    "--cuda-graph-impl": "",
    "--use-legacy-models": "",
    "--spec": "the model is taken to be what the other flags say",
}
"""What is assumed where a flag is given; empty: it is only named."""

_HARMLESS = """
adam-beta1 adam-beta2 adam-eps apply-layernorm-1p async-save attention-dropout attention-softmax-in-fp32
auto-detect-ckpt-format bias-swiglu-fusion calculate-per-token-loss ckpt-format clip-grad cp-comm-type
ddp-average-in-collective ddp-bucket-size ddp-num-buckets
delay-wgrad-compute deterministic-mode disable-symmetric-registration distributed-backend
distributed-timeout-minutes empty-unused-memory-level enable-experimental eod-mask-loss fp4-recipe
fp8-amax-compute-algo fp8-amax-history-len fsdp-double-buffer hidden-dropout init-method-std
init-model-with-meta-device load local-rank lr make-vocab-size-divisible-by manual-gc manual-gc-eval
manual-gc-interval max-position-embeddings merge-file min-lr mock-data moe-aux-loss-coeff moe-grouped-gemm
moe-permute-fusion moe-token-dispatcher-type mscale mscale-all-dim no-bias-dropout-fusion no-bias-gelu-fusion
no-bias-swiglu-fusion no-gradient-accumulation-fusion no-masked-softmax-fusion no-mmap-bin-files
no-persist-layer-norm no-position-embedding no-rope-fusion norm-epsilon num-workers recompute-modules
reuse-grad-buf-for-mxfp8-param-ag rope-scaling-factor rope-type rotary-base rotary-interleaved rotary-percent
rotary-scaling-factor rotary-seq-len-interpolation-factor save seed sgd-momentum split tensorboard-dir
tokenizer-model tp-comm-overlap-cfg transformer-impl use-checkpoint-args use-mcore-models use-nccl-ub
use-precision-aware-optimizer use-rope-scaling use-sharp vocab-file weight-decay
"""

HARMLESS = frozenset(_HARMLESS.split())
"""Flags that change no cost that nest counts, without their hyphens."""

HARMLESS_BEGINNINGS = (
    "--adlr-",
    "--ckpt-",
    "--create-",
    "--data",
    "--decoupled-",
    "--dist-",
    "--eval-",
    "--exit-",
    "--init-",
    "--log-",
    "--logging-",
    "--lr-",
    "--moe-aux-",
    "--moe-router-",
    "--moe-z-",
    "--mtp-loss-",
    "--no-ckpt-",
    "--no-create-",
    "--no-check-",
    "--no-load-",
    "--no-save-",
    "--one-logger-",
    "--per-split-",
    "--profile",
    "--rerun-",
    "--reset-",
    "--save-",
    "--tensorboard-",
    "--test-",
    "--tiktoken-",
    "--timing-",
    "--tokenizer-",
    "--train-",
    "--use-checkpoint-",
    "--use-dist-",
    "--valid-",
    "--wandb-",
    "--weight-decay-",
    "--straggler-",
    "--te-rng-",
    "--nccl-",
    "--enable-ft-",
)


def tell_unpriced(flags: FlagReader, *, unread: bool = True) -> None:
    """Note what is given and not priced, and once what nobody has asked for, if `unread`."""
    for flag, assumed in COSTLY.items():
        if flags.has(flag):
            flags.note(f"{flag} is not priced{': ' + assumed if assumed else ''}.")
    others = [flag for flag in flags.words if flag not in flags.asked and not _harmless(flag)]
    if unread and others:
        flags.note(f"these flags were not read: {', '.join(sorted(others))}.")


def _harmless(flag: str) -> bool:
    return flag.removeprefix("--") in HARMLESS or flag.startswith(HARMLESS_BEGINNINGS)
