"""Megatron-Bridge, whose recipes configure Megatron Core: an overlay is written, and overlays are read.

Fields: `ConfigContainer` (src/megatron/bridge/training/config.py), `CommOverlapConfig` (training/comm_overlap.py) and
the named precisions of training/mixed_precision.py of NVIDIA-NeMo/Megatron-Bridge 067f987d (after 0.6.0), and
TransformerConfig of Megatron Core, whose names it takes. A recipe brings the model; the overlay says how it runs, and
sets back what the recipe may have decided otherwise.
"""

import json
from collections.abc import Mapping
from typing import Any

from attrs import evolve

from nest.deployment import LaunchOptions, Reading
from nest.spec import PlanDocument, Training
from nest_frameworks.limits import Asked, relatives
from nest_frameworks.limits.megatron import EIGHT_BITS, eight_bit_weights
from nest_frameworks.limits.relatives import FUSED_MODULES, MODULES, targets_of
from nest_frameworks.megatron.notation import Flags
from nest_frameworks.megatron.parallel_flags import FSDP_GRADIENTS
from nest_frameworks.megatron.relatives.core import (
    COSTS,
    DEGREES,
    EXPERTS,
    FREE,
    KERNELS,
    RECOMPUTE,
    STAGES,
    SWITCHED,
    WIDTHS,
    typed,
    under,
)
from nest_frameworks.megatron.relatives.dialect import Dialect, Row

