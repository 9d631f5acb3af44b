"""Even splits of the blocks into chunks, dealt to stages in turn (PROBLEM.md section 4, `interleaved`)."""

from collections.abc import Iterable

import numpy
from attrs import define, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Candidate, Instance
from nest.solve.dp.candidate_sums import cuts
from nest.solve.dp.downsets import Downsets
from nest.solve.dp.pairs import Pairs


@frozen(eq=False)
class Split:
    """The layers of every chunk.

    Attributes:
        chunks: layers of each chunk, in pipeline order; chunk `j` of `0, 1, ...` is of stage `j mod stages`.
        stages: how many (`s`).
        layers: of the whole graph.
    """

    chunks: tuple[tuple[int, ...], ...]
    stages: int
    layers: int
    _rows: tuple[NDArray[numpy.int64], ...] = field(init=False, repr=False)

    @_rows.default
    def _layers_of_stages(self) -> tuple[NDArray[numpy.int64], ...]:
        return tuple(numpy.array(self.stage(index), dtype=numpy.int64) for index in range(self.stages))

    def stage(self, index: int) -> tuple[int, ...]:
        """The layers of a stage, 0 being the first, ascending."""
        return tuple(sorted(layer for chunk in self.chunks[index :: self.stages] for layer in chunk))

    def stage_sums(self, values: Array) -> Array:
        """What the layers of each stage add up to, shape `(stages,)`."""
        return numpy.array([values[rows].sum() for rows in self._rows])

    def stage_sets(self) -> Downsets:
        """The stages as if they followed each other: differences of these sets are stages, the first of them last."""
        tails = _tails([self.stage(index) for index in range(self.stages)], self.layers)
        places = numpy.arange(self.stages + 1, dtype=numpy.int32)
        return Downsets(tails, Pairs.of(self.stages + 1, places[1:], places[:-1]))

    def crossing(self, instance: Instance, candidate: Candidate) -> Array:
        """Bytes that enter each chunk, by turn and stage, 0 for the first of all. Shape `(chunks, stages)`."""
        tails = _tails(self.chunks, self.layers)
        places = numpy.arange(len(tails), dtype=numpy.int32)
        entering = cuts(instance, candidate, Downsets(tails, Pairs.of(len(tails), places[1:], places[:-1])))
        return entering[:0:-1].reshape(-1, self.stages)


def _tails(runs: Iterable[tuple[int, ...]], layers: int) -> NDArray[numpy.bool_]:
    """The last none, one, two, ... of the runs together, shape `(runs + 1, layers)`."""
    rows = [numpy.zeros(layers, dtype=bool)]
    for run in reversed(list(runs)):
        rows.append(rows[-1].copy())
        rows[-1][list(run)] = True
    return numpy.array(rows)


@define(eq=False)
class Splits:
    """The even splits of an instance, each made once."""

    instance: Instance
    _known: dict[tuple[int, int], Split | None] = field(factory=dict)

    def counts(self, chunks: int, micro_batches: int, most: int) -> tuple[int, ...]:
        """Numbers of stages up to `most` that have an even split of so many chunks and divide the micro-batches."""
        blocks = max(map(len, self._counted()))
        counts = range(2, min(most, blocks // chunks) + 1)
        return tuple(count for count in counts if micro_batches % count == 0 and self.of(count, chunks) is not None)

    def of(self, stages: int, chunks: int) -> Split | None:
        """The split into `stages` stages of `chunks` chunks; None where there is none or it is not allowed."""
        key = (stages, chunks)
        if key not in self._known:
            self._known[key] = self._made(stages, chunks)
        return self._known[key]

    def _counted(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """The blocks, without and with embedding and head among them."""
        return self.instance.space.blocks, self.instance.space.blocks_and_ends

    def _made(self, stages: int, chunks: int) -> Split | None:
        parts, layers = stages * chunks, len(self.instance.graph.layers)
        blocks = next((each for each in self._counted() if each and len(each) % parts == 0), None)
        if blocks is None:
            return None
        size = len(blocks) // parts
        runs = (blocks[first : first + size] for first in range(0, len(blocks), size))
        split = Split(tuple(tuple(layer for block in run for layer in block) for run in runs), stages, layers)
        return split if self._allowed(split) else None

    def _allowed(self, split: Split) -> bool:
        """Whether chunks follow each other, keep together what must be, and are those of a partition that is given."""
        space = self.instance.space
        chunk = {layer: index for index, layers in enumerate(split.chunks) for layer in layers}
        tensors = self.instance.graph.tensors
        named = {name: layer for layer, name in enumerate(self.instance.graph.layers)}
        shared = [[named[name] for name in each.same_stage] for each in space.constraints if each.same_stage]
        return (
            all(chunk[producer] <= chunk[reader] for producer, readers in tensors for reader in readers)
            and all(len({chunk[layer] for layer in group}) == 1 for group in space.together)
            and all(len({chunk[layer] % split.stages for layer in group}) == 1 for group in shared)
            and (
                space.partition is None
                or [sorted(stage) for stage in space.partition]
                == [list(split.stage(index)) for index in range(split.stages)]
            )
        )
