"""nanotron: its YAML file, written and read, all but data, tokenizer and checkpoints.

Keys and defaults: huggingface/nanotron, commit 2411b022, src/nanotron/config/{config,parallelism_config,
models_config}.py; stages: `build_model` in src/nanotron/models/base.py and `get_block_compute_costs` of
src/nanotron/models/{llama,qwen}.py (`nest_frameworks.limits.meshes.split`).
"""

from collections.abc import Mapping
from math import prod
from typing import Any

from nest.deployment import MODEL_LEFT, Deployment, LaunchOptions, Reading
from nest.errors import InputError
from nest.hooks.architectures import architecture
from nest.io import read_mapping_text, yaml_text
from nest.spec import Architecture, PlanDocument, Problem
from nest.spec.architecture import GroupedQueryAttention
from nest_frameworks.common import checked, problem_of, samples
from nest_frameworks.configurations import configuration
from nest_frameworks.keys import Keys, launched, said
from nest_frameworks.limits import Asked, meshes
from nest_frameworks.limits.meshes import built_like_llama, split

YAML_FILE = "nanotron.yaml"

FORMATS = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
OPTIMIZERS = {"adam": "adamW", "adamw": "adamW", "sgd": "sgd"}

ENGINES = {"1f1b": "1f1b", "gpipe": "afab"}
"""`pp_engine` by the name of the schedule."""


def export(plan: PlanDocument) -> Mapping[str, str]:
    """`nanotron.yaml`.

    Raises:
        InputError: nanotron cannot run the plan, and why.
    """
    problem = problem_of(plan)
    shape = checked(plan, meshes.nanotron(Asked.of(problem)), "nanotron")
    notes = "# CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun ... run_train.py --config-file nanotron.yaml\n"
    notes += "# Data, tokenizer and learning rate are yours.\n"
    model = {**_widths(architecture(plan)), **_positions(plan, shape)}
    return {YAML_FILE: notes + yaml_text(_configuration(shape, problem, model))}


def _widths(model: Architecture | None) -> dict[str, Any]:
    """Widths as `LlamaConfig` has them.

    Raises:
        InputError: the model is not built like Llama.
    """
    built = built_like_llama(model)
    attention, network = built.blocks[0].attention, built.blocks[0].feed_forward
    assert isinstance(attention, GroupedQueryAttention)
    return {
        "is_llama_config": True,
        "hidden_size": built.hidden,
        "intermediate_size": network.width,
        "num_hidden_layers": len(built.blocks),
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.kv_heads,
        "vocab_size": built.vocab,
        "tie_word_embeddings": built.tied,
        "hidden_act": "silu",
    }


def _positions(plan: PlanDocument, shape: Deployment) -> dict[str, Any]:
    """Rotary positions and norms of a configuration; nothing: nanotron's defaults."""
    said = configuration(plan.problem.get("model"))
    told = {key: said[key] for key in ("rope_theta", "rms_norm_eps") if key in said}
    return {**told, "rope_interleaved": False, "max_position_embeddings": shape.sequence_length}


