"""Fewer cuts to begin with: plans that cut at some downsets only are found sooner, and bound the optimum from above."""

from collections.abc import Iterator

import numpy
from numpy.typing import NDArray

from nest.instance import Instance
from nest.solve.dp.downsets import Downsets

FEWEST, FACTOR, LITTLE = 25, 4, 200
"""Cuts of the coarsest lattice, and how many times more each next one has. Below a few hundred cuts the search costs
less than what a coarser one would save."""


def coarsenings(downsets: Downsets, instance: Instance) -> Iterator[Downsets]:
    """Lattices of ever more of the cuts along one order of the layers, each far smaller than the next.

    The cuts are chosen so that the layers between them take about as long as each other to compute.
    """
    chain = _maximal_chain(downsets)
    first = instance.candidates[0]
    progress = downsets.sums(first.forward + first.backward)[chain]
    size = FEWEST
    while size * 2 <= downsets.count and downsets.count > LITTLE:
        wanted = numpy.linspace(0.0, progress[-1], size)
        kept = {0, len(chain) - 1, *(int(i) for i in numpy.searchsorted(progress, wanted).clip(0, len(chain) - 1))}
        yield downsets.only(chain[sorted(kept)])
        size *= FACTOR


def _maximal_chain(downsets: Downsets) -> NDArray[numpy.int64]:
    """Indices of downsets, each in the next, from the empty one to the whole, with none left out between them."""
    found = [0]
    for index in range(1, downsets.count):
        if not (downsets.members[found[-1]] & ~downsets.members[index]).any():
            found.append(index)
    return numpy.array(found)
