"""What lives only while one operator runs: gradients of activations, and what communication fills and empties."""

from collections.abc import Sequence

from attrs import frozen

from nest.formulate.priced import PricedOperator
from nest.graph import Operator

IN_PLACE = "all_reduce"
"""The kind of call that leaves its result where its operand was."""


@frozen
class WorkingSet:
    """Transient bytes while one operator runs.

    Attributes:
        bytes: all of them.
        buffers: those that communication fills and empties.
    """

    bytes: float
    buffers: float


def working_sets(rows: Sequence[PricedOperator]) -> dict[str, WorkingSet]:
    """By name, the working set of each operator of a layer.

    An operator that computes has what its cost model says; beside it what collectives made for it and nobody saves, and
    which is therefore made again in the backward pass (what `sp` gathers in front of a split operator, the keys and
    values that `cp` gathers: arXiv 2205.05198, section 4.2.2), and the buffers of the calls that run under it (a ring's
    next share of keys and values, and backward their gradients). A collective has its operands and its results, at
    least what its calls handle in one direction; an all-reduce works in place.
    """
    again = _made_again([row.operator for row in rows])
    buffers = {row.operator.name: collective_bytes(row.operator) for row in rows}
    beside: dict[str, float] = {}
    for row in rows:
        if row.operator.collective is not None and row.operator.collective.under:
            name = row.operator.collective.under
            beside[name] = beside.get(name, 0.0) + buffers[row.operator.name]
    found = {}
    for row in rows:
        operator, own = row.operator, buffers[row.operator.name]
        if operator.collective is None:
            own = sum(again.get(tensor.name, 0.0) for tensor in operator.inputs) + beside.get(operator.name, 0.0)
        found[operator.name] = WorkingSet(row.cost.transient + own, own)
    return found


def collective_bytes(operator: Operator) -> float:
    """Bytes that the calls of an operator work on, in the direction in which that is more; 0 without any."""
    collective = operator.collective
    if collective is None:
        return 0.0
    calls = (*collective.forward, *collective.backward)
    whole = [operator.bytes_read, operator.bytes_written]
    tensors = max(whole) if all(call.kind == IN_PLACE for call in calls) else sum(whole)
    if operator.outputs:
        return tensors
    # Without tensors of its own it passes on what it reads: what arrives lies beside it.
    handled = (sum(call.bytes for call in each) for each in (collective.forward, collective.backward))
    return max(handled, default=0.0)


def _made_again(operators: Sequence[Operator]) -> dict[str, float]:
    """Bytes of each tensor that a collective makes once more in the backward pass, from what it saves itself."""
    saved = {name for operator in operators for name in operator.saves}
    return {
        tensor.name: tensor.bytes
        for operator in operators
        if operator.collective is not None and operator.saves
        for tensor in operator.outputs
        if tensor.name not in saved
    }
