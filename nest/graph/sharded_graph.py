"""Sharded graphs (`Block`): an operator graph while strategies shard it, on the device group that runs it."""

from math import prod

from attrs import evolve, frozen

from nest.graph.operator_graph import OperatorGraph

COPIES = "copies"
"""The axis of ranks that repeat a whole block on samples of their own (`Block.folded`)."""


@frozen
class Axis:
    """A group of ranks inside a device group.

    Attributes:
        name: the strategy that made it; collectives name it.
        degree: ranks along it.
    """

    name: str
    degree: int


@frozen
class Fold:
    """A group of ranks laid over the devices of a block in another order than its axes'.

    Attributes:
        name: the strategy that made it; collectives name it.
        degree: ranks along it.
        stride: devices from one rank to the next.
        group: the parameter group whose ranks it arranges.
    """

    name: str
    degree: int
    stride: int
    group: str

    @property
    def offsets(self) -> tuple[int, ...]:
        """Device offsets of its ranks from the first."""
        return tuple(range(0, self.stride * self.degree, self.stride))


@frozen
class Block:
    """A sharded graph, what strategies transform: a graph on the device group of one stage (PROBLEM.md section 2).

    Attributes:
        graph: the operators of one rank, for one micro-batch.
        samples: samples per micro-batch.
        axes: the block's ranks as a mixed radix, innermost first: rank `i` of axis `a` is `i * stride(a)`
            devices further on.
        degrees: `(strategy, degree)` as applied, in order; a strategy that reuses another's axis is listed here
            without an axis of its own.
        replicated: `(parameter group, axis)` pairs: the ranks along the axis hold the same parameters of it.
        folds: groups of ranks laid over the same devices in another order.
    """

    graph: OperatorGraph
    samples: int
    axes: tuple[Axis, ...] = ()
    degrees: tuple[tuple[str, int], ...] = ()
    replicated: tuple[tuple[str, str], ...] = ()
    folds: tuple[Fold, ...] = ()

    @property
    def width(self) -> int:
        """Devices of the block."""
        return prod(axis.degree for axis in self.axes)

    @property
    def micro_batch(self) -> int:
        """Samples per micro-batch of each copy the block holds: what `graph` is for, before anything divides it."""
        return self.samples // prod(axis.degree for axis in self.axes if axis.name == COPIES)

    def degree(self, name: str) -> int:
        """Degree of axis or strategy `name`; 1 when it took no part."""
        laid_out = {fold.name: fold.degree for fold in self.folds} | {axis.name: axis.degree for axis in self.axes}
        return laid_out.get(name, dict(self.degrees).get(name, 1))

    def ranks(self, name: str) -> tuple[int, ...]:
        """Device offsets of axis `name` that share the other coordinates of offset 0."""
        stride = 1
        for axis in self.axes:
            if axis.name == name:
                return tuple(range(0, stride * axis.degree, stride))
            stride *= axis.degree
        return next((fold.offsets for fold in self.folds if fold.name == name), (0,))

    def groups(self, name: str) -> tuple[tuple[int, ...], ...]:
        """Device offsets of every group of ranks along axis `name`, by their first; `ranks(name)` is the first of them.

        Devices of a block that is as wide as several groups may lie differently in the network.
        """
        ranks = self.ranks(name)
        stride = ranks[1] if len(ranks) > 1 else 1
        firsts = (device for device in range(self.width) if device // stride % len(ranks) == 0)
        return tuple(tuple(first + rank for rank in ranks) for first in firsts)

    def replica_ranks(self, group: str) -> tuple[int, ...]:
        """Device offsets that hold the same parameters of `group` as offset 0 (`ranks` of PROBLEM.md section 2)."""
        offsets = [0]
        for name in dict.fromkeys(axis for held, axis in self.replicated if held == group):
            offsets = [base + step for step in self.ranks(name) for base in offsets]
        return tuple(sorted(offsets))

    def with_axis(self, name: str, degree: int) -> "Block":
        """The block widened by a new outermost axis of `degree` ranks."""
        return evolve(self, axes=(*self.axes, Axis(name, degree)))

    def applied(self, strategy: str, degree: int, graph: OperatorGraph) -> "Block":
        """The block with `graph` in place and `strategy` recorded at `degree`."""
        return evolve(self, graph=graph, degrees=(*self.degrees, (strategy, degree)))

    def replicating(self, axis: str) -> "Block":
        """The block, whose ranks along `axis` hold the same parameters of every group."""
        groups = dict.fromkeys(p.group for operator in self.graph.operators for p in operator.parameters)
        return evolve(self, replicated=(*self.replicated, *((group, axis) for group in groups)))

    def width_over(self, ranks: int) -> int | None:
        """Devices of the block once so many ranks are laid over it (`folded`); None: neither divides the other."""
        fewer, more = sorted((ranks, self.width))
        return None if more % fewer else more

    def folded(self, group: str, axes: tuple[Axis, ...]) -> "Block":
        """The block with the parameters of `group` split over `axes`, laid over the same devices from offset 0.

        Where they need more devices than there are, the block is widened: it holds several copies of all else, each
        with samples of its own. Where they need fewer, what is left over repeats the group.

        Args:
            group: a parameter group; how it was laid out before is forgotten.
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
        """The block repeated `count` times, side by side."""
        already = self.degree(COPIES)
        axes = tuple(axis for axis in self.axes if axis.name != COPIES)
        if already > 1:
            return evolve(self, samples=self.samples * count, axes=(*axes, Axis(COPIES, already * count)))
        return evolve(self, samples=self.samples * count).with_axis(COPIES, count).replicating(COPIES)
