"""Adapters that a file trains in place of the model (LoRA), as `training.trainable` of a problem.

Modules: those of Megatron Core, as src/megatron/bridge/peft of Megatron-Bridge 067f987d and Megatron-SWIFT name them,
and those that peft names in models of Llama's family.
"""

from collections.abc import Sequence
from typing import Any

from nest.exporters.keys import Keys
from nest.spec.training import ALL_LINEAR

MODULES = {
    "q_proj": "linear_q",
    "k_proj": "linear_k",
    "v_proj": "linear_v",
    "o_proj": "linear_proj",
    "gate_proj": "linear_fc1_gate",
    "up_proj": "linear_fc1_up",
    "down_proj": "linear_fc2",
}
"""What `CanonicalLoRA` calls `training.trainable.lora.targets` (src/megatron/bridge/peft/canonical_lora.py)."""

FUSED_MODULES = {
    "qkv_proj": "linear_qkv",
    "o_proj": "linear_proj",
    "gate_up_proj": "linear_fc1",
    "down_proj": "linear_fc2",
}
"""What `LoRA` calls them, which has one adapter for each module of Megatron Core (src/megatron/bridge/peft/lora.py)."""

TARGETS = {
    **{name: name for name in (*MODULES, *FUSED_MODULES, "lm_head", ALL_LINEAR)},
    **{module: target for table in (MODULES, FUSED_MODULES) for target, module in table.items()},
}


def trained(keys: Keys, rank: str, targets: str, usual: Sequence[str], usual_rank: int = 1) -> dict[str, Any]:
    """`trainable` for adapters of the rank and at the targets under two keys; mistakes are left with `keys`.

    `usual`, `usual_rank`: what they are where they are left out; all linear layers are Megatron Core's where these are.
    """
    said = keys.value(targets) or list(usual)
    modules = said if isinstance(said, list) else [str(said)]
    strange = [module for module in modules if module not in TARGETS]
    if strange:
        keys.problem(f"{targets} has {strange[0]!r:.60}, and nest knows {', '.join(TARGETS)}.")
    if ALL_LINEAR in modules and ALL_LINEAR not in usual:
        modules = list(usual)
    names = dict.fromkeys(TARGETS[module] for module in modules if module in TARGETS)
    return {"lora": {"rank": keys.integer(rank) or usual_rank, "targets": list(names)}}
