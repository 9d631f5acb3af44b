"""The exporter of Megatron-LM's flags."""

from collections.abc import Mapping

from attrs import frozen

from nest.deployment import Deployment, FlagsRead, Limits, deployment, rank_table, violations
from nest.errors import InputErrors
from nest.exporters.common import domain_of
from nest.exporters.megatron.limits import megatron_limits, transformer_of
from nest.exporters.megatron.model_flags import detail_flags, left_out, model_flags
from nest.exporters.megatron.notation import Flags, shell_file, yaml_file
from nest.exporters.megatron.parallel_flags import (
    PIPELINE_INNER_ORDER,
    batch_flags,
    communication_flags,
    environment,
    parallel_flags,
    rank_order,
    sharding_flags,
)
from nest.exporters.megatron.training_flags import optimizer_flags, precision_flags, recompute_flags
from nest.io import structure
from nest.spec import Architecture, PlanDocument, Problem


@frozen
class MegatronExporter:
    """Flags for `pretrain_gpt.py` of Megatron-LM.

    Attributes:
        name: what people write to choose it.
        summary: one line for lists.
    """

    name: str = "megatron"
    summary: str = "flags of Megatron-LM: megatron_flags.sh to be sourced, megatron_args.yaml (MODEL_ARGS)"

    def limits(self, problem: Problem) -> Limits:
        """What Megatron-LM can run of `problem`.

        Raises:
            InputError: the model or the training is beyond it.
        """
        return megatron_limits(problem)

    def read(self, text: str, nodes: int | None = None) -> FlagsRead:
        """What a launch script or a map of flags has Megatron-LM do.

        Args:
            text: of the file.
            nodes: machines it is launched on; None: as the text says.

        Raises:
            InputError: there are no flags, they contradict each other, or say what nest cannot price.
        """
        from nest.exporters.megatron.reading import read_megatron

        return read_megatron(text, nodes)

    def rank_order(self, plan: PlanDocument) -> tuple[str, ...]:
        """How Megatron-LM counts ranks, run with these flags: with the pipeline inside or outside data parallelism.

        Raises:
            InputError: nothing is known of the model.
        """
        return rank_order(deployment(plan), transformer_of(structure(plan.problem, Problem)))

    def export(self, plan: PlanDocument) -> Mapping[str, str]:
        """`megatron_flags.sh` and `megatron_args.yaml`.

        Raises:
            InputError: Megatron-LM cannot run the plan; the text has the reasons.
        """
        groups = flag_groups(plan)
        shape, model = deployment(plan), transformer_of(structure(plan.problem, Problem))
        comments = _comments(plan, shape, model)
        exported, unset = environment(shape)
        return {
            "megatron_flags.sh": shell_file(comments, exported, unset, groups),
            "megatron_args.yaml": yaml_file(comments, exported, groups),
        }


def flag_groups(plan: PlanDocument) -> Mapping[str, Flags]:
    """The flags of a plan, by the array they stand in.

    Raises:
        InputError: Megatron-LM cannot run the plan; the text has the reasons.
    """
    problem = structure(plan.problem, Problem)
    shape = deployment(plan)
    beyond = violations(plan, megatron_limits(problem), "Megatron-LM")
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
    order = rank_order(shape, model)
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
        *_beyond_domain(plan, shape),
        *(f"{sentence}." for sentence in left_out(plan.problem.get("model"), model)),
    ]


def _beyond_domain(plan: PlanDocument, shape: Deployment) -> list[str]:
    """Why tensor parallelism does not overlap although it should."""
    domain = domain_of(plan)
    if shape.tp <= domain or not structure(plan.problem, Problem).training.overlap.tensor:
        return []
    return [
        f"--tp-comm-overlap is left out: it works among the {domain} devices of a scale-up network only, and tensor "
        f"parallelism spans {shape.tp}."
    ]


exporter = MegatronExporter()
