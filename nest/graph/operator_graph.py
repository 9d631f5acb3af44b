"""The operator graph of a model and the layer graph it induces."""

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
        producer: index of the layer that makes it.
        consumers: indices of the other layers that read it, ascending.
        tensor: the tensor on one rank.
    """

    producer: int
    consumers: tuple[int, ...]
    tensor: Tensor


@frozen(eq=False, repr=False, slots=False)
class OperatorGraph(Record):
    """A DAG of operators, grouped in layers.

    An operator precedes another when it writes a tensor the other reads.

    Attributes:
        operators: in an order in which every tensor is written before it is read.
        layers: layer names in order; every operator belongs to one.
        blocks: names of the layers that are repeated transformer blocks, in order.
        family: the name of the model family, for reports.
        assumptions: what the source does not say and where it was taken from, one sentence each, for reports.

    Raises:
        InputError: a tensor is written twice or read before it is written by another layer's operator that
            comes later, an operator names an unknown layer, or two operators share a name.
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
        """The operators of each layer, in order."""
        groups: list[list[Operator]] = [[] for _ in self.layers]
        for operator in self.operators:
            groups[self.layer_index[operator.layer]].append(operator)
        return tuple([tuple(group) for group in groups])

    @cached_property
    def layer_tensors(self) -> tuple[LayerTensor, ...]:
        """Tensors that cross from one layer into others, in order of their producer."""
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
        """Forward FLOP for the samples the graph was built for, as kernels execute them."""
        return sum(operator.flops for operator in self.operators)

    @property
    def model_flops(self) -> float:
        """Forward FLOP for those samples that count towards utilisation (arXiv 2204.02311, appendix B)."""
        return sum(operator.model_flops for operator in self.operators)

    def to_networkx(self) -> "networkx.DiGraph[str]":
        """The graph as a networkx DAG: nodes are operator names (attribute `operator`), edges carry `tensor`.

        What else it has (`layers`, `blocks`, ...) are attributes of the networkx graph.
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
        """The operators of a networkx DAG as `to_networkx` makes it, in its order; edges say nothing beyond them.

        Raises:
            InputError: as `OperatorGraph`.
        """
        return cls(tuple(operator for _, operator in graph.nodes(data="operator")), **graph.graph)

    def map_operators(self, change: Callable[[Operator], tuple[Operator, ...]]) -> "OperatorGraph":
        """A graph in which `change` replaced each operator by those it returns (itself, others, none)."""
        return evolve(self, operators=tuple([new for old in self.operators for new in change(old)]))

    def map_shapes(self, change: Callable[[Shape], Shape]) -> "OperatorGraph":
        """A graph with `change` applied to every tensor, parameter and iteration space."""

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
        """The graph of one of `degree` ranks when `strategy` divides `axis` of every operator (`Operator.divided`)."""
        return self.map_operators(lambda operator: (operator.divided(axis, degree, strategy),))

    def with_samples(self, samples: int) -> "OperatorGraph":
        """The graph of a one-sample micro-batch, for `samples` samples: what is along samples made that long."""
        return self.map_shapes(lambda shape: scale(scale(shape, BATCH, samples), OTHER_SAMPLES, samples))


def precedence(operators: Sequence[Operator]) -> tuple[tuple[int, int], ...]:
    """What waits for what, as pairs of indices: in the forward pass the second for the first, else the first for it.

    Whoever reads a tensor waits for the operator of the same layer that wrote it. An operator that writes nothing but
    has a collective, such as the sum of gradients in front of a split operator, hands on what it reads: the operators
    behind it in order that read the same tensor wait for it.

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
    """The first name that was there before; empty: each is there once."""
    if len(set(names)) == len(names):
        return ""
    return next(name for place, name in enumerate(names) if name in names[:place])
