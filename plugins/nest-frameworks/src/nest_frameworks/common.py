"""Common parts of exporters of frameworks: checks of a plan before writing, and its cluster in numbers."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

from nest.catalogue import named_cluster, network_levels, scale_up_levels
from nest.deployment import Deployment, Limits, violations
from nest.deployment.deployment import BLOCK, ENDS
from nest.errors import InputError, InputErrors
from nest.hooks.architectures import architecture_of, cluster_spec, network_of
from nest.hooks.pipelines import deployed
from nest.instance import Cluster, Level
from nest.io import structure
from nest.spec import PlanDocument, Problem
from nest_frameworks.limits import ULYSSES


def checked(plan: PlanDocument, limits: Limits, framework: str, by_module: bool = False) -> Deployment:
    """`plan` in the terms of frameworks, once it is sure that `framework` can run it.

    Args:
        plan: any plan.
        limits: what the framework can run.
        framework: its name.
        by_module: whether it places modules of whatever name, as the layers of an operator graph are called.

    Raises:
        InputError: the plan is infeasible, is of something that is no transformer, or of more or fewer blocks than its
            model has.
        InputErrors: it is beyond the limits; a sentence for each.
    """
    shape = deployed(plan)
    beyond = violations(plan, limits, framework)
    if beyond:
        raise InputErrors(f"{sentence}." for sentence in beyond)
    graph = named_layers(plan.problem.get("model")) if by_module else ()
    if graph:
        _check_layers(graph, shape, framework)
    else:
        _check_blocks(plan, shape, framework)
    ranks = data_ranks(shape)
    if shape.global_batch != samples(shape) * shape.micro_batches * ranks:
        raise InputError(
            f"the global batch of {shape.global_batch} samples does not fill {shape.micro_batches} micro-batches of "
            f"{ranks} data-parallel ranks, but {framework} takes whole micro-batches only."
        )
    return shape


def data_ranks(shape: Deployment) -> int:
    """Data-parallel ranks; ranks of `ULYSSES`, which `Deployment` counts among them, share samples."""
    return shape.data_parallel // shape.degree(ULYSSES)


def shard_ranks(shape: Deployment, framework: str) -> int:
    """Data-parallel ranks over which ZeRO shards, times the ranks of context parallelism each of them has.

    Raises:
        InputError: they are no whole context-parallel groups, or do not divide all.
    """
    ranks = shape.data_parallel * shape.cp
    within = min(shape.zero_degree or ranks, ranks)
    if within % shape.cp or ranks % within:
        raise InputError(
            f"ZeRO shards over {within} of the {ranks} ranks that hold the same parameters, but {framework} shards "
            f"over whole groups of context parallelism (cp = {shape.cp}), as many everywhere."
        )
    return within // shape.cp


def samples(shape: Deployment) -> int:
    """Samples per micro-batch of one data-parallel rank, those of `batch` ranks counted as their own."""
    return shape.micro_batch // shape.degree("batch")


def named_layers(model: Any) -> tuple[str, ...]:
    """The layers of a problem's model that is an operator graph, repeated or not, in order; empty: it is another."""
    count = 0
    while isinstance(model, Mapping):
        count = count or int(model.get("repeat") or 0)
        if {"operators", "layers"} <= model.keys():
            from nest.graph.repeat import copies_of

            layers, blocks = tuple(model["layers"]), tuple(model.get("blocks", ()))
            if not count or not blocks:
                return layers
            behind = layers.index(blocks[-1]) + 1
            return (*layers[:behind], *copies_of(blocks[-1], count - len(blocks)), *layers[behind:])
        model = model.get("graph")
    return ()


def _check_layers(graph: Sequence[str], shape: Deployment, framework: str) -> None:
    planned = [name for run in shape.runs for name in run.layers]
    if planned != list(graph):
        raise InputError(
            f"the plan has {len(planned)} layers in its stages, where the model has {len(graph)}, each once and in "
            f"order: {framework} would train another model."
        )


