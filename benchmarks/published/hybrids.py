"""The command: `python -m benchmarks.published.hybrids [--data FOLDER]`.

Published kernels of recurrences, and published steps of models with them, beside nest's prices.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

from attrs import evolve, field, frozen

import nest
from benchmarks.published.recipes import DATA
from benchmarks.published.report import table
from nest.catalogue import devices
from nest.formulate.model import load_model
from nest.hooks.registry import registry
from nest.spec import Training

FOLDER = "hf_configs_2026"
NANO = "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.json"
SUPER = "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8.json"
HEAVY = "nvidia--Nemotron-H-56B-Base-8K.json"
QWEN_NEXT = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "max_position_embeddings": 262144,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "tie_word_embeddings": False,
}
"""Qwen3-Next 80B-A3B as `model_configs/benchmarking/Qwen3-Next-80B-A3B.yaml` of the Model Zoo below has it."""

TWICE = MappingProxyType({"num_nextn_predict_layers": 2})
"""A layer for multi-token prediction that runs twice (`mtp_num_layers = 2`, `mtp_use_repeated_layer`), here as two."""

NORMS = ("attention_norm", "mlp_norm")
EXPERTS = ("router", "routing", "dispatch", "expert_up", "expert_activated", "expert_down", "combine")
SHARED = ("shared_expert_up", "shared_expert_activated", "shared_expert_down")
GATED = ("shared_expert_gate", *SHARED)


@frozen
class Row:
    """A published step: a model, its layout, and what else its recipe states (`training`)."""

    name: str
    model: str | Mapping[str, Any]
    device: str
    devices: int
    batch: int
    micro_batch: int
    tp: int
    ep: int
    precision: str
    rate: float = 0.0  # Tokens per second and GPU.
    seconds: float = 0.0  # Of a step, where published in place of the rate.
    tokens: int = 8192
    predicting: Mapping[str, int] = field(factory=dict)
    wide: float = 0.0  # Share of the layers with products in bf16.
    graphs: str = "layers"
    selective: tuple[str, ...] = ()
    training: Mapping[str, Any] = field(factory=dict)
    fixed: Mapping[str, Any] = field(factory=dict)

    @property
    def measured(self) -> float:
        """Seconds of a step."""
        return self.seconds or self.batch * self.tokens / self.devices / self.rate


def nano(name: str, device: str, micro_batch: int, rate: float, precision: str = "mxfp8", **further: Any) -> Row:
    """Return a row of Nemotron 3 Nano or, with `predicting`, of Nemotron 3.5 Lightning: experts over 8 devices."""
    usual = {"devices": 8, "batch": 512, **further}
    return Row(name, NANO, device, micro_batch=micro_batch, tp=1, ep=8, precision=precision, rate=rate, **usual)


def large(name: str, device: str, precision: str, tp: int, rate: float, ep: int = 64, **further: Any) -> Row:
    """Return a row of Nemotron 3 Super: 64 devices, with multi-token prediction, tensor parallelism not overlapped."""
    usual = {"devices": 64, "batch": 512, "predicting": TWICE, "training": {"overlap": {"tensor": False}}, **further}
    usual["wide"] = 14 / 88 if precision == "nvfp4" else 0.0
    return Row(name, SUPER, device, micro_batch=1, tp=tp, ep=ep, precision=precision, rate=rate, **usual)


BRIDGE = (
    nano("Nano, 16 H100, fp8, 26.06", "h100-sxm", 1, 14719, "fp8", devices=16, batch=1024,
         selective=(*NORMS, "attention", *EXPERTS, *SHARED)),
    nano("Nano, 8 B200, mxfp8, 26.04.01", "b200-sxm", 2, 32768),
    nano("Nano, 8 B300, mxfp8, 26.06", "b300-sxm", 4, 37316),
    nano("Nano, 8 GB200, mxfp8, 26.06.01", "gb200", 2, 34816),
    nano("Nano, 8 GB300, mxfp8, 26.08", "gb300", 4, 39936),
    nano("Lightning, 8 GB200, mxfp8, 26.08", "gb200", 2, 28672, predicting=TWICE),
    large("Super, 64 B200, mxfp8, 26.04.01", "b200-sxm", "mxfp8", 1, 6400, graphs="none",
          selective=(*NORMS, "expert_activated")),
    large("Super, 64 B200, nvfp4, 26.04.01", "b200-sxm", "nvfp4", 2, 5632),
    large("Super, 64 B300, mxfp8, 26.06", "b300-sxm", "mxfp8", 1, 7867, 8),
    large("Super, 64 B300, nvfp4, 26.06", "b300-sxm", "nvfp4", 1, 8131, 8, selective=(*NORMS, "expert_activated")),
    large("Super, 64 GB200, mxfp8, 26.08", "gb200", "mxfp8", 2, 7040),
    large("Super, 64 GB200, nvfp4, 26.08", "gb200", "nvfp4", 2, 7168),
    large("Super, 64 GB300, mxfp8, 26.08", "gb300", "mxfp8", 1, 9856),
    large("Super, 64 GB300, nvfp4, 26.08", "gb300", "nvfp4", 1, 10240),
)  # fmt: skip
"""`docs/performance-summary.md` (release 26.08) and its archive of NVIDIA-NeMo/Megatron-Bridge@067f987df0, each row at
its newest release; other settings of v0.4.2 (26.04.01) and v0.5.1 (26.06), `scripts/performance/configs/nemotronh`, and
of `src/megatron/bridge/perf_recipes/nemotronh` (26.08)."""

CARDS = (
    nano("Lightning, 8 GB200, bf16, 2026-07-28", "gb200", 2, 28750.07, "bf16", predicting=TWICE),
    large("Super, 64 H100, bf16, 2026-08-03", "h100-sxm", "bf16", 1, 2969.345, 32, batch=1280, tokens=4096,
          graphs="none", selective=(*NORMS, "attention", *EXPERTS, *SHARED),
          training={"expert_capacity": 1.1, "overlap": {"data": False}}, fixed={"pp": 2}),
)  # fmt: skip
"""`examples/model_verification_cards` of the same commit: nemotron-3.5-lightning and nemotron-3-super-120b-a12b."""

OTHERS = (
    Row("Nemotron-H 56B, 256 H100, fp8, 25.07", HEAVY, "h100-sxm", 256, 768, 1, 8, 1, "fp8", seconds=15.714),
    Row("Nemotron-H 56B, 128 GB200, fp8, 25.10", HEAVY, "gb200", 128, 384, 2, 4, 1, "fp8", seconds=5.31),
    Row("Qwen3-Next 80B, 128 H100, bf16", QWEN_NEXT, "h100-sxm", 128, 256, 1, 1, 32, "bf16", seconds=2.2, tokens=4096,
        predicting={"num_nextn_predict_layers": 1}, graphs="none", selective=(*NORMS, "expert_activated", *GATED),
        fixed={"pp": 4, "schedule": "interleaved", "chunks": 3}),
)  # fmt: skip
"""NVIDIA/dgxc-benchmarking, nemotron-h/README.md at 856bfc4 and 8e77d60 (example output);
yanring/Megatron-MoE-ModelZoo@e865051, best_practice/qwen3/readme.md and run_next_80b.sh ("not well tuned")."""

ROWS = (*BRIDGE, *CARDS, *OTHERS)


def problem(row: Row, data: Path) -> dict[str, Any]:
    """The row's plan: one copy of a token per node, gradients in bf16, as the recipes have them."""
    link = "nvlink4" if row.device == "h100-sxm" else "nvlink5"
    inside = min(row.devices, 64 if row.device.startswith("gb") else 8)
    levels = [{"name": "domain", "fanout": inside, "link": link}]
    if inside < row.devices:
        levels.append({"name": "fabric", "fanout": row.devices // inside, "link": "infiniband-ndr"})
    model: Any = row.model
    if isinstance(model, str):
        model = json.loads((data / FOLDER / model).read_text(encoding="utf-8"), parse_constant=lambda _: None)
    training = {
        "global_batch": row.batch,
        "sequence_length": row.tokens,
        "precision": row.precision,
        "stack": "megatron-bridge",
        "graphs": row.graphs,
        "dispatch": "per-node",
        "mtp": bool(row.predicting),
        "selective": list(row.selective) or None,
        **row.training,
    }
    fixed = {"tp": row.tp, "sp": row.tp > 1, "cp": 1, "pp": 1, "ep": row.ep, "etp": 1, "schedule": "1f1b", **row.fixed}
    return {
        "nest": 1,
        "model": {**model, **row.predicting},
        "training": {key: value for key, value in training.items() if value is not None},
        "cluster": {"device": row.device, "levels": levels},
        "search": {"target": "none"},
        "fixed": {
            **fixed,
            "dp": row.devices // row.tp // fixed["pp"],
            "micro_batch": row.micro_batch,
            "zero": 1,
            "recompute": "selective" if row.selective else "none",
        },
    }


def price(row: Row, data: Path) -> tuple[float, float, float]:
    """Seconds of a step, and the ends of the range that is 80 % likely.

    nest has one format for the products of all layers. Recipes keep multi-token prediction (`keep_mtp_spec_in_bf16`)
    and, with NVFP4, the last 14 of 88 layers in bf16 (`nemotron_3_super_bf16_with_nvfp4_mixed`). Without pipelines
    layers add up, so these are added as the plan in bf16 has them.
    """
    plan = nest.evaluate(problem(row, data))
    seconds, likely = plan.batch_time, plan.batch_time_range
    if row.precision != "bf16" and row.predicting:
        narrow, wide = (evolve(row, precision=each, predicting={}) for each in (row.precision, "bf16"))
        without, wider = (nest.evaluate(problem(each, data)).batch_time for each in (narrow, wide))
        predicting = nest.evaluate(problem(evolve(row, precision="bf16"), data)).batch_time - wider
        seconds = without + row.wide * (wider - without) + predicting
    return seconds, seconds * likely.low / plan.batch_time, seconds * likely.high / plan.batch_time


@frozen
class Kernel:
    """Published times of a recurrence's kernels, without convolution, norms and projections."""

    source: str
    mixer: str
    device: str
    tokens: int
    heads: int
    forward: float  # Milliseconds.
    backward: float = 0.0  # Milliseconds; 0: not published.


FLASH_QLA, FLA, TILE_OPS, VLLM = "FlashQLA", "FLA", "TileOPs", "vLLM"
KERNELS = (
    Kernel(FLASH_QLA, "delta rule", "h200-sxm", 8192, 32, 0.472, 1.444),
    Kernel(FLASH_QLA, "delta rule", "h200-sxm", 32768, 32, 1.890, 5.697),
    Kernel(FLASH_QLA, "delta rule", "gb200", 8192, 32, 0.478, 1.446),
    Kernel(FLASH_QLA, "delta rule", "gb200", 32768, 32, 1.812, 5.714),
    Kernel(FLA, "delta rule", "gb200", 8192, 96, 1.265, 3.473),
    Kernel(FLA, "delta rule", "gb200", 16384, 64, 1.581, 4.383),
    Kernel(FLA, "linear attention", "gb200", 8192, 96, 0.787, 1.831),
    Kernel(FLA, "linear attention", "gb200", 16384, 64, 0.997, 2.462),
    *(
        Kernel(TILE_OPS, "Mamba-2", "h200-sxm", tokens, heads, forward)
        for heads, times in ((64, (0.6468, 4.4721)), (80, (0.9137, 5.7969)), (128, (1.6876, 9.6147)))
        for tokens, forward in zip((16384, 65536), times, strict=True)
    ),
    *(
        Kernel(VLLM, "Mamba-2", "h100-sxm", tokens, 128, 1e3 * tokens / rate)
        for tokens, rate in ((8192, 12.62327e6), (16384, 12.92440e6), (65536, 11.06830e6))
    ),
)
"""Forward and backward of `chunk_gated_delta_rule` of flash-linear-attention 0.5.1 (QwenLM/FlashQLA,
benchmark/benchmark_results_H200.txt and _GB200.txt); README.md of fla-org/flash-linear-attention@bc3b101d, `chunk_gdn`
and `chunk_retention`, 128 channels; `mamba_chunk_scan_combined` of mamba_ssm, chunks of 256, 64 channels, 128 state
numbers, one group (tile-ai/TileOPs@c9f559f2, message; vllm-project/vllm pull request 27299, original kernels)."""


def model_of(kernel: Kernel) -> dict[str, Any]:
    """A model of one layer with the kernel's recurrence."""
    small = {"vocab_size": 1024, "hidden_size": 1024, "num_hidden_layers": 1, "max_position_embeddings": 131072}
    if kernel.mixer == "Mamba-2":
        widths = {"num_heads": kernel.heads, "head_dim": 64, "n_groups": 1, "state_size": 128, "chunk_size": 256}
        return {"model_type": "mamba2", "expand": 1, **small, **widths}
    if kernel.mixer == "linear attention":
        heads = {"num_attention_heads": kernel.heads, "head_dim": 128, "block_size": 64, "intermediate_size": 1024}
        return {"model_type": "minimax", "layer_types": ["linear_attention"], **heads, **small}
    heads = {"linear_num_value_heads": kernel.heads, "linear_num_key_heads": kernel.heads}
    heads |= {"num_attention_heads": 8, "intermediate_size": 1024}
    return {"model_type": "qwen3_5_text", "layer_types": ["linear_attention"], **heads, **small}


def kernel_times(kernel: Kernel) -> tuple[float, float]:
    """Milliseconds of the kernel, forward and backward, as nest prices it."""
    training = Training(global_batch=1, sequence_length=kernel.tokens)
    graph = load_model(model_of(kernel), training, registry())
    scan = next(operator for operator in graph.operators if operator.kind == "scan")
    cost = registry().cost_models()["roofline"].price(scan, devices()[kernel.device], training)
    return 1e3 * cost.forward, 1e3 * cost.backward


def both(kernel: Kernel) -> list[tuple[float, float]]:
    """Milliseconds of nest and of the kernel: forward and, where published, backward."""
    told = (kernel.forward, kernel.backward) if kernel.backward else (kernel.forward,)
    return list(zip(kernel_times(kernel), told, strict=False))


def percent(ratio: float) -> str:
    """A deviation from 1."""
    return f"{ratio - 1:+.0%}".replace("%", " %")


def kernels() -> list[str]:
    """The table of kernels, and the medians of errors."""
    lines, ratios = [], []
    for each in KERNELS:
        found = both(each)
        ratios.append([ours / theirs for ours, theirs in found])
        cells = [text for a, b in found for text in (f"{b:.2f} ms", f"{a:.2f} ms", percent(a / b))]
        name = f"{each.mixer}, {each.device}, {each.tokens:,} x {each.heads}, {each.source}"
        lines.append([name, *cells, *[""] * (6 - len(cells))])
    header = ("kernel, device, tokens x heads, source", "forward", "nest", "error", "backward", "nest", "error")
    told = [percent(median(each[way] for each in ratios if len(each) > way)) for way in (0, 1)]
    return [*table(header, lines), "", f"Median error: forward {told[0]}, backward {told[1]}."]


def main(given: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published.hybrids", description=__doc__.splitlines()[2])
    parser.add_argument("--data", type=Path, default=DATA, metavar="FOLDER", help=f"shared data ({DATA})")
    options = parser.parse_args(given)
    lines, inside = [], 0
    for row in ROWS:
        seconds, low, high = price(row, options.data)
        within = low <= row.measured <= high
        inside += within
        told = [f"{row.measured:.1f} s", f"{seconds:.1f} s", percent(seconds / row.measured)]
        lines.append([row.name, *told, f"{low:.1f} to {high:.1f} s", "yes" if within else "no"])
    header = ("model, devices, precision, release", "measured", "nest", "error", "80 % likely", "within")
    print("\n".join([*kernels(), "", *table(header, lines), "", f"Within the range: {inside} of {len(ROWS)}."]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
