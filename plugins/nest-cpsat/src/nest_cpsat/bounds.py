"""Cheap bounds that rule out cases without a CP-SAT model.

Every bound drops something that could only make plans slower, so it never exceeds the step time of a plan:

* `nest_cpsat.compute_bound` drops memory, transfers, gradient reduction and ports.
* `Relaxation` sends every tensor over its cheapest level whatever the placement, and picks stages and modes separately
  for the sum, the slowest stage and the slowest gradient reduction. Then paths through the cuts remain. A stage takes
  at least as long as its busiest port is occupied without messages; gradient reduction does not wait for ports.
"""

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy
from attrs import define, evolve, field, frozen

from nest.instance import Instance, admits, copies_of
from nest.reuse import BoundedCache, once
from nest.tolerances import LIMIT_SLACK, SUM_ERROR
from nest_cpsat.cases import Case, Mode, seen_by, teams
from nest_cpsat.cuts import Booleans, Cuts, Floats, Integers, even_stages
from nest_cpsat.first_blocks import rivals
from nest_cpsat.kept import kept
from nest_cpsat.links import Links, links_of
from nest_cpsat.paths import Paths, kept_only, least
from nest_cpsat.placement import slots
from nest_cpsat.stage_cost_cache import StageCostCache
from nest_cpsat.stages import StageCosts

Overfull = Sequence[tuple[int, int, Mode, int]]
"""Choices that exact pricing found too large: stage, candidate, mode and index in `Cuts`."""

ROUNDS = 6  # Rounds in which limits and paths tighten each other; more hardly ever help.


