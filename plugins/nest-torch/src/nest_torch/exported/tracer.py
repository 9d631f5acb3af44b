"""An exported program followed from its inputs to its outputs: dimensions, and the operators that use them."""

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from attrs import define, field, frozen

from nest.errors import InputErrors
from nest_torch.exported.arguments import KNOWN, arguments, in_line
from nest_torch.exported.attention import CHECKS, FUSED, Attention
from nest_torch.exported.node import Node
from nest_torch.exported.placeholders import Placeholder, plain
from nest_torch.exported.stored_attention import stored_attention
from nest_torch.program.axes import Atom, Dim, fresh, leaves, reshape, size
from nest_torch.program.axis_names import BATCH
from nest_torch.program.makers import MAKERS
from nest_torch.program.recorder import Call, Recorder
from nest_torch.program.targets import NORMS, OPAQUE
from nest_torch.program.values import CONSTANT, INPUT, PARAMETER, Extent, Recorded, Stored, Value

SEQUENCE = "sequence"

MAKING = ("linear", "mm", "bmm", "matmul", "mv", "dot", "addmm", "baddbmm")
"""Calls whose results have the format of the model, whatever else it computes in another."""

JOINS = ("cat", "concat", "stack")
"""Calls whose first argument is a list of tensors."""


@frozen
class Traced:
    """Result of following a program.

    Attributes:
        operators: in the order in which they run.
        sequence: tokens of a sample; 0: no dimension of the inputs is a sequence.
        assumptions: what the program does not say and how it was taken, one sentence each.
    """

    operators: list[Recorded]
    sequence: int
    assumptions: tuple[str, ...]


def model_dtype(nodes: Sequence[Node]) -> str:
    """The format a program computes in: that of most results of its products with weights, of any results without."""
    made = [node for node in nodes if node.floating and node.target in MAKING]
    counts: dict[str, int] = {}
    for node in made or [node for node in nodes if node.floating]:
        counts[node.dtype] = counts.get(node.dtype, 0) + prod(node.shape)
    return max(counts, key=lambda dtype: counts[dtype], default="")


