"""Families with details of their own: Llama 4, Gemma 4, MiniMax-M3, Step 3.5 and 3.7, ERNIE 4.5, Hunyuan.

Classes of Hugging Face transformers 5.24.0, whose defaults stand for missing keys.
"""

from attrs import evolve

from nest.models.building.config import (
    FULL,
    SLIDING,
    ConfigImporter,
    ConfigReader,
    Network,
    decoder,
    decoder_widths,
    dense_and_sparse,
    grouped_query_attention,
    layer_kinds,
    layer_words,
    mixture_of_experts,
    rotated_layers,
)
from nest.models.rows import example
from nest.spec.architecture import Architecture, FeedForward, GroupedQueryAttention, Indexer, MixtureOfExperts


def _read_gemma4(config: ConfigReader) -> Architecture:
    """Read Gemma 4: wider heads without a window, blocks that use keys of earlier ones, and inputs for each layer."""
    config.fill(tie_word_embeddings=True, head_dim=256, num_key_value_heads=4, hidden_size_per_layer_input=256)
    if config.config.get("use_bidirectional_attention") == "all":
        config.problem("`use_bidirectional_attention` is 'all', but only causal attention is built")
    widths, bias = decoder_widths(config, tied=True), config.boolean("attention_bias", False)
    near = grouped_query_attention(config, widths, bias=bias, output_bias=bias, normalised=True)
    near = evolve(near, value_norm=True, window=config.integer("sliding_window", 512))
    same = config.boolean("attention_k_eq_v", False)
    kv_heads = (config.optional_integer("num_global_key_value_heads") if same else None) or near.kv_heads
    config.divides("num_global_key_value_heads", kv_heads, "num_attention_heads", widths.heads)
    far = evolve(near, head=config.integer("global_head_dim", 512), kv_heads=kv_heads, key_values=same, window=None)
    words = layer_words(config, widths.layers, (SLIDING, FULL), lambda index: SLIDING if (index + 1) % 6 else FULL)
    kinds = [{SLIDING: near, FULL: far}[word] for word in [*words[:-1], FULL]]
    shared = config.integer("num_kv_shared_layers", 0, minimum=0)
    config.at_most("num_kv_shared_layers", shared, "num_hidden_layers", widths.layers - 1)
    attentions = share_keys(config, kinds, shared)
    width = config.integer("intermediate_size")
    networks: list[Network] = [FeedForward(width)] * widths.layers
    if config.boolean("enable_moe_block", False):
        mixture = mixture_of_experts(config, top_k="top_k_experts", shared_width=width)
        networks = [evolve(mixture, normed=True)] * widths.layers
    elif config.boolean("use_double_wide_mlp", False):
        networks = [FeedForward(width if each.keys_of is None else 2 * width) for each in attentions]
    return decoder(
        config,
        widths,
        attentions,
        networks,
        result_norms=True,
        scaled=True,
        capped=config.has("final_logit_softcapping"),
        layer_inputs=config.integer("hidden_size_per_layer_input", 256, minimum=0),
        layer_vocab=config.integer("vocab_size_per_layer_input", 262_144),
    )


def share_keys(config: ConfigReader, kinds: list[GroupedQueryAttention], shared: int) -> list[GroupedQueryAttention]:
    """Let the last `shared` layers use the keys and values of the last layer of their kind before them."""
    first = max(len(kinds) - shared, 1)
    last = {kind: index for index, kind in enumerate(kinds[:first])}
    if not {*kinds} <= {*last}:
        config.problem("`num_kv_shared_layers` leaves no layer with keys for each kind of attention")
        return kinds
    return kinds[:first] + [evolve(kind, keys_of=last[kind]) for kind in kinds[first:]]


