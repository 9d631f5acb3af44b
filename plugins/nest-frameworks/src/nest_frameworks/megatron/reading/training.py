"""Training described by flags of Megatron-LM: `training` of a problem.

Defaults: megatron/training/arguments.py and megatron/core/optimizer/optimizer_config.py of core_v0.16.1.
"""

from collections.abc import Collection
from typing import Any

from nest.spec import Architecture
from nest.spec.architecture import FeedForward, LatentAttention
from nest.spec.training import MOST_TOKENS
from nest_frameworks.limits import mixture
from nest_frameworks.limits.megatron import MODULES, OPTIONAL
from nest_frameworks.megatron.notation import OLD_STACK, SPEAKERS, STACK
from nest_frameworks.megatron.parallel_flags import FSDP_GRADIENTS
from nest_frameworks.megatron.reading.flags import FlagReader

EXCHANGES = {"p2p": "ring", "a2a": "ring", "a2a+p2p": "ring", "all_gather": "all_gather", "allgather": "all_gather"}
"""`training.context_exchange` by kind; ranks that exchange tokens for heads (`a2a`) are no longer those of `cp`."""


def read_training(
    flags: FlagReader, model: Architecture | None, denied: Collection[str] | None = None
) -> dict[str, Any]:
    """The keys of `training` that the flags speak of; mistakes are left with `flags`.

    `denied`: flags that are said not to be given; None: all that are not, where there is a model.
    """
    settings: dict[str, Any] = {
        "global_batch": flags.integer("--global-batch-size"),
        "sequence_length": flags.integer("--seq-length") or flags.integer("--encoder-seq-length"),
    }
    settings["tokens"] = _tokens(flags, settings["global_batch"], settings["sequence_length"])
    known = {key: value for key, value in settings.items() if value is not None}
    derived: dict[str, Any] = {
        "precision": _precision(flags),
        "optimizer": _optimizer(flags),
        "attention": _attention(flags),
        "attention_kernel": _attention_kernel(flags),
        "graphs": _graphs(flags),
        "kernels": "eager" if [flag for flag in UNFUSED if flags.has(flag)] else None,
        "norms": "fused" if [flag for flag in UNFUSED if flags.has(flag)] else None,
        "loss": _loss(flags),
        "stack": OLD_STACK if flags.has("--fp16") else STACK,
        "overlap": _overlap(flags),
        "dispatch": _dispatch(flags),
        "expert_products": None if not flags.has("--num-experts") or flags.has("--moe-grouped-gemm") else "sequential",
        "context_exchange": _context_exchange(flags),
        "selective": _selective(flags, model),
        "expert_capacity": _capacity(flags),
        "offload": ["optimizer"] if _offloads_optimizer(flags) else [],
        **_weights(flags),
    }
    # Flags of a whole model are all there are: what they leave out has Megatron-LM's default. Without one they go with
    # a problem, which says the rest.
    every = denied is None and model is not None
    decided = {key: value for key, value in derived.items() if every or _speaks(flags, key, denied or ())}
    return {**known, **decided}


def _tokens(flags: FlagReader, batch: int | None, length: int | None) -> int | None:
    """Tokens of the whole training; None where flags do not say, or leave it to a run: nothing else hangs on it."""
    for flag, samples in (("--train-samples", 1), ("--train-iters", batch)):
        count = flags.words.get(flag, ()) if flags.has(flag) else ()
        if len(count) == 1 and count[0].isdecimal() and len(count[0]) < 20 and samples and length:
            tokens = int(count[0]) * samples * length
            return tokens if 0 < tokens <= MOST_TOKENS else None
    return None


def _speaks(flags: FlagReader, key: str, denied: Collection[str]) -> bool:
    return any(flags.has(flag) or flag in denied for flag in SPEAKERS[key])


def _precision(flags: FlagReader) -> str:
    half = {"bf16": flags.has("--bf16"), "fp16": flags.has("--fp16")}
    eight, four = flags.word("--fp8-format"), flags.word("--fp4-format")
    recipe = flags.choice("--fp8-recipe", _RECIPES, "fp8")
    if all(half.values()):
        flags.problem("--bf16 and --fp16 are both given; Megatron-LM takes one of them.")
    if eight and four:
        flags.problem("--fp8-format and --fp4-format are both given; Megatron-LM takes one of them.")
    if flags.has("--fp8-param-gather") and not eight:
        flags.problem("--fp8-param-gather needs --fp8-format.")
    if four:
        return "nvfp4"
    if eight:
        return recipe
    return next((name for name, given in half.items() if given), "fp32")


_RECIPES = {"delayed": "fp8", "tensorwise": "fp8", "blockwise": "fp8", "mxfp8": "mxfp8"}


