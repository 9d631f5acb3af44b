"""Experiments of AMD's Primus: arguments of Megatron-LM by name, over Primus' own defaults.

Sources: AMD-AGI/Primus fd1eeabb, primus/configs/modules/megatron/{trainer_base,pre_trainer,sft_trainer}.yaml
(defaults), primus_turbo.yaml, primus/configs/models/megatron, primus/backends/megatron/peft/lora.py and
examples/megatron/configs.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from attrs import frozen

from nest.catalogue import library_models
from nest.catalogue.spellings import catalogued
from nest.errors import InputError, InputErrors
from nest.hooks.architectures import architecture_of
from nest.io import read_mapping, read_mapping_text, there_is
from nest_frameworks.keys import Keys
from nest_frameworks.limits.relatives import FUSED_MODULES
from nest_frameworks.megatron.model_flags import model_flags
from nest_frameworks.megatron.notation import given_flags
from nest_frameworks.megatron.relatives.core import trained
from nest_frameworks.trainers.adapters import listed

_EXPERIMENT = re.compile(r"^modules:\s*(#.*)?$", re.MULTILINE)
TRAINER, TUNER = "pre_trainer", "post_trainer"
MODELS = "primus/configs/models/megatron"
DEEPEST = 8
"""Most files that a model's file is laid over."""

DEFAULTS: Mapping[str, Any] = {
    "bf16": True,
    "micro_batch_size": 2,
    "global_batch_size": 16,
    "seq_length": 1024,
    "use_distributed_optimizer": True,
    "data_parallel_sharding_strategy": "no_shard",
}

TUNED: Mapping[str, Any] = {**DEFAULTS, "micro_batch_size": 1, "global_batch_size": 128, "seq_length": 2048}
"""Defaults of fine-tuning."""

WIDTHS = ("hidden_size", "num_attention_heads", "ffn_hidden_size", "num_query_groups", "num_experts")
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
    "add_bias_linear": "disable-bias-linear",
    "gradient_accumulation_fusion": "no-gradient-accumulation-fusion",
    "bias_swiglu_fusion": "no-bias-swiglu-fusion",
    "bias_gelu_fusion": "no-bias-gelu-fusion",
    "scatter_gather_tensors_in_pipeline": "no-scatter-gather-tensors-in-pipeline",
}
"""Flags that say that an argument, true where it is left out, is false."""

CALLED = {"llama4_17B16E": "llama-4-scout", "llama4_17B128E": "llama-4-maverick"}
CALLED |= {"minimax_m2.5": "minimax-m2"}
"""The catalogue's names of models that Primus calls otherwise."""

REFUSED = {
    "patch_zero_bubble": "a schedule of its own",
    "patch_primus_pipeline": "a schedule of its own",
    "decoder_pipeline_manual_split_list": "stages of its own",
    "recompute_layer_ids": "layers that are recomputed one by one",
    "use_custom_fsdp": "an FSDP of its own",
    "enable_fused_linear_ce": "a loss of its own",
    "enable_odc_lb_mini": "micro-batches of different lengths",
}

HARMLESS = """
stderr_sink_level log_* disable_* auto_continue_train enable_primus_turbo use_turbo_* turbo_* use_rocm_*
torch_profiler_* dump_pp_data pp_warmup mlflow_* trainable multiprocessing_context moe_use_* patch_moe_overlap sink_*
*_data_path sft_* hf_path stage model_type [A-Z]* mtp_use_separate_hc_head hybrid_attention_enabled use_v4_* hc_*
attn_sink swiglu_limit async_tensor_model_parallel_allreduce use_pytorch_profiler use_packed_attention lora
enable_packed_sequences enable_experimental masked_softmax_fusion bias_dropout_fusion apply_rope_fusion barrier_*
clone_scatter_* conv_L_cache perform_initialization sink_window_even_layers_only
""".split()  # noqa: SIM905
"""Patterns of Primus' own arguments that change no cost that nest counts, unless they name what decides one."""
DECISIVE = re.compile("tensor|pipeline|context_par|expert_par|_size|layers|hidden|heads|_experts|recomput|batch|length")


