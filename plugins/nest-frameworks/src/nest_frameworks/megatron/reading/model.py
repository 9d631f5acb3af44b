"""The transformer that flags of Megatron-LM build, and how `model` of a problem says it.

Defaults: megatron/training/arguments.py (`validate_args`) and TransformerConfig of Megatron-LM core_v0.16.1.
"""

from collections.abc import Callable, Iterator
from typing import Any

from attrs import evolve

from nest.errors import InputError, InputErrors
from nest.hooks.architectures import architecture_of
from nest.spec import Architecture
from nest.spec.architecture import (
    FeedForward,
    GroupedQueryAttention,
    LatentAttention,
    MixtureOfExperts,
    TransformerBlock,
)
from nest_frameworks import limits
from nest_frameworks.megatron.notation import read_pattern
from nest_frameworks.megatron.reading.flags import FlagReader
from nest_frameworks.megatron.reading.tokens import UNKNOWN

SMALL = "biases, what norms learn beside their weights, and learned positions"
"""Parts too cheap to refuse a model for."""


def model_mapping(model: Architecture) -> tuple[dict[str, Any], str]:
    """`model` of a problem that stands for `model`, and what of it is left out; empty: nothing.

    Raises:
        InputError: no words of a problem come near.
    """
    candidates = list(_written(model))
    for mapping, described in candidates:
        if _same(described, model):
            return mapping, ""
    for mapping, described in candidates:
        if _same(_plain(described), _plain(model)):
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
    """Yield possible descriptions with the architectures they are read as."""
    writers: tuple[Callable[[Architecture], dict[str, Any]], ...] = (_widths, _gpt2, _llama, _qwen, _deepseek, _glm)
    for writer in writers:
        try:
            mapping = writer(model)
            architecture = architecture_of(mapping)
        except (InputError, InputErrors, ValueError):
            continue
        if architecture is not None:
            yield mapping, architecture


def _widths(model: Architecture) -> dict[str, Any]:
    """`transformer`: a causal decoder with rotary positions and without biases."""
    attention, dense, mixture = _parts(model)
    written: dict[str, Any] = {
        "layers": len(model.blocks) - model.predicting,
        "hidden": model.hidden,
        "ffn": dense.width if dense is not None else _required(mixture).width,
        "heads": attention.heads,
        "vocab": model.vocab,
        "gated_mlp": (dense if dense is not None else _required(mixture)).gated,
        "tied_embeddings": model.tied,
    }
    if model.predicting:
        written["mtp_layers"] = model.predicting
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
    """Qwen 2 has biases at queries, keys and values, and shared experts, Qwen 3 norms; some layers may have windows."""
    attention, _dense, mixture = _parts(model)
    if not isinstance(attention, GroupedQueryAttention):
        raise ValueError(attention)
    generation = "qwen3" if attention.normalised or (mixture and not mixture.shared_width) else "qwen2"
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
    attention = model.blocks[0].attention
    if not isinstance(attention, LatentAttention):
        raise ValueError(attention)
    return {
        **_behind_dense(model, "deepseek_v3"),
        "q_lora_rank": attention.query_rank,
        "kv_lora_rank": attention.key_value_rank,
        "qk_nope_head_dim": attention.plain,
        "qk_rope_head_dim": attention.rotary,
        "v_head_dim": attention.value,
        "attention_bias": attention.bias,
    }


def _glm(model: Architecture) -> dict[str, Any]:
    return _behind_dense(model, "glm4_moe") | {"use_qk_norm": getattr(model.blocks[0].attention, "normalised", False)}


