"""Lower bounds on the costs of plans beside compute, for any stages, and on their step times.

These costs are recomputation, ZeRO's communication, gradient reduction and the optimizer step, of all stages together.
Each stage has at least its layers' share, so at best the stages share them evenly.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
from attrs import define, field

from nest.instance import Array, ParameterGroup, Weights
from nest.solve.dp.choices import layer_modes
from nest.solve.dp.compute_bounds import ComputeBounds, apart
from nest.solve.dp.zero import Shape, sharding
from nest.tolerances import SUM_ERROR

if TYPE_CHECKING:
    from nest.solve.dp.choices import Choice
    from nest.solve.dp.configurations import Configuration


class BesideCompute(NamedTuple):
    """Lower bounds for all stages of a plan together."""

    seconds: float  # Per micro-batch, beside forward and backward passes.
    sync: float  # Seconds per batch.

    def rest(self, weights: Weights, stages: int) -> float:
        """Seconds of a step beside its slowest stage."""
        return self.seconds * max(min(weights.forward, weights.input_gradients), 0.0) + self.sync / stages


NO_GROUP, NO_RATES = (0.0, 0.0, 0.0, 0.0, 0.0, 1.0), (0.0, 0.0, 0.0, 0.0, 1.0)
"""Values of a candidate with fewer parameter groups than others."""


def _summed(group: ParameterGroup) -> tuple[float, ...]:
    """Bytes of weights, gradients and optimizer of all layers, and seconds of the optimizer step, before ZeRO.

    Then the least bytes of weights per byte of gradients of any layer, and the number of ranks with equal parameters.
    """
    some = group.gradients > 0
    share = (group.weights[some] / group.gradients[some]).min(initial=numpy.inf) if some.any() else 0.0
    rows = (group.weights, group.gradients, group.optimizer, group.update)
    return *(float(row.sum()) for row in rows), float(share), float(len(group.ranks))


def _each_micro_batch(gather: Any, scatter: Any, zero: int) -> tuple[Any, Any]:
    """Seconds per micro-batch of a byte of weights and of a byte of gradients with an effective ZeRO stage.

    ZeRO 2 scatters gradients, ZeRO 3 also gathers weights for both passes (the table of PROBLEM.md section 4).
    """
    return 2 * gather if zero == 3 else 0.0, scatter if zero >= 2 else 0.0


@define(eq=False, repr=False)
class FirstBounds(ComputeBounds):
    """Lower bounds on step times before any stage is examined, each computed once."""

    _beside: dict[Hashable, BesideCompute] = field(factory=dict)
    _groups: dict[int, list[tuple[float, ...]]] = field(factory=dict)
    _recomputed: dict[tuple[int, tuple[str, ...]], tuple[float, float]] = field(factory=dict)
    _slopes: dict[Hashable, float] = field(factory=dict)
    _per_byte: dict[Hashable, tuple[float, ...]] = field(factory=dict)

    def of_configuration(self, configuration: Configuration, more: Array | None = None) -> Array:
        """Lower bound (s) on plans of one candidate, by number of stages.

        `more` are the seconds beside compute of all stages, by number; None: those of `beside`.
        """
        decided = (configuration.schedule, configuration.micro_batches, configuration.stage_counts)
        used, beside = configuration.candidate, self.beside(configuration)
        if more is None:
            return self.of(used, *decided, (beside.seconds, beside.sync))
        return self.least(used, self.rows_of(*decided), numpy.array(configuration.stage_counts), (more, beside.sync))

    def rest(self, configuration: Configuration, weights: Weights, stages: int) -> float:
        """Lower bound (s) on a step beside its slowest stage."""
        return self.total_of(configuration.candidate)(weights) + self.beside(configuration).rest(weights, stages)

    def slowest(self, configuration: Configuration, stages: int) -> float:
        """Lower bound (s per micro-batch) on the slowest of so many stages."""
        total = self.whole(configuration.candidate)[1]
        return (total + self.beside(configuration).seconds) / stages

    def beside(self, configuration: Configuration) -> BesideCompute:
        """Costs of plans of one candidate beside compute."""
        key = self._decided(configuration)
        if key not in self._beside:
            self.learn((configuration,))
        return self._beside[key]

    def learn(self, every: Iterable[Configuration]) -> None:
        """Compute `beside` of several plans together."""
        unknown: dict[tuple[Choice, ...], dict[Hashable, Configuration]] = {}
        for each in every:
            if (key := self._decided(each)) not in self._beside:
                unknown.setdefault(each.choices, {})[key] = each
        for choices, plans in unknown.items():
            (seconds,), (sync,) = self.beside_each(list(plans.values()), (choices,)).tolist()
            self._beside.update(zip(plans, map(BesideCompute, seconds, sync), strict=True))

    def _decided(self, configuration: Configuration) -> Hashable:
        degrees = (configuration.replicas, configuration.zero_degree)
        return configuration.candidate, self._stride(configuration), configuration.choices, *degrees

    def beside_each(self, every: Sequence[Configuration], sets: Sequence[tuple[Choice, ...]]) -> Array:
        """Same for several plans with each of several sets of choices. Shape `(2, sets, plans)`.

        Of communication that hides under each stage's compute, at least the excess over all compute shows.
        """
        space, (used, place) = self.instance.space, apart([each.candidate for each in every])
        modes = [layer_modes(choices) for choices in sets]
        zeros = [tuple(sorted({each.zero for each in choices})) for choices in sets]
        extra, work = numpy.array([[self._recomputing(index, names) for names in modes] for index in used])[place].T
        sent = self._sent(every, set(zeros))
        once, often, update = numpy.array([sent[each] for each in zeros]).swapaxes(0, 1)
        shown, often_shown = space.exposed * once, space.often_exposed * often
        if space.hiding:
            shown, often_shown = numpy.maximum(shown, once - work), numpy.maximum(often_shown, often - work)
        return numpy.array([extra + often_shown, shown + update]) * (1 - SUM_ERROR)

    def _recomputing(self, index: int, modes: tuple[str, ...]) -> tuple[float, float]:
        """Least recomputation and most compute of all layers with such modes, in seconds per micro-batch."""
        key = (index, modes)
        if key not in self._recomputed:
            rows = [self.instance.candidates[index].mode(name).extra for name in modes]
            least, most = (float(each.reduce(rows).sum()) for each in (numpy.minimum, numpy.maximum))
            self._recomputed[key] = least, self.whole(index)[1] + most
        return self._recomputed[key]

    def _sent(self, every: Sequence[Configuration], zeros: Collection[tuple[int, ...]]) -> dict[tuple[int, ...], Array]:
        """Seconds of communication per batch and per micro-batch, and of the optimizer step. Shape `(3, plans)`.

        By set of ZeRO stages that the stages may use.
        """
        found = {each: numpy.zeros((3, len(every))) for each in zeros}
        for number, summed in enumerate(self.groups(every)):
            per_byte = numpy.array([self._rates(each, number) for each in every]).T
            for each, total in found.items():
                rows = [self._of_group(summed, per_byte, zero, alone=len(each) == 1) for zero in each]
                # With an open ZeRO stage, each number is the least over the stages.
                total += rows[0] if len(rows) == 1 else numpy.minimum.reduce(rows)
        return found

    def groups(self, every: Sequence[Configuration]) -> Array:
        """Parameter groups as in `_summed`, padded with empty ones. Shape `(groups, 6, plans)`."""
        used, place = apart([each.candidate for each in every])
        for index in used.keys() - self._groups.keys():
            self._groups[index] = [_summed(group) for group in self.instance.candidates[index].state]
        state = [self._groups[index] for index in used]
        most = max(map(len, state))
        rows = numpy.array([[*each, *[NO_GROUP] * (most - len(each))] for each in state], dtype=numpy.float64)
        return rows.reshape(len(used), most, len(NO_GROUP))[place].transpose(1, 2, 0)

    def _of_group(self, summed: Array, per_byte: Array, zero: int, *, alone: bool) -> Array:
        """Same as `_sent` for one parameter group and one ZeRO stage (the table of PROBLEM.md section 4).

        Layers of one ZeRO stage alone send all weights; with several, gradients tell the amount.
        """
        space, (weights, gradients, _, update, share, _) = self.instance.space, summed
        waiting = space.synchronisation * (space.sharded_synchronisation if zero else 1.0)
        effective, (reduce, gather, scatter, replicate, count) = space.effective_zero(zero), per_byte
        found: Array = numpy.zeros_like(summed[:3])
        if effective == 0:
            found[0], found[2] = waiting * (gradients * reduce), update
            return found
        weights = weights if alone else numpy.minimum(share * gradients, weights)
        once = gradients / count * replicate
        if effective < 3:
            once = (gradients * scatter + weights * gather if effective == 1 else weights * gather) + once
        of_weights, of_gradients = _each_micro_batch(gather, scatter, effective)
        found[0], found[1], found[2] = waiting * once, gradients * of_gradients + weights * of_weights, update / count
        return found

    def often(self, configuration: Configuration, zero: int) -> Array:
        """Lower bound (s per micro-batch) on exposed ZeRO communication of each layer of the one candidate."""
        candidate, effective = (
            self.instance.candidates[configuration.candidate],
            self.instance.space.effective_zero(zero),
        )
        seconds = numpy.zeros(len(candidate.forward))
        for number, group in enumerate(candidate.state):
            _, gather, scatter, *_ = self._rates(configuration, number)
            of_weights, of_gradients = _each_micro_batch(gather, scatter, effective)
            seconds += group.gradients * of_gradients + group.weights * of_weights
        return seconds

    def _rates(self, configuration: Configuration, number: int) -> tuple[float, ...]:
        """Seconds per byte of a parameter group's collectives, and the ranks over which ZeRO shards it.

        Gradients reduced over all ranks, weights gathered, gradients scattered, and their rest reduced over replicate
        groups.
        """
        state = self.instance.candidates[configuration.candidate].state
        if number >= len(state):
            return NO_RATES
        stride, ranks = self._stride(configuration), state[number].ranks
        decided = (stride, configuration.replicas, ranks, configuration.zero_degree)
        if decided not in self._per_byte:
            shared = sharding(self.instance.cluster.capacities, *decided)
            shards = shared.shards, shared.count
            across = shared.members // shared.count
            self._per_byte[decided] = (
                self._slope("all_reduce", (shared.whole,), shared.members),
                self._slope("all_gather", *shards),
                self._slope("reduce_scatter", *shards),
                self._slope("all_reduce", shared.replicates, across) if shared.replicates else 0.0,
                float(shared.count),
            )
        return self._per_byte[decided]

    def _stride(self, configuration: Configuration) -> int:
        """Distance between ranks of one stage in neighbouring replicas."""
        inner = configuration.rank_order == "pp-inner"
        return configuration.size if inner else self.instance.candidates[configuration.candidate].width

    def _slope(self, kind: str, shapes: tuple[Shape, ...], members: int) -> float:
        """Lower bound (s per byte) on a collective; 0.0 if the model gives none."""
        per_byte: Any = getattr(self.instance.collectives, "per_byte", None)
        if per_byte is None or members == 1:
            return 0.0
        key = (kind, shapes, members)
        if key not in self._slopes:
            levels = self.instance.cluster.levels
            self._slopes[key] = max(per_byte(kind, shape, levels, members=members) for shape in shapes)
        return self._slopes[key]