@define
class Tracer:
    """Follows a program.

    Attributes:
        given: placeholders by name.
        attention: by the node that makes its result.
        dtype: the format the program computes in.
        itemsize: bytes of an element where it computes in that format.
        causal: what attention is of which nothing tells; None: nobody has said either.
        stores_scores: whether attention runs without a fused kernel.
    """

    given: Mapping[str, Placeholder]
    attention: Mapping[str, Attention]
    dtype: str
    itemsize: int
    causal: bool | None
    stores_scores: bool
    _recorder: Recorder = field(factory=lambda: Recorder(MAKERS), init=False)
    _values: dict[str, list[Value]] = field(factory=dict, init=False)
    _places: dict[str, int] = field(factory=dict, init=False)
    _batch: Atom | None = field(default=None, init=False)
    _sequence: Atom | None = field(default=None, init=False)
    _unknown: dict[str, None] = field(factory=dict, init=False)
    _undecided: list[str] = field(factory=list, init=False)

    def traced(self, nodes: Sequence[Node]) -> Traced:
        """Follow `nodes`, of which each comes behind all it reads.

        Raises:
            InputErrors: a node cannot be read, or the batch is lost on the way.
        """
        self._places = _places(nodes)
        self._find_axes()
        for node in nodes:
            if node.target == "placeholder" or node.target.startswith(CHECKS):
                continue
            try:
                self._values[node.name] = self._called(node)
            except (ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError) as error:
                raise InputErrors(
                    [f"node {node.name!r:.60} ({node.target}) has sizes that nest cannot make sense of: {error!r:.80}."]
                ) from None
        self._add_batch()
        length = self._sequence.found().size if self._sequence is not None else 0
        return Traced(self._recorder.operators, length, tuple(self._assumptions()))

    def _assumptions(self) -> Iterator[str]:
        for given in self.given.values():
            if given.guessed:
                yield (f"{given.name} has {given.shape[0]} rows, {given.guessed}; `parameters` can say otherwise.")
        if self._undecided:
            yield (
                f"nothing tells whether attention is causal (first in {self._undecided[0]!r:.60}); it is taken for "
                "bidirectional, unless `causal: true` is said."
            )
        if self._unknown:
            yield f"{', '.join(self._unknown)}: not known, taken for operators that memory bounds."

    def _value(self, name: str) -> list[Value]:
        if name not in self._values:
            self._values[name] = [self._outside(self.given[name])]
        return self._values[name]

    def _name(self, name: str, module: str) -> None:
        """Call a parameter what its module calls it; the placeholder has the path in its name."""
        if name in self._values or name not in self.given or self.given[name].origin != PARAMETER:
            return
        value = self._value(name)[0]
        while module and not value.stored.name.startswith(f"p_{plain(module)}_"):
            module = module.rpartition(".")[0]
        if module:
            value.stored.name = f"{module}.{name.removeprefix(f'p_{plain(module)}_')}"

    def _outside(self, given: Placeholder) -> Value:
        dims = tuple(fresh(length) for length in given.shape)
        if given.origin == INPUT:
            dims = self._input_dims(given)
        itemsize = Node(given.name, "", (), (), given.dtype).itemsize
        stored = Stored(given.name, given.origin, dims, self._bytes(given.dtype, itemsize), given.origin == PARAMETER)
        return Value(stored, dims, stored.itemsize)

    def _find_axes(self) -> None:
        """Batch and sequence: the first dimensions of the input with most samples, where inputs usually have them.

        That is, of a sequence, where there are two dimensions of whole numbers or three of others.
        """
        inputs = [given for given in self.given.values() if given.origin == INPUT and given.shape]
        samples = max((given.shape[0] for given in inputs), default=0)
        lengths = [given.shape[1] for given in inputs if _has_sequence(given) and given.shape[0] == samples]
        self._batch = Atom(samples, BATCH, fixed=True) if samples else None
        self._sequence = Atom(lengths[0], SEQUENCE, fixed=True) if lengths else None

    def _input_dims(self, given: Placeholder) -> tuple[Dim, ...]:
        dims = [fresh(length) for length in given.shape]
        if dims and self._batch is not None and given.shape[0] == self._batch.size > 1:
            dims[0] = (self._batch,)
        if _has_sequence(given) and self._sequence is not None and given.shape[1] == self._sequence.size > 1:
            dims[1] = (self._sequence,)
        return tuple(dims)

    def _bytes(self, dtype: str, itemsize: int) -> int:
        return self.itemsize if dtype == self.dtype else itemsize

    def _called(self, node: Node) -> list[Value]:
        if node.target in OPAQUE:
            raise InputErrors([f"node {node.name!r:.60} is {node.target}, whose inside nest does not see."])
        if node.target == "getitem":
            return [self._item(node)]
        if node.name in self.attention:
            return self._attended(node, self.attention[node.name])
        for name in node.inputs:
            self._name(name, node.module)
        values = [value for name in node.inputs for value in self._value(name)[:1]]
        # Statistics of norms are left out, as in nest's own models.
        shapes = list(node.shapes[:1] if node.target in NORMS else node.shapes)
        if not shapes:
            return []
        sizes = [tuple(size(dim) for dim in value.dims) for value in values]
        itemsize = self._bytes(node.dtype, node.itemsize)
        call = Call(
            target=node.target,
            path=node.module,
            arguments=[*([values] if node.target in JOINS else values), *arguments(node.target, sizes, shapes)],
            keywords={},
            shapes=shapes,
            itemsizes=[itemsize] * len(shapes),
            floating=[node.floating] * len(shapes),
            pointwise=in_line(node.target, sizes, shapes),
        )
        before = len(self._recorder.operators)
        made = self._recorder.results(call)
        self._count(node, before)
        return [_of_sizes(value, shape) for value, shape in zip(made, shapes, strict=False)]

    def _count(self, node: Node, before: int) -> None:
        """The FLOP that the file counts of a call that nest takes for one bound by memory."""
        for operator in self._recorder.operators[before:]:
            if operator.kind == "elementwise" and not {node.target, node.target.removesuffix("_")} & KNOWN:
                self._unknown[node.target] = None
            if not operator.flops_per_point and node.flops and operator.outputs:
                operator.flops_per_point = node.flops / max(1, operator.outputs[0].elements)

    def _item(self, node: Node) -> Value:
        """The tensor of several that a node takes; which, the file does not say."""
        source = self._value(node.inputs[0])
        fitting = [value for value in source if tuple(size(dim) for dim in value.dims) == node.shape]
        if not fitting:
            stored = Stored(node.name, CONSTANT, tuple(map(fresh, node.shape)), node.itemsize, False)
            return Value(stored, stored.dims, stored.itemsize)
        return fitting[self._places[node.name] % len(fitting)]

    def _attended(self, node: Node, at: Attention) -> list[Value]:
        query, key, value = (self._heads(self._value(name)[0]) for name in (at.query, at.key, at.value))
        if at.turned:
            key = key.seen_as((*key.dims[:-2], key.dims[-1], key.dims[-2]))
        causal = bool(self.causal) if at.causal is None else at.causal
        if at.causal is None and self.causal is None:
            self._undecided.append(node.name)
        mask = self._value(at.mask)[0] if at.mask else None
        result = (*(size(dim) for dim in query.dims[:-1]), size(value.dims[-1]))
        call = Call(
            FUSED, node.module, [query, key, value, mask, 0.0, causal], {}, [result], [query.itemsize], [True], False
        )
        made = stored_attention(self._recorder, call) if self.stores_scores else self._recorder.results(call)[0]
        return [_of_sizes(made, node.shape)]

    def _heads(self, value: Value) -> Value:
        """Batch and heads apart, where one dimension holds both."""
        if len(value.dims) != 3:
            return value
        outer = leaves(value.dims[0])
        batch = tuple(leaf for leaf in outer if leaf.name == BATCH)
        return value.seen_as((batch, tuple(leaf for leaf in outer if leaf.name != BATCH), *value.dims[1:]))

    def _add_batch(self) -> None:
        """A batch of one has no dimension to follow: what comes with the data gets one."""
        if self._batch is None or self._batch.size > 1:
            self._check_batch()
            return
        batched: set[int] = set()
        batch = (self._batch,)
        for operator in self._recorder.operators:
            if not any(stored.origin == INPUT or id(stored) in batched for stored in operator.inputs):
                continue
            for stored in operator.inputs:
                if stored.origin == INPUT and id(stored) not in batched:
                    batched.add(id(stored))
                    stored.dims = (batch, *stored.dims)
            for stored in operator.outputs:
                for each in (stored, *stored.whole()):
                    if id(each) not in batched:
                        batched.add(id(each))
                        each.dims = (batch, *each.dims)
            if operator.space:
                operator.space = [Extent(batch), *operator.space]

    def _check_batch(self) -> None:
        batched: set[int] = set()
        for operator in self._recorder.operators:
            if any(stored.origin == INPUT or id(stored) in batched for stored in operator.inputs):
                batched.update(id(each) for stored in operator.outputs for each in (stored, *stored.whole()))
                named = any(leaf.name == BATCH for extent in operator.space for leaf in leaves(extent.dim))
                if operator.flops_per_point and operator.space and not named:
                    raise InputErrors(
                        [
                            f"in {operator.path or 'the program'} ({operator.target}) samples can no longer be told "
                            "apart; export the program with one sample."
                        ]
                    )


def _has_sequence(given: Placeholder) -> bool:
    whole = given.dtype.startswith(("int", "long", "bool", "uint"))
    return len(given.shape) == (2 if whole else 3)


def _places(nodes: Sequence[Node]) -> dict[str, int]:
    """For each node that takes one of several tensors: how many of its sizes are taken before, by the count in names.

    Tracers number nodes as they come, so names tell the order where that of the file does not.
    """
    taking: dict[tuple[str, tuple[int, ...]], list[Node]] = {}
    for node in nodes:
        if node.target == "getitem":
            taking.setdefault((node.inputs[0], node.shape), []).append(node)
    return {
        node.name: place
        for row in taking.values()
        for place, node in enumerate(sorted(row, key=lambda node: (len(node.name), node.name)))
    }


def _of_sizes(value: Value, shape: Sequence[int]) -> Value:
    """`value` with the sizes the file gives, whatever its dimensions were found to be."""
    if tuple(size(dim) for dim in value.dims) == tuple(shape):
        return value
    return value.seen_as(reshape(value.dims, shape))
