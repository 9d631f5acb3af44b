"""Saved tensors of blocks by PyTorch's hooks, run by operators or compiled, beside those of nest; each gap has a name.

Kernels of flash-linear-attention and mamba_ssm save the same without a GPU: their launches, which write numbers only,
are left out. Both are installed where these tests are to run: `pip install --no-deps triton fla-core einops`; of
mamba_ssm's source only `mamba_ssm/ops` is read.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from nest.formulate.model import load_model, saved_bytes
from nest.hooks.registry import registry
from nest.spec import Training

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pip install torch` lets these tests run")

TOKENS = 48
HIDDEN, HEADS, KEYS, HEAD = 48, 8, 2, 6
SIZES = {"vocab_size": 100, "hidden_size": HIDDEN, "intermediate_size": 96, "num_hidden_layers": 2}
LLAMA = {"model_type": "llama", **SIZES, "num_attention_heads": HEADS, "num_key_value_heads": KEYS}
LATENT = {
    **LLAMA, "model_type": "deepseek_v3", "num_key_value_heads": HEADS, "q_lora_rank": 10, "kv_lora_rank": 9,
    "qk_nope_head_dim": 5, "qk_rope_head_dim": 2, "v_head_dim": 7, "first_k_dense_replace": 2, "n_routed_experts": 8,
    "n_shared_experts": 1, "num_experts_per_tok": 3, "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1,
}  # fmt: skip
INDEXED = {**LATENT, "model_type": "glm_moe_dsa", "index_n_heads": 4, "index_head_dim": 6, "index_topk": 20}
CHUNKED = {
    **LLAMA, "model_type": "llama4_text", "head_dim": HEAD, "attention_chunk_size": 16, "num_local_experts": 8,
    "num_experts_per_tok": 1, "intermediate_size_mlp": 96, "interleave_moe_layer_step": 2,
}  # fmt: skip
ROUTED = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
GPT2 = {"model_type": "gpt2", "vocab_size": 100, "n_embd": HIDDEN, "n_layer": 2, "n_head": HEADS, "n_positions": 64}
GPT2 |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}

NORMS = {"a number of each norm, which nest leaves out (arXiv 2205.05198, section 4.1)": 2 * 4}
LATENT_NORMS = {"the same of queries' and keys' latents": 2 * 4}
TABLES = {"cosines and sines, which all blocks share": 2 * 2 * HEAD}
LATENT_TABLES = {"cosines and sines of the rotated channels": 2 * 2 * 2}
MASK = {
    "a mask, where a flash-attention kernel has a window": 2 * TOKENS,
    "keys and values once for each head, as the CPU's kernel wants them with a mask": 2 * 2 * (HEADS - KEYS) * HEAD,
}
VIEW = {"plain keys, of whose storage values are a view": 2 * HEADS * 5}
COPY = {"the result of attention in the order of heads, which the CPU's kernel gives": 2 * HEADS * 7}
CHOICES = {
    "numbers of chosen experts, the order by expert and back": 4 * 2 * 8,
    "ends of each expert's rows": 4 * 8 / TOKENS,
    "results of experts, which transformers weighs in place of activations": 2 * 2 * HIDDEN,
}
WEIGHTS = {"weights of chosen experts before their division, and the sum": 4 * 2 + 4}
INDEXER = {"the indexer, which transformers does not train": -2 * (2 * 6 + 2 * 4 * 6 + 4) - 4 * 20}
LAYER_NORMS = {"mean and deviation of each norm": 2 * 2 * 2}

CASES = {
    "full, eager": (LLAMA, "sdpa", False, {**NORMS, **TABLES}),
    "full, compiled": (LLAMA, "sdpa", True, {**NORMS, **TABLES}),
    "sliding, eager": ({**LLAMA, "model_type": "mistral", "sliding_window": 10}, "sdpa", False,
        {**NORMS, **TABLES, **MASK}),
    "chunked, eager": (CHUNKED, "sdpa", False, {**NORMS, **TABLES, **MASK,
        "a number of each head's norm": 4 * (HEADS + KEYS)}),
    "latent, eager": (LATENT, "sdpa", False, {**NORMS, **LATENT_NORMS, **LATENT_TABLES, **VIEW, **COPY}),
    "indexed, scores stored": ({**INDEXED, "v_head_dim": 3}, "eager", False,
        {**NORMS, **LATENT_NORMS, **LATENT_TABLES, **VIEW, **INDEXER}),
    "experts, eager": (ROUTED, "sdpa", False, {**NORMS, **TABLES, **CHOICES, **WEIGHTS}),
    "experts, compiled": (ROUTED, "sdpa", True, {**NORMS, **TABLES, **CHOICES}),
    "plain network, compiled": (GPT2, "sdpa", True, LAYER_NORMS),
}  # fmt: skip
"""Configuration, attention, whether the block is compiled, and what PyTorch saves more in bytes per token."""


@contextmanager
def watching(found: dict[int, int]) -> Iterator[None]:
    """Note the bytes of each storage that autograd keeps, by its place."""
    kept = []  # Else another tensor takes the place.

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        found.setdefault(storage.data_ptr(), storage.nbytes())
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield


def theirs(config: dict[str, Any], attention: str, compiled: bool) -> float:
    """Bytes per token that PyTorch saves in the first block of a model of transformers, parameters apart."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch._dynamo.reset()
    given = transformers.AutoConfig.for_model(**config)
    make = transformers.AutoModelForCausalLM.from_config
    model = make(given, attn_implementation=attention).bfloat16().train()
    block = next(part for part in model.modules() if isinstance(part, torch.nn.ModuleList) and len(part) == 2)[0]
    inner = torch.compile(block.forward, backend="aot_eager_decomp_partition") if compiled else block.forward
    found: dict[int, int] = {}

    def forward(*positional: Any, **named: Any) -> Any:
        with watching(found):
            return inner(*positional, **named)

    block.forward = forward
    model(input_ids=torch.arange(TOKENS)[None], use_cache=False)
    held = {each.untyped_storage().data_ptr() for each in (*model.parameters(), *model.buffers())}
    return sum(size for place, size in found.items() if place not in held) / TOKENS