PRECISIONS = {
    "fp32": None,
    "fp16": "fp16_mixed",
    "bf16": "bf16_mixed",
    "fp8": "bf16_with_fp8_delayed_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}
"""Names that `mixed_precision` takes; None: there is none, and none is needed."""

_BF16: Flags = {"--bf16": True}
_HYBRID: Flags = {**_BF16, "--fp8-format": "hybrid"}
_CURRENT: Flags = {
    **_HYBRID,
    "--fp8-recipe": "tensorwise",
    "--fp8-param-gather": True,
    "--first-last-layers-bf16": True,
}

CONFIGURATION = "megatron.bridge.training.mixed_precision.MixedPrecisionConfig"

FIELD = "mixed_precision."

NAMED: Mapping[Any, Flags] = {
    "fp16_mixed": {"--fp16": True},
    "bf16_mixed": _BF16,
    "bf16_with_fp8_delayed_scaling_mixed": {**_HYBRID, "--fp8-recipe": "delayed", "--fp8-param-gather": True},
    "bf16_with_fp8_current_scaling_mixed": _CURRENT,
    "bf16_with_fp8_subchannel_scaling_mixed": {**_HYBRID, "--fp8-recipe": "blockwise"},
    "bf16_with_mxfp8_mixed": {
        **_BF16,
        "--fp8-format": "e4m3",
        "--fp8-recipe": "mxfp8",
        "--fp8-param-gather": True,
    },
    "bf16_with_nvfp4_mixed": {**_BF16, "--fp4-format": "e2m1"},
    CONFIGURATION.lower(): {},
}

FIELDS: Mapping[str, dict[str, Any]] = {
    "bf16_with_fp8_delayed_scaling_mixed": {"fp8_amax_history_len": 1024, "fp8_amax_compute_algo": "max"},
    "bf16_with_mxfp8_mixed": {"reuse_grad_buf_for_mxfp8_param_ag": True},
    "bf16_with_nvfp4_mixed": {"fp4_param_gather": True},
}
"""Settings of named precisions besides priced ones."""

OVERLAP = "megatron.bridge.training.comm_overlap.CommOverlapConfig"

ADAPTERS, FUSED_ADAPTERS = "megatron.bridge.peft.canonical_lora.CanonicalLoRA", "megatron.bridge.peft.lora.LoRA"

STRATEGY = "--data-parallel-sharding-strategy"

SHARDING: Row = {
    word: {STRATEGY: None if word == "no_shard" else word}
    for word in ("no_shard", "optim", "optim_grads", "optim_grads_params")
}

REDUCED: Row = {True: {"--grad-reduce-in-bf16": None}, False: {"--grad-reduce-in-bf16": True}}
"""`grad_reduce_in_fp32`."""

ROWS: Mapping[str, Row] = {
    "model.seq_length": "--seq-length",
    **under("model", DEGREES, {"cp_comm_type": "--cp-comm-type"}, STAGES),
    "model.mtp_num_layers": "--mtp-num-layers",
    **under("model", RECOMPUTE, EXPERTS),
    "model.cross_entropy_loss_fusion": "?--cross-entropy-loss-fusion",
    "model.cross_entropy_fusion_impl": "--cross-entropy-fusion-impl",
    "train.micro_batch_size": "--micro-batch-size",
    "train.global_batch_size": "--global-batch-size",
    "dataset.seq_length": "--seq-length",
    "optimizer.optimizer": "--optimizer",
    "optimizer.use_distributed_optimizer": "?--use-distributed-optimizer",
    "optimizer.use_precision_aware_optimizer": "?--use-precision-aware-optimizer",
    "optimizer.exp_avg_dtype": typed("--exp-avg-dtype"),
    "optimizer.exp_avg_sq_dtype": typed("--exp-avg-sq-dtype"),
    "optimizer.main_grads_dtype": typed("--main-grads-dtype"),
    "optimizer.optimizer_cpu_offload": "?--optimizer-cpu-offload",
    "optimizer.optimizer_offload_fraction": "--optimizer-offload-fraction",
    "optimizer.sgd_momentum": "--sgd-momentum",
    "ddp.use_distributed_optimizer": "?--use-distributed-optimizer",
    "ddp.num_distributed_optimizer_instances": "--num-distributed-optimizer-instances=1",
    "ddp.overlap_grad_reduce": "?--overlap-grad-reduce",
    "ddp.overlap_param_gather": "?--overlap-param-gather",
    "ddp.use_megatron_fsdp": "?--use-megatron-fsdp",
    "ddp.data_parallel_sharding_strategy": SHARDING,
    **{f"ddp.{flag[2:].replace('-', '_')}": typed(flag, "fp32") for flag in FSDP_GRADIENTS},
    "comm_overlap.tp_comm_overlap": "?--tp-comm-overlap",
    "comm_overlap.overlap_grad_reduce": "?--overlap-grad-reduce",
    "comm_overlap.overlap_param_gather": "?--overlap-param-gather",
    "comm_overlap.overlap_moe_expert_parallel_comm": "?--overlap-moe-expert-parallel-comm",
    "dist.use_megatron_fsdp": "?--use-megatron-fsdp",
    "dist.use_tp_pp_dp_mapping": "?--use-tp-pp-dp-mapping",
    "checkpoint.ckpt_format": "--ckpt-format",
}

ALSO: Mapping[str, Row] = {
    "mixed_precision": NAMED,
    "mixed_precision.bf16": "?--bf16",
    "mixed_precision.fp16": "?--fp16",
    "mixed_precision.fp8": "--fp8-format",
    "mixed_precision.fp8_recipe": "--fp8-recipe",
    "mixed_precision.fp8_param_gather": "?--fp8-param-gather",
    "mixed_precision.fp4": "--fp4-format",
    "mixed_precision.grad_reduce_in_fp32": REDUCED,
    "ddp.grad_reduce_in_fp32": REDUCED,
    **under("model", WIDTHS),
    "model.multi_latent_attention": "?--multi-latent-attention",
    **under("model", {name: f"--{name.replace('_', '-')}" for name in ("q_lora_rank", "kv_lora_rank", "v_head_dim")}),
    **under("model", {name: f"--{name.replace('_', '-')}" for name in ("qk_head_dim", "qk_pos_emb_head_dim")}),
    "model.add_bias_linear": "!--disable-bias-linear",
    "model.add_qkv_bias": "?--add-qkv-bias",
    "model.gated_linear_unit": "?--swiglu",
    "model.normalization": "--normalization",
    "model.position_embedding_type": "--position-embedding-type",
    "model.share_embeddings_and_output_weights": "!--untie-embeddings-and-output-weights",
    "model.vocab_size": "--vocab-size",
    "model.attention_backend": "--attention-backend",
    "dataset.sequence_length": "--seq-length",
    "dist.use_torch_fsdp2": "?--use-torch-fsdp2",
    "ddp.outer_dp_sharding_strategy": "--outer-dp-sharding-strategy",
    "train.train_iters": "--train-iters",
    "train.rampup_batch_size": "--rampup-batch-size",
}

DIALECT = Dialect(
    "Megatron-Bridge",
    rows=ROWS,
    read_only={**ALSO, **under("model", KERNELS)},
    defaults={},
    implied=(
        *("--bf16", "--fp16", "--fp8-format", "--fp8-recipe", "--fp8-param-gather", "--fp4-format", "--fp4-recipe"),
        *("--attention-backend", "--no-gradient-accumulation-fusion", "--init-model-with-meta-device"),
        *("--grad-reduce-in-bf16", "--reuse-grad-buf-for-mxfp8-param-ag"),
    ),
    refused=under("model", SWITCHED)
    | {
        "model.is_hybrid_model": "nest prices decoders like GPT's, and this has Mamba layers",
        "model.teacher": "nest does not price the teacher of a distillation",
    },
    assumed=under("model", COSTS),
    harmless=(
        *("*_target_", "checkpoint.*", "logger.*", "rng.*", "scheduler.*", "tokenizer.*", "profiling.*", "ft", "ft.*"),
        *("straggler*", "rerun_state_machine.*", "validation.*", "env_vars.*", "dist.*", "dataset.*", "optimizer.*"),
        *("mixed_precision.*", "comm_overlap.*", "ddp.*", "train.*", "nvrx*", "inprocess_restart*", "tensor_inspect*"),
        *under("model", dict.fromkeys(FREE)),
    ),
    recipe=True,
)

LOSS = ("model.cross_entropy_loss_fusion", "model.cross_entropy_fusion_impl")
LEFT = (
    f"{LOSS[1]} is left to the recipe, and to the problem; where that has neither training.loss nor a stack, it is te, "
    "as in performance recipes and most others that pre-train."
)
"""Of Megatron-Bridge 0.6.2, perf_recipes/_common.py (_benchmark_common) and 46 of 84 other recipes that pre-train."""

SECTIONS = ("peft", "model", "train", "dataset", "optimizer", "ddp", "dist", "mixed_precision", "comm_overlap")


def read(text: str, options: LaunchOptions | None = None) -> Reading:
    """Read an overlay, or a whole configuration as Megatron-Bridge saves it.

    `options`: what else is said of the launch, of which the file says nothing.

    Raises:
        InputErrors: keys contradict each other, or say what nest cannot price.
        InputError: it is no such file.
    """
    from nest_frameworks.keys import Keys, launched, opened
    from nest_frameworks.megatron.relatives.core import trained

    keys = Keys(opened(text, "megatron_bridge.yaml", "Megatron-Bridge's sections", SECTIONS))
    if "_target_" in keys.content:  # A whole configuration has hundreds of fields with their defaults.
        keys.asked.add("model")
    devices = launched(keys, options or LaunchOptions())
    # What overlaps stands in two sections, of which CommOverlapConfig wins (its `setup`).
    extra: Flags = {
        f"--{name.replace('_', '-')}": value
        for name in ("overlap_grad_reduce", "overlap_param_gather")
        if isinstance(value := keys.value(f"comm_overlap.{name}"), bool)
    }
    # DistributedDataParallelConfig shards nothing unless told, where Megatron-LM's flag shards everything.
    if keys.value("ddp.data_parallel_sharding_strategy") in (None, "no_shard"):
        extra[STRATEGY] = "no_shard"
    if keys.value("model.multi_latent_attention"):  # Which has no groups of queries.
        extra |= {"--group-query-attention": None, "--num-query-groups": None}
    split, spread = (keys.value(f"model.expert_{each}_parallel_size") for each in ("tensor", "model"))
    if "_target_" in keys.content and split is None and spread not in (None, 1):
        extra["--expert-tensor-parallel-size"] = 1  # models/transformer_config.py of 0.6.2.
    gathers = [keys.value(f"{section}.overlap_param_gather") for section in ("comm_overlap", "ddp")]
    if extra.get("--overlap-grad-reduce") is False and True in gathers:
        extra["--overlap-param-gather"] = False
        keys.note("overlap_param_gather without overlap_grad_reduce is priced as neither.")
    fusion, kernel = (keys.value(path) for path in LOSS)
    if fusion is None and kernel is not None:  # GPTModelProvider fuses the cross-entropy unless told otherwise.
        extra["--cross-entropy-loss-fusion"] = True
    left = kernel is None and str(fusion).lower() != "false"
    if left and not keys.value("peft"):  # Recipes with adapters have Megatron Core's own.
        keys.note(LEFT)
    adapters = {}
    if keys.value("peft"):
        keys.asked |= {"peft"}  # Whose scale and dropout change no cost.
        names = MODULES if "Canonical" in str(keys.value("peft._target_")) else FUSED_MODULES
        adapters = {"trainable": trained(keys, "peft.dim", "peft.target_modules", tuple(names.values()), 32)}
    found = DIALECT.read(keys, devices, extra)
    training = {**found.settings["training"], **adapters}
    if left:
        training.pop("loss", None)
    usual = {"loss": "fused"} if left and not adapters else {}
    return evolve(found, settings={**found.settings, "training": training}, usual=usual)


def export(plan: PlanDocument) -> Mapping[str, str]:
    """`megatron_bridge.yaml`.

    Raises:
        InputError: Megatron-Bridge cannot run the plan; the text has the reasons.
    """
    from nest_frameworks.common import problem_of

    problem = problem_of(plan)
    sections = DIALECT.written(plan, relatives.bridge(Asked.of(problem)))
    sections["mixed_precision"] = _precision(problem.training)
    sections["comm_overlap"] = {"_target_": OVERLAP, **sections["comm_overlap"]}
    sections["peft"] = _adapters(problem.training)
    return {"megatron_bridge.yaml": _text(sections, plan)}


def _precision(training: Training) -> str | dict[str, Any] | None:
    """The named precision, or its fields where gradients or weights are in other formats than it says."""
    name = PRECISIONS[training.precision]
    wide = training.precision in EIGHT_BITS and not eight_bit_weights(training)
    if name is None or not (wide or (training.gradients == "bf16" and training.precision != "fp16")):
        return name
    words = {word: str(row).lstrip("?") for path, row in ALSO.items() if (word := path.removeprefix(FIELD)) != path}
    fields = {word: NAMED[name][flag] for word, flag in words.items() if flag in NAMED[name]}
    kinds = dict.fromkeys(("params_dtype", "pipeline_dtype"), "torch.bfloat16")
    told = {"_target_": CONFIGURATION, **kinds, **fields, **FIELDS.get(name, {})}
    if wide:
        told["fp8_param_gather"] = told["reuse_grad_buf_for_mxfp8_param_ag"] = False
    return told | {"grad_reduce_in_fp32": training.gradients != "bf16"}


def _adapters(training: Training) -> dict[str, Any] | None:
    """The scale of adapters (`alpha`) changes neither time nor memory, and is the recipe's."""
    if training.trained is None or training.trained.lora is None:
        return None
    targets = targets_of(training.trained.lora)
    fused = targets <= set(FUSED_MODULES)
    names = FUSED_MODULES if fused else MODULES
    modules = [module for target, module in names.items() if target in targets]
    return {
        "_target_": FUSED_ADAPTERS if fused else ADAPTERS,
        "target_modules": modules,
        "dim": training.trained.lora.rank,
        "dropout": 0.0,
    }


def _made(value: Any) -> Any:
    """The object that a word stands for: Megatron-Bridge leaves some types of PyTorch as text.

    findings/megatron-bridge-leaves-types-of-overlays-as-text.sh.
    """
    return {"_call_": False, "_target_": value} if str(value).startswith("torch.") else value


def _text(sections: Mapping[str, Any], plan: PlanDocument) -> str:
    """YAML, whose words are written as JSON writes them."""
    from nest.hooks.pipelines import deployed
    from nest_frameworks.common import problem_of
    from nest_frameworks.megatron.parallel_flags import environment

    shape, model = deployed(plan), Asked.of(problem_of(plan)).transformer
    exported, unset = environment(shape)
    lines = [
        "# Written by nest for Megatron-Bridge; an overlay for a recipe, which brings the model.",
        f"# The plan is for {len(model.blocks)} layers of width {model.hidden} on {shape.world_size} ranks.",
        *(f"# Set {name}={value} in the environment." for name, value in exported.items()),
        *(f"# Leave {name} unset." for name in unset),
    ]
    for name, section in sections.items():
        if isinstance(section, dict):
            lines += [f"{name}:", *(f"  {key}: {json.dumps(_made(value))}" for key, value in section.items())]
        else:
            lines.append(f"{name}: {json.dumps(section)}")
    return "\n".join(lines) + "\n"
