"""DeepSeek-V2 (arXiv 2405.04434): latent attention, routed and shared experts."""

from nest.models.building.config import ConfigImporter
from nest.models.building.decoder import read_latent_decoder

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

importer = ConfigImporter("deepseek_v2", "DeepseekV2ForCausalLM", read_latent_decoder, examples=(LITE,))
