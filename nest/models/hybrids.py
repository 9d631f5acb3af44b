"""Models whose layers differ in what mixes tokens: attention on some, a state on others.

Qwen3-Next and Qwen3.5 (gated delta nets); Nemotron-H (arXiv 2504.03624) and Nemotron 3, Bamba, Granite 4, Falcon-H1
(arXiv 2507.22448) and Mamba-2. Classes of Hugging Face transformers 5.24.0, whose defaults stand for missing keys.
"""

from collections.abc import Mapping

from attrs import evolve

from nest.models.building.config import ATTENTION, FULL, LINEAR, ConfigImporter, ConfigReader, Network
from nest.models.deepseek import latent_attention
from nest.models.rows import EXPERTS, experts, qwen_experts
from nest.spec.architecture import Architecture, FeedForward, HybridBlock, Mixer, Parallel
from nest.spec.mixers import DeltaNet, LinearAttention, SelectiveScan, ShortConvolution, StateSpace


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
    full = config.attention(ATTENTION, normalised=True)
    every = config.integer("full_attention_interval", 4)
    mixers = {LINEAR: delta_net(config), FULL: evolve(full, gate=full.head)}
    attentions = config.by_layer(mixers, lambda index: LINEAR if (index + 1) % every else FULL)
    experts, top_k = (512, 10) if older else (256, 8)
    if dense:
        return config.decoder(attentions, FeedForward(config.integer("intermediate_size")))
    if not older:  # Qwen3.5 has experts on every layer.
        config.config = {**config.config, "decoder_sparse_step": 1, "mlp_only_layers": []}
    config.fill(moe_intermediate_size=512, num_experts=experts, num_experts_per_tok=top_k)
    return config.decoder(attentions, qwen_experts(config, shared=True, usual=512))


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
    head = head or config.integer(name, 64)
    bias = config.boolean(keys.get("proj_bias", "mamba_proj_bias"), False)
    taps_bias = config.boolean(keys.get("conv_bias", "mamba_conv_bias"), True)
    state, taps, chunk = number("d_state", 256), number("d_conv", 4), number("chunk_size", 256)
    return StateSpace(heads, head, groups, state, taps, chunk, bias, bias, taps_bias)


MAMBA_2 = {"d_head": "head_dim", "n_heads": "num_heads", "n_groups": "n_groups", "d_state": "state_size"}
MAMBA_2 |= {"d_conv": "conv_kernel", "chunk_size": "chunk_size", "proj_bias": "use_bias", "conv_bias": "use_conv_bias"}
NEMOTRON = {**MAMBA_2, "d_head": "mamba_head_dim", "n_heads": "mamba_num_heads", "d_state": "ssm_state_size"}


def _read_nemotron(config: ConfigReader) -> Architecture:
    """Read Nemotron-H, each of whose layers has either a mixer or a network; attention does not rotate."""
    config.fill(head_dim=128, num_key_value_heads=8, n_groups=8, ssm_state_size=128, chunk_size=128)
    pattern = config.word("hybrid_override_pattern", "")
    if not (config.has("layers_block_type") or config.has("layer_types")):
        config.config = {**config.config, "layer_types": list(pattern)}
    words = config.words("layer_types") or config.words("layers_block_type") or ()
    config.config = {**config.config, "num_hidden_layers": len(words)}
    full = config.attention(ATTENTION, rotary=False)
    kinds = config.by_layer({word: word for word in (LINEAR, FULL, "moe", "mlp")}, lambda index: "mlp")
    inner = config.boolean("mlp_bias", False)
    networks: dict[str, Network] = {}
    if "mlp" in kinds:
        networks["mlp"] = FeedForward(config.integer("intermediate_size"), gated=False, bias=inner)
    if "moe" in kinds:
        config.builds(mlp_bias=False, n_shared_experts=1)
        shared = config.integer("moe_shared_expert_intermediate_size", 7688)
        mixture = config.routed_experts("n_routed_experts", shared)
        networks["moe"] = evolve(mixture, gated=False, latent=config.optional_integer("moe_latent_size"))
    mixers: dict[str, Mixer] = {FULL: full, LINEAR: state_space(config, NEMOTRON)}
    # "*E": default of NemotronHConfig.
    config.further = HybridBlock(full, networks.get("moe", networks.get("mlp")))
    return config.decoder([mixers.get(kind) for kind in kinds], [networks.get(kind) for kind in kinds])