def _weights(flags: FlagReader) -> dict[str, Any]:
    """In what weights and gradients are kept."""
    eight = flags.word("--fp8-format") is not None
    reduced, full = flags.has("--grad-reduce-in-bf16"), flags.has("--accumulate-allreduce-grads-in-fp32")
    narrow = flags.choice("--main-grads-dtype", {"fp32": False, "bf16": True}, False)
    flags.asked |= {*FSDP_GRADIENTS}
    if flags.has("--use-megatron-fsdp") and flags.has("--bf16"):
        reduced = _sharded_gradients(flags, reduced)
    aware = flags.has("--use-precision-aware-optimizer")
    if flags.choice("--main-params-dtype", {"fp32": False, "fp16": True}, False):
        flags.note("--main-params-dtype fp16 is not priced: nest assumes the optimizer's weights to be fp32.")
    if narrow and not aware:
        flags.problem("--main-grads-dtype bf16 needs --use-precision-aware-optimizer.")
    gradients = "bf16" if (reduced or narrow) and flags.has("--bf16") else None
    return {
        "primary_weights": None if not eight else "fp8" if flags.has("--fp8-param-gather") else "bf16",
        "gradients": "fp32" if full and flags.has("--fp16") else gradients,
        "master_gradients": False if gradients and narrow and aware else None,
        "master_weights": None,
    }


def _sharded_gradients(flags: FlagReader, reduced: bool) -> bool:
    """Return whether Megatron FSDP adds up gradients in bf16; `reduced`: whether --grad-reduce-in-bf16 says so."""
    sums, sent = (flags.word(flag, "auto") for flag in FSDP_GRADIENTS)
    if sent not in ("auto", sums):
        flags.note(f"{FSDP_GRADIENTS[1]} {sent} is not priced: nest assumes gradients to be sent as they are added up.")
    if sums == "auto" and not reduced:
        said = {"fp32": ("adds up gradients in fp32", False), "bf16": ("adds up gradients in bf16", True)}
        return flags.assumed(FSDP_GRADIENTS[0], "--use-megatron-fsdp", said)
    return reduced if sums == "auto" else sums == "bf16"


def _optimizer(flags: FlagReader) -> str:
    names = {"adam": "adam", "sgd": "sgd-momentum", "muon": "muon", "adamw": "adam", "fusedadamw": "adam"}
    name = flags.choice("--optimizer", names, "adam")
    momentum = flags.number("--sgd-momentum")
    widths = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
    moments = (flags.choice("--exp-avg-dtype", widths, 4), flags.choice("--exp-avg-sq-dtype", widths, 4))
    if name == "muon":
        for flag, usual in MUON.items():
            flags.choice(flag, {usual: None}, None)
        if flags.has("--muon-no-split-qkv"):
            flags.note("--muon-no-split-qkv is not priced: nest prices steps on queries, keys and values apart.")
        return name
    if name != "adam":
        return "sgd" if momentum == 0 else name
    if moments not in {(4, 4), (2, 2), (1, 1)}:
        flags.note(
            "--exp-avg-dtype and --exp-avg-sq-dtype differ, which is not priced: nest assumes both to be the wider."
        )
    return {4: "adam", 2: "adam-bf16", 1: "adam-8bit"}[max(moments)]


MUON = {"--muon-num-ns-steps": "5", "--muon-tp-mode": "blockwise", "--muon-scalar-optimizer": "adam",
        "--muon-fp32-matmul-prec": "medium"}  # fmt: skip
"""Flags of Muon with the only values that nest prices, which are their defaults in megatron-core 0.19.2."""


def _offloads_optimizer(flags: FlagReader) -> bool:
    share = flags.number("--optimizer-offload-fraction")
    offload, aware = flags.has("--optimizer-cpu-offload"), flags.has("--use-precision-aware-optimizer")
    if not offload:
        return False
    if not aware:
        flags.problem("--optimizer-cpu-offload needs --use-precision-aware-optimizer.")
    if share not in (None, 1.0):
        flags.problem(f"--optimizer-offload-fraction is {share:g}; nest prices 1, the whole state on the host.")
    return True


def _attention(flags: FlagReader) -> str:
    flags.has("--use-flash-attn")
    kinds = {"auto": "flash", "flash": "flash", "fused": "flash", "unfused": "unfused", "local": "unfused"}
    backend = flags.choice("--attention-backend", kinds, "flash")
    if flags.word("--transformer-impl") == "local" and not flags.has("--use-flash-attn"):
        return "unfused"
    return backend


UNFUSED = ("--no-bias-swiglu-fusion", "--no-bias-gelu-fusion")
"""Without these fusions activations and products of feed-forward networks run one by one; norms are kernels anyway."""


def _attention_kernel(flags: FlagReader) -> str | None:
    """FlashAttention-2, which PyPI has, or cuDNN's; None: left to Transformer Engine, and to the stack."""
    local = flags.word("--transformer-impl") == "local" and flags.has("--use-flash-attn")
    return {"flash": "flash2", "fused": "cudnn"}.get(flags.word("--attention-backend") or ("flash" if local else ""))


