"""Precision, optimizer, overlap and activation checkpointing, as flags of Megatron-LM.

Sources: megatron/training/arguments.py, megatron/core/optimizer/optimizer_config.py and
megatron/core/model_parallel_config.py of Megatron-LM core_v0.16.1; `recompute_modules` of its TransformerConfig, whose
operators are those of docs/reference/problem.md, selective.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

from nest.errors import InputError
from nest.exporters.megatron.notation import Flags
from nest.spec import Training

EIGHT_BITS = ("fp8", "mxfp8")

PRECISIONS: dict[str, Flags] = {
    "fp32": {},
    "fp16": {"--fp16": True},
    "bf16": {"--bf16": True},
    "fp8": {"--bf16": True, "--fp8-format": "hybrid", "--fp8-recipe": "tensorwise"},
    "mxfp8": {"--bf16": True, "--fp8-format": "e4m3", "--fp8-recipe": "mxfp8"},
    "nvfp4": {"--bf16": True, "--fp4-format": "e2m1", "--fp4-recipe": "nvfp4"},
}
"""What products run in, and with them all else."""

OPTIMIZERS: dict[str, Flags] = {
    "adam": {"--optimizer": "adam"},
    "adamw": {"--optimizer": "adam"},
    "adam-bf16": {"--optimizer": "adam", "--exp-avg-dtype": "bf16", "--exp-avg-sq-dtype": "bf16"},
    "adam-8bit": {"--optimizer": "adam", "--exp-avg-dtype": "fp8", "--exp-avg-sq-dtype": "fp8"},
    "sgd": {"--optimizer": "sgd", "--sgd-momentum": 0.0},
    "sgd-momentum": {"--optimizer": "sgd"},
}
"""By the catalogue's names. Megatron-LM's Adam decays weights as AdamW does (`decoupled_weight_decay`)."""

PRECISION_AWARE = "--use-precision-aware-optimizer"


def training_obstacles(training: Training) -> Iterator[str]:
    """What no plan can have Megatron-LM do: clauses that follow "because"."""
    if training.optimizer not in OPTIMIZERS:
        yield f"it has no optimizer {training.optimizer!r}; those it has are {', '.join(OPTIMIZERS)}"
    usual = usual_gradients(training.precision)
    if training.precision == "fp32" and training.gradients not in (None, usual):
        yield "it accumulates and reduces gradients in fp32 where parameters are fp32"
    if training.precision != "fp16" and training.gradients == "fp16":
        yield "it accumulates and reduces gradients in fp16 only where parameters are fp16"
    if training.precision == "fp16" and training.gradients == "bf16":
        yield "it does not reduce gradients of fp16 parameters in bf16"
    if training.master_weights is not None and training.master_weights != (training.precision != "fp32"):
        yield "its optimizer keeps single-precision weights wherever parameters are narrower, and only there"
    if training.master_gradients is not None and not _has_master_gradients(training):
        yield (
            "its optimizer keeps single-precision gradients where they are narrower, or, with its precision-aware "
            "Adam, none of gradients in bf16"
        )
    if training.primary_weights == "fp8" and training.optimizer.startswith("sgd"):
        yield "it keeps weights in 8 bits only with the distributed optimizer, which is Adam's"
    if "optimizer" in training.offload and training.optimizer.startswith("sgd"):
        yield "it keeps only Adam's state in the host's memory"
    if "optimizer" in training.offload and training.precision == "mxfp8" and eight_bit_weights(training):
        yield "it keeps the optimizer's state in the host's memory only where weights are no mxfp8"


def usual_gradients(precision: str) -> str:
    """What Megatron-LM accumulates and reduces gradients in, unless it is told otherwise."""
    return "fp16" if precision == "fp16" else "fp32"


def _has_master_gradients(training: Training) -> bool:
    narrow = (training.gradients or usual_gradients(training.precision)) != "fp32"
    if training.master_gradients:
        return narrow
    return not narrow or (training.gradients == "bf16" and training.optimizer.startswith("adam"))


def precision_aware(training: Training) -> bool:
    """Whether the optimizer must be told what it keeps in which precision, or where."""
    bare = training.gradients == "bf16" and training.master_gradients is False
    return bare or training.optimizer in ("adam-bf16", "adam-8bit") or "optimizer" in training.offload


def eight_bit_weights(training: Training) -> bool:
    """Whether weights are kept in 8 bits; the catalogue's `fp8` and `mxfp8` do unless told otherwise."""
    return training.precision in EIGHT_BITS and training.primary_weights != "bf16"


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
    # The implementation of its own (`native`) makes a copy of the logits in single precision all the same.
    fused = training.loss == "fused"
    flags["--cross-entropy-loss-fusion"] = fused
    flags["--cross-entropy-fusion-impl"] = "te" if fused else None
    return flags