def _read_bamba(config: ConfigReader) -> Architecture:
    """Read Bamba, Granite 4 or Falcon-H1: Mamba-2 before, or beside, attention, and a network on every layer."""
    family = config.family
    config.fill(num_key_value_heads=None if family == "granitemoehybrid" else 8)
    rotary = family != "granitemoehybrid" or config.config.get("position_embedding_type") == "rope"
    full = config.attention(ATTENTION, rotary=rotary)
    inner = config.integer("mamba_expand", 2) * config.hidden
    inner = config.optional_integer("mamba_d_ssm", 1024) or inner if family == "falcon_h1" else inner
    space = state_space(config, {}, inner)
    network = FeedForward(config.integer("intermediate_size"), bias=config.boolean("mlp_bias", False))
    if family == "falcon_h1":
        output, normed = config.boolean("projectors_bias", False), config.boolean("mamba_rms_norm", False)
        beside = Parallel((evolve(space, output_bias=output, normalised=normed), full))
        return config.decoder(beside, network, scaled=True)
    mixers: dict[str, Mixer] = {LINEAR: space, FULL: full}
    if family == "bamba":
        listed = {*config.integers("attn_layer_indices")}
        return config.decoder([mixers[FULL if i in listed else LINEAR] for i in range(config.layers)], network)
    shared = config.integer("shared_intermediate_size", 1024)
    config.fill(num_local_experts=8, num_experts_per_tok=2)
    routed = config.integer("num_local_experts", minimum=0) > 0
    networks = experts(config, shared_width=shared) if routed else FeedForward(shared)
    return config.decoder(config.by_layer(mixers, lambda index: LINEAR), networks, scaled=True)


def _read_mamba(config: ConfigReader) -> Architecture:
    """Read Mamba, Falcon-Mamba or Mamba-2: blocks without a feed-forward network."""
    config.fill(tie_word_embeddings=config.family != "mamba2")
    config.fill(n_groups=8, state_size=128 if config.family == "mamba2" else 16)
    mixer: Mixer
    if config.family == "mamba2":
        mixer = state_space(config, MAMBA_2)
    else:
        keys = ("expand", "state_size", "time_step_rank", "conv_kernel", "use_bias", "use_conv_bias")
        mixer = selective_scan(config, config.hidden, keys)
    return config.decoder(mixer, (None,) * config.layers)


