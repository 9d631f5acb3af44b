"""Fewer cuts to begin with: plans that cut at some downsets only are found sooner, and bound the optimum from above."""

from collections.abc import Iterator

import numpy
from numpy.typing import NDArray

from nest.instance import Instance
from nest.solve.dp.downsets import Downsets, lattice

FEWEST, FACTOR, LITTLE = 25, 4, 200
"""Cuts of the coarsest lattice, and how many times more each next one has. Below a few hundred cuts the search costs
less than what a coarser one would save."""


def coarsenings(members: NDArray[numpy.bool_], instance: Instance) -> Iterator[Downsets]:
    """Lattices of ever more of the cuts along one order of the layers, each far smaller than the next.

    The cuts are chosen so that the layers between them take about as long as each other to compute.

    Args:
        members: the layers of each downset, smallest first, shape `(downsets, layers)`.
        instance: the problem.
    """
    if len(members) <= LITTLE:
        return
    chain = _maximal_chain(members)
    first = instance.candidates[0]
    progress = members[chain] @ (first.forward + first.backward)
    size = FEWEST
    while size * 2 <= len(members):
        wanted = numpy.searchsorted(progress, numpy.linspace(0.0, progress[-1], size))
        kept = sorted({0, len(chain) - 1, *wanted.clip(0, len(chain) - 1).tolist()})
        yield lattice(members[chain[kept]])
        if len(kept) == len(chain):
            return
        size *= FACTOR


def _maximal_chain(members: NDArray[numpy.bool_]) -> NDArray[numpy.int64]:
    """Indices of downsets, each in the next, from the empty one to the whole, with none left out between them."""
    found = [0]
    for index in range(1, len(members)):
        if not (members[found[-1]] & ~members[index]).any():
            found.append(index)
    return numpy.array(found)
