"""Blocks: an operator graph while strategies shard it."""

from math import prod

from attrs import evolve, frozen

from nest.graph.operator_graph import OperatorGraph


@frozen
class Axis:
    """A group of ranks inside a block.

    Attributes:
        name: the strategy that made it; collectives name it.
        degree: ranks along it.
    """

    name: str
    degree: int


@frozen
class Block:
    """One stage's group of devices running a graph together; what strategies transform (PROBLEM.md section 2).

    Attributes:
        graph: the operators of one rank, for one micro-batch.
        samples: samples per micro-batch.
        axes: the block's ranks as a mixed radix, innermost first: rank `i` of axis `a` is `i * stride(a)`
            devices further on.
        degrees: `(strategy, degree)` as applied, in order; a strategy that reuses another's axis is listed here
            without an axis of its own.
        replicated: `(parameter group, axis)` pairs: the ranks along the axis hold the same parameters of it.
    """

    graph: OperatorGraph
    samples: int
    axes: tuple[Axis, ...] = ()
    degrees: tuple[tuple[str, int], ...] = ()
    replicated: tuple[tuple[str, str], ...] = ()

    @property
    def width(self) -> int:
        """Devices of the block."""
        return prod(axis.degree for axis in self.axes)

    def degree(self, name: str) -> int:
        """Degree of axis or strategy `name`; 1 when it took no part."""
        for axis in self.axes:
            if axis.name == name:
                return axis.degree
        return dict(self.degrees).get(name, 1)

    def ranks(self, name: str) -> tuple[int, ...]:
        """Device offsets of axis `name` that share the other coordinates of offset 0."""
        stride = 1
        for axis in self.axes:
            if axis.name == name:
                return tuple(range(0, stride * axis.degree, stride))
            stride *= axis.degree
        return (0,)

    def replica_ranks(self, group: str) -> tuple[int, ...]:
        """Device offsets that hold the same parameters of `group` as offset 0 (`ranks` of PROBLEM.md section 2)."""
        offsets = [0]
        stride = 1
        for axis in self.axes:
            if (group, axis.name) in self.replicated:
                offsets = [base + stride * i for i in range(axis.degree) for base in offsets]
            stride *= axis.degree
        return tuple(sorted(offsets))

    def with_axis(self, name: str, degree: int) -> "Block":
        """The block widened by a new outermost axis of `degree` ranks."""
        return evolve(self, axes=(*self.axes, Axis(name, degree)))

    def applied(self, strategy: str, degree: int, graph: OperatorGraph) -> "Block":
        """The block with `graph` in place and `strategy` recorded at `degree`."""
        return evolve(self, graph=graph, degrees=(*self.degrees, (strategy, degree)))
