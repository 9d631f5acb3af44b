"""Megatron-LM: what it can run, and why no more.

Sources: `validate_args` (megatron/training/arguments.py), `TransformerConfig.__post_init__`,
`ModelParallelConfig.__post_init__`, the schedules (megatron/core/pipeline_parallel/schedules.py), `MoELayer` and
megatron/core/optimizer/optimizer_config.py of Megatron-LM core_v0.16.1; `recompute_modules` of its TransformerConfig,
whose operators are those of docs/reference/problem.md, selective.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from attrs import evolve

from nest.deployment import Limits
from nest.errors import InputError
from nest.spec import Architecture, Training
from nest.spec.architecture import FeedForward, GroupedQueryAttention, LatentAttention, MixtureOfExperts
from nest_frameworks.limits import Asked, gradient_format, looks_ahead, whole_batches

OPTIMIZERS = ("adam", "adamw", "adam-bf16", "adam-8bit", "muon", "sgd", "sgd-momentum")
"""By the catalogue's names."""

MIXED = {"lion": "its Lion leaves embeddings, the head, norms and biases to Adam, unlike the optimizer of that name"}
"""Optimizers of Megatron Core that keep more than the catalogue's of that name (emerging_optimizers.py of 0.19.2).

findings/megatron-lion-trains-embeddings-with-adam.sh shows it.
"""


def megatron(asked: Asked, *, recipe: bool = False) -> Limits:
    """Limits of Megatron-LM for `problem`; a `recipe` that builds the model lifts some.

    Raises:
        InputError: the model or the training is beyond it.
    """
    model, training = asked.transformer, asked.training
    unwritten = () if recipe else flag_obstacles(model)
    length = training.sequence_length or 1
    for obstacle in (*unwritten, *model_obstacles(model, length), *training_obstacles(training)):
        raise InputError(f"Megatron-LM cannot train this, because {obstacle}.")
    experts = bool(feed_forwards(model)[1])
    return Limits(
        strategies=("tp", "sp", "cp", "ep", "etp", "batch"),
        schedules=("1f1b", "interleaved"),
        recompute=tuple(mode for mode in MODES if mode != "selective" or _has_modules(training)),
        # --recompute-method block keeps everything of the other blocks, and of blocks that predict further tokens
        # (megatron/core/recompute.py and megatron/core/transformer/multi_token_prediction.py of 0.19.2).
        partial_recompute=() if model.predicting else (("full", "none"),),
        offload=("optimizer",),
        zero_degrees=not experts,
        usual_zero=1,  # Recipes of Megatron-Bridge (067f987d) set use_distributed_optimizer.
        usual_rank_order="dp-inner",  # arguments.py: tp-cp-ep-dp-pp, unless use_tp_pp_dp_mapping.
        constraints={
            "uniform(recompute)": "Megatron-LM has one recompute policy for all stages",
            "uniform(zero)": "Megatron-LM shards the optimizer of all stages alike",
            "zero < 2 or pp == 1": "ZeRO 2 and 3 are its FSDP, which it neither documents nor tests with pipelines",
            **whole_batches(asked, "Megatron-LM"),
            **_head_constraints(model),
            **_predicting_constraints(model),
            **_training_constraints(training, model),
            **(_expert_constraints(training) if experts else {}),
        },
    )


def _has_modules(training: Training) -> bool:
    try:
        modules_of(training.selected)
    except InputError:
        return False
    return True


def _head_constraints(model: Architecture) -> dict[str, str]:
    heads = model.blocks[0].attention.heads
    groups = getattr(model.blocks[0].attention, "kv_heads", heads)
    return {
        f"{heads} % tp == 0": f"Megatron-LM gives each tensor-parallel rank as many of the {heads} attention heads",
        f"{groups} % tp == 0 or tp % {groups} == 0": (
            f"Megatron-LM wants the {groups} query groups to be a multiple or a divisor of tensor parallelism"
        ),
    }


def _predicting_constraints(model: Architecture) -> dict[str, str]:
    """Blocks that predict further tokens stay together; none where there is but one."""
    if model.predicting < 2:
        return {}
    count = len(model.blocks)
    names = ", ".join(f'"layers.{number}"' for number in range(count - model.predicting, count))
    return {f"same_stage({names})": "Megatron-LM builds all layers that predict further tokens in one place"}


