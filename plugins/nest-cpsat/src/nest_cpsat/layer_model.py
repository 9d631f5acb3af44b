"""Models of cases of graphs with too many cuts to list: a stage for each layer.

Each layer is behind a boundary or before it, and readers of a layer behind it are behind it too. Costs are sums over
layers. Three are only bounded from below: collectives, priced at a few sizes (assuming more bytes never take less
time); ports, which ZeRO leaves free here; and numbers, rounded down. So a model without a solution is a proof, but a
solution may not be a better plan; exact pricing decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy

from nest.instance import Candidate, Instance, RecomputeMode, Solution, StageDecision, copies_of
from nest.reuse import remembered
from nest.tolerances import LIMIT_SLACK
from nest_cpsat.cases import Case, has_ports
from nest_cpsat.cuts import Floats
from nest_cpsat.layer_choices import Choice
from nest_cpsat.layer_stages import LayerStages
from nest_cpsat.placement import place
from nest_cpsat.replay import step_time
from nest_cpsat.scaling import LARGEST_COEFFICIENT, LONGEST, Limit, Scale, floors, largest_slowest
from nest_cpsat.stages import DataParallelGroup, data_parallel_groups, held_state, least_pieces, rows_of_state

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import IntVar

    from nest_cpsat.placement import Term

SIZES = 16  # Sizes at which a collective is priced; sizes between two cost as much as the smaller.

UNITS = 2**24
"""Units of a device's memory and of a collective's bytes: rounding a thousand layers down loses less than 1e-4, and
coefficients stay far below the range where CP-SAT errs."""


class LayerModel(LayerStages):
    """Model of one case over layers.

    Attributes:
        limit: on the step time, which is minimised; None: any plan will do.
        near: for each boundary, a variable for each possible level.
    """

    def __init__(self, instance: Instance, case: Case, limit: Limit | None, *, ordered: bool = True) -> None:
        """Build the model; `ordered` keeps blocks in pipeline order (monotone placement)."""
        super().__init__(instance, case)
        self.limit = limit
        offered = [[(choice.candidate, literal) for choice, literal in row.items()] for row in self._taken]
        self._placement = place(self.model, instance, case, offered, ordered=ordered)
        self.near = self._placement.levels
        for i in range(case.stages):
            self._memory_suffices(i)
        if limit is not None:
            self._times_count(*limit)

    @property
    def inexact(self) -> str:
        """Reason why a plan may take longer than modelled; empty: collectives are free, so it does not."""
        space = self._instance.space
        hidden = space.exposed == space.often_exposed == 0 and not space.hiding
        if self._case.apart and has_ports(self._instance, self._case):
            return "waiting for network ports has only a lower bound: the layer graph has too many cuts to list"
        if hidden and not has_ports(self._instance, self._case):
            return ""
        groups = [each for candidate in self._case.candidates for each in self._groups_of(candidate)]
        alone = all(each.shard_size == 1 and not each.replicates for each in groups)
        return "" if alone else "collectives have only a lower bound: the layer graph has too many cuts to list"

    def _groups(self, choice: Choice) -> Iterator[tuple[dict[str, Floats], DataParallelGroup]]:
        state = self._candidate(choice).state
        yield from zip(map(rows_of_state, state), self._groups_of(choice.candidate), strict=True)

    @remembered
    def _groups_of(self, candidate: int) -> tuple[DataParallelGroup, ...]:
        return data_parallel_groups(self._instance, self._case, candidate)

    def _memory_suffices(self, stage: int) -> None:
        """Bound each choice's state, micro-batches in flight and largest peak by the capacity."""
        cluster = self._instance.cluster
        unit, flying = cluster.memory / UNITS, self._case.in_flight(stage + 1)
        room = int((cluster.memory * (1 + LIMIT_SLACK) - cluster.reserve) / unit) + 1
        for choice, taken in self._taken[stage].items():
            used, zero = self._candidate(choice), self._instance.space.effective_zero(choice.zero)
            state: Floats = numpy.zeros(self._count)
            for sums, group in self._groups(choice):
                state = state + copies_of(self._case.schedule) * held_state(sums, group.shard_size, zero)
            held = partial(_held, state=state, further=flying - 1, unit=unit)
            total = self._by_mode(stage, choice, held)
            if choice.zero == 3:
                total = total + floors(numpy.array([used.gathered]), unit)[0]
            if stage > 0 and flying > 1:
                total = total + self._stashed(stage, choice, floors((flying - 1) * used.tensor_bytes, unit))
            peaks = defaultdict[int, list["Term"]](list)
            for mode, terms in self._in_modes(stage, choice):
                for peak, term in zip(floors(mode.peak, unit), terms, strict=True):
                    peaks[peak].append(term)
            for peak in sorted({0, *peaks}):
                here = self.model.new_bool_var("")
                for term in peaks[peak] if peak else ():
                    self.model.add(here >= term)
                self.model.add(total + peak * here <= room).only_enforce_if(taken)

    def _stashed(self, stage: int, choice: Choice, sizes: Sequence[int]) -> Term:
        """Inputs that a stage keeps if any of its layers runs in a mode that stashes them."""
        every = self._in_modes(stage, choice)
        stashed = sum(s * c for s, c in zip(sizes, self.crossing[stage - 1], strict=True))
        if len({mode.stash_inputs for mode, _ in every}) == 1:
            return stashed if every[0][0].stash_inputs else 0
        kept, some = self.model.new_int_var(0, sum(sizes), ""), self.model.new_bool_var("")
        for term in (term for mode, terms in every if mode.stash_inputs for term in terms):
            self.model.add(some >= term)
        self.model.add(kept >= stashed).only_enforce_if(some)
        return kept

    def _times_count(self, scale: Scale, limit: int) -> None:
        """Constrain `A * max t + sum u + max y` from below by the stages' choices."""
        model, stages, apart = self.model, self._case.stages, self._case.apart
        # Only where nothing hides, and all weighs the same, no time is longer than the limit allows of the sum.
        most = LONGEST if apart else limit // max(scale.slowest, scale.total, 1)
        times = [model.new_int_var(0, most, f"own {stage}") for stage in range(stages)]
        sync = model.new_int_var(0, limit // scale.sync, "sync")
        # What layers compute whatever their stages choose is said apart, which spares CP-SAT much.
        modes = [(each, self._candidate(each).mode(each.recompute)) for each in self._choices]
        least = numpy.minimum.reduce([self._work(*each) for each in modes])
        for stage, own in enumerate(times):
            model.add(own >= self._over(stage, [scale.ticks(t) for t in least.tolist()]))
            for choice, taken in self._taken[stage].items():
                self._stage_counts(stage, choice, taken, scale, own, sync)
        messages = self._messages(scale, most)
        slowest = model.new_int_var(0, min(most, largest_slowest(scale, limit)), "slowest")
        whole = [model.new_int_var(0, most, f"time {stage}") for stage in range(stages)]
        in_sum = scale.sync * sync + (0 if apart else scale.total * sum(whole))
        for stage, variable in enumerate(whole):
            arriving, returning = messages[stage]
            received = [sum(arriving.values()), sum(returning.values())]
            model.add(variable >= times[stage] + (0 if self._case.hiding else sum(received)))
            if apart:
                shared, added = self._parts(stage, scale, most, limit, received)
                model.add(variable >= shared + sum(received))
                in_sum = in_sum + added
            model.add(slowest >= variable)
            levels = range(len(self._instance.cluster.levels))
            occupying = [arriving.get(level, 0) + returning.get(level, 0) for level in levels]
            self._ports_are_occupied(stage, variable, occupying, scale)
        model.minimize(step_time(model, scale.slowest * slowest + in_sum, None, (), scale, sync, limit))

    def _parts(self, stage: int, scale: Scale, most: int, limit: int, received: Sequence[Term]) -> tuple[Term, Term]:
        """ZeRO ticks of a stage, and its part of the sum with all it receives in both directions."""
        shared = self.model.new_int_var(0, most, f"shared {stage}")
        weighed = self.model.new_int_var(0, limit // scale.sync, f"added {stage}")
        weights, space = self._case.weights, self._instance.space
        for choice, taken in self._taken[stage].items():
            used = self._candidate(choice)

            def ticks(mode: RecomputeMode, used: Candidate = used) -> list[int]:
                found = used.finding_weight_gradients
                layers = weights.of_parts(used.forward, used.backward - found + mode.extra, found).tolist()
                return [scale.sync_ticks(each) for each in layers]

            self.model.add(weighed >= self._by_mode(stage, choice, ticks)).only_enforce_if(taken)
            often, _ = self._sharding(stage, choice, scale, space.often_exposed, space.exposed)
            self.model.add(shared >= often).only_enforce_if(taken)
        # Of which passes what ZeRO sends is part is not asked: it weighs no less than in those that weigh least.
        least = scale.weight(min(weights.forward, weights.input_gradients))
        arriving, returning = scale.weight(weights.arriving), scale.weight(weights.returning)
        return shared, arriving * received[0] + returning * received[1] + least * shared + scale.sync * weighed

    def _stage_counts(self, stage: int, choice: Choice, taken: IntVar, scale: Scale, own: IntVar, sync: IntVar) -> None:
        """Bound a stage's time without transfers, and its time per batch, from below if it takes a choice.

        With hiding, time is the larger of compute plus the exposed share, and all communication; per batch it is the
        exposed share and what the compute of one micro-batch leaves.
        """
        space = self._instance.space

        def rounded(ticks: Callable[[float], int], mode: RecomputeMode) -> list[int]:
            return [ticks(t) for t in self._work(choice, mode).tolist()]

        computed = self._by_mode(stage, choice, partial(rounded, scale.ticks))
        updates = (sums["update"] / (group.shard_size if choice.zero else 1) for sums, group in self._groups(choice))
        update = sum((self._over(stage, [scale.sync_ticks(u) for u in row.tolist()]) for row in updates), start=0)
        per_micro_batch, per_batch = self._sharding(stage, choice, scale, space.often_exposed, space.exposed)
        self.model.add(own >= computed + per_micro_batch).only_enforce_if(taken)
        self.model.add(sync >= per_batch + update).only_enforce_if(taken)
        if space.hiding:
            per_micro_batch, per_batch = self._sharding(stage, choice, scale, 1.0, 1.0)
            self.model.add(own >= per_micro_batch).only_enforce_if(taken)
            hidden = partial(rounded, scale.covering_ticks)
            # Without this the model only forgets a bound; with coefficients so large CP-SAT can be wrong.
            if max(max(hidden(mode)) for mode, _ in self._in_modes(stage, choice)) <= LARGEST_COEFFICIENT:
                covered = self._by_mode(stage, choice, hidden)
                self.model.add(sync >= per_batch + update - covered).only_enforce_if(taken)

    def _work(self, choice: Choice, mode: RecomputeMode) -> Floats:
        """Seconds of compute of each layer in a mode."""
        used = self._candidate(choice)
        return used.forward + used.backward + mode.extra

    def _sharding(self, stage: int, choice: Choice, scale: Scale, share: float, share_once: float) -> tuple[Term, Term]:
        """These shares of ZeRO communication in ticks: per micro-batch, and per batch."""
        per_micro_batch: Term = 0
        per_batch: Term = 0
        space, zero = self._instance.space, self._instance.space.effective_zero(choice.zero)
        once = share_once * space.synchronisation * (space.sharded_synchronisation if zero else 1.0)
        for sums, group in self._groups(choice):
            gradients, weights = (tuple(sums[name].tolist()) for name in ("gradients", "weights"))
            shards = partial(self._collective, stage=stage, shapes=group.shards, members=group.shard_size)
            scatter = partial(shards, kind="reduce_scatter", sizes=gradients)
            gather = partial(shards, kind="all_gather", sizes=weights)
            reduce = partial(self._collective, once, stage, "all_reduce", ticks=scale.sync_ticks)
            if zero and group.replicates:
                held = tuple((sums["gradients"] / group.shard_size).tolist())
                across = group.members // group.shard_size
                per_batch = per_batch + reduce(sizes=held, shapes=group.replicates, members=across)
            sent = [("reduce_scatter", "gradients", scatter, 1)] if zero >= 2 else []
            sent += [("all_gather", "weights", gather, 2)] if zero == 3 else []
            for kind, of, whole, times in sent:
                least = least_pieces(self._instance, kind, of, sums, group)
                rows = None if least is None else [scale.ticks(share * each) for each in least.tolist()]
                spent = whole(share, ticks=scale.ticks) if rows is None else self._over(stage, rows)
                per_micro_batch = per_micro_batch + times * spent
            if zero == 0:
                per_batch = per_batch + reduce(sizes=gradients, shapes=(group.shape,), members=group.members)
            if zero == 1:
                per_batch = per_batch + scatter(once, ticks=scale.sync_ticks)
            if zero in (1, 2):
                per_batch = per_batch + gather(once, ticks=scale.sync_ticks)
        return per_micro_batch, per_batch

    @remembered
    def _collective(
        self,
        share: float,
        stage: int,
        kind: str,
        sizes: tuple[float, ...],
        shapes: tuple[tuple[int, ...], ...],
        members: int,
        ticks: Callable[[float], int],
    ) -> Term:
        """Lower bound (ticks) on a share of a collective over the stage's bytes, on the slowest group.

        Zero bytes take no time; otherwise there are at least the bytes of one layer.
        """
        total = sum(sizes)
        if total == 0:
            return 0
        price, levels = self._instance.collectives.time, self._instance.cluster.levels
        least = min(size for size in sizes if size > 0)
        # Bytes are rounded down layer by layer, so this share of them may be missing from what a stage holds.
        missing = len(sizes) / UNITS
        parts = [0.0, *(step / SIZES - missing for step in range(1, SIZES + 1))]
        prices = [
            ticks(share * max(float(price(kind, size, s, levels, members=members)) for s in shapes))
            for size in (max(total * part, least) for part in parts)
        ]
        spent = prices[0] * self._any(stage, tuple(layer for layer, size in enumerate(sizes) if size > 0))
        if max(prices) <= prices[0]:
            return spent
        held = self._over(stage, floors(numpy.array(sizes), total / UNITS))
        for step in range(1, SIZES + 1):
            reached = self.model.new_bool_var("")
            self.model.add(held < step * UNITS // SIZES - len(sizes)).only_enforce_if(~reached)
            spent = spent + max(prices[step] - max(prices[:step]), 0) * reached
        return spent

    @remembered
    def _any(self, stage: int, layers: tuple[int, ...]) -> Term:
        """At least 1 if a stage runs any of these layers."""
        if len(layers) == self._count:
            return 1
        some = self.model.new_bool_var("")
        for layer in layers:
            self.model.add(some >= self._runs(stage, layer))
        return some

    def _ports_are_occupied(self, stage: int, time: IntVar, messages: Sequence[Term], scale: Scale) -> None:
        """Bound a stage's time by the port occupation of layers and messages; ZeRO may occupy less with more bytes."""
        for choice, taken in self._taken[stage].items():
            used = self._candidate(choice)
            for level, busy in enumerate([] if used.busy is None else used.busy):

                def ticks(mode: RecomputeMode, level: int = level, busy: Floats = busy) -> list[int]:
                    more = 0.0 if mode.busy is None else mode.busy[level]
                    return [scale.ticks(seconds) for seconds in (busy + more).tolist()]

                occupied = self._by_mode(stage, choice, ticks) + messages[level]
                self.model.add(time >= occupied).only_enforce_if(taken)

    def _messages(self, scale: Scale, most: int) -> list[tuple[dict[int, Term], dict[int, Term]]]:
        """By stage and level, ticks of received activations and of received gradients.

        Without ports all levels count as one.
        """
        inner = range(self._case.stages - 1)
        arriving = [{}, *(self._transfer(boundary, boundary + 1, scale, most) for boundary in inner)]
        returning = [*(self._transfer(boundary, boundary, scale, most) for boundary in inner), {}]
        return list(zip(arriving, returning, strict=True))

    def _transfer(self, boundary: int, stage: int, scale: Scale, most: int) -> dict[int, Term]:
        """Ticks of a stage for a boundary at each level; without ports all count as one."""
        alike = not has_ports(self._instance, self._case)
        levels = [0] if alike else self._placement.levels[boundary]
        spent: dict[int, Term] = {level: self.model.new_int_var(0, most, "") for level in levels}
        crossing = self.crossing[boundary]
        for candidate in self._case.candidates:
            sizes = self._instance.candidates[candidate].tensor_bytes
            used = sum(literal for choice, literal in self._taken[stage].items() if choice.candidate == candidate)
            some = self.model.new_bool_var("")
            for size, crosses in zip(sizes, crossing, strict=True):
                if size > 0:
                    self.model.add(some >= crosses)
            for level, near in self._placement.levels[boundary].items():
                link = self._instance.cluster.levels[level]
                ticks = [scale.ticks(size / link.bandwidth) for size in sizes.tolist()]
                total = scale.ticks(link.latency) * some + sum(t * c for t, c in zip(ticks, crossing, strict=True))
                both = self.model.new_bool_var("")
                self.model.add(both >= near + used - 1)
                self.model.add(spent[0 if alike else level] >= total).only_enforce_if(both)
        return spent

    def forbid(self, stages: Sequence[Any], over: Sequence[int] = ()) -> None:
        """Exclude plans with all these stages (from `solution`) and these boundary levels."""
        differs: list[Term] = [1 - near.get(level, 0) for near, level in zip(self.near, over, strict=False)]
        for stage, ahead, after, _, inside in stages:
            own = self._first(stage).inside.values() if inside else ()
            differs += [1 - each if value else each for each, value in zip(own, inside, strict=True)]
            pairs = [*zip(self.behind[stage], ahead, strict=True), *zip(self.behind[stage + 1], after, strict=True)]
            differs += [1 - each if value else each for each, value in pairs if not isinstance(each, int)]
        self.model.add(sum(differs) + sum(1 - self._taken[stage][choice] for stage, _, _, choice, _ in stages) >= 1)

    def solution(self, value: Callable[[IntVar], int]) -> tuple[Solution, Sequence[Any]]:
        """Decode a solution; also return for each stage its entry for `forbid`."""
        stages, taken = [], []
        behind = [[each if isinstance(each, int) else value(each) for each in row] for row in self.behind]  # type: ignore[arg-type]
        for stage, offset in enumerate(self._placement.offsets(value)):
            choice = next(choice for choice, literal in self._taken[stage].items() if value(literal))
            ahead, after = behind[stage : stage + 2]
            layers = tuple(layer for layer in range(self._count) if ahead[layer] and not after[layer])
            part, name, inside = choice.part, choice.recompute, list[int]()
            if part is not None:
                first = self._first(stage)
                name, inside = part._replace(layers=value(first.count)).name, [*map(value, first.inside.values())]
            stages.append(StageDecision(layers, choice.candidate, name, choice.zero, offset))
            taken.append((stage, ahead, after, choice, inside))
        return self._case.plan(stages), taken


def _held(mode: RecomputeMode, state: Floats, further: float, unit: float) -> list[int]:
    """Memory units of layers in a mode with `further` more micro-batches in flight."""
    return floors(mode.first + further * mode.more + state, unit)
