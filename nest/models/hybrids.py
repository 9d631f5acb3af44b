"""Models whose layers differ in what mixes tokens: attention on some, a state on others.

Qwen3-Next and Qwen3.5 (gated delta nets); Nemotron-H (arXiv 2504.03624) and Nemotron 3, Bamba, Granite 4, Falcon-H1
(arXiv 2507.22448) and Mamba-2. Classes of Hugging Face transformers 5.24.0, whose defaults stand for missing keys.
"""

from collections.abc import Mapping

from attrs import evolve

from nest.models.building.config import (
    FULL,
    LINEAR,
    ConfigImporter,
    ConfigReader,
    Network,
    decoder,
    decoder_widths,
    grouped_query_attention,
    layer_words,
    mixture_of_experts,
    routed_experts,
)
from nest.models.qwen import feed_forwards
from nest.models.rows import example
from nest.spec.architecture import Architecture, DeltaNet, FeedForward, Mixer, Parallel, StateSpace


def delta_net(config: ConfigReader) -> DeltaNet:
    """Read a gated delta net."""
    heads, keys = config.integer("linear_num_value_heads", 32), config.integer("linear_num_key_heads", 16)
    config.divides("linear_num_key_heads", keys, "linear_num_value_heads", heads)
    key, value = config.integer("linear_key_head_dim", 128), config.integer("linear_value_head_dim", 128)
    return DeltaNet(heads, keys, key, value, config.integer("linear_conv_kernel_dim", 4))


def _read_qwen(config: ConfigReader) -> Architecture:
    """Read Qwen3-Next or Qwen3.5: gated delta nets, and gated attention on each fourth layer."""
    dense, older = config.family == "qwen3_5", config.family == "qwen3_next"
    config.fill(head_dim=256, num_key_value_heads=4 if dense else 2, mlp_only_layers=[])
    config.builds(attn_output_gate=True, **({} if older else {"mlp_only_layers": []}))
    widths, bias = decoder_widths(config), config.boolean("attention_bias", False)
    full = grouped_query_attention(config, widths, bias=bias, output_bias=bias, normalised=True)
    every = config.integer("full_attention_interval", 4)
    words = layer_words(config, widths.layers, (LINEAR, FULL), lambda index: LINEAR if (index + 1) % every else FULL)
    mixers: dict[str, Mixer] = {LINEAR: delta_net(config), FULL: evolve(full, gate=full.head)}
    networks: Network | tuple[Network, ...]
    if dense:
        networks = FeedForward(config.integer("intermediate_size"))
    else:
        experts, top_k = (512, 10) if older else (256, 8)
        config.fill(moe_intermediate_size=512, num_experts=experts, num_experts_per_tok=top_k)
        shared = config.integer("shared_expert_intermediate_size", 512)
        mixture = mixture_of_experts(config, shared_width=shared, shared_gate=True)
        networks = (mixture,) * widths.layers if not older else feed_forwards(config, widths.layers, mixture)
    return decoder(config, widths, [mixers[word] for word in words], networks)


def state_space(config: ConfigReader, keys: Mapping[str, str], inner: int | None = None) -> StateSpace:
    """Read a Mamba-2 layer by the keys of Bamba's configuration, or the `keys` in their place."""

    def number(key: str, default: int) -> int:
        return config.integer(keys.get(key, f"mamba_{key}"), default)

    heads, groups = number("n_heads", 128), number("n_groups", 1)
    config.divides(keys.get("n_groups", "mamba_n_groups"), groups, keys.get("n_heads", "mamba_n_heads"), heads)
    head, name = 0, keys.get("d_head", "mamba_d_head")
    if inner is not None and config.config.get(name, "auto") in ("auto", None):
        config.divides(keys.get("n_heads", "mamba_n_heads"), heads, "the inner width", inner)
        head = inner // heads
    bias = config.boolean(keys.get("proj_bias", "mamba_proj_bias"), False)
    return StateSpace(
        heads,
        head or config.integer(name, 64),
        groups,
        number("d_state", 256),
        number("d_conv", 4),
        number("chunk_size", 256),
        bias,
        bias,
        config.boolean(keys.get("conv_bias", "mamba_conv_bias"), True),
    )


NEMOTRON = {"d_head": "mamba_head_dim", "n_heads": "mamba_num_heads", "n_groups": "n_groups", "proj_bias": "use_bias"}
NEMOTRON |= {"d_state": "ssm_state_size", "d_conv": "conv_kernel", "chunk_size": "chunk_size"}
NEMOTRON |= {"conv_bias": "use_conv_bias"}