def _training_constraints(training: Training, model: Architecture) -> dict[str, str]:
    constraints = {}
    if training.optimizer == "muon":
        constraints["zero == 0"] = (
            "Megatron-LM's distributed optimizer gives every rank whole matrices of Muon, which nest does not price, "
            "and its FSDP has no Muon"
        )
    elif training.optimizer.startswith("sgd"):
        constraints["zero == 0"] = "Megatron-LM's distributed optimizer and its FSDP are Adam's"
    elif precision_aware(training):
        constraints["zero >= 1"] = (
            "Megatron-LM's precision-aware optimizer, which this training asks for, is distributed"
        )
    elif eight_bit_weights(training):
        constraints["zero >= 1"] = "Megatron-LM keeps weights in 8 bits only with its distributed optimizer"
    if training.overlap.tensor:
        constraints["tp == 1 or sp > 1"] = (
            "Megatron-LM overlaps tensor parallelism only with sequence parallelism; give that, or say "
            "overlap.tensor: false"
        )
    if training.key_exchange == "ring" and any(windows(model)):
        constraints["cp == 1"] = (
            "Transformer Engine passes keys on in a ring only where there is no attention window; "
            "training.context_exchange all_gather would do"
        )
    delayed = training.precision == "fp8" and eight_bit_weights(training) and "optimizer" in training.offload
    if delayed and {"layernorm", "moe_act"}.intersection(
        modules_of(training.selected) if _has_modules(training) else ()
    ):
        constraints['recompute != "selective"'] = (
            "Megatron-LM does not recompute norms and activations of experts with delayed scaling of fp8"
        )
    return constraints


def _expert_constraints(training: Training) -> dict[str, str]:
    constraints = {
        "(tp == 1) or (sp > 1)": (
            "Megatron-LM trains mixtures of experts with tensor parallelism only where the sequence is parallel too"
        )
    }
    if training.overlap.experts:
        constraints['ep == 1 or (pp == 1 or chunks > 1) and recompute != "full"'] = (
            "Megatron-LM overlaps the exchange of experts only without a pipeline or with an interleaved one, and not "
            "with full recomputation"
        )
    return constraints


BIASED_SOFTMAX = ("ernie4_5_moe",)
"""Families whose routers choose by softmax scores and a bias that gradients do not move (modeling_ernie4_5_moe.py)."""

SIGMOID_ROUTERS = (
    *("deepseek_v3", "kimi_k2", "glm4_moe", "minimax_m2", "deepseek_v32"),
    *("exaone_moe", "glm4_moe_lite", "glm_moe_dsa", "mimo_v2_flash", "solar_open"),
)
"""Families whose routers score by sigmoid, with a bias that is not learned by gradients, whatever configurations say.

arXiv 2412.19437, section 2.1.2; arXiv 2508.06471, section 2.1; modeling_minimax_m2.py of transformers 5.23.0.
"""


def biased_sigmoid_router(model: Any) -> bool:
    """Return whether the router in the configuration of a problem's `model` scores by sigmoid with such a bias."""
    if not isinstance(model, Mapping) or "model_type" not in model:
        return False
    said = (model.get("scoring_func"), model.get("topk_method"))
    return str(model["model_type"]) in SIGMOID_ROUTERS or said == ("sigmoid", "noaux_tc")


