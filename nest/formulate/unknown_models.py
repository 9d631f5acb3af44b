"""Errors for models that no importer accepts: what nest lacks, and the way on."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from nest.errors import InputError
from nest.hooks.protocols import ModelImporter
from nest.spec import TransformerSpec
from nest.units import first_names

GRAPH = "graph"  # Key of a model with an operator graph or exported program, or the path of its file.

LANGUAGE_PARTS = ("text_config", "language_config", "llm_config", "thinker_config")
"""Keys of the language model in configurations of pictures, sound and text."""

MIXERS = {
    "alternating updates": ("gemma3n*",),
    "delta nets between norms": ("olmo_hybrid*",),
    "Mamba with shared attention": ("zamba*",),
    "RWKV": ("rwkv*",),
    "xLSTM": ("xlstm",),
    "gated linear recurrences": ("recurrent_gemma",),
}
"""Parts of families that nest lacks, by `model_type` of Hugging Face transformers 5.24.0."""

PARTS = {"is_encoder_decoder": "cross-attention", "patch_size": "image patches", "num_mel_bins": "sound frames"}
"""Parts that nest lacks, by keys of configurations."""

CAPTURE = "Capture the PyTorch module with nest-torch (`nest capture`)"


def unknown_model(place: str, model: Any, importers: Mapping[str, ModelImporter]) -> InputError:
    """Error for a model that no importer accepts: names the family, or the mixer and its layers."""
    family = model.get("model_type") if isinstance(model, dict) else "transformer"
    if isinstance(model, dict) and family is None and _is_exported_program(model):
        return InputError(
            f"{place}: this is a torch.export program; install nest-torch to read it, or give an operator graph."
        )
    if isinstance(model, dict) and family is None and {GRAPH, "operators", "layers"} & model.keys():
        return InputError(
            f"{place}: not a graph; give nodes with `name`, `op`, `inputs` and `shape`, or an operator graph with "
            f"`operators` and `layers`, in the file or under `{GRAPH}`."
        )
    if not isinstance(family, str):
        return InputError(
            f"{place}: `model_type` is missing; give one of {first_names(sorted(importers), 10)}, or describe the "
            f"model with `{TransformerSpec.WRITTEN_UNDER}:`."
        )
    part = next((each for each in map(model.get, LANGUAGE_PARTS) if isinstance(each, Mapping)), model)
    layers = _mixing(part)
    named = [mixer for mixer, families in MIXERS.items() if any(fnmatchcase(family, each) for each in families)]
    named += [words for key, words in PARTS.items() if part.get(key)] + ["linear attention"] * (layers is not None)
    if named:
        return InputError(
            f"{place}: nest cannot price the {named[0]} of {family!r:.60}{layers or ''}. {CAPTURE}, or give measured "
            "layers under `profile`."
        )
    # No nearest name is offered: `qwen3_moe` is no remedy for a model of another family with a similar name.
    return InputError(
        f"{place}: unknown family {family!r:.60}; `nest models` lists those known. {CAPTURE}, or describe a "
        "transformer as `model: {transformer: {layers, hidden, ffn, heads, kv_heads, vocab}}`, with `experts`, "
        "`top_k` and `moe_ffn` for a mixture of experts."
    )


def _mixing(config: Mapping[str, Any]) -> str | None:
    """Words for the layers of a configuration whose mixer nest lacks; None: it does not list them."""
    words = config.get("layer_types") or config.get("layers_block_type")
    sparse = config.get("sparse_attention_config")
    every, count = config.get("full_attention_interval"), config.get("num_hidden_layers")
    if isinstance(words, list):
        mixes = [word in ("linear_attention", "mamba", "conv", "recurrent") for word in words]
    elif isinstance(pattern := config.get("hybrid_override_pattern"), str):
        mixes = [letter == "M" for letter in pattern]
    elif isinstance(sparse, Mapping) and isinstance(sparse.get("sparse_attention_freq"), list):
        mixes = [each == 1 for each in sparse["sparse_attention_freq"]]
    elif type(every) is int and type(count) is int and every > 0 and 0 < count < 10_000:
        mixes = [(index + 1) % every != 0 for index in range(count)]
    else:
        return None
    indices = [str(index) for index, each in enumerate(mixes) if each]
    if not indices:
        return None
    listed = ", ".join(indices[:4]) + (", ..." if len(indices) > 4 else "")
    return f" (layers {listed}: {len(indices)} of {len(mixes)})"


def _is_exported_program(model: Mapping[str, Any]) -> bool:
    """True if a model, or the mapping under its `graph`, has a list of nodes in `torch.export` names."""
    inner = model.get(GRAPH)
    rows = [value[0] for value in model.values() if isinstance(value, list) and value]
    return any(isinstance(row, Mapping) and {"name", "op", "inputs", "shape"} <= row.keys() for row in rows) or (
        isinstance(inner, Mapping) and _is_exported_program(inner)
    )
