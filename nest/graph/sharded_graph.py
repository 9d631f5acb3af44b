"""Sharded graphs (`Block`): an operator graph under strategies, with its device group."""

from collections.abc import Callable, Sequence
from functools import cached_property
from math import prod

from attrs import evolve, frozen

from nest.graph.operator import Collective, Operator, Shape, Tensor
from nest.graph.operator_graph import OperatorGraph
from nest.records import Record

COPIES = "copies"
"""Axis of ranks that repeat a whole block on samples of their own (`Block.folded`)."""


@frozen(eq=False, repr=False)
class Axis(Record):
    """A group of ranks inside a device group.

    Attributes:
        name: of the strategy that made it; used by collectives.
        degree: number of ranks.
    """

    name: str
    degree: int


@frozen(eq=False, repr=False)
class Fold(Record):
    """A group of ranks laid over the devices of a block in another order than its axes'.

    Attributes:
        name: of the strategy that made it; used by collectives.
        degree: number of ranks.
        stride: devices from one rank to the next.
        group: parameter group whose ranks it arranges.
    """

    name: str
    degree: int
    stride: int
    group: str

    @property
    def offsets(self) -> tuple[int, ...]:
        """Device offsets of its ranks from the first."""
        return tuple(range(0, self.stride * self.degree, self.stride))


