"""Fields of Megatron Core's TransformerConfig, by which several frameworks name its settings; modules of adapters.

Sources: `TransformerConfig`, `MLATransformerConfig` and `ModelParallelConfig` of Megatron Core 0.16.1. Modules: those
of Megatron Core, as src/megatron/bridge/peft of Megatron-Bridge 067f987d and Megatron-SWIFT name them, and those that
peft names in models of Llama's family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from nest.spec.training import ALL_LINEAR
from nest_frameworks.limits.relatives import FUSED_MODULES, MODULES
from nest_frameworks.megatron.notation import CHANGING, COSTLY, HARMLESS, USUAL
from nest_frameworks.megatron.relatives.dialect import Row

if TYPE_CHECKING:
    from nest_frameworks.keys import Keys


Value = TypeVar("Value")

DEGREES: Mapping[str, Row] = {
    "tensor_model_parallel_size": "--tensor-model-parallel-size",
    "sequence_parallel": "?--sequence-parallel",
    "context_parallel_size": "--context-parallel-size",
    "pipeline_model_parallel_size": "--pipeline-model-parallel-size",
    "virtual_pipeline_model_parallel_size": "--num-virtual-stages-per-pipeline-rank",
    "expert_model_parallel_size": "--expert-model-parallel-size",
    "expert_tensor_parallel_size": "--expert-tensor-parallel-size",
}

STAGES: Mapping[str, Row] = {
    "pipeline_model_parallel_layout": "--pipeline-model-parallel-layout",
    "num_layers_in_first_pipeline_stage": "--decoder-first-pipeline-num-layers",
    "num_layers_in_last_pipeline_stage": "--decoder-last-pipeline-num-layers",
    "account_for_embedding_in_pipeline_split": "?--account-for-embedding-in-pipeline-split",
    "account_for_loss_in_pipeline_split": "?--account-for-loss-in-pipeline-split",
}

RECOMPUTE: Mapping[str, Row] = {
    "recompute_granularity": "--recompute-granularity",
    "recompute_method": "--recompute-method",
    "recompute_num_layers": "--recompute-num-layers",
    "recompute_modules": "--recompute-modules",
}

EXPERTS: Mapping[str, Row] = {
    "moe_token_dispatcher_type": "--moe-token-dispatcher-type",
    "moe_flex_dispatcher_backend": "--moe-flex-dispatcher-backend",
    "moe_expert_capacity_factor": "--moe-expert-capacity-factor",
    "moe_pad_expert_input_to_capacity": "?--moe-pad-expert-input-to-capacity",
}

KERNELS: Mapping[str, Row] = {
    "cuda_graph_impl": "--cuda-graph-impl",
    "cuda_graph_modules": "--cuda-graph-modules",
    "cuda_graph_scope": "--cuda-graph-scope",
    "enable_cuda_graph": "?--enable-cuda-graph",
    "external_cuda_graph": "?--external-cuda-graph",
    "bias_activation_fusion": "!--no-bias-swiglu-fusion",
}
"""Fields that are read only."""

WIDTHS: Mapping[str, Row] = {
    "num_layers": "--num-layers",
    "hidden_size": "--hidden-size",
    "ffn_hidden_size": "--ffn-hidden-size",
    "num_attention_heads": "--num-attention-heads",
    "kv_channels": "--kv-channels",
    "num_query_groups": "--group-query-attention --num-query-groups",
    "qk_layernorm": "?--qk-layernorm",
    "num_moe_experts": "--num-experts",
    "moe_router_topk": "--moe-router-topk",
    "moe_ffn_hidden_size": "--moe-ffn-hidden-size",
    "moe_shared_expert_intermediate_size": "--moe-shared-expert-intermediate-size",
    "moe_shared_expert_gate": "?--moe-shared-expert-gate",
    "moe_grouped_gemm": "?--moe-grouped-gemm",
    "moe_router_pre_softmax": "?--moe-router-pre-softmax",
    "moe_router_score_function": "--moe-router-score-function",
    "moe_router_topk_scaling_factor": "--moe-router-topk-scaling-factor",
    "moe_aux_loss_coeff": "--moe-aux-loss-coeff",
    "moe_layer_freq": "*--moe-layer-freq",
    "window_size": "*--window-size",
    "window_attn_skip_freq": "*--window-attn-skip-freq",
    "mtp_num_layers": "--mtp-num-layers",
    "hidden_dropout": "--hidden-dropout",
    "attention_dropout": "--attention-dropout",
    "init_method_std": "--init-method-std",
    "layernorm_epsilon": "--norm-epsilon",
}

COSTS = {flag.removeprefix("--").replace("-", "_"): assumed for flag, assumed in COSTLY.items()}
"""Fields that change costs and are not priced, with what is assumed."""

CHANGES = {
    flag.removeprefix("--").replace("-", "_"): f"{assumed}; delete it to price the run so"
    for flag, assumed in CHANGING.items()
    if flag not in USUAL
}
"""Fields that change layout, memory or model, with why they are refused."""

SWITCH = "cpu_offloading"
SWITCHED = {SWITCH if name.startswith(SWITCH) else name: why for name, why in CHANGES.items()}
"""`CHANGES` of TransformerConfig itself, where the other fields of offloading need the switch."""

FREE = (*(pattern.replace("-", "_") for pattern in HARMLESS.split()), f"{SWITCH}_*")
"""Patterns of fields that change no cost that nest counts."""


def under(section: str, *tables: Mapping[str, Value]) -> dict[str, Value]:
    """The entries of `tables` with `section` in front of their keys."""
    return {f"{section}.{key}": value for table in tables for key, value in table.items()}


def typed(flag: str, single: str | None = None) -> Row:
    """Types of PyTorch by what `flag` calls them; `single`: single precision, None where that goes without saying."""
    return {
        "torch.float32": {flag: single},
        "torch.bfloat16": {flag: "bf16"},
        "torch.float16": {flag: "fp16"},
        "torch.uint8": {flag: "fp8"},
    }


TARGETS = {
    **{name: name for name in (*MODULES, *FUSED_MODULES, "lm_head", ALL_LINEAR)},
    **{module: target for table in (MODULES, FUSED_MODULES) for target, module in table.items()},
}


ROUTER = "all-router"


def trained(keys: Keys, rank: str, targets: str, usual: Sequence[str], usual_rank: int = 1) -> dict[str, Any]:
    """`trainable` for adapters of the rank and at the targets under two keys; mistakes are left with `keys`.

    `usual`, `usual_rank`: what they are where they are left out; all linear layers are Megatron Core's where these are.
    """
    said = keys.value(targets) or list(usual)
    modules = said if isinstance(said, list) else [str(said)]
    if ROUTER in modules:
        keys.note(f"{targets}: adapters of routers are left out, which are small.")
        modules = [module for module in modules if module != ROUTER]
    strange = [module for module in modules if module not in TARGETS]
    if strange:
        keys.problem(f"{targets} has {strange[0]!r:.60}, and nest knows {', '.join(TARGETS)}.")
    if ALL_LINEAR in modules and ALL_LINEAR not in usual:
        modules = list(usual)
    names = dict.fromkeys(TARGETS[module] for module in modules if module in TARGETS)
    return {"lora": {"rank": keys.integer(rank) or usual_rank, "targets": list(names)}}
