"""NeMo 1: the Hydra file of `megatron_gpt_pretraining.py`, and those of NeMo-Framework-Launcher.

Keys and defaults: NVIDIA/NeMo r2.0.0, examples/nlp/language_modeling/conf/megatron_gpt_config.yaml,
`MegatronBaseModel` (build_transformer_config, setup_optimization) and `MegatronGPTModel` of
nemo/collections/nlp/models/language_modeling. Fields of Megatron Core's TransformerConfig that a file names are passed
on by their names. NeMo 2 has recipes in Python, and Megatron-Bridge after it overlays (`megatron-bridge`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nest.deployment import LaunchOptions, Reading
from nest.errors import InputError
from nest.spec import PlanDocument
from nest_frameworks.limits import Asked, relatives
from nest_frameworks.megatron.notation import OLD_STACK, Flags
from nest_frameworks.megatron.relatives.core import COSTS, DEGREES, EXPERTS, FREE, KERNELS, SWITCHED, WIDTHS, under
from nest_frameworks.megatron.relatives.dialect import Dialect, Row, machines

if TYPE_CHECKING:
    from nest_frameworks.keys import Keys


FILE = "nemo_config.yaml"

SHARDED: Flags = {"--optimizer": "adam", "--use-distributed-optimizer": True}
PLAIN: Flags = {"--optimizer": "adam"}

OPTIMIZERS: Row = {
    "mcore_distributed_optim": SHARDED,
    "distributed_fused_adam": SHARDED,
    "fused_adam": PLAIN,
    "megatron_fused_adam": PLAIN,
    "adamw": PLAIN,
    "adam": PLAIN,
    "sgd": {"--optimizer": "sgd"},
}

HALF: Flags = {"--fp16": True}
PRECISIONS: Row = {
    "bf16": {"--bf16": True},
    "bf16-mixed": {"--bf16": True},
    16: HALF,
    "16": HALF,
    "16-mixed": HALF,
    "fp16": HALF,
    32: {},
    "32": {},
    "32-true": {},
}

SWIGLU: Flags = {"--swiglu": True}
ACTIVATIONS: Row = {
    "fast-swiglu": SWIGLU,
    "swiglu": SWIGLU,
    "gelu": {},
    "geglu": {"--quick-geglu": True},
    "fast-geglu": {"--quick-geglu": True},
    "squared-relu": {},
    "relu": {},
}

LAYER_NORM: Flags = {"--normalization": "LayerNorm"}
NORMS: Row = {
    "layernorm": LAYER_NORM,
    "rmsnorm": {"--normalization": "RMSNorm"},
    "layernorm1p": LAYER_NORM,
    "low_precision_layernorm": LAYER_NORM,
}

SYNC: Row = {word: {} for word in ("fp32", "torch.float32")} | {
    word: {"--grad-reduce-in-bf16": True} for word in ("bf16", "torch.bfloat16")
}

CHECKPOINTS: Mapping[str, Row] = {
    "activations_checkpoint_granularity": "--recompute-granularity",
    "activations_checkpoint_method": "--recompute-method",
    "activations_checkpoint_num_layers": "--recompute-num-layers",
    "recompute_modules": "--recompute-modules",
}

MODEL: Mapping[str, Row] = {
    "micro_batch_size": "--micro-batch-size",
    "global_batch_size": "--global-batch-size",
    **DEGREES,
    "use_tp_pp_dp_mapping": "?--use-tp-pp-dp-mapping",
    "encoder_seq_length": "--seq-length",
    "max_position_embeddings": "--max-position-embeddings",
    **{key: row for key, row in WIDTHS.items() if key != "mtp_num_layers"},
    **EXPERTS,
    "normalization": NORMS,
    "activation": ACTIVATIONS,
    "bias": "!--disable-bias-linear",
    "qkv_bias": "?--add-qkv-bias",
    "position_embedding_type": "--position-embedding-type",
    "rotary_base": "--rotary-base",
    "rotary_percentage": "--rotary-percent",
    "scale_positional_embedding": "?--use-rope-scaling",
    "seq_len_interpolation_factor": "--rotary-seq-len-interpolation-factor",
    "share_embeddings_and_output_weights": "!--untie-embeddings-and-output-weights",
    "override_vocab_size": "--vocab-size",
    **CHECKPOINTS,
    "ub_tp_comm_overlap": "?--tp-comm-overlap",
    "overlap_p2p_comm": "!--no-overlap-p2p-communication",
    "cp_comm_type": "--cp-comm-type",
    "attention_backend": "--attention-backend",
    "cross_entropy_loss_fusion": "?--cross-entropy-loss-fusion",
    "cross_entropy_fusion_impl": "--cross-entropy-fusion-impl",
    "optim.name": OPTIMIZERS,
    "optim.grad_sync_dtype": SYNC,
    "optim.overlap_grad_sync": "?--overlap-grad-reduce",
    "optim.overlap_param_sync": "?--overlap-param-gather",
}

ELSEWHERE = "defaults hydra.* run.* name restore_from_path exp_manager.* trainer.* cluster.*"

IN_MODEL = """
data.* optim.* tokenizer.* nsys_profile.* *_p2p_* fp8* *_fusion *resume* apex_* native_amp_* pre_process post_process
reduce_* persist_layer_norm gradient_as_bucket_view *_log_level use_scaled_init_method ffn_dropout headscale normalize_*
target grad_* transformer_block_type sync_batch_comm gc_interval seed deterministic_mode wgrad_deferral_limit use_emha
ub_* mcore_gpt onnx_safe data_sharding attention_type megatron_* do_layer_norm_* num_layers_* precision nemo_*
answer_only_loss sharp fsdp_* layernorm_zero_* dist_ckpt* apply_query_* moe_*loss* *_momentum enable_megatron_timers
"""
"""Patterns of keys of `model`, beside fields of Megatron Core, that change no cost that nest counts."""

DIALECT = Dialect(
    "NeMo",
    rows={"trainer.precision": PRECISIONS, **under("model", MODEL)},
    read_only={
        "trainer.max_steps": "--train-iters",
        "model.rampup_batch_size": "--rampup-batch-size",
        **under("model", KERNELS),
    },
    defaults={},
    implied=("--sgd-momentum", "--fp4-recipe", "--use-precision-aware-optimizer"),
    refused=under("model", SWITCHED)
    | {
        "model.sliding_window": "nest assumes queries to attend to every key",
        "model.mtp_num_layers": "nest assumes no layers to predict further tokens",
        "model.num_micro_batches_with_partial_activation_checkpoints": "nest assumes equal recomputation",
        "model.fsdp": "nest does not read NeMo's own FSDP; it reads its distributed optimizers",
        "model.peft.peft_scheme": "nest does not read the adapters of NeMo",
        "model.hybrid_override_pattern": "nest prices decoders like GPT's, and this has Mamba layers",
        "model.retro": "nest prices decoders like GPT's, and this retrieves",
    },
    assumed=under("model", COSTS)
    | {
        "model.activations_checkpoint_layers_per_pipeline": "nest assumes all stages to recompute alike",
        "model.fp8_params": "nest assumes weights to be kept in bf16",
        "model.optim.dtype": "nest assumes the optimizer's state to be in single precision",
    },
    harmless=(*ELSEWHERE.split(), *under("model", dict.fromkeys((*FREE, *IN_MODEL.split())))),
    states_model=True,
    aliases={"--tokenizer-type": "model.tokenizer.type"},
    half_stack=OLD_STACK,
)


def read(text: str, options: LaunchOptions | None = None) -> Reading:
    """Read a file of NeMo.

    `options`: what else is said of the launch; its machines stand in place of the file's.

    Raises:
        InputErrors: keys contradict each other, or say what nest cannot price.
        InputError: it is no such file, or one of NeMo 2.
    """
    from nest_frameworks.keys import Keys, opened
    from nest_frameworks.megatron.relatives.interpolation import resolved

    content = opened(text, FILE, "NeMo's sections", ("model", "trainer"))
    model, trainer = (content.get(name) for name in ("model", "trainer"))
    if not isinstance(model, Mapping) or not isinstance(trainer, Mapping):
        raise InputError("the file has not both of NeMo's sections, model and trainer.")
    if "strategy" in trainer and isinstance(trainer["strategy"], Mapping):
        raise InputError(
            "this is of NeMo 2, which is configured in Python and not by its YAML; read the log of its arguments, or "
            "the file that Megatron-Bridge saves (--from megatron-bridge)."
        )
    keys = Keys(resolved(content))
    devices = machines(keys, options or LaunchOptions(), "trainer.num_nodes", "trainer.devices")
    return DIALECT.read(keys, devices, _extra(keys))


def _extra(keys: Keys) -> Flags:
    """Flags that follow from several keys."""
    flags: Flags = {}
    granularity = keys.value("model.activations_checkpoint_granularity")
    if granularity != "full":  # What stands beside it has no effect.
        flags |= {"--recompute-method": None, "--recompute-num-layers": None}
    if granularity != "selective":
        flags["--recompute-modules"] = None
    kernels = ("transformer_engine", "mcore_gpt", "use_flash_attention")
    fast = [name for name in kernels if keys.truth(f"model.{name}")]
    if not fast and keys.value("model.attention_backend") is None:
        flags["--attention-backend"] = "unfused"
    half = keys.value("trainer.precision") not in (32, "32", "32-true", None)
    if half and not keys.truth("model.megatron_amp_O2"):
        keys.note("model.megatron_amp_O2 false, weights in single precision, is priced as true: in the narrow format.")
    eight = {name: keys.truth(f"model.{name}") for name in ("fp8", "fp8_e4m3", "fp8_hybrid")}
    if eight["fp8"]:
        form = "e4m3" if eight["fp8_e4m3"] and not eight["fp8_hybrid"] else "hybrid"
        flags |= {"--fp8-format": form, "--fp8-recipe": "delayed"}
    # ModelParallelConfig overlaps no messages between stages unless told, where Megatron-LM does; Apex's optimizer
    # reduces gradients behind the backward pass unless told.
    if keys.value("model.overlap_p2p_comm") is None:
        flags["--no-overlap-p2p-communication"] = True
    if (
        keys.value("model.optim.name") == "distributed_fused_adam"
        and keys.value("model.optim.overlap_grad_sync") is None
    ):
        flags["--overlap-grad-reduce"] = True
    if not keys.value("model.encoder_seq_length") and (length := keys.integer("model.data.seq_length")):
        flags["--seq-length"] = str(length)
    return flags | _vocabulary(keys)


def _vocabulary(keys: Keys) -> Flags:
    """Tokens of the vocabulary, where the file names a tokenizer that is always the same."""
    from nest.catalogue.spellings import catalogued
    from nest_frameworks.trainers.models import vocabulary_of

    library, kind = keys.value("model.tokenizer.library"), keys.value("model.tokenizer.type")
    if keys.value("model.override_vocab_size") is not None or not isinstance(kind, str):
        return {}
    if library == "megatron":
        return {"--tokenizer-type": kind}
    name = catalogued(kind)
    if name is None:
        return {}
    keys.note(f"the vocabulary is that of {name}, as model.tokenizer.type is {kind}.")
    return {"--vocab-size": str(vocabulary_of(name))}


def export(plan: PlanDocument) -> Mapping[str, str]:
    """`nemo_config.yaml`.

    Raises:
        InputError: NeMo cannot run the plan; the text has the reasons.
    """
    from nest.hooks.pipelines import deployed
    from nest.io import yaml_text
    from nest_frameworks.common import even_machines, problem_of

    sections = DIALECT.written(plan, relatives.nemo(Asked.of(problem_of(plan))))
    shape, nodes = deployed(plan), even_machines(plan, "NeMo")
    sections["trainer"] = {"num_nodes": nodes, "devices": shape.world_size // nodes, **sections["trainer"]}
    model: dict[str, Any] = {"mcore_gpt": True, "transformer_engine": True, "megatron_amp_O2": True}
    sections["model"] = model | sections["model"]
    text = yaml_text({"defaults": ["megatron_gpt_config", "_self_"], **sections})
    return {FILE: "# Written by nest for NeMo 1: data, tokenizer and learning rate are yours to add.\n" + text}
