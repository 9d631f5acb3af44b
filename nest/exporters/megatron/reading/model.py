"""A transformer in the words of a problem's `model`: by its widths, or as the configuration of a family that has it."""

from collections.abc import Callable, Iterator
from typing import Any

from attrs import evolve

from nest.errors import InputError, InputErrors
from nest.hooks.architectures import architecture_of
from nest.spec import Architecture
from nest.spec.architecture import FeedForward, GroupedQueryAttention, LatentAttention, MixtureOfExperts

SMALL = "biases, what norms learn beside their weights, and learned positions"
"""What costs too little to refuse a model for."""


def model_mapping(model: Architecture) -> tuple[dict[str, Any], str]:
    """`model` of a problem that stands for `model`, and what of it is left out; empty: nothing.

    Raises:
        InputError: no words of a problem come near.
    """
    candidates = list(_written(model))
    for mapping, found in candidates:
        if _same(found, model):
            return mapping, ""
    for mapping, found in candidates:
        if _same(_plain(found), _plain(model)):
            return mapping, SMALL
    raise InputError(
        "the model has blocks that differ in a way a problem cannot say: describe it under `model` of a problem as "
        "near as it gets, and leave the flags of its widths out."
    )


def _same(first: Architecture, second: Architecture) -> bool:
    return evolve(first, family="") == evolve(second, family="")


def _plain(model: Architecture) -> Architecture:
    """The model without what costs little."""
    return evolve(model, norm_bias=False, positions=0, blocks=tuple(_plain_block(block) for block in model.blocks))


def _plain_block(block: Any) -> Any:
    attention, network = block.attention, block.feed_forward
    if isinstance(attention, GroupedQueryAttention):
        attention = evolve(attention, bias=False, output_bias=False, normalised=False, rotary=True)
    else:
        attention = evolve(attention, bias=False)
    network = evolve(network, bias=False) if isinstance(network, FeedForward) else evolve(network, shared_gate=False)
    return evolve(block, attention=attention, feed_forward=network)


def _written(model: Architecture) -> Iterator[tuple[dict[str, Any], Architecture]]:
    """What can be written, and what it is read as."""
    writers: tuple[Callable[[Architecture], dict[str, Any]], ...] = (_widths, _gpt2, _llama, _qwen, _deepseek)
    for writer in writers:
        try:
            mapping = writer(model)
            found = architecture_of(mapping)
        except (InputError, InputErrors, ValueError):
            continue
        if found is not None:
            yield mapping, found


def _widths(model: Architecture) -> dict[str, Any]:
    """`transformer`: a causal decoder with rotary positions and without biases."""
    attention, dense, mixture = _parts(model)
    written: dict[str, Any] = {
        "layers": len(model.blocks),
        "hidden": model.hidden,
        "ffn": dense.width if dense is not None else _required(mixture).width,
        "heads": attention.heads,
        "vocab": model.vocab,
        "gated_mlp": (dense if dense is not None else _required(mixture)).gated,
        "tied_embeddings": model.tied,
    }
    if isinstance(attention, LatentAttention):
        written["mla"] = {
            "q_lora_rank": attention.query_rank,
            "kv_lora_rank": attention.key_value_rank,
            "qk_nope_head_dim": attention.plain,
            "qk_rope_head_dim": attention.rotary,
            "v_head_dim": attention.value,
        }
    else:
        written |= {"kv_heads": attention.kv_heads, "head_dim": attention.head}
        if attention.window is not None:
            written["sliding_window"] = attention.window
    if mixture is not None:
        written |= {"experts": mixture.experts, "top_k": mixture.top_k, "moe_ffn": mixture.width}
        written |= {"shared_expert_ffn": mixture.shared_width, "dense_layers": _leading_dense(model)}
    return {"transformer": written}


