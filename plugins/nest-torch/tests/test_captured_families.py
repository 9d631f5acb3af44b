"""Models of transformers, captured: a Llama costs what nest's own does, a Mamba has an operator for each loop."""

import json
from typing import Any

import pytest

import nest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pip install torch` lets these tests run")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import nest_torch  # noqa: E402
from nest_torch.inputs import inputs  # noqa: E402

LLAMA_7B = {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32}
"""https://huggingface.co/huggyllama/llama-7b, config.json"""

SEQUENCE = 2048
TOLERANCE = 0.03
"""Queries, keys and values, and both halves of the gated network, are products of their own in transformers' code.

The host launches each, which takes it longer at small shares of the widths; `graphs` leave the device's time alone.
"""


def captured(make: Any, length: int = SEQUENCE) -> Any:
    with torch.device("meta"):
        module = make().bfloat16()
    return nest_torch.capture(module, (torch.zeros(1, length, dtype=torch.long, device="meta"),))


@pytest.mark.parametrize("layers", [2, pytest.param(32, marks=pytest.mark.slow)])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_captured_llama_costs_what_the_built_in_one_does(layers: int, attention: str) -> None:
    sizes = {**LLAMA_7B, "num_hidden_layers": layers, "max_position_embeddings": SEQUENCE}
    config = transformers.LlamaConfig(**sizes, attn_implementation=attention)
    graph = captured(lambda: transformers.LlamaForCausalLM(config))
    built_in = {**sizes, "model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    cluster = {"device": "h100-sxm", "levels": [{"name": "node", "fanout": 8, "link": "nvlink4"}]}
    for fixed in ({"tp": 1, "pp": 1}, {"tp": 4, "pp": 1, "sp": True}, {"tp": 2, "pp": 2, "recompute": "full"}):
        times, memory = [], []
        for model in (graph, built_in):
            training = {"global_batch": 32, "sequence_length": SEQUENCE, "micro_batch": [1], "loss": "unfused"}
            problem = {
                "nest": 1,
                "model": model,
                "cluster": cluster,
                "training": {**training, "schedule": "1f1b", "graphs": "iteration"},
                "search": {"target": "pytorch"},
                "fixed": {"recompute": "none", "zero": 1, **fixed},
            }
            plan = nest.solve(problem)
            assert plan.batch_time is not None
            times.append(plan.batch_time)
            memory.append(plan.stages[0].memory)
        assert times[0] == pytest.approx(times[1], rel=TOLERANCE), fixed
        assert memory[0] == pytest.approx(memory[1], rel=TOLERANCE), fixed


def test_captured_experts_keep_what_the_built_in_ones_do_and_their_last_product() -> None:
    """Code of transformers weights the sum of experts after the last product, Megatron Core's before it."""
    sizes = {"vocab_size": 256, "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "head_dim": 64}
    experts = {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 192}
    config = transformers.Qwen3MoeConfig(**sizes, **experts, num_key_value_heads=4, intermediate_size=1024)
    built_in = {**json.loads(config.to_json_string()), "architectures": ["Qwen3MoeForCausalLM"]}
    kept = []
    for model in (captured(lambda: transformers.Qwen3MoeForCausalLM(config)), built_in):
        problem = {
            "nest": 1,
            "model": model,
            "cluster": {"device": "h100-sxm", "levels": [{"name": "node", "fanout": 1, "link": "nvlink4"}]},
            "training": {"global_batch": 1, "sequence_length": SEQUENCE},
            "search": {"target": "none"},
            "fixed": {"recompute": "none", "zero": 0},
        }
        kept.append(nest.evaluate(problem).stages[0].memory_breakdown.activations)
    last_product = 4 * SEQUENCE * 4 * 512 * 2
    assert kept[0] - last_product == pytest.approx(kept[1], rel=0.02)


@pytest.mark.parametrize(("family", "head"), [("Llama", "ForCausalLM"), ("GPT2", "LMHeadModel")])
def test_a_model_that_would_keep_keys_and_values_is_captured_as_one_that_does_not(family: str, head: str) -> None:
    config, make = getattr(transformers, f"{family}Config"), getattr(transformers, f"{family}{head}")
    sizes = {"vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    keeping, plain = (captured(lambda kept=kept: make(config(**sizes, use_cache=kept)), 32) for kept in (True, False))
    assert keeping == plain


def test_queries_keys_and_values_of_one_product_have_their_heads() -> None:
    """GPT-2 makes them together, with a bias that has all their dimensions and is no second tensor of the product."""
    config = transformers.GPT2Config(vocab_size=256, n_embd=64, n_layer=2, n_head=8, n_positions=64)
    graph = captured(lambda: transformers.GPT2LMHeadModel(config), 32)
    heads = {size for each in graph.operators for name, size in each.space if name.startswith("heads")}
    assert heads == {8}


def t5() -> Any:
    sizes = {"vocab_size": 256, "d_model": 64, "d_kv": 8, "d_ff": 176, "num_heads": 8, "decoder_start_token_id": 0}
    config = transformers.T5Config(**sizes, num_layers=3, num_decoder_layers=2)
    return transformers.T5ForConditionalGeneration(config)


def whisper() -> Any:
    widths = {"d_model": 64, "encoder_attention_heads": 8, "decoder_attention_heads": 8, "num_mel_bins": 16}
    sizes = {**widths, "encoder_ffn_dim": 176, "decoder_ffn_dim": 176, "encoder_layers": 3, "decoder_layers": 2}
    tokens = {"vocab_size": 256, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, "decoder_start_token_id": 1}
    config = transformers.WhisperConfig(**sizes, **tokens, max_source_positions=32, max_target_positions=32)
    return transformers.WhisperForConditionalGeneration(config)


TOWERS: list[tuple[Any, list[str], tuple[str, str]]] = [
    (
        t5,
        ["decoder_input_ids=int64[batch,target=8]", "input_ids=int64[batch,sequence=16]"],
        ("encoder.block", "decoder.block"),
    ),
    (
        whisper,
        ["input_features=float[batch,16,64]", "decoder_input_ids=int64[batch,sequence=8]"],
        ("model.encoder.layers", "model.decoder.layers"),
    ),
]


@pytest.mark.parametrize(("make", "given", "towers"), TOWERS, ids=["t5", "whisper"])
def test_two_towers_are_captured_by_keyword(make: Any, given: list[str], towers: tuple[str, str]) -> None:
    """Both lists of blocks are layers; what the second reads its tokens with belongs to it."""
    with torch.device("meta"):
        module = make().bfloat16()
    read = inputs(given, "bf16")
    graph = nest_torch.capture(module, read.positional, keywords=read.keywords, axes=read.axes)
    first, second = ([f"{name}.{index}" for index in range(count)] for name, count in zip(towers, (3, 2), strict=True))
    assert graph.layers == ("embedding", *first, *second, "head")
    (table,) = (each for each in graph.operators if each.kind == "embedding" and "decoder.embed_tokens" in each.name)
    assert table.layer == second[0]
    assert graph.parameter_count == sum(each.numel() for each in module.parameters())


def test_a_clip_compares_its_samples_and_is_planned() -> None:
    """Two towers and pictures; what is compared grows with the square of the micro-batch."""
    sizes = {"intermediate_size": 128, "num_attention_heads": 4, "hidden_size": 64}
    text = {**sizes, "num_hidden_layers": 2, "vocab_size": 100, "max_position_embeddings": 16}
    vision = {**sizes, "num_hidden_layers": 3, "image_size": 32, "patch_size": 8}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=32)
    with torch.device("meta"):
        module = transformers.CLIPModel(config)
        given = {"input_ids": torch.zeros(1, 16, dtype=torch.long), "pixel_values": torch.zeros(1, 3, 32, 32)}
    graph = nest_torch.capture(module, (), keywords={**given, "return_loss": True})
    assert graph.assumptions == ("samples are compared with those of their micro-batch on their device (head/matmul).",)
    pairs = [
        sum(each.flops for each in graph.with_samples(samples).operators if each.name == "head/matmul")
        for samples in (1, 8)
    ]
    assert pairs == [2 * 32, 2 * 32 * 8 * 8]
    problem = {
        "nest": 1,
        "model": graph,
        "training": {"global_batch": 64, "micro_batch": [8]},
        "cluster": {"device": "h100-sxm", "levels": [{"name": "node", "fanout": 2, "link": "nvlink4"}]},
    }
    assert nest.solve(problem).status == "optimal"
