"""Megatron-LM: what it can run, with the reasons, and the flags of `pretrain_gpt.py` for a plan.

Sources: `validate_args` (megatron/training/arguments.py), `TransformerConfig.__post_init__`,
`ModelParallelConfig.__post_init__`, `initialize_model_parallel` (megatron/core/parallel_state.py), the schedules
(megatron/core/pipeline_parallel/schedules.py) and `MoELayer` of Megatron-LM core_v0.16.1.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from attrs import evolve

from nest.deployment import Deployment, Limits, deployment, rank_table, violations
from nest.errors import InputError, InputErrors
from nest.exporters.common import domain_of, model_of, problem_of, whole_batches
from nest.exporters.megatron.model_flags import (
    detail_flags,
    feed_forwards,
    left_out,
    model_flags,
    model_obstacles,
    windows,
)
from nest.exporters.megatron.notation import Flags, shell_file, yaml_file
from nest.exporters.megatron.parallel_flags import (
    PIPELINE_INNER_ORDER,
    SHARDING,
    batch_flags,
    communication_flags,
    environment,
    order_of,
    parallel_flags,
    sharding_flags,
)
from nest.exporters.megatron.training_flags import (
    MODES,
    eight_bit_weights,
    modules_of,
    optimizer_flags,
    precision_aware,
    precision_flags,
    recompute_flags,
    training_obstacles,
)
from nest.hooks.pipelines import deployed
from nest.spec import Architecture, PlanDocument, Problem, Training

MOST_RUNS = 8
"""Runs of ranks in one pool that a comment names."""

FSDP = "ZeRO 2 and 3 are its FSDP, which it neither documents nor tests with pipelines"


def limits(problem: Problem) -> Limits:
    """What Megatron-LM can run of `problem`.

    Raises:
        InputError: the model or the training is beyond it.
    """
    model, training = transformer_of(problem), problem.training
    for obstacle in (*model_obstacles(model, training.sequence_length or 1), *training_obstacles(training)):
        raise InputError(f"Megatron-LM cannot train this, because {obstacle}.")
    experts = bool(feed_forwards(model)[1])
    return Limits(
        strategies=("tp", "sp", "cp", "ep", "etp", "batch"),
        schedules=("1f1b", "interleaved"),
        recompute=tuple(mode for mode in MODES if mode != "selective" or _has_modules(training)),
        offload=("optimizer",),
        zero_degrees=not experts,
        constraints={
            "uniform(recompute)": "Megatron-LM has one recompute policy for all stages",
            "uniform(zero)": "Megatron-LM shards the optimizer of all stages alike",
            f"zero < {min(SHARDING)} or pp == 1": FSDP,
            **whole_batches(problem, "Megatron-LM"),
            **_head_constraints(model),
            **_predicting_constraints(model),
            **_training_constraints(training, model),
            **(_expert_constraints(training) if experts else {}),
        },
    )


def transformer_of(problem: Problem) -> Architecture:
    """The model, which must be a transformer.

    Raises:
        InputError: it is something else.
    """
    model = model_of(problem)
    if model is None:
        raise InputError(
            "Megatron-LM builds transformers from their widths, and this problem has measured layers or an operator "
            "graph; give a `model` that says what it is made of."
        )
    return model


def _has_modules(training: Training) -> bool:
    try:
        modules_of(training.selective)
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
    if training.optimizer.startswith("sgd"):
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
        modules_of(training.selective) if _has_modules(training) else ()
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


def rank_order(plan: PlanDocument) -> tuple[str, ...]:
    """How Megatron-LM counts ranks, run with these flags: with the pipeline inside or outside data parallelism.

    Raises:
        InputError: nothing is known of the model.
    """
    return order_of(deployment(plan), transformer_of(problem_of(plan)))


def export(plan: PlanDocument) -> Mapping[str, str]:
    """`megatron_flags.sh` and `megatron_args.yaml`.

    Raises:
        InputError: Megatron-LM cannot run the plan; the text has the reasons.
    """
    groups = flag_groups(plan)
    shape, model = deployed(plan), transformer_of(problem_of(plan))
    comments = _comments(plan, shape, model)
    exported, unset = environment(shape)
    return {
        "megatron_flags.sh": shell_file(comments, exported, unset, groups),
        "megatron_args.yaml": yaml_file(comments, exported, groups),
    }


def flag_groups(plan: PlanDocument, *, trainable: bool = False) -> Mapping[str, Flags]:
    """The flags of a plan, by the array they stand in; `trainable`: the caller says what is frozen.

    Raises:
        InputError: Megatron-LM cannot run the plan; the text has the reasons.
    """
    problem = problem_of(plan)
    shape = deployed(plan)
    beyond = violations(plan, evolve(limits(problem), trainable=trainable), "Megatron-LM")
    if beyond:
        raise InputErrors(f"{reason}." for reason in beyond)
    model, training = transformer_of(problem), problem.training
    return {
        "MODEL_ARGS": model_flags(model, training.sequence_length or 1) | detail_flags(problem.model, model),
        "PARALLEL_ARGS": parallel_flags(shape, model),
        "BATCH_ARGS": batch_flags(shape),
        "COMMUNICATION_ARGS": communication_flags(shape, training, model, domain_of(plan)),
        "RECOMPUTE_ARGS": recompute_flags(shape.recompute[0], training.selective),
        "PRECISION_ARGS": precision_flags(training),
        "OPTIMIZER_ARGS": {**optimizer_flags(training), **sharding_flags(shape, training)},
    }


def _comments(plan: PlanDocument, shape: Deployment, model: Architecture) -> list[str]:
    order = order_of(shape, model)
    words = "tp-cp-ep-pp-dp" if order == PIPELINE_INNER_ORDER else "tp-cp-ep-dp-pp"
    in_order = plan.placement is None and all(rank.device == rank.rank for rank in rank_table(plan, order))
    placed = (
        "Ranks lie on the devices of the cluster in their order."
        if in_order
        else "Ranks do not lie on the devices of the cluster in their order: launch them with the files that "
        "`nest export` writes for placement (ranks, slurm, torchrun, mpi)."
    )
    return [
        "Written by nest for Megatron-LM, checked against core_v0.16.1.",
        "Data, tokenizer, learning rate and checkpoints are yours to add.",
        f"{shape.world_size} ranks: {shape.stages} pipeline stages of {shape.width} devices, "
        f"{shape.replicas} replicas; {shape.micro_batches} micro-batches a step.",
        f"Rank order {words}. {placed}",
        *_pools_of_ranks(plan, order),
        *_beyond_domain(plan, shape),
        *(f"{sentence}." for sentence in left_out(plan.problem.get("model"), model)),
    ]


def _pools_of_ranks(plan: PlanDocument, order: Sequence[str]) -> list[str]:
    """Which ranks run in which pool, where there are several."""
    pools = [plan.stages[rank.pp].pool for rank in rank_table(plan, order)]
    if pools[0] is None:
        return []
    ends = [0, *(number for number, (one, two) in enumerate(pairwise(pools), start=1) if one != two), len(pools)]
    if len(ends) > MOST_RUNS + 1:
        return ["Ranks of several pools alternate; `nest export --to ranks` says which rank runs where."]
    runs = [f"{first} to {last - 1} in pool {pools[first]}" for first, last in pairwise(ends)]
    return [f"Ranks {', '.join(runs)}."]


def _beyond_domain(plan: PlanDocument, shape: Deployment) -> list[str]:
    """Why tensor parallelism does not overlap although it should."""
    domain = domain_of(plan)
    if shape.tp <= domain or not problem_of(plan).training.overlap.tensor:
        return []
    return [
        f"--tp-comm-overlap is left out: it works among the {domain} devices of a scale-up network only, and tensor "
        f"parallelism spans {shape.tp}."
    ]
