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

CAPTURE = "`nest capture config.json --output graph.json` (nest-torch) reads most models of transformers"


def unknown_model(place: str, model: Any, importers: Mapping[str, ModelImporter]) -> InputError:
    """Error for a model that no importer accepts: names the family, or the part that nest lacks."""
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
    named = [mixer for mixer, families in MIXERS.items() if any(fnmatchcase(family, each) for each in families)]
    named += [words for key, words in PARTS.items() if part.get(key)]
    if named:
        return InputError(
            f"{place}: nest cannot price the {named[0]} of {family!r:.60}. {CAPTURE}; or give measured layers under "
            "`profile`."
        )
    # No nearest name is offered: `qwen3_moe` is no remedy for a model of another family with a similar name.
    return InputError(
        f"{place}: unknown family {family!r:.60}; `nest models` lists those known. {CAPTURE}; or describe a "
        "transformer as `model: {transformer: {layers, hidden, ffn, heads, kv_heads, vocab}}`, with `experts`, "
        "`top_k` and `moe_ffn` for a mixture of experts."
    )


def _is_exported_program(model: Mapping[str, Any]) -> bool:
    """True if a model, or the mapping under its `graph`, has a list of nodes in `torch.export` names."""
    inner = model.get(GRAPH)
    rows = [value[0] for value in model.values() if isinstance(value, list) and value]
    return any(isinstance(row, Mapping) and {"name", "op", "inputs", "shape"} <= row.keys() for row in rows) or (
        isinstance(inner, Mapping) and _is_exported_program(inner)
    )
