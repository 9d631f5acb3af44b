"""Activation checkpointing and offload: what a layer saves, recomputes, or keeps on the host, in each mode.

As with `torch.utils.checkpoint`, recomputed operators keep their inputs instead of their saved tensors; the latter come
back while the layer's backward pass runs.

The activation bytes of a GPT block are those of Korthikanti et al. (arXiv 2205.05198, section 4.1: `sbh(34 + 5as/h)`)
without their dropout: two masks of the stream, and mask and result in the attention.
`tests/formulate/test_activation_formulas.py` also has the forms for tensor and sequence parallelism.

>>> from nest.formulate.model import load_model
>>> from nest.hooks.registry import registry
>>> s, b, h, a = 1024, 1, 768, 12
>>> gpt = {"model_type": "gpt2", "vocab_size": 128, "n_embd": h, "n_layer": 1, "n_head": a, "n_positions": s}
>>> training = Training(global_batch=b, sequence_length=s, attention="unfused")
>>> block = load_model(gpt, training, registry()).by_layer[1]
>>> saved = recompute_modes(block, training.selected, repeated=True)["none"].stored_bytes(tensor_bytes(block))
>>> saved == s * b * h * (34 + 5 * a * s / h) - (2 * s * b * h + 3 * a * s**2 * b)
True
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from attrs import evolve, frozen

from nest.catalogue import Optimizer, Precision, optimizer, precision
from nest.errors import InputError
from nest.graph import Operator, Tensor
from nest.spec import DeviceSpec, Training
from nest.spec.problem import RECOMPUTE_MODES


@frozen
class SavedTensors:
    """One layer in one recompute mode."""

    stored: frozenset[str]  # Names of the tensors kept for each micro-batch in flight.
    restored: frozenset[str]  # Names of the tensors that come back while the backward pass runs.
    again: tuple[Operator, ...]  # Recomputed operators, in order.
    # Names of the tensors kept, besides `stored`, only for the micro-batch in its backward pass; None: all
    # micro-batches in flight keep the same.
    held: frozenset[str] | None = None

    def stored_bytes(self, sizes: Mapping[str, float]) -> float:
        """Bytes of `stored`."""
        return sum(sizes[name] for name in sorted(self.stored))

    def restored_bytes(self, sizes: Mapping[str, float]) -> float:
        """Bytes of `restored`."""
        return sum(sizes[name] for name in sorted(self.restored))


def recompute_modes(
    operators: Sequence[Operator], selective: Sequence[str], repeated: bool, data: Collection[str] = ()
) -> dict[str, SavedTensors]:
    """Saved tensors in the modes `none`, `selective`, `full` and `stage`.

    `full` reruns the whole layer and keeps its inputs; `selective` reruns the operators in `selective` (arXiv
    2205.05198, section 5). Layers other than transformer blocks keep everything in both, like embedding and head in
    Megatron-LM; layers without a backward pass, before all that is trained, keep nothing in any mode. `stage` reruns
    every layer, as in GPipe (arXiv 1811.06965, section 2.3).

    Args:
        operators: of one layer, in order.
        selective: kinds and names of operators, see `is_recomputed`.
        repeated: the layer is a transformer block.
        data: names of the tensors that come with the data, such as token ids: no cut holds them.
    """
    repeated = repeated and any(tensor.differentiable for operator in operators for tensor in operator.outputs)
    chosen = {
        "none": (),
        "selective": _with_feeding_collectives(operators, selective) if repeated else (),
        "full": tuple(operators) if repeated else (),
    }
    modes = {mode: _saved_tensors(operators, again, selective) for mode, again in chosen.items()}
    modes["stage"] = _whole_stage(operators, data)
    return {mode: modes[mode] for mode in RECOMPUTE_MODES}


def tensor_bytes(operators: Sequence[Operator]) -> dict[str, float]:
    """Bytes of each tensor the operators read or write; where some read a part of it, of the largest part."""
    tensors = sorted((each for o in operators for each in (*o.inputs, *o.outputs)), key=lambda each: each.bytes)
    return {tensor.name: tensor.bytes for tensor in tensors}


def short_name(operator: Operator) -> str:
    """An operator's name within its layer: `mlp_up` of `layers.3/mlp_up`."""
    return operator.name.removeprefix(f"{operator.layer}/")


