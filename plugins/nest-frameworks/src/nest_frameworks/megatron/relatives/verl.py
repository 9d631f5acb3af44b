"""verl: the actor's training step of its Hydra files and `key=value` commands, with Megatron Core or PyTorch's FSDP.

Keys and defaults: volcengine/verl b178a3cd (after 0.7), verl/trainer/config (ppo_megatron_trainer.yaml, actor, engine,
optim, data), and 0.9.1, whose `model_engine` is read as well; how they are used:
verl/workers/megatron_workers.py (ppo_mini_batch_size times rollout.n), verl/workers/actor/megatron_actor.py and
verl/utils/megatron_utils.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import evolve

from nest.deployment import LaunchOptions, Reading
from nest.spec import PlanDocument
from nest.spec.training import ALL_LINEAR
from nest_frameworks.limits import Asked, relatives
from nest_frameworks.limits.relatives import FUSED_MODULES
from nest_frameworks.megatron.notation import Flags
from nest_frameworks.megatron.relatives.core import (
    COSTS,
    DEGREES,
    EXPERTS,
    FREE,
    KERNELS,
    RECOMPUTE,
    STAGES,
    SWITCHED,
    under,
)
from nest_frameworks.megatron.relatives.dialect import Dialect, Row, machines

if TYPE_CHECKING:
    from nest_frameworks.keys import Keys


FILE = "verl_trainer.yaml"

ACTOR = "actor_rollout_ref.actor"
MODEL = "actor_rollout_ref.model"
FSDP = f"{ACTOR}.fsdp_config"
ULYSSES = "ulysses_sequence_parallel_size"
FUSED: Flags = {"--cross-entropy-loss-fusion": True, "--cross-entropy-fusion-impl": "te"}

ENGINE: Mapping[str, Row] = {
    **DEGREES,
    "use_distributed_optimizer": "?--use-distributed-optimizer",
    "dtype": {"bfloat16": {"--bf16": True}, "float16": {"--fp16": True}},
}

TRANSFORMER: Mapping[str, Row] = {
    **STAGES,
    **RECOMPUTE,
    **EXPERTS,
    "attention_backend": "--attention-backend",
    "cp_comm_type": "--cp-comm-type",
    "fp8": "--fp8-format",
    "fp8_recipe": "--fp8-recipe",
}

OPTIMIZER: Mapping[str, Row] = {
    "optimizer_cpu_offload": "?--optimizer-cpu-offload",
    "optimizer_offload_fraction": "--optimizer-offload-fraction",
    "use_precision_aware_optimizer": "?--use-precision-aware-optimizer",
    "sgd_momentum": "--sgd-momentum",
}

STATE = ("--main-grads-dtype", "--exp-avg-dtype", "--exp-avg-sq-dtype")
"""Formats of the precision-aware optimizer (verl/utils/megatron/optimizer.py of 0.9.1)."""

FORMATS = {
    **dict.fromkeys(("fp32", "float32"), None),
    **dict.fromkeys(("bf16", "bfloat16"), "bf16"),
    **dict.fromkeys(("fp16", "float16"), "fp16"),
}

DDP: Mapping[str, Row] = {
    "grad_reduce_in_fp32": {True: {}, False: {"--grad-reduce-in-bf16": True}},
    "overlap_grad_reduce": "?--overlap-grad-reduce",
    "overlap_param_gather": "?--overlap-param-gather",
}

ELSEWHERE = """
defaults hydra.* algorithm.* critic.* reward* ray_* custom_reward_function.* _target_ data.* trainer.* global_profiler.*
transfer_queue.* distillation.* model_engine actor_rollout_ref.rollout.* actor_rollout_ref.ref.*
actor_rollout_ref.hybrid_engine actor_rollout_ref.nccl_timeout
"""

IN_MODEL = """
_target_ *_path use_shm trust_remote_code custom_chat_template external_lib use_remove_padding *target_modules
lora_alpha exclude_modules lora.* fused_kernel_options.* tiled_mlp.* mtp.* enable_gradient_checkpointing
"""

IN_OPTIMIZER = """
_target_ *lr* *weight_decay* *_steps betas eps clip_grad num_cycles warmup_style zero_indexed_step optimizer_impl muon_*
use_checkpoint_opt_param_scheduler use_layer_wise_distributed_optimizer
"""

IN_ACTOR = """
_target_ rollout_n tau_* *entropy* use_torch_compile shuffle checkpoint.* profiler.* router_replay.* data_loader_seed
load_weight use_fused_kernels use_prefix_grouper grad_clip *loss* clip_* ppo_epochs use_remove_padding
"""

IN_FSDP = """
_target_ wrap_policy.* forward_prefetch use_orig_params seed full_determinism *entropy* use_torch_compile pad_*
forward_only strategy turbo_config.* mixed_precision.buffer_dtype qat.*
"""

IN_ENGINE = """
_target_ *checkpoint* *_offload *mbridge seed load_weight qat.* extra.* forward_only use_remove_padding *pad* *entropy*
override_mcore_model_config.* strategy dist_ckpt* router_* max_seqlen_* distrib_*
"""

IN_TRANSFORMER = "moe_enable_deepep *_fusion deallocate_* persist_* variable_seq_lengths"

OFFLOADED = "nest keeps weights on the device during a step"

DIALECT = Dialect(
    "verl",
    rows={
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": "--micro-batch-size",
        **under(f"{ACTOR}.megatron", ENGINE),
        **under(f"{ACTOR}.megatron.override_transformer_config", TRANSFORMER),
        **under(f"{ACTOR}.megatron.override_ddp_config", DDP),
        f"{ACTOR}.optim.optimizer": "--optimizer",
        **under(f"{ACTOR}.optim.override_optimizer_config", OPTIMIZER),
    },
    read_only={
        **under(f"{ACTOR}.megatron.override_transformer_config", KERNELS),
        f"{ACTOR}.megatron.use_megatron_fsdp": {
            False: {},
            True: {"--use-megatron-fsdp": True, "--data-parallel-sharding-strategy": "optim_grads_params"},
        },
    },
    defaults={
        "--bf16": True,
        "--sequence-parallel": True,
        "--use-distributed-optimizer": True,
        "--attention-backend": "flash",
        "--optimizer": "adam",
    },
    implied=(
        *("--global-batch-size", "--use-tp-pp-dp-mapping", "--tp-comm-overlap", "--overlap-moe-expert-parallel-comm"),
        *FUSED,
    ),
    refused=under(f"{ACTOR}.megatron.override_transformer_config", SWITCHED)
    | {
        f"{MODEL}.enable_activation_offload": "nest assumes activations to stay on the device",
        f"{MODEL}.tiled_mlp.enabled": "nest assumes layers to run in one piece",
        f"{MODEL}.mtp.enable_train": "nest assumes no layers to predict further tokens",
        f"{FSDP}.offload_policy": OFFLOADED,
        f"{ACTOR}.megatron.dynamic_context_parallel": "nest splits all sequences alike",
    },
    assumed=under(f"{ACTOR}.megatron.override_transformer_config", COSTS)
    | {
        **{
            f"{ACTOR}.megatron.override_transformer_config.{name}": "verl does not set up what it needs"
            for name in ("tp_comm_overlap", "overlap_moe_expert_parallel_comm")
        },
        f"{ACTOR}.freeze_vision_tower": "nest assumes the model to be a decoder like GPT's",
        **dict.fromkeys(
            (f"{where}.qat.enable" for where in (ACTOR, FSDP, f"{ACTOR}.megatron")),
            "nest assumes products to run in the format of dtype",
        ),
        f"{FSDP}.use_no_sync_for_gradient_accumulation": "nest assumes gradients to be reduced after each micro-batch",
        f"{MODEL}.use_liger": "nest assumes operators to take what calibration says",
    },
    harmless=(
        *ELSEWHERE.split(),
        *under(MODEL, dict.fromkeys(IN_MODEL.split())),
        *under(ACTOR, dict.fromkeys(IN_ACTOR.split())),
        *under(f"{ACTOR}.optim", dict.fromkeys(IN_OPTIMIZER.split())),
        *under(FSDP, dict.fromkeys(IN_FSDP.split())),
        *under(f"{ACTOR}.megatron", dict.fromkeys(IN_ENGINE.split())),
        *under(f"{ACTOR}.megatron.override_transformer_config", dict.fromkeys((*FREE, *IN_TRANSFORMER.split()))),
    ),
    aliases={
        "--global-batch-size": f"{ACTOR}.ppo_mini_batch_size times rollout.n",
        "--seq-length": "data.max_prompt_length plus max_response_length",
    },
)


def read(text: str, options: LaunchOptions | None = None) -> Reading:
    """Read a file, or a script that runs `verl.trainer`, for its actor.

    `options`: what else is said of the launch; its machines stand in place of the file's.

    Raises:
        InputErrors: keys contradict each other, or say what nest cannot price.
        InputError: it is neither.
    """
    from nest_frameworks.keys import Keys, opened
    from nest_frameworks.megatron.relatives.commands import command, overrides
    from nest_frameworks.megatron.relatives.interpolation import resolved
    from nest_frameworks.trainers.models import with_model

    asked, notes = options or LaunchOptions(), list[str]()
    if re.search(r"^[^#\n]*fsdp_sft_trainer", text, re.MULTILINE):
        from nest_frameworks.megatron.relatives.verl_sft import read as read_fine_tuning

        return read_fine_tuning(text, asked)
    if re.search(r"^actor_rollout_ref\s*:", text, re.MULTILINE):
        content = opened(text, FILE, "verl's sections", ("actor_rollout_ref",))
    else:
        words, _, notes = command(text, asked, _trains, "command of verl with settings under actor_rollout_ref")
        content = overrides(words) | {"defaults": [word for word in words if "=" not in word or "config-name" in word]}
    keys = Keys(resolved(content), notes=notes)
    devices = machines(keys, evolve(asked, part=None), "trainer.nnodes", "trainer.n_gpus_per_node")
    kind = _strategy(keys)
    flags = (_core if kind == "megatron" else _fsdp)(keys)
    flags |= _batch(keys, devices, kind)
    if keys.truth(f"{MODEL}.use_fused_kernels"):
        flags |= FUSED
    engine = "megatron" if kind == "megatron" else "fsdp_config"
    moved = [what for what in ("param", "grad", "optimizer") if keys.truth(f"{ACTOR}.{engine}.{what}_offload")]
    if moved:
        keys.note(
            f"what {ACTOR}.{engine} offloads ({', '.join(moved)}) waits on the host between steps, and not in them."
        )
    name, known = with_model(keys, f"{MODEL}.path", asked)
    lora, size = _adapters(keys, kind), keys.integer(f"{FSDP}.fsdp_size", -1)
    said = {"--context-parallel-size": _ulysses_key(keys)} if kind != "megatron" else {}
    found = evolve(DIALECT, aliases={**DIALECT.aliases, **said}).read(keys, devices, flags, known or asked.model)
    settings = {**found.settings, **({"model": name} if name is not None else {})}
    if lora is not None:
        settings["training"] = {**settings["training"], "trainable": lora}
    if kind != "megatron":
        narrow = {"master_weights": False, "optimizer": "adam-bf16"} if _is_narrow(keys) else {}
        settings["training"] = {**settings["training"], **narrow, "stack": "fsdp"}
        if size is not None and size > 0:
            settings["fixed"] = {**settings["fixed"], "zero_degree": size}
    return evolve(found, settings=settings)


def _is_narrow(keys: Keys) -> bool:
    """Return whether FSDP keeps weights, and so the optimizer's state, in 16 bits alone."""
    return keys.choice(f"{FSDP}.model_dtype", FORMATS, None) is not None


