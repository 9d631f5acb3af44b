"""Random plans that Megatron-LM can run."""

from typing import Any

from hypothesis import strategies as st

LEVELS = [
    {"name": "node", "fanout": 8, "bandwidth": "450 GB/s", "latency": "3 us"},
    {"name": "rail", "fanout": 4, "bandwidth": "50 GB/s", "latency": "6 us"},
]

MODELS: dict[str, Any] = {
    "dense": {"transformer": {"layers": 12, "hidden": 256, "ffn": 768, "heads": 8, "kv_heads": 4, "vocab": 1000}},
    "experts": {
        "transformer": {
            "layers": 12,
            "hidden": 256,
            "ffn": 768,
            "heads": 8,
            "vocab": 1000,
            "experts": 8,
            "top_k": 2,
            "moe_ffn": 256,
            "shared_expert_ffn": 512,
            "dense_layers": 3,
        }
    },
    "latent": {
        "transformer": {
            "layers": 12,
            "hidden": 256,
            "ffn": 768,
            "heads": 8,
            "vocab": 1000,
            "experts": 8,
            "top_k": 2,
            "moe_ffn": 256,
            "mla": {
                "q_lora_rank": 64,
                "kv_lora_rank": 32,
                "qk_nope_head_dim": 32,
                "qk_rope_head_dim": 16,
                "v_head_dim": 32,
            },
        }
    },
    "window": {
        "transformer": {"layers": 12, "hidden": 256, "ffn": 768, "heads": 8, "vocab": 1000, "sliding_window": 128}
    },
    "predicting": {
        "transformer": {
            "layers": 12,
            "hidden": 256,
            "ffn": 768,
            "heads": 8,
            "vocab": 1000,
            "experts": 8,
            "top_k": 2,
            "moe_ffn": 256,
            "dense_layers": 1,
            "mtp_layers": 1,
        }
    },
    "gpt2": {"model_type": "gpt2", "n_layer": 12, "n_embd": 256, "n_head": 8, "n_positions": 512, "vocab_size": 1000},
    "qwen2": {
        "model_type": "qwen2",
        "num_hidden_layers": 12,
        "hidden_size": 256,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 1000,
        "intermediate_size": 768,
        "use_sliding_window": True,
        "sliding_window": 64,
        "max_window_layers": 5,
        "tie_word_embeddings": True,
    },
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        "num_hidden_layers": 12,
        "hidden_size": 256,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "vocab_size": 1000,
        "intermediate_size": 768,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 256,
        "decoder_sparse_step": 2,
    },
    "biased": {
        "model_type": "llama",
        "num_hidden_layers": 12,
        "hidden_size": 256,
        "num_attention_heads": 8,
        "vocab_size": 1000,
        "intermediate_size": 768,
        "attention_bias": True,
        "mlp_bias": True,
    },
}

SPARSE = ("experts", "latent", "predicting", "qwen3_moe")


@st.composite
def interleaved(draw: st.DrawFn, blocks: int, pp: int, chunks: int) -> list[list[str]]:
    """The layers of each stage in chunks of any size."""
    count = pp * chunks
    cuts = sorted(draw(st.lists(st.integers(1, blocks - 1), min_size=count - 1, max_size=count - 1, unique=True)))
    names = [f"layers.{number}" for number in range(blocks)]
    runs = [names[start:end] for start, end in zip([0, *cuts], [*cuts, blocks], strict=True)]
    runs[0].insert(0, "embedding")
    runs[-1].append("head")
    return [[name for run in runs[stage::pp] for name in run] for stage in range(pp)]


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    """A problem on four nodes whose decisions are taken, and taken so that Megatron-LM can run them."""
    name = draw(st.sampled_from(sorted(MODELS)))
    sparse = name in SPARSE
    tp, cp, pp = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2, 3, 4]))
    cp = 1 if name in ("window", "qwen2") else cp
    etp = draw(st.sampled_from(sorted({1, tp}))) if sparse else 1
    ep = draw(st.sampled_from([1, 2, 4])) if sparse else 1
    width = max(tp * cp, ep * etp)
    pp = min(pp, 32 // width)
    # Blocks lie at multiples of their width: powers of two fill the nodes.
    replicas = draw(st.sampled_from([d for d in (1, 2, 4) if d * width * pp <= 32]))
    chunks = draw(st.sampled_from([1, 2, 3])) if pp in (2, 4) else 1
    blocks = 12 + (name == "predicting")
    even = blocks % (pp * chunks) == 0
    zero = draw(st.sampled_from([0, 1])) if pp > 1 else draw(st.sampled_from([0, 1, 2, 3]))
    copies = width // (tp * cp)
    micro_batch = draw(st.sampled_from([1, 2]))
    overlap = {"data": draw(st.booleans()), "tensor": draw(st.booleans()) and not sparse, "experts": False}
    sp = tp > 1 and (sparse or overlap["tensor"] or draw(st.booleans()))
    fixed: dict[str, Any] = {
        "tp": tp,
        "cp": cp,
        "sp": sp,
        "pp": pp,
        "dp": replicas * copies,
        "micro_batch": micro_batch,
        "zero": zero,
        "recompute": draw(st.sampled_from(["none", "selective", "full"])),
        "rank_order": draw(st.sampled_from(["dp-inner", "pp-inner"])),
    }
    if sparse:
        fixed |= {"ep": ep, "etp": etp}
    if chunks > 1:
        fixed |= {"schedule": "interleaved", "chunks": chunks}
        if not even or draw(st.booleans()):
            fixed["stages"] = draw(interleaved(blocks, pp, chunks))
    elif draw(st.booleans()) and pp > 1:
        cuts = sorted(draw(st.lists(st.integers(1, blocks - 1), min_size=pp - 1, max_size=pp - 1, unique=True)))
        fixed["stages"] = [b - a for a, b in zip([0, *cuts], [*cuts, blocks], strict=True)]
    elif blocks % pp:
        fixed["stages"] = [blocks - (pp - 1), *[1] * (pp - 1)]
    most = 12 // (pp * chunks)  # What the largest chunk has at least.
    if fixed["recompute"] == "full" and name != "predicting" and most > 1 and draw(st.booleans()):
        fixed["recompute_layers"] = draw(st.integers(1, most - 1))
    selective = draw(st.sampled_from([["attention"], ["attention_norm", "mlp_norm"]]))
    return {
        "nest": 1,
        "model": MODELS[name],
        "training": {
            "global_batch": 16 * micro_batch * replicas * copies * pp,
            "sequence_length": 256,
            "schedule": ["1f1b", "interleaved"],
            "overlap": overlap,
            "precision": draw(st.sampled_from(["bf16", "fp16", "fp32"])),
            "selective": selective,
        },
        "cluster": {"device": "h100-sxm", "levels": LEVELS},
        "fixed": fixed,
    }