def is_recomputed(operator: Operator, selective: Collection[str]) -> bool:
    """True if selective recomputation lists `operator` by kind or by name within its layer."""
    return operator.kind in selective or short_name(operator) in selective


def external_inputs(operators: Sequence[Operator]) -> frozenset[str]:
    """Names of the tensors that `operators` read and none of them makes."""
    made = {tensor.name for operator in operators for tensor in operator.outputs}
    return frozenset(tensor.name for operator in operators for tensor in operator.inputs) - made


def _saved_tensors(
    operators: Sequence[Operator], again: tuple[Operator, ...], selective: Collection[str]
) -> SavedTensors:
    """Saved tensors if `again` is recomputed.

    Results that other operators keep stay, unless the operator was listed by name: then its result is dropped, too, and
    made again before its readers need it. The first is `torch.utils.checkpoint`, used by Megatron-LM around the
    attention core, the second its output-discarding checkpoint (`CheckpointWithoutOutput`) around norms, activations of
    experts and latent projections.
    """
    repeated = {operator.name for operator in again}
    made = {tensor.name for operator in again for tensor in operator.outputs}
    stored = {name for operator in operators if operator.name not in repeated for name in operator.saves}
    stored -= {t.name for o in again if o.kind not in selective and short_name(o) in selective for t in o.outputs}
    # What stays saved need not be made again for its readers, but it is: a checkpoint runs as a whole.
    stored |= {tensor.name for operator in again for tensor in operator.inputs} - made
    saved = {name for operator in operators for name in operator.saves}
    return SavedTensors(frozenset(stored), frozenset(saved - stored), again)


def _whole_stage(operators: Sequence[Operator], data: Collection[str]) -> SavedTensors:
    """Saved tensors of a layer in a recomputed stage.

    Before the backward pass of a micro-batch, its forward pass reruns and saves the tensors of all layers of the stage
    at once. The layer's inputs are held with them: some are stage inputs, which must stay until the stage has rerun.
    For waiting micro-batches, the stage keeps its inputs (`stash_inputs`), and layers keep what comes with the data.
    """
    stored = external_inputs(operators) & frozenset(data)
    saved = frozenset(name for operator in operators for name in operator.saves)
    return SavedTensors(stored, frozenset(), tuple(operators), held=(saved | external_inputs(operators)) - stored)


def _with_feeding_collectives(operators: Sequence[Operator], selective: Sequence[str]) -> tuple[Operator, ...]:
    """Listed operators, with the collectives that serve only them and rerun together.

    Such a collective makes tensors for them alone, or runs under one of them, such as the ring that brings attention
    the keys and values of other ranks, which nobody keeps.
    """
    chosen = {operator.name for operator in operators if is_recomputed(operator, selective)}
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


KEPT_BYTES = {"fp8": 1.0, "mxfp8": 1.0 + 1 / 32, "nvfp4": 0.5 + 1 / 16}
"""Bytes per element of the copy that the product with the gradients reads, with shared scales (8 bits for each 32
elements, or each 16; docs.nvidia.com/deeplearning/transformer-engine: MXFP8 and NVFP4 block scaling)."""


def with_narrow_copies(operators: Sequence[Operator], narrow: Callable[[Operator], str | None]) -> list[Operator]:
    """Operators of a layer with narrow copies in place of the inputs of products in narrow formats.

    Transformer Engine's linear layers save the copy of their input for the product with its gradient, not the input
    itself (te.pytorch.Linear, `save_for_backward` of the quantized input). Products that read one tensor share its
    copy; gathered inputs are saved as a share of the copy, before the gather.

    Args:
        operators: of one layer, after strategies.
        narrow: narrow format of a product with weights; None: none.
    """
    readers: dict[str, list[Operator]] = {}
    for operator in operators:
        for tensor in operator.inputs:
            readers.setdefault(tensor.name, []).append(operator)
    copies: set[str] = set()
    operators_narrowed = []
    for operator in operators:
        number_format = narrow(operator)
        if operator.collective is not None and operator.saves:
            # What it gathers is read in its place.
            named = {narrow(each) for tensor in operator.outputs for each in readers.get(tensor.name, [])}
            number_format = named.pop() if len(named) == 1 else None
        operators_narrowed.append(
            operator if number_format is None else _keeping_copies(operator, number_format, copies)
        )
    return operators_narrowed