def _adapters(keys: Keys, kind: str) -> dict[str, Any] | None:
    """Trained adapters; None: the model is trained."""
    from nest_frameworks.megatron.relatives.core import trained

    core = kind == "megatron"
    section, names = (f"{MODEL}.lora", ("rank", "target_modules")) if core else (MODEL, ("lora_rank", "target_modules"))
    rank, targets = (f"{section}.{name}" for name in names)
    if not keys.integer(rank, 0):
        return None
    return trained(keys, rank, targets, tuple(FUSED_MODULES.values()) if core else (ALL_LINEAR,))


def _trains(words: Any) -> bool:
    return any(word.lstrip("+").startswith("actor_rollout_ref.") for word in words)


def _strategy(keys: Keys) -> str:
    """Training strategy: megatron, fsdp or fsdp2; mistakes are left with `keys`."""
    chosen, section = str(keys.value("model_engine") or keys.value("defaults") or ""), keys.value(f"{ACTOR}.megatron")
    keys.asked.discard(f"{ACTOR}.megatron")
    said = keys.value(f"{ACTOR}.strategy") or ("megatron" if "megatron" in chosen or section else "fsdp")
    if said not in ("megatron", "fsdp", "fsdp2"):
        keys.problem(f"{ACTOR}.strategy is {said!r:.40}, and nest knows megatron, fsdp and fsdp2.")
    elif said != "megatron" and section:
        keys.problem(f"{ACTOR}.strategy is {said}, whose actor has no section megatron; delete one of them.")
    return str(said)


