"""Models of transformers, captured: a Llama costs what nest's own does, a Mamba has an operator for each loop."""

from typing import Any

import pytest

import nest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pip install torch` lets these tests run")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import nest_torch  # noqa: E402

LLAMA_7B = {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32}
"""https://huggingface.co/huggyllama/llama-7b, config.json"""

SEQUENCE = 2048
TOLERANCE = 0.03
"""Queries, keys and values, and both halves of the gated network, are products of their own in transformers' code."""


def captured(make: Any, length: int = SEQUENCE) -> Any:
    with torch.device("meta"):
        module = make().bfloat16()
    return nest_torch.capture(module, (torch.zeros(1, length, dtype=torch.long, device="meta"),))


@pytest.mark.parametrize("layers", [2, pytest.param(32, marks=pytest.mark.slow)])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_captured_llama_costs_what_the_built_in_one_does(layers: int, attention: str) -> None:
    sizes = {**LLAMA_7B, "num_hidden_layers": layers, "max_position_embeddings": SEQUENCE}
    config = transformers.LlamaConfig(**sizes, use_cache=False, attn_implementation=attention)
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
                "training": {**training, "schedule": "1f1b"},
                "search": {"target": "pytorch"},
                "fixed": {"recompute": "none", "zero": 1, **fixed},
            }
            plan = nest.solve(problem)
            assert plan.batch_time is not None
            times.append(plan.batch_time)
            memory.append(plan.stages[0].memory)
        assert times[0] == pytest.approx(times[1], rel=TOLERANCE), fixed
        assert memory[0] == pytest.approx(memory[1], rel=TOLERANCE), fixed


@pytest.mark.slow
def test_a_mamba_has_one_operator_for_each_loop() -> None:
    config = transformers.MambaConfig(num_hidden_layers=24, use_cache=False)
    graph = captured(lambda: transformers.MambaForCausalLM(config))
    assert sum(each.kind == "scan" for each in graph.operators) == 24
    assert len(graph.operators) < 24 * 20
    assert len(graph.blocks) == 24