@define
class Relaxation:
    """Bound over paths through the cuts; caches stages by their micro-batches in flight."""

    instance: Instance
    cuts: Cuts
    book: StageCostCache
    _fastest: BoundedCache[tuple[Floats, Floats, Floats]] = field(factory=kept)
    _cheapest: dict[object, Floats] = field(factory=dict)
    _links: dict[object, Links] = field(factory=dict)
    _terms: dict[object, list[list[float]]] = field(factory=dict)
    _flying: dict[object, float] = field(factory=dict)

    def make_room(self) -> None:
        """Evict cached values between two cases."""
        self._fastest.make_room()
        self.book.make_room()

    def of(self, case: Case, target: float) -> float:
        """Lower bound of a case in seconds, as precise as `target` requires; infinite if nothing fits."""
        self.make_room()
        if self.instance.pools is not None and (bound := self._of_any_stages(case)) > target:
            return bound
        stages = [self._stages(case, case.in_flight(stage)) for stage in range(1, case.stages + 1)]
        times, weighed, syncs = ([[team[part] for team in each] for each in stages] for part in range(3))
        paths = self.paths(case)
        slowest_sync, slowest = (paths.least(each, numpy.maximum) for each in (syncs, times))
        if inf in (slowest_sync, slowest):
            return inf
        # No stage of a plan below the target is above the limit; without those the sum may grow, and the limit shrink.
        bound, limit = 0.0, inf
        for _ in range(ROUNDS):
            kept = [[time <= limit for time in each] for each in times]
            total = paths.least(list(map(kept_only, times, kept)))
            added = paths.least(list(map(kept_only, weighed, kept))) if case.apart else case.weights.forward * total
            if total == inf:
                return target
            better = value(case, max(slowest, total / case.stages), added, slowest_sync)
            if better <= bound * (1 + SUM_ERROR) or better > target:
                return max(better, bound)
            bound = better
            limit = time_limit(case, target, added, slowest_sync)
        return bound

    def _of_any_stages(self, case: Case) -> float:
        """Bound of a case from stages counted from the last, shared by cases with other numbers of stages.

        Counted this way, a stage has no more micro-batches in flight than with any number of stages.
        """
        key = (case.candidates, case.modes, case.replicas, case.rank_order, case.schedule, case.micro_batches)
        key_of_all = (*key, case.zero_degree, case.weights, case.hiding)
        if key_of_all not in self._terms:
            self._terms[key_of_all] = self._terms_of(case)
        total, slowest, sync, added = self._terms[key_of_all][case.stages - 1]
        added = added if case.apart else case.weights.forward * total
        return value(case, max(slowest, total / case.stages), added, sync)

    def _terms_of(self, case: Case) -> list[list[float]]:
        """Least `sum t`, `max t`, `max y` and, if separate, `sum u`, by number of stages."""
        paths, terms = self.paths(case), []
        most = min(self.cuts.longest, sum(paths.rooms))
        joins = [(0, numpy.add), (0, numpy.maximum), (2, numpy.maximum), *([(1, numpy.add)] if case.apart else [])]
        behind = [paths.end(self.cuts.count) for _ in joins]
        for number in range(1, most + 1):
            tables = self._stages(case, self._least_in_flight(case, number, most))
            steps = [[team[part] for team in tables] for part, _ in joins]
            every = zip(behind, steps, joins, strict=True)
            behind = [paths.in_front(reached, step, join) for reached, step, (_, join) in every]
            terms.append([*(least(each, 0) for each in behind), 0.0][:4])
        return terms

    def _least_in_flight(self, case: Case, number: int, most: int) -> float:
        """Fewest micro-batches in flight on the stage of this number from the last, over all numbers of stages."""
        key = (case.schedule, case.micro_batches, number, most)
        if key not in self._flying:
            every = (
                evolve(case, stages=stages).in_flight(stages - number + 1)
                for stages in range(number, most + 1)
                if admits(case.schedule, stages, case.micro_batches)
            )
            self._flying[key] = min(every, default=1.0)
        return self._flying[key]

    def paths(self, case: Case) -> Paths:
        """Paths that stages of the case may take."""
        return Paths(tuple(room for _, room in teams(self.instance, case)))

    def links(self, case: Case) -> Links:
        """Links that boundaries of the case may use."""
        key = None if self.instance.pools is None else case.candidates
        return once(self._links, key, lambda: links_of(self.instance, case))

    def transfers(self, case: Case, candidate: int) -> Floats:
        """Seconds to transfer the tensors of each cut over the cheapest link. Shape `(cuts,)`."""
        key = (candidate, case.replicas, case.rank_order, self._around(case))
        if key not in self._cheapest:
            links = self.links(case)
            outward = links.outward(candidate)
            crossing = self.book.parts(candidate).bytes
            near = [links.own[candidate][level] for level in levels(*self._seen(case, candidate))]
            every = [links.seconds(crossing, number) for number in (*near, *outward)]
            self._cheapest[key] = numpy.minimum.reduce(every) if every else numpy.zeros(self.cuts.count)
        return self._cheapest[key]

    def _around(self, case: Case) -> object:
        """Key of everything the other candidates contribute to the costs of one: the widest block, or the pools."""
        return case.widest if self.instance.pools is None else tuple(map(self.instance.pool_of, case.candidates))

    def _seen(self, case: Case, candidate: int) -> tuple[Instance, Case]:
        """View instance and case from blocks of one candidate; on pools, with a single width."""
        if self.instance.pools is None:
            return self.instance, case
        instance, own = seen_by(self.instance, case, candidate)
        return instance, evolve(own, candidates=(candidate,))

    def _stages(self, case: Case, flying: float) -> list[tuple[Floats, Floats, Floats]]:
        """Least `t`, `u` and `y` of a stage that fits, by team and by the cuts before and after it."""
        return [self._of_team(case, team, flying) for team, _ in teams(self.instance, case)]

    def _of_team(self, case: Case, team: Sequence[int], flying: float) -> tuple[Floats, Floats, Floats]:
        members = tuple((case.candidates[position], case.modes[position]) for position in team)
        key: tuple[object, ...] = (members, case.replicas, case.rank_order, self._around(case), flying)
        key += (case.zero_degree, copies_of(case.schedule), (case.weights, case.hiding))
        return self._fastest.of(key, lambda: self._least_of(case, members, flying))

    def _least_of(
        self, case: Case, members: Sequence[tuple[int, tuple[Mode, ...]]], flying: float
    ) -> tuple[Floats, Floats, Floats]:
        best = [numpy.full((self.cuts.count, self.cuts.count), inf) for _ in range(3)]
        first, last = self.cuts.first, self.cuts.last
        for candidate, modes in members:
            capacity = self.instance.cluster_of(candidate).memory * (1 + LIMIT_SLACK)
            costs, rows = self.book.least(case, candidate, modes, flying)
            fits = costs.one[rows] + (flying - 1) * costs.more[rows] <= capacity
            cheapest = self.transfers(case, candidate)
            whole, added = least_times(case, costs, (rows,), cheapest[first], cheapest[last])
            for table, values in zip(best, (whole, added, costs.sync[rows]), strict=True):
                fitting = numpy.where(fits, values, inf).min(axis=0)
                table[first, last] = numpy.minimum(table[first, last], fitting)
        return best[0], best[1], best[2]