def selective_scan(config: ConfigReader, hidden: int, keys: tuple[str, ...], **details: bool) -> SelectiveScan:
    """Read a Mamba layer by the `keys` of expansion, state, rank, taps, and biases of projections and convolution."""
    expand, state, rank, taps, bias, taps_bias = keys
    low = -(-hidden // 16) if config.config.get(rank, "auto") == "auto" else config.integer(rank)
    inner, states = config.integer(expand, 2) * hidden, config.integer(state, 16)
    biases = config.boolean(bias, False), config.boolean(taps_bias, True)
    return SelectiveScan(inner, states, low, config.integer(taps, 4), *biases, **details)


def _read_jamba(config: ConfigReader) -> Architecture:
    """Read Jamba: Mamba, attention without rotation on one layer of each period, and experts on others."""
    config.fill(num_key_value_heads=8, num_experts=16, num_experts_per_tok=2)
    full = config.attention(rotary=False)
    keys = [f"mamba_{key}" for key in ("expand", "d_state", "dt_rank", "d_conv", "proj_bias", "conv_bias")]
    mamba = selective_scan(config, config.hidden, tuple(keys), normalised=True)

    def listed(name: str, period: int, offset: int) -> list[bool]:
        every = config.integer(f"{name}_layer_period", period)
        first = config.integer(f"{name}_layer_offset", offset, minimum=0)
        return [index % every == first for index in range(config.layers)]

    mixers = [full if each else mamba for each in listed("attn", 8, 4)]
    network: list[Network] = [FeedForward(config.integer("intermediate_size"))] * config.layers
    if config.integer("num_experts") > 1:
        mixture = config.mixture(width="intermediate_size")
        network = [mixture if each else network[0] for each in listed("expert", 2, 1)]
    return config.decoder(mixers, network)


def _read_lfm2(config: ConfigReader) -> Architecture:
    """Read LFM2: short convolutions, and attention on some layers."""
    config.rename(tie_word_embeddings="tie_embedding", intermediate_size="block_ff_dim")
    config.fill(tie_word_embeddings=True, num_key_value_heads=8)
    bias = config.boolean("conv_bias", False)
    full = config.attention(normalised=True)
    short = ShortConvolution(config.hidden, config.integer("conv_L_cache", 3), bias)
    listed = config.integers("full_attn_idxs") if config.has("full_attn_idxs") else range(config.layers)
    mixers = config.by_layer({"conv": short, FULL: full}, lambda index: FULL if index in listed else "conv")
    width = config.integer("intermediate_size")
    if config.family == "lfm2_moe":
        dense = config.integer("num_dense_layers", 2, minimum=0)
        config.fill(moe_intermediate_size=1792, num_experts=32, num_experts_per_tok=4)
        sparse = [index >= dense for index in range(config.layers)]
        return config.decoder(mixers, config.dense_and_sparse(sparse, config.mixture()))
    if config.boolean("block_auto_adjust_ff_dim", True):
        factor, unit = config.config.get("block_ffn_dim_multiplier", 1.0), config.integer("block_multiple_of", 256)
        if not isinstance(factor, int | float) or not 0 < factor < 100:
            config.problem("`block_ffn_dim_multiplier` must be a number from 0 to 100")
            factor = 1.0
        width = unit * -(-int(factor * int(2 * width / 3)) // unit)
    return config.decoder(mixers, FeedForward(width))


def _read_minimax(config: ConfigReader) -> Architecture:
    """Read MiniMax-01 or M1: Lightning attention, attention on some layers, experts on all."""
    config.fill(num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=2)
    full = config.attention()
    linear = LinearAttention(config.heads, full.head, config.integer("block_size", 256))
    kinds = config.integers("attn_type_list")
    if kinds and not config.has("layer_types"):
        config.config = {**config.config, "layer_types": [FULL if each else LINEAR for each in kinds]}
    mixers = config.by_layer({LINEAR: linear, FULL: full}, lambda index: FULL if (index + 1) % 2 else LINEAR)
    return config.decoder(mixers, experts(config))


def _read_kimi(config: ConfigReader) -> Architecture:
    """Read Kimi Linear or Ling 3: Kimi delta attention, and latent attention on each few layers."""
    ling, said = config.family == "bailing_hybrid", config.nested("linear_attn_config")
    config.rename(n_shared_experts="num_shared_experts", num_experts_per_tok="num_experts_per_token")
    config.rename(n_group="num_expert_group", num_experts="num_local_experts")
    usual = {"first_k_dense_replace": 2, "n_group": 8, "topk_group": 4, "num_experts": 512}
    config.fill(**(usual if ling else {"first_k_dense_replace": 1, "num_experts": 256}))
    config.fill(n_shared_experts=1, num_experts_per_tok=8, q_lora_rank=None, qk_nope_head_dim=128)
    config.fill(kv_lora_rank=512, qk_rope_head_dim=64, v_head_dim=128)
    heads = config.heads if ling else said.integer("num_heads", config.integer("linear_num_heads", 32))
    # `BailingHybridConfig` moves `head_dim` to `linear_head_dim` and puts the rotary channels in its place.
    head = config.integer("linear_head_dim" if not ling or config.has("linear_head_dim") else "head_dim", 128)
    taps = config.integer("short_conv_kernel_size" if ling else "linear_conv_kernel_dim", 4)
    head, taps = said.integer("head_dim", head), said.integer("short_conv_kernel_size", taps)
    full = evolve(latent_attention(config), gate=int(ling))
    every, listed = config.integer("layer_group_size", 6), said.integers("full_attn_layers")

    def usually(index: int) -> str:
        if ling or listed:
            return FULL if (index + 1 in listed if listed else (index + 1) % every == 0) else LINEAR
        return FULL if index and index % 4 == 0 else LINEAR

    mixers = {LINEAR: DeltaNet(heads, heads, head, head, taps, 0 if ling else head), FULL: full}
    networks = config.experts_behind_dense_layers("num_experts")
    return config.decoder(config.by_layer(mixers, usually), networks)


FAMILIES = {
    "bailing_hybrid": ConfigImporter("BailingHybridForCausalLM BailingMoeV3ForCausalLM", _read_kimi, EXPERTS),
    "bamba": ConfigImporter("BambaForCausalLM", _read_bamba, {"attn_layer_indices": [3]}),
    "falcon_h1": ConfigImporter("FalconH1ForCausalLM", _read_bamba),
    "falcon_mamba": ConfigImporter("FalconMambaForCausalLM", _read_mamba),
    "granitemoehybrid": ConfigImporter("GraniteMoeHybridForCausalLM", _read_bamba),
    "jamba": ConfigImporter("JambaForCausalLM", _read_jamba),
    "kimi_linear": ConfigImporter("KimiLinearForCausalLM", _read_kimi, EXPERTS),
    "lfm2": ConfigImporter("Lfm2ForCausalLM", _read_lfm2),
    "lfm2_moe": ConfigImporter("Lfm2MoeForCausalLM", _read_lfm2),
    "mamba": ConfigImporter("MambaForCausalLM", _read_mamba),
    "mamba2": ConfigImporter("Mamba2ForCausalLM", _read_mamba),
    "minimax": ConfigImporter("MiniMaxForCausalLM MiniMaxText01ForCausalLM MiniMaxM1ForCausalLM", _read_minimax),
    "nemotron_h": ConfigImporter(
        "NemotronHForCausalLM", _read_nemotron, {"hybrid_override_pattern": "M-ME*E", "n_routed_experts": 8, **EXPERTS}
    ),
    "qwen3_5": ConfigImporter("Qwen3_5ForCausalLM", _read_qwen),
    "qwen3_5_moe": ConfigImporter("Qwen3_5MoeForCausalLM", _read_qwen),
    "qwen3_next": ConfigImporter("Qwen3NextForCausalLM", _read_qwen),
}
