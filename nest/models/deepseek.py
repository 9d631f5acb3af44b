"""DeepSeek-V2 (arXiv 2405.04434), DeepSeek-V3 (arXiv 2412.19437), and their like, as Kimi K2 (arXiv 2507.20534).

Latent attention, routed and shared experts behind a few dense layers. DeepSeek-V3.2 (arXiv 2512.02556) and
GLM-5 have an indexer that chooses the keys of each query. Classes: Hugging Face transformers 5.23.0. The router's
correction bias of DeepSeek-V3 is moved by hand, not learned: no parameter.
"""

from typing import Any

from attrs import evolve

from nest.models.building.config import SLIDING, ConfigImporter, ConfigReader
from nest.spec.architecture import Architecture, CompressedAttention, FeedForward, HybridBlock, Indexer, LatentAttention

LITE = {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
LITE |= {"first_k_dense_replace": 1, "n_routed_experts": 64, "num_experts_per_tok": 6, "moe_intermediate_size": 1408}


def _like(head: str, *, dense: bool = False, **missing: Any) -> ConfigImporter:
    """Return the importer of a family built like DeepSeek-V3, perhaps `dense`, with the values of `missing` keys."""

    def read(config: ConfigReader) -> Architecture:
        config.fill(**missing)
        attention = latent_attention(config)
        if dense:
            return config.decoder(attention, FeedForward(config.integer("intermediate_size")))
        networks = config.experts_behind_dense_layers()
        if config.family not in ("deepseek_v32", "glm_moe_dsa"):
            return config.decoder(attention, networks)
        attentions = [evolve(attention, indexer=indexer) for indexer in _indexer(config, config.layers)]
        return config.decoder(attentions, networks)

    return ConfigImporter(head, read, LITE)


def latent_attention(config: ConfigReader) -> LatentAttention:
    """Read latent attention."""
    if "q_lora_rank" not in config.config:
        config.problem("`q_lora_rank` is missing; null means that queries are not compressed")
    return LatentAttention(
        heads=config.heads,
        query_rank=config.optional_integer("q_lora_rank"),
        key_value_rank=config.integer("kv_lora_rank"),
        plain=config.integer("qk_nope_head_dim"),
        rotary=config.integer("qk_rope_head_dim"),
        value=config.integer("v_head_dim"),
        bias=config.boolean("attention_bias", False),
    )


def _indexer(config: ConfigReader, layers: int) -> list[Indexer]:
    """Read the indexer of each layer, which chooses keys or uses the choice of the last layer that did (GLM-5.2)."""
    if not config.has("q_lora_rank", True):
        config.problem("`q_lora_rank` is null, and the indexer reads compressed queries")
    every, first = config.integer("index_topk_freq", 1), config.integer("index_skip_topk_offset", 2, minimum=0)
    kinds: tuple[str, ...] | None = config.words("indexer_types")
    if kinds is None and isinstance(config.config.get("index_topk_pattern"), str):
        kinds = tuple(config.config["index_topk_pattern"])
    if kinds is None:
        kinds = tuple("shared" if max(i - first + 1, 0) % every else "full" for i in range(layers))
    if len(kinds) < layers or kinds[0] not in ("full", "F") or not {*kinds} <= {"full", "shared", "F", "S"}:
        config.problem(f"`indexer_types` must name `full`, first, or `shared` for each of the {layers} layers")
        kinds = ("full",) * layers
    own, found, last = _own_indexer(config, 2048), [], 0
    for index, kind in enumerate(kinds[:layers]):
        last = index if kind in ("full", "F") else last
        found.append(own if last == index else evolve(own, choice_of=last))
    return found


def _own_indexer(config: ConfigReader, keys: int) -> Indexer:
    # 64 heads of 128 channels: defaults of DeepseekV32Config and DeepseekV4Config.
    heads, head = config.integer("index_n_heads", 64), config.integer("index_head_dim", 128)
    return Indexer(heads, head, config.integer("index_topk", keys))


COMPRESSED, HEAVILY = "compressed_sparse_attention", "heavily_compressed_attention"
RATES = {0: SLIDING, 4: COMPRESSED, 128: HEAVILY}
"""Words of DeepSeek-V4's `layer_types` by its older `compress_ratios`."""


def _read_v4(config: ConfigReader) -> Architecture:
    """Read DeepSeek-V4: compressed attention, experts on every layer, and hyper-connections.

    Routers that choose by a table of tokens cost what others do. The table is no parameter.
    """
    config.rename(n_routed_experts="num_local_experts")
    config.fill(n_shared_experts=1, n_routed_experts=256, num_experts_per_tok=6, moe_intermediate_size=2048)
    config.builds(num_key_value_heads=1, attention_bias=False, mlp_bias=False, n_shared_experts=1)
    groups = config.integer("o_groups", 8)
    config.divides("o_groups", groups, "num_attention_heads", config.heads)
    head, window = config.integer("head_dim", 512), config.integer("sliding_window", 128)
    query_rank, output_rank = config.integer("q_lora_rank", 1024), config.integer("o_lora_rank", 1024)
    near = CompressedAttention(config.heads, head, query_rank, groups, output_rank, window)
    said, indexer = config.nested("compress_rates"), _own_indexer(config, 512)
    kinds = {
        SLIDING: near,
        COMPRESSED: evolve(near, rate=said.integer(COMPRESSED, 4), indexer=indexer),
        HEAVILY: evolve(near, rate=said.integer(HEAVILY, 128)),
    }
    ratios = config.integers("compress_ratios")[: config.layers]
    if ratios and not config.has("layer_types"):
        config.config = {**config.config, "layer_types": [RATES.get(each, str(each)) for each in ratios]}
    usual = [COMPRESSED if index > 1 and index % 2 else HEAVILY for index in range(config.layers)]
    attentions = config.by_layer(kinds, usual.__getitem__)
    mixture = config.routed_experts("n_routed_experts", config.integer("moe_intermediate_size"))
    config.further = HybridBlock(near, mixture)
    return config.decoder(attentions, mixture, streams=config.integer("hc_mult", 4))


V4 = {**LITE, "q_lora_rank": 1024, "head_dim": 128, "num_key_value_heads": 1}

FAMILIES = {
    "deepseek_v2": _like("DeepseekV2ForCausalLM"),
    "deepseek_v3": _like("DeepseekV3ForCausalLM"),
    "deepseek_v32": _like("DeepseekV32ForCausalLM"),
    "deepseek_v4": ConfigImporter("DeepseekV4ForCausalLM", _read_v4, V4),
    "glm4_moe_lite": _like("Glm4MoeLiteForCausalLM", first_k_dense_replace=1, n_shared_experts=1),
    "glm_moe_dsa": _like("GlmMoeDsaForCausalLM", first_k_dense_replace=3, n_shared_experts=1, index_n_heads=32),
    "mistral4": _like("Mistral4ForCausalLM", n_shared_experts=1),
    "youtu": _like("YoutuForCausalLM", dense=True, tie_word_embeddings=True),
}