def _is_harmless(name: str) -> bool:
    """Return whether an argument of Primus changes no cost that nest counts."""
    return name in HARMLESS or (
        any(fnmatchcase(name, pattern) for pattern in HARMLESS) and not DECISIVE.search(name.lower())
    )


def is_experiment(text: str) -> bool:
    """Return whether a text is an experiment of Primus."""
    return bool(_EXPERIMENT.search(text)) and "framework:" in text and "overrides:" in text


@frozen
class Experiment:
    """An experiment.

    Attributes:
        flags: flags with their values, variables in them as they are written.
        model: name of the model's file; empty: its flags are among `flags`.
        layers: the model's layers, where the experiment says how many.
        trainable: `training.trainable`; None: everything.
    """

    flags: list[tuple[str, Any]]
    model: str
    layers: int | None
    trainable: dict[str, Any] | None


def experiment(text: str, folder: Path | None) -> Experiment:
    """Read an experiment; a model that the catalogue lacks is described by its file, if Primus contains the experiment.

    Raises:
        InputError: it runs another framework, or asks for what nest does not price.
    """
    modules = read_mapping_text(text, "experiment.yaml").get("modules")
    known: Mapping[str, Any] = modules if isinstance(modules, Mapping) else {}
    kind = next((name for name in (TRAINER, TUNER) if isinstance(known.get(name), Mapping)), None)
    if kind is None:
        raise InputError(f"this experiment of Primus has neither {TRAINER} nor {TUNER}; nest reads no others.")
    trainer: Mapping[str, Any] = known[kind]
    config = str(trainer.get("config") or "no file")
    if trainer.get("framework", "megatron") != "megatron":
        raise InputError(f"this experiment of Primus runs {trainer['framework']!s:.40}; nest reads those of megatron.")
    overrides = dict(trainer.get("overrides") or {})
    if kind == TUNER and (not config.startswith("sft_trainer") or overrides.get("stage", "sft") != "sft"):
        raise InputError(f"this experiment of Primus has {TUNER} of {config:.60}; nest reads sft_trainer.")
    model = re.sub(r"\$\{\w+:([^}]*)\}", r"\1", str(trainer.get("model") or "")).removesuffix(".yaml")
    if model.startswith("diffusion"):
        raise InputError(f"{model:.60} is a diffusion model; nest prices decoders like GPT's.")
    model = CALLED.get(model, model)
    described = {} if catalogued(model) else _described(model, folder)
    if not described and (changed := _changed(overrides, catalogued(model))):
        described = _rebuilt(model, changed)
    if not described:
        overrides.pop("swiglu", None)  # As the model has it.
    said = {**(TUNED if kind == TUNER else DEFAULTS), **described, **overrides}
    if said.get("pipeline_model_parallel_layout"):  # It has the chunks, of which Primus wants the number as well.
        said.pop("virtual_pipeline_model_parallel_size", None)
    for name, what in REFUSED.items():
        if said.get(name) not in (None, False, []):
            raise InputError(f"{name} is {said[name]!r:.60}: {what}, which nest does not price.")
    layers = None if described else said.pop("num_layers", None)
    if layers is not None and (isinstance(layers, bool) or not isinstance(layers, int) or layers < 1):
        raise InputError(f"num_layers is {layers!r:.60}; it must be a whole number of at least 1.")
    return Experiment(list(_flags(said)), "" if described else model, layers, _adapters(overrides.get("lora")))


