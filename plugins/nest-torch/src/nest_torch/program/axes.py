"""Dimensions of a traced program that are the same axis: views split and move them, operators bring them together.

Every dimension is a row of atoms, outermost first, whose sizes multiply to its own. Atoms that meet (the width of a
residual sum, say) become one; an atom that a view splits is split wherever it occurs.
"""

from collections.abc import Iterable, Sequence
from math import prod

from attrs import define, field

Dim = tuple["Atom", ...]
"""A dimension as atoms; none for a dimension of size 1."""


@define(eq=False)
class Atom:
    """A factor of a dimension.

    Attributes:
        size: of the factor.
        name: what the axis is called; empty: nobody has said.
        fixed: whether it came with an input, so that what a slice takes of it is something else.
        repeated: whether it only repeats what there is once.
    """

    size: int
    name: str = ""
    fixed: bool = False
    repeated: bool = False
    _same: "Atom | None" = field(default=None, init=False)
    _parts: "tuple[Atom, Atom] | None" = field(default=None, init=False)

    def found(self) -> "Atom":
        """The atom that stands for all that are the same as this."""
        atom = self
        while atom._same is not None:
            atom = atom._same
        return atom

    def leaves(self) -> Dim:
        """The atoms this one was split into, outermost first; itself if it was not."""
        atom = self.found()
        if atom._parts is None:
            return (atom,)
        return (*atom._parts[0].leaves(), *atom._parts[1].leaves())

    def merge(self, other: "Atom") -> None:
        """Make one of two leaves of the same size."""
        kept, gone = self.found(), other.found()
        if kept is gone:
            return
        if gone.fixed and not kept.fixed:
            kept, gone = gone, kept
        kept.name = kept.name or gone.name
        kept.repeated = kept.repeated and gone.repeated
        gone._same = kept

    def split(self, outer: int) -> "tuple[Atom, Atom]":
        """Split a leaf whose size `outer` divides."""
        atom = self.found()
        atom._parts = (Atom(outer, repeated=atom.repeated), Atom(atom.size // outer, repeated=atom.repeated))
        return atom._parts


def fresh(size: int) -> Dim:
    """A dimension that is nothing known."""
    return () if size == 1 else (Atom(size),)


def leaves(dim: Iterable[Atom]) -> Dim:
    """The atoms of a dimension, split as far as they were."""
    return tuple(leaf for atom in dim for leaf in atom.leaves())


def size(dim: Iterable[Atom]) -> int:
    """The size of a dimension."""
    return prod(leaf.size for leaf in leaves(dim))


def unify(one: Dim, other: Dim) -> None:
    """Say that two dimensions of one size are the same axis; where their factors do not match, what can be said is."""
    left, right = list(leaves(one)), list(leaves(other))
    while left and right:
        first, second = left.pop(0).found(), right.pop(0).found()
        if first is second:
            continue
        if first.size == second.size:
            first.merge(second)
        elif not first.size or not second.size:
            return
        elif first.size % second.size == 0:
            outer, inner = first.split(second.size)
            outer.merge(second)
            left.insert(0, inner)
        elif second.size % first.size == 0:
            outer, inner = second.split(first.size)
            outer.merge(first)
            right.insert(0, inner)
        else:
            return


def reshape(dims: Sequence[Dim], sizes: Sequence[int]) -> tuple[Dim, ...]:
    """The dimensions of sizes `sizes` that the same numbers in the same order have.

    Where a size cannot be made of the factors there are, every dimension is a new one.
    """
    if 0 in sizes:
        return tuple(fresh(each) for each in sizes)
    left = [leaf for dim in dims for leaf in leaves(dim)]
    found: list[Dim] = []
    for wanted in sizes:
        taken: list[Atom] = []
        missing = wanted
        while missing > 1:
            if not left:
                return tuple(fresh(each) for each in sizes)
            leaf = left.pop(0).found()
            if missing % leaf.size == 0:
                taken.append(leaf)
                missing //= leaf.size
            elif leaf.size % missing == 0:
                outer, inner = leaf.split(missing)
                taken.append(outer)
                left.insert(0, inner)
                missing = 1
            else:
                return tuple(fresh(each) for each in sizes)
        found.append(tuple(taken))
    return tuple(found)


def part(dim: Dim, wanted: int) -> Dim:
    """A run of `wanted` along a dimension: an inner factor where equal runs make up the whole, else something new."""
    whole = size(dim)
    if wanted == whole:
        return dim
    if not wanted or whole % wanted or any(leaf.fixed for leaf in leaves(dim)):
        return fresh(wanted)
    return reshape((dim,), (whole // wanted, wanted))[1]


def aligned(dims: Sequence[Dim], sizes: Sequence[int], operands: Iterable[Sequence[Dim]]) -> tuple[Dim, ...]:
    """The dimensions of a result to which `operands` were broadcast: of one axis are those that lie in line.

    Args:
        dims: of the result where they are known; empty: they follow from the operands.
        sizes: of the result.
        operands: dimensions of each operand.
    """
    found: list[Dim | None] = list(dims) or [None] * len(sizes)
    for operand in operands:
        offset = len(sizes) - len(operand)
        for index, dim in enumerate(operand):
            if offset + index < 0 or size(dim) != sizes[offset + index] or not dim:
                continue
            there = found[offset + index]
            if there is None:
                found[offset + index] = dim
            else:
                unify(there, dim)
    return tuple(fresh(length) if dim is None else dim for dim, length in zip(found, sizes, strict=True))