def graph_of(config: dict[str, Any], **training: Any) -> Any:
    asked = Training(global_batch=1, sequence_length=TOKENS, precision="bf16", **training)
    return load_model(dict(config), asked, registry())


@pytest.mark.longer
@pytest.mark.parametrize("case", CASES)
def test_a_block_saves_what_nest_counts_and_what_has_a_name(case: str) -> None:
    config, attention, compiled, more = CASES[case]
    kernels, stored = "fused" if compiled else "eager", "unfused" if attention == "eager" else "flash"
    ours = saved_bytes(graph_of(config, kernels=kernels, attention=stored).by_layer[1]) / TOKENS
    assert theirs(config, attention, compiled) - ours == pytest.approx(sum(more.values()))


@pytest.fixture
def unlaunched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's kernels write nothing, and no device is chosen for them."""
    pytest.importorskip("triton", reason="Triton is not installed")
    from triton.runtime import autotuner, jit

    for kind in (jit.JITFunction, autotuner.Autotuner, autotuner.Heuristics):
        monkeypatch.setattr(kind, "run", lambda *_, **__: None)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())


def scan_saves(config: dict[str, Any]) -> float:
    """Bytes per token that nest counts for the scan of the first block, and for what is read of the gate before."""
    operators = graph_of(config, kernels="fused").by_layer[1]
    sizes = {each.name: each.bytes for one in operators for each in (*one.inputs, *one.outputs)}
    scans = ("convolution", "scan", "gated") if config["model_type"] == "bamba" else ("scan",)
    inside = [one for one in operators if one.name.rpartition("/")[2] in scans]
    return sum(sizes[name] for name in {name for one in inside for name in one.saves}) / TOKENS


def numbers(*last: int, dtype: Any = None) -> Any:
    return torch.rand(1, TOKENS, *last, dtype=dtype or torch.bfloat16, requires_grad=True)


DELTA = {
    **LLAMA, "layer_types": ["linear_attention", "full_attention"], "linear_num_value_heads": 8, "head_dim": HEAD,
    "linear_num_key_heads": 8, "linear_key_head_dim": 16, "linear_value_head_dim": 32,
}  # fmt: skip


