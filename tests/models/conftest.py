"""Small configurations of every family, with the closed forms of what their models must have."""

from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen

from nest.graph import OperatorGraph
from nest.models import nest_model_importers
from nest.spec import Training

V, H, F, L, A, G, D = 96, 24, 40, 3, 6, 2, 4
"""Vocabulary, hidden, inner width, layers, heads, key-value heads, channels per head of most small models."""

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": V,
    "hidden_size": H,
    "intermediate_size": F,
    "num_hidden_layers": L,
    "num_attention_heads": A,
    "num_key_value_heads": G,
}
MLA = {
    "vocab_size": V, "hidden_size": H, "intermediate_size": F, "num_hidden_layers": L, "num_attention_heads": A,
    "num_key_value_heads": A, "q_lora_rank": 10, "kv_lora_rank": 9, "qk_nope_head_dim": 5, "qk_rope_head_dim": 2,
    "v_head_dim": 3, "first_k_dense_replace": 1, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3,
    "moe_intermediate_size": 7,
}  # fmt: skip

GQA = H * A * D + 2 * H * G * D + A * D * H
"""Weights of grouped-query attention."""

INDEX = 10 * 4 * 6 + H * 6 + H * 4
"""Weights of an indexer of 4 heads of 6 channels."""

LATENT = H * 10 + 10 * A * 7 + H * (9 + 2) + 9 * A * (5 + 3) + A * 3 * H
"""Weights of latent attention."""


@frozen
class Small:
    """A configuration and its closed forms.

    Attributes:
        config: as `config.json` has it.
        weights: per block, the weights of matrix products (all experts).
        active: per block, the weights one token meets.
        others: per block, biases, norms and the like.
        outside: parameters outside the blocks, tied ones once.
        outside_active: weights of matrix products outside the blocks (the LM head always).
        channels: query-key plus value channels, over all heads.
    """

    config: dict[str, Any]
    weights: tuple[int, ...]
    active: tuple[int, ...]
    others: tuple[int, ...]
    outside: int
    outside_active: int
    channels: int


def _alike(config: dict[str, Any], weights: int, others: int, **rest: int) -> Small:
    return Small(config, (weights,) * L, (rest.pop("active", weights),) * L, (others,) * L, **rest)


def _of(family: str, head: str | None, base: dict[str, Any] = LLAMA, **keys: Any) -> dict[str, Any]:
    return {**base, "model_type": family, "architectures": [head] if head else None, **keys}