def _core(keys: Keys) -> Flags:
    """Formats of Megatron Core's optimizer: `STATE` counts if it is precision-aware."""
    keys.asked.add(FSDP)
    formats = {flag: keys.choice(f"{ACTOR}.optim.{flag[2:].replace('-', '_')}", FORMATS, None) for flag in STATE}
    aware = keys.truth(f"{ACTOR}.optim.use_precision_aware_optimizer")
    return {"--use-precision-aware-optimizer": True, **formats} if aware else {}


def _fsdp(keys: Keys) -> Flags:
    """FSDP, as the flags of Megatron-LM that shard as much."""
    ulysses = _ulysses(keys)
    again = keys.truth(f"{FSDP}.reshard_after_forward", True)
    recomputes = keys.truth(f"{MODEL}.enable_gradient_checkpointing", True)
    half = keys.choice(f"{FSDP}.dtype", {"bfloat16": "--bf16", "float16": "--fp16"}, "--bf16")
    words = {word: f"--{ours}" for word, ours in FORMATS.items() if ours is not None}
    half = keys.choice(f"{FSDP}.mixed_precision.param_dtype", words, half)
    reduced = keys.choice(f"{FSDP}.mixed_precision.reduce_dtype", FORMATS, None)
    if reduced is not None or _is_narrow(keys):
        keys.note(f"{FSDP}: gradients are priced as kept in the format in which they are reduced.")
    attentions = {"eager": "unfused", **dict.fromkeys(("sdpa", "flash_attention_2", "flash_attention_3"), "flash")}
    optimizer = keys.choice(f"{ACTOR}.optim.optimizer", {"adamw": "adam", "adam": "adam"}, "adam")
    full: Flags = {"granularity": "full", "method": "uniform", "num-layers": 1}
    return {
        "--use-torch-fsdp2": True,
        "--context-parallel-size": ulysses,
        "--cp-comm-type": "a2a" if ulysses > 1 else None,
        "--torch-fsdp2-no-reshard-after-forward": not again,
        "--use-distributed-optimizer": None,
        "--bf16": None,
        half: True,
        "--grad-reduce-in-bf16": reduced == "bf16" or None,
        "--attention-backend": keys.choice(f"{MODEL}.override_config.attn_implementation", attentions, "flash"),
        "--optimizer": optimizer,
        **{f"--recompute-{name}": value if recomputes else None for name, value in full.items()},
    }


