"""Inputs of matrix products that are kept for the backward pass in the narrow format they were converted to."""

from collections.abc import Callable, Sequence

from attrs import evolve

from nest.catalogue import precision
from nest.graph import Operator, Tensor
from nest.spec import DeviceSpec, Training

KEPT_BYTES = {"fp8": 1.0, "mxfp8": 1.0 + 1 / 32, "nvfp4": 0.5 + 1 / 16}
"""Bytes of an element in the one copy that the product with the gradients reads, shared scales (8 bits for each 32
elements, or each 16) included (docs.nvidia.com/deeplearning/transformer-engine: MXFP8 and NVFP4 block scaling)."""


def with_narrow_copies(operators: Sequence[Operator], narrow: Callable[[Operator], str | None]) -> list[Operator]:
    """The operators of a layer, keeping narrow copies in place of the inputs of products in narrow formats.

    Transformer Engine's linear layers save the copy of their input that the product with its gradient will read, and
    not the input itself (te.pytorch.Linear, `save_for_backward` of the quantized input). Products that read one tensor
    share its copy; what is gathered for them is saved as a share of the copy, in front of the gather.

    Args:
        operators: of one layer, as strategies left them.
        narrow: the narrow format that a product with weights is computed in; None: it is none, or in none.
    """
    readers: dict[str, list[Operator]] = {}
    for operator in operators:
        for tensor in operator.inputs:
            readers.setdefault(tensor.name, []).append(operator)
    copies: set[str] = set()
    found = []
    for operator in operators:
        number_format = narrow(operator)
        if operator.collective is not None and operator.saves:
            # What it gathers is read in its place.
            named = {narrow(each) for tensor in operator.outputs for each in readers.get(tensor.name, [])}
            number_format = named.pop() if len(named) == 1 else None
        found.append(operator if number_format is None else _keeping_copies(operator, number_format, copies))
    return found


def _keeping_copies(operator: Operator, number_format: str, copies: set[str]) -> Operator:
    """`operator` saving copies of its inputs; those not among `copies` yet are outputs of it."""
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
    """The narrow format that an operator is computed in; None: in none."""
    formats = precision(training.precision).formats_of(operator)
    chosen = next((name for name in formats if getattr(device.peak, name) is not None), None)
    return chosen if chosen in KEPT_BYTES else None
