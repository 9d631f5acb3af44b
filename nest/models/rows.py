"""Decoders in Llama's shape: a row says what sets a family apart, with the defaults of its configuration class.

Classes of Hugging Face transformers 5.23.0: `LlamaConfig` and its like, modeling_llama.py and its like. Factors of
embeddings, scores, residual sums and logits (Gemma, Command R, Granite) are passes over them, left out. The router's
correction bias of DeepSeek-V3's kind is no parameter.
"""

from collections.abc import Mapping
from typing import Any, Literal

from attrs import evolve

from nest.models.building.config import (
    ConfigImporter,
    ConfigReader,
    Network,
    decoder,
    decoder_widths,
    experts_behind_dense_layers,
    grouped_query_attention,
    layer_windows,
    mixture_of_experts,
    rotated_layers,
)
from nest.spec.architecture import Architecture, FeedForward, GroupedQueryAttention

NO_BIASES = ("", "", "")
ATTENTION = ("attention_bias", "attention_bias", "")
QUERIES = ("attention_bias", "", "")
EVERYWHERE = ("attention_bias", "attention_bias", "mlp_bias")


def row(
    name: str,
    head: str,
    *,
    missing: Mapping[str, Any] | None = None,
    biases: tuple[str, str, str] = NO_BIASES,
    norms: bool | str = False,
    norm: Literal["shared", "own"] = "shared",
    every: int | None = None,
    pattern: bool = False,
    typed: bool = True,
    turns: Literal["all", "windowed", "hybrid", "listed"] = "all",
    experts: Mapping[str, Any] | None = None,
    behind: Mapping[str, str] | None = None,
    network: Mapping[str, Any] | None = None,
    sinks: bool = False,
    capped: bool | None = None,
    built: Mapping[str, Any] | None = None,
    examples: tuple[Mapping[str, Any], ...] = (),
    **build: Any,
) -> ConfigImporter:
    """Return the importer of a family.

    Args:
        name: `model_type`.
        head: the model class.
        missing: values of missing keys.
        biases: keys of the biases of queries, keys and values, of attention's output, of the network; "": none.
        norms: whether queries and keys are normalised, or the key that says so.
        norm: kind of that norm.
        every: which layers have no window, if `layer_types` is missing: each of this number; 0: none; None: all.
        pattern: whether `sliding_window_pattern` replaces `every`.
        typed: whether the class reads `layer_types`.
        turns: which layers rotate queries and keys: all, those with a window, the same unless the model has none, or
            those that `no_rope_layers` lists.
        experts: further details of experts on every layer; None: a dense network.
        behind: keys of experts behind dense layers, as `experts_behind_dense_layers` takes them; None: `experts`.
        network: further details of the dense network.
        sinks: whether attention has learned sinks.
        capped: whether scores and logits are capped if the configuration has no key for it; None: never.
        built: values of keys that the class does not read.
        examples: configurations to try it on, for families missing in the model library.
        build: further fields of `Architecture`.
    """

    def read(config: ConfigReader) -> Architecture:
        config.fill(**(missing or {}))
        config.builds(**(built or {}))
        widths = decoder_widths(config)
        query, output, inner = (bool(key) and config.boolean(key, False) for key in biases)
        attention = evolve(
            grouped_query_attention(config, widths, bias=query, output_bias=output),
            normalised=config.boolean(norms, False) if isinstance(norms, str) else norms,
            norm=norm,
            sinks=sinks,
            capped=capped is not None and config.has("attn_logit_softcapping", capped),
        )
        step = every
        if every and pattern and not config.has("layer_types"):
            step = config.integer("sliding_window_pattern", every)
        attentions = _layers(config, attention, widths.layers, step, typed, turns)
        feed_forward: Network | tuple[Network, ...]
        if behind is not None:
            feed_forward = experts_behind_dense_layers(config, widths, **behind)
        elif experts is None:
            feed_forward = FeedForward(config.integer("intermediate_size"), bias=inner, **(network or {}))
        else:
            feed_forward = mixture_of_experts(config, experts="num_local_experts", width="intermediate_size", **experts)
        caps = capped is not None and config.has("final_logit_softcapping", capped)
        return decoder(config, widths, attentions, feed_forward, capped=caps, **build)

    return ConfigImporter(name, head, read, examples=examples)


