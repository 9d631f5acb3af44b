"""Parts of a configuration's model that its class of language model does not build: told, or added on demand."""

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import evolve

from nest.spec.architecture import FURTHER, Architecture, HybridBlock, LatentAttention

AROUND = "ForConditionalGeneration"  # End of class names of pictures, sound and text around a language model.
LARGEST = 10**9  # Largest width accepted: no transformer comes near, and a slip beyond it would build for hours.
MOST_LAYERS = 10_000  # Largest number of blocks accepted.

PARTS = {"vision_config": "vision tower", "audio_config": "audio tower"}
"""Parts of models of pictures, sound and text beside the language model, by their keys."""


def left_out(config: Mapping[str, Any]) -> Iterator[str]:
    """Name the parts of a configuration's model that its class of language model does not build, a sentence each."""
    towers = [key for key in PARTS if isinstance(config.get(key), Mapping)]
    for key in towers:
        yield f"The plan leaves out the {PARTS[key]}{_size(config[key])}."
    for name in config.get("architectures") or ():
        if str(name).endswith(AROUND) and not towers:
            yield f"The plan leaves out all of {name} but its language model."
    further = [] if config.get("mtp") else [key for key in FURTHER if further_layers(config, key)]
    for key in further:
        yield (
            f"The plan leaves out multi-token prediction (`{key}: {config[key]}`); `training.mtp: true` trains these "
            "layers."
        )


def further_layers(config: Mapping[str, Any], key: str) -> int:
    """Return the number at `key`; 0 without one."""
    count = config.get(key)
    return count if type(count) is int and 0 < count <= MOST_LAYERS else 0


def _size(part: Mapping[str, Any]) -> str:
    """Say how large a tower is: its attention and networks, without embeddings, projector and perhaps gates."""

    def first(*keys: str) -> int:
        return next((value for value in map(part.get, keys) if type(value) is int and value > 0), 0)

    layers = first("depth", "num_hidden_layers", "vt_num_hidden_layers", "encoder_layers")
    width = first("embed_dim", "hidden_size", "vt_hidden_size", "d_model")
    inner = first("intermediate_size", "vt_intermediate_size", "encoder_ffn_dim")
    ratio = part.get("mlp_ratio")
    inner = inner or int(width * ratio if isinstance(ratio, int | float) and ratio < LARGEST else 0)
    if not (layers and width and inner):
        return ""
    return f" ({layers * width * (4 * width + 2 * inner) / 1e6:,.0f} million parameters or more)"


def with_further_layers(built: Architecture, count: int, block: HybridBlock | None) -> Architecture:
    """Add blocks that predict further tokens: copies of `block`, else of the last, with a choice of keys of its own."""
    if built.blocks:
        last = built.blocks[-1]
        if isinstance(last.attention, LatentAttention) and last.attention.indexer is not None:
            own = evolve(last.attention, indexer=evolve(last.attention.indexer, choice_of=None))
            last = evolve(last, attention=own)
        return evolve(built, blocks=built.blocks + (last,) * count, predicting=count)
    return evolve(built, hybrid=built.hybrid + (block or built.hybrid[-1],) * count, predicting=count)
