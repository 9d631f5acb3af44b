"""Lower bounds on what plans take, whatever their stages hold: by compute and ports alone, and beside compute.

Beside it are recomputation, ZeRO's communication, gradient reduction and the optimizer step, of all stages together:
each stage's share is at least what its layers add to these sums, so that the stages share them out at best evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy
from attrs import define, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Candidate, Instance, ParameterGroup, Schedule, Weights, chunks_of, weights_of
from nest.solve.dp.choices import part_rows
from nest.solve.dp.zero import Shape, Sharding, sharding
from nest.tolerances import SUM_ERROR

if TYPE_CHECKING:
    from nest.solve.dp.choices import Choice
    from nest.solve.dp.configurations import Configuration


def port_bounds(candidate: Candidate) -> tuple[float, float, float]:
    """Seconds per micro-batch of the longest layer, that all compute, and that the busiest port needs for all layers.

    The longest layer is one that computes or sends for longest (PROBLEM.md section 4, Ports).
    """
    times = candidate.forward + candidate.backward
    longest, total = float(times.max()), float(times.sum())
    if candidate.busy is None:
        return longest, total, 0.0
    return max(longest, float(candidate.busy.max())), total, float(candidate.busy.sum(axis=1).max())


@define(eq=False, repr=False)
class ShareOut:
    """What the slowest of some stages takes at least, as each layer lies on one stage, whichever that is.

    Of the `kp + 1` longest layers one of `p` stages has `k + 1`, by the pigeonhole principle, which take no less than
    the shortest `k + 1` of them (Dell'Amico and Martello, ORSA J. Computing 7(2), 1995, their bound L2 for identical
    machines).

    Attributes:
        layers: how many there are.
    """

    layers: int
    _first: NDArray[numpy.int64] = field(init=False)
    _behind: NDArray[numpy.int64] = field(init=False)
    _starts: NDArray[numpy.int64] = field(init=False)

    def __attrs_post_init__(self) -> None:
        each = [numpy.arange((self.layers - 1) // stages + 1) for stages in range(1, self.layers + 1)]
        times = numpy.concatenate(each)
        sizes = numpy.array([len(some) for some in each])
        ends = times * numpy.arange(1, self.layers + 1).repeat(sizes) + 1
        self._first, self._behind, self._starts = ends - times - 1, ends, sizes.cumsum() - sizes

    def slowest(self, seconds: Array) -> Array:
        """Seconds of the slowest of 1 to `layers` stages at least, by those of the layers. Shape `(layers,)` both."""
        sums = numpy.concatenate([[0.0], numpy.sort(seconds)[::-1].cumsum()])
        most = numpy.maximum.reduceat(sums[self._behind] - sums[self._first], self._starts)
        found: Array = most - SUM_ERROR * sums[-1]
        return found


@define(eq=False, repr=False)
class ComputeBounds:
    """Lower bounds on the batch time from compute and ports alone, each worked out once for all that shares it.

    Attributes:
        instance: the problem.
    """

    instance: Instance
    _compute: dict[int, tuple[float, float, float]] = field(factory=dict)
    _share_out: list[ShareOut] = field(factory=list)
    _slowest: dict[int, Array] = field(factory=dict)
    _parts: dict[int, tuple[float, float, float]] = field(factory=dict)
    _weights: dict[Hashable, Array] = field(factory=dict)
    _known: dict[Hashable, Array] = field(factory=dict)

    def of(
        self,
        candidate: int,
        schedule: Schedule,
        micro_batches: int,
        counts: Sequence[int],
        beside: tuple[float, float] = (0.0, 0.0),
    ) -> Array:
        """Seconds that no plan beats, for each of `counts` stages: they are equally long, or share out layers unevenly.

        Args:
            candidate: index of the candidate of all stages.
            schedule: the pipeline schedule.
            micro_batches: `M`.
            counts: numbers of stages.
            beside: seconds beside compute that all stages together take per micro-batch, and once per batch.
        """
        key = (candidate, schedule.name, chunks_of(schedule), micro_batches, tuple(counts), beside)
        if key not in self._known:
            rows = self.rows_of(schedule, micro_batches, counts)
            self._known[key] = self.least(candidate, rows, numpy.array(counts, dtype=numpy.int64), beside)
        return self._known[key]

    def rows_of(self, schedule: Schedule, micro_batches: int, counts: Sequence[int]) -> Array:
        """As `rows`, kept."""
        key = (schedule.name, chunks_of(schedule), micro_batches, tuple(counts))
        if key not in self._weights:
            self._weights[key] = self.rows(schedule, micro_batches, counts)
        return self._weights[key]

    def rows(self, schedule: Schedule, micro_batches: int, counts: Sequence[int]) -> Array:
        """Weights of the step time, for each of `counts` stages; shape `(counts, 6)`.

        They are of the slowest stage, of the sum of all times, of the sums of their three parts, and of one of the
        first two.
        """
        weights = [weights_of(schedule, micro_batches, count) for count in counts]
        return numpy.array([_row(each) for each in weights], dtype=numpy.float64).reshape(-1, 6)

    def least(
        self, candidate: int, rows: Array, stages: NDArray[Any], beside: tuple[Array | float, Array | float]
    ) -> Array:
        """As `of`, for the weights of any schedules and numbers of stages; a row for each of several `beside`."""
        (longest, total, ported), (more, sync) = self.whole(candidate), beside
        working = numpy.maximum(total + more, ported)
        slowest = numpy.maximum(self.longest_compute(candidate).take(stages - 1, mode="clip"), longest)
        with numpy.errstate(invalid="ignore"):
            bound: Array = rows[:, 0] * numpy.maximum(working / stages, slowest) + rows[:, 1] * working + sync / stages
            if rows[:, 2:].any():
                bound += rows[:, 2:5] @ self._by_parts(candidate) + rows[:, 5] * more
        # What takes for ever is no plan, even where a schedule weighs it with 0.
        bound[numpy.isnan(bound)] = numpy.inf
        return bound

    def whole(self, candidate: int) -> tuple[float, float, float]:
        """As `port_bounds`, kept."""
        if candidate not in self._compute:
            self._compute[candidate] = port_bounds(self.instance.candidates[candidate])
        return self._compute[candidate]

    def longest_compute(self, candidate: int) -> Array:
        """Seconds per micro-batch that the slowest of 1, 2, ... stages computes at least. Shape `(layers,)`.

        Layers that no cut may part are one.
        """
        if candidate not in self._slowest:
            used, home = self.instance.candidates[candidate], self._homes()
            seconds = numpy.bincount(home, used.forward + used.backward).astype(numpy.float64)
            if not self._share_out:
                self._share_out.append(ShareOut(len(seconds)))
            self._slowest[candidate] = self._share_out[0].slowest(seconds)
        return self._slowest[candidate]

    def _homes(self) -> NDArray[numpy.int64]:
        """Which of the groups that no cut may part each layer is of; others are groups of their own."""
        home = numpy.arange(len(self.instance.graph.layers))
        for group in self.instance.space.together:
            for layer in group:
                home[home == home[layer]] = home[group[0]]
        return numpy.unique(home, return_inverse=True)[1]

    def _by_parts(self, candidate: int) -> tuple[float, float, float]:
        """Seconds per micro-batch of all layers: of forward passes, gradients of inputs and those of weights."""
        if candidate not in self._parts:
            rows = part_rows(self.instance.candidates[candidate])
            forward, inputs, weights = (float(row.sum()) for row in rows)
            self._parts[candidate] = forward, inputs, weights
        return self._parts[candidate]

    def total_of(self, candidate: int) -> Callable[[Weights], float]:
        """What the sum over stages adds to the step at least, from compute alone, by what the parts weigh; seconds."""
        total, parts = self.whole(candidate)[1], self._by_parts(candidate)

        def weighed(weights: Weights) -> float:
            return weights.forward * total if weights.uniform else float(weights.of_parts(*parts))

        return weighed


def _row(weights: Weights) -> tuple[float, ...]:
    """Of the slowest stage, of the sum of all times, of the sums of their three parts, and of one of the first two."""
    if weights.uniform:
        return weights.slowest, weights.forward, 0.0, 0.0, 0.0, 0.0
    parts = (weights.forward, weights.input_gradients, weights.weight_gradients)
    return weights.slowest, 0.0, *parts, max(min(parts[:2]), 0.0)


@frozen
class BesideCompute:
    """Of all stages of a plan together, at least.

    Attributes:
        seconds: per micro-batch, beside forward and backward passes.
        sync: seconds once per batch.
    """

    seconds: float
    sync: float

    def rest(self, weights: Weights, stages: int) -> float:
        """Seconds of a step beside its slowest stage, of so many stages."""
        return self.seconds * max(min(weights.forward, weights.input_gradients), 0.0) + self.sync / stages


@frozen
class _Group:
    """A parameter group, summed over all layers: bytes, and seconds of the optimizer step before ZeRO.

    Attributes:
        ranks: as `ParameterGroup.ranks`.
        weights: of all layers.
        gradients: of all layers.
        update: of all layers.
        share: bytes of weights for each byte of gradients, at least, of any layer.
    """

    ranks: tuple[int, ...]
    weights: float
    gradients: float
    update: float
    share: float

    @classmethod
    def of(cls, group: ParameterGroup) -> _Group:
        some = group.gradients > 0
        share = (group.weights[some] / group.gradients[some]).min(initial=numpy.inf) if some.any() else 0.0
        weights, gradients, update = (float(row.sum()) for row in (group.weights, group.gradients, group.update))
        return cls(group.ranks, weights, gradients, update, float(share))


@define(eq=False, repr=False)
class FirstBounds(ComputeBounds):
    """Lower bounds on step times before any stage is looked at, each worked out once for all that shares it."""

    _beside: dict[Hashable, BesideCompute] = field(factory=dict)
    _groups: dict[int, tuple[_Group, ...]] = field(factory=dict)
    _extra: dict[Hashable, tuple[Array, Array, list[tuple[int, ...]], list[int]]] = field(factory=dict)
    _of_sets: dict[Hashable, tuple[Array, Array]] = field(factory=dict)
    _known_sent: dict[Hashable, tuple[float, float, float]] = field(factory=dict)
    _slopes: dict[Hashable, float] = field(factory=dict)
    _sharding: dict[Hashable, Sharding] = field(factory=dict)

    def of_configuration(self, configuration: Configuration, more: Array | None = None) -> Array:
        """Seconds that no plan of one candidate beats, for each of its numbers of stages.

        `more` are the seconds beside compute of all stages, for each number; None: as `beside` has them.
        """
        decided = (configuration.schedule, configuration.micro_batches, configuration.stage_counts)
        used, beside = configuration.candidate, self.beside(configuration)
        if more is None:
            return self.of(used, *decided, (beside.seconds, beside.sync))
        return self.least(used, self.rows_of(*decided), numpy.array(configuration.stage_counts), (more, beside.sync))

    def rest(self, configuration: Configuration, weights: Weights, stages: int) -> float:
        """Seconds of a step beside its slowest stage, of plans with so many stages, at least."""
        return self.total_of(configuration.candidate)(weights) + self.beside(configuration).rest(weights, stages)

    def slowest(self, configuration: Configuration, stages: int) -> float:
        """Seconds per micro-batch of the slowest of so many stages, at least."""
        total = self.whole(configuration.candidate)[1]
        return (total + self.beside(configuration).seconds) / stages

    def beside(self, configuration: Configuration) -> BesideCompute:
        """What plans of one candidate take beside compute."""
        degrees = (configuration.replicas, configuration.zero_degree)
        key = (configuration.candidate, self._stride(configuration), configuration.choices, *degrees)
        if key not in self._beside:
            seconds, sync = self._beside_sets(configuration, (configuration.choices,))
            self._beside[key] = BesideCompute(float(seconds[0]), float(sync[0]))
        return self._beside[key]

    def beside_each(self, configuration: Configuration, sets: tuple[tuple[Choice, ...], ...]) -> tuple[Array, Array]:
        """As `beside`, with each of several sets of choices: seconds per micro-batch and per batch, shape `(sets,)`.

        Of what hides under the compute of each stage, at least what all of it is longer than all compute shows.
        """
        degrees = (configuration.replicas, configuration.zero_degree)
        key = (configuration.candidate, self._stride(configuration), sets, *degrees)
        if key not in self._of_sets:
            self._of_sets[key] = self._beside_sets(configuration, sets)
        return self._of_sets[key]

    def _beside_sets(self, configuration: Configuration, sets: tuple[tuple[Choice, ...], ...]) -> tuple[Array, Array]:
        space, stride = self.instance.space, self._stride(configuration)
        extra, work, zeros, place = self._recomputed(configuration.candidate, sets)
        once, often, update = numpy.array([self._sent(configuration, stride, each) for each in zeros])[place].T
        shown, often_shown = space.exposed * once, space.often_exposed * often
        if space.hiding:
            shown, often_shown = numpy.maximum(shown, once - work), numpy.maximum(often_shown, often - work)
        return (extra + often_shown) * (1 - SUM_ERROR), (shown + update) * (1 - SUM_ERROR)

    def _recomputed(
        self, index: int, sets: tuple[tuple[Choice, ...], ...]
    ) -> tuple[Array, Array, list[tuple[int, ...]], list[int]]:
        """Of sets of choices what all layers recompute at least, compute in all at most, and the ZeRO stages.

        The first two in seconds per micro-batch, shape `(sets,)`; the stages each once, and of each set their place.
        """
        key = (index, sets)
        if key not in self._extra:
            candidate = self.instance.candidates[index]
            rows = [numpy.array([candidate.mode(each.recompute).extra for each in choices]) for choices in sets]
            least = numpy.array([each.min(axis=0).sum() for each in rows])
            most = numpy.array([each.max(axis=0).sum() for each in rows])
            work = float((candidate.forward + candidate.backward).sum()) + most
            stages = [tuple(sorted({each.zero for each in some})) for some in sets]
            known = list(dict.fromkeys(stages))
            self._extra[key] = least, work, known, [known.index(each) for each in stages]
        return self._extra[key]

    def _sent(self, configuration: Configuration, stride: int, zeros: tuple[int, ...]) -> tuple[float, float, float]:
        """Seconds of communication once per batch and per micro-batch, and of the optimizer step.

        Choices that differ in recompute modes alone send alike.
        """
        key = (configuration.candidate, stride, configuration.replicas, configuration.zero_degree, *zeros)
        if key in self._known_sent:
            return self._known_sent[key]
        if configuration.candidate not in self._groups:
            state = self.instance.candidates[configuration.candidate].state
            self._groups[configuration.candidate] = tuple(map(_Group.of, state))
        total = numpy.zeros(3)
        for group in self._groups[configuration.candidate]:
            rows = [self._of_group(group, configuration, stride, zero, alone=len(zeros) == 1) for zero in zeros]
            # Of layers whose ZeRO stage is open each number is that of the stage which makes it least.
            total += rows[0] if len(rows) == 1 else numpy.minimum.reduce(rows)
        once, often, update = total.tolist()
        self._known_sent[key] = once, often, update
        return self._known_sent[key]

    def _of_group(self, group: _Group, configuration: Configuration, stride: int, zero: int, *, alone: bool) -> Array:
        """As `_sent`, of one group with one ZeRO stage (the table of PROBLEM.md section 4).

        Layers of one stage alone send all their weights; of several ZeRO stages gradients say how many.
        """
        space, decided = self.instance.space, (stride, configuration.replicas, group.ranks, configuration.zero_degree)
        if decided not in self._sharding:  # A cluster takes longer to hash than all the rest.
            self._sharding[decided] = sharding(self.instance.cluster, *decided)
        shared = self._sharding[decided]
        waiting = space.synchronisation * (space.sharded_synchronisation if zero else 1.0)
        effective, gradients = space.effective_zero(zero), group.gradients
        weights = group.weights if alone else min(group.share * gradients, group.weights)
        if effective == 0:
            reduce = gradients * self._slope("all_reduce", (shared.whole,), shared.members)
            return numpy.array([waiting * reduce, 0.0, group.update])
        gather = weights * self._slope("all_gather", shared.shards, shared.count)
        scatter = gradients * self._slope("reduce_scatter", shared.shards, shared.count)
        once = {1: scatter + gather, 2: gather}.get(effective, 0.0)
        of_weights, of_gradients = self._each_micro_batch(shared, effective)
        often = gradients * of_gradients + weights * of_weights
        if shared.replicates:
            across = shared.members // shared.count
            once += gradients / shared.count * self._slope("all_reduce", shared.replicates, across)
        return numpy.array([waiting * once, often, group.update / shared.count])

    def often(self, configuration: Configuration, zero: int) -> Array:
        """Seconds per micro-batch of ZeRO's communication at least, for each layer of its one candidate, in the open.

        Args:
            configuration: what is decided.
            zero: the ZeRO stage of all stages.
        """
        candidate, stride = self.instance.candidates[configuration.candidate], self._stride(configuration)
        seconds = numpy.zeros(len(candidate.forward))
        for group in candidate.state:
            decided = (stride, configuration.replicas, group.ranks, configuration.zero_degree)
            shared = sharding(self.instance.cluster, *decided)
            of_weights, of_gradients = self._each_micro_batch(shared, self.instance.space.effective_zero(zero))
            seconds += group.gradients * of_gradients + group.weights * of_weights
        return seconds

    def _each_micro_batch(self, shared: Sharding, zero: int) -> tuple[float, float]:
        """Seconds that a byte of weights and one of gradients take in every micro-batch, with an effective ZeRO stage.

        ZeRO 2 scatters gradients, ZeRO 3 gathers weights for either pass too (the table of PROBLEM.md section 4).
        """
        gather = 2 * self._slope("all_gather", shared.shards, shared.count) if zero == 3 else 0.0
        scatter = self._slope("reduce_scatter", shared.shards, shared.count) if zero >= 2 else 0.0
        return gather, scatter

    def _stride(self, configuration: Configuration) -> int:
        """How far apart the ranks of one stage are in neighbouring replicas."""
        inner = configuration.rank_order == "pp-inner"
        return configuration.size if inner else self.instance.candidates[configuration.candidate].width

    def _slope(self, kind: str, shapes: tuple[Shape, ...], members: int) -> float:
        """Seconds per byte that a collective takes at least; 0.0 where the model says nothing."""
        per_byte: Any = getattr(self.instance.collectives, "per_byte", None)
        if per_byte is None or members == 1:
            return 0.0
        key = (kind, shapes, members)
        if key not in self._slopes:
            levels = self.instance.cluster.levels
            self._slopes[key] = max(per_byte(kind, shape, levels, members=members) for shape in shapes)
        return self._slopes[key]
