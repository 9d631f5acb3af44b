"""Regions: the operators of a layer that hold a group of parameters, and what lies between them.

Routed experts are such a region: tokens enter it, pass through the experts and leave it.
"""

from collections.abc import Callable, Sequence

from attrs import evolve, frozen

from nest.graph.operator import Collective, Operator, Shape, Tensor
from nest.graph.operator_graph import OperatorGraph


@frozen
class Crossing:
    """What happens to tensors where they cross the border of a region.

    Attributes:
        name: of the operators inserted; unique among those of one graph.
        inside: a tensor's shape inside the region, from its shape outside.
        enter: the calls that bring a tensor in.
        leave: the calls that take a tensor out.
    """

    name: str
    inside: Callable[[Shape], Shape]
    enter: Callable[[Tensor], Collective]
    leave: Callable[[Tensor], Collective]


def region(operators: Sequence[Operator], group: str) -> frozenset[str]:
    """Names of the operators of one layer that hold parameters of `group` or lie between two that do."""
    holders = [any(p.group == group for p in operator.parameters) for operator in operators]
    behind: set[str] = set()
    follows = []
    for operator, holds in zip(operators, holders, strict=True):
        follows.append(holds or any(tensor.name in behind for tensor in operator.inputs))
        behind.update(tensor.name for tensor in operator.outputs if follows[-1])
    ahead: set[str] = set()
    operators_inside = set()
    for operator, holds, following in reversed(list(zip(operators, holders, follows, strict=True))):
        leads = holds or any(tensor.name in ahead for tensor in operator.outputs)
        ahead.update(tensor.name for tensor in operator.inputs if leads)
        if following and leads:
            operators_inside.add(operator.name)
    return frozenset(operators_inside)


def surround(
    graph: OperatorGraph, group: str, crossing: Crossing, change: Callable[[Operator], Operator]
) -> OperatorGraph:
    """`graph` with the regions of `group` changed, and a collective operator wherever a tensor enters or leaves one.

    Inside, a tensor that crosses the border has another name; who reads it outside keeps reading the old one.

    Args:
        graph: operators of any number of layers.
        group: a parameter group.
        crossing: what happens at the border.
        change: what becomes of an operator inside, apart from its shapes.
    """
    changed: dict[str, tuple[Operator, ...]] = {}
    for operators in graph.by_layer:
        names = region(operators, group)
        if names:
            inner = [operator for operator in operators if operator.name in names]
            outer = [operator for operator in operators if operator.name not in names]
            changed.update(_surrounded(inner, outer, graph, crossing, change))
    return graph.map_operators(lambda operator: changed.get(operator.name, (operator,)))


def _surrounded(
    inner: Sequence[Operator],
    outer: Sequence[Operator],
    graph: OperatorGraph,
    crossing: Crossing,
    change: Callable[[Operator], Operator],
) -> dict[str, tuple[Operator, ...]]:
    """What takes the place of each operator of one region."""
    made = {tensor.name for operator in inner for tensor in operator.outputs}
    read = {tensor.name for operator in outer for tensor in operator.inputs}
    read |= {item.tensor.name for item in graph.layer_tensors}
    arrived: set[str] = set()
    between = {}
    for operator in inner:
        entering = [t for t in operator.inputs if t.name not in made and t.name not in arrived]
        arrived.update(tensor.name for tensor in entering)
        leaving = [tensor for tensor in operator.outputs if tensor.name in read]
        moved = {t.name for t in operator.inputs if t.name not in made} | (made & read)
        between[operator.name] = (
            *(_entrance(operator, tensor, crossing) for tensor in entering),
            change(_inside(operator, moved, crossing)),
            *(_exit(operator, tensor, crossing) for tensor in leaving),
        )
    return between


def _inside(operator: Operator, moved: set[str], crossing: Crossing) -> Operator:
    def tensors(items: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(_renamed(item, operator.layer, crossing, item.name in moved) for item in items)

    saves = tuple(_name(name, operator.layer, crossing) if name in moved else name for name in operator.saves)
    return evolve(
        operator,
        space=crossing.inside(operator.space),
        inputs=tensors(operator.inputs),
        outputs=tensors(operator.outputs),
        saves=saves,
    )


def _name(name: str, layer: str, crossing: Crossing) -> str:
    return f"{name}.{crossing.name} in {layer}"


def _renamed(tensor: Tensor, layer: str, crossing: Crossing, moved: bool = True) -> Tensor:
    name = _name(tensor.name, layer, crossing) if moved else tensor.name
    return evolve(tensor, name=name, shape=crossing.inside(tensor.shape))


def _entrance(reader: Operator, tensor: Tensor, crossing: Crossing) -> Operator:
    return Operator(
        name=f"{reader.name}.{crossing.name} of {tensor.name}",
        layer=reader.layer,
        kind="collective",
        inputs=(tensor,),
        outputs=(_renamed(tensor, reader.layer, crossing),),
        collective=crossing.enter(tensor),
    )


def _exit(maker: Operator, tensor: Tensor, crossing: Crossing) -> Operator:
    return Operator(
        name=f"{maker.name}.{crossing.name} back",
        layer=maker.layer,
        kind="collective",
        inputs=(_renamed(tensor, maker.layer, crossing),),
        outputs=(tensor,),
        collective=crossing.leave(tensor),
    )
