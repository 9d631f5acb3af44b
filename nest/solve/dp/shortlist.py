"""Plans that are listed already, and what is left of the space without them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from attrs import evolve, frozen

from nest.instance import Instance, Solution, chunks_of
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.rules import Members

Used = tuple[str, int | str]
"""What a stage uses, with its kind: a candidate, a ZeRO stage or a recompute mode."""


@frozen
class PlanSignature:
    """What tells a listed plan from others.

    It covers the plans with its replicas, number of stages and schedule whose stages use all that its stages use, and
    perhaps more: they differ from it in where stages begin and lie and in which stage uses what, or mix in others.

    Attributes:
        replicas: data-parallel degree `d`.
        stages: how many there are.
        schedule: its name and chunks; of a single stage any is as good.
        used: by its stages.
    """

    replicas: int
    stages: int
    schedule: tuple[str, int]
    used: frozenset[Used]

    @classmethod
    def of(cls, solution: Solution) -> "PlanSignature":
        """What tells a plan from others."""
        stages = solution.stages
        used = {each for stage in stages for each in _used(stage.candidate, stage.zero, stage.recompute)}
        schedule = _named(solution.schedule, solution.chunks, len(stages))
        return cls(solution.replicas, len(stages), schedule, frozenset(used))

    def covers(self, solution: Solution) -> bool:
        """Whether a plan is no plan of its own beside this one."""
        other = PlanSignature.of(solution)
        return self.alike(other.replicas, other.stages, other.schedule) and self.used <= other.used

    def alike(self, replicas: int, stages: int, schedule: tuple[str, int]) -> bool:
        """Whether plans with these may be covered."""
        return (self.replicas, self.stages, self.schedule) == (replicas, stages, schedule)


def _used(candidate: int, zero: int, recompute: str) -> tuple[Used, ...]:
    return ("candidate", candidate), ("zero", zero), ("recompute", recompute)


def without(
    configurations: Sequence[Configuration], listed: Sequence[PlanSignature], instance: Instance, first_order: int = 0
) -> list[Configuration]:
    """The configurations of all plans that are not covered.

    Args:
        configurations: of all plans.
        listed: what covers some.
        instance: the problem.
        first_order: position of the first among ties.
    """
    left = [
        evolve(each, members=members, stage_counts=counts)
        for each in configurations
        for members, counts in _left(each, listed)
        if each.tally.demanded in (0, *(instance.candidates[index].width for index, _ in members))
    ]
    return [evolve(each, order=order) for order, each in enumerate(left, first_order)]


def _left(configuration: Configuration, listed: Sequence[PlanSignature]) -> Iterator[tuple[Members, tuple[int, ...]]]:
    """What stages may draw from so that no plan is covered, each with the numbers of stages it is for."""
    result: dict[Members, list[int]] = defaultdict(list)
    for count in configuration.stage_counts:
        sets = [configuration.members]
        for each in listed:
            schedule = _named(configuration.schedule.name, chunks_of(configuration.schedule), count)
            if each.alike(configuration.replicas, count, schedule):
                sets = _uncovered(sets, each)
        for members in sets:
            result[members].append(count)
    for members, counts in result.items():
        yield members, tuple(counts)


def _named(schedule: str, chunks: int, stages: int) -> tuple[str, int]:
    """What tells schedules apart; those of a single stage are one."""
    return (schedule, chunks) if stages > 1 else ("", 1)


def _uncovered(sets: Sequence[Members], listed: PlanSignature) -> list[Members]:
    """The same plans in sets of which none can use all that a listed plan uses: each leaves out one thing of it."""
    uncovered: dict[Members, None] = {}
    for members in sets:
        if listed.used <= {each for i, own in members for c in own for each in _used(i, c.zero, c.recompute)}:
            uncovered.update((_leaving_out(members, used), None) for used in sorted(listed.used, key=repr))
        else:
            uncovered[members] = None
    return [members for members in uncovered if members]


def _leaving_out(members: Members, used: Used) -> Members:
    members_left = ((i, tuple(c for c in own if used not in _used(i, c.zero, c.recompute))) for i, own in members)
    return tuple((index, choices) for index, choices in members_left if choices)
