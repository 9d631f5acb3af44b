"""What layers cost and keep in each recompute mode (PROBLEM.md section 2)."""

from collections.abc import Sequence
from functools import partial

import numpy
from numpy.typing import NDArray

from nest.formulate.layer_times import Direction, Timing
from nest.formulate.priced import PricedLayer, PricedOperator
from nest.formulate.recompute import Kept, recompute_modes, tensor_bytes
from nest.instance import RecomputeMode
from nest.spec import Training
from nest.spec.problem import RECOMPUTE_MODES

WHOLE = "full"
"""The mode that runs whole layers again, and keeps what they read."""

Bill = list[tuple[float, float, float]]
"""For each part of a layer: seconds run again, bytes per micro-batch in flight, and transient bytes."""


def modes(
    layers: Sequence[PricedLayer],
    repeated: Sequence[bool],
    index: NDArray[numpy.int_],
    training: Training,
    timing: Timing,
    by_operator: bool,
) -> tuple[RecomputeMode, ...]:
    """Every recompute mode.

    Args:
        layers: one of each kind.
        repeated: for each, whether it is a transformer block.
        index: for each planned layer, its place among the parts of `layers`.
        training: says what is recomputed selectively.
        timing: how the times of operators become a layer's.
        by_operator: whether cuts may fall inside layers. What a block recomputed in full then reads of the stage in
            front is kept too; it counts as inputs of the stage, whether it lies inside a block or not.
    """
    bills = [
        layer.once("bills", partial(_bills, layer, again, training, timing))
        for layer, again in zip(layers, repeated, strict=True)
    ]
    found = []
    for mode in RECOMPUTE_MODES:
        rows = [row for bill in bills for row in bill[mode]]
        extra, stored, peak = (numpy.array([row[n] for row in rows])[index] for n in range(3))
        stash = by_operator and mode == WHOLE
        found.append(RecomputeMode(mode, extra, first=stored, more=stored, peak=peak, stash_inputs=stash))
    return tuple(found)


def _bills(layer: PricedLayer, repeated: bool, training: Training, timing: Timing) -> dict[str, Bill]:
    """For each mode what the parts of a layer cost and keep.

    Transient are the largest working set of an operator and, when operators run again, all they save.
    """
    operators = [row.operator for row in layer.rows]
    sizes = tensor_bytes(operators)
    found = {}
    for mode, kept in recompute_modes(operators, training.selective, repeated).items():
        names = frozenset(operator.name for operator in kept.again)
        extra = layer.seconds(Direction.FORWARD, timing, names)
        stored = _stored(layer, kept, names, sizes)
        restored = kept.restored_bytes(sizes) + sum(r.cost.saved for r in layer.rows if r.operator.name in names)
        # One micro-batch's inputs of a stage that begins inside the layer; the others' are stashed inputs.
        restored += layer.passing if mode == WHOLE and names else 0.0
        peaks = [restored + max((row.cost.transient for row in part), default=0.0) for part in layer.parts]
        found[mode] = list(zip(extra, stored, peaks, strict=True))
    return found


def _stored(layer: PricedLayer, kept: Kept, again: frozenset[str], sizes: dict[str, float]) -> list[float]:
    """Bytes each part keeps per micro-batch; a tensor that several keep counts with the first."""
    waiting = set(kept.stored)
    found = []
    for part in layer.parts:
        here = {name for row in part for name in _keeps(row, again)} & waiting
        waiting -= here
        extra = sum(row.cost.saved for row in part if row.operator.name not in again)
        found.append(sum(sizes[name] for name in sorted(here)) + extra)
    return found


def _keeps(row: PricedOperator, again: frozenset[str]) -> tuple[str, ...]:
    """Names of the tensors an operator needs kept: what it saves, or, when it runs again, what it reads."""
    operator = row.operator
    return tuple(tensor.name for tensor in operator.inputs) if operator.name in again else operator.saves