def _keeping_copies(operator: Operator, number_format: str, copies: set[str]) -> Operator:
    """`operator` saving copies of its inputs; those not in `copies` yet become its outputs."""
    saves, made = list(operator.saves), []
    for tensor in operator.inputs:
        if tensor.name not in saves:
            continue
        name = f"{tensor.name} in {number_format}"
        saves[saves.index(tensor.name)] = name
        if name not in copies:
            copies.add(name)
            made.append(Tensor(name, tensor.shape, KEPT_BYTES[number_format], differentiable=False))
    return evolve(operator, saves=tuple(saves), outputs=(*operator.outputs, *made))


def narrow_format(operator: Operator, device: DeviceSpec, training: Training) -> str | None:
    """Narrow format of an operator's compute; None: none."""
    formats = precision(training.precision).formats_of(operator)
    chosen = next((name for name in formats if getattr(device.peak, name) is not None), None)
    return chosen if chosen in KEPT_BYTES else None


OPTIMIZER, ACTIVATIONS = "optimizer", "activations"  # Possible entries of `training.offload`.
LINK_SHARE = "host"  # Key of a device's `efficiency` for its link to the host.


@frozen
class Host:
    """The host as seen by one device."""

    bandwidth: float  # Bytes per second of the link in one direction, whether the other is busy or not.
    memory_bandwidth: float | None  # Bytes per second of host memory, the device's share; None: not needed.
    holds: frozenset[str]  # What is kept there.

    @property
    def holds_optimizer(self) -> bool:
        """True if optimizer state and step are on the host."""
        return OPTIMIZER in self.holds

    @property
    def holds_activations(self) -> bool:
        """True if stages may keep activations there."""
        return ACTIVATIONS in self.holds

    def update_seconds(self, precision: Precision, optimizer: Optimizer) -> float:
        """Seconds per parameter of a step on the host.

        Gradients come down, the host's memory moves what a step reads and writes, and weights go up (ZeRO-Offload,
        arXiv 2101.06840, sections 3 and 5), one after the other: an upper bound, since frameworks overlap them. As in
        the paper every rank brings only its share, so that ZeRO divides all three.
        """
        assert self.memory_bandwidth is not None
        moved = (precision.gradients + precision.weights) / self.bandwidth
        return moved + optimizer.update_bytes(precision) / self.memory_bandwidth

    def exposed_seconds(self, saved: float, forward: float, backward: float) -> float:
        """Seconds that a layer waits for its activations beyond its own two passes.

        They leave while the next layers run forward, and come back while earlier layers run backward (vDNN, arXiv
        1602.08124, section 3); in a run of equal layers that is as long as the layer itself. `saved` are the layer's
        bytes, `forward` and `backward` the seconds of its passes.
        """
        transfer = saved / self.bandwidth
        return max(0.0, transfer - forward) + max(0.0, transfer - backward)


def host(device: DeviceSpec, training: Training) -> Host | None:
    """Host of `device`; None: nothing is kept there.

    Raises:
        InputError: a required figure of the device is missing, or the optimizer's step is no pass over memory.
    """
    if not training.offload:
        return None
    needed = {"host_bandwidth": device.host_bandwidth}
    if OPTIMIZER in training.offload:
        needed["host_memory_bandwidth"] = device.host_memory_bandwidth
        if optimizer(training.optimizer).newton_schulz_steps:
            raise InputError(f"training.offload: nest prices no {training.optimizer} on the host; leave optimizer out.")
    for key, value in needed.items():
        if value is None:
            raise InputError(
                f"training.offload needs cluster.device.{key}, unknown for {device.name!r}; give the device's "
                f"figures with `{key}`, or leave offload out."
            )
    assert device.host_bandwidth is not None
    share = device.efficiency.get(LINK_SHARE, 1.0)
    return Host(device.host_bandwidth * share, device.host_memory_bandwidth, frozenset(training.offload))
