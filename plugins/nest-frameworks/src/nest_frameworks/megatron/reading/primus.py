"""Experiments of AMD's Primus: arguments of Megatron-LM by name, over Primus' own defaults.

Sources: AMD-AGI/Primus 05b350b3, primus/configs/modules/megatron/{trainer_base,pre_trainer}.yaml (defaults),
primus_turbo.yaml, and examples/megatron/configs.
"""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from nest.errors import InputError
from nest.io import read_mapping_text

_EXPERIMENT = re.compile(r"^modules:\s*(#.*)?$", re.MULTILINE)
TRAINER = "pre_trainer"

DEFAULTS: Mapping[str, Any] = {
    "bf16": True,
    "micro_batch_size": 2,
    "global_batch_size": 16,
    "seq_length": 1024,
    "use_distributed_optimizer": True,
    "data_parallel_sharding_strategy": "no_shard",
}

WIDTHS = ("num_layers", "hidden_size", "num_attention_heads", "ffn_hidden_size", "num_query_groups", "num_experts")
"""Keys of a model's file; overriding one makes another model."""

RENAMED = {
    "fp8": "fp8-format",
    "fp4": "fp4-format",
    "fp4_param": "fp4-param-gather",
    "virtual_pipeline_model_parallel_size": "num-virtual-stages-per-pipeline-rank",
    "use_turbo_deepep": "moe-enable-deepep",
}
"""Flags of Megatron-LM by arguments of another name."""

DENIED = {
    "overlap_p2p_comm": "no-overlap-p2p-communication",
    "gradient_accumulation_fusion": "no-gradient-accumulation-fusion",
    "bias_swiglu_fusion": "no-bias-swiglu-fusion",
    "bias_gelu_fusion": "no-bias-gelu-fusion",
    "scatter_gather_tensors_in_pipeline": "no-scatter-gather-tensors-in-pipeline",
}
"""Flags that say that an argument, true where it is left out, is false."""

CALLED = {"llama4_17B16E": "llama-4-scout", "llama4_17B128E": "llama-4-maverick"}
"""The catalogue's names of models that Primus calls otherwise."""

REFUSED = {
    "patch_zero_bubble": "a schedule of its own",
    "patch_primus_pipeline": "a schedule of its own",
    "decoder_pipeline_manual_split_list": "stages of its own",
    "recompute_layer_ids": "layers that are recomputed one by one",
    "use_custom_fsdp": "an FSDP of its own",
}

HARMLESS = """
stderr_sink_level log_* disable_* auto_continue_train enable_primus_turbo use_turbo_* turbo_* use_rocm_*
torch_profiler_* dump_pp_data pp_warmup mlflow_* trainable multiprocessing_context moe_use_* patch_moe_overlap sink_*
*_data_path
""".split()  # noqa: SIM905
"""Patterns of Primus' own arguments that change no cost that nest counts."""


def is_experiment(text: str) -> bool:
    """Return whether a text is an experiment of Primus."""
    return bool(_EXPERIMENT.search(text)) and "framework:" in text and "overrides:" in text


def experiment(text: str) -> tuple[list[tuple[str, Any]], str]:
    """Flags with their values, variables in them as they are written, and the name of the model's file.

    Raises:
        InputError: it runs another framework, or asks for what nest does not price.
    """
    modules = read_mapping_text(text, "experiment.yaml").get("modules")
    trainer = modules.get(TRAINER) if isinstance(modules, Mapping) else None
    if not isinstance(trainer, Mapping):
        raise InputError(f"this experiment of Primus has no {TRAINER}; nest reads no others.")
    if trainer.get("framework", "megatron") != "megatron":
        raise InputError(f"this experiment of Primus runs {trainer['framework']!s:.40}; nest reads those of megatron.")
    said = {**DEFAULTS, **(trainer.get("overrides") or {})}
    model = re.sub(r"\$\{\w+:([^}]*)\}", r"\1", str(trainer.get("model") or "")).removesuffix(".yaml")
    if model.startswith("diffusion"):
        raise InputError(f"{model:.60} is a diffusion model; nest prices decoders like GPT's.")
    if changed := [name for name in WIDTHS if name in said]:
        raise InputError(f"overrides has {', '.join(changed)}, which change the model {model!r:.60}; nest reads none.")
    for name, what in REFUSED.items():
        if said.get(name) not in (None, False, []):
            raise InputError(f"{name} is {said[name]!r:.60}: {what}, which nest does not price.")
    return list(_flags(said)), CALLED.get(model, model)


def _flags(said: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in said.items():
        if name in DENIED:
            if value is False:
                yield f"--{DENIED[name]}", True
        elif name in RENAMED or not any(fnmatchcase(name, pattern) for pattern in HARMLESS):
            flag = RENAMED.get(name, name).replace("_", "-")
            yield f"--{flag}", bool(value) if name == "sequence_parallel" else value
        if name == "use_turbo_deepep" and value is True:
            yield "--moe-token-dispatcher-type", "flex"