@pytest.mark.usefixtures("unlaunched")
def test_a_gated_delta_rule_saves_what_its_kernel_does() -> None:
    rule = pytest.importorskip("fla.ops.gated_delta_rule", reason="flash-linear-attention is not installed")
    rows = [numbers(8, 16), numbers(8, 16), numbers(8, 32), -numbers(8, dtype=torch.float32), numbers(8)]
    found: dict[int, int] = {}
    with watching(found):
        rule.chunk_gated_delta_rule(*rows, chunk_size=64)
    ours = scan_saves({**DELTA, "model_type": "qwen3_5"})
    # The kernel keeps the inverse for whole chunks of 64.
    assert sum(found.values()) / TOKENS == ours + 2 * 8 * (64 - min(64, TOKENS))


@pytest.mark.usefixtures("unlaunched")
def test_kimi_delta_attention_saves_a_product_more_but_no_logarithms_of_decays() -> None:
    """Its kernel keeps queries met with keys, and takes decays as they are; nest counts their fp32 logarithms."""
    rule = pytest.importorskip("fla.ops.kda", reason="flash-linear-attention is not installed")
    rows = [numbers(8, 16), numbers(8, 16), numbers(8, 16), numbers(8, 16), numbers(8)]
    learned = {"A_log": torch.rand(8, requires_grad=True), "dt_bias": torch.rand(8 * 16, requires_grad=True)}
    found: dict[int, int] = {}
    with watching(found):
        rule.chunk_kda(*rows, use_gate_in_kernel=True, **learned)
    weights = {each.untyped_storage().data_ptr() for each in learned.values()}
    kept = sum(size for place, size in found.items() if place not in weights) / TOKENS
    linear = {"head_dim": 16, "num_heads": 8, "short_conv_kernel_size": 4, "full_attn_layers": [2]}
    ours = scan_saves({**LATENT, "model_type": "kimi_linear", "num_experts": 8, "linear_attn_config": linear})
    logarithms, decays, met, rest = 4 * 8 * 16, 2 * 8 * 16, 2 * 8 * 64, 2 * 8 * (64 - TOKENS)
    assert kept == ours - logarithms + decays + met + rest


@pytest.mark.usefixtures("unlaunched")
def test_lightning_attention_saves_what_its_kernel_does() -> None:
    kernel = pytest.importorskip("fla.ops.lightning_attn", reason="flash-linear-attention is not installed")
    found: dict[int, int] = {}
    with watching(found):
        kernel.chunk_lightning_attn(*(numbers(HEADS, 16) for _ in range(3)), 0, 2)
    kinds = {"layer_types": ["linear_attention", "full_attention"], "num_local_experts": 8, "num_experts_per_tok": 2}
    config = {**LLAMA, **kinds, "model_type": "minimax", "head_dim": 16}
    assert sum(found.values()) / TOKENS == scan_saves(config) + 4 * HEADS / TOKENS  # A decay for each head.


@pytest.mark.usefixtures("unlaunched")
def test_mamba_2_saves_what_its_kernel_does(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = pytest.importorskip("mamba_ssm.ops.triton.ssd_combined", reason="mamba_ssm is not installed")
    monkeypatch.setattr(kernels, "causal_conv1d_fwd_function", lambda source, *_: torch.empty_like(source))
    heads, head, groups, state = 8, 12, 2, 16
    inner, both = heads * head, heads * head + 2 * groups * state
    learned = [torch.rand(*shape, requires_grad=True) for shape in ((both, 4), (both,), (heads,), (heads,), (heads,))]
    found: dict[int, int] = {}
    with watching(found):
        kernels.mamba_split_conv1d_scan_combined(
            numbers(inner + both + heads), *learned, 16, rmsnorm_weight=torch.rand(inner), headdim=head, ngroups=groups
        )
    weights = {each.untyped_storage().data_ptr() for each in learned}
    kept = sum(size for place, size in found.items() if place not in weights) / TOKENS
    sizes = {"mamba_n_heads": heads, "mamba_d_head": head, "mamba_n_groups": groups, "mamba_d_state": state}
    ours = scan_saves({**LLAMA, **sizes, "model_type": "bamba", "attn_layer_indices": [1]})
    assert kept == pytest.approx(ours + 4 * groups + 4 * inner / TOKENS)  # A number of each group's norm; its weight.
