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
from nest.hooks.pipelines import deployed
from nest.spec import Architecture, PlanDocument
from nest.units import format_bytes
from nest_frameworks.common import domain_of, problem_of, samples
from nest_frameworks.limits import Asked
from nest_frameworks.limits.megatron import megatron
from nest_frameworks.megatron.model_flags import detail_flags, left_out, model_flags
from nest_frameworks.megatron.notation import Flags, shell_file, yaml_file
from nest_frameworks.megatron.parallel_flags import (
    PIPELINE_INNER_ORDER,
    batch_flags,
    communication_flags,
    environment,
    order_of,
    parallel_flags,
    sharding_flags,
)
from nest_frameworks.megatron.training_flags import optimizer_flags, precision_flags, recompute_flags
from nest_frameworks.releases import releases_of

MOST_RUNS = 8
"""Runs of ranks in one pool that a comment names."""

FSDP = "ZeRO 2 and 3 are its FSDP, which it neither documents nor tests with pipelines"


def rank_order(plan: PlanDocument) -> tuple[str, ...]:
    """Order in which Megatron-LM counts ranks with these flags: the pipeline inside or outside data parallelism.

    Raises:
        InputError: nothing is known of the model.
    """
    return order_of(deployment(plan), Asked.of(problem_of(plan)).transformer)


HYBRID_EP = (
    "--moe-flex-dispatcher-backend hybridep needs HybridEP (deep_ep with HybridEPBuffer), which no stock "
    "Megatron-LM has; `training.dispatch: all-to-all` plans without it."
)
"""megatron/core/transformer/moe/fused_a2a.py of 0.19.2 imports it where it is installed."""


EMERGING = "--optimizer muon needs the package emerging-optimizers, which Megatron Core does not install by itself."
"""Its metadata of 0.19.2 name it in the extra `dev` alone."""


def export(plan: PlanDocument, release: str | None = None) -> Mapping[str, str]:
    """`megatron_flags.sh` and `megatron_args.yaml`, for a release of Megatron Core; None: the newest.

    Raises:
        InputError: Megatron-LM cannot run the plan; the text has the reasons.
    """
    release = RELEASES.named(release)
    groups = flag_groups(plan, release=release)
    shape, model = deployed(plan), Asked.of(problem_of(plan)).transformer
    comments = _comments(plan, shape, model, release)
    if groups["COMMUNICATION_ARGS"].get("--moe-flex-dispatcher-backend") == "hybridep":
        comments.append(HYBRID_EP)
    if groups["OPTIMIZER_ARGS"]["--optimizer"] == "muon":
        comments.append(EMERGING)
    exported, unset = environment(shape)
    return {
        "megatron_flags.sh": shell_file(comments, exported, unset, groups),
        "megatron_args.yaml": yaml_file(comments, exported, groups),
    }


RELEASES = releases_of("megatron")
FUSION = "--cross-entropy-fusion-impl"


def flag_groups(plan: PlanDocument, limits: Limits | None = None, release: str | None = None) -> Mapping[str, Flags]:
    """The flags of a plan, by the array they stand in.

    Args:
        plan: feasible.
        limits: of the framework that is told them; None: Megatron-LM's own.
        release: of Megatron Core; None: the newest.

    Raises:
        InputError: Megatron-LM cannot run the plan; the text has the reasons.
    """
    problem = problem_of(plan)
    shape = deployed(plan)
    beyond = violations(plan, limits or megatron(Asked.of(problem)), "Megatron-LM")
    if beyond:
        raise InputErrors(f"{reason}." for reason in beyond)
    model, training = Asked.of(problem).transformer, problem.training
    release = RELEASES.named(release)
    if limits is None and RELEASES.refuses(FUSION, "te", release):
        training = evolve(training, loss="unfused")
    groups: dict[str, Flags] = {
        "MODEL_ARGS": model_flags(model, training.sequence_length or 1)
        | detail_flags(problem.model, model)
        | ({"--moe-grouped-gemm": None} if training.sequential_experts else {}),
        "PARALLEL_ARGS": parallel_flags(shape, model),
        "BATCH_ARGS": batch_flags(shape),
        "COMMUNICATION_ARGS": communication_flags(shape, training, model, domain_of(plan)),
        "RECOMPUTE_ARGS": recompute_flags(shape.recompute[0], training.selected, shape.recompute_layers[0]),
        "PRECISION_ARGS": precision_flags(training),
        "OPTIMIZER_ARGS": {**optimizer_flags(training), **sharding_flags(shape, training)},
    }
    if limits is not None:  # Frameworks around Megatron Core build models by names of their own.
        groups["MODEL_ARGS"] = RELEASES.spelled(groups["MODEL_ARGS"], RELEASES.releases[-1])
    return {name: RELEASES.spelled(flags, release) for name, flags in groups.items()}