def _read_minimax_m3(config: ConfigReader) -> Architecture:
    """Read MiniMax-M3: an indexer chooses blocks of keys on some layers."""
    config.fill(head_dim=128, num_key_value_heads=4, num_local_experts=128, num_experts_per_tok=4)
    config.builds(use_qk_norm=True, qk_norm_type="per_head", attention_output_gate=False, n_shared_experts=1)
    said = config.nested("sparse_attention_config")
    widths = decoder_widths(config)
    full = grouped_query_attention(config, widths, normalised=True)
    block = said.integer("sparse_block_size", config.integer("index_block_size", 128))
    kept = said.integer("sparse_topk_blocks", config.integer("index_topk_blocks", 16))
    heads = said.integer("sparse_num_index_heads", config.integer("index_n_heads", 4))
    head = said.integer("sparse_index_dim", config.integer("index_head_dim", 128))
    sparse = evolve(full, indexer=Indexer(heads, head, kept * block))
    listed = said.integers("sparse_attention_freq")
    if listed and len(listed) != widths.layers:
        config.problem(f"`sparse_attention_freq` must have a 0 or a 1 for each of the {widths.layers} layers")
    known = ("minimax_m3_sparse", FULL)
    words = layer_words(
        config, widths.layers, known, lambda index: known[0] if any(listed[index : index + 1]) else FULL
    )
    shared = config.integer("shared_intermediate_size", 3072)
    mixture = mixture_of_experts(config, experts="num_local_experts", width="intermediate_size", shared_width=shared)
    visited = config.sparse_layers(widths.layers, lambda index: True)
    networks = dense_and_sparse(config, visited, mixture, "dense_intermediate_size")
    return decoder(config, widths, [sparse if word == known[0] else full for word in words], networks)


def _read_step3(config: ConfigReader) -> Architecture:
    """Read Step 3.5 or 3.7: a gate for each head, perhaps more heads with a window, experts behind dense layers."""
    config.rename(num_key_value_heads="num_attention_groups", n_routed_experts="moe_num_experts")
    config.rename(n_routed_experts="num_experts", num_experts_per_tok="moe_top_k", share_expert_dim="share_expert_dims")
    config.fill(head_dim=128, num_key_value_heads=8, n_routed_experts=288, num_experts_per_tok=8)
    config.fill(moe_intermediate_size=1280, first_k_dense_replace=3)
    widths, bias = decoder_widths(config), config.boolean("attention_bias", False)
    full = grouped_query_attention(config, widths, bias=bias, output_bias=bias, normalised=True)
    full = evolve(full, gate=1)
    other = config.nested("attention_other_setting").optional_integer("num_attention_heads")
    heads = config.optional_integer("num_sliding_attention_heads", other) or widths.heads
    config.divides("num_key_value_heads", full.kv_heads, "num_sliding_attention_heads", heads)
    near = evolve(full, heads=heads, window=config.optional_integer("sliding_window"))
    layers = widths.layers
    listed = config.words("layer_types")
    if listed is not None:
        config.config = {**config.config, "layer_types": listed[:layers]}
    words = layer_words(config, layers, (SLIDING, FULL), lambda index: FULL)
    mixture = mixture_of_experts(
        config, experts="n_routed_experts", shared_width=config.integer("share_expert_dim", 1280)
    )
    visited = config.sparse_layers(layers, lambda index: index >= config.integer("first_k_dense_replace", minimum=0))
    attentions = [near if word == SLIDING else full for word in words]
    return decoder(config, widths, attentions, dense_and_sparse(config, visited, mixture))


gemma4 = ConfigImporter("gemma4_text", "Gemma4ForCausalLM", _read_gemma4, examples=example("gemma4_text"))
M3, STEP = "MiniMaxM3SparseForCausalLM", "Step3p5ForCausalLM Step3p7FlashForCausalLM"
minimax_m3 = ConfigImporter("minimax_m3_vl", M3, _read_minimax_m3, examples=example("minimax_m3_vl"))
step3 = ConfigImporter("step3p5", STEP, _read_step3, examples=example("step3p5"))