@frozen(eq=False, repr=False, slots=False)
class Block(Record):
    """A sharded graph on the device group of one stage, transformed by strategies (PROBLEM.md section 2).

    Attributes:
        graph: operators of one rank, for one micro-batch.
        samples: samples per micro-batch.
        axes: the block's ranks as a mixed radix, innermost first: rank `i` of axis `a` is `i * stride(a)` devices
            further on.
        degrees: `(strategy, degree)` in order of application; a strategy that reuses another's axis is listed without
            an axis of its own.
        replicated: `(parameter group, axis)` pairs: ranks along the axis hold the same parameters of the group.
        folds: groups of ranks laid over the same devices in another order.
    """

    graph: OperatorGraph
    samples: int
    axes: tuple[Axis, ...] = ()
    degrees: tuple[tuple[str, int], ...] = ()
    replicated: tuple[tuple[str, str], ...] = ()
    folds: tuple[Fold, ...] = ()

    @cached_property
    def width(self) -> int:
        """Devices of the block."""
        return prod([axis.degree for axis in self.axes])

    @property
    def micro_batch(self) -> int:
        """Samples per micro-batch of each copy in the block: those of `graph` before anything divides it."""
        return self.samples // prod(axis.degree for axis in self.axes if axis.name == COPIES)

    @cached_property
    def called(self) -> frozenset[str]:
        """Axes over whose ranks its operators communicate."""
        return frozenset(call.axis for operator in self.graph.operators for call in operator.calls)

    def degree(self, name: str) -> int:
        """Degree of axis or strategy `name`; 1 if unused."""
        laid_out = {fold.name: fold.degree for fold in self.folds} | {axis.name: axis.degree for axis in self.axes}
        return laid_out.get(name, dict(self.degrees).get(name, 1))

    def lie(self, name: str) -> tuple[int, int]:
        """Placement of the ranks of axis `name`: devices from one to the next, and their number."""
        return self._lies.get(name, (1, 1))

    @cached_property
    def _lies(self) -> dict[str, tuple[int, int]]:
        places = {fold.name: (fold.stride, fold.degree) for fold in reversed(self.folds)}
        stride = self.width
        for axis in reversed(self.axes):
            stride //= axis.degree
            places[axis.name] = stride, axis.degree
        return places

    def ranks(self, name: str) -> tuple[int, ...]:
        """Device offsets of axis `name` that share the other coordinates of offset 0."""
        stride, degree = self.lie(name)
        return tuple(range(0, stride * degree, stride))

    def groups(self, name: str) -> tuple[tuple[int, ...], ...]:
        """Device offsets of every group of ranks along axis `name`, by their first; `ranks(name)` is the first group.

        In a block as wide as several network groups, these may be placed differently.
        """
        ranks = self.ranks(name)
        stride = ranks[1] if len(ranks) > 1 else 1
        firsts = (device for device in range(self.width) if device // stride % len(ranks) == 0)
        return tuple(tuple(first + rank for rank in ranks) for first in firsts)

    def replica_ranks(self, group: str) -> tuple[int, ...]:
        """Device offsets with the same parameters of `group` as offset 0 (`ranks` of PROBLEM.md section 2)."""
        offsets = [0]
        for name in dict.fromkeys(axis for held, axis in self.replicated if held == group):
            offsets = [base + step for step in self.ranks(name) for base in offsets]
        return tuple(sorted(offsets))

    def with_axis(self, name: str, degree: int) -> "Block":
        """Widen the block by a new outermost axis of `degree` ranks."""
        return evolve(self, axes=(*self.axes, Axis(name, degree)))

    def applied(self, strategy: str, degree: int, graph: OperatorGraph) -> "Block":
        """Replace the graph, and record `strategy` at `degree`."""
        return evolve(self, graph=graph, degrees=(*self.degrees, (strategy, degree)))

    def replicating(self, axis: str) -> "Block":
        """Let ranks along `axis` hold the same parameters of every group."""
        groups = dict.fromkeys(p.group for operator in self.graph.operators for p in operator.parameters)
        return evolve(self, replicated=(*self.replicated, *((group, axis) for group in groups)))

    def width_over(self, ranks: int) -> int | None:
        """Devices of the block with so many ranks laid over it (`folded`); None: neither divides the other."""
        fewer, more = sorted((ranks, self.width))
        return None if more % fewer else more

    def folded(self, group: str, axes: tuple[Axis, ...]) -> "Block":
        """Split the parameters of `group` over `axes`, laid over the same devices from offset 0.

        If they need more devices, the block is widened: it holds several copies of all else, each with samples of its
        own. If they need fewer, the remaining devices repeat the group.

        Args:
            group: a parameter group; its earlier layout is dropped.
            axes: innermost first. The width of the block and the product of their degrees divide one another.

        Raises:
            ValueError: neither divides the other.
        """
        needed = prod(axis.degree for axis in axes)
        if self.width_over(needed) is None:
            raise ValueError(f"{needed} ranks cannot be laid over blocks of {self.width} devices")
        widened = self._copied(needed // self.width) if needed > self.width else self
        folds = [fold for fold in widened.folds if fold.group != group]
        stride = 1
        for axis in (*axes, Axis(f"{group} {COPIES}", widened.width // needed)):
            folds.append(Fold(axis.name, axis.degree, stride, group))
            stride *= axis.degree
        replicated = tuple(pair for pair in widened.replicated if pair[0] != group)
        return evolve(widened, folds=tuple(folds), replicated=(*replicated, (group, folds[-1].name)))

    def _copied(self, count: int) -> "Block":
        """Block repeated `count` times, side by side."""
        already = self.degree(COPIES)
        axes = tuple(axis for axis in self.axes if axis.name != COPIES)
        if already > 1:
            return evolve(self, samples=self.samples * count, axes=(*axes, Axis(COPIES, already * count)))
        return evolve(self, samples=self.samples * count).with_axis(COPIES, count).replicating(COPIES)


@frozen(eq=False, repr=False)
class Crossing(Record):
    """Conversion of tensors at the border of a region.

    Attributes:
        name: of the operators inserted; unique among those of one graph.
        inside: maps a tensor's shape outside to that inside.
        enter: calls that bring a tensor in.
        leave: calls that take a tensor out.
    """

    name: str
    inside: Callable[[Shape], Shape]
    enter: Callable[[Tensor], Collective]
    leave: Callable[[Tensor], Collective]


def region(operators: Sequence[Operator], group: str) -> frozenset[str]:
    """Names of the operators of one layer that hold parameters of `group`, or are between two that do."""
    holders = {operator.name for operator in operators for p in operator.parameters if p.group == group}
    if not holders:
        return frozenset()
    behind: set[str] = set()
    following = []
    for operator in operators:
        if operator.name in holders or not behind.isdisjoint([tensor.name for tensor in operator.inputs]):
            following.append(operator)
            behind |= {tensor.name for tensor in operator.outputs}
    ahead: set[str] = set()
    operators_inside = set()
    for operator in reversed(following):  # What leads from one of them to another follows, too.
        if operator.name in holders or not ahead.isdisjoint([tensor.name for tensor in operator.outputs]):
            operators_inside.add(operator.name)
            ahead |= {tensor.name for tensor in operator.inputs}
    return frozenset(operators_inside)


def surround(
    graph: OperatorGraph, group: str, crossing: Crossing, change: Callable[[Operator], Operator]
) -> OperatorGraph:
    """Change the regions of `group`, and insert a collective operator wherever a tensor enters or leaves one.

    Inside, a tensor that crosses the border has another name; readers outside keep the old one.

    Args:
        graph: operators of any number of layers.
        group: a parameter group.
        crossing: conversion at the border.
        change: changes an operator inside, apart from its shapes.
    """
    changed: dict[str, tuple[Operator, ...]] = {}
    for operators in graph.by_layer:
        names = region(operators, group)
        if names:
            inner = [operator for operator in operators if operator.name in names]
            outer = [operator for operator in operators if operator.name not in names]
            changed.update(_surrounded(inner, outer, graph, crossing, change))
    return evolve(graph, operators=tuple([new for old in graph.operators for new in changed.get(old.name, (old,))]))


def _surrounded(
    inner: Sequence[Operator],
    outer: Sequence[Operator],
    graph: OperatorGraph,
    crossing: Crossing,
    change: Callable[[Operator], Operator],
) -> dict[str, tuple[Operator, ...]]:
    """Replacements for each operator of one region."""
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
            *(_moving(operator, tensor, crossing, enters=True) for tensor in entering),
            change(_inside(operator, moved, crossing)),
            *(_moving(operator, tensor, crossing, enters=False) for tensor in leaving),
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
    return Tensor(name, crossing.inside(tensor.shape), tensor.itemsize, tensor.differentiable)


def _moving(operator: Operator, tensor: Tensor, crossing: Crossing, *, enters: bool) -> Operator:
    ends = (tensor,), (_renamed(tensor, operator.layer, crossing),)
    inputs, outputs = ends if enters else ends[::-1]
    name = f"{operator.name}.{crossing.name} {f'of {tensor.name}' if enters else 'back'}"
    calls = crossing.enter(tensor) if enters else crossing.leave(tensor)
    return Operator(name, operator.layer, "collective", inputs=inputs, outputs=outputs, collective=calls)