def model_obstacles(model: Architecture, sequence_length: int) -> Iterator[str]:
    """Why Megatron-LM's `pretrain_gpt.py` cannot build `model`: clauses that follow "because"."""
    attentions = [block.attention for block in model.blocks]
    if looks_ahead(model):
        yield "its pretrain_gpt.py trains decoders that normalise first, and this is an encoder such as BERT"
    grouped = [each for each in attentions if isinstance(each, GroupedQueryAttention)]
    if any(isinstance(each, LatentAttention) and each.indexer is not None for each in attentions):
        yield "an indexer chooses the keys of its sparse attention, which this exporter does not write"
    if any(each.normalised and each.norm != "shared" for each in grouped):
        yield "--qk-layernorm normalises heads in front of their rotation, all with the same weights, unlike this model"
    if any(each.chunk is not None and each.chunk < sequence_length for each in grouped):
        yield f"its tokens attend within chunks shorter than {sequence_length} tokens, for which there is no flag"
    if model.result_norms:
        yield "norms follow its sub-layers, as in Gemma 2 and OLMo 2, which this exporter does not write"
    if any(each.gate for each in grouped):
        yield "gates scale the results of its attention, which this exporter does not write"
    if any(each.indexer or each.keys_of is not None or each.key_values or each.value_norm for each in grouped):
        yield "its attention chooses, shares or normalises keys and values in a way that this exporter does not write"
    if any(each.value not in (None, each.head) for each in grouped):
        yield "its heads have fewer channels of values than of keys, for which there is no flag"
    if model.scaled:
        yield "factors scale its embeddings, residual sums or logits, as in Granite, for which there are no flags"
    if model.parallel:
        yield "its attention and feed-forward networks run side by side, for which there is no flag"
    if model.family in BIASED_SOFTMAX:
        yield "a bias helps its softmax router choose, and --moe-router-enable-expert-bias asks for a sigmoid one"
    if 0 < model.positions < sequence_length:
        yield f"sequences of {sequence_length} tokens are longer than the {model.positions} learned positions"
    if len({_without_window(each) for each in {*attentions}}) > 1 or len({*windows(model)} - {None}) > 1:
        yield "its blocks differ in their attention, and Megatron-LM has flags for one kind"
    dense, sparse = feed_forwards(model)
    gated = {network.gated for network in dense} | {network.gated for network in sparse}
    if len({*dense}) > 1 or len({*sparse}) > 1 or len(gated) > 1:
        yield "its blocks differ in their feed-forward networks, and Megatron-LM has flags for one kind"
    biased = biases(model)
    if biased not in (({True}, {True}), ({False}, {False}), ({True}, {False})):
        yield (
            "some of its projections have biases and some have not; --disable-bias-linear and --add-qkv-bias leave "
            "all, none, or those of queries, keys and values"
        )
    if sparse and biased[1] == {True} and not sparse[0].bias:
        yield "its experts have no biases and other projections have, which --disable-bias-linear does not tell apart"
    if model.positions and any(rotates(each) for each in attentions):
        yield "it has rotary and learned positions, and --position-embedding-type is one of them"


def flag_obstacles(model: Architecture) -> Iterator[str]:
    """Models that Megatron Core builds but nest's flags do not: clauses that follow 'because'."""
    if any(isinstance(block.attention, GroupedQueryAttention) and block.attention.sinks for block in model.blocks):
        yield "its attention has learned sinks and its experts clamp, as gpt-oss, which this exporter does not write"


def windows(model: Architecture) -> tuple[int | None, ...]:
    """Keys a query of each block attends to; None: all."""
    return tuple(
        block.attention.window if isinstance(block.attention, GroupedQueryAttention) else None for block in model.blocks
    )


def feed_forwards(model: Architecture) -> tuple[tuple[FeedForward, ...], tuple[MixtureOfExperts, ...]]:
    """The dense feed-forward networks, and the mixtures of experts."""
    networks = [block.feed_forward for block in model.blocks]
    dense = tuple(network for network in networks if isinstance(network, FeedForward))
    return dense, tuple(network for network in networks if isinstance(network, MixtureOfExperts))


def _without_window(attention: GroupedQueryAttention | LatentAttention) -> GroupedQueryAttention | LatentAttention:
    return evolve(attention, window=None) if isinstance(attention, GroupedQueryAttention) else attention


def rotates(attention: GroupedQueryAttention | LatentAttention) -> bool:
    """Return whether queries and keys have rotary positions."""
    return isinstance(attention, LatentAttention) or attention.rotary


def biases(model: Architecture) -> tuple[set[bool], set[bool]]:
    """Return whether query, key and value projections have biases, and whether others have; experts have none."""
    queries, others = set(), set()
    for block in model.blocks:
        attention, network = block.attention, block.feed_forward
        queries.add(attention.bias)
        others.add(attention.output_bias if isinstance(attention, GroupedQueryAttention) else attention.bias)
        if isinstance(network, FeedForward):
            others.add(network.bias)
    return queries, others


EIGHT_BITS = ("fp8", "mxfp8")


MODES = ("none", "selective", "full")


