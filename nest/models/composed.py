"""Families with details of their own: MiMo-V2, Llama 4, Gemma 4, MiniMax-M3, Step 3.5 and 3.7, and with LayerNorm.

Classes of Hugging Face transformers 5.24.0, whose defaults stand for missing keys. With LayerNorm and biases: BERT
without pooler (arXiv 1810.04805), GPT-2 and GPT-3's shape (arXiv 2005.14165), GPT-NeoX and Pythia (arXiv 2204.06745),
Falcon (arXiv 2311.16867).
"""

from attrs import evolve

from nest.models.building.config import ATTENTION, FULL, SLIDING, ConfigImporter, ConfigReader, Network
from nest.models.building.left_out import MOST_LAYERS
from nest.spec.architecture import Architecture, FeedForward, GroupedQueryAttention, Indexer, TransformerBlock


def _read_gemma4(config: ConfigReader) -> Architecture:
    """Read Gemma 4: wider heads without a window, blocks that use keys of earlier ones, and inputs for each layer."""
    unified = config.config.get("model_type") == "gemma4_unified_text"
    config.fill(tie_word_embeddings=True, head_dim=256, num_key_value_heads=4)
    config.fill(hidden_size_per_layer_input=0 if unified else 256)
    if config.config.get("use_bidirectional_attention") == "all":
        config.problem("`use_bidirectional_attention` is 'all', but only causal attention is built")
    window = config.integer("sliding_window", 512)
    near = config.attention(ATTENTION, normalised=True, value_norm=True, window=window)
    same = config.boolean("attention_k_eq_v", False)
    kv_heads = (config.optional_integer("num_global_key_value_heads") if same else None) or near.kv_heads
    config.divides("num_global_key_value_heads", kv_heads, "num_attention_heads", config.heads)
    far = evolve(near, head=config.integer("global_head_dim", 512), kv_heads=kv_heads, key_values=same, window=None)
    usually = config.by_layer({SLIDING: near, FULL: far}, lambda index: SLIDING if (index + 1) % 6 else FULL)
    shared = config.integer("num_kv_shared_layers", 0, minimum=0)
    config.at_most("num_kv_shared_layers", shared, "num_hidden_layers", config.layers - 1)
    attentions = share_keys(config, [*usually[:-1], far], shared)
    width = config.integer("intermediate_size")
    networks: list[Network] = [FeedForward(width)] * config.layers
    if config.boolean("enable_moe_block", False):
        mixture = config.mixture(top_k="top_k_experts", shared_width=width)
        networks = [evolve(mixture, normed=True)] * config.layers
    elif config.boolean("use_double_wide_mlp", False):
        networks = [FeedForward(width if each.keys_of is None else 2 * width) for each in attentions]
    return config.decoder(
        attentions,
        networks,
        result_norms=True,
        scaled=True,
        capped=config.has("final_logit_softcapping"),
        layer_inputs=config.integer("hidden_size_per_layer_input", minimum=0),
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
    full = config.attention(normalised=True)
    block = said.integer("sparse_block_size", config.integer("index_block_size", 128))
    kept = said.integer("sparse_topk_blocks", config.integer("index_topk_blocks", 16))
    heads = said.integer("sparse_num_index_heads", config.integer("index_n_heads", 4))
    head = said.integer("sparse_index_dim", config.integer("index_head_dim", 128))
    sparse = evolve(full, indexer=Indexer(heads, head, kept * block))
    listed, word = said.flags("sparse_attention_freq", config.layers), "minimax_m3_sparse"
    kinds = {word: sparse, FULL: full}
    attentions = config.by_layer(kinds, lambda index: word if any(listed[index : index + 1]) else FULL)
    shared = config.integer("shared_intermediate_size", 3072)
    mixture = config.mixture(experts="num_local_experts", width="intermediate_size", shared_width=shared)
    visited = config.sparse_layers(lambda index: True)
    networks = config.dense_and_sparse(visited, mixture, "dense_intermediate_size")
    return config.decoder(attentions, networks)


def _read_step3(config: ConfigReader) -> Architecture:
    """Read Step 3.5 or 3.7: a gate for each head, perhaps more heads with a window, experts behind dense layers."""
    config.rename(num_key_value_heads="num_attention_groups", n_routed_experts="moe_num_experts")
    config.rename(n_routed_experts="num_experts", num_experts_per_tok="moe_top_k", share_expert_dim="share_expert_dims")
    config.fill(head_dim=128, num_key_value_heads=8, n_routed_experts=288, num_experts_per_tok=8)
    config.fill(moe_intermediate_size=1280, first_k_dense_replace=3)
    full = config.attention(ATTENTION, normalised=True, gate=1)
    other = config.nested("attention_other_setting").optional_integer("num_attention_heads")
    heads = config.optional_integer("num_sliding_attention_heads", other) or config.heads
    config.divides("num_key_value_heads", full.kv_heads, "num_sliding_attention_heads", heads)
    near = evolve(full, heads=heads, window=config.optional_integer("sliding_window"))
    listed = config.words("layer_types")
    if listed is not None:
        config.config = {**config.config, "layer_types": listed[: config.layers]}
    attentions = config.by_layer({SLIDING: near, FULL: full}, lambda index: FULL)
    mixture = config.mixture(experts="n_routed_experts", shared_width=config.integer("share_expert_dim", 1280))
    visited = config.sparse_layers(lambda index: index >= config.integer("first_k_dense_replace", minimum=0))
    return config.decoder(attentions, config.dense_and_sparse(visited, mixture))


def _read_llama4(config: ConfigReader) -> Architecture:
    """Read Llama 4's text model, whose layers differ in rotation, attention within chunks and experts.

    Queries and keys are normalised in rotated layers. The scale of queries in others, one pass, is left out.
    """
    config.fill(head_dim=128, num_key_value_heads=8)
    attention = config.attention(ATTENTION)
    rotated = evolve(attention, normalised=config.boolean("use_qk_norm", True), norm="unlearned")
    rotates = config.rotated_layers()
    word, cut = "chunked_attention", config.optional_integer("attention_chunk_size", 8192)
    chunks = config.by_layer({word: cut, FULL: None}, lambda i: FULL if rotates[i : i + 1] == (False,) else word)
    attentions = [
        evolve(rotated if rotate else evolve(attention, rotary=False), chunk=chunk)
        for rotate, chunk in zip(rotates, chunks, strict=False)
    ]
    step, width = config.integer("interleave_moe_layer_step", 1), "intermediate_size"
    sparse = config.integers("moe_layers") if config.has("moe_layers") else range(step - 1, config.layers, step)
    mixture = config.mixture(experts="num_local_experts", width=width, shared_width=config.integer(width))
    has_experts = [index in sparse for index in range(config.layers)]
    networks = config.dense_and_sparse(has_experts, mixture, "intermediate_size_mlp")
    return config.decoder(attentions, networks)


def _read_mimo_v2(config: ConfigReader) -> Architecture:
    """Read MiMo-V2-Flash (`MiMoV2FlashConfig`): windows with sinks and twice the key-value heads, and narrow values."""
    config.fill(first_k_dense_replace=1, head_dim=192, num_key_value_heads=4)
    value = config.integer("v_head_dim", 128)
    attention = config.attention(("attention_bias", False), value=value)
    # The window counts the token itself, `sliding_window_size` does not: 129 in the class.
    window = config.integer("sliding_window_size", config.integer("sliding_window", 129) - 1) + 1
    narrow = evolve(attention, kv_heads=2 * attention.kv_heads, window=window, sinks=True)
    config.divides("num_key_value_heads, doubled,", narrow.kv_heads, "num_attention_heads", config.heads)
    for key, built in (("num_attention_heads", config.heads), ("num_key_value_heads", narrow.kv_heads)):
        config.builds(**{f"swa_{key}": built})
    config.builds(swa_head_dim=attention.head, swa_v_head_dim=attention.value)
    pattern = config.integers("hybrid_layer_pattern")
    usual = [pattern[i] if i < len(pattern) else i and (i + 1) % 6 for i in range(config.layers)]
    kinds = {SLIDING: narrow, FULL: attention}
    attentions = config.by_layer(kinds, lambda index: SLIDING if usual[index] else FULL)
    return config.decoder(attentions, config.experts_behind_dense_layers())


def _read_neox(config: ConfigReader) -> Architecture:
    bias = config.boolean("attention_bias", True)
    attention = GroupedQueryAttention(config.heads, config.heads, config.even_head(), bias, bias)
    network = FeedForward(config.integer("intermediate_size"), gated=False, bias=True)
    parallel = 2 if config.boolean("use_parallel_residual", True) else 0
    return config.decoder(attention, network, norm_bias=True, parallel=parallel)


def _read_falcon(config: ConfigReader) -> Architecture:
    """Read a Falcon of either architecture: 7B with one key-value head, 40B and 180B with groups."""
    config.fill(tie_word_embeddings=True)
    if config.boolean("alibi", False):
        config.problem("`alibi` is true, but only rotary positions are built")
    grouped, bias = config.boolean("new_decoder_architecture", False), config.boolean("bias", False)
    shared = config.boolean("multi_query", True) and not grouped
    kv_heads = 1 if shared else config.integer("num_kv_heads", config.heads)
    config.divides("num_kv_heads", kv_heads, "num_attention_heads", config.heads)
    attention = GroupedQueryAttention(config.heads, kv_heads, config.even_head(), bias, bias)
    network = FeedForward(config.integer("ffn_hidden_size", 4 * config.hidden), gated=False, bias=bias)
    parallel = int(grouped or config.boolean("parallel_attn", True))
    if grouped:
        parallel = config.integer("num_ln_in_parallel_attn", 2, maximum=2)
    return config.decoder(attention, network, norm_bias=True, parallel=parallel)


def _read_learned_positions(
    config: ConfigReader, hidden: str, heads: str, layers: str, inner: str, positions: str
) -> Architecture:
    """Read GPT-2, or BERT with its head of a masked language model, by the keys of their widths."""
    masked, width, number = config.family == "bert", config.integer(hidden), config.integer(heads)
    if masked and config.word("position_embedding_type", "absolute") != "absolute":
        config.problem("`position_embedding_type` must be absolute; relative positions are not built")
    head, causal = config.even_head(heads, hidden), not masked
    # RoBERTa counts positions from behind its padding token, the second of the vocabulary.
    unused = 2 if masked and config.config.get("model_type") != "bert" else 0
    attention = GroupedQueryAttention(number, number, head, True, True, rotary=False, causal=causal)
    network = FeedForward(config.integer(inner, None if masked else 4 * width), gated=False, bias=True)
    return Architecture(
        config.family,
        width,
        config.integer("vocab_size"),
        (TransformerBlock(attention, network),) * config.integer(layers, maximum=MOST_LAYERS),
        tied=config.boolean("tie_word_embeddings", True),
        norm_bias=True,
        positions=config.integer(positions, minimum=1 + unused),
        unused_positions=unused,
        types=config.integer("type_vocab_size", 2) if masked else 0,
        post_norm=masked,
        masked_head=masked,
    )


BERT = ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "max_position_embeddings")
MIMO = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 2048}

FAMILIES = {
    "bert": ConfigImporter(
        "BertForMaskedLM RobertaForMaskedLM XLMRobertaForMaskedLM CamembertForMaskedLM",
        lambda config: _read_learned_positions(config, *BERT),
    ),
    "falcon": ConfigImporter("FalconForCausalLM", _read_falcon),
    "gemma4_text": ConfigImporter("Gemma4ForCausalLM", _read_gemma4),
    "gpt2": ConfigImporter(
        "GPT2LMHeadModel",
        lambda config: _read_learned_positions(config, "n_embd", "n_head", "n_layer", "n_inner", "n_positions"),
    ),
    "gpt_neox": ConfigImporter("GPTNeoXForCausalLM", _read_neox),
    "llama4_text": ConfigImporter("Llama4ForCausalLM", _read_llama4),
    "mimo_v2_flash": ConfigImporter("MiMoV2FlashForCausalLM", _read_mimo_v2, MIMO),
    "minimax_m3_vl": ConfigImporter("MiniMaxM3SparseForCausalLM", _read_minimax_m3),
    "step3p5": ConfigImporter("Step3p5ForCausalLM Step3p7FlashForCausalLM", _read_step3),
}
