"""What a layer keeps and runs again in each recompute mode, as `torch.utils.checkpoint` does it.

Operators that run again keep what they read of others instead of what they would save; while the layer's
backward pass runs, what they would have saved comes back.
"""

from collections.abc import Collection, Mapping, Sequence

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
        held: names of the tensors kept, beside `stored`, for one micro-batch at a time: the one run backward; None: all
            micro-batches in flight keep the same.
    """

    stored: frozenset[str]
    restored: frozenset[str]
    again: tuple[Operator, ...]
    held: frozenset[str] | None = None

    def stored_bytes(self, sizes: Mapping[str, float]) -> float:
        """Bytes of `stored`."""
        return sum(sizes[name] for name in sorted(self.stored))

    def restored_bytes(self, sizes: Mapping[str, float]) -> float:
        """Bytes of `restored`."""
        return sum(sizes[name] for name in sorted(self.restored))


def recompute_modes(
    operators: Sequence[Operator], selective: Sequence[str], repeated: bool, data: Collection[str] = ()
) -> dict[str, Kept]:
    """What is kept in the modes `none`, `selective`, `full` and `stage`.

    `full` runs the whole layer again and keeps what it reads of other layers; `selective` runs the operators that
    `selective` chooses again (arXiv 2205.05198, section 5). Layers that are not transformer blocks keep everything
    in both, as in Megatron-LM, where embedding and head are not checkpointed. `stage` runs every layer again, as
    GPipe does (arXiv 1811.06965, section 2.3).

    Args:
        operators: of one layer, in order.
        selective: kinds and names of operators, see `runs_again`.
        repeated: whether the layer is a transformer block.
        data: names of the tensors that come with the data, such as token ids: no cut holds them.
    """
    chosen = {
        "none": (),
        "selective": _with_feeding_collectives(operators, selective) if repeated else (),
        "full": tuple(operators) if repeated else (),
    }
    found = {mode: _kept(operators, again, selective) for mode, again in chosen.items()}
    found["stage"] = _whole_stage(operators, data)
    return {mode: found[mode] for mode in RECOMPUTE_MODES}


def tensor_bytes(operators: Sequence[Operator]) -> dict[str, float]:
    """Bytes of each tensor the operators read or write."""
    return {tensor.name: tensor.bytes for o in operators for tensor in (*o.inputs, *o.outputs)}


def short_name(operator: Operator) -> str:
    """An operator's name within its layer: `mlp_up` of `layers.3/mlp_up`."""
    return operator.name.removeprefix(f"{operator.layer}/")


def runs_again(operator: Operator, selective: Collection[str]) -> bool:
    """Whether selective recomputation runs `operator` again: its kind or its name within its layer is chosen."""
    return operator.kind in selective or short_name(operator) in selective


def from_elsewhere(operators: Sequence[Operator]) -> frozenset[str]:
    """Names of the tensors that `operators` read and none of them makes."""
    made = {tensor.name for operator in operators for tensor in operator.outputs}
    return frozenset(tensor.name for operator in operators for tensor in operator.inputs) - made


def _kept(operators: Sequence[Operator], again: tuple[Operator, ...], selective: Collection[str]) -> Kept:
    """What is kept when `again` runs again.

    What such an operator makes and another keeps is kept all the same, unless the operator was chosen by its name:
    then its result is dropped too, and made again before its readers need it. The first is `torch.utils.checkpoint`,
    which Megatron-LM wraps around the attention core, the second its output-discarding checkpoint
    (`CheckpointWithoutOutput`), which it wraps around norms, activations of experts and latent projections.
    """
    repeated = {operator.name for operator in again}
    made = {tensor.name for operator in again for tensor in operator.outputs}
    stored = {name for operator in operators if operator.name not in repeated for name in operator.saves}
    stored -= {t.name for o in again if o.kind not in selective and short_name(o) in selective for t in o.outputs}
    # What stays saved need not be made again for its readers, but it is: a checkpoint runs as a whole.
    stored |= {tensor.name for operator in again for tensor in operator.inputs} - made
    saved = {name for operator in operators for name in operator.saves}
    return Kept(frozenset(stored), frozenset(saved - stored), again)


def _whole_stage(operators: Sequence[Operator], data: Collection[str]) -> Kept:
    """A layer of a stage that runs again as a whole.

    Before a micro-batch runs backward its forward pass runs again and saves what it saves, in all layers of the stage
    at once. What the layer reads of other layers is held with it: some of it are inputs of the stage, which must stay
    until the stage has run again. For the micro-batches that wait, the stage keeps its inputs (`stash_inputs`), and
    layers keep what comes with the data.
    """
    stored = from_elsewhere(operators) & frozenset(data)
    saved = frozenset(name for operator in operators for name in operator.saves)
    return Kept(stored, frozenset(), tuple(operators), held=(saved | from_elsewhere(operators)) - stored)


def _with_feeding_collectives(operators: Sequence[Operator], selective: Sequence[str]) -> tuple[Operator, ...]:
    """The operators chosen, and the collectives that serve nobody else: they run together.

    Such a collective makes tensors for them alone, or makes none and runs under one of them, as the ring does that
    brings attention the keys and values of other ranks, which nobody keeps.
    """
    chosen = {operator.name for operator in operators if runs_again(operator, selective)}
    readers: dict[str, set[str]] = {}
    for operator in operators:
        for tensor in operator.inputs:
            readers.setdefault(tensor.name, set()).add(operator.name)
    for operator in operators:
        fed = {name for tensor in operator.outputs for name in readers.get(tensor.name, ())}
        if operator.collective is not None and not operator.outputs:
            fed = {operator.collective.under} - {""}
        if operator.kind == "collective" and fed and fed <= chosen:
            chosen.add(operator.name)
    return tuple(operator for operator in operators if operator.name in chosen)