def _changed(overrides: Mapping[str, Any], model: str | None) -> list[str]:
    """Keys that make another model of one of the catalogue."""
    config = library_models()[model].config if model else {}
    heads, latent = config.get("num_attention_heads"), bool(config.get("kv_lora_rank"))
    own = {
        "multi_latent_attention": latent,
        "moe_router_topk": config.get("num_experts_per_tok"),
        "untie_embeddings_and_output_weights": not config.get("tie_word_embeddings", False),
        "kv_channels": None if latent else config.get("head_dim"),
        "group_query_attention": None if latent else config.get("num_key_value_heads", heads) != heads,
        "swiglu": config.get("hidden_act") == "silu" or None,
    }
    switched = (name for name, value in own.items() if config and None not in (value, overrides.get(name)))
    return [
        *(name for name in WIDTHS if name in overrides),
        *(name for name in switched if overrides[name] != own[name]),
    ]


def _rebuilt(model: str, changed: Collection[str]) -> dict[str, Any]:
    """Arguments of a model that overrides make another of.

    Raises:
        InputError: what follows from the changed widths stands in Primus' file of the model, which is not here.
    """
    name = catalogued(model)
    if name is None or not {"hidden_size", "num_attention_heads"}.isdisjoint(changed):
        raise InputError(f"overrides has {', '.join(changed)}, which change the model {model!r:.60}; nest reads none.")
    architecture = architecture_of(dict(library_models()[name].config))
    assert architecture is not None
    flags = model_flags(architecture, 1)
    said = {flag.removeprefix("--").replace("-", "_"): value for flag, value in given_flags(flags).items()}
    other = ("seq_length", "max_position_embeddings", "moe_grouped_gemm")
    rest: dict[str, Any] = {key: value for key, value in said.items() if key not in other}
    return {"add_bias_linear": not rest.pop("disable_bias_linear", False), **rest}


def _adapters(said: Any) -> dict[str, Any] | None:
    """`training.trainable` of the section `lora`."""
    if not isinstance(said, Mapping) or said.get("enabled") is not True:
        return None
    keys = Keys(said)
    found = trained(keys, "dim", "target_modules", tuple(FUSED_MODULES.values()), 32)
    if keys.problems:
        raise InputErrors(f"lora.{problem}" for problem in keys.problems)
    return found


def _described(model: str, folder: Path | None, depth: int = 0) -> dict[str, Any]:
    """Arguments of a model's file over those of the files it extends; none: there is no such file."""
    places = () if folder is None or not re.fullmatch(r"[\w.-]+", model) else (folder, *folder.parents)
    path = next((file for each in places if there_is(file := each / MODELS / f"{model}.yaml")), None)
    if path is None or depth > DEEPEST:
        return {}
    content = dict(read_mapping(path).mapping)
    below = [each for key in ("extends", "bases") for each in listed(content.pop(key, None))]
    merged: dict[str, Any] = {}
    for name in below:
        merged |= _described(name.removesuffix(".yaml"), folder, depth + 1)
    merged |= {key: value for key, value in content.items() if key != "includes"}
    if depth:
        return merged
    if merged.get("model_type", PLAIN[0]) not in PLAIN:
        return {}
    idle: tuple[str, ...] = () if merged.get("multi_latent_attention") else LATENT
    idle += () if merged.get("num_experts") else tuple(key for key in merged if key.startswith("moe_"))
    return {key: value for key, value in merged.items() if key not in idle and (value not in UNSAID or key in DENIED)}


PLAIN = ("gpt", "mamba")
"""Types of model that flags of Megatron-LM describe."""

LATENT = ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")
"""Arguments of latent attention, which every file of a model has."""

UNSAID: tuple[Any, ...] = (None, 0, 0.0, "", [], {})
"""Values in a model's file that change no argument."""


def _flags(said: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in said.items():
        if name in DENIED:
            if value is False:
                yield f"--{DENIED[name]}", True
        elif name in RENAMED or not _is_harmless(name):
            flag = RENAMED.get(name, name).replace("_", "-")
            yield f"--{flag}", bool(value) if name == "sequence_parallel" else value
        if name == "use_turbo_deepep" and value is True:
            yield "--moe-token-dispatcher-type", "flex"