def _graphs(flags: FlagReader) -> str | None:
    """Parts launched together by CUDA graphs (`CudaGraphModule` and `validate_args` of megatron-core 0.19.2)."""
    kinds = {"none": None, "local": "layers", "transformer_engine": "layers", "full_iteration": "iteration"}
    graphs = flags.choice("--cuda-graph-impl", kinds, None)
    if flags.has("--enable-cuda-graph") or flags.has("--external-cuda-graph"):
        graphs = "layers"
    named = [*flags.several("--cuda-graph-modules"), *flags.several("--cuda-graph-scope")]
    parts = [part for word in named for part in word.replace(",", " ").split()]
    if graphs is None:
        return None
    if "full_iteration" in parts:
        return "iteration"
    if graphs == "layers" and [part for part in parts if part not in ("full", "attn", "mlp")]:
        flags.note(f"graphs of {' '.join(parts)} are priced as graphs of whole layers.")
    return graphs


def _loss(flags: FlagReader) -> str:
    """Megatron-LM's own implementation, which is the default, computes in single precision."""
    implementation = flags.choice("--cross-entropy-fusion-impl", {"native": "unfused", "te": "fused"}, "unfused")
    return implementation if flags.has("--cross-entropy-loss-fusion") else "unfused"


def _overlap(flags: FlagReader) -> dict[str, bool]:
    """Overlaps; messages between stages do with interleaved schedules, as in the stack, unless denied."""
    tensor = flags.has("--tp-comm-overlap")
    if tensor and not flags.has("--sequence-parallel"):
        flags.problem("--tp-comm-overlap needs --sequence-parallel.")
    exposed = {"pipeline": False} if flags.has("--no-overlap-p2p-communication") else {}
    experts = flags.has("--overlap-moe-expert-parallel-comm")
    # PyTorch's own data parallelism, FSDP2 or what old versions could take, communicates behind the backward pass.
    torch = flags.has("--use-torch-fsdp2") or (flags.word("--DDP-impl") == "torch" and not flags.has("--deepspeed"))
    return {"data": flags.has("--overlap-grad-reduce") or torch, "tensor": tensor, "experts": experts, **exposed}


def _dispatch(flags: FlagReader) -> str:
    dispatcher = flags.word("--moe-token-dispatcher-type")
    if dispatcher not in (None, "alltoall", "flex"):
        flags.note(f"--moe-token-dispatcher-type {dispatcher} is not priced: alltoall is taken.")
    for flag in ("--moe-flex-dispatcher-backend", "--moe-enable-deepep"):
        flags.has(flag)  # Whichever it is, it forwards tokens within nodes.
    return "per-node" if dispatcher == "flex" else "all-to-all"


def _context_exchange(flags: FlagReader) -> str:
    kinds = dict.fromkeys(flags.several("--cp-comm-type"))
    if (flags.integer("--context-parallel-size") or 1) == 1 or not kinds:
        return "ring"
    strange = [kind for kind in kinds if kind not in EXCHANGES]
    if strange or len({kind if kind.startswith("a2a") else EXCHANGES[kind] for kind in kinds}) > 1:
        flags.problem(f"--cp-comm-type {' '.join(kinds)} cannot be priced; nest knows {', '.join(EXCHANGES)} for all.")
        return "ring"
    return EXCHANGES[next(iter(kinds))]


def _capacity(flags: FlagReader) -> float:
    factor, padded = flags.number("--moe-expert-capacity-factor"), flags.has("--moe-pad-expert-input-to-capacity")
    if factor is None or factor < 0:
        return 1.0
    if not padded:
        flags.note("--moe-expert-capacity-factor without padding is not priced: nest assumes experts to be balanced.")
        return 1.0
    if factor < 1:
        flags.note(f"--moe-expert-capacity-factor {factor:g} drops tokens, which is not priced: 1 is taken.")
    return max(factor, 1.0)


def _selective(flags: FlagReader, model: Architecture | None) -> list[str]:
    modules = tuple(word for text in flags.several("--recompute-modules") for word in text.strip("[]").split())
    granularity, short = flags.word("--recompute-granularity"), flags.has("--recompute-activations")
    if granularity != "selective" and not short:
        return ["attention"]
    strange = [module for module in modules if module not in MODULES]
    for module in strange:
        flags.problem(f"--recompute-modules has no {module!r:.40}; it has {', '.join(MODULES)}.")
    if strange:
        return ["attention"]
    chosen = modules or ("core_attn",)
    operators = dict.fromkeys(operator for module in chosen for operator in MODULES[module])
    operators_recomputed = [operator for operator in operators if _runs(operator, model)]
    return operators_recomputed or ["attention"]


def _runs(operator: str, model: Architecture | None) -> bool:
    """Return whether the model has an operator that `--recompute-modules` speaks of."""
    if model is None:
        return operator not in OPTIONAL
    attention = model.blocks[0].attention
    networks = [block.feed_forward for block in model.blocks]
    experts = mixture(model)
    if operator == "query_latent_norm":
        return isinstance(attention, LatentAttention) and attention.query_rank is not None
    if operator.startswith("shared_expert"):
        return experts is not None and experts.shared_width > 0
    if operator in MODULES["mlp"]:
        return any(isinstance(network, FeedForward) for network in networks)
    if operator in (*MODULES["moe"], *MODULES["moe_act"]):
        return experts is not None
    if operator in MODULES["mla_up_proj"]:
        return isinstance(attention, LatentAttention)
    return True
