"""Decoders in Llama's shape: a row says what sets a family apart, with the defaults of its configuration class.

Classes of Hugging Face transformers 5.23.0: `LlamaConfig` and its like, modeling_llama.py and its like. Factors of
embeddings, scores, residual sums and logits (Gemma, Command R, Granite) are passes over them, left out. The router's
correction bias of DeepSeek-V3's kind is no parameter.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from attrs import evolve

from nest.models.building.config import ATTENTION, FULL, NO_BIASES, SLIDING, ConfigImporter, ConfigReader, Network
from nest.spec.architecture import Architecture, FeedForward

Windows = Callable[[ConfigReader], tuple[int | None, ...]]
Networks = Callable[[ConfigReader], Network | tuple[Network, ...]]


def dense(bias: str = "", **details: Any) -> Networks:
    """Return the reader of a dense network, whose `bias` is at that key."""

    def read(config: ConfigReader) -> FeedForward:
        return FeedForward(
            config.integer("intermediate_size"), bias=bool(bias) and config.boolean(bias, False), **details
        )

    return read


def experts(config: ConfigReader, **details: Any) -> Network:
    """Read experts on every layer."""
    return config.mixture(experts="num_local_experts", width="intermediate_size", **details)


def some(
    slides: Callable[[int, int], bool], number: int, key: str = "", *, least: int = 1, asked: bool = False
) -> Windows:
    """Return the reader of windows on the layers that `layer_types` names.

    Args:
        slides: whether a layer has a window, from its index and `number`, for configurations without `layer_types`.
        number: value of a missing `key`.
        least: the least value there.
        asked: there are windows only if `use_sliding_window` says so.
    """

    def read(config: ConfigReader) -> tuple[int | None, ...]:
        if asked and not config.boolean("use_sliding_window", False):
            return (None,) * config.layers
        said = config.integer(key, number, minimum=least) if key and not config.has("layer_types") else number
        window = config.optional_integer("sliding_window")
        kinds = {SLIDING: window, FULL: None}
        return tuple(config.by_layer(kinds, lambda index: SLIDING if slides(index, said) else FULL))

    return read


all_but = partial(some, lambda index, every: (index + 1) % every != 0)
"""Windows on all but each so many layers."""


def everywhere(config: ConfigReader, *, asked: bool = False) -> tuple[int | None, ...]:
    """Read the window of every layer, if `asked` as `some` does."""
    if asked and not config.boolean("use_sliding_window", False):
        return (None,) * config.layers
    return (config.optional_integer("sliding_window"),) * config.layers


def around(config: ConfigReader) -> tuple[int | None, ...]:
    """Read windows of `local_attention` tokens, half of them on either side, on all but each third layer."""
    config.fill(sliding_window=2 * (config.integer("local_attention", 128) // 2) + 1)
    return some(lambda index, every: index % every != 0, 3, "global_attn_every_n_layers")(config)


def row(
    head: str,
    network: Networks | None = None,
    *,
    missing: Mapping[str, Any] | None = None,
    biases: tuple[str | bool, str | bool] = ATTENTION,
    norms: bool | str = False,
    norm: Literal["shared", "own", "rotated"] = "shared",
    windows: Windows | None = None,
    turns: Literal["all", "windowed", "hybrid", "listed"] = "all",
    sinks: bool = False,
    capped: bool | None = None,
    causal: bool = True,
    built: Mapping[str, Any] | None = None,
    example: Mapping[str, Any] = MappingProxyType({}),
    **build: Any,
) -> ConfigImporter:
    """Return the importer of a family.

    Args:
        head: the model class.
        network: reader of the networks; None: dense ones without biases.
        missing: values of missing keys.
        biases: as `grouped_query_attention` takes them.
        norms: whether queries and keys are normalised, or the key that says so.
        norm: kind of that norm.
        windows: reader of the windows; None: there are none.
        turns: which layers rotate queries and keys: all, those with a window, the same unless the model has none, or
            those that `no_rope_layers` lists.
        sinks: whether attention has learned sinks.
        causal: whether later keys are masked.
        capped: whether scores and logits are capped if the configuration has no key for it; None: never.
        built: values of keys that the class does not read.
        example: as `ConfigImporter` takes it.
        build: further fields of `Architecture`.
    """

    def read(config: ConfigReader) -> Architecture:
        config.fill(**(missing or {}))
        config.builds(**(built or {}))
        normed = config.boolean(norms, False) if isinstance(norms, str) else norms
        caps = capped is not None and config.has("attn_logit_softcapping", capped)
        details = {"normalised": normed, "norm": norm, "sinks": sinks, "capped": caps, "causal": causal}
        attention = config.attention(biases, **details)
        reach = windows(config) if windows else (None,) * config.layers
        rotates = (True,) * config.layers
        if turns == "listed":
            rotates = config.rotated_layers()
        elif turns == "windowed" or (turns == "hybrid" and config.has("sliding_window")):
            rotates = tuple(window is not None for window in reach)
        pairs = zip(reach, rotates, strict=False)
        attentions = [evolve(attention, window=window, rotary=rotary) for window, rotary in pairs]
        networks = (network or dense())(config)
        caps = capped is not None and config.has("final_logit_softcapping", capped)
        return config.decoder(attentions, networks, capped=caps, **build)

    return ConfigImporter(head, read, example)


def qwen_experts(config: ConfigReader, *, shared: bool = False, usual: int | None = None) -> tuple[Network, ...]:
    """Read the networks of a Qwen mixture, perhaps with a `shared` expert, whose width is `usual` if none is said."""
    config.rename(num_experts="num_local_experts")
    width = config.integer("shared_expert_intermediate_size", usual) if shared else 0
    mixture = config.mixture(shared_width=width, shared_gate=shared)
    step = config.integer("decoder_sparse_step", 1)
    dense_layers = frozenset(config.integers("mlp_only_layers"))
    sparse = [index not in dense_layers and (index + 1) % step == 0 for index in range(config.layers)]
    return config.dense_and_sparse(sparse, mixture)


def _ernie_experts(config: ConfigReader) -> tuple[Network, ...]:
    """Read experts between two layers; the router's correction bias and layers for further tokens are left out."""
    shared = config.integer("moe_num_shared_experts", 2, minimum=0) * config.integer("moe_intermediate_size")
    mixture = config.mixture(experts="moe_num_experts", top_k="moe_k", shared_width=shared)
    first, every = config.integer("moe_layer_start_index", 1, minimum=0), config.integer("moe_layer_interval", 1)
    last = config.integer("moe_layer_end_index", -1, minimum=-1)
    last = config.layers if last == -1 else last
    sparse = [first <= index <= last and (index + 1) % every == 0 for index in range(config.layers)]
    return config.dense_and_sparse(sparse, mixture)


