"""DeepSeek-V2 (arXiv 2405.04434), DeepSeek-V3 (arXiv 2412.19437), and their like, as Kimi K2 (arXiv 2507.20534).

Latent attention, routed and shared experts behind a few dense layers. DeepSeek-V3.2 (arXiv 2512.02556) and
GLM-5 have an indexer that chooses the keys of each query. Classes: Hugging Face transformers 5.23.0.
"""

from typing import Any

from nest.models.building.config import (
    ConfigImporter,
    ConfigReader,
    DecoderWidths,
    decoder,
    decoder_widths,
    experts_behind_dense_layers,
)
from nest.spec.architecture import Architecture, FeedForward, Indexer, LatentAttention


def _like(name: str, head: str, *, dense: bool = False, **missing: Any) -> ConfigImporter:
    """Return the importer of a family built like DeepSeek-V3, perhaps `dense`, with the values of `missing` keys."""

    def read(config: ConfigReader) -> Architecture:
        config.fill(**missing)
        if not dense:
            return _read(config)
        widths = decoder_widths(config)
        return decoder(config, widths, _attention(config, widths), FeedForward(config.integer("intermediate_size")))

    return ConfigImporter(name, head, read, examples=({**LITE, "q_lora_rank": 1536, "model_type": name},))


def _read(config: ConfigReader) -> Architecture:
    """Read a DeepSeek configuration.

    The router's correction bias of DeepSeek-V3 is moved by hand, not learned: no parameter. Layers that predict further
    tokens (`num_nextn_predict_layers`) are not part of the model class and left out.
    """
    widths = decoder_widths(config)
    return decoder(config, widths, _attention(config, widths), experts_behind_dense_layers(config, widths))


def _attention(config: ConfigReader, widths: DecoderWidths) -> LatentAttention:
    if "q_lora_rank" not in config.config:
        config.problem("`q_lora_rank` is missing; null means that queries are not compressed")
    return LatentAttention(
        heads=widths.heads,
        query_rank=config.optional_integer("q_lora_rank"),
        key_value_rank=config.integer("kv_lora_rank"),
        plain=config.integer("qk_nope_head_dim"),
        rotary=config.integer("qk_rope_head_dim"),
        value=config.integer("v_head_dim"),
        bias=config.boolean("attention_bias", False),
        indexer=_indexer(config) if config.family in ("deepseek_v32", "glm_moe_dsa") else None,
    )


def _indexer(config: ConfigReader) -> Indexer:
    if not config.has("q_lora_rank", True):
        config.problem("`q_lora_rank` is null, and the indexer reads compressed queries")
    shared = {*(config.words("indexer_types") or ())} - {"full"} or config.has("index_topk_pattern")
    if shared or config.integer("index_topk_freq", 1) > 1:
        config.problem(
            "`indexer_types` has layers that use the keys chosen by an earlier layer, which nest cannot price; "
            "capture the model with nest-torch"
        )
    # 64 heads of 128 channels and 2048 keys: defaults of DeepseekV32Config.
    heads, head = config.integer("index_n_heads", 64), config.integer("index_head_dim", 128)
    return Indexer(heads, head, config.integer("index_topk", 2048))


LITE = {
    "model_type": "deepseek_v2",
    "vocab_size": 102400,
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "q_lora_rank": None,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "first_k_dense_replace": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1408,
}
"""DeepSeek-V2-Lite (appendix B.1 of the paper)."""

deepseek_v2 = ConfigImporter("deepseek_v2", "DeepseekV2ForCausalLM", _read, examples=(LITE,))
deepseek_v3 = ConfigImporter("deepseek_v3", "DeepseekV3ForCausalLM", _read)
deepseek_v32 = ConfigImporter("deepseek_v32", "DeepseekV32ForCausalLM", _read)
glm4_moe_lite = _like("glm4_moe_lite", "Glm4MoeLiteForCausalLM", first_k_dense_replace=1, n_shared_experts=1)
glm_moe_dsa = _like(
    "glm_moe_dsa", "GlmMoeDsaForCausalLM", first_k_dense_replace=3, n_shared_experts=1, index_n_heads=32
)
mistral4 = _like("mistral4", "Mistral4ForCausalLM", n_shared_experts=1)
youtu = _like("youtu", "YoutuForCausalLM", dense=True, tie_word_embeddings=True)
