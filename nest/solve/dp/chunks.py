"""Plans of several chunks per stage: bounds that mostly decide, and a recurrence over sizes and places."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import inf, nextafter

import numpy
from attrs import define, evolve

from nest.solve.dp.chunk_costs import ChunkCosts, Filled
from nest.solve.dp.chunk_memory import Counts, chunks_of_stages
from nest.solve.dp.chunk_recurrence import ChunkRecurrence, Places
from nest.solve.dp.chunk_stages import BACK, BEHIND, FRONT, Levels, Way, floor_of
from nest.solve.dp.configurations import Configuration, LeastMemory
from nest.solve.dp.pairs import distinct
from nest.solve.dp.pareto import Floor, Partition, PlacedStage, least_batch_time
from nest.solve.search import Best, Bounded, Incumbent, Price
from nest.tolerances import LIMIT_SLACK, TIE

FIRST_PATTERNS = 4  # Patterns with the best bounds for a first plan; with equal blocks between two ends, all patterns.
MOST_WAYS = 512  # Most combinations of levels that are all tried if stages that are not neighbours exchange messages.
AT_ONCE = 64  # Configurations queued between two checks of the deadline.
ByLevels = dict[tuple[int, ...], tuple[int, ...]]  # Slots of stages by the levels between neighbours.
Found = tuple[float, Filled, Partition]  # Step time (s), pattern and stages.


@define(eq=False, repr=False)
class ChunkSearch(ChunkCosts):
    """Plans of several chunks per stage."""

    def _nodes(self, limit: float) -> Iterator[tuple[Configuration, float]]:
        """Skip configurations without enough memory, if the check pays."""
        worth = self.worthwhile((each for each in self.configurations if self.first_bound(each) <= limit), limit)
        for place, configuration in enumerate(self.configurations):
            if place % AT_ONCE == 0:
                self.meter.watch()
            found, least = worth.get(configuration.order), 0.0
            if found is not None:
                self.refused["memory in total"] += len(configuration.stage_counts) - len(found.room)
                if not found.room:
                    continue
                if len(found.room) < len(configuration.stage_counts):
                    configuration = evolve(configuration, stage_counts=found.room)
                # All its plans take longer than the limit.
                least = 0.0 if found.time else nextafter(limit, inf)
            yield configuration, least

    def branch(
        self, configuration: Configuration, counts: tuple[int, ...], limit: float, pruned: Counter[str]
    ) -> list[Bounded]:
        """One leaf per number of stages, with bounds from the least costs of its stages."""
        nodes, worth = [], self.worthwhile((configuration,), limit)[configuration.order].time
        for count, cheap in zip(counts, self.early_bounds(configuration), strict=True):
            if cheap > limit:
                pruned["bound from compute"] += 1
            elif count not in worth:
                pruned["memory in total"] += 1
            else:
                every = self.filled(configuration, count, limit)
                possible = [each for each in every if each.bound < inf]
                if not possible:
                    pruned["memory of a stage, or a stage too slow"] += 1
                elif (bound := min(each.bound for each in possible)) > limit:
                    pruned["bound from partitions"] += 1
                else:
                    best = min(possible, key=lambda each: each.bound)
                    nodes.append(self.bounded(bound, configuration, (count,), best.floor))
        return nodes

    def quick(self, configuration: Configuration, stages: int, floor: Floor) -> Incumbent | None:
        """Stages with the least sum and the least slowest stage, blocks side by side: of the first few patterns.

        Ties go to the fewest separate ends, as in `solve`.
        """
        every = sorted(self.filled(configuration, stages, None), key=lambda each: each.bound)[:FIRST_PATTERNS]
        found: Found | None = None
        for each in sorted(every, key=lambda filled: filled.pattern.parted):
            placed = self._first_slots(configuration, stages, each)
            value = inf if placed is None else self.objective(configuration, stages).of(placed)
            if placed is not None and (found is None or value < found[0] * (1 - TIE)):
                found = value, each, placed
        return None if found is None else self._incumbent(configuration, *found)

    def _first_slots(self, configuration: Configuration, stages: int, filled: Filled) -> Partition | None:
        """Stages of a pattern with the least sum and the least slowest stage, in the first slots."""
        relaxed = self.recurrence(configuration, filled, Places.anywhere(stages))
        partition = relaxed.run(filled.floor.largest_time * (1 + LIMIT_SLACK), inf)
        if partition is None:
            return None
        side = self._side_by_side(configuration, stages, filled)
        steps = side.steps.tolist()
        placed = []
        for index, (own, stage) in enumerate(zip(filled.stages, partition.stages, strict=True)):
            front, behind = steps[index - 1] if index else 0, steps[index] if index < stages - 1 else 0
            levels: Levels = {FRONT: front, BEHIND: behind, BACK: max(steps), **(side.ways or {})}
            figures = own.figures(own.prices.crossed(levels), stage.choice, stage.larger)
            placed.append(PlacedStage(stage.larger, 0, index, stage.choice, *figures))
        return Partition(tuple(placed))

    def solve(
        self, configuration: Configuration, stages: int, floor: Floor, limit: float, pruned: Counter[str]
    ) -> Incumbent | None:
        """Best plan of so many stages below `limit`, exactly."""
        every = self.filled(configuration, stages, limit)
        pruned["recurrence"] += 1
        if not every:
            return None
        found = self._best(configuration, every, limit)
        return None if found is None or found[0] >= limit else self._incumbent(configuration, *found)

    def _best(self, configuration: Configuration, every: Sequence[Filled], limit: float) -> Found | None:
        """Best stages of some patterns below `limit`.

        Ties go to the fewest runs that begin and end with a chunk, so that ends join blocks; then to the best bound,
        then to the order of patterns.
        """
        found: Found | None = None
        for each in sorted(every, key=lambda filled: filled.bound):
            most = limit
            if found is not None:
                simpler = each.pattern.parted < found[1].pattern.parted
                most = min(limit, found[0] * (1 + TIE if simpler else 1 - TIE))
                if each.bound > found[0] * (1 + TIE):
                    break
            value, partition = self._placed(configuration, each, most)
            if partition is not None and value < most:
                found = value, each, partition
        return found

    def least_memory(self, most: float = inf) -> LeastMemory | None:
        """Plan with the least memory on its fullest device; None: none needs less than `most` bytes."""
        least: LeastMemory | None = None
        seen = set()
        for each in self.configurations:
            decided = (*each.members, each.replicas, each.schedule, each.zero_degree, each.stage_counts)
            for count in () if decided in seen else each.stage_counts:
                if not self.room_for_units(each, count, most):
                    continue
                name = self.instance.candidates[each.candidate].name
                for filled in self._fill(each, count, inf, exactly=True):
                    needed = self._fullest(each, filled, most)
                    if needed < most:
                        most, least = needed, LeastMemory(needed, count, each.replicas, name)
            seen.add(decided)
        return least

    def _fullest(self, configuration: Configuration, filled: Filled, most: float) -> float:
        """Least bytes of the fullest stage if below `most`, else infinite."""
        recurrence = self.recurrence(configuration, filled, Places.anywhere(len(filled.stages)))
        below = float(numpy.nextafter(most, -inf)) if most < inf else inf
        sizes = distinct(numpy.concatenate([stage.memory.ravel() for stage in filled.stages]))
        sizes = sizes[(sizes <= below) & numpy.isfinite(sizes)]
        if not len(sizes) or recurrence.run(inf, inf, room=float(sizes[-1])) is None:
            return inf
        low, high = 0, len(sizes) - 1
        while low < high:
            middle = (low + high) // 2
            fits = recurrence.run(inf, inf, room=float(sizes[middle])) is not None
            low, high = (low, middle) if fits else (middle + 1, high)
        return float(sizes[low])

    def _placed(self, configuration: Configuration, filled: Filled, limit: float) -> tuple[float, Partition | None]:
        """Best stages of a pattern with places below `limit`, exactly or with `left` lowered."""
        slots = self.slots(configuration)
        side, least = self._side_by_side(configuration, len(filled.stages), filled), filled.bound
        places = [side]
        # With a slot for each stage there is one way to place them.
        if slots.count > len(filled.stages):
            relaxed = self.recurrence(configuration, filled, Places.anywhere(len(filled.stages)))
            least, partition = _least(filled, relaxed, limit)
            if partition is None:
                return limit, None
            if len(slots.levels) == 1 and not filled.ports:
                return self._evened(configuration, relaxed, least, partition)
            if side.ways:
                places, whole = self._every_level(configuration, filled)
                if not whole:
                    self.left = min(self.left, least)
            else:
                places.append(evolve(side, steps=numpy.searchsorted(slots.levels, slots.steps)))
        best: tuple[float, Partition, ChunkRecurrence] | None = None
        for each in places:
            if best is not None and best[0] <= least * (1 + TIE):
                break
            recurrence = self.recurrence(configuration, filled, each)
            most = limit if best is None else best[0] * (1 - TIE)
            value, partition = _least(filled, recurrence, most)
            if partition is not None:
                best = value, partition, recurrence
        return (limit, None) if best is None else self._evened(configuration, best[2], best[0], best[1])

    def _evened(
        self, configuration: Configuration, recurrence: ChunkRecurrence, value: float, best: Partition
    ) -> tuple[float, Partition]:
        """Equally fast stages of a plan with the most even times."""
        even = recurrence.run(best.largest_time, best.largest_sync, evenly=True)
        least = self.objective(configuration, len(best.stages)).of(even) if even is not None else inf
        return (least, even) if even is not None and least <= value * (1 + TIE) else (value, best)

    def places(self, configuration: Configuration, filled: Filled) -> list[Places]:
        """Possible places of stages, distinguished only by their transfer times."""
        slots, stages = self.slots(configuration), len(filled.stages)
        if slots.count == stages or (len(slots.levels) == 1 and not filled.ports):
            return [self._side_by_side(configuration, stages, filled)]
        places, whole = self._every_level(configuration, filled)
        if not whole:
            self.left = min(self.left, filled.bound)
        return places

    def by_price(
        self, configuration: Configuration, stages: int, floor: Floor, known: Incumbent, limit: float, price: Price
    ) -> Best:
        """Plan with the least price below `limit`, by replay."""
        from nest.solve.dp.chunk_prices import best_by_price

        patterns = (
            (filled, self.recurrence(configuration, filled, places))
            for filled in self.filled(configuration, stages, limit)
            for places in self.places(configuration, filled)
        )
        return best_by_price(self, patterns, self.plan, configuration, stages, limit, price)

    def _side_by_side(self, configuration: Configuration, stages: int, filled: Filled) -> Places:
        slots = self.slots(configuration)
        steps = numpy.searchsorted(slots.levels, slots.steps)[: stages - 1]
        return Places(steps, len(slots.levels), _far(filled, steps.tolist()))

    def _every_level(self, configuration: Configuration, filled: Filled) -> tuple[list[Places], bool]:
        """Combinations of levels between neighbours that slots allow, and whether these are all.

        The level between two stages is the highest between neighbours on the way.
        """
        slots, stages = self.slots(configuration), len(filled.stages)
        steps = numpy.searchsorted(slots.levels, slots.steps).tolist()
        # By the slot of the last stage so far, in the order of slots: for levels so far the first slots that give them.
        reached: dict[int, ByLevels] = {slot: {(): (slot,)} for slot in range(slots.count)}
        whole = True
        for _ in range(stages - 1):
            following: dict[int, ByLevels] = {}
            for slot, before in reached.items():
                for other, level in enumerate(accumulate(steps[slot:], max), start=slot + 1):
                    mine = following.setdefault(other, {})
                    for levels, taken in before.items():
                        whole = whole and len(mine) < MOST_WAYS
                        if len(mine) < MOST_WAYS:
                            mine.setdefault((*levels, level), (*taken, other))
            reached = following
        every: ByLevels = {}
        for levels, taken in (each for found in reached.values() for each in found.items()):
            every.setdefault(levels, taken)
        places = [
            Places(numpy.array(levels), len(slots.levels), _far(filled, levels), taken)
            for levels, taken in list(every.items())[:MOST_WAYS]
        ]
        return places, whole and len(every) <= MOST_WAYS

    def recurrence(self, configuration: Configuration, filled: Filled, places: Places) -> ChunkRecurrence:
        """Recurrence over the stages of a pattern in these places."""
        back = places.ways is not None and any(
            each.way == BACK for stage in filled.stages for each in stage.prices.messages
        )
        return ChunkRecurrence(filled.stages, filled.pattern.slack, places, back, filled.costs.capacity, self.meter)

    def _incumbent(self, configuration: Configuration, value: float, filled: Filled, partition: Partition) -> Incumbent:
        """Plan with units spread evenly over the chunks of each stage if that fits, else with the least memory."""
        laid = []
        for index, stage in enumerate(partition.stages):
            spread, room = self.spread(configuration, filled, index, stage.choice, stage.larger)
            laid.append(spread.evenly(room))
        return self.plan(configuration, value, filled, partition.stages, laid)

    def plan(
        self,
        configuration: Configuration,
        value: float,
        filled: Filled,
        stages: Sequence[PlacedStage],
        laid: Sequence[Sequence[Counts]],
    ) -> Incumbent:
        """Plan with these units in chunks beyond the fixed ones, by stage, chunk and run."""
        homes = self.splits.homes(configuration.schedule, len(filled.stages))
        chunks, used = chunks_of_stages(homes), configuration.candidate
        # A pattern may belong to an equally priced configuration with other ZeRO stages.
        choices = self.choices(configuration, len(filled.stages))
        further: dict[int, Counts] = {}
        for mine, own in zip(chunks, laid, strict=True):
            further.update(zip(mine, own, strict=True))
        split = filled.pattern.split([further[chunk] for chunk in range(len(homes))])
        width = self.instance.candidates[used].width
        decided = []
        for stage, mine in zip(stages, chunks, strict=True):
            held_chunks = tuple(split[chunk] for chunk in mine)
            layers = tuple(sorted(layer for chunk in held_chunks for layer in chunk))
            decided.append((layers, used, choices[stage.choice], stage.slot * width, held_chunks))
        return self.incumbent(configuration, value, decided)


def _least(filled: Filled, recurrence: ChunkRecurrence, limit: float) -> tuple[float, Partition | None]:
    if recurrence.places.slots == len(filled.stages) and _too_slow(filled, recurrence, limit):
        return limit, None
    return least_batch_time(recurrence.run, filled.costs.objective, filled.floor, limit)


def _too_slow(filled: Filled, recurrence: ChunkRecurrence, limit: float) -> bool:
    """True if bounds from the levels of messages exclude stages below `limit`.

    First with any times, then with the slowest stage that these bounds leave. In the explanation of the README's
    example it leaves one of 202 fruitless patterns to the recurrence.
    """
    objective, longest = filled.costs.objective, inf
    stages = list(zip(filled.stages, recurrence.crossings(), strict=True))
    distinct = list(dict.fromkeys(stages))
    for _ in range(2):
        every = [
            filled.costs.least_of(own.prices, own.fits & (own.prices.at(crossed)[0] <= longest), crossed)
            for own, crossed in distinct
        ]
        floor = floor_of(filled.costs, filled.pattern.slack, every, [distinct.index(each) for each in stages])
        if floor.largest_time == inf or objective.of(floor) > limit:
            return True
        longest = objective.time_limit(limit, objective.of(floor) - objective.slowest * floor.largest_time)
    return False


def _far(filled: Filled, steps: Sequence[int]) -> dict[Way, int]:
    """Levels between stages that are not neighbours, from those of neighbours."""
    ways = {each.way for stage in filled.stages for each in stage.prices.messages}
    return {each: max(steps[each[0] : each[1]]) for each in ways if isinstance(each, tuple)}
