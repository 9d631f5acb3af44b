"""nanotron: its YAML file, all but data, tokenizer and checkpoints.

Keys: huggingface/nanotron, commit 2411b022, src/nanotron/config/{config,parallelism_config,models_config}.py; what is
cut into stages, and how: nanotron_reading.py.
"""

from collections.abc import Mapping
from typing import Any

from nest.deployment import Deployment
from nest.exporters.common import checked, problem_of, samples
from nest.exporters.configurations import configuration
from nest.exporters.limits import meshes
from nest.exporters.limits.meshes import built_like_llama
from nest.hooks.architectures import architecture
from nest.io import yaml_text
from nest.spec import Architecture, PlanDocument, Problem
from nest.spec.architecture import GroupedQueryAttention

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
    shape = checked(plan, meshes.nanotron(problem), "nanotron")
    notes = "# torchrun ... run_train.py --config-file nanotron.yaml\n# Data, tokenizer and learning rate are yours.\n"
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
    """What a configuration says of rotary positions and norms; nothing: nanotron's own values."""
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
            "accumulate_grad_in_fp32": training.gradients == "fp32" and training.precision != "fp32",
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