def _ulysses(keys: Keys) -> int:
    """Ranks that exchange tokens for heads."""
    return max(keys.integer(f"{section}.{ULYSSES}") or 1 for section in (FSDP, ACTOR))


def _ulysses_key(keys: Keys) -> str:
    """The key that says how many these are."""
    return max((f"{section}.{ULYSSES}" for section in (FSDP, ACTOR)), key=lambda path: keys.integer(path) or 1)


def _batch(keys: Keys, devices: int | None, kind: str) -> Flags:
    """The sequences of one optimizer step, and how many run together."""
    mini = keys.integer(f"{ACTOR}.ppo_mini_batch_size") or 256
    repeated = keys.integer("actor_rollout_ref.rollout.n") or 1
    prompt = keys.integer("data.max_prompt_length") or 512
    response = keys.integer("data.max_response_length") or 512
    batch, length = mini * repeated, prompt + response
    keys.note(
        f"only an optimizer step of the actor is priced, {batch} sequences as long as they may be, of {length} tokens: "
        "rollout, reference policy, critic and rewards are not."
    )
    flags: Flags = {"--global-batch-size": batch, "--seq-length": length}
    sizes = [f"{ACTOR}.megatron.{name}_parallel_size" for name in ("tensor_model", "pipeline_model", "context")]
    tp, pp, cp = [keys.integer(path) or 1 for path in sizes] if kind == "megatron" else (1, 1, _ulysses(keys))
    ranks = max((devices or tp * pp * cp) // (tp * pp * cp), 1)
    tokens = keys.integer(f"{ACTOR}.ppo_max_token_len_per_gpu") or 16384
    if keys.truth(f"{ACTOR}.use_dynamic_bsz"):
        room, share = max(tokens * cp // length, 1), max(batch // ranks, 1)
        fitting = max(size for size in range(1, min(room, share) + 1) if share % size == 0)
        keys.note(f"use_dynamic_bsz is priced as micro-batches of {fitting} such sequences.")
        return {**flags, "--micro-batch-size": fitting}
    each, shared = keys.value(f"{ACTOR}.ppo_micro_batch_size_per_gpu"), keys.integer(f"{ACTOR}.ppo_micro_batch_size")
    if each is None and shared is not None:  # Older releases' name: samples of all data-parallel ranks.
        if shared % ranks:
            keys.problem(f"{ACTOR}.ppo_micro_batch_size {shared} is no multiple of the {ranks} data-parallel ranks.")
        return {**flags, "--micro-batch-size": max(shared // ranks, 1)}
    if each is None:
        keys.problem(f"{ACTOR}.ppo_micro_batch_size_per_gpu is missing, and use_dynamic_bsz is not set.")
    return flags


def export(plan: PlanDocument) -> Mapping[str, str]:
    """`verl_trainer.yaml`.

    Raises:
        InputError: verl cannot run the plan; the text has the reasons.
    """
    from nest.hooks.pipelines import deployed
    from nest.io import yaml_text
    from nest_frameworks.common import even_machines, problem_of
    from nest_frameworks.trainers.models import UNKNOWN, hugging_face_name

    problem = problem_of(plan)
    sections = DIALECT.written(plan, relatives.verl(Asked.of(problem)))
    shape, nodes = deployed(plan), even_machines(plan, "verl")
    actor = sections["actor_rollout_ref"]["actor"]
    sections["actor_rollout_ref"]["rollout"] = {"n": 1}
    batch = {"ppo_mini_batch_size": shape.global_batch, "use_dynamic_bsz": False}
    sections["actor_rollout_ref"]["actor"] = batch | actor
    name = hugging_face_name(plan.problem.get("model"))
    path = {} if name == UNKNOWN else {"path": name}
    sections["actor_rollout_ref"]["model"] = {"use_fused_kernels": problem.training.loss == "fused", **path}
    length = shape.sequence_length or 1
    head = {
        "hydra": {"searchpath": ["pkg://verl.trainer.config"]},
        "defaults": ["ppo_megatron_trainer", "_self_"],
        "trainer": {"nnodes": nodes, "n_gpus_per_node": shape.world_size // nodes},
        "data": {"max_prompt_length": length // 2, "max_response_length": length - length // 2},
    }
    comments = (
        "# Written by nest for verl: model, data and rewards are yours to add. The plan is the actor's training step.",
        f"# Prompt and response add up to {length} tokens; ppo_mini_batch_size times rollout.n is the batch of a step.",
    )
    return {FILE: "\n".join(comments) + "\n" + yaml_text({**head, **sections})}
