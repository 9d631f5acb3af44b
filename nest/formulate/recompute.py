"""What a layer keeps and runs again in each recompute mode, as `torch.utils.checkpoint` does it.

Operators that run again keep what they read of others instead of what they would save; while the layer's
backward pass runs, what they would have saved comes back.
"""

from collections.abc import Mapping, Sequence

from attrs import frozen

from nest.graph import Operator
from nest.spec.problem import RECOMPUTE_MODES


@frozen
class Kept:
    """One layer in one recompute mode.

    Attributes:
        stored: names of the tensors kept for each micro-batch in flight.
        restored: names of the tensors that come back while the backward pass runs.
        again: the operators run again, in order.
    """

    stored: frozenset[str]
    restored: frozenset[str]
    again: tuple[Operator, ...]

    def stored_bytes(self, sizes: Mapping[str, float]) -> float:
        """Bytes of `stored`."""
        return sum(sizes[name] for name in sorted(self.stored))

    def restored_bytes(self, sizes: Mapping[str, float]) -> float:
        """Bytes of `restored`."""
        return sum(sizes[name] for name in sorted(self.restored))


def recompute_modes(operators: Sequence[Operator], selective: Sequence[str], repeated: bool) -> dict[str, Kept]:
    """What is kept in the modes `none`, `selective` and `full`.

    `full` runs the whole layer again and keeps what it reads of other layers; `selective` runs the operators
    of the `selective` kinds again (arXiv 2205.05198, section 5). Layers that are not transformer blocks keep
    everything in every mode, as in Megatron-LM, where embedding and head are not checkpointed.

    Args:
        operators: of one layer, in order.
        selective: kinds of operator.
        repeated: whether the layer is a transformer block.
    """
    chosen = {
        "none": (),
        "selective": _with_feeding_collectives(operators, selective) if repeated else (),
        "full": tuple(operators) if repeated else (),
    }
    return {mode: _kept(operators, chosen[mode]) for mode in RECOMPUTE_MODES}


def tensor_bytes(operators: Sequence[Operator]) -> dict[str, float]:
    """Bytes of each tensor the operators read or write."""
    return {tensor.name: tensor.bytes for o in operators for tensor in (*o.inputs, *o.outputs)}


def _kept(operators: Sequence[Operator], again: tuple[Operator, ...]) -> Kept:
    repeated = {operator.name for operator in again}
    made = {tensor.name for operator in again for tensor in operator.outputs}
    stored = {name for operator in operators if operator.name not in repeated for name in operator.saves}
    # What stays saved need not be made again for its readers, but it is: a checkpoint runs as a whole.
    stored |= {tensor.name for operator in again for tensor in operator.inputs} - made
    saved = {name for operator in operators for name in operator.saves}
    return Kept(frozenset(stored), frozenset(saved - stored), again)


def _with_feeding_collectives(operators: Sequence[Operator], kinds: Sequence[str]) -> tuple[Operator, ...]:
    """The operators of `kinds`, and the collectives that make tensors for nobody else: they run together."""
    chosen = {operator.name for operator in operators if operator.kind in kinds}
    readers: dict[str, set[str]] = {}
    for operator in operators:
        for tensor in operator.inputs:
            readers.setdefault(tensor.name, set()).add(operator.name)
    for operator in operators:
        fed = {name for tensor in operator.outputs for name in readers.get(tensor.name, ())}
        if operator.kind == "collective" and fed and fed <= chosen:
            chosen.add(operator.name)
    return tuple(operator for operator in operators if operator.name in chosen)
