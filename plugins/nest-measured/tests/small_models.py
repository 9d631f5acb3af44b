"""Small models, and a problem of one, that are priced from tables."""

from pathlib import Path
from typing import Any

import typer
from attrs import evolve
from typer.testing import CliRunner, Result

from nest.catalogue import device
from nest.graph import Operator, OperatorGraph
from nest.hooks.registry import registry
from nest.io import unstructure
from nest.spec import MlaSpec, Training, TransformerSpec
from nest_measured.commands import register
from nest_measured.sizes import sizes_of

DEFAULT = next(iter(registry().cost_models().values()))
DEVICE = device("h100-sxm")
TRAINING = Training(global_batch=8, sequence_length=512)
COMMON = {"layers": 2, "hidden": 256, "ffn": 1024, "heads": 8, "vocab": 1000}

MODELS = {
    "llama": TransformerSpec(kv_heads=2, **COMMON),
    "experts": TransformerSpec(experts=8, top_k=2, moe_ffn=128, shared_expert_ffn=64, **COMMON),
    "latent": TransformerSpec(
        mla=MlaSpec(q_lora_rank=64, kv_lora_rank=32, qk_nope_head_dim=24, qk_rope_head_dim=8, v_head_dim=16), **COMMON
    ),
}


UNHURRIED = evolve(DEVICE, calibration=evolve(DEVICE.calibration, host_launch=0.0))

PROBLEM: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {**COMMON, "kv_heads": 2}},
    "training": {"global_batch": 8, "sequence_length": 512, "micro_batch": [1], "stack": "none"},
    # The host launches in no time: it would hold up operators as small as these.
    "cluster": {"device": unstructure(UNHURRIED), "levels": [{"fanout": 1, "bandwidth": "1 GB/s"}]},
    "costs": "measured",
}


def graph(model: TransformerSpec, training: Training = TRAINING) -> OperatorGraph:
    return registry().model_importers()["transformer"].load(model, training)


def call(*arguments: str | Path) -> Result:
    """`nest measured` alone."""
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    return CliRunner().invoke(app, ["measured", *map(str, arguments)])


def row(operator: Operator, factor: float) -> dict[str, Any]:
    cost = DEFAULT.price(operator, DEVICE, TRAINING)
    measured = {"kind": operator.kind, "sizes": sizes_of(operator), "forward": factor * cost.forward}
    return {**measured, "backward": factor * cost.backward} if cost.backward else measured
