"""The calls of a traced program as operators: what each reads, computes and writes, by PyTorch's names of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from attrs import define, field

from nest_torch.program.axes import Dim, aligned, fresh, leaves, size
from nest_torch.program.targets import DROPOUTS, LINEAR, PRODUCTS_OF_NUMBERS, REDUCTIONS
from nest_torch.program.values import CONSTANT, MADE, PARAMETER, Extent, Recorded, Stored, Value
from nest_torch.program.views import SPLITS, VIEWS, joined, pieces


@define
class Call:
    """A call in the program.

    Attributes:
        target: PyTorch's name of the operator, without overload.
        path: of the module it is in.
        arguments: positional, and by keyword behind them as `keywords`.
        keywords: arguments by keyword.
        shapes: sizes of each tensor that comes out.
        itemsizes: bytes of an element of each.
        floating: whether each can have a gradient.
        pointwise: whether results lie in line with operands.
    """

    target: str
    path: str
    arguments: list[Any]
    keywords: dict[str, Any]
    shapes: list[tuple[int, ...]]
    itemsizes: list[int]
    floating: list[bool]
    pointwise: bool

    @property
    def values(self) -> list[Value]:
        """Every tensor among the arguments, in order."""
        return list(_values((*self.arguments, *self.keywords.values())))

    def argument(self, index: int, name: str, default: Any = None) -> Any:
        """The argument at `index`, or called `name`."""
        return self.arguments[index] if len(self.arguments) > index else self.keywords.get(name, default)


def _values(items: Iterable[Any]) -> Iterator[Value]:
    for item in items:
        if isinstance(item, Value):
            yield item
        elif isinstance(item, (list, tuple)):
            yield from _values(item)


Maker = Callable[["Recorder", Call], list[Value]]


@define
class Recorder:
    """Writes the operators of a program down, call by call.

    Attributes:
        operators: so far.
        makers: what records calls of certain targets; others are taken for operators that memory bounds.
    """

    makers: Mapping[str, Maker]
    operators: list[Recorded] = field(factory=list)
    _made: int = field(default=0, init=False)

    def results(self, call: Call) -> list[Value]:
        """Write down what `call` does, unless it is a view; the values that come out."""
        values = call.values
        if call.target in SPLITS and values:
            return self._split(call, values[0])
        if call.target in VIEWS and values:
            rest = call.arguments[1:] or list(call.keywords.values())
            return [values[0].seen_as(_shown(call, values[0], rest))]
        if not any(value.known for value in values) or not any(prod(shape) for shape in call.shapes):
            return [_constant(call, index) for index in range(len(call.shapes))]
        if _is_idle(call):
            return [values[0]]
        return self.makers.get(call.target, memory_bound)(self, call)

    def _split(self, call: Call, value: Value) -> list[Value]:
        """Tensors of their own where the whole of a result is split: its operator writes them apart. Else views."""
        shown = pieces(call.target, value.dims, call.arguments[1:] or list(call.keywords.values()), call.shapes)
        stored = value.stored
        whole = not any(leaf.repeated for leaf in atoms(value)) and prod(map(size, value.dims)) == stored.elements
        if stored.origin != MADE or stored.pieces or not whole:
            return [value.seen_as(dims) for dims in shown]
        stored.pieces = [self._stored(dims, stored.itemsize, stored.differentiable) for dims in shown]
        return [Value(each, each.dims, each.itemsize) for each in stored.pieces]

    def _stored(self, dims: tuple[Dim, ...], itemsize: int, differentiable: bool) -> Stored:
        self._made += 1
        return Stored(str(self._made), MADE, dims, itemsize, differentiable)

    def add(
        self,
        call: Call,
        kind: str,
        dims: Sequence[tuple[Dim, ...]],
        saves: Sequence[Value] = (),
        space: Sequence[Extent] = (),
        **more: Any,
    ) -> list[Value]:
        """Write an operator down; the values it makes.

        Args:
            call: where it comes from.
            kind: as in nest's operator graphs.
            dims: of each result.
            saves: operands the backward pass needs.
            space: its iteration space; empty: that of its first result.
            more: attributes of `Recorded`.
        """
        read, learned = _read(call.values)
        differentiable = bool(learned) or any(each.differentiable for each in read)
        outputs = []
        for index, shape in enumerate(dims):
            outputs.append(self._stored(shape, call.itemsizes[index], differentiable and call.floating[index]))
        kept = [value.stored for value in saves if value.known and value.stored.origin != PARAMETER]
        record = Recorded(call.target, call.path, kind, read, learned, outputs, list(space), saves=kept, **more)
        self.operators.append(record)
        return [Value(stored, stored.dims, stored.itemsize) for stored in outputs]


def memory_bound(recorder: Recorder, call: Call) -> list[Value]:
    """An operator whose time is that of the bytes it moves."""
    dims = [result_dims(call, index) for index in range(len(call.shapes))]
    reduced = _summed(call, call.values[0].dims) if call.target in REDUCTIONS else []
    return recorder.add(call, "elementwise", dims, saves=_saved(call), reduced=reduced)


def result_dims(call: Call, index: int = 0) -> tuple[Dim, ...]:
    """The dimensions of a result, as far as those of the operands tell them."""
    shape, operands = call.shapes[index], [value.dims for value in call.values]
    if call.pointwise or call.target in DROPOUTS:
        return aligned((), shape, operands)
    if call.target in ("cat", "concat"):
        return joined(operands, call.argument(1, "dim", 0), shape)
    first = operands[0]
    if call.target in REDUCTIONS:
        return _reduced(call, first, shape)
    if len(first) == len(shape):
        return tuple(dim if size(dim) == length else fresh(length) for dim, length in zip(first, shape, strict=True))
    if first and shape and size(first[0]) == shape[0]:
        return (first[0], *(fresh(length) for length in shape[1:]))
    return tuple(fresh(length) for length in shape)


def _reduced(call: Call, dims: tuple[Dim, ...], shape: tuple[int, ...]) -> tuple[Dim, ...]:
    """Dimensions that a reduction leaves of its operand's."""
    along = _along(call)
    if along is None or len(dims) == len(shape):
        kept = dims if len(dims) == len(shape) else ()
        return aligned((), shape, [kept])
    gone = {index % len(dims) for index in ([along] if isinstance(along, int) else along)}
    left = tuple(dim for index, dim in enumerate(dims) if index not in gone)
    return left if len(left) == len(shape) else tuple(fresh(length) for length in shape)