def _hunyuan_experts(config: ConfigReader) -> Network:
    """Read the experts of every layer and the one all tokens visit, each as wide as `intermediate_size`."""
    width = config.integer("intermediate_size")
    config.builds(moe_intermediate_size=width, num_shared_expert=1)
    alike = ConfigReader({**config.config, "moe_topk": config.uniform("moe_topk")}, config.family, config.problems)
    return alike.mixture(top_k="moe_topk", width="intermediate_size", shared_width=width)


Keys = dict[str, Any]
BEHIND_DENSE_LAYERS = ConfigReader.experts_behind_dense_layers
TIED = {"tie_word_embeddings": True}
TIED_4 = {**TIED, "num_key_value_heads": 4}
GROUPS_OF_8 = {"num_key_value_heads": 8}
HEADS_OF_128 = {**GROUPS_OF_8, "head_dim": 128}
PAIR_OF_128 = {"num_key_value_heads": 2, "head_dim": 128}
WINDOW = {"sliding_window": 4096}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 1024}
MINIMAX = {"use_qk_norm": True, "qk_norm_type": "per_layer", "shared_intermediate_size": 0, "attn_type_list": 1}
OSS_KEYS = {**GROUPS_OF_8, "head_dim": 64, "attention_bias": True, "sliding_window": 128}
GEMMA_KEYS = {**TIED, "head_dim": 256, "num_key_value_heads": 4, **WINDOW}
GEMMA_3_KEYS = {**GEMMA_KEYS, "vocab_size": 262208, "num_attention_heads": 8}
EXAONE_KEYS = {"num_key_value_heads": 32, **WINDOW, "first_k_dense_replace": 1, "num_shared_experts": 1}
ROUTED = {"n_routed_experts": 8, **EXPERTS}
SOLAR_KEYS = {**HEADS_OF_128, "n_shared_experts": 1}
CWM_KEYS = {**HEADS_OF_128, "sliding_window": 8192}
HY_KEYS = {**HEADS_OF_128, "first_k_dense_replace": 1, "num_experts": 192, "num_shared_experts": 1}
HY_KEYS |= {"num_experts_per_tok": 8, "moe_intermediate_size": 1536}
OLMO_KEYS = {"num_experts": 64, "num_experts_per_tok": 8}
FLEX_KEYS = {"num_experts": 7, "num_experts_per_tok": 5}
NUMBERED_EXPERTS = partial(BEHIND_DENSE_LAYERS, experts="num_experts", shared="num_shared_experts")
OLMO_EXPERTS = partial(ConfigReader.mixture, width="intermediate_size")
USED = ("use_bias", "use_bias")
PLAIN: Keys = {"biases": NO_BIASES}
GLM: Keys = {"biases": ("attention_bias", False)}
OWN_NORMS: Keys = {"norms": True, "norm": "own"}
AFTERWARDS: Keys = {"input_norms": False, "result_norms": True}
STAR_KEYS = {**TIED, "num_key_value_heads": 2, "use_bias": True}
STARCODER: Keys = {"missing": STAR_KEYS, "biases": USED, "windows": everywhere, "norm_bias": True}
FIRST_FULL = some(lambda index, every: index % every != 0, 4)
LAST = some(lambda index, first: index >= first, 62, "max_window_layers", least=0)
FOURTH_FULL = all_but(4, "sliding_window_pattern")
EXAONE: Keys = {**PLAIN, "missing": EXAONE_KEYS, "norms": True, "windows": FOURTH_FULL, "turns": "hybrid"}
# 4096 and 28: defaults of Qwen2Config and Qwen3Config; those of Qwen2MoeConfig are below `max_window_layers`.
BEHIND = some(lambda index, first: index >= first, 28, "max_window_layers", least=0, asked=True)
BELOW = some(lambda index, first: index % 2 == 0 and index < first, 28, "max_window_layers", least=0, asked=True)
SEED_KEYS = {**HEADS_OF_128, "attention_bias": True}
SEED: Keys = {"missing": SEED_KEYS, "biases": ("attention_bias", "attention_out_bias")}
QWEN2_MOE: Keys = {"missing": {**WINDOW, "qkv_bias": True}, "biases": ("qkv_bias", False), "windows": BELOW}
FOUR_HEADS = {**WINDOW, "num_key_value_heads": 4}
QWEN3_MOE: Keys = {"missing": FOUR_HEADS, "norms": True, "windows": partial(everywhere, asked=True)}
QWEN2: Keys = {"missing": WINDOW, "biases": (True, False), "windows": BEHIND}
HUNYUAN: Keys = {"norms": True, "norm": "rotated", "built": {"use_qk_norm": True, "use_cla": False}}