def levels(instance: Instance, case: Case) -> list[int]:
    """Possible levels of a boundary of the case; all levels if blocks differ in width."""
    every = range(len(instance.cluster.levels))
    widths = {instance.candidates[each].width for each in case.candidates}
    if len(widths) > 1:
        return list(every)
    apart = slots(instance, case, widths.pop()).closest(len(every))
    return [level for level in every if apart[level]]


def least_times(
    case: Case, costs: StageCosts, rows: tuple[Any, ...], arriving: Floats, returning: Floats
) -> tuple[Floats, Floats]:
    """Least time per micro-batch (`t`) and least share of the sum (`u`) of stages.

    Args:
        rows: selects costs: an index of their arrays.
        arriving: lower bound on the activations' transfer, in seconds.
        returning: lower bound on the gradients' transfer, in seconds.
    """
    whole, weights = costs.time[rows] + arriving + returning, case.weights
    full = numpy.maximum(costs.time[rows], costs.shared[rows] + arriving + returning) if case.hiding else whole
    time = numpy.maximum(full, costs.busiest[rows])
    if weights.uniform:
        # Where messages take longer, ports are waited for no more, so that their sum is no less.
        return time, weights.forward * (whole + (time - full) if case.hiding else time)
    return time, costs.weighed(weights)[rows] + weights.of_messages(arriving, returning)


def value(case: Case, slowest: float, added: float, sync: float) -> float:
    """`A * max t + sum u + max y`, rounded down against floating-point error."""
    return (case.weights.slowest * slowest + added + sync) * (1 - SUM_ERROR)


def time_limit(case: Case, target: float, added: float, sync: float) -> float:
    """Upper limit on `t` in a plan below `target` with at least `sum u = added` and `max y = sync`."""
    if case.weights.slowest <= 0:
        return inf
    return (target - added - sync) / case.weights.slowest * (1 + SUM_ERROR)


@frozen(eq=False)
class Choices:
    """Choices of one stage of a plan; one choice per row."""

    candidate: Integers
    mode: Integers
    stage: Integers  # Index in `Cuts`.
    time: Floats  # Seconds per micro-batch without transfers and ports.
    sync: Floats  # Seconds per batch without ports.

    def __len__(self) -> int:
        return len(self.stage)

    def only(self, rows: Booleans) -> "Choices":
        """Select rows."""
        return Choices(self.candidate[rows], self.mode[rows], self.stage[rows], self.time[rows], self.sync[rows])


@frozen(eq=False)
class ReducedCase:
    """A case with its remaining choices by stage, and the lower bound (s) on its plans below the target."""

    choices: tuple[Choices, ...]
    bound: float


def reduce(relaxation: Relaxation, case: Case, target: float, overfull: Overfull = ()) -> ReducedCase | None:
    """Keep the choices that plans below `target` can have; None: no choice is left.

    A choice is dropped if it does not fit, if another of the same layers is at least as fast in both respects, or if
    the fastest stages around it, in any placement, still make the plan too slow.
    """
    relaxation.make_room()
    choices = [_fitting(relaxation, case, index, overfull) for index in range(case.stages)]
    fewest, bound, paths = sum(map(len, choices)) + 1, 0.0, relaxation.paths(case)
    while sum(map(len, choices)) < fewest:
        fewest = sum(map(len, choices))
        own = [_with_transfers(relaxation, case, each) for each in choices]
        times = [_tables(relaxation, case, each, time) for each, (time, _) in zip(choices, own, strict=True)]
        added = [_tables(relaxation, case, each, add) for each, (_, add) in zip(choices, own, strict=True)]
        syncs = [_tables(relaxation, case, each, each.sync) for each in choices]
        before, after = paths.forward(added), paths.backward(added)
        total, sync = least(before[-1]), paths.least(syncs, numpy.maximum)
        if total == inf:
            return None
        slowest = max(paths.least(times, numpy.maximum), paths.least(times) / case.stages)
        bound = max(value(case, slowest, total, sync), bound)
        if bound > target:
            return None
        limit = time_limit(case, target, total, sync)
        for index, (each, (time, add)) in enumerate(zip(choices, own, strict=True)):
            first, last, through = relaxation.cuts.first[each.stage], relaxation.cuts.last[each.stage], add.copy()
            for team, rows in enumerate(_of_teams(relaxation, case, each)):
                through[rows] += paths.around(before[index], after[index + 1], team, first[rows], last[rows])
            reached = numpy.isfinite(through)
            batch = case.weights.slowest * numpy.maximum(slowest, time) + numpy.maximum(sync, each.sync)
            batch += numpy.where(reached, through, 0.0)
            choices[index] = each.only(reached & (time <= limit) & (batch * (1 - SUM_ERROR) <= target))
    return ReducedCase(tuple(choices), bound)


