"""Contents of chunks in runs of units, for chunks of about equal size (PROBLEM.md section 3)."""

from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen

Bounds = tuple[tuple[int, int], ...]  # Least and most units of each run in a chunk.


def bounds(
    lengths: Sequence[int], sizes: Sequence[int] | None, chunks: int, allowed: Sequence[Sequence[bool]] | None
) -> Iterator[tuple[Bounds, ...]]:
    """Possible contents of chunks in runs of such lengths, those with runs that end first first.

    Each chunk holds a unit, and the blocks of any two differ by at most one, except that the first and last chunk may
    hold fewer (PROBLEM.md section 3).

    Args:
        lengths: units of each run.
        sizes: blocks of a unit of each run; None: chunks hold any number.
        chunks: number of chunks.
        allowed: for each chunk, the runs it may hold; None: all.
    """
    if sizes is None:
        yield from _Filling(lengths, [1] * len(lengths), chunks, allowed, (0, sum(lengths))).all()
        return
    blocks = sum(number * size for number, size in zip(lengths, sizes, strict=True))
    for most in range(-(-blocks // chunks), blocks // max(chunks - 2, 1) + 2):
        yield from _Filling(lengths, sizes, chunks, allowed, (max(most - 1, 0), most)).all()


@frozen
class _Filling:
    """Chunks filled one by one, inner ones with blocks between `limits`; arguments of `bounds`."""

    lengths: Sequence[int]
    sizes: Sequence[int]
    number: int
    allowed: Sequence[Sequence[bool]] | None
    limits: tuple[int, int]

    def all(self) -> Iterator[tuple[Bounds, ...]]:
        """Yield all fillings; iterative, as there may be more chunks than the recursion limit."""
        held: list[Bounds] = []
        begun = [self._fillings(0, 0, (0, 0))]
        while begun:
            own, run, taken = next(begun[-1], (None, 0, (0, 0)))
            if own is None:
                begun.pop()
                del held[-1:]
                continue
            held.append(own)
            if len(held) < self.number and run < len(self.lengths) and self._reach(len(held), run, taken):
                begun.append(self._fillings(len(held), run, taken))
                continue
            if len(held) == self.number and run == len(self.lengths):
                yield tuple(held)
            held.pop()

    def _reach(self, chunk: int, run: int, taken: tuple[int, int]) -> bool:
        """True if the remaining chunks can hold the remaining blocks."""
        behind = sum(n * size for n, size in zip(self.lengths[run + 1 :], self.sizes[run + 1 :], strict=True))
        fewest, most = ((self.lengths[run] - each) * self.sizes[run] + behind for each in reversed(taken))
        low, high = self.limits
        ends = 1 if chunk else 2
        chunks = self.number - chunk
        return max(chunks - ends, 0) * low <= most and fewest <= chunks * high

    def _fillings(self, chunk: int, run: int, taken: tuple[int, int]) -> Iterator[tuple[Bounds, int, tuple[int, int]]]:
        """Contents of a chunk, with the next run and the units taken of it.

        Runs after the next are whole, except that the last may continue. If two numbers are free, one is fixed:
        otherwise the contents in one run would depend on another.
        """
        tail = self.lengths[run] - taken[1], self.lengths[run] - taken[0]
        for own in self._units(chunk, run, 0, (1, tail[1] - 1)):
            left = taken[0] + own[0], min(taken[1] + own[1], self.lengths[run] - 1)
            yield self._held({run: own}), run, left
        whole: dict[int, tuple[int, int]] = {}
        last = run
        while last < len(self.lengths) and (self.allowed is None or all(self.allowed[chunk][run : last + 1])):
            inner = sum(each[0] * self.sizes[other] for other, each in whole.items())
            if last > run:
                for units in range(max(tail[0], 1), tail[1] + 1):
                    base = inner + units * self.sizes[run]
                    for own in self._units(chunk, last, base, (1, self.lengths[last] - 1)):
                        yield self._held({**whole, run: (units, units), last: own}), last, own
                whole[last] = self.lengths[last], self.lengths[last]
                inner += self.lengths[last] * self.sizes[last]
            for own in self._units(chunk, run, inner, (max(tail[0], 1), tail[1])):
                yield self._held({**whole, run: own}), last + 1, (0, 0)
            last += 1

    def _units(self, chunk: int, run: int, base: int, limits: tuple[int, int]) -> Iterator[tuple[int, int]]:
        """Least and most units of a run in a chunk with so many other blocks; or nothing."""
        size, (low, high) = self.sizes[run], self.limits
        if self.allowed is not None and not self.allowed[chunk][run]:
            return
        if chunk in (0, self.number - 1):
            low = 0
        if not size and not low <= base <= high:
            return
        least, most = limits
        if size:
            least, most = max(least, -(-(low - base) // size)), min(most, (high - base) // size)
        if least <= most:
            yield least, most

    def _held(self, some: Mapping[int, tuple[int, int]]) -> Bounds:
        return tuple(some.get(run, (0, 0)) for run in range(len(self.lengths)))