def _comments(plan: PlanDocument, shape: Deployment, model: Architecture, release: str) -> list[str]:
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
        f"Written by nest for Megatron-LM, checked against megatron-core {RELEASES.tried}."
        if release == RELEASES.newest
        else f"Written by nest for Megatron-LM with megatron-core {release}.",
        "Data, tokenizer, learning rate and checkpoints are yours to add.",
        f"{shape.world_size} ranks: {shape.stages} pipeline stages of {shape.width} devices, "
        f"{shape.replicas} replicas; {shape.micro_batches} micro-batches a step.",
        f"Rank order {words}. {placed}",
        *_pools_of_ranks(plan, order),
        *_beyond_domain(plan, shape),
        *(_own_cross_entropy(plan, shape, model) if RELEASES.refuses(FUSION, "te", release) else ()),
        *(f"{sentence}." for sentence in left_out(plan.problem.get("model"), model)),
        *_later(plan, model, release),
    ]


def _later(plan: PlanDocument, model: Architecture, release: str) -> list[str]:
    """Name flags of the model that an older release lacks."""
    said = {flag for flag, value in detail_flags(problem_of(plan).model, model).items() if value is not None}
    lacking = sorted(said & RELEASES.absent(release))
    return [f"megatron-core {release} lacks {', '.join(lacking)}; the model is built without."] if lacking else []


def _pools_of_ranks(plan: PlanDocument, order: Sequence[str]) -> list[str]:
    """Name the ranks of each pool, if there are several."""
    pools = [plan.stages[rank.pp].pool for rank in rank_table(plan, order)]
    if pools[0] is None:
        return []
    ends = [0, *(number for number, (one, two) in enumerate(pairwise(pools), start=1) if one != two), len(pools)]
    if len(ends) > MOST_RUNS + 1:
        return ["Ranks of several pools alternate; `nest export --to ranks` says which rank runs where."]
    runs = [f"{first} to {last - 1} in pool {pools[first]}" for first, last in pairwise(ends)]
    return [f"Ranks {', '.join(runs)}."]


def _own_cross_entropy(plan: PlanDocument, shape: Deployment, model: Architecture) -> list[str]:
    """Note the memory of the flags' cross-entropy beyond the priced fused one.

    `native` has softmax in fp32 and, backward, the gradient in 16 bits; Transformer Engine's writes one over the other.

    Raises:
        InputError: the last stage has no room for it.
    """
    training, last = problem_of(plan).training, plan.stages[-1]
    if training.loss != "fused" or training.precision == "fp32":
        return []
    tokens = samples(shape) * (shape.sequence_length or 1) / shape.cp
    more = 4 * (1 + model.predicting) * tokens * model.vocab / shape.tp
    priced = "The plan prices a fused cross-entropy (training.loss), which Megatron-LM refuses since Megatron-Core 0.19"
    capacity = (plan.summary or {}).get("memory_capacity")
    if isinstance(capacity, (int, float)) and last.memory <= capacity < last.memory + more:
        free = format_bytes(capacity - last.memory)
        raise InputError(
            f"{priced}. Its own keeps up to {format_bytes(more)} more, and the last stage has {free} left: solve again "
            "with training.loss: unfused."
        )
    return [f"{priced}. Its own, of these flags, keeps up to {format_bytes(more)} more on the last stage."]


def _beyond_domain(plan: PlanDocument, shape: Deployment) -> list[str]:
    """Why tensor parallelism does not overlap although it should."""
    domain = domain_of(plan)
    if shape.tp <= domain or not problem_of(plan).training.overlap.tensor:
        return []
    return [
        f"--tp-comm-overlap is left out: it works among the {domain} devices of a scale-up network only, and tensor "
        f"parallelism spans {shape.tp}."
    ]