UNTIED = {"outside": 2 * V * H + H, "outside_active": V * H, "channels": 2 * A * D}
TIED = {"outside": V * H + H, "outside_active": V * H, "channels": 2 * A * D}
MOE = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 7}
SMALL = {
    "llama": _alike(LLAMA, GQA + 3 * H * F, 2 * H, **UNTIED),
    "llama-biased": _alike({**LLAMA, "attention_bias": True, "mlp_bias": True}, GQA + 3 * H * F,
        2 * H + (A + 2 * G) * D + H + 2 * F + H, **UNTIED),
    "llama-tied": _alike({**LLAMA, "tie_word_embeddings": True, "head_dim": 8, "num_key_value_heads": None},
        4 * H * A * 8 + 3 * H * F, 2 * H, outside=V * H + H, outside_active=V * H, channels=2 * A * 8),
    "mistral": _alike(_of("mistral", None, sliding_window=None), GQA + 3 * H * F, 2 * H, **UNTIED),
    "qwen2": _alike(_of("qwen2", "Qwen2ForCausalLM"), GQA + 3 * H * F, 2 * H + (A + 2 * G) * D, **UNTIED),
    "mimo": _alike(_of("mimo", "MiMoForCausalLM"), GQA + 3 * H * F, 2 * H + (A + 2 * G) * D, **UNTIED),
    "mimo_v2_flash": Small(_of("mimo_v2_flash", "MiMoV2FlashForCausalLM", num_key_value_heads=1, head_dim=D,
            v_head_dim=3, hybrid_layer_pattern=[0, 1, 1], moe_layer_freq=[0, 1, 1], n_routed_experts=8,
            num_experts_per_tok=3, moe_intermediate_size=7),
        tuple(H * (A + G) * (D + 3) + more for G, more in ((1, 3 * H * F), *((2, 8 * H + 8 * 3 * H * 7),) * 2)),
        tuple(H * (A + G) * (D + 3) + more for G, more in ((1, 3 * H * F), *((2, 8 * H + 3 * 3 * H * 7),) * 2)),
        (2 * H, 2 * H + A, 2 * H + A), outside=2 * V * H + H, outside_active=V * H, channels=A * (D + 3)),
    "qwen3": _alike(_of("qwen3", "Qwen3ForCausalLM", head_dim=D), GQA + 3 * H * F, 2 * H + 2 * D, **UNTIED),
    "phi3": _alike(_of("phi3", "Phi3ForCausalLM"), GQA + 3 * H * F, 2 * H, **UNTIED),
    "gpt_oss": _alike(_of("gpt_oss", "GptOssForCausalLM", head_dim=D, num_local_experts=8, num_experts_per_tok=3),
        GQA + 8 * H + 8 * 3 * H * F, 2 * H + A + (A + 2 * G) * D + H + 8 + 8 * (2 * F + H),
        active=GQA + 8 * H + 3 * 3 * H * F, **UNTIED),
    "glm4_moe": Small(_of("glm4_moe", "Glm4MoeForCausalLM", attention_bias=True, use_qk_norm=True,
            first_k_dense_replace=1, n_routed_experts=8, n_shared_experts=2, num_experts_per_tok=3,
            moe_intermediate_size=7), (GQA + 3 * H * F, *(GQA + 8 * H + (8 + 2) * 3 * H * 7,) * 2),
        (GQA + 3 * H * F, *(GQA + 8 * H + (3 + 2) * 3 * H * 7,) * 2), (2 * H + 2 * D + (A + 2 * G) * D,) * L, **UNTIED),
    "gemma2": _alike(_of("gemma2", "Gemma2ForCausalLM", head_dim=D), GQA + 3 * H * F, 4 * H, **TIED),
    "gemma3_text": _alike(_of("gemma3_text", "Gemma3ForCausalLM", head_dim=D), GQA + 3 * H * F, 4 * H + 2 * D, **TIED),
    "glm4": _alike(_of("glm4", "Glm4ForCausalLM", head_dim=D), GQA + 3 * H * F, 4 * H + (A + 2 * G) * D, **UNTIED),
    "olmo2": _alike(_of("olmo2", "Olmo2ForCausalLM"), GQA + 3 * H * F, 2 * H + (A + G) * D, **UNTIED),
    "olmo3": _alike(_of("olmo3", "Olmo3ForCausalLM", attention_bias=True), GQA + 3 * H * F,
        2 * H + (A + G) * D + (A + 2 * G) * D + H, **UNTIED),
    "llama4_text": Small(_of("llama4_text", "Llama4ForCausalLM", head_dim=D, intermediate_size_mlp=50,
            interleave_moe_layer_step=2, num_local_experts=8, num_experts_per_tok=3),
        (GQA + 3 * H * 50, GQA + 8 * H + (8 + 1) * 3 * H * F, GQA + 3 * H * 50),
        (GQA + 3 * H * 50, GQA + 8 * H + (3 + 1) * 3 * H * F, GQA + 3 * H * 50), (2 * H,) * L, **UNTIED),
    "minimax_m2": _alike(_of("minimax_m2", "MiniMaxM2ForCausalLM", head_dim=D, num_local_experts=8,
            num_experts_per_tok=3), GQA + 8 * H + 8 * 3 * H * F, 2 * H + (A + G) * D,
        active=GQA + 8 * H + 3 * 3 * H * F, **UNTIED),
    "gpt_neox": _alike(_of("gpt_neox", "GPTNeoXForCausalLM"), 4 * H * H + 2 * H * F, 4 * H + 4 * H + F + H,
        outside=2 * V * H + 2 * H, outside_active=V * H, channels=2 * H),
    "falcon": _alike(_of("falcon", "FalconForCausalLM"), 2 * H * H + 2 * H * D + 8 * H * H, 2 * H,
        outside=V * H + 2 * H, outside_active=V * H, channels=2 * H),
    "falcon-grouped": _alike(_of("falcon", "FalconForCausalLM", new_decoder_architecture=True, num_kv_heads=G),
        GQA + 8 * H * H, 4 * H, outside=V * H + 2 * H, outside_active=V * H, channels=2 * H),
    "cohere": _alike(_of("cohere", "CohereForCausalLM", use_qk_norm=True), GQA + 3 * H * F, H + (A + G) * D, **TIED),
    "cohere2": _alike(_of("cohere2", "Cohere2ForCausalLM"), GQA + 3 * H * F, H, **TIED),
    "ernie4_5": _alike(_of("ernie4_5", "Ernie4_5ForCausalLM", head_dim=D, use_bias=True), GQA + 3 * H * F,
        2 * H + (A + 2 * G) * D + H + 2 * F + H, **TIED),
    "ernie4_5_moe": Small(_of("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", moe_num_experts=8, moe_k=3,
            moe_intermediate_size=7), (GQA + 3 * H * F, *(GQA + 8 * H + (8 + 2) * 3 * H * 7,) * 2),
        (GQA + 3 * H * F, *(GQA + 8 * H + (3 + 2) * 3 * H * 7,) * 2), (2 * H,) * L, **TIED),
    "hunyuan_v1_dense": _alike(_of("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", head_dim=D), GQA + 3 * H * F,
        2 * H + 2 * D, **UNTIED),
    "hunyuan_v1_moe": _alike(_of("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", head_dim=D, num_experts=8,
            moe_topk=[3] * L, moe_intermediate_size=[F] * L, num_shared_expert=[1] * L),
        GQA + 8 * H + (8 + 1) * 3 * H * F, 2 * H + 2 * D, active=GQA + 8 * H + (3 + 1) * 3 * H * F, **UNTIED),
    "gpt2": _alike(_of("gpt2", "GPT2LMHeadModel", base={}, vocab_size=V, n_embd=H, n_layer=L, n_head=A, n_positions=64,
            n_inner=None), 12 * H * H, 4 * H + 3 * H + H + 4 * H + H, outside=V * H + 64 * H + 2 * H,
        outside_active=V * H, channels=2 * H),
    "bert": _alike(_of("bert", "BertForMaskedLM", base={}, vocab_size=V, hidden_size=H, intermediate_size=F,
            num_hidden_layers=L, num_attention_heads=A, max_position_embeddings=64, type_vocab_size=2),
        4 * H * H + 2 * H * F, 4 * H + 4 * H + F + H, outside=(V + 64 + 2) * H + 2 * H + (H * H + H + 2 * H + V),
        outside_active=H * H + V * H, channels=2 * H),
    "eurobert": _alike(_of("eurobert", "EuroBertForMaskedLM"), GQA + 3 * H * F, 2 * H, **UNTIED),
    "modernbert": Small(_of("modernbert", "ModernBertForMaskedLM", num_key_value_heads=None),
        (4 * H * H + 3 * H * F,) * L, (4 * H * H + 3 * H * F,) * L, (H, 2 * H, 2 * H),
        outside=V * H + 2 * H + (H * H + H + V), outside_active=H * H + V * H, channels=2 * H),
    "mixtral": _alike(_of("mixtral", "MixtralForCausalLM", num_local_experts=8, num_experts_per_tok=3),
        GQA + 8 * H + 8 * 3 * H * F, 2 * H, active=GQA + 8 * H + 3 * 3 * H * F, **UNTIED),
    "qwen2_moe": Small(_of("qwen2_moe", "Qwen2MoeForCausalLM", **MOE, shared_expert_intermediate_size=11,
            mlp_only_layers=[1]),
        (GQA + 8 * H + 8 * 3 * H * 7 + 3 * H * 11 + H, GQA + 3 * H * F, GQA + 8 * H + 8 * 3 * H * 7 + 3 * H * 11 + H),
        (GQA + 8 * H + 3 * 3 * H * 7 + 3 * H * 11 + H, GQA + 3 * H * F, GQA + 8 * H + 3 * 3 * H * 7 + 3 * H * 11 + H),
        (2 * H + (A + 2 * G) * D,) * L, **UNTIED),
    "qwen3_moe": Small(_of("qwen3_moe", "Qwen3MoeForCausalLM", **MOE, decoder_sparse_step=2),
        (GQA + 3 * H * F, GQA + 8 * H + 8 * 3 * H * 7, GQA + 3 * H * F),
        (GQA + 3 * H * F, GQA + 8 * H + 3 * 3 * H * 7, GQA + 3 * H * F), (2 * H + 2 * D,) * L, **UNTIED),
    "deepseek_v2": Small(_of("deepseek_v2", "DeepseekV2ForCausalLM", base=MLA, q_lora_rank=None),
        (LATENT - H * 10 - 10 * A * 7 + H * A * 7 + 3 * H * F,
            *(LATENT - H * 10 - 10 * A * 7 + H * A * 7 + 8 * H + (8 + 2) * 3 * H * 7,) * 2),
        (LATENT - H * 10 - 10 * A * 7 + H * A * 7 + 3 * H * F,
            *(LATENT - H * 10 - 10 * A * 7 + H * A * 7 + 8 * H + (3 + 2) * 3 * H * 7,) * 2), (2 * H + 9,) * L,
        outside=2 * V * H + H, outside_active=V * H, channels=A * (7 + 3)),
    "deepseek_v3": Small(_of("deepseek_v3", "DeepseekV3ForCausalLM", base=MLA),
        (LATENT + 3 * H * F, *(LATENT + 8 * H + (8 + 2) * 3 * H * 7,) * 2),
        (LATENT + 3 * H * F, *(LATENT + 8 * H + (3 + 2) * 3 * H * 7,) * 2), (2 * H + 10 + 9,) * L,
        outside=2 * V * H + H, outside_active=V * H, channels=A * (7 + 3)),
    "deepseek_v32": Small(_of("deepseek_v32", "DeepseekV32ForCausalLM", base=MLA, index_n_heads=4, index_head_dim=6),
        (LATENT + INDEX + 3 * H * F, *(LATENT + INDEX + 8 * H + (8 + 2) * 3 * H * 7,) * 2),
        (LATENT + INDEX + 3 * H * F, *(LATENT + INDEX + 8 * H + (3 + 2) * 3 * H * 7,) * 2),
        (2 * H + 10 + 9 + 2 * 6,) * L, outside=2 * V * H + H, outside_active=V * H, channels=A * (7 + 3) + 4 * 6),
    "gemma": _alike(_of("gemma", "GemmaForCausalLM", head_dim=D), GQA + 3 * H * F, 2 * H, **TIED),
    "smollm3": _alike(_of("smollm3", "SmolLM3ForCausalLM", no_rope_layers=[1, 0, 1], mlp_bias=True), GQA + 3 * H * F,
        2 * H + 2 * F + H, **TIED),
    "seed_oss": _alike(_of("seed_oss", "SeedOssForCausalLM", head_dim=D), GQA + 3 * H * F, 2 * H + (A + 2 * G) * D,
        **UNTIED),
    "ministral3": _alike(_of("ministral3", "Ministral3ForCausalLM", head_dim=D), GQA + 3 * H * F, 2 * H, **UNTIED),
    "apertus": _alike(_of("apertus", "ApertusForCausalLM", attention_bias=True), GQA + 2 * H * F,
        2 * H + 2 * D + 2 + (A + 2 * G) * D + H, **UNTIED),
    "arcee": _alike(_of("arcee", "ArceeForCausalLM", mlp_bias=True), GQA + 2 * H * F, 2 * H + F + H, **UNTIED),
    "granite": _alike(_of("granite", "GraniteForCausalLM", attention_bias=True), GQA + 3 * H * F,
        2 * H + (A + 2 * G) * D + H, **UNTIED),
    "granitemoe": _alike(_of("granitemoe", "GraniteMoeForCausalLM", num_local_experts=8, num_experts_per_tok=3),
        GQA + 8 * H + 8 * 3 * H * F, 2 * H, active=GQA + 8 * H + 3 * 3 * H * F, **UNTIED),
    "exaone4": _alike(_of("exaone4", "Exaone4ForCausalLM"), GQA + 3 * H * F, 2 * H + 2 * D, **UNTIED),
    "exaone_moe": Small(_of("exaone_moe", "ExaoneMoeForCausalLM", **MOE, num_shared_experts=2),
        (GQA + 3 * H * F, *(GQA + 8 * H + (8 + 2) * 3 * H * 7,) * 2),
        (GQA + 3 * H * F, *(GQA + 8 * H + (3 + 2) * 3 * H * 7,) * 2), (2 * H + 2 * D,) * L, **UNTIED),
    "solar_open": _alike(_of("solar_open", "SolarOpenForCausalLM", head_dim=D, n_routed_experts=8,
            num_experts_per_tok=3, moe_intermediate_size=7), GQA + 8 * H + (8 + 1) * 3 * H * 7, 2 * H,
        active=GQA + 8 * H + (3 + 1) * 3 * H * 7, **UNTIED),
    "glm4_moe_lite": Small(_of("glm4_moe_lite", "Glm4MoeLiteForCausalLM", base=MLA, mlp_layer_types=["sparse", "dense",
            "sparse"]), tuple(LATENT + (8 * H + (8 + 2) * 3 * H * 7 if sparse else 3 * H * F) for sparse in (1, 0, 1)),
        tuple(LATENT + (8 * H + (3 + 2) * 3 * H * 7 if sparse else 3 * H * F) for sparse in (1, 0, 1)),
        (2 * H + 10 + 9,) * L, outside=2 * V * H + H, outside_active=V * H, channels=A * (7 + 3)),
    "glm_moe_dsa": Small(_of("glm_moe_dsa", "GlmMoeDsaForCausalLM", base=MLA, index_n_heads=4, index_head_dim=6,
            indexer_types=["full"] * L),
        (LATENT + INDEX + 3 * H * F, *(LATENT + INDEX + 8 * H + (8 + 2) * 3 * H * 7,) * 2),
        (LATENT + INDEX + 3 * H * F, *(LATENT + INDEX + 8 * H + (3 + 2) * 3 * H * 7,) * 2),
        (2 * H + 10 + 9 + 2 * 6,) * L, outside=2 * V * H + H, outside_active=V * H, channels=A * (7 + 3) + 4 * 6),
    "mistral4": _alike(_of("mistral4", "Mistral4ForCausalLM", base=MLA, first_k_dense_replace=0),
        LATENT + 8 * H + (8 + 2) * 3 * H * 7, 2 * H + 10 + 9, active=LATENT + 8 * H + (3 + 2) * 3 * H * 7,
        outside=2 * V * H + H, outside_active=V * H, channels=A * (7 + 3)),
    "youtu": _alike(_of("youtu", "YoutuForCausalLM", base=MLA), LATENT + 3 * H * F, 2 * H + 10 + 9, outside=V * H + H,
        outside_active=V * H, channels=A * (7 + 3)),
}  # fmt: skip

