"""What one device of each candidate would run: the blocks that strategies make of a problem's model."""

from pathlib import Path

from nest.errors import InputError
from nest.formulate.choices import allowed_degrees, micro_batches, taking_part
from nest.formulate.cluster import build_cluster
from nest.formulate.compose import compose
from nest.formulate.layer_kinds import layer_kinds
from nest.formulate.names import check_names
from nest.formulate.sources import load_model
from nest.graph import Block
from nest.hooks.protocols import StrategyContext
from nest.hooks.registry import Registry
from nest.spec import Problem


def model_blocks(problem: Problem, registry: Registry, base: Path | None = None) -> tuple[Block, ...]:
    """The block of every combination of strategies, degrees and micro-batch sizes; one layer of each kind.

    Args:
        problem: as written.
        registry: offers importers and strategies.
        base: folder that relative paths start from; None: the working directory.

    Raises:
        InputError: something in the problem cannot be used, or it has a profile in place of a model.
    """
    if problem.model is None:
        raise InputError("profile gives candidates as numbers, of which nothing tells the operators; give model.")
    check_names(problem, registry, base)
    cluster, _ = build_cluster(problem.cluster, registry, base)
    strategies, limits = taking_part(problem, registry.strategies()), allowed_degrees(problem, registry.strategies())
    layers = layer_kinds(load_model(problem.model, problem.training, base, registry))
    context = StrategyContext(cluster, problem.training)
    return compose(layers.graph, strategies, limits, micro_batches(problem), context)