def _configuration(shape: Deployment, problem: Problem, model: Mapping[str, Any]) -> dict[str, Any]:
    training = problem.training
    return {
        "general": {"project": "nest", "run": "plan", "seed": 42},
        "model": {
            "dtype": FORMATS[training.precision],
            "init_method": {"std": 0.02},
            "make_vocab_size_divisible_by": 1,
            "model_config": dict(model),
        },
        "optimizer": {
            "accumulate_grad_in_fp32": training.precision != "fp32",
            "clip_grad": 1.0,
            "learning_rate_scheduler": {
                "learning_rate": 0.0003,
                "lr_warmup_steps": 0,
                "lr_warmup_style": "linear",
                "lr_decay_style": "cosine",
                "min_decay_lr": 0.0003 / 10,
            },
            "optimizer_factory": _optimizer(OPTIMIZERS[training.optimizer]),
            "weight_decay": 0.01,
            "zero_stage": shape.zero[0],
        },
        "parallelism": {
            "dp": shape.data_parallel,
            "pp": shape.stages,
            "pp_engine": ENGINES[shape.schedule],
            "recompute_layer": shape.recompute[0] == "full",
            "tp": shape.tp,
            "tp_linear_async_communication": bool(training.overlap.tensor),
            "tp_mode": "REDUCE_SCATTER" if shape.sequence_parallel or shape.tp == 1 else "ALL_REDUCE",
        },
        "tokens": {
            "batch_accumulation_per_replica": shape.micro_batches,
            "micro_batch_size": samples(shape),
            "sequence_length": shape.sequence_length,
            "train_steps": max(int((training.tokens or 0) // (shape.global_batch * (shape.sequence_length or 1))), 1),
        },
    }


def _optimizer(name: str) -> dict[str, Any]:
    """`optimizer_factory`, with what Adam asks for."""
    betas = {"adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 10.0**-8, "torch_adam_is_fused": True}
    return {"name": name, **(betas if name == "adamW" else {})}


STACK = "nanotron"

WIDTHS = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}
"""Widths of `LlamaConfig` and `Qwen2Config` that are left out."""

MOST_LAYERS = 10_000
"""More than any model has."""

CONFIG = "model.model_config"

CHANGING = {
    "parallelism.moe_layer_recompute": "nest assumes it to recompute nothing",
    f"{CONFIG}.sliding_window_size": "nest assumes queries to attend to every key",
    f"{CONFIG}.flex_attention_mask": "nest assumes queries to attend to every key",
}
"""Keys that change layout, memory or model, with what nest prices."""

UNPRICED = {
    f"{CONFIG}.no_rope_layer": "nest assumes all layers to rotate queries and keys",
    f"{CONFIG}.z_loss_enabled": "",
}
"""Assumptions for set keys; empty: the key is only named."""

HARMLESS = (
    *("general.*", "checkpoints.*", "data_stages", "logging.*", "tokenizer.*", "profiler.*", "lighteval.*"),
    *("s3_upload.*", "metrics_logging.*", "optimizer.learning_rate_scheduler.*", "optimizer.clip_grad"),
    *("optimizer.weight_decay*", "optimizer.optimizer_factory.*", "model.init_method.*", "model.ddp_bucket_cap_mb"),
    *("model.make_vocab_size_divisible_by", "tokens.limit_*", "tokens.val_*", f"{CONFIG}.*_token_id"),
    *(f"{CONFIG}.{name}" for name in ("initializer_range", "max_position_embeddings", "pretraining_tp", "use_cache")),
    *(f"{CONFIG}.{name}" for name in ("rms_norm_eps", "rope_*", "_*", "z_loss_coefficient", "is_*_config")),
)
"""Patterns of keys that change no cost that nest counts."""


def read(text: str, options: LaunchOptions | None = None) -> Reading:
    """Read a file of nanotron.

    `options`: what else is said of the launch; its machines must make the ranks of the file's degrees.

    Raises:
        InputErrors: keys contradict each other, or say what nest cannot price.
        InputError: it is no such file.
    """
    content = read_mapping_text(text, "nanotron.yaml")
    if not {"parallelism", "tokens"} <= set(content):
        raise InputError("the file has not both of nanotron's sections, parallelism and tokens.")
    keys = Keys(content)
    model = _model(keys)
    fixed = _degrees(keys)
    fixed |= _stages(keys, fixed["pp"], model)
    training = _training(keys, fixed)
    ranks = prod(fixed[name] for name in ("dp", "tp", "cp", "pp"))
    there = launched(keys, options or LaunchOptions())
    if there is not None and there != ranks:
        keys.problem(f"the degrees of parallelism make {ranks} ranks, and the launch has {there}.")
    keys.refuse(CHANGING)
    keys.unpriced(UNPRICED)
    notes = keys.finish(HARMLESS)
    settings = {"training": training, "fixed": said(fixed), **({"model": model} if model is not None else {})}
    return Reading(settings, ranks, notes=notes, ranks_per_node=keys.ranks_per_node)


def _model(keys: Keys) -> dict[str, Any] | None:
    """`model` of a problem; None: the problem says it."""
    kinds = {"llama": keys.truth(f"{CONFIG}.is_llama_config"), "qwen2": keys.truth(f"{CONFIG}.is_qwen2_config")}
    mixture, activation = keys.value(f"{CONFIG}.moe_config"), keys.value(f"{CONFIG}.hidden_act") or "silu"
    widths = {name: keys.integer(f"{CONFIG}.{name}") or usual for name, usual in WIDTHS.items()}
    grouped = keys.integer(f"{CONFIG}.num_key_value_heads") or widths["num_attention_heads"]
    tied, bias = keys.truth(f"{CONFIG}.tie_word_embeddings"), keys.truth(f"{CONFIG}.attention_bias")
    if not any(kinds.values()) or mixture or activation != "silu":
        keys.asked |= {CONFIG}
        keys.note(f"{CONFIG} is no Llama or dense Qwen 2 with silu: {MODEL_LEFT}")
        return None
    # The bias of nanotron's Qwen 2 is an option, and left out it is built as Llama is; Llama has none.
    kind = "qwen2" if kinds["qwen2"] and bias else "llama"
    if kinds["llama"] and bias:
        keys.note(f"{CONFIG}.attention_bias is not priced.")
    return {"model_type": kind, **widths, "num_key_value_heads": grouped, "tie_word_embeddings": tied}


def _degrees(keys: Keys) -> dict[str, Any]:
    sizes = {"dp": "dp", "tp": "tp", "pp": "pp", "cp": "context_parallel_size"}
    fixed: dict[str, Any] = {name: keys.integer(f"parallelism.{key}") or 1 for name, key in sizes.items()}
    if (keys.integer("parallelism.expert_parallel_size") or 1) > 1:
        keys.problem("parallelism.expert_parallel_size is above 1, and nest does not read nanotron's experts.")
    scattered = keys.choice("parallelism.tp_mode", {"reduce_scatter": True, "all_reduce": False}, False)
    fixed |= {"sp": scattered and fixed["tp"] > 1, "rank_order": "dp-inner"}
    if not keys.truth("parallelism.tp_recompute_allgather", True) and fixed["sp"]:
        keys.note("parallelism.tp_recompute_allgather false is priced as true: what is gathered is gathered again.")
    fixed["recompute"] = "full" if keys.truth("parallelism.recompute_layer") else "none"
    zero = keys.integer("optimizer.zero_stage", 0) or 0
    if zero > 1:
        keys.problem(f"optimizer.zero_stage is {zero}; nanotron has 0 and 1.")
    return {**fixed, "zero": zero}


def _stages(keys: Keys, pp: int, model: dict[str, Any] | None) -> dict[str, Any]:
    """Schedule, and how many blocks each stage has."""
    schedule = keys.choice("parallelism.pp_engine", {"1f1b": "1f1b", "afab": "gpipe"}, "gpipe")
    if pp == 1:
        return {"schedule": "1f1b"}
    if model is None:
        keys.note("nest assumes stages to be even, as nanotron's split follows from the model.")
        return {"schedule": schedule}
    layers = model["num_hidden_layers"]
    if not pp <= layers <= MOST_LAYERS:
        keys.problem(f"parallelism.pp is {pp}, and there are {layers} layers; nest reads up to {MOST_LAYERS}.")
        return {}
    stages = split(pp, layers, model["hidden_size"], model["intermediate_size"], model["vocab_size"])
    if not all(stages):
        # The head alone may be a stage, or none is left for it.
        keys.problem(f"nanotron leaves one of {pp} pipeline stages without layers; nest has no empty stages.")
        return {}
    return {"schedule": schedule, "stages": stages}


def _training(keys: Keys, fixed: dict[str, Any]) -> dict[str, Any]:
    micro = keys.integer("tokens.micro_batch_size")
    steps, length = keys.integer("tokens.batch_accumulation_per_replica") or 1, keys.integer("tokens.sequence_length")
    if micro is None or length is None:
        keys.problem("tokens.micro_batch_size and tokens.sequence_length must be given.")
        return {}
    fixed["micro_batch"] = micro
    batch, trained = fixed["dp"] * micro * steps, keys.integer("tokens.train_steps")
    formats = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
    names = {"adamw": "adamw", "adam": "adam", "sgd": "sgd"}
    precision, wide = keys.choice("model.dtype", formats, "bf16"), keys.truth("optimizer.accumulate_grad_in_fp32")
    optimizer = keys.choice("optimizer.optimizer_factory.name", names, None)
    narrow = precision != "fp32" and not wide
    if narrow:  # src/nanotron/helpers.py, `init_optimizer_and_grad_accumulator`.
        keys.note("optimizer.accumulate_grad_in_fp32 is false: nanotron keeps nothing in single precision, priced so.")
    return said(
        {
            "global_batch": batch,
            "sequence_length": length,
            "tokens": batch * length * trained if trained else None,
            "precision": precision,
            "optimizer": optimizer if optimizer in (None, "sgd") or not narrow else "adam-bf16",
            "gradients": "fp32" if wide else precision if narrow else None,
            **(dict.fromkeys(("master_weights", "master_gradients"), False) if narrow else {}),
            "stack": STACK,
            "overlap": {"tensor": keys.truth("parallelism.tp_linear_async_communication")},
        }
    )
