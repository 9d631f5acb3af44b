"""What a sequence length rules out that its neighbour would not: degrees that do not divide it."""

from attrs import evolve

from nest.errors import InputError
from nest.formulate.choices import allowed_degrees, micro_batches, taking_part
from nest.formulate.cluster import build_cluster
from nest.formulate.compose import compose
from nest.formulate.layer_kinds import layer_kinds
from nest.formulate.sources import load_model
from nest.formulate.target import target_limits, within
from nest.hooks.protocols import StrategyContext
from nest.hooks.registry import Registry
from nest.spec import Problem

EVEN = 128
"""Tokens: kernels' tiles and usual degrees divide multiples of this, of which nothing is told."""


def told_of_length(problem: Problem, registry: Registry) -> str | None:
    """The degrees that `training.sequence_length` rules out and the nearest multiple of `EVEN` would not.

    Args:
        problem: self-contained.
        registry: offers importers and strategies.
    """
    length = problem.training.sequence_length
    if problem.model is None or length is None or length % EVEN == 0:
        return None
    other = max(round(length / EVEN), 1) * EVEN
    try:
        limits = target_limits(problem, registry)
        free = problem if limits is None else within(problem, limits, registry)
        even, uneven = _degrees(free, other, registry), _degrees(free, length, registry)
    except InputError:  # Of what is wrong, the search tells; the model may not take the other length.
        return None
    lost = {name: sorted(degrees - uneven.get(name, set())) for name, degrees in even.items()}
    told = " and ".join(f"{name} {', '.join(map(str, degrees))}" for name, degrees in lost.items() if degrees)
    if not told:
        return None
    return f"training.sequence_length: {length} tokens do not divide evenly, which rules out {told}; {other} would not."


def _degrees(problem: Problem, length: int, registry: Registry) -> dict[str, set[int]]:
    """The degrees of each strategy with samples of so many tokens."""
    training = evolve(problem.training, sequence_length=length)
    assert problem.model is not None
    graph = layer_kinds(load_model(problem.model, training, None, registry), False).graph
    strategies = taking_part(problem, registry.strategies())
    context = StrategyContext(build_cluster(problem.cluster, registry, None)[0], training)
    limits = allowed_degrees(problem, registry.strategies())
    found: dict[str, set[int]] = {}
    for block in compose(graph, strategies, limits, micro_batches(problem)[:1], context):
        for name, degree in block.degrees:
            found.setdefault(name, set()).add(degree)
    return found
