"""Puts exchanges around attention cores."""

from collections.abc import Mapping
from functools import cached_property

from attrs import evolve, frozen

from nest.graph import Collective, Communication, Operator, OperatorGraph, Shape, Tensor, divide, has_axis
from nest_ulysses.attention import HEADS, KEY_VALUE_HEADS

SEQUENCE = "sequence"

BY_HEADS = ".by heads"
"""Ends the name of a tensor of which a rank holds whole sequences of some heads."""


def exchanging(
    graph: OperatorGraph, shares: OperatorGraph, members: frozenset[str], degree: int, axis: str
) -> OperatorGraph:
    """`shares` with attention on whole sequences of `1/degree` of the heads, between exchanges.

    Args:
        graph: before its sequence was divided.
        shares: the same operators, each on a share of the sequence.
        members: names of the operators of the attention cores.
        degree: number of ranks.
        axis: of the block, along which they lie.
    """
    return _Rewriter(graph, members, degree, axis).rewritten(shares)


@frozen(slots=False)
class _Rewriter:
    graph: OperatorGraph
    members: frozenset[str]
    degree: int
    axis: str

    @cached_property
    def homes(self) -> dict[str, str]:
        """By tensor, the layer whose attention core makes it."""
        inside = (operator for operator in self.graph.operators if operator.name in self.members)
        return {tensor.name: operator.layer for operator in inside for tensor in operator.outputs}

    @cached_property
    def leaving(self) -> frozenset[str]:
        """Names of the tensors made in a core that others read: these go back to shares of the sequence."""
        return frozenset(
            tensor.name
            for operator in self.graph.operators
            for tensor in operator.inputs
            if tensor.name in self.homes and not self._within(operator, tensor)
        )

    def rewritten(self, shares: OperatorGraph) -> OperatorGraph:
        whole: Mapping[str, Operator] = {operator.name: operator for operator in self.graph.operators}
        arrived: set[tuple[str, str]] = set()

        def change(share: Operator) -> tuple[Operator, ...]:
            if share.name not in self.members:
                return (share,)
            operator = whole[share.name]
            needed = [tensor for tensor in operator.inputs if self._arrives(operator, tensor)]
            new = [tensor for tensor in needed if (operator.layer, tensor.name) not in arrived]
            arrived.update((operator.layer, tensor.name) for tensor in new)
            left = [tensor for tensor in operator.outputs if tensor.name in self.leaving]
            return (
                *(self._exchange(operator, tensor) for tensor in new),
                self._by_heads(operator),
                *(self._exchange_back(operator, tensor) for tensor in left),
            )

        return shares.map_operators(change)

    def _within(self, reader: Operator, tensor: Tensor) -> bool:
        return reader.name in self.members and self.homes.get(tensor.name) == reader.layer

    def _arrives(self, reader: Operator, tensor: Tensor) -> bool:
        """Return whether a member of a core reads the tensor from outside, where each rank has some of its tokens."""
        return has_axis(tensor.shape, SEQUENCE) and not self._within(reader, tensor)

    def _by_heads(self, operator: Operator) -> Operator:
        """An operator of a core on whole sequences of a share of the heads."""
        inputs = tuple(self._read(operator, tensor) for tensor in operator.inputs)
        outputs = tuple(self._made(tensor) for tensor in operator.outputs)
        renamed = {
            before.name: after.name
            for before, after in zip((*operator.inputs, *operator.outputs), (*inputs, *outputs), strict=True)
        }
        return evolve(
            operator,
            space=self._heads_share(operator.space),
            inputs=inputs,
            outputs=outputs,
            saves=tuple(renamed.get(name, name) for name in operator.saves),
            collective=_scaled(operator, (*inputs, *outputs)),
            split=operator.split if operator.collective is not None else (*operator.split, self.axis),
        )

    def _read(self, reader: Operator, tensor: Tensor) -> Tensor:
        if self._arrives(reader, tensor):
            return self._arrived(reader.layer, tensor)
        return self._made(tensor) if self._within(reader, tensor) else tensor

    def _arrived(self, layer: str, tensor: Tensor) -> Tensor:
        return evolve(tensor, name=f"{tensor.name}{BY_HEADS} in {layer}", shape=self._heads_share(tensor.shape))

    def _made(self, tensor: Tensor) -> Tensor:
        name = tensor.name + BY_HEADS if tensor.name in self.leaving else tensor.name
        return evolve(tensor, name=name, shape=self._heads_share(tensor.shape))

    def _heads_share(self, shape: Shape) -> Shape:
        """Heads divided; of key-value heads that do not suffice, every rank has the one its heads attend to."""
        return divide(divide(shape, HEADS, self.degree), KEY_VALUE_HEADS, self.degree)

    def _exchange(self, reader: Operator, tensor: Tensor) -> Operator:
        """From a share of the tokens to a share of the heads; what has no heads is gathered.

        Key-value heads that several ranks hold are repeated before they are sent, so that every rank sends and
        receives the bytes that it holds behind the exchange.
        """
        arrived = self._arrived(reader.layer, tensor)
        has_heads = has_axis(tensor.shape, HEADS) or has_axis(tensor.shape, KEY_VALUE_HEADS)
        there, back = ("all_to_all", "all_to_all") if has_heads else ("all_gather", "reduce_scatter")
        gradient = (Communication(back, arrived.bytes, self.axis),) if tensor.differentiable else ()
        return Operator(
            name=f"{reader.name}.{self.axis} exchange of {tensor.name}",
            layer=reader.layer,
            kind="collective",
            inputs=(self._tokens_share(tensor),),
            outputs=(arrived,),
            collective=Collective((Communication(there, arrived.bytes, self.axis),), gradient),
        )

    def _exchange_back(self, maker: Operator, tensor: Tensor) -> Operator:
        """From a share of the heads to a share of the tokens, under the tensor's own name."""
        made = self._made(tensor)
        call = Communication("all_to_all", made.bytes, self.axis)
        return Operator(
            name=f"{maker.name}.{self.axis} exchange back of {tensor.name}",
            layer=maker.layer,
            kind="collective",
            inputs=(made,),
            outputs=(self._tokens_share(tensor),),
            collective=Collective((call,), (call,) if tensor.differentiable else ()),
        )

    def _tokens_share(self, tensor: Tensor) -> Tensor:
        return tensor.divided(SEQUENCE, self.degree)


def _scaled(operator: Operator, tensors: tuple[Tensor, ...]) -> Collective | None:
    """The calls another strategy put inside a core: they carry what `tensors` are now in place of what they were."""
    if operator.collective is None:
        return None
    before = sum(tensor.bytes for tensor in (*operator.inputs, *operator.outputs))
    share = sum(tensor.bytes for tensor in tensors) / before if before else 1.0

    def scaled(calls: tuple[Communication, ...]) -> tuple[Communication, ...]:
        return tuple(evolve(call, bytes=call.bytes * share) for call in calls)

    made = operator.collective
    return evolve(made, forward=scaled(made.forward), backward=scaled(made.backward))
