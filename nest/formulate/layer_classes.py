"""Equivalence classes of layers: layers that differ only in names are sharded and priced once."""

from itertools import accumulate
from typing import NamedTuple

from attrs import evolve

from nest.graph import Operator, OperatorGraph, Tensor

Content = tuple[object, ...]


class CrossingTensors(NamedTuple):
    """Tensors from one planned layer to the same readers; they cross the same cuts."""

    producer: int  # Index of their layer.
    consumers: tuple[int, ...]  # Indices of the reading layers, ascending.
    names: tuple[str, ...]  # In the graph of one layer of each class.


class LayerClasses(NamedTuple):
    """A graph with one layer of each class, and its relation to the whole graph."""

    graph: OperatorGraph  # First layer of each class, reading from the first layers of the classes it reads from.
    # For each planned layer, index of its class's layer in `graph`; if operators are planned, index of its class's
    # operator among those of `graph`, layer by layer.
    class_of: tuple[int, ...]
    layers: tuple[str, ...]  # Names of the planned layers: those of the whole graph, or its operators.
    crossing: tuple[CrossingTensors, ...]  # Tensors that leave planned layers.
    by_operator: bool = False  # Operators are planned one by one.


def layer_classes(graph: OperatorGraph, by_operator: bool = False) -> LayerClasses:
    """Sort the layers of `graph` into classes with equal operators up to names.

    128 transformer blocks become one, which makes sharding and pricing independent of the depth. If a layer reads the
    same tensor of two layers of one class, every layer is its own class, as one could not represent both. With
    `by_operator` every operator is planned as a layer of its own; sharding still works on layers.
    """
    made = frozenset(tensor.name for operator in graph.operators for tensor in operator.outputs)
    contents = [_content(graph, index, made) for index in range(len(graph.layers))]
    first: dict[Content, int] = {}
    for index, content in enumerate(contents):
        first.setdefault(content, index)
    representatives = [first[content] for content in contents]
    renamed = _names_of_representatives(graph, representatives)
    if renamed is None:
        representatives = list(range(len(graph.layers)))
        renamed = {}
    representatives_in_order = sorted(set(representatives))
    position = {layer: index for index, layer in enumerate(representatives_in_order)}
    small = OperatorGraph(
        operators=tuple(
            _renamed(operator, renamed) for layer in representatives_in_order for operator in graph.by_layer[layer]
        ),
        layers=tuple(graph.layers[layer] for layer in representatives_in_order),
        blocks=tuple(name for name in graph.blocks if graph.layer_index[name] in position),
        family=graph.family,
    )
    class_of = tuple(position[layer] for layer in representatives)
    if not by_operator:
        return LayerClasses(small, class_of, graph.layers, _crossing(graph, renamed))
    names = tuple(operator.name for operator in graph.operators)
    fine = OperatorGraph(tuple(evolve(operator, layer=operator.name) for operator in graph.operators), names)
    starts = [0, *accumulate(len(operators) for operators in small.by_layer)]
    operator_class = {
        operator.name: starts[layer_class] + place
        for layer_class, operators in zip(class_of, graph.by_layer, strict=True)
        for place, operator in enumerate(operators)
    }
    return LayerClasses(small, tuple(operator_class[name] for name in names), names, _crossing(fine, renamed), True)


def _content(graph: OperatorGraph, layer: int, made: frozenset[str]) -> Content:
    """A layer's operators, with names replaced by their order of appearance."""
    numbers = {name: number for number, name in enumerate(_tensor_names(graph.by_layer[layer]))}

    def tensors(items: tuple[Tensor, ...]) -> Content:
        # A third of the time with `evolve`.
        return tuple([(numbers[t.name], t.name in made, t.shape, t.itemsize, t.differentiable) for t in items])

    rows: list[object] = [graph.layers[layer] in graph.blocks]
    for operator in graph.by_layer[layer]:
        saves = tuple(numbers[name] for name in operator.saves)
        same = evolve(operator, name="", layer="", inputs=(), outputs=(), saves=())
        rows.append((same, tensors(operator.inputs), tensors(operator.outputs), saves))
    return tuple(rows)


def _tensor_names(operators: tuple[Operator, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tensor.name for o in operators for tensor in (*o.inputs, *o.outputs)))


def _names_of_representatives(graph: OperatorGraph, representatives: list[int]) -> dict[str, str] | None:
    """For each tensor, its counterpart in its class's first layer; None: one would represent two."""
    renamed: dict[str, str] = {}
    for layer, representative in enumerate(representatives):
        here, there = (_tensor_names(graph.by_layer[index]) for index in (layer, representative))
        own = {t.name for operator in graph.by_layer[layer] for t in operator.outputs}
        renamed.update((a, b) for a, b in zip(here, there, strict=True) if a in own)
    for representative in set(representatives):
        names = _tensor_names(graph.by_layer[representative])
        if len({renamed.get(name, name) for name in names}) < len(names):
            return None
    return renamed


def _renamed(operator: Operator, names: dict[str, str]) -> Operator:
    inputs = tuple(evolve(t, name=names.get(t.name, t.name)) for t in operator.inputs)
    saves = tuple(names.get(name, name) for name in operator.saves)
    return evolve(operator, inputs=inputs, saves=saves)


def _crossing(graph: OperatorGraph, renamed: dict[str, str]) -> tuple[CrossingTensors, ...]:
    groups: dict[tuple[int, tuple[int, ...]], list[str]] = {}
    for item in graph.layer_tensors:
        names = groups.setdefault((item.producer, item.consumers), [])
        names.append(renamed.get(item.tensor.name, item.tensor.name))
    return tuple(CrossingTensors(*ends, tuple(names)) for ends, names in groups.items())