def _along(call: Call) -> Any:
    """The dimensions that a reduction is over; None: all."""
    given = (each for each in call.arguments[1:] if isinstance(each, (int, list)) and not isinstance(each, bool))
    return call.keywords.get("dim", next(given, None))


def _summed(call: Call, dims: tuple[Dim, ...]) -> list[Dim]:
    """The dimensions of the operand that a reduction is over."""
    along = _along(call)
    every = range(len(dims)) if along is None or along == [] else [along] if isinstance(along, int) else along
    return [dims[index] for index in every if dims]


def _saved(call: Call) -> list[Value]:
    """The operands that the backward pass of an operator bound by memory needs."""
    values = [value for value in call.values if value.known]
    if call.target in LINEAR:
        return []
    if call.target in PRODUCTS_OF_NUMBERS:
        return [
            value
            for value in values
            if any(other is not value and _has_gradient(other) for other in values) or values.count(value) > 1
        ]
    return [value for value in values if _has_gradient(value)]


def _has_gradient(value: Value) -> bool:
    return value.stored.differentiable


def _is_idle(call: Call) -> bool:
    """Return whether a call does nothing: a conversion to what there is, or dropout that drops nothing."""
    value = call.values[0]
    if call.target in ("to", "_to_copy", "type_as", "float", "half", "bfloat16"):
        return value.itemsize == call.itemsizes[0]
    if call.target in DROPOUTS:
        return not call.argument(1, "p", 0.5) or call.argument(2, "train", True) is False
    return False


def _constant(call: Call, index: int) -> Value:
    dims = tuple(fresh(length) for length in call.shapes[index])
    stored = Stored(f"{call.path or 'model'}.{call.target}", CONSTANT, dims, call.itemsizes[index], False)
    return Value(stored, dims, stored.itemsize)


def _read(values: Sequence[Value]) -> tuple[list[Stored], list[Stored]]:
    """The tensors that are read, each once: those without parameters, and the parameters."""
    stored = list(dict.fromkeys(value.stored for value in values if prod(map(size, value.dims))))
    return [each for each in stored if each.origin != PARAMETER], [each for each in stored if each.origin == PARAMETER]


def _shown(call: Call, value: Value, rest: Sequence[Any]) -> tuple[Dim, ...]:
    """The dimensions of a view; rows cut from a parameter or a constant say nothing of what it consists of."""
    if call.target in ("slice", "narrow") and value.stored.origin in (PARAMETER, CONSTANT):
        return tuple(
            dim if size(dim) == length else fresh(length)
            for dim, length in zip(value.dims, call.shapes[0], strict=True)
        )
    return VIEWS[call.target](value.dims, rest, call.shapes[0])


def atoms(value: Value) -> list[Any]:
    """The atoms of what a view shows, outermost first."""
    return [leaf for dim in value.dims for leaf in leaves(dim)]