def _layers(
    config: ConfigReader, attention: GroupedQueryAttention, layers: int, every: int | None, typed: bool, turns: str
) -> tuple[GroupedQueryAttention, ...]:
    """Return the attention of each layer, which differ in window and rotation."""
    windows: tuple[int | None, ...] = (None,) * layers
    if every is not None and (turns != "listed" or config.boolean("use_sliding_window", False)):
        window = config.optional_integer("sliding_window")
        if not typed or window is None:
            windows = (window,) * layers
        else:
            windows = layer_windows(config, layers, window, lambda index: not every or (index + 1) % every != 0)
    rotates: tuple[bool, ...] = (True,) * layers
    if turns == "listed":
        rotates = rotated_layers(config, layers)
    elif turns == "windowed" or (turns == "hybrid" and config.has("sliding_window")):
        rotates = tuple(window is not None for window in windows)
    return tuple(
        evolve(attention, window=window, rotary=turned) for window, turned in zip(windows, rotates, strict=False)
    )


def example(name: str, **more: Any) -> tuple[Mapping[str, Any], ...]:
    """Return a configuration of a family that the model library lacks."""
    widths = {"vocab_size": 49152, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 8}
    return ({"model_type": name, **widths, "num_attention_heads": 16, "num_key_value_heads": 4, **more},)


TIED = {"tie_word_embeddings": True}
GROUPS_OF_8 = {"num_key_value_heads": 8}
HEADS_OF_128 = {**GROUPS_OF_8, "head_dim": 128}
GEMMA = {**TIED, "head_dim": 256, "num_key_value_heads": 4, "sliding_window": 4096}
EXAONE = {"num_key_value_heads": 32, "sliding_window": 4096}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 1024}
GLM_9_BILLION = {
    "model_type": "glm4",
    "vocab_size": 151552,
    "hidden_size": 4096,
    "intermediate_size": 13696,
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
}
"""The default widths of `Glm4Config`, of 9 billion parameters."""

llama = row("llama", "LlamaForCausalLM", biases=EVERYWHERE)
granite = row("granite", "GraniteForCausalLM", biases=EVERYWHERE, scaled=True, examples=example("granite"))
phi3 = row("phi3", "Phi3ForCausalLM", every=0, typed=False)
seed_oss = row(
    "seed_oss",
    "SeedOssForCausalLM",
    missing={**HEADS_OF_128, "attention_bias": True},
    biases=("attention_bias", "attention_out_bias", "mlp_bias"),
    examples=example("seed_oss"),
)
smollm3 = row(
    "smollm3",
    "SmolLM3ForCausalLM",
    missing={**TIED, "num_key_value_heads": 4},
    biases=EVERYWHERE,
    every=4,
    turns="listed",
    examples=example("smollm3"),
)
# Squared ReLU needs its input for the backward pass, like any activation.
arcee = row("arcee", "ArceeForCausalLM", biases=EVERYWHERE, network={"gated": False}, examples=example("arcee"))
# xIELU (arXiv 2411.13010) learns a number for either sign of its input, on each layer.
apertus = row(
    "apertus",
    "ApertusForCausalLM",
    biases=ATTENTION,
    norms=True,
    network={"gated": False, "learned": 2},
    built={"hidden_act": "xielu"},
    examples=example("apertus"),
)

