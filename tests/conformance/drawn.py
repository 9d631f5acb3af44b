"""Random plans that a framework can run: its own limits say which decisions are worth drawing."""

from collections.abc import Iterator
from random import Random
from typing import Any

import nest
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.io import structure
from nest.spec import PlanDocument, Problem
from tests.conformance.plans import DENSE_MODEL, EXPERT_MODEL

HEADS: dict[str, Any] = {"num_hidden_layers": 8, "hidden_size": 256, "num_attention_heads": 8, "vocab_size": 1024}
LLAMA: dict[str, Any] = {**HEADS, "num_key_value_heads": 4, "intermediate_size": 1024}
MODELS: dict[str, Any] = {
    "dense": {"transformer": DENSE_MODEL},
    "experts": {"transformer": EXPERT_MODEL},
    "gpt2": {"model_type": "gpt2", "n_layer": 8, "n_embd": 256, "n_head": 8, "n_positions": 512, "vocab_size": 1024},
    "llama": {"model_type": "llama", **LLAMA},
    "mixtral": {"model_type": "mixtral", **LLAMA, "num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2": {"model_type": "qwen2", **LLAMA, "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", **LLAMA, "head_dim": 32},
    "qwen3_moe": {
        "model_type": "qwen3_moe", **LLAMA, "head_dim": 32, "num_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 256,
    },
    "deepseek_v3": {
        "model_type": "deepseek_v3", **HEADS, "intermediate_size": 1024, "moe_intermediate_size": 256,
        "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
        "q_lora_rank": 64, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 32, "v_head_dim": 32,
        "n_group": 1, "topk_group": 1,
    },
}  # fmt: skip
TRAININGS: tuple[dict[str, Any], ...] = (
    *({},) * 4,
    {"precision": "fp32"},
    {"precision": "fp8"},
    {"gradients": "bf16"},
    {"optimizer": "sgd-momentum"},
    {"offload": ["optimizer"]},
    {"overlap": {"data": True, "tensor": False}},
    {"overlap": {"data": False, "tensor": False}},
)
UNEVEN = {2: [3, 5], 4: [1, 3, 2, 2]}
"""Blocks of each stage."""
NODES = (1, 2, 8)
MOST_TRIES = 4000


def plans(name: str, count: int, seed: int = 65) -> Iterator[tuple[str, PlanDocument, dict[str, str]]]:
    """Yield the kind, the plan and the files of `count` plans that the exporter `name` writes.

    Fewer, where `MOST_TRIES` draws have no more.
    """
    random = Random(f"{seed} {name}")
    exporter = registry().exporters()[name]
    found, seen = 0, set[str]()
    for _ in range(MOST_TRIES):
        if found == count:
            return
        kind, problem = _problem(random)
        try:
            limits = exporter.limits(structure(problem, Problem))
            problem["fixed"] = _decisions(random, limits, 8 * problem["cluster"]["levels"][1]["fanout"], kind)
            if repr(problem) in seen:
                continue
            seen.add(repr(problem))
            made = nest.evaluate(problem)
            files = dict(exporter.export(made))
        except InputError:  # Beyond the framework, or no plan at all.
            continue
        found += 1
        yield kind, made, files


def _problem(random: Random) -> tuple[str, dict[str, Any]]:
    kind = random.choice(list(MODELS))
    training = random.choice(TRAININGS)
    return kind, {
        "nest": 1,
        "model": MODELS[kind],
        "training": {"global_batch": 128, "sequence_length": 512, "micro_batch": [1, 2], **training},
        "cluster": {
            "device": "h100-sxm",
            "levels": [
                {"name": "node", "fanout": 8, "bandwidth": "450 GB/s", "latency": "3 us"},
                {"name": "rail", "fanout": random.choice(NODES), "bandwidth": "50 GB/s", "latency": "6 us"},
            ],
        },
    }


def _decisions(random: Random, limits: Any, devices: int, kind: str) -> dict[str, Any]:
    """Return decisions on all devices, of those within the limits that do not depend on each other."""
    able = limits.strategies

    def degree(strategy: str, *degrees: int) -> int:
        return random.choice(degrees) if able is None or strategy in able else 1

    tp, cp = degree("tp", 1, 2, 2, 4), degree("cp", 1, 1, 1, 2)
    schedule = random.choice(limits.schedules or ("1f1b",))
    piped = not any(rule.replace(" ", "") == "pp==1" for rule in limits.constraints)
    pp = random.choice((1, 1, 2, 4, 4)) if piped else 1
    chunks = 2 if pp > 1 and schedule not in ("1f1b", "gpipe", "zero-bubble") else None
    fixed: dict[str, Any] = {
        "tp": tp,
        "cp": cp,
        "pp": pp,
        "dp": max(1, devices // (tp * cp * pp)),
        "micro_batch": random.choice((1, 2)),
        "zero": random.choice(limits.zero),
        "recompute": random.choice(limits.recompute or ("none", "full")),
        "schedule": schedule if pp > 1 else None,
        "chunks": chunks,
        "sp": random.choice((True, True, False)) if tp > 1 and (able is None or "sp" in able) else None,
        "stages": UNEVEN.get(pp) if chunks is None and random.random() < 0.4 else None,
    }
    if kind in ("experts", "mixtral", "qwen3_moe", "deepseek_v3"):
        fixed["ep"] = degree("ep", 1, 2, 4)
        fixed["etp"] = random.choice((1, tp)) if able is None or "etp" in able else None
    return {key: value for key, value in fixed.items() if value is not None}
