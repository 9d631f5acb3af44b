"""Operator graph of a model, and the layer graph it induces."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import evolve, field, frozen

from nest.errors import InputError
from nest.graph.operator import BATCH, OTHER_SAMPLES, Operator, Parameter, Shape, Tensor, scale
from nest.records import Record

if TYPE_CHECKING:
    import networkx

Shaped = TypeVar("Shaped", Tensor, Parameter)


@frozen(eq=False, repr=False)
class LayerTensor(Record):
    """A tensor that leaves its layer.

    Attributes:
        producer: index of its layer.
        consumers: indices of the other layers that read it, ascending.
        tensor: on one rank.
    """

    producer: int
    consumers: tuple[int, ...]
    tensor: Tensor


@frozen(eq=False, repr=False, slots=False)
class OperatorGraph(Record):
    """A DAG of operators, grouped in layers.

    An operator precedes another if it writes a tensor the other reads.

    Attributes:
        operators: in an order in which every tensor is written before it is read.
        layers: layer names in order; every operator belongs to one.
        blocks: names of the layers that are repeated transformer blocks, in order.
        family: name of the model family, for reports.
        assumptions: on gaps of the source, one sentence each with the origin, for reports.

    Raises:
        InputError: a tensor is written twice or read before a later layer's operator writes it, an operator names an
            unknown layer, or two operators share a name.
    """

    operators: tuple[Operator, ...]
    layers: tuple[str, ...]
    blocks: tuple[str, ...] = ()
    family: str = field(default="")
    assumptions: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        # Strategies make thousands of graphs: nothing is called for each operator.
        known, operators = set(self.layers), self.operators
        made = {tensor.name: place for place, operator in enumerate(operators) for tensor in operator.outputs}
        if name := _repeated([operator.name for operator in operators]):
            raise InputError(f"two operators are named {name!r}; names must be unique.")
        if name := _repeated([tensor.name for operator in operators for tensor in operator.outputs]):
            raise InputError(f"tensor {name!r} is written twice; give each result its own name.")
        for place, operator in enumerate(operators):
            if operator.layer not in known:
                raise InputError(f"operator {operator.name!r} belongs to the unknown layer {operator.layer!r}.")
            for tensor in operator.inputs:
                if tensor.name in made and made[tensor.name] >= place:
                    raise InputError(
                        f"operator {operator.name!r} reads tensor {tensor.name!r} before it is written: "
                        "the graph has a cycle or its operators are out of order."
                    )

    @cached_property
    def layer_index(self) -> dict[str, int]:
        """Position of each layer name."""
        return {name: index for index, name in enumerate(self.layers)}

    @cached_property
    def by_layer(self) -> tuple[tuple[Operator, ...], ...]:
        """Operators of each layer, in order."""
        groups: list[list[Operator]] = [[] for _ in self.layers]
        for operator in self.operators:
            groups[self.layer_index[operator.layer]].append(operator)
        return tuple([tuple(group) for group in groups])

    @cached_property
    def layer_tensors(self) -> tuple[LayerTensor, ...]:
        """Tensors between layers, in order of their producer."""
        producer: dict[str, tuple[int, Tensor]] = {}
        consumers: dict[str, set[int]] = {}
        for operator in self.operators:
            layer = self.layer_index[operator.layer]
            for tensor in operator.inputs:
                if tensor.name in producer and producer[tensor.name][0] != layer:
                    consumers.setdefault(tensor.name, set()).add(layer)
            for tensor in operator.outputs:
                producer[tensor.name] = (layer, tensor)
        return tuple(
            LayerTensor(index, tuple(sorted(consumers[name])), tensor)
            for name, (index, tensor) in producer.items()
            if name in consumers
        )

    @property
    def parameter_count(self) -> int:
        """Scalars the model learns; tied parameters count once."""
        return sum(p.count for operator in self.operators for p in operator.parameters if not p.tied)

    @property
    def flops(self) -> float:
        """Forward FLOP for the graph's samples, as executed by kernels."""
        return sum(operator.flops for operator in self.operators)

    @property
    def model_flops(self) -> float:
        """Forward FLOP for those samples that count towards utilisation (arXiv 2204.02311, appendix B)."""
        return sum(operator.model_flops for operator in self.operators)

    def to_networkx(self) -> "networkx.DiGraph[str]":
        """Convert to a networkx DAG: nodes are operator names (attribute `operator`), edges carry `tensor`.

        Everything else (`layers`, `blocks`, ...) becomes attributes of the networkx graph.
        """
        import networkx

        rest = {"layers": self.layers, "blocks": self.blocks, "family": self.family, "assumptions": self.assumptions}
        graph: networkx.DiGraph[str] = networkx.DiGraph(**rest)
        producer: dict[str, str] = {}
        for operator in self.operators:
            attributes: dict[str, Any] = {"operator": operator}
            graph.add_node(operator.name, **attributes)
            for tensor in operator.inputs:
                if tensor.name in producer:
                    graph.add_edge(producer[tensor.name], operator.name, tensor=tensor)
            for tensor in operator.outputs:
                producer[tensor.name] = operator.name
        return graph

    @classmethod
    def from_networkx(cls, graph: "networkx.DiGraph[Any]") -> "OperatorGraph":
        """Read a networkx DAG made by `to_networkx`, in its order; edges are ignored.

        Raises:
            InputError: see `OperatorGraph`.
        """
        return cls(tuple(operator for _, operator in graph.nodes(data="operator")), **graph.graph)

    def map_operators(self, change: Callable[[Operator], tuple[Operator, ...]]) -> "OperatorGraph":
        """Replace each operator by those that `change` returns (itself, others, none)."""
        return evolve(self, operators=tuple([new for old in self.operators for new in change(old)]))

    def map_shapes(self, change: Callable[[Shape], Shape]) -> "OperatorGraph":
        """Apply `change` to the shape of every tensor, parameter and iteration space."""

        def changed(item: Shaped) -> Shaped:
            shape = change(item.shape)
            return item if shape is item.shape else evolve(item, shape=shape)

        return self.map_operators(
            lambda operator: (
                evolve(
                    operator,
                    space=change(operator.space),
                    inputs=tuple(map(changed, operator.inputs)),
                    outputs=tuple(map(changed, operator.outputs)),
                    parameters=tuple(map(changed, operator.parameters)),
                ),
            )
        )

    def divided(self, axis: str, degree: int, strategy: str) -> "OperatorGraph":
        """Graph of one of `degree` ranks when `strategy` divides `axis` of every operator (`Operator.divided`)."""
        return self.map_operators(lambda operator: (operator.divided(axis, degree, strategy),))

    def with_samples(self, samples: int) -> "OperatorGraph":
        """Graph for `samples` samples, from a one-sample graph."""
        return self.map_shapes(lambda shape: scale(scale(shape, BATCH, samples), OTHER_SAMPLES, samples))


def precedence(operators: Sequence[Operator]) -> tuple[tuple[int, int], ...]:
    """Pairs of indices: in the forward pass the second waits for the first, backward the first for the second.

    Readers of a tensor wait for its writer in the same layer. An operator without outputs but with a collective, such
    as the sum of gradients before a split operator, passes its inputs on: later operators that read the same tensor
    wait for it.

    Args:
        operators: of one layer, in an order in which every tensor is written before it is read.
    """
    sources: dict[str, int] = {}
    pairs: dict[tuple[int, int], None] = {}
    for index, operator in enumerate(operators):
        for tensor in operator.inputs:
            if tensor.name in sources:
                pairs.setdefault((sources[tensor.name], index))
        handed_on = operator.outputs
        if operator.collective is not None and not operator.outputs:
            handed_on = operator.inputs
        for tensor in handed_on:
            sources[tensor.name] = index
    return tuple(pairs)


def _repeated(names: list[str]) -> str:
    """First repeated name; empty: all are distinct."""
    if len(set(names)) == len(names):
        return ""
    return next(name for place, name in enumerate(names) if name in names[:place])
