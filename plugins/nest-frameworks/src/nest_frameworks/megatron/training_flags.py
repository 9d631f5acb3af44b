"""Precision, optimizer, overlap and activation checkpointing, as flags of Megatron-LM.

Sources: megatron/training/arguments.py, megatron/core/optimizer/optimizer_config.py and
megatron/core/model_parallel_config.py of Megatron-LM core_v0.16.1; `recompute_modules` of its TransformerConfig, whose
operators are those of docs/reference/problem.md, selective.
"""

from collections.abc import Sequence

from nest.errors import InputError
from nest.spec import Training
from nest_frameworks.limits.megatron import MODES, eight_bit_weights, modules_of, precision_aware
from nest_frameworks.megatron.notation import Flags

PRECISIONS: dict[str, Flags] = {
    "fp32": {},
    "fp16": {"--fp16": True},
    "bf16": {"--bf16": True},
    "fp8": {"--bf16": True, "--fp8-format": "hybrid", "--fp8-recipe": "tensorwise"},
    "mxfp8": {"--bf16": True, "--fp8-format": "e4m3", "--fp8-recipe": "mxfp8"},
    "nvfp4": {"--bf16": True, "--fp4-format": "e2m1", "--fp4-recipe": "nvfp4"},
}
"""Flags of the format of products and all else."""

OPTIMIZERS: dict[str, Flags] = {
    "adam": {"--optimizer": "adam"},
    "adamw": {"--optimizer": "adam"},
    "adam-bf16": {"--optimizer": "adam", "--exp-avg-dtype": "bf16", "--exp-avg-sq-dtype": "bf16"},
    "adam-8bit": {"--optimizer": "adam", "--exp-avg-dtype": "fp8", "--exp-avg-sq-dtype": "fp8"},
    "muon": {"--optimizer": "muon"},
    "sgd": {"--optimizer": "sgd", "--sgd-momentum": 0.0},
    "sgd-momentum": {"--optimizer": "sgd"},
}
"""By the catalogue's names. Megatron-LM's Adam decays weights as AdamW does (`decoupled_weight_decay`)."""

PRECISION_AWARE = "--use-precision-aware-optimizer"


def precision_flags(training: Training) -> Flags:
    """Formats of products, weights and gradients."""
    flags = dict(PRECISIONS[training.precision])
    if eight_bit_weights(training):
        flags["--fp8-param-gather"] = True
        if "optimizer" in training.offload:  # The only recipe that goes with both (`validate_args`).
            flags["--fp8-recipe"] = "delayed" if training.precision == "fp8" else flags["--fp8-recipe"]
    if training.gradients == "bf16":
        flags["--grad-reduce-in-bf16"] = True
        flags["--main-grads-dtype"] = None if training.master_gradients is not False else "bf16"
    if training.precision == "fp16" and training.gradients == "fp32":
        flags["--accumulate-allreduce-grads-in-fp32"] = True
    # What is left to the framework is a fused kernel.
    flags["--attention-backend"] = "unfused" if training.stores_scores else "auto"
    return flags | loss_flags(training)


def loss_flags(training: Training) -> Flags:
    """The kernels of the cross-entropy.

    Megatron Core's own (`native`) copies logits to single precision, as unfused operators do, and rounds gradients to
    bf16 whatever they are (megatron/core/fusions/fused_cross_entropy.py of 0.19.2). Megatron-LM refuses `te`, which
    Megatron-Bridge and others still run.
    """
    fused = training.loss == "fused"
    if not fused and training.precision in ("fp32", "fp16"):
        return {}
    return {"--cross-entropy-loss-fusion": True, "--cross-entropy-fusion-impl": "te" if fused else "native"}


def optimizer_flags(training: Training) -> Flags:
    """The optimizer, and what it keeps where."""
    offloaded = "optimizer" in training.offload
    return {
        **OPTIMIZERS[training.optimizer],
        PRECISION_AWARE: precision_aware(training),
        "--optimizer-cpu-offload": offloaded,
        "--optimizer-offload-fraction": 1.0 if offloaded else None,
    }


def recompute_flags(mode: str, selective: Sequence[str], layers: int | None = None) -> Flags:
    """The flags of one recompute mode, of all layers or of the first so many of each chunk of the pipeline.

    Megatron Core counts them in each `TransformerBlock`, takes any number, and keeps everything of the others
    (megatron/core/recompute.py of 0.19.2).

    Raises:
        InputError: Megatron-LM recomputes nothing like it.
    """
    if mode == "none":
        return {}
    if mode == "full":
        return {
            "--recompute-granularity": "full",
            "--recompute-method": "uniform" if layers is None else "block",
            "--recompute-num-layers": layers or 1,
        }
    modules = modules_of(selective) if mode == "selective" else None
    if modules is None:
        raise InputError(f"recompute mode {mode!r} is not one of Megatron-LM's, which are {', '.join(MODES)}.")
    return {"--recompute-granularity": "selective", "--recompute-modules": modules}