def optimizer_flags(training: Training) -> Flags:
    """The optimizer, and what it keeps where."""
    offloaded = "optimizer" in training.offload
    return {
        **OPTIMIZERS[training.optimizer],
        PRECISION_AWARE: precision_aware(training),
        "--optimizer-cpu-offload": offloaded,
        "--optimizer-offload-fraction": 1.0 if offloaded else None,
    }


MODULES: dict[str, tuple[str, ...]] = {
    "core_attn": ("attention",),
    "layernorm": ("attention_norm", "mlp_norm"),
    "moe_act": ("expert_activated",),
    "mla_up_proj": ("query_latent_norm", "query", "key_value_latent_norm", "key_value", "rotary"),
    "mlp": ("mlp_up", "mlp_activated", "mlp_down"),
    "moe": (
        "router",
        "routing",
        "dispatch",
        "expert_up",
        "expert_activated",
        "expert_down",
        "combine",
        "shared_expert_up",
        "shared_expert_activated",
        "shared_expert_down",
    ),
    "shared_experts": ("shared_expert_up", "shared_expert_activated", "shared_expert_down"),
}
"""What each module recomputes, in the words of `training.selective`."""

OPTIONAL = frozenset({"shared_expert_up", "shared_expert_activated", "shared_expert_down", "query_latent_norm"})
"""Operators that some models lack, so that their modules go without them."""

MODES = ("none", "selective", "full")


def recompute_flags(mode: str, selective: Sequence[str]) -> Flags:
    """The flags of one recompute mode.

    Raises:
        InputError: Megatron-LM recomputes nothing like it.
    """
    if mode == "none":
        return {}
    if mode == "full":
        return {
            "--recompute-granularity": "full",
            "--recompute-method": "uniform",
            "--recompute-num-layers": 1,
        }
    modules = modules_of(selective) if mode == "selective" else None
    if modules is None:
        raise InputError(f"recompute mode {mode!r} is not one of Megatron-LM's, which are {', '.join(MODES)}.")
    return {"--recompute-granularity": "selective", "--recompute-modules": modules}


def modules_of(selective: Sequence[str]) -> tuple[str, ...]:
    """The fewest modules that recompute what `training.selective` chooses.

    Raises:
        InputError: no modules do.
    """
    wanted = frozenset(selective)
    possible = [name for name, operators in MODULES.items() if _needed(operators) <= wanted]
    for count in range(1, len(possible) + 1):
        for chosen in combinations(possible, count):
            covered = frozenset(operator for name in chosen for operator in MODULES[name])
            if wanted <= covered and frozenset(o for name in chosen for o in _needed(MODULES[name])) <= wanted:
                return chosen
    raise InputError(
        f"training.selective ({', '.join(selective)}) is not made of what Megatron-LM's --recompute-modules run again: "
        + "; ".join(f"{name} is {', '.join(operators)}" for name, operators in MODULES.items())
        + "."
    )


def _needed(operators: Sequence[str]) -> frozenset[str]:
    """Those of a module's operators that every model with the module has; all where a model may lack any."""
    return (frozenset(operators) - OPTIONAL) or frozenset(operators)