def _behind_dense(model: Architecture, family: str) -> dict[str, Any]:
    mixture = _required(limits.mixture(model))
    return {
        **_decoder(model, family),
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
    networks = (block.feed_forward for block in model.blocks)
    dense = next((network for network in networks if isinstance(network, FeedForward)), None)
    return model.blocks[0].attention, dense, limits.mixture(model)


def _leading_dense(model: Architecture) -> int:
    sparse = [isinstance(block.feed_forward, MixtureOfExperts) for block in model.blocks]
    return sparse.index(True) if True in sparse else len(sparse)


def _required(part: Any) -> Any:
    """`part`, without which a family does not have the model."""
    if part is None:
        raise ValueError(part)
    return part


WIDTHS = ("--num-layers", "--hidden-size", "--num-attention-heads")
"""Flags that every model needs; without any of them the problem gives the model."""

TOKENIZERS = {"GPT2BPETokenizer": 50257}
"""Tokens of tokenizers that are always the same (GPT-2's: vocab.json of openai-community/gpt2)."""

UNSAID_VOCABULARY = 1
"""Stands for a vocabulary that flags leave to the tokenizer's files."""

GATED, MOST_LAYERS = ("--swiglu", "--quick-geglu"), 10_000
WIDTH_STEP = 64
"""`validate_args` makes the width of networks with --swiglu, where it is not said, a multiple of this."""


def read_architecture(flags: FlagReader) -> Architecture | None:
    """The transformer; None: no flag speaks of one. Mistakes are left with `flags`."""
    layers = flags.integer("--num-layers") or flags.integer("--encoder-num-layers")
    further = flags.integer("--mtp-num-layers", minimum=0) or 0
    said = [flag for flag in WIDTHS if flags.has(flag)]
    if not said and layers is None:
        return None
    for flag in WIDTHS[layers is not None :]:
        if flag not in said:
            flags.problem(f"{flag} is missing, while others of {', '.join(WIDTHS)} are given; give all or none.")
    hidden, blocks = flags.integer("--hidden-size") or 1, min(layers or 1, MOST_LAYERS)
    if (layers or 1) > MOST_LAYERS:
        flags.problem(f"--num-layers {layers} is more than the {MOST_LAYERS} layers nest reads.")
    attention = _attention(flags, hidden)
    dense, mixture = _dense(flags, hidden), _mixture(flags, hidden)
    sparse = _sparse(flags, blocks) if mixture is not None else (0,) * blocks
    positions = flags.choice("--position-embedding-type", _POSITIONS, "learned_absolute")
    learned = flags.integer("--max-position-embeddings") or 1
    if further > blocks:
        flags.problem(f"--mtp-num-layers {further} is more than the {blocks} layers there are.")
        further = 0
    rotates = flags.has("--use-rotary-position-embeddings") or positions == "rope"
    every = tuple(
        TransformerBlock(
            _with_positions(attention, window, rotates), mixture if mixture is not None and each else dense
        )
        for window, each in zip(_windows(flags, blocks), sparse, strict=True)
    )
    return Architecture(
        family="megatron",
        hidden=hidden,
        vocab=_vocabulary(flags),
        blocks=every + every[-1:] * further,
        predicting=further,
        tied=not flags.has("--untie-embeddings-and-output-weights"),
        norm_bias=flags.choice("--normalization", {"LayerNorm": True, "RMSNorm": False}, True),
        positions=learned if positions == "learned_absolute" and not rotates else 0,
    )


_POSITIONS = {"learned_absolute": "learned_absolute", "rope": "rope", "yarn": "rope", "mrope": "rope", "none": "none"}


def _attention(flags: FlagReader, hidden: int) -> GroupedQueryAttention | LatentAttention:
    heads = flags.integer("--num-attention-heads") or 1
    biased = not flags.has("--disable-bias-linear")
    normalised, query_biased = flags.has("--qk-layernorm"), flags.has("--add-qkv-bias")
    channels = flags.integer("--kv-channels")
    if channels is None and hidden % heads and flags.has("--num-attention-heads"):
        flags.problem(f"--num-attention-heads {heads} does not divide --hidden-size {hidden}; give --kv-channels.")
    if flags.has("--multi-latent-attention"):
        return LatentAttention(
            heads=heads,
            query_rank=flags.integer("--q-lora-rank"),
            key_value_rank=flags.integer("--kv-lora-rank") or 32,
            plain=flags.integer("--qk-head-dim") or 128,
            rotary=flags.integer("--qk-pos-emb-head-dim") or 64,
            value=flags.integer("--v-head-dim") or 128,
            bias=biased,
        )
    groups = flags.integer("--num-query-groups")
    grouped = (groups or heads) if flags.has("--group-query-attention") else heads
    if heads % grouped:
        flags.problem(f"--num-query-groups {grouped} does not divide --num-attention-heads {heads}.")
    return GroupedQueryAttention(
        heads=heads,
        kv_heads=grouped,
        head=channels or max(hidden // heads, 1),
        bias=biased or query_biased,
        output_bias=biased,
        normalised=normalised,
    )


def _with_positions(
    attention: GroupedQueryAttention | LatentAttention, window: int | None, rotates: bool
) -> GroupedQueryAttention | LatentAttention:
    if isinstance(attention, LatentAttention):
        return attention
    return evolve(attention, window=window, rotary=rotates)


def _gated(flags: FlagReader) -> bool:
    return any(flags.has(flag) for flag in GATED)


def _ffn(flags: FlagReader, hidden: int) -> int:
    said = flags.integer("--ffn-hidden-size")
    if said is not None:
        return said
    return int((4 * hidden * 2 / 3) / WIDTH_STEP) * WIDTH_STEP or 1 if flags.has("--swiglu") else 4 * hidden


def _dense(flags: FlagReader, hidden: int) -> FeedForward:
    return FeedForward(_ffn(flags, hidden), gated=_gated(flags), bias=not flags.has("--disable-bias-linear"))


def _mixture(flags: FlagReader, hidden: int) -> MixtureOfExperts | None:
    experts = flags.integer("--num-experts", minimum=0)
    top_k = flags.integer("--moe-router-topk") or 2
    width = flags.integer("--moe-ffn-hidden-size") or _ffn(flags, hidden)
    shared = flags.integer("--moe-shared-expert-intermediate-size", minimum=0) or 0
    gate = flags.has("--moe-shared-expert-gate")
    if not experts:
        return None
    if top_k > experts:
        flags.problem(f"--moe-router-topk {top_k} is more than the {experts} experts there are.")
    return MixtureOfExperts(experts, top_k, width, gated=_gated(flags), shared_width=shared, shared_gate=gate)


def _sparse(flags: FlagReader, layers: int) -> tuple[int, ...]:
    """Blocks with experts: every n-th from the first on, or as a list says."""
    frequency = flags.word("--moe-layer-freq", "1") or "1"
    if "[" in frequency:
        return _pattern(flags, "--moe-layer-freq", frequency, layers)
    every = flags.integer("--moe-layer-freq") or 1
    return tuple(int(number % every == 0) for number in range(layers))


def _windows(flags: FlagReader, layers: int) -> tuple[int | None, ...]:
    """Keys a query of each block attends to, after `is_layer_window_attention` of Megatron Core."""
    text, frequency = flags.word("--window-size"), flags.word("--window-attn-skip-freq")
    if text is None:
        return (None,) * layers
    left = text.strip().strip("()").split(",")[0].strip()
    if not left.removeprefix("-").isdecimal() or len(left) > 9:
        flags.problem(f"--window-size {text!r:.60} is no pair of numbers such as 4095,0.")
        return (None,) * layers
    width = int(left) + 1 if int(left) >= 0 else None
    if frequency is None:
        return (width,) * layers
    if "[" in frequency:
        pattern = _pattern(flags, "--window-attn-skip-freq", frequency, layers)
    else:
        every = flags.integer("--window-attn-skip-freq") or 1
        pattern = tuple(int(number % every != 0) for number in range(1, layers + 1))
    return tuple(width if slides else None for slides in pattern)


def _pattern(flags: FlagReader, flag: str, text: str, layers: int) -> tuple[int, ...]:
    try:
        pattern = read_pattern(flag, text)
    except InputError as error:
        flags.problem(str(error))
        return (1,) * layers
    if len(pattern) != layers or not {*pattern} <= {0, 1}:
        flags.problem(f"{flag} {text!r:.60} must have a 0 or a 1 for each of the {layers} layers.")
        return (1,) * layers
    return pattern


def _vocabulary(flags: FlagReader) -> int:
    sizes = [flags.integer(f"--{name}") for name in ("vocab-size", "padded-vocab-size", "pad-vocab-size-to")]
    # Of Megatron-LM's tokenizers, GPT-2's has a file of merges. One that only a run would tell says as little as none.
    unknown = UNKNOWN in "".join(flags.words.get("--tokenizer-type", ()))
    usual = "GPT2BPETokenizer" if flags.has("--merge-file") else ""
    tokenizer = usual if unknown else flags.word("--tokenizer-type") or usual
    if (said := sizes[0] or sizes[1] or sizes[2]) is None and tokenizer in TOKENIZERS:
        flags.note(f"--vocab-size is not given: nest assumes {tokenizer} to have {TOKENIZERS[tokenizer]} tokens.")
    return said or TOKENIZERS.get(tokenizer, UNSAID_VOCABULARY)
