"""Tensors sent straight from their maker to their readers (`search.tensors: direct`).

The edges that leave one layer carry one tensor, of which a reader with a smaller edge takes a part: the parts are the
slices between the sizes of the edges, and each slice has the readers whose edges are no smaller.
"""

from tests.oracle.settings import given


def sends_directly(problem: dict) -> bool:
    return given(problem.get("search"), "tensors", "relayed") == "direct"


def slices(problem: dict, candidate: dict):
    """For each part of each tensor: the layer that makes it, those that read it, and its bytes."""
    edges = list(zip(problem["profile"]["edges"], candidate["edge_bytes"], strict=True))
    for maker in range(len(problem["profile"]["layers"])):
        below = 0.0
        for size in sorted({size for (one, _), size in edges if one == maker}):
            yield maker, {other for (one, other), own in edges if one == maker and own >= size}, size - below
            below = size


def received(problem: dict, network, setting, candidate: dict, plan: dict, widths, stage: int):
    """What a stage receives, activations and then gradients, as bytes by level."""
    home = {layer: number for number, each in enumerate(plan["stages"]) for layer in each["layers"]}
    places = [(each["offset"], width) for each, width in zip(plan["stages"], widths, strict=True)]

    def apart(one: int, other: int) -> int:
        return setting.level_between(network, places[one], places[other])

    activations, gradients = {}, {}
    for maker, readers, size in slices(problem, candidate):
        stages = {home[reader] for reader in readers}
        if home[maker] != stage and stage in stages:
            level = apart(home[maker], stage)
            activations[level] = activations.get(level, 0.0) + size
        elsewhere = stages - {stage}
        if home[maker] == stage and elsewhere:
            level = max(apart(stage, other) for other in elsewhere)
            gradients[level] = gradients.get(level, 0.0) + size
    return activations, gradients