def _gpt2(model: Architecture) -> dict[str, Any]:
    attention, dense, _mixture = _parts(model)
    return {
        "model_type": "gpt2",
        "n_layer": len(model.blocks),
        "n_embd": model.hidden,
        "n_head": attention.heads,
        "n_inner": _required(dense).width,
        "n_positions": model.positions,
        "vocab_size": model.vocab,
        "tie_word_embeddings": model.tied,
    }


def _decoder(model: Architecture, family: str) -> dict[str, Any]:
    """The keys that families of the Llama lineage share."""
    attention, dense, _mixture = _parts(model)
    written: dict[str, Any] = {
        "model_type": family,
        "num_hidden_layers": len(model.blocks),
        "hidden_size": model.hidden,
        "num_attention_heads": attention.heads,
        "vocab_size": model.vocab,
        "tie_word_embeddings": model.tied,
        "intermediate_size": dense.width if dense is not None else 1,
    }
    if isinstance(attention, GroupedQueryAttention):
        written |= {"num_key_value_heads": attention.kv_heads, "head_dim": attention.head}
        written["attention_bias"] = attention.bias
    return written


def _llama(model: Architecture) -> dict[str, Any]:
    _attention, dense, _mixture = _parts(model)
    return {**_decoder(model, "llama"), "mlp_bias": _required(dense).bias}


def _qwen(model: Architecture) -> dict[str, Any]:
    """Qwen 2 has biases at queries, keys and values, Qwen 3 norms there; some layers of both may have windows."""
    attention, _dense, mixture = _parts(model)
    if not isinstance(attention, GroupedQueryAttention):
        raise ValueError(attention)
    generation = "qwen3" if attention.normalised else "qwen2"
    written = _decoder(model, generation if mixture is None else f"{generation}_moe")
    windows = [getattr(block.attention, "window", None) for block in model.blocks]
    if any(windows):
        written |= {
            "use_sliding_window": True,
            "sliding_window": next(width for width in windows if width is not None),
            "layer_types": ["full_attention" if width is None else "sliding_attention" for width in windows],
        }
    if mixture is not None:
        written |= {
            "num_experts": mixture.experts,
            "num_experts_per_tok": mixture.top_k,
            "moe_intermediate_size": mixture.width,
            "shared_expert_intermediate_size": mixture.shared_width or 1,
            "mlp_only_layers": [i for i, b in enumerate(model.blocks) if isinstance(b.feed_forward, FeedForward)],
        }
    return written


def _deepseek(model: Architecture) -> dict[str, Any]:
    attention, _dense, mixture = _parts(model)
    if not isinstance(attention, LatentAttention) or mixture is None:
        raise ValueError(attention)
    return {
        **_decoder(model, "deepseek_v3"),
        "q_lora_rank": attention.query_rank,
        "kv_lora_rank": attention.key_value_rank,
        "qk_nope_head_dim": attention.plain,
        "qk_rope_head_dim": attention.rotary,
        "v_head_dim": attention.value,
        "attention_bias": attention.bias,
        "n_routed_experts": mixture.experts,
        "num_experts_per_tok": mixture.top_k,
        "moe_intermediate_size": mixture.width,
        "n_shared_experts": mixture.shared_width // mixture.width,
        "first_k_dense_replace": _leading_dense(model),
    }


def _parts(
    model: Architecture,
) -> tuple[GroupedQueryAttention | LatentAttention, FeedForward | None, MixtureOfExperts | None]:
    """The attention of the first block, the first dense network, and the first mixture of experts."""
    networks = [block.feed_forward for block in model.blocks]
    dense = next((network for network in networks if isinstance(network, FeedForward)), None)
    mixture = next((network for network in networks if isinstance(network, MixtureOfExperts)), None)
    return model.blocks[0].attention, dense, mixture


def _leading_dense(model: Architecture) -> int:
    sparse = [isinstance(block.feed_forward, MixtureOfExperts) for block in model.blocks]
    return sparse.index(True) if True in sparse else len(sparse)


def _required(part: Any) -> Any:
    """`part`, without which a family does not have the model."""
    if part is None:
        raise ValueError(part)
    return part
