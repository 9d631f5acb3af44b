"""What a stage of a better plan can still be: the choices that the cheap bounds leave to CP-SAT."""

from math import inf

import numpy
from attrs import frozen

from nest.solve.cpsat.bounds import Relaxation, backward, forward, least_largest, time_limit, value
from nest.solve.cpsat.cases import Case, Mode
from nest.solve.cpsat.cuts import Booleans, Floats, Integers
from nest.solve.cpsat.even import even_stages
from nest.solve.cpsat.stages import StageCosts
from nest.tolerances import LIMIT_SLACK, SUM_ERROR

Overfull = frozenset[tuple[int, int, Mode, int]]
"""Choices that exact pricing found too large: index of the stage, candidate, mode, index in `Cuts`."""


@frozen(eq=False)
class Choices:
    """What one stage of a plan can be; a row is one choice.

    Attributes:
        candidate: index of the candidate.
        mode: index of the mode in the candidate's costs.
        stage: index in `Cuts`.
        time: seconds per micro-batch without transfers, as if there were no ports.
        sync: seconds per batch, as if there were no ports.
    """

    candidate: Integers
    mode: Integers
    stage: Integers
    time: Floats
    sync: Floats

    def __len__(self) -> int:
        return len(self.stage)

    def kept(self, rows: Booleans) -> "Choices":
        """Only these rows."""
        return Choices(self.candidate[rows], self.mode[rows], self.stage[rows], self.time[rows], self.sync[rows])


@frozen(eq=False)
class Narrowed:
    """A case with the choices that are left.

    Attributes:
        choices: for each stage.
        bound: seconds no plan of the case that is below the target takes less than.
    """

    choices: tuple[Choices, ...]
    bound: float


def narrow(relaxation: Relaxation, case: Case, target: float, overfull: Overfull = frozenset()) -> Narrowed | None:
    """The choices of plans below `target`; None where there are none.

    A choice goes when it does not fit, when another of the same layers is at least as fast in both respects, or when
    the fastest stages around it, whatever their places, still make the plan too slow.
    """
    choices = [_fitting(relaxation, case, index, overfull) for index in range(case.stages)]
    kept, bound = sum(map(len, choices)) + 1, 0.0
    while sum(map(len, choices)) < kept:
        kept = sum(map(len, choices))
        times = [_table(relaxation, each, _with_transfers(relaxation, case, each)) for each in choices]
        syncs = [_table(relaxation, each, each.sync) for each in choices]
        before, after = forward(times), backward(times)
        total, sync = float(before[-1][-1]), least_largest(syncs)
        if total == inf:
            return None
        slowest = max(least_largest(times), total / case.stages)
        bound = max(value(case, slowest, total, sync), bound)
        if bound > target:
            return None
        limit = time_limit(case, target, total, sync)
        for index, each in enumerate(choices):
            time = _with_transfers(relaxation, case, each)
            first, last = relaxation.cuts.first[each.stage], relaxation.cuts.last[each.stage]
            through = before[index][first] + time + after[index + 1][last]
            reached = numpy.isfinite(through)
            least = case.weights[0] * numpy.maximum(slowest, time) + numpy.maximum(sync, each.sync)
            least += case.weights[1] * numpy.where(reached, through, 0.0)
            choices[index] = each.kept(reached & (time <= limit) & (least * (1 - SUM_ERROR) <= target))
    return Narrowed(tuple(choices), bound)


def _with_transfers(relaxation: Relaxation, case: Case, choices: Choices) -> Floats:
    """Seconds of each choice with its tensors sent over the cheapest levels; its ports are occupied no shorter."""
    time = choices.time.copy()
    for candidate in case.candidates:
        rows = choices.candidate == candidate
        cheapest = relaxation.transfers(case, candidate)
        stage = choices.stage[rows]
        time[rows] += cheapest[relaxation.cuts.first[stage]] + cheapest[relaxation.cuts.last[stage]]
        busiest = relaxation.book.costs(case, candidate).busiest
        time[rows] = numpy.maximum(time[rows], busiest[choices.mode[rows], stage])
    return time


def _table(relaxation: Relaxation, choices: Choices, values: Floats) -> Floats:
    """The least value by the cuts in front and behind; infinite where no choice is left."""
    count = relaxation.cuts.count
    table = numpy.full((count, count), inf)
    order = numpy.argsort(-values, kind="stable")
    stage = choices.stage[order]
    # Of several values for one place the last one written stays: the least.
    table[relaxation.cuts.first[stage], relaxation.cuts.last[stage]] = values[order]
    return table


def _fitting(relaxation: Relaxation, case: Case, index: int, overfull: Overfull) -> Choices:
    """The choices of a stage that fit its memory, without those that another makes needless."""
    capacity = relaxation.instance.cluster.memory * (1 + LIMIT_SLACK)
    flying = case.in_flight(index + 1)
    first, last = relaxation.cuts.first, relaxation.cuts.last
    ends = (first == 0) if index == 0 else (first != 0)
    ends &= (last == relaxation.cuts.count - 1) if index == case.stages - 1 else (last != relaxation.cuts.count - 1)
    if relaxation.instance.space.even:
        dealt, behind = even_stages(relaxation.instance, case.stages), relaxation.cuts.behind
        ends &= (behind == (dealt >= index)).all(axis=1)[first] & (behind == (dealt > index)).all(axis=1)[last]
    found = []
    for candidate, modes in zip(case.candidates, case.modes, strict=True):
        costs = relaxation.book.costs(case, candidate)
        fits = (costs.one + (flying - 1) * costs.more <= capacity) & ends
        rows = costs.rows(modes)
        for stage, mode in ((stage, mode) for at, who, mode, stage in overfull if (at, who) == (index, candidate)):
            fits[costs.modes.index(mode), stage] = False
        for row in rows:
            others = [other for other in rows if other != row]
            needed = fits[row].copy()
            for other in others:
                needed &= ~(fits[other] & _wins(costs, other, row, case.micro_batches))
            stages = numpy.nonzero(needed)[0]
            found.append(
                Choices(
                    numpy.full(len(stages), candidate),
                    numpy.full(len(stages), row),
                    stages,
                    costs.time[row, stages],
                    costs.sync[row, stages],
                )
            )
    fields = ("candidate", "mode", "stage", "time", "sync")
    return Choices(*(numpy.concatenate([getattr(each, name) for each in found]) for name in fields))


def _wins(costs: StageCosts, one: int, other: int, micro_batches: int) -> Booleans:
    """Where mode `one` is at least as fast as mode `other`, and faster or listed first."""
    wins: Booleans = costs.as_fast(one, other, micro_batches)
    return wins if one < other else wins & ~costs.as_fast(other, one, micro_batches)
