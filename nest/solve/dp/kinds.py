"""Repeated layers recognised as such: which stages cost the same, wherever in the model they lie.

Layers are of one kind when no candidate tells them apart. Two stages cost the same when they hold as many layers of
each kind and the tensors that enter them are alike; that of a thousand equal blocks leaves one stage per number of
blocks where there were half a million.
"""

from collections.abc import Hashable, Sequence

import numpy

from nest.instance import Array, Instance
from nest.solve.dp.downsets import Downsets
from nest.solve.dp.pairs import Pairs

LARGEST_CODE = 2**62
"""Codes of stages are 64-bit numbers; a model with so many kinds of layers that they overflow is taken as it is."""


def pairs_with_kinds(instance: Instance, downsets: Downsets) -> Pairs:
    """Every stage, with those that cost the same in all candidates of one kind."""
    kinds = _numbered([row.tobytes() for row in numpy.ascontiguousarray(_layer_costs(instance).T)])
    if max(kinds, default=0) * 2 >= len(kinds):
        return downsets.pairs
    entering = _entering(instance, downsets)
    codes, largest = numpy.zeros(downsets.count, dtype=numpy.int64), max(entering) + 1
    scale = largest
    for kind in range(max(kinds) + 1):
        layers = [layer for layer, each in enumerate(kinds) if each == kind]
        codes += scale * downsets.members[:, layers].sum(axis=1)
        scale *= len(layers) + 1
        if scale > LARGEST_CODE:
            return downsets.pairs
    pairs = downsets.pairs
    return pairs.with_kinds(codes[pairs.larger] - codes[pairs.smaller] + numpy.array(entering)[pairs.larger])


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
    """A number for each downset, equal where as many tensors of each kind enter it."""
    kinds = _numbered(list(zip(*(candidate.tensor_bytes.tolist() for candidate in instance.candidates), strict=True)))
    crossing = numpy.zeros((downsets.count, max(kinds, default=-1) + 1), dtype=numpy.int32)
    for (producer, consumers), kind in zip(instance.graph.tensors, kinds, strict=True):
        inside = downsets.members[:, list(consumers)].any(axis=1)
        crossing[:, kind] += ~downsets.members[:, producer] & inside
    return _numbered([row.tobytes() for row in crossing])


def _numbered(values: Sequence[Hashable]) -> list[int]:
    """Numbers from 0 in order of first appearance, equal where values are."""
    known: dict[Hashable, int] = {}
    return [known.setdefault(value, len(known)) for value in values]