Load = Callable[..., OperatorGraph]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `small` runs once per small configuration."""
    if "small" in metafunc.fixturenames:
        metafunc.parametrize("small", SMALL.values(), ids=SMALL.keys())


@pytest.fixture(scope="session")
def load() -> Load:
    """Build a source's graph: `load(source, sequence_length=..., attention=..., precision=...)`."""

    def build(source: Any, sequence_length: int | None = 32, **training: Any) -> OperatorGraph:
        asked = Training(global_batch=1, sequence_length=sequence_length, **training)
        accepting = [each for each in nest_model_importers() if each.accepts(source)]
        assert len(accepting) == 1, [each.name for each in accepting]
        return accepting[0].load(source, asked)

    return build


@pytest.fixture(scope="session")
def llama() -> dict[str, Any]:
    """A small Llama configuration."""
    return dict(LLAMA)


@pytest.fixture(scope="session")
def deepseek() -> dict[str, Any]:
    """A small DeepSeek-V3 configuration."""
    return dict(SMALL["deepseek_v3"].config)


@pytest.fixture(scope="session")
def gpt2() -> dict[str, Any]:
    """A small GPT-2 configuration."""
    return dict(SMALL["gpt2"].config)


@pytest.fixture(scope="session")
def small_ernie() -> dict[str, Any]:
    """A small configuration of ERNIE 4.5 with experts."""
    return dict(SMALL["ernie4_5_moe"].config)
