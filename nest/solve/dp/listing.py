"""List of all decisions before stages that constraints allow."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import product
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

import numpy
from attrs import define, field

from nest.instance import Candidate, Instance, Schedule, admits, chunks_of
from nest.solve.dp.choices import Choice
from nest.solve.dp.configurations import Configuration, Tally, replica_size
from nest.solve.dp.rules import Exclusions, MixedRules, PlainRules, plan_values, stage_choices
from nest.solve.dp.screen import Counts, Replicas, Screen, Screened, ScreenTables, Worth
from nest.spec.constraints import Value

ANY_DEVICES = Tally()  # Tally of plans of one candidate: no requirements.

ChunkedCounts = Callable[[Schedule, int, int], tuple[int, ...]]
"""Numbers of stages of a schedule of several chunks, from micro-batches and most stages."""


def configurations(
    instance: Instance,
    most_stages: int,
    chunked_counts: ChunkedCounts,
    among: Sequence[int] | None = None,
    watch: Callable[[], None] = lambda: None,
    limit: float = inf,
    tables: ScreenTables | None = None,
    *,
    one_chunk: bool = False,
) -> tuple[list[Configuration], Exclusions]:
    """List the allowed configurations of one candidate in the documented order of ties, and the exclusions.

    Args:
        most_stages: most stages of the layer graph.
        chunked_counts: numbers of stages of schedules of several chunks.
        among: candidates, ascending; None: all.
        watch: called every few milliseconds; may raise `OutOfTime`.
        limit: step time (s); configurations excluded by compute alone, or by the memory of all stages, are skipped.
        tables: of a screen that skips losing configurations; None: list all, with reasons for exclusions.
        one_chunk: the screen skips schedules of several chunks.
    """
    exclusions = Exclusions()
    rules, admitted = PlainRules(instance, exclusions), Admitted(exclusions)

    def counts_of(schedule: Schedule, micro_batches: int, slots: int) -> Sequence[int]:
        return numbers_of_stages(instance, schedule, micro_batches, slots, most_stages, admitted, chunked_counts)

    screen = None if tables is None else Screen(instance, tables, counts_of, rules.uniform, limit, one_chunk)
    some = range(len(instance.candidates)) if among is None else among
    every = (
        _worth_it(instance, some, rules, screen, watch) if screen else _open(instance, some, rules, counts_of, watch)
    )
    found = [each for plans in every for each in _allowed(instance, rules, plans)]
    found.sort(key=itemgetter(0))
    result = [Configuration(order, *decided) for order, (_, decided) in enumerate(found)]
    exclusions.never = rules.never()
    if screen:
        exclusions.slow, exclusions.large = screen.slow, screen.large
    return result, exclusions


def admitted(instance: Instance, among: Sequence[int] | None) -> list[int]:
    """Candidates that constraints on degrees and sizes admit; None: all candidates."""
    rules, schedule = PlainRules(instance, Exclusions()), instance.space.schedules[0]
    every = range(len(instance.candidates)) if among is None else among
    return [index for index in every if rules.admit(instance.candidates[index], schedule)]


class _Open(NamedTuple):
    """Plans with open choices."""

    place: tuple[int, ...]  # In the documented order of ties, with the candidate first.
    plans: Configuration  # Decisions except the schedule, with all choices of stages.
    schedule: Schedule
    counts: Sequence[int]  # Numbers of stages.
    worth: Worth | None = None  # Same by set of choices, with bounds; None: unknown.


def _open(
    instance: Instance, among: Sequence[int], rules: PlainRules, counts_of: Counts, watch: Callable[[], None]
) -> Iterator[_Open]:
    """Yield all plans of some candidates."""
    space, exclusions = instance.space, rules.exclusions
    for index in among:
        watch()
        candidate = instance.candidates[index]
        members, batches = ((index, stage_choices(instance, index)),), batches_of(instance, candidate, exclusions)
        decided = product(enumerate(space.schedules), enumerate(space.rank_orders), batches)
        for (place, schedule), (order, rank_order), (replicas, micro_batches) in decided:
            size = replica_size(instance.cluster, candidate.width, replicas)
            counts = counts_of(schedule, micro_batches, size // candidate.width)
            every = zero_degrees(instance, (candidate,), replicas, exclusions) if counts else ()
            for number, degree in enumerate(every):
                shared = (replicas, micro_batches, rank_order, schedule, size, (), degree)
                ties = (index, place, order, replicas, number)
                yield _Open(ties, Configuration(0, members, *shared), schedule, counts)


def _worth_it(
    instance: Instance, among: Sequence[int], rules: PlainRules, screen: Screen, watch: Callable[[], None]
) -> Iterator[_Open]:
    """Yield plans that a screen leaves, in any order."""
    schedules = instance.space.schedules
    for every, numbers, screened in _unscheduled(instance, among, rules, screen, watch):
        for place, order, schedule, worth in screen.worth(every, screened):
            plans = every[place][order]
            shared = (plans.candidate, schedule, order, plans.replicas, numbers[place])
            yield _Open(shared, plans, schedules[schedule], worth.counts, worth)


def _unscheduled(
    instance: Instance, among: Sequence[int], rules: PlainRules, screen: Screen, watch: Callable[[], None]
) -> Iterator[tuple[list[list[Configuration]], list[int], Screened]]:
    """Yield plans with open choices and schedule that compute alone does not exclude, in parts of similar choices.

    Each number of replicas and shard groups comes with any rank order and the place of the shard groups, and with the
    options that the screen leaves.
    """
    space, by_choices = instance.space, dict[tuple[Choice, ...], list[Replicas]]()
    for index in among:
        watch()
        candidate = instance.candidates[index]
        every = by_choices.setdefault(stage_choices(instance, index), [])
        for replicas, micro_batches in batches_of(instance, candidate, rules.exclusions):
            size = replica_size(instance.cluster, candidate.width, replicas)
            slots = rules.most_stages(replicas * candidate.width, size // candidate.width)
            if slots:
                every.append(Replicas(index, replicas, micro_batches, size, slots))
    for choices, every in by_choices.items():
        for screened in screen.fast(every):
            watch()
            plans, numbers, owners = [], [], []
            for place in dict.fromkeys(screened.owner.tolist()):
                index, replicas, micro_batches, size, _ = every[place]
                candidate, members = instance.candidates[index], ((index, choices),)
                for number, degree in enumerate(zero_degrees(instance, (candidate,), replicas, rules.exclusions)):
                    shared = (space.schedules[0], size, (), degree)
                    orders = [(replicas, micro_batches, each, *shared) for each in space.rank_orders]
                    plans.append([Configuration(0, members, *each) for each in orders])
                    numbers.append(number)
                    owners.append(place)
            if plans:
                yield plans, numbers, screened.of(owners)


def least_times(
    instance: Instance,
    most_stages: int,
    chunked_counts: ChunkedCounts,
    tables: ScreenTables,
    among: Sequence[int] | None = None,
) -> tuple[float, ...]:
    """Lower bounds (s) by candidate on plans of one candidate; infinite if there are none.

    A candidate has none if no plan has the memory, or constraints on degrees and sizes refuse it; other constraints are
    not checked. Arguments as in `configurations`.
    """
    exclusions = Exclusions()
    rules, admitted, schedule = PlainRules(instance, exclusions), Admitted(exclusions), instance.space.schedules[0]

    def counts_of(schedule: Schedule, micro_batches: int, slots: int) -> Sequence[int]:
        return numbers_of_stages(instance, schedule, micro_batches, slots, most_stages, admitted, chunked_counts)

    screen = Screen(instance, tables, counts_of, rules.uniform, inf)
    every = range(len(instance.candidates)) if among is None else among
    left = [index for index in every if rules.admit(instance.candidates[index], schedule)]
    found: dict[int, float] = {}
    for plans, _, screened in _unscheduled(instance, left, rules, screen, watch=lambda: None):
        for index, seconds in screen.least(plans, screened):
            found[index] = min(found.get(index, inf), seconds)
    return tuple(found.get(index, inf) for index in every)


def _allowed(instance: Instance, rules: PlainRules, every: _Open) -> Iterator[tuple[tuple[int, ...], tuple[Any, ...]]]:
    """Apply constraints: yield the place in the order of ties, and further attributes of the configuration."""
    plans, index, worth = every.plans, every.plans.candidate, every.worth
    candidate, decided = instance.candidates[index], (plans.replicas, plans.micro_batches, plans.rank_order)

    def values() -> dict[str, Value]:
        return plan_values(candidate, *decided, every.schedule, plans.zero_degree)

    sets = rules.allowed(index, values, plans.replicas * candidate.width, tuple(every.counts), plans.choices)
    for number, (chosen, allowed) in enumerate(sets.items()):
        bounds = None if worth is None else worth.of(chosen)
        if bounds is not None:
            allowed = tuple([count for count in allowed if count in bounds]) if bounds else ()
        for counts in _decided_apart(instance, allowed) if allowed else ():
            bound = None if bounds is None else min([bounds[count] for count in counts])
            shared = (*decided, every.schedule, plans.size, counts, plans.zero_degree, ANY_DEVICES, bound)
            yield (*every.place, number, counts[0]), (((index, chosen),), *shared)


def numbers_of_stages(
    instance: Instance,
    schedule: Schedule,
    micro_batches: int,
    slots: int,
    most_stages: int,
    admitted: Admitted,
    chunked_counts: ChunkedCounts,
) -> Sequence[int]:
    """Numbers of stages of a schedule on so many slots."""
    if chunks_of(schedule) == 1:
        return admitted.among(schedule, micro_batches, stage_counts(instance, min(slots, most_stages)))
    counts = chunked_counts(schedule, micro_batches, slots)
    admitted.exclusions.uneven += not counts
    return counts


def mixed_configurations(
    instance: Instance,
    most_stages: int,
    first_order: int,
    exclusions: Exclusions,
    watch: Callable[[], None] = lambda: None,
) -> list[Configuration]:
    """List the allowed configurations of mixed plans in the documented order of ties.

    Args:
        most_stages: most stages of the layer graph.
        first_order: position of the first among ties.
        exclusions: counts refusals with their reasons.
        watch: called every few milliseconds; may raise `OutOfTime`.
    """
    rules = MixedRules(instance, exclusions)
    # Plans of several chunks have one candidate.
    schedules = [each for each in instance.space.schedules if chunks_of(each) == 1]
    admitted = Admitted(exclusions)
    result: list[Configuration] = []
    for samples in sorted({candidate.samples for candidate in instance.candidates}):
        group = [(i, c) for i, c in enumerate(instance.candidates) if c.samples == samples]
        narrowest = min(candidate.width for _, candidate in group)
        most = min(instance.cluster.size // narrowest, instance.space.global_batch // samples)
        for schedule, rank_order, replicas in product(schedules, instance.space.rank_orders, range(1, most + 1)):
            watch()
            micro_batches = instance.micro_batches(group[0][1], replicas)
            if micro_batches is None:
                exclusions.batch += 1
                continue
            for widest, size, demanded in _sizes(instance, group, replicas):
                counts = stage_counts(instance, min(size // narrowest, most_stages))
                counts = admitted.among(schedule, micro_batches, counts)
                usable = {index: candidate for index, candidate in group if candidate.width <= widest}
                for degree in zero_degrees(instance, list(usable.values()), replicas, exclusions) if counts else ():
                    values = _mixed_values(usable, replicas, micro_batches, rank_order, schedule, degree)
                    for members, total, every in rules.allowed(values, replicas, counts, size):
                        if demanded and widest not in (instance.candidates[index].width for index, _ in members):
                            continue
                        tally = Tally(widest if demanded else 0, total)
                        shared = (members, replicas, micro_batches, rank_order, schedule, size)
                        for allowed in _decided_apart(instance, every):
                            result.append(Configuration(first_order + len(result), *shared, allowed, degree, tally))
    return result


def _mixed_values(
    usable: Mapping[int, Candidate],
    replicas: int,
    micro_batches: int,
    rank_order: str,
    schedule: Schedule,
    degree: int | None,
) -> dict[int, dict[str, Value]]:
    """Values of names for each candidate whose ranks divide into shard groups of `degree`."""
    return {
        index: plan_values(candidate, replicas, micro_batches, rank_order, schedule, degree)
        for index, candidate in usable.items()
        if _shard_counts(candidate, replicas, degree) is not None
    }


def _sizes(instance: Instance, group: list[tuple[int, Candidate]], replicas: int) -> Iterator[tuple[int, int, bool]]:
    """Possible largest widths of a plan, with the replica's devices, and whether a block must have that width.

    The largest width sets `K`; if all narrower ones would set the same, one configuration covers them.
    """
    widths = sorted({c.width for _, c in group if c.width * replicas <= instance.cluster.size}, reverse=True)
    sizes = {width: replica_size(instance.cluster, width, replicas) for width in widths}
    for place, width in enumerate(widths):
        same = all(sizes[narrower] == sizes[width] for narrower in widths[place:])
        yield width, sizes[width], not same
        if same:
            return


def zero_degrees(
    instance: Instance, candidates: Sequence[Candidate], replicas: int, exclusions: Exclusions
) -> list[int | None]:
    """Possible numbers of ranks for ZeRO sharding, in the documented order of ties.

    Numbers without effect compared with an earlier one are dropped, unless a constraint reads them.
    """
    if instance.space.zero_degrees == (None,):
        return [None]
    read = any("zero_degree" in constraint.names() for constraint in instance.space.constraints)
    degrees: dict[object, int | None] = {}
    for degree in instance.space.zero_degrees:
        effects = tuple(_shard_counts(candidate, replicas, degree) for candidate in candidates)
        if any(effect is not None for effect in effects):
            degrees.setdefault((degree, effects) if read else effects, degree)
    exclusions.shard_groups += not degrees
    return list(degrees.values())


def _shard_counts(candidate: Candidate, replicas: int, zero_degree: int | None) -> tuple[int, ...] | None:
    """Ranks over which ZeRO shards each parameter group; None: `zero_degree` does not divide them."""
    counts = [replicas * len(group.ranks) for group in candidate.state]
    if zero_degree is None:
        return tuple(counts)
    if any(count > zero_degree and count % zero_degree for count in counts):
        return None
    return tuple(min(count, zero_degree) for count in counts)


def batches_of(
    instance: Instance, candidate: Candidate, exclusions: Exclusions, most: int | None = None
) -> list[tuple[int, int]]:
    """Numbers of replicas of a candidate, ascending, with their micro-batches; at most `most`."""
    batch, samples = instance.space.global_batch, candidate.samples
    most = instance.cluster.size // candidate.width if most is None else most
    every = numpy.arange(1, min(most, batch // samples) + 1)
    # Of thousands a handful divides the batch.
    some = every if instance.space.uneven_batch else every[batch % (every * samples) == 0]
    exclusions.batch += len(every) - len(some)
    found = ((replicas, instance.micro_batches(candidate, replicas)) for replicas in some.tolist())
    return [(replicas, micro_batches) for replicas, micro_batches in found if micro_batches is not None]


def stage_counts(instance: Instance, most: int) -> Sequence[int]:
    """Numbers of stages up to `most`, or a given partition's; even ones only if required."""
    space, blocks = instance.space, len(instance.space.blocks)
    if space.partition is not None:
        count = len(space.partition)
        return range(count, count + 1) if count <= most else range(0)
    if space.even:
        return [count for count in range(1, min(most, blocks) + 1) if blocks % count == 0]
    return range(1, most + 1)


@define(eq=False, repr=False)
class Admitted:
    """Numbers of stages that schedules admit, cached."""

    exclusions: Exclusions
    _known: dict[Hashable, tuple[int, ...]] = field(factory=dict)

    def among(self, schedule: Schedule, micro_batches: int, counts: Sequence[int]) -> Sequence[int]:
        """Filter `counts` by whether the schedule has plans with so many micro-batches."""
        asked = tuple(counts)
        key = (schedule.name, chunks_of(schedule), micro_batches, asked)
        if key not in self._known:
            self._known[key] = tuple(count for count in asked if admits(schedule, count, micro_batches))
        self.exclusions.unadmitted += bool(asked) and not self._known[key]
        return self._known[key]


def _decided_apart(instance: Instance, counts: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Group numbers of stages into configurations: all in one, or each alone if it decides the cuts."""
    return [(count,) for count in counts] if instance.space.even or not counts else [counts]
