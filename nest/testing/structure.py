"""What a strategy must leave as it is: layers, tensors others read, alikeness; and numbers that make sense."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import gt, lt, ne
from typing import Any

from attrs import evolve

from nest.graph import Block, Operator, OperatorGraph, Shape, Tensor
from nest.hooks.graph_results import sound_graph, sound_ranks
from nest.testing.conservation import Case, pairs


def bad_degrees(degrees: Any) -> Iterator[str]:
    """What keeps `degrees` from being whole numbers of at least 1, ascending, 1 among them."""
    found = list(degrees)
    wrong = [degree for degree in found if isinstance(degree, bool) or not isinstance(degree, int) or degree < 1]
    if wrong:
        yield f"degrees are whole numbers of at least 1; {wrong[0]!r} is none"
    elif 1 not in found:
        yield f"1, which leaves the block alone, is not among the degrees {found}"
    elif found != sorted(set(found)):
        yield f"degrees are to be ascending, each once; they are {found}"


def bad_block(case: Case, strategy: str, degree: int, block: Block) -> Iterator[str]:
    """What keeps `block` from being `case.block` under `strategy` at `degree`."""
    sound_ranks(block, strategy, case.block, degree)
    grown = f"the block is {block.width} devices wide and was {case.block.width};"
    growth = block.width // case.block.width
    if degree % growth:
        yield f"{grown} it may grow by a factor that divides the degree, {degree}"
    elif case.block.width % (degree // growth):
        yield f"{grown} where it does not grow by all of the degree, {degree}, the rest must be ranks it had"


def changed_layers(before: OperatorGraph, after: OperatorGraph) -> Iterator[str]:
    """Layers that are not those of before, and tensors between them that lost name, producer or reader."""
    if (after.layers, after.blocks) != (before.layers, before.blocks):
        yield "the names of layers or of repeated blocks changed"
        return
    left = {crossing.tensor.name: crossing for crossing in after.layer_tensors}
    for crossing in before.layer_tensors:
        name, producer = crossing.tensor.name, before.layers[crossing.producer]
        now = left.get(name)
        if now is None:
            yield f"tensor {name!r}, which layer {producer!r} makes for others, is no longer passed on"
        elif (now.producer, now.consumers) != (crossing.producer, crossing.consumers):
            yield f"tensor {name!r} is made or read by other layers than before"


def bad_numbers(graph: OperatorGraph) -> Iterator[str]:
    """Sizes and amounts that no operator can have, saves of unknown tensors; and tensors of no size."""
    sound_graph(graph)
    for operator in graph.operators:
        for tensor in (*operator.inputs, *operator.outputs):
            if not tensor.itemsize:
                yield f"the itemsize of tensor {tensor.name!r} is 0"


def disagreeing_tensors(block: Block) -> Iterator[str]:
    """Tensors that have one shape where they are written and another where they are read.

    Token ids and labels lie whole on every rank, and who needs a share takes it.
    """
    shapes: dict[str, Shape] = {}
    for operator in block.graph.operators:
        for tensor in (*operator.inputs, *operator.outputs):
            known = shapes.setdefault(tensor.name, tensor.shape)
            if tensor.differentiable and known != tensor.shape:
                yield (
                    f"tensor {tensor.name!r} is {shape_text(known)} in one place and {shape_text(tensor.shape)} where "
                    f"operator {operator.name!r} handles it; a collective must stand between"
                )


def unmatched_work(whole: Block, block: Block) -> Iterator[str]:
    """Operators whose points are not those of what they write, or more than what they read, or fewer than they hold.

    A tensor read may be larger: a rank takes its share of it. Parameters may be smaller, and gathered.
    """
    for before, after in pairs(whole, block):
        points = dict(after.space)
        ways: tuple[tuple[str, Sequence[Any], Sequence[Any], Callable[[int, int], bool]], ...] = (
            ("writes", before.outputs, after.outputs, ne),
            ("reads", before.inputs, after.inputs, lt),
            ("holds", before.parameters, after.parameters, gt),
        )
        for verb, old, new, wrong in ways:
            for had, has in zip(old, new, strict=False):
                sizes = dict(had.shape)
                for axis, size in has.shape:
                    equal = sizes.get(axis) == dict(before.space).get(axis)
                    if axis in points and equal and wrong(size, points[axis]):
                        yield (
                            f"operator {before.name!r} works on {points[axis]} of {axis!r}, but {verb} {size} of it in "
                            f"{has.name!r}"
                        )


def shape_text(shape: Shape) -> str:
    """A shape for people: `sequence 64 x hidden 128`."""
    return " x ".join(f"{axis} {size}" for axis, size in shape) or "a scalar"


def unlike_layers(before: OperatorGraph, after: OperatorGraph) -> Iterator[str]:
    """Layers that were equal up to names and no longer are."""
    contents = [_content(operators) for operators in before.by_layer]
    rewritten = [_content(operators) for operators in after.by_layer]
    for index, content in enumerate(contents):
        first = contents.index(content)
        if rewritten[index] != rewritten[first]:
            yield f"layers {before.layers[first]!r} and {before.layers[index]!r} differ in names only; now they differ"


def _content(operators: Sequence[Operator]) -> tuple[object, ...]:
    """A layer without its names: tensors by the order in which they occur, operators by their place."""
    numbers: dict[str, int] = {}
    places = {operator.name: str(index) for index, operator in enumerate(operators)}

    def nameless(tensors: Iterable[Tensor]) -> tuple[object, ...]:
        return tuple((numbers.setdefault(each.name, len(numbers)), evolve(each, name="")) for each in tensors)

    rows = []
    for operator in operators:
        calls = operator.collective
        calls = None if calls is None else evolve(calls, under=places.get(calls.under, calls.under))
        plain = evolve(operator, name="", layer="", inputs=(), outputs=(), saves=(), collective=calls)
        tensors = nameless(operator.inputs), nameless(operator.outputs)
        rows.append((plain, *tensors, tuple(numbers.get(name) for name in operator.saves)))
    return tuple(rows)