def _of_teams(relaxation: Relaxation, case: Case, choices: Choices) -> list[Booleans]:
    return [
        numpy.isin(choices.candidate, [case.candidates[position] for position in team])
        for team, _ in teams(relaxation.instance, case)
    ]


def _with_transfers(relaxation: Relaxation, case: Case, choices: Choices) -> tuple[Floats, Floats]:
    """`t` and `u` of each choice with its tensors sent over the cheapest levels."""
    time, added = numpy.zeros((2, len(choices)))
    for candidate in case.candidates:
        own = choices.candidate == candidate
        cheapest, stage = relaxation.transfers(case, candidate), choices.stage[own]
        around = cheapest[relaxation.cuts.first[stage]], cheapest[relaxation.cuts.last[stage]]
        costs = relaxation.book.costs(case, candidate)
        time[own], added[own] = least_times(case, costs, (choices.mode[own], stage), *around)
    return time, added


def _tables(relaxation: Relaxation, case: Case, choices: Choices, values: Floats) -> list[Floats]:
    """Least value by team and by the cuts before and after a stage; infinite where no choice is left."""
    count, tables = relaxation.cuts.count, []
    for own in _of_teams(relaxation, case, choices):
        table = numpy.full((count, count), inf)
        order = numpy.argsort(-values[own], kind="stable")
        stage = choices.stage[own][order]
        # Of several values for one place the last one written stays: the least.
        table[relaxation.cuts.first[stage], relaxation.cuts.last[stage]] = values[own][order]
        tables.append(table)
    return tables


def _fitting(relaxation: Relaxation, case: Case, index: int, overfull: Overfull) -> Choices:
    """Undominated choices of a stage that fit its memory."""
    flying = case.in_flight(index + 1)
    first, last = relaxation.cuts.first, relaxation.cuts.last
    ends = (first == 0) if index == 0 else (first != 0)
    ends &= (last == relaxation.cuts.count - 1) if index == case.stages - 1 else (last != relaxation.cuts.count - 1)
    if relaxation.instance.space.even:
        even, behind = even_stages(relaxation.instance, case.stages), relaxation.cuts.behind
        ends &= (behind == (even >= index)).all(axis=1)[first] & (behind == (even > index)).all(axis=1)[last]
    fitting = []
    for candidate, modes in zip(case.candidates, case.modes, strict=True):
        costs = relaxation.book.costs(case, candidate)
        capacity = relaxation.instance.cluster_of(candidate).memory * (1 + LIMIT_SLACK)
        fits = (costs.one + (flying - 1) * costs.more <= capacity) & ends
        rows = costs.rows(modes)
        for stage, mode in ((stage, mode) for at, who, mode, stage in overfull if (at, who) == (index, candidate)):
            fits[costs.modes.index(mode), stage] = False
        for row in rows:
            others = [
                each for each in rivals(costs.modes, row, rows) if _comparable(relaxation.instance, costs, row, each)
            ]
            needed = fits[row].copy()
            for other in others:
                needed &= ~(fits[other] & _wins(costs, other, row, case))
            stages = numpy.nonzero(needed)[0]
            fitting.append(
                Choices(
                    numpy.full(len(stages), candidate),
                    numpy.full(len(stages), row),
                    stages,
                    costs.time[row, stages],
                    costs.sync[row, stages],
                )
            )
    fields = ("candidate", "mode", "stage", "time", "sync")
    return Choices(*(numpy.concatenate([getattr(each, name) for each in fitting]) for name in fields))


def _comparable(instance: Instance, costs: StageCosts, one: int, other: int) -> bool:
    """True if a faster choice here is faster everywhere; on a network, collectives may cost more elsewhere.

    There, modes compare only with the same ZeRO stage and without hiding.
    """
    return instance.network is None or (costs.modes[one][1] == costs.modes[other][1] and not instance.space.hiding)


def _wins(costs: StageCosts, one: int, other: int, case: Case) -> Booleans:
    """Mask of stages for which mode `one` dominates mode `other`; ties go to the mode listed first."""
    wins: Booleans = costs.as_fast(one, other, case)
    return wins if one < other else wins & ~costs.as_fast(other, one, case)