def _read_llama4(config: ConfigReader) -> Architecture:
    """Read Llama 4's text model, whose layers differ in rotation, attention within chunks and experts.

    Queries and keys are normalised in rotated layers. The scale of queries in others, one pass, is left out.
    """
    widths = decoder_widths(config)
    bias = config.boolean("attention_bias", False)
    # 8 key-value heads of 128 channels, chunks of 8192 tokens: defaults of Llama4TextConfig.
    attention = grouped_query_attention(config, widths, head=128, kv_heads=8, bias=bias, output_bias=bias)
    rotated = evolve(attention, normalised=config.boolean("use_qk_norm", True), norm="unlearned")
    chunk, rotates = config.optional_integer("attention_chunk_size", 8192), rotated_layers(config, widths.layers)
    chunked = layer_kinds(
        config, widths.layers, "chunked_attention", lambda index: rotates[index : index + 1] != (False,)
    )
    attentions = tuple(
        evolve(rotated if rotate else evolve(attention, rotary=False), chunk=chunk if cut else None)
        for rotate, cut in zip(rotates, chunked, strict=False)
    )
    step, width = config.integer("interleave_moe_layer_step", 1), "intermediate_size"
    sparse = config.integers("moe_layers") if config.has("moe_layers") else range(step - 1, widths.layers, step)
    mixture = mixture_of_experts(config, experts="num_local_experts", width=width, shared_width=config.integer(width))
    has_experts = [index in sparse for index in range(widths.layers)]
    networks = dense_and_sparse(config, has_experts, mixture, "intermediate_size_mlp")
    return decoder(config, widths, attentions, networks)


llama4 = ConfigImporter("llama4_text", "Llama4ForCausalLM", _read_llama4)


def _read_ernie(config: ConfigReader) -> Architecture:
    """Read a mixture of experts; the router's correction bias and layers for further tokens are left out."""
    widths = decoder_widths(config, tied=True)
    if config.boolean("use_bias", False):
        config.problem("`use_bias` is true, but mixtures of experts are only built without biases")
    # 4 key-value heads, 2 shared experts, experts from the second layer on: defaults of Ernie4_5_MoeConfig.
    attention = grouped_query_attention(config, widths, kv_heads=4)
    shared = config.integer("moe_num_shared_experts", 2, minimum=0) * config.integer("moe_intermediate_size")
    mixture = mixture_of_experts(config, experts="moe_num_experts", top_k="moe_k", shared_width=shared)
    first, every = config.integer("moe_layer_start_index", 1, minimum=0), config.integer("moe_layer_interval", 1)
    last = config.integer("moe_layer_end_index", -1, minimum=-1)
    last = widths.layers if last == -1 else last
    sparse = [first <= index <= last and (index + 1) % every == 0 for index in range(widths.layers)]
    return decoder(config, widths, attention, dense_and_sparse(config, sparse, mixture))


ernie_moe = ConfigImporter("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", _read_ernie)


def _read_hunyuan(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    config.builds(use_qk_norm=True, use_cla=False)
    bias = config.boolean("attention_bias", False)
    attention = grouped_query_attention(config, widths, bias=bias, output_bias=bias, normalised=True)
    network: Network = FeedForward(config.integer("intermediate_size"))
    if config.family == "hunyuan_v1_moe":
        network = _hunyuan_experts(config)
    return decoder(config, widths, evolve(attention, norm="rotated"), network)


def _hunyuan_experts(config: ConfigReader) -> MixtureOfExperts:
    """Read the experts of every layer and the one all tokens visit, each as wide as `intermediate_size`."""
    width = config.integer("intermediate_size")
    config.builds(moe_intermediate_size=width, num_shared_expert=1)
    alike = ConfigReader({**config.config, "moe_topk": config.uniform("moe_topk")}, config.family, config.problems)
    return mixture_of_experts(alike, top_k="moe_topk", width="intermediate_size", shared_width=width)


dense = ConfigImporter("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", _read_hunyuan)
moe = ConfigImporter("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", _read_hunyuan)