FAMILIES = {
    "llama": row("LlamaForCausalLM", dense("mlp_bias")),
    # Nemotron-4 (arXiv 2402.16819): LayerNorm and squared ReLU.
    "nemotron": row("NemotronForCausalLM", dense("mlp_bias", gated=False), norm_bias=True),
    "starcoder2": row("Starcoder2ForCausalLM", dense("use_bias", gated=False), **STARCODER),
    "granite": row("GraniteForCausalLM", dense("mlp_bias"), scaled=True),
    "phi3": row("Phi3ForCausalLM", **PLAIN, windows=everywhere),
    "seed_oss": row("SeedOssForCausalLM", dense("mlp_bias"), **SEED),
    "smollm3": row(
        "SmolLM3ForCausalLM", dense("mlp_bias"), missing=TIED_4, windows=all_but(4, asked=True), turns="listed"
    ),
    # Squared ReLU needs its input for the backward pass, like any activation.
    "arcee": row("ArceeForCausalLM", dense("mlp_bias", gated=False)),
    # xIELU (arXiv 2411.13010) learns a number for either sign of its input, on each layer.
    "apertus": row("ApertusForCausalLM", dense(gated=False, learned=2), norms=True, built={"hidden_act": "xielu"}),
    "mistral": row("MistralForCausalLM", **PLAIN, missing={**GROUPS_OF_8, **WINDOW}, windows=everywhere),
    # Code World Model (arXiv 2510.02387): the first layer of four has no window.
    "cwm": row("CwmForCausalLM", dense("mlp_bias"), **PLAIN, missing=CWM_KEYS, windows=FIRST_FULL),
    "ministral3": row("Ministral3ForCausalLM", **PLAIN, missing=HEADS_OF_128, windows=everywhere),
    "mixtral": row("MixtralForCausalLM", experts, **PLAIN, missing=GROUPS_OF_8, windows=everywhere),
    "granitemoe": row("GraniteMoeForCausalLM", experts, scaled=True, example={"num_local_experts": 8, **EXPERTS}),
    "minimax_m2": row("MiniMaxM2ForCausalLM", experts, **PLAIN, missing=HEADS_OF_128, **OWN_NORMS, built=MINIMAX),
    "gpt_oss": row("GptOssForCausalLM", partial(experts, bias=True), missing=OSS_KEYS, windows=all_but(2), sinks=True),
    "gemma": row("GemmaForCausalLM", missing={**GEMMA_KEYS, "num_key_value_heads": 16}, scaled=True),
    "gemma2": row("Gemma2ForCausalLM", result_norms=True, missing=GEMMA_KEYS, windows=all_but(2), capped=True),
    "gemma3_text": row(
        "Gemma3ForCausalLM",
        result_norms=True,
        missing=GEMMA_3_KEYS,
        norms=True,
        windows=all_but(6, "sliding_window_pattern"),
        capped=False,
        built={"use_bidirectional_attention": False},
    ),
    "glm": row("GlmForCausalLM", **GLM, missing={**PAIR_OF_128, "attention_bias": True}),
    "glm4": row("Glm4ForCausalLM", **GLM, missing={**PAIR_OF_128, "attention_bias": True}, result_norms=True),
    "glm4_moe": row("Glm4MoeForCausalLM", BEHIND_DENSE_LAYERS, **GLM, missing=GROUPS_OF_8, norms="use_qk_norm"),
    "dots1": row("Dots1ForCausalLM", BEHIND_DENSE_LAYERS, missing=WINDOW, norms=True, windows=LAST, example=ROUTED),
    "hy_v3": row("HYV3ForCausalLM", NUMBERED_EXPERTS, missing=HY_KEYS, norms=True, built={"mlp_bias": False}),
    "solar_open": row("SolarOpenForCausalLM", BEHIND_DENSE_LAYERS, **GLM, missing=SOLAR_KEYS, example=ROUTED),
    "ernie4_5": row("Ernie4_5ForCausalLM", dense("use_bias"), missing={**TIED, **PAIR_OF_128}, biases=USED),
    "ernie4_5_moe": row("Ernie4_5_MoeForCausalLM", _ernie_experts, **PLAIN, missing=TIED_4, built={"use_bias": False}),
    "cohere": row("CohereForCausalLM", missing=TIED, norms="use_qk_norm", norm="own", parallel=1),
    "cohere2": row("Cohere2ForCausalLM", missing={**TIED, **WINDOW}, windows=FOURTH_FULL, turns="windowed", parallel=1),
    "olmoe": row("OlmoeForCausalLM", OLMO_EXPERTS, missing=OLMO_KEYS, **OWN_NORMS),
    "flex_olmo": row("FlexOlmoForCausalLM", OLMO_EXPERTS, missing=FLEX_KEYS, **OWN_NORMS, **AFTERWARDS),
    "olmo2": row("Olmo2ForCausalLM", **OWN_NORMS, **AFTERWARDS),
    "olmo3": row("Olmo3ForCausalLM", missing=WINDOW, windows=all_but(4), **OWN_NORMS, **AFTERWARDS),
    "exaone4": row("Exaone4ForCausalLM", **EXAONE, **AFTERWARDS),
    "exaone_moe": row("ExaoneMoeForCausalLM", NUMBERED_EXPERTS, **EXAONE, example={"num_experts": 8, **EXPERTS}),
    "eurobert": row("EuroBertForMaskedLM", causal=False, built={"mlp_bias": False}),
    # ModernBERT (arXiv 2412.13663): BERT's head and norm of embeddings, and norms before sub-layers.
    "modernbert": row(
        "ModernBertForMaskedLM",
        dense("mlp_bias"),
        missing=TIED,
        windows=around,
        causal=False,
        masked_head=True,
        built={"norm_bias": False, "classifier_bias": False, "decoder_bias": True},
    ),
    # Qwen2 and Qwen2.5 (arXiv 2407.10671). MiMo-7B (arXiv 2505.07608) adds layers for multi-token prediction.
    "qwen2": row("Qwen2ForCausalLM", **QWEN2),
    "mimo": row("MiMoForCausalLM", **QWEN2),
    "qwen2_moe": row("Qwen2MoeForCausalLM", partial(qwen_experts, shared=True), **QWEN2_MOE),
    # Qwen3 (arXiv 2505.09388) normalises queries and keys per head.
    "qwen3": row("Qwen3ForCausalLM", norms=True, missing={**WINDOW, "head_dim": 128}, windows=BEHIND),
    "qwen3_moe": row("Qwen3MoeForCausalLM", qwen_experts, **QWEN3_MOE),
    "hunyuan_v1_dense": row("HunYuanDenseV1ForCausalLM", **HUNYUAN),
    "hunyuan_v1_moe": row("HunYuanMoEV1ForCausalLM", _hunyuan_experts, **HUNYUAN),
}
