"""Choices and contents of stages of several chunks, with their costs."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, product
from math import prod

import numpy
from attrs import define

from nest.instance import Array, Partial, partial
from nest.reuse import BoundedCache, once
from nest.solve.dp.choices import Choice, ChoiceTable
from nest.solve.dp.chunk_bounds import ChunkBounds
from nest.solve.dp.chunk_memory import Share, chunks_of_stages
from nest.solve.dp.chunk_parts import Kinds, Layout, ModePair, joined, layouts, mode_rows
from nest.solve.dp.chunk_stages import Contents
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.downsets import membership
from nest.solve.dp.parts import candidate_sums
from nest.solve.dp.stage_times import Unchosen, mode_arrays
from nest.solve.dp.sums import CandidateSums, PartSums, part_sums
from nest.solve.dp.units import Pattern, Run, border_bytes, mask_of, star

MOST_CONTENTS = 4_096  # Most sets of units that are priced for all numbers of stages at once.
REMEMBERED = 128  # Tables kept, and numbers of stages of configurations whose stages are kept.


@define(eq=False, repr=False)
class ChunkTables(ChunkBounds):
    """Tables of plans of several chunks per stage."""

    @property
    def _tables(self) -> BoundedCache[tuple[Unchosen, ChoiceTable | None]]:
        return self.once_in_room(self.shared, "tables", lambda: BoundedCache(REMEMBERED))

    def choices(self, configuration: Configuration, count: int) -> tuple[Choice, ...]:
        """Choices of stages in the order of `StageCosts`."""
        whole, parts = self._choices(configuration, count, self.splits.of(configuration.schedule, count)[0].runs)
        return (*whole, *(choice for _, _, some in parts for choice in some))

    def _choices(
        self, configuration: Configuration, count: int, runs: tuple[Run, ...]
    ) -> tuple[tuple[Choice, ...], list[tuple[int, ModePair, list[Choice]]]]:
        """Choices of pure modes, and of each pair of modes by ZeRO stage.

        Only one choice that recomputes all blocks of every chunk is kept; none if a pure mode does the same.
        """
        whole = tuple(choice for choice in configuration.choices if partial(choice.recompute) is None)
        by_pair: dict[tuple[int, str, str], dict[int, Choice]] = {}
        if len(whole) == len(configuration.choices):
            return whole, []
        patterns, used = self.splits.of(configuration.schedule, count), configuration.candidate
        most, covered = max(map(self._longest, patterns)), dict[tuple[str, str], bool]()
        for choice in configuration.choices:
            if (part := partial(choice.recompute)) is not None:
                some = by_pair.setdefault((choice.zero, part.mode, part.rest), {})
                if (pair := (part.mode, part.rest)) not in covered:
                    covered[pair] = self._covered(configuration, part)
                if part.layers < most or not covered[pair]:
                    some.setdefault(min(part.layers, most), choice)

        def made(mode: str, rest: str, numbers: tuple[int, ...]) -> ModePair:
            pair, all_done = (mode, rest), covered[mode, rest]
            candidate, kinds = self.instance.candidates[used], self._kinds(runs)
            return self.once_shared(
                ("pair", used, runs, pair, numbers, all_done),
                lambda: ModePair.of(candidate, pair, numbers, kinds, covered=all_done),
            )

        parts = [
            (zero, made(mode, rest, tuple(some)), [*some.values()])
            for (zero, mode, rest), some in by_pair.items()
            if some
        ]
        return whole, parts

    def _covered(self, configuration: Configuration, part: Partial) -> bool:
        """True if plans that recompute all blocks of every chunk also exist with a pure mode."""
        # Constraints that do not read the number of first blocks admit such a part and its pure mode alike.
        if any("recompute_layers" in each.names() for each in self.instance.space.constraints):
            return False
        candidate = configuration.candidate
        if part.mode not in self.instance.recompute_names(candidate):
            return False
        one, other = (self.instance.candidates[candidate].mode(name) for name in (part.mode, part.rest))
        inside = {layer for unit in self.instance.space.units for layer in unit}
        ends = [layer for layer in range(len(one.extra)) if layer not in inside]
        levels = max((len(mode.busy) for mode in (one, other) if mode.busy is not None), default=0)
        rows = [numpy.array([*mode_rows(mode, levels), mode.peak])[:, ends] for mode in (one, other)]
        same = bool((rows[0] == rows[1]).all())
        return not ends or (same and one.stash_inputs == other.stash_inputs)

    def _kinds(self, runs: tuple[Run, ...]) -> Kinds:
        return self.once_scheduled(("kinds", runs), lambda: Kinds.of(runs, self.instance.space.units))

    def _longest(self, pattern: Pattern) -> int:
        def made() -> int:
            kinds = self._kinds(pattern.runs)
            blocks = numpy.bincount(kinds.runs, weights=numpy.array(kinds.blocks) >= 0, minlength=len(pattern.runs))
            return int((numpy.array(pattern.held)[:, :, 1] @ blocks).max())

        return self.once_scheduled(("longest", pattern), made)

    def _layouts(self, runs: tuple[Run, ...]) -> Callable[[Share, int], list[Layout]]:
        """Function that finds layouts of a stage's share; cached by the search, so it must not reference it."""
        scheduled, units = self.scheduled, self.instance.space.units

        def laid(share: Share, most: int) -> list[Layout]:
            kinds = once(scheduled, ("kinds", runs), lambda: Kinds.of(runs, units))
            return once(scheduled, ("layouts", runs, share, most), lambda: layouts(share, kinds, most))

        return laid

    def more(self, runs: tuple[Run, ...], candidate: int, name: str) -> tuple[tuple[float, ...], bool]:
        """Bytes of each further micro-batch of a unit of each run, and whether the inputs of chunks are kept."""
        mode = self.instance.candidates[candidate].mode(name)
        return of_units(runs, mode.more), mode.stash_inputs

    def _seconds(self, runs: tuple[Run, ...], candidate: int) -> tuple[float, ...]:
        """Seconds of compute per micro-batch of a unit of each run."""
        used = self.instance.candidates[candidate]
        return of_units(runs, used.forward + used.backward)

    def crossing(self, pattern: Pattern, candidate: int) -> tuple[float, ...]:
        """Bytes across each border between chunks."""
        used = self.instance.candidates[candidate]
        # Candidates that send as much share their answers, whatever they cost.
        sizes = self.once_shared(("sizes", candidate), used.tensor_bytes.tobytes)

        def made() -> tuple[float, ...]:
            return tuple(border_bytes(self.instance, (used,), pattern.borders)[0].tolist())

        return self.once_scheduled(("borders", pattern, sizes), made)

    def _contents(self, configuration: Configuration, count: int) -> Contents:
        runs = self.splits.runs
        if prod(len(run.units) + 1 for run in runs) <= MOST_CONTENTS and not self.instance.space.even:
            heads = [heads_of(run) for run in runs]
            return self.once_scheduled("contents", lambda: self._contents_of(map(sum, product(*heads))))
        homes = self.splits.homes(configuration.schedule, count)
        patterns = self.splits.of(configuration.schedule, count)
        return self.once_scheduled(("contents", homes), lambda: self._contents_of(self._held_by(patterns, homes)))

    def _contents_of(self, masks: Iterator[int]) -> Contents:
        layers = len(self.instance.graph.layers)
        distinct = list(dict.fromkeys(masks))
        return Contents(
            {mask: place for place, mask in enumerate(distinct)}, star(membership(distinct, layers), layers)
        )

    def _held_by(self, patterns: Sequence[Pattern], homes: tuple[int, ...]) -> Iterator[int]:
        for pattern in patterns:
            heads = [heads_of(run) for run in pattern.runs]
            for chunks in chunks_of_stages(homes):
                held = Share.of(pattern, chunks)
                fixed = [sum(row[run] for row in held.fixed) for run in range(len(heads))]
                ranges = zip(heads, fixed, held.most(pattern.slack), strict=True)
                yield from map(sum, product(*(head[own : own + most + 1] for head, own, most in ranges)))

    def _stage_tables(
        self, configuration: Configuration, contents: Contents, whole: tuple[Choice, ...]
    ) -> tuple[Unchosen, ChoiceTable | None]:
        """Costs of the contents, independent of choices and with each choice of a pure mode."""
        hides = self.instance.space.hides(configuration.schedule.name)
        key = (
            contents,
            whole,
            *configuration.members,
            configuration.placed,
            configuration.zero_degree,
            configuration.copies,
            configuration.micro_batches,
            self.parted(configuration),
            hides,
        )

        def made() -> tuple[Unchosen, ChoiceTable | None]:
            sums, parts = self._sums(configuration, contents)
            stages, zeros = contents.sets.pairs.distinct, {choice.zero for choice in configuration.choices}
            unchosen = Unchosen.of(self.instance, configuration, sums, stages, zeros, part_sums=parts)
            tables = [unchosen.table(each.zero, mode_arrays(sums, stages, each.recompute)) for each in whole]
            table = ChoiceTable.stacked(tables) if tables else None
            if table is not None and len(whole) == len(configuration.choices):
                table = joined([table], len(stages))
            return unchosen, table

        return self._tables.of(key, made)

    def _sums(self, configuration: Configuration, contents: Contents) -> tuple[CandidateSums, PartSums | None]:
        candidate = self.instance.candidates[configuration.candidate]
        shared = (contents, configuration.candidate)
        # What is kept of inputs depends on the chunks that a stage has.
        sums = self.once_shared(
            ("sums", *shared),
            lambda: candidate_sums(self.instance, candidate, contents.sets)._replace(
                cut=numpy.zeros(contents.sets.count)
            ),
        )
        if not self.parted(configuration):
            return sums, None
        return sums, self.once_shared(("parts", *shared), lambda: part_sums(candidate, contents.sets))


def heads_of(run: Run) -> tuple[int, ...]:
    """First 0, 1, 2, ... units of a run as bitmasks."""
    return tuple(accumulate(map(mask_of, run.units), initial=0))


def of_units(runs: tuple[Run, ...], row: Array) -> tuple[float, ...]:
    """Sum of a row of layer values over a unit of each run."""
    return tuple(float(row[list(run.units[0])].sum()) for run in runs)
