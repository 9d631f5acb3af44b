"""What is trained: a Llama of 1.2 billion parameters on one device, and the settings that one device has."""

from collections.abc import Iterator
from typing import Any

from attrs import asdict, evolve, frozen

MODEL = {
    "layers": 16,
    "hidden": 2048,
    "ffn": 8192,
    "heads": 32,
    "kv_heads": 8,
    "vocab": 128256,
    "tied_embeddings": True,
}
"""The sizes of Llama 3.2 1B (huggingface.co/meta-llama/Llama-3.2-1B, config.json)."""

SELECTIVE = ("attention_norm", "mlp_norm", "mlp_activated")
"""Operators that `recompute: selective` runs again: all that save something, but for products and attention."""


@frozen
class Setting:
    """How the model is trained.

    Attributes:
        sequence: tokens of a sample.
        micro_batch: samples of a forward pass.
        micro_batches: forward passes of a step.
        recompute: `none`, `selective` (`SELECTIVE`) or `full`.
        kernels: `eager`: each operator is a kernel of its own; `compiled`: `torch.compile` fuses those of a block.
        loss: `unfused`: of logits in single precision and uncompiled, which a problem calls `eager`; `fused`: compiled.
        weights: `autocast`: kept in fp32, with a copy in bf16 while a pass lasts; `fsdp`: kept in fp32 and gathered in
            bf16 block by block (FSDP2 over one rank).
        allocator: `default`, or `expandable` segments.
        precision: `bf16` or `fp8`.
    """

    sequence: int = 8192
    micro_batch: int = 1
    micro_batches: int = 2
    recompute: str = "none"
    kernels: str = "compiled"
    loss: str = "fused"
    weights: str = "fsdp"
    allocator: str = "expandable"
    precision: str = "bf16"

    def __str__(self) -> str:
        return " ".join(f"{value}" for value in asdict(self).values())

    def problem(self, device: str = "h100-sxm") -> dict[str, Any]:
        """The problem whose plan is this setting."""
        training: dict[str, Any] = {
            "global_batch": self.micro_batch * self.micro_batches,
            "sequence_length": self.sequence,
            "precision": self.precision,
            "stack": "fsdp",
            "loss": "fused" if self.loss == "fused" else "eager",
            "kernels": "eager" if self.kernels == "eager" else "fused",
            "weights_once": self.weights == "fsdp",
        }
        if self.recompute == "selective":
            training["selective"] = list(SELECTIVE)
        fixed = {"tp": 1, "pp": 1, "dp": 1, "micro_batch": self.micro_batch, "recompute": self.recompute}
        return {
            "nest": 1,
            "model": {"transformer": dict(MODEL)},
            "training": training,
            "cluster": {"device": device, "levels": [{"fanout": 1, "link": "nvlink4"}]},
            "fixed": {**fixed, "zero": 3 if self.weights == "fsdp" else 0},
        }


USUAL = Setting()
EAGER = evolve(USUAL, kernels="eager", loss="unfused", weights="autocast", allocator="default")


def ramps() -> Iterator[tuple[Setting, ...]]:
    """Settings in the order in which they are run; what follows one that ran out of memory in its row is left out."""

    def growing(setting: Setting, *micro_batches: int) -> tuple[Setting, ...]:
        return tuple(evolve(setting, micro_batch=each) for each in micro_batches)

    yield growing(EAGER, 1, 2, 3, 4)
    yield growing(USUAL, 1, 2, 4, 5, 6)
    yield growing(evolve(EAGER, recompute="full"), 2, 4, 6, 8)
    yield growing(evolve(USUAL, recompute="full"), 2, 8, 12, 16, 20)
    yield growing(evolve(USUAL, recompute="selective"), 2, 4, 6, 8)
    yield growing(evolve(USUAL, precision="fp8"), 2, 4, 6)
    for change in (
        {"weights": "autocast"},
        {"loss": "unfused"},
        {"kernels": "eager"},
        {"allocator": "default"},
        {"micro_batches": 1},
        {"kernels": "eager", "recompute": "selective"},
        {"kernels": "eager", "recompute": "full"},
        {"kernels": "eager", "precision": "fp8"},
        {"precision": "fp8", "recompute": "full"},
        {"sequence": 2048, "micro_batch": 8},
        {"sequence": 32768, "micro_batch": 1},
        {"sequence": 32768, "micro_batch": 1, "recompute": "full"},
        {"sequence": 2048, "micro_batch": 2, "micro_batches": 8},
    ):
        yield (evolve(USUAL, **{"micro_batch": 2, **change}),)
    yield growing(evolve(EAGER, sequence=2048), 4, 8, 12, 16)