mistral = row("mistral", "MistralForCausalLM", missing={**GROUPS_OF_8, "sliding_window": 4096}, every=0, typed=False)
ministral3 = row(
    "ministral3", "Ministral3ForCausalLM", missing=HEADS_OF_128, every=0, typed=False, examples=example("ministral3")
)
mixtral = row("mixtral", "MixtralForCausalLM", missing=GROUPS_OF_8, every=0, typed=False, experts={})
granitemoe = row(
    "granitemoe",
    "GraniteMoeForCausalLM",
    biases=ATTENTION,
    experts={},
    scaled=True,
    examples=example("granitemoe", num_local_experts=8, num_experts_per_tok=2),
)
minimax_m2 = row(
    "minimax_m2",
    "MiniMaxM2ForCausalLM",
    missing=HEADS_OF_128,
    norms=True,
    norm="own",
    experts={},
    built={"use_qk_norm": True, "qk_norm_type": "per_layer", "shared_intermediate_size": 0, "attn_type_list": 1},
)
gpt_oss = row(
    "gpt_oss",
    "GptOssForCausalLM",
    missing={**GROUPS_OF_8, "head_dim": 64, "attention_bias": True, "sliding_window": 128},
    biases=ATTENTION,
    every=2,
    experts={"bias": True},
    sinks=True,
)

gemma = row(
    "gemma",
    "GemmaForCausalLM",
    missing={**TIED, "head_dim": 256, "num_key_value_heads": 16},
    biases=ATTENTION,
    scaled=True,
    examples=example("gemma"),
)
gemma2 = row("gemma2", "Gemma2ForCausalLM", missing=GEMMA, biases=ATTENTION, every=2, capped=True, result_norms=True)
gemma3 = row(
    "gemma3_text",
    "Gemma3ForCausalLM",
    missing={**GEMMA, "vocab_size": 262208, "num_attention_heads": 8},
    biases=ATTENTION,
    norms=True,
    every=6,
    pattern=True,
    capped=False,
    built={"use_bidirectional_attention": False},
    result_norms=True,
)
glm4 = row(
    "glm4",
    "Glm4ForCausalLM",
    missing={"head_dim": 128, "num_key_value_heads": 2, "attention_bias": True},
    biases=QUERIES,
    result_norms=True,
    examples=(GLM_9_BILLION,),
)
glm4_moe = row("glm4_moe", "Glm4MoeForCausalLM", missing=GROUPS_OF_8, biases=QUERIES, norms="use_qk_norm", behind={})
solar_open = row(
    "solar_open",
    "SolarOpenForCausalLM",
    missing={**HEADS_OF_128, "n_shared_experts": 1},
    biases=QUERIES,
    behind={},
    examples=example("solar_open", n_routed_experts=8, **EXPERTS),
)
ernie = row(
    "ernie4_5",
    "Ernie4_5ForCausalLM",
    missing={**TIED, "head_dim": 128, "num_key_value_heads": 2},
    biases=("use_bias", "use_bias", "use_bias"),
)

cohere = row("cohere", "CohereForCausalLM", missing=TIED, biases=ATTENTION, norms="use_qk_norm", norm="own", parallel=1)
cohere2 = row(
    "cohere2",
    "Cohere2ForCausalLM",
    missing={**TIED, "sliding_window": 4096},
    biases=ATTENTION,
    every=4,
    pattern=True,
    turns="windowed",
    parallel=1,
)
olmo2 = row("olmo2", "Olmo2ForCausalLM", biases=ATTENTION, norms=True, norm="own", input_norms=False, result_norms=True)
olmo3 = row(
    "olmo3",
    "Olmo3ForCausalLM",
    missing={"sliding_window": 4096},
    biases=ATTENTION,
    norms=True,
    norm="own",
    every=4,
    input_norms=False,
    result_norms=True,
)
exaone4 = row(
    "exaone4",
    "Exaone4ForCausalLM",
    missing=EXAONE,
    norms=True,
    every=4,
    pattern=True,
    turns="hybrid",
    input_norms=False,
    result_norms=True,
    examples=example("exaone4"),
)
exaone_moe = row(
    "exaone_moe",
    "ExaoneMoeForCausalLM",
    missing={**EXAONE, "first_k_dense_replace": 1, "num_shared_experts": 1},
    norms=True,
    every=4,
    pattern=True,
    turns="hybrid",
    behind={"experts": "num_experts", "shared": "num_shared_experts"},
    examples=example("exaone_moe", num_experts=8, **EXPERTS),
)