def training_obstacles(training: Training) -> Iterator[str]:
    """Trainings that no plan can have with Megatron-LM: clauses that follow 'because'."""
    if training.optimizer not in OPTIMIZERS:
        known = f"it has no optimizer {training.optimizer!r}; those it has are {', '.join(OPTIMIZERS)}"
        yield MIXED.get(training.optimizer, known)
    if training.precision == "fp32" and gradient_format(training) != "fp32":
        yield "it accumulates and reduces gradients in fp32 where parameters are fp32"
    if training.precision != "fp16" and training.gradients == "fp16":
        yield "it accumulates and reduces gradients in fp16 only where parameters are fp16"
    if training.precision == "fp16" and training.gradients == "bf16":
        yield "it does not reduce gradients of fp16 parameters in bf16"
    if training.master_weights is not None and training.master_weights != (training.precision != "fp32"):
        yield "its optimizer keeps single-precision weights wherever parameters are narrower, and only there"
    if training.master_gradients is not None and not _has_master_gradients(training):
        yield (
            "its optimizer keeps single-precision gradients where they are narrower, or, with its precision-aware "
            "Adam, none of gradients in bf16"
        )
    if training.precision == "fp16" and training.optimizer == "muon":
        yield "its Muon does not train in fp16"
    if training.primary_weights == "fp8" and not training.optimizer.startswith("adam"):
        yield "it keeps weights in 8 bits only with the distributed optimizer of Adam"
    if "optimizer" in training.offload and not training.optimizer.startswith("adam"):
        yield "it keeps only Adam's state in the host's memory"
    if "optimizer" in training.offload and training.precision == "mxfp8" and eight_bit_weights(training):
        yield "it keeps the optimizer's state in the host's memory only where weights are no mxfp8"


def _has_master_gradients(training: Training) -> bool:
    narrow = gradient_format(training) != "fp32"
    if training.master_gradients:
        return narrow
    # Those of fp16 are given up before the next forward pass (megatron/core/optimizer/optimizer.py, `zero_grad`).
    given_up = gradient_format(training) == "fp16"
    return not narrow or given_up or (training.gradients == "bf16" and training.optimizer.startswith("adam"))


def precision_aware(training: Training) -> bool:
    """Return whether the optimizer must be told what it keeps in which precision, or where."""
    bare = training.gradients == "bf16" and training.master_gradients is False
    return bare or training.optimizer in ("adam-bf16", "adam-8bit") or "optimizer" in training.offload


def eight_bit_weights(training: Training) -> bool:
    """Return whether weights are kept in 8 bits; the catalogue's `fp8` and `mxfp8` do unless told otherwise."""
    return training.precision in EIGHT_BITS and training.primary_weights != "bf16"


MODULES: dict[str, tuple[str, ...]] = {
    "core_attn": ("attention",),
    "layernorm": ("attention_norm", "mlp_norm"),
    "moe_act": ("expert_activated",),
    "mla_up_proj": ("query_latent_norm", "query", "key_value_latent_norm", "key_value", "rotary"),
    "mlp": ("mlp_up", "mlp_activated", "mlp_down"),
    "moe": (
        "router",
        "routing",
        "dispatch",
        "expert_up",
        "expert_activated",
        "expert_down",
        "expert_biased",
        "combine",
        "shared_expert_up",
        "shared_expert_activated",
        "shared_expert_down",
    ),
    "shared_experts": ("shared_expert_up", "shared_expert_activated", "shared_expert_down"),
}
"""Recomputation of each module, in the words of `training.selective`."""


OPTIONAL = frozenset({*MODULES["shared_experts"], "expert_biased", "query_latent_norm"})
"""Operators that some models lack, so that their modules go without them."""


def modules_of(selective: Sequence[str]) -> tuple[str, ...]:
    """The fewest modules that recompute what `training.selective` chooses.

    Raises:
        InputError: no modules do.
    """
    wanted = frozenset(selective)
    possible = [name for name, operators in MODULES.items() if _needed(operators) <= wanted]
    for count in range(1, len(possible) + 1):
        for chosen in combinations(possible, count):
            covered = frozenset(operator for name in chosen for operator in MODULES[name])
            if wanted <= covered and frozenset(o for name in chosen for o in _needed(MODULES[name])) <= wanted:
                return chosen
    raise InputError(
        f"training.selective ({', '.join(selective)}) is not made of what Megatron-LM's --recompute-modules run again: "
        + "; ".join(f"{name} is {', '.join(operators)}" for name, operators in MODULES.items())
        + "."
    )


def _needed(operators: Sequence[str]) -> frozenset[str]:
    """Those of a module's operators that every model with the module has; all where a model may lack any."""
    return (frozenset(operators) - OPTIONAL) or frozenset(operators)
