"""The operator graph of a recorded program."""

from collections.abc import Iterator, Sequence

from nest.graph.operator import OTHER_SAMPLES, Operator, Parameter, Tensor, has_axis
from nest.graph.operator_graph import OperatorGraph
from nest_torch.program.axis_names import Shapes
from nest_torch.program.layers import Layering
from nest_torch.program.values import Recorded, Stored


def graph_of(operators: Sequence[Recorded], layers: Layering, family: str) -> OperatorGraph:
    """The graph of `operators`, in their order.

    Args:
        operators: their axes have names (`name_axes`).
        layers: the layer of each.
        family: name for reports.
    """
    shapes = Shapes(operators, layers.of)
    names: set[str] = set()
    written_names: set[str] = set()
    tensors: dict[int, Tensor] = {}
    owners: set[int] = set()
    found = []
    for operator, layer in zip(operators, layers.of, strict=True):
        name = _unique(_operator_name(operator, layers.layers[layer]), names)
        written = [each for stored in operator.outputs for each in stored.whole()]
        for index, stored in enumerate(written):
            plain = name if len(written) == 1 else f"{name}.{index}"
            tensors[id(stored)] = _tensor(stored, _unique(plain, written_names), shapes)
        found.append(_operator(operator, name, layers.layers[layer], tensors, owners, shapes))
    return OperatorGraph(tuple(found), layers.layers, layers.blocks, family, tuple(_assumptions(found)))


def _assumptions(operators: Sequence[Operator]) -> Iterator[str]:
    """Assumptions on products of samples with samples: a graph is of one micro-batch on one device."""
    first = next((each.name for each in operators if has_axis(each.space, OTHER_SAMPLES)), None)
    if first is not None:
        yield f"samples are compared with those of their micro-batch on their device ({first})."


def _operator(
    operator: Recorded, name: str, layer: str, tensors: dict[int, Tensor], owners: set[int], shapes: Shapes
) -> Operator:
    def named(items: Sequence[Stored]) -> tuple[Tensor, ...]:
        whole = dict.fromkeys(each for stored in items for each in stored.whole())
        return tuple(tensors.setdefault(id(each), _tensor(each, each.name, shapes)) for each in whole)

    outputs = named(operator.outputs)
    space, contracted = shapes.space(operator.space) if operator.space else (outputs[0].shape if outputs else (), ())
    tied = [stored for stored in operator.parameters if id(stored) in owners]
    owners.update(id(stored) for stored in operator.parameters)
    return Operator(
        name=name,
        layer=layer,
        kind=operator.kind,
        space=space,
        flops_per_point=operator.flops_per_point,
        backward_flops_ratio=operator.backward_flops_ratio,
        passes=operator.passes,
        inputs=named(operator.inputs),
        outputs=outputs,
        parameters=_parameters(operator, tied, shapes),
        saves=tuple(dict.fromkeys(tensor.name for tensor in named(operator.saves))),
        contracted=contracted,
        model_flops_per_point=operator.model_flops_per_point,
    )


def _parameters(operator: Recorded, tied: Sequence[Stored], shapes: Shapes) -> tuple[Parameter, ...]:
    names: set[str] = set()
    group = "dense" if operator.experts is None else "expert"
    return tuple(
        Parameter(_unique(each.name.rpartition(".")[2], names), shapes.shape(each.dims), group, each in tied)
        for each in operator.parameters
    )


def _tensor(stored: Stored, name: str, shapes: Shapes) -> Tensor:
    return Tensor(name, shapes.shape(stored.dims), float(stored.itemsize), stored.differentiable)


def _operator_name(operator: Recorded, layer: str) -> str:
    """`layer/module`, with what it does where the module's name does not tell."""
    within = operator.path == layer or operator.path.startswith(f"{layer}.")
    path = operator.path.removeprefix(layer).removeprefix(".") if within else operator.path
    plain = operator.target.strip("_")
    inner = path if path and operator.parameters else ".".join(part for part in (path, plain) if part)
    return f"{layer}/{inner}"


def _unique(name: str, taken: set[str]) -> str:
    """`name`, or with a number where it is taken."""
    unique, count = name, 1
    while unique in taken:
        count += 1
        unique = f"{name}.{count}"
    taken.add(unique)
    return unique