def _check_blocks(plan: PlanDocument, shape: Deployment, framework: str) -> None:
    names = [name for run in shape.runs for name in run.layers]
    strange = next((name for name in names if name not in ENDS and not BLOCK.fullmatch(name)), None)
    if strange is not None:
        raise InputError(
            f"the plan splits the model into layers such as {strange!r}, but {framework} places whole transformer "
            "blocks (layers.0, layers.1, ...); plan a `model`, and not with `search.granularity: operator`."
        )
    numbers = [number for run in shape.runs for number in run.blocks]
    described = architecture_of(plan.problem.get("model"))
    if numbers != list(range(len(numbers))) or (described is not None and len(numbers) != len(described.blocks)):
        wanted = "as many as there are" if described is None else str(len(described.blocks))
        raise InputError(
            f"the plan has {len(numbers)} transformer blocks in its stages, where the model has {wanted}, each once "
            f"and in order: {framework} would train another model."
        )
    for name, run in zip(ENDS, (shape.runs[0], shape.runs[-1]), strict=True):
        if name in names and name not in run.layers:
            end = "first" if name == ENDS[0] else "last"
            raise InputError(f"layer {name!r} is not on the {end} stage, where {framework} keeps it.")


def check_trained(plan: PlanDocument) -> list[str]:
    """Lines of Python for a script that decides what is trained: it must be what the plan trains; none for all."""
    trained = plan.summary.get("trained")
    if trained is None:
        return []
    return [
        "",
        "",
        "def check_trained(model) -> None:",
        f'    """To be called before the model is sharded: the plan trains {trained["what"]}."""',
        "    found = sum(each.numel() for each in model.parameters() if each.requires_grad)",
        f"    if found != {trained['parameters']}:",
        f'        raise ValueError(f"the plan trains {trained["parameters"]} parameters, the model {{found}}")',
    ]


def problem_of(plan: PlanDocument) -> Problem:
    """The problem that a plan carries, as a record."""
    return _problem(json.dumps(plan.problem))


@lru_cache(maxsize=2)
def _problem(text: str) -> Problem:
    # An exporter asks for it up to four times.
    return structure(json.loads(text), Problem)


def even_machines(plan: PlanDocument, framework: str) -> int:
    """Machines that run the plan, on each as many processes as on any other, counted machine by machine.

    Raises:
        InputError: the ranks lie on them in another way, which `framework` does not start.
    """
    from nest.hooks.placements import placement

    nodes = [each.node for each in placement(plan)]
    counts = Counter(nodes)
    together = all(nodes[index] == nodes[index - 1] for index in range(1, len(nodes)) if index % counts[nodes[0]])
    if len(set(counts.values())) > 1 or not together:
        shares = ", ".join(f"{count} on {node}" for node, count in list(counts.items())[:4])
        raise InputError(
            f"the plan's ranks lie on the machines as {shares}{', ...' if len(counts) > 4 else ''}, but {framework} "
            "starts as many processes on every machine and numbers them machine by machine."
        )
    return len(counts)


def plan_levels(plan: PlanDocument) -> tuple[Level, ...]:
    """The levels that `plan` was priced on, innermost first, at the bandwidths that messages reach.

    Raises:
        InputError: nobody knows the cluster that the plan's problem names.
    """
    network = network_of(cluster_spec(plan))
    if isinstance(network, tuple):
        return network_levels(network)
    if isinstance(network, Cluster):
        return network.levels
    from nest.network import reduce

    return reduce(network).best.levels


def cluster_device(plan: PlanDocument) -> str:
    """The name of the device that a plan runs on; empty: nobody says."""
    spec = cluster_spec(plan)
    source = spec.topology if spec.name is None else spec.name
    if spec.device is not None:
        return spec.device if isinstance(spec.device, str) else spec.device.name
    try:
        return named_cluster(source).device if isinstance(source, str) else ""
    except InputError:  # A file.
        return ""


def domain_of(plan: PlanDocument) -> int:
    """Devices of a group that the scale-up network joins, in the pool where these are fewest.

    Raises:
        InputError: nobody knows the cluster that the plan's problem names.
    """
    pools = {each.name: each for each in cluster_spec(plan).pools or ()}
    used = dict.fromkeys(stage.pool for stage in plan.stages)
    every = [network_levels(pools[name].levels) for name in used if name is not None] or [plan_levels(plan)]
    return min(prod(level.fanout for level in levels[: scale_up_levels(levels)]) for levels in every)
