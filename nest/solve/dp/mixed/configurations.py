"""What is decided before the stages of a mixed plan.

Samples, replicas, rank order, schedule, the width that sets `K`, and the candidates and choices stages may draw from.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

from attrs import frozen

from nest.instance import Candidate, Instance, Schedule, chunks_of
from nest.solve.dp.choices import Choice
from nest.solve.dp.configurations import (
    COUNTED_NAMES,
    Exclusions,
    apart,
    plan_values,
    shard_counts,
    stage_choices,
    stage_counts,
    with_choice,
    zero_degrees,
)
from nest.solve.dp.mixed.tally import Tally
from nest.spec.constraints import Constraint, Value

SHARED_NAMES = frozenset({"pp", "devices", "replicas", "micro_batches", "rank_order", "schedule", "chunks"})
"""Names with one value for all stages of a plan."""

Members = tuple[tuple[int, tuple[Choice, ...]], ...]
"""Candidates by index, each with the choices its stages may take."""


@frozen
class MixedConfiguration:
    """A family of plans that differ in their stages only.

    Attributes:
        order: position in the documented order of ties.
        replicas: data-parallel degree `d`.
        micro_batches: `M`.
        rank_order: `pp-inner` or `dp-inner`.
        schedule: the pipeline schedule.
        size: devices of a replica (`K`).
        members: what stages may draw from.
        tally: what the stages must add up to.
        stage_counts: numbers of stages the constraints allow, ascending.
        zero_degree: ranks over which ZeRO shards at most; None: all.
    """

    order: int
    replicas: int
    micro_batches: int
    rank_order: str
    schedule: Schedule
    size: int
    members: Members
    tally: Tally
    stage_counts: tuple[int, ...]
    zero_degree: int | None = None


def mixed_configurations(
    instance: Instance,
    most_stages: int,
    first_order: int,
    exclusions: Exclusions,
    watch: Callable[[], None] = lambda: None,
) -> list[MixedConfiguration]:
    """Every configuration the constraints allow, in the documented order of ties.

    Args:
        instance: the problem.
        most_stages: stages the layer graph can be cut into.
        first_order: position of the first among ties.
        exclusions: counts what is refused and why.
        watch: called after each step of a few milliseconds; may raise `OutOfTime`.
    """
    rules = _Rules(instance)
    # Plans of several chunks have one candidate.
    schedules = [schedule for schedule in instance.space.schedules if chunks_of(schedule) == 1]
    found: list[MixedConfiguration] = []
    for samples in sorted({candidate.samples for candidate in instance.candidates}):
        group = [(i, c) for i, c in enumerate(instance.candidates) if c.samples == samples]
        narrowest = min(candidate.width for _, candidate in group)
        for schedule, rank_order in product(schedules, instance.space.rank_orders):
            for replicas in range(
                1, min(instance.cluster.size // narrowest, instance.space.global_batch // samples) + 1
            ):
                watch()
                micro_batches = instance.micro_batches(group[0][1], replicas)
                if micro_batches is None:
                    exclusions.batch += 1
                    continue
                for widest, size, demanded in _sizes(instance, group, replicas):
                    counts = stage_counts(instance, min(size // narrowest, most_stages))
                    usable = {index: candidate for index, candidate in group if candidate.width <= widest}
                    degrees = zero_degrees(instance, list(usable.values()), replicas, exclusions) if counts else []
                    offers = (
                        (degree, members, total, allowed)
                        for degree in degrees
                        for values in [_values(usable, replicas, micro_batches, rank_order, schedule, degree)]
                        for members, total, every in rules.allowed(values, replicas, counts, size, exclusions)
                        for allowed in apart(instance, every)
                    )
                    for degree, members, total, allowed in offers:
                        kept = [instance.candidates[index].width for index, _ in members]
                        if demanded and widest not in kept:
                            continue
                        tally = Tally(widest if demanded else 0, total)
                        found.append(
                            MixedConfiguration(
                                first_order + len(found),
                                replicas,
                                micro_batches,
                                rank_order,
                                schedule,
                                size,
                                members,
                                tally,
                                allowed,
                                degree,
                            )
                        )
    return found


def _values(
    usable: Mapping[int, Candidate],
    replicas: int,
    micro_batches: int,
    rank_order: str,
    schedule: Schedule,
    degree: int | None,
) -> dict[int, dict[str, Value]]:
    """What names mean for each candidate whose ranks can be cut into shard groups of `degree`."""
    return {
        index: plan_values(candidate, replicas, micro_batches, rank_order, schedule, degree)
        for index, candidate in usable.items()
        if shard_counts(candidate, replicas, degree) is not None
    }


def _sizes(instance: Instance, group: list[tuple[int, Candidate]], replicas: int) -> Iterator[tuple[int, int, bool]]:
    """Widths that can be a plan's largest, with the replica's devices, and whether a block must have that width.

    The largest width sets `K`; where all narrower ones would set the same, one configuration covers them.
    """
    widths = sorted({c.width for _, c in group if c.width * replicas <= instance.cluster.size}, reverse=True)
    sizes = {width: width * (instance.cluster.size // (replicas * width)) for width in widths}
    for place, width in enumerate(widths):
        same = all(sizes[narrower] == sizes[width] for narrower in widths[place:])
        yield width, sizes[width], not same
        if same:
            return


class _Rules:
    """The constraints: conditions hold on every stage, with the values of its own candidate and choice."""

    def __init__(self, instance: Instance) -> None:
        expressions = [each for each in instance.space.constraints if each.expression is not None]
        self.plain = [each for each in expressions if not each.names() & COUNTED_NAMES]
        counted = [each for each in expressions if each.names() & COUNTED_NAMES]
        self.counted = [each for each in counted if each.names() <= SHARED_NAMES]
        self.counted_by_stage = [each for each in counted if not each.names() <= SHARED_NAMES]
        self.uniform = [each.uniform for each in instance.space.constraints if each.uniform is not None]
        self.devices_matter = any("devices" in each.names() for each in expressions)
        self.choices = {index: stage_choices(instance, each) for index, each in enumerate(instance.candidates)}

    def allowed(
        self,
        values: Mapping[int, dict[str, Value]],
        replicas: int,
        counts: Sequence[int],
        size: int,
        exclusions: Exclusions,
    ) -> list[tuple[Members, frozenset[int] | None, tuple[int, ...]]]:
        """What stages may draw from, with the devices a replica may use in all (None: any), and for how many stages."""
        exclusions.combinations += len(counts)
        open_choices = {
            index: self._kept(self.plain, known, self.choices[index], exclusions) for index, known in values.items()
        }
        if not any(open_choices.values()) or not counts:
            return []
        every = self._members(open_choices)
        if not self.counted and not self.counted_by_stage:
            return [(members, None, tuple(counts)) for members in every]
        found: dict[tuple[Members, frozenset[int] | None], list[int]] = defaultdict(list)
        for count in counts:
            totals: dict[Members, set[int]] = defaultdict(set)
            for used in range(count, size + 1) if self.devices_matter else (0,):
                added: dict[str, Value] = {"pp": count, "devices": replicas * used}
                if not self._hold(next(iter(values.values())) | added, exclusions):
                    continue
                members_left = every
                if self.counted_by_stage:
                    kept = {
                        index: self._kept(self.counted_by_stage, values[index] | added, choices, exclusions)
                        for index, choices in open_choices.items()
                    }
                    members_left = self._members(kept)
                for members in members_left:
                    totals[members].add(used)
            for members, each in totals.items():
                any_total = not self.devices_matter or len(each) == size + 1 - count
                found[members, None if any_total else frozenset(each)].append(count)
        return [(members, total, tuple(allowed)) for (members, total), allowed in found.items()]

    def _hold(self, values: Mapping[str, Value], exclusions: Exclusions) -> bool:
        """Whether what depends on the number of stages or of devices holds, whatever the stages use."""
        refusing = next((each for each in self.counted if not each.holds(values)), None)
        if refusing is not None:
            exclusions.constraints[refusing.text] += 1
        return refusing is None

    def _kept(
        self,
        constraints: list[Constraint],
        values: dict[str, Value],
        choices: tuple[Choice, ...],
        exclusions: Exclusions,
    ) -> tuple[Choice, ...]:
        for constraint in constraints:
            kept = tuple(choice for choice in choices if constraint.holds(with_choice(values, choice)))
            if choices and not kept:
                exclusions.constraints[constraint.text] += 1
            choices = kept
        return choices

    def _members(self, choices: Mapping[int, tuple[Choice, ...]]) -> list[Members]:
        """One set, or one per value of what is uniform; empty ones left out."""
        sets = [{index: kept for index, kept in choices.items() if kept}]
        for attribute in self.uniform:
            parts = []
            for each in sets:
                present = dict.fromkeys(getattr(choice, attribute) for kept in each.values() for choice in kept)
                for value in present:
                    parts.append(
                        {i: tuple(c for c in kept if getattr(c, attribute) == value) for i, kept in each.items()}
                    )
            sets = [{index: kept for index, kept in part.items() if kept} for part in parts]
        return [tuple(sorted(each.items())) for each in sets if each]