def _read_nemotron(config: ConfigReader) -> Architecture:
    """Read Nemotron-H, each of whose layers has either a mixer or a network; attention does not rotate."""
    config.fill(head_dim=128, num_key_value_heads=8, n_groups=8, ssm_state_size=128, chunk_size=128)
    pattern = config.word("hybrid_override_pattern", "")
    if not (config.has("layers_block_type") or config.has("layer_types")):
        config.config = {**config.config, "layer_types": list(pattern)}
    words = config.words("layer_types") or config.words("layers_block_type") or ()
    config.config = {**config.config, "num_hidden_layers": len(words)}
    widths, bias = decoder_widths(config), config.boolean("attention_bias", False)
    full = evolve(grouped_query_attention(config, widths, bias=bias, output_bias=bias), rotary=False)
    kinds = layer_words(config, widths.layers, (LINEAR, FULL, "moe", "mlp"), lambda index: "mlp")
    inner = config.boolean("mlp_bias", False)
    networks: dict[str, Network] = {}
    if "mlp" in kinds:
        networks["mlp"] = FeedForward(config.integer("intermediate_size"), gated=False, bias=inner)
    if "moe" in kinds:
        config.builds(mlp_bias=False, n_shared_experts=1)
        shared = config.integer("moe_shared_expert_intermediate_size", 7688)
        mixture = routed_experts(config, "n_routed_experts", shared)
        networks["moe"] = evolve(mixture, gated=False, latent=config.optional_integer("moe_latent_size"))
    mixers: dict[str, Mixer] = {FULL: full, LINEAR: state_space(config, NEMOTRON)}
    return decoder(config, widths, [mixers.get(kind) for kind in kinds], [networks.get(kind) for kind in kinds])


def _read_bamba(config: ConfigReader) -> Architecture:
    """Read Bamba, Granite 4 or Falcon-H1: Mamba-2 before, or beside, attention, and a network on every layer."""
    family = config.family
    config.fill(num_key_value_heads=None if family == "granitemoehybrid" else 8)
    widths, bias = decoder_widths(config), config.boolean("attention_bias", False)
    rotary = family != "granitemoehybrid" or config.config.get("position_embedding_type") == "rope"
    full = evolve(grouped_query_attention(config, widths, bias=bias, output_bias=bias), rotary=rotary)
    inner = config.integer("mamba_expand", 2) * widths.hidden
    inner = config.optional_integer("mamba_d_ssm", 1024) or inner if family == "falcon_h1" else inner
    space = state_space(config, {}, inner)
    network = FeedForward(config.integer("intermediate_size"), bias=config.boolean("mlp_bias", False))
    if family == "falcon_h1":
        output, normed = config.boolean("projectors_bias", False), config.boolean("mamba_rms_norm", False)
        beside = Parallel((evolve(space, output_bias=output, normalised=normed), full))
        return decoder(config, widths, beside, network, scaled=True)
    mixers: dict[str, Mixer] = {FULL: full, LINEAR: space}
    if family == "bamba":
        listed = {*config.integers("attn_layer_indices")}
        return decoder(config, widths, [mixers[FULL if i in listed else LINEAR] for i in range(widths.layers)], network)
    words = layer_words(config, widths.layers, (LINEAR, FULL), lambda index: LINEAR)
    shared = config.integer("shared_intermediate_size", 1024)
    experts = config.integer("num_local_experts", 8, minimum=0)
    config.fill(num_experts_per_tok=2)
    networks: Network = FeedForward(shared)
    if experts:
        networks = mixture_of_experts(
            config, experts="num_local_experts", width="intermediate_size", shared_width=shared
        )
    return decoder(config, widths, [mixers[word] for word in words], networks, scaled=True)


qwen3_next = ConfigImporter("qwen3_next", "Qwen3NextForCausalLM", _read_qwen, examples=example("qwen3_next"))
qwen3_5 = ConfigImporter("qwen3_5", "Qwen3_5ForCausalLM", _read_qwen, examples=example("qwen3_5"))
qwen3_5_moe = ConfigImporter("qwen3_5_moe", "Qwen3_5MoeForCausalLM", _read_qwen, examples=example("qwen3_5_moe"))
nemotron_h = ConfigImporter(
    "nemotron_h",
    "NemotronHForCausalLM",
    _read_nemotron,
    examples=example(
        "nemotron_h",
        hybrid_override_pattern="M-ME*E",
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=1024,
    ),
)
bamba = ConfigImporter("bamba", "BambaForCausalLM", _read_bamba, examples=example("bamba", attn_layer_indices=[3]))
granitemoehybrid = ConfigImporter(
    "granitemoehybrid", "GraniteMoeHybridForCausalLM", _read_bamba, examples=example("granitemoehybrid")
)
falcon_h1 = ConfigImporter("falcon_h1", "FalconH1ForCausalLM", _read_bamba, examples=example("falcon_h1"))
