"""Equivalence classes of stages: which cost the same, wherever in the model they lie.

Layers are in one class when no candidate differs between them. Two stages cost the same when they hold as many layers
of each class and the tensors that enter them are alike; that of a thousand equal blocks leaves one stage per number of
blocks where there were half a million.
"""

from collections.abc import Hashable, Sequence

import numpy

from nest.instance import Array, Instance
from nest.solve.dp.downsets import Downsets
from nest.solve.dp.pairs import Pairs

LARGEST_CODE = 2**62
"""Codes of stages are 64-bit numbers; a model with so many classes of layers that they overflow is taken as it is."""


def stage_pairs(instance: Instance, downsets: Downsets, stages: int) -> Pairs:
    """Every stage by classes; where plans must be even, those of the one plan of so many stages."""
    space, pairs = instance.space, classified_pairs(instance, downsets)
    if not space.even:
        return pairs
    behind = downsets.members[:, [block[0] for block in space.blocks]].sum(axis=1)
    size = len(space.blocks) // stages
    held = behind[pairs.larger] - behind[pairs.smaller]
    return pairs.only((held == size) & (behind[pairs.smaller] % size == 0))


def classified_pairs(instance: Instance, downsets: Downsets) -> Pairs:
    """Every stage, with those that cost the same in all candidates in one class."""
    classes = _numbered([row.tobytes() for row in numpy.ascontiguousarray(_layer_costs(instance).T)])
    if max(classes, default=0) * 2 >= len(classes):
        return downsets.pairs
    entering = _entering(instance, downsets)
    # A number in mixed radix: what enters, then how many layers of each class a downset holds. As no count overflows
    # its digit, the difference of two numbers is that of a stage, equal where all its counts are.
    codes, scale = numpy.zeros(downsets.count, dtype=numpy.int64), max(entering) + 1
    for each in range(max(classes) + 1):
        layers = [layer for layer, one in enumerate(classes) if one == each]
        codes += scale * downsets.members[:, layers].sum(axis=1)
        scale *= len(layers) + 1
        if scale > LARGEST_CODE:
            return downsets.pairs
    pairs = downsets.pairs
    return pairs.classified(codes[pairs.larger] - codes[pairs.smaller] + numpy.array(entering)[pairs.larger])


def _layer_costs(instance: Instance) -> Array:
    """All that candidates say of layers, shape `(figures, layers)`."""
    rows: list[Array] = []
    for candidate in instance.candidates:
        rows += [candidate.forward, candidate.backward]
        for mode in candidate.recompute:
            rows += [mode.extra, mode.first, mode.more, mode.peak]
        for busy in (candidate.busy, *(mode.busy for mode in candidate.recompute)):
            rows += [] if busy is None else list(busy)
        for group in candidate.state:
            rows += [group.weights, group.gradients, group.optimizer, group.update]
            rows += [] if group.pieces is None else [group.pieces]
    return numpy.array(rows)


def _entering(instance: Instance, downsets: Downsets) -> list[int]:
    """A number for each downset, equal where as many tensors of each class enter it."""
    classes = _numbered(list(zip(*(each.tensor_bytes.tolist() for each in instance.candidates), strict=True)))
    crossing = numpy.zeros((downsets.count, max(classes, default=-1) + 1), dtype=numpy.int32)
    for (producer, consumers), each in zip(instance.graph.tensors, classes, strict=True):
        inside = downsets.members[:, list(consumers)].any(axis=1)
        crossing[:, each] += ~downsets.members[:, producer] & inside
    return _numbered([row.tobytes() for row in crossing])


def _numbered(values: Sequence[Hashable]) -> list[int]:
    """Numbers from 0 in order of first appearance, equal where values are."""
    known: dict[Hashable, int] = {}
    return [known.setdefault(value, len(known)) for value in values]
