"""Megatron-LM's rules of thumb (arXiv 2104.04473, sections 3.2 to 3.4)."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count as counter
from math import inf
from operator import itemgetter

from attrs import frozen

from nest.hooks.planning import Assessment, PlannerContext, Proposal
from nest.instance import (
    Candidate,
    Instance,
    RecomputeMode,
    Schedule,
    Solution,
    Weights,
    admits,
    chunks_of,
    copies_of,
    fullest_moments,
    weights_of,
)
from nest.tolerances import LIMIT_SLACK, SUM_ERROR
from nest_planners.shapes import (
    Choices,
    Stages,
    dealt,
    even_cuts,
    modes,
    partition,
    replica_counts,
    requested_counts,
    units,
)
from nest_planners.tables import sharded_state
from nest_planners.views import node_level, usual_order

FAVOURED = ("tp", "sp", "ep")
"""Order in which the devices of a block are used: tensor parallelism inside a node, sequence parallelism wherever there
is any (arXiv 2205.05198, section 4.2.2: it sends no more), then experts of their own."""


ONCE_PER_BATCH = 1
"""ZeRO stage with which today's guides begin: Megatron-LM's distributed optimizer, which sends no more than without
(docs.nvidia.com/megatron-core, Distributed Optimizer)."""


class Manual:
    """A sweep as people make it: the fastest even split that fits, the optimizer sharded first, then not.

    It goes over all degrees inside a node, sequence parallelism wherever there is tensor parallelism, all numbers of
    stages with which replicas use every device, recompute modes and micro-batches. Higher ZeRO stages are tried only
    where nothing fits, and the rest of `manual-first`'s ladder only where no such plan does.
    """

    name = "manual"
    summary = "a sweep of even splits inside the node, the optimizer sharded or not: the fastest that fits"

    def plan(self, instance: Instance, context: PlannerContext) -> Proposal:
        """The fastest plan of the sweep that fits; else the one that is short of the least memory."""
        climbed = _Climbed(instance, context)
        swept, (usual, others) = _sweep(instance), _shapes(instance)
        zeros = _zeros(instance)
        first = sorted((zero for zero in zeros if zero <= ONCE_PER_BATCH), reverse=True)
        for shapes in (swept, usual, others):
            for tried in (first, *([zero] for zero in zeros if zero > ONCE_PER_BATCH)):
                climbed.onto_all(_steps(instance, shapes, tried))
                if climbed.best is not None:
                    return Proposal(climbed.best[2])
        return climbed.nothing()


class ManualFirst:
    """Tensor parallelism inside a node as far as memory needs, then stages, then replicas.

    Takeaway 1: tensor parallelism up to the devices of a node, then pipeline parallelism. Takeaway 2: as few devices
    for one copy of the model as it fits into, all others for data parallelism. Takeaway 3: the best micro-batch depends
    on the rest, so the fastest one that fits counts. Blocks are divided evenly among stages. Recomputation, then
    ZeRO from stage 1 (Megatron-LM's distributed optimizer) on, are used where nothing fits without.
    """

    name = "manual-first"
    summary = "Megatron-LM's rules of thumb, read literally: the first step that fits, small copies of the model first"

    def plan(self, instance: Instance, context: PlannerContext) -> Proposal:
        """The first step of the ladder that fits; else the one that is short of the least memory."""
        climbed = _Climbed(instance, context)
        for shapes in _shapes(instance):
            for step in _steps(instance, shapes, _zeros(instance)):
                climbed.onto_all([step])
                if climbed.best is not None:
                    return Proposal(climbed.best[2])
        return climbed.nothing()


Tried = tuple[float, int, Solution]
"""Score of a plan, the less the better; its index among all tried; and the plan."""


class _Climbed:
    """The steps that were tried.

    Attributes:
        best: step time, place and plan of the fastest one that fits; of equals the first.
    """

    def __init__(self, instance: Instance, context: PlannerContext) -> None:
        self._instance, self._context = instance, context
        self._bounds: dict[tuple[int, int], _Bound] = {}
        self._weighed: dict[tuple[int, int], tuple[Weights | None, ...]] = {}
        self._splits: dict[tuple[int, int], Stages | None] = {}
        self._places = counter()
        self.best: Tried | None = None
        self._closest: Tried | None = None
        self._fault = -1, "no degrees and number of stages leave every stage a layer"

    def onto_all(self, steps: Iterable["_Step"]) -> None:
        """Price the plans of some steps, but for those that compute for longer than another takes.

        Those that compute least come first, so that few are priced. Those whose first stage lacks memory are priced
        only where nothing fits, to say which is short of least.
        """
        every = [(step, index, next(self._places)) for step in steps for index in step.candidates]
        bounded = sorted(
            [(self._least(step, index), place, step, index) for step, index, place in every], key=itemgetter(0, 1)
        )
        for bound, place, step, index in bounded:
            if self.best is not None and bound > self.best[0] * (1 + LIMIT_SLACK):
                return
            plan, seen = self._on_step(step, index, fitting=True)
            if plan is not None and seen.admitted and seen.priced is not None:
                self.best = min(
                    self.best or (inf, 0, plan), (seen.priced.batch_time, place, plan), key=itemgetter(0, 1)
                )
        for _, place, step, index in bounded if self.best is None else ():
            plan, seen = self._on_step(step, index)
            if plan is None or seen.priced is None:
                self._fault = max(self._fault, (place, next(iter(seen.faults), self._fault[1])))
            else:
                self._closest = min(self._closest or (inf, 0, plan), (seen.missing, place, plan), key=itemgetter(0, 1))

    def _least(self, step: "_Step", index: int) -> float:
        """Seconds that no plan of one candidate on a step beats; infinite where all stages together lack memory."""
        instance, candidate, stages = self._instance, self._instance.candidates[index], step.stages
        allowed = modes(instance, candidate)
        if step.saving >= len(allowed):
            return inf
        mode, cluster = candidate.mode(allowed[step.saving]), instance.cluster_of(index)
        if (index, step.saving) not in self._bounds:
            self._bounds[index, step.saving] = _Bound.of(candidate, mode)
        room, bound = cluster.memory * (1 + LIMIT_SLACK) - cluster.reserve, self._bounds[index, step.saving]
        least = inf
        for replicas in replica_counts(instance, candidate, stages):
            batches = instance.micro_batches(candidate, replicas) or 0
            state = float(sharded_state(candidate, replicas, step.zero, instance.space.zero_degrees[0]).sum())
            for schedule, weights in zip(instance.space.schedules, self._weights(batches, stages), strict=True):
                # A stage of one chunk has a micro-batch or more in flight.
                needed = state * copies_of(schedule) + (bound.first if chunks_of(schedule) == 1 else 0.0)
                if weights is not None and needed * (1 - LIMIT_SLACK) <= room * stages:
                    least = min(least, bound.at(weights, stages))
        return least

    def _weights(self, batches: int, stages: int) -> tuple[Weights | None, ...]:
        """The weights of each schedule; None where it has no plan of so many micro-batches and stages."""
        if (batches, stages) not in self._weighed:
            self._weighed[batches, stages] = tuple(
                weights_of(each, batches, stages) if admits(each, stages, batches) else None
                for each in self._instance.space.schedules
            )
        return self._weighed[batches, stages]

    def _on_step(self, step: "_Step", index: int, *, fitting: bool = False) -> tuple[Solution | None, Assessment]:
        """The plan of one candidate on a step, with the most replicas there may be and the first schedule that fits.

        Where `fitting` ones alone are asked for, those that clearly do not fit are not priced.
        """
        instance, candidate, space = self._instance, self._instance.candidates[index], self._instance.space
        allowed = modes(instance, candidate)
        order = usual_order(instance)
        last = Assessment((f"the batch cannot be divided among replicas of {step.stages} stages",), None)
        first: tuple[Solution, Assessment] | None = None
        if step.saving >= len(allowed):
            return None, last
        for place, schedule in enumerate(space.schedules):
            if (place, step.stages) not in self._splits:
                self._splits[place, step.stages] = _split(instance, step.stages, schedule)
            split = self._splits[place, step.stages]
            if split is None:
                continue
            for replicas in replica_counts(instance, candidate, step.stages):
                decided = (index, replicas, order, schedule, allowed[step.saving], step.zero, space.zero_degrees[0])
                chosen = Choices(*decided)
                if (fitting or first is not None) and _is_short(instance, chosen, split):
                    break
                solution = chosen.solution(instance, split)
                last = self._context.assess(solution)
                if last.admitted:
                    return solution, last
                if last.priced is not None:
                    first = first or (solution, last)
                    break
        return first or (None, last)

    def nothing(self) -> Proposal:
        """Explain that nothing fits."""
        if self._closest is not None:
            return Proposal(self._closest[2], ("no step of the rules fits into memory; this is the closest.",))
        return Proposal(None, (f"no step of the rules is a plan of the problem; of the last one: {self._fault[1]}.",))


@frozen
class _Bound:
    """Lower bound of plans of one candidate and one recompute mode, seconds per micro-batch.

    Attributes:
        longest: of the longest layer.
        total: of all layers, what is recomputed among it.
        first: bytes of one micro-batch in flight, of all layers.
        parts: of all layers, by forward passes, gradients of inputs and gradients of weights.
    """

    longest: float
    total: float
    first: float
    parts: tuple[float, float, float]

    @classmethod
    def of(cls, candidate: Candidate, mode: RecomputeMode) -> "_Bound":
        """That of a candidate in a mode."""
        times, gradients = candidate.forward + candidate.backward, candidate.finding_weight_gradients
        inputs = float((candidate.backward - gradients).clip(min=0.0).sum())
        parts = float(candidate.forward.sum()), inputs, float(gradients.sum())
        return cls(float(times.max()), float((times + mode.extra).sum()), float(mode.first.sum()), parts)

    def at(self, weights: Weights, stages: int) -> float:
        """Step time, seconds, that no plan of so many stages beats (PROBLEM.md section 4): equal ones, or one layer."""
        together = weights.forward * self.total if weights.uniform else weights.of_parts(*self.parts)
        return (weights.slowest * max(self.total / stages, self.longest) + float(together)) * (1 - SUM_ERROR)


@frozen
class _Step:
    """One step of the ladder: how large one copy of the model is, and what is done to make it fit.

    Attributes:
        candidates: of one width and the same degrees, which differ in their micro-batches.
        stages: in number.
        saving: place in the list of recompute modes, those that cost least first.
        zero: ZeRO stage.
    """

    candidates: tuple[int, ...]
    stages: int
    saving: int
    zero: int


Shape = tuple[tuple[int, ...], int]
"""Candidates of one width, and a number of stages."""


def _steps(instance: Instance, shapes: Sequence[Shape], zeros: Sequence[int]) -> Iterator[_Step]:
    """Every step in order: a copy of the model grows before anything else is done to save memory."""
    savings = max(len(modes(instance, each)) for each in instance.candidates)
    for zero in zeros:
        for saving in range(savings):
            for candidates, stages in shapes:
                yield _Step(candidates, stages, saving, zero)


def _zeros(instance: Instance) -> list[int]:
    return sorted(set(instance.space.zero))


def _sweep(instance: Instance) -> list[Shape]:
    """Every candidate inside a node with every number of stages that leaves no device idle."""
    node, devices = instance.cluster.capacities[node_level(instance)], instance.cluster.size
    found, counts = list[Shape](), dict[int, list[int]]()
    for index in requested_counts(instance):
        candidate = instance.candidates[index]
        halfway = candidate.degrees.get("sp", candidate.degrees.get("tp", 1)) != candidate.degrees.get("tp", 1)
        if candidate.width <= node and not halfway:
            width = candidate.width
            counts[width] = counts.get(width) or _stage_counts(instance, width)
            found += [((index,), count) for count in counts[width] if devices % (count * width) == 0]
    return found


def _shapes(instance: Instance) -> tuple[list[Shape], ...]:
    """Candidates and numbers of stages: wider blocks up to a node, then more stages of the widest; and all others."""
    by_width = _by_width(instance)
    inside = [width for width in by_width if width <= instance.cluster.capacities[node_level(instance)]]
    counts = {width: _stage_counts(instance, width) for width in by_width}
    usual = [(width, 1) for width in inside if 1 in counts[width]]
    usual += [(width, count) for width in inside[-1:] for count in counts[width] if count > 1]
    others = [(width, count) for width in by_width for count in counts[width] if (width, count) not in usual]
    return tuple(
        [(by_width[width], count) for width, count in shapes if width * count <= instance.cluster.size]
        for shapes in (usual, others)
    )


def _by_width(instance: Instance) -> dict[int, tuple[int, ...]]:
    """For each width, ascending, the candidates of the most favoured degrees."""
    by_width: dict[int, tuple[int, ...]] = {}
    possible = requested_counts(instance)
    for width in sorted({instance.candidates[index].width for index in possible}):
        indices = [index for index in possible if instance.candidates[index].width == width]
        degrees = [instance.candidates[index].degrees for index in indices]
        best = max(degrees, key=lambda each: [each.get(name, 1) for name in FAVOURED])
        by_width[width] = tuple(index for index, each in zip(indices, degrees, strict=True) if each == best)
    return by_width


def _stage_counts(instance: Instance, width: int) -> list[int]:
    """Numbers of stages of so wide blocks, those first that Megatron-LM takes by default.

    It asks for replicas of tp x cp x pp devices that use all there are, and for blocks that divide into the stages,
    unless `--decoder-first-pipeline-num-layers` or a layout says otherwise.
    """
    fixed = instance.space.partition
    if fixed is not None:
        return [len(fixed)]
    devices, count = instance.cluster.size, len(units(instance))
    return sorted(
        range(1, min(count, devices // width) + 1),
        key=lambda stages: (devices % (stages * width) != 0, count % stages != 0, stages),
    )


def _is_short(instance: Instance, chosen: Choices, stages: Stages) -> bool:
    """Return whether the first stage of a plan of one candidate lacks memory, what is only transient left out.

    Where the batch cannot be shared it is left to others to say so.
    """
    candidate, cluster = instance.candidates[chosen.candidate], instance.cluster_of(chosen.candidate)
    schedule, batches = chosen.schedule, instance.micro_batches(candidate, chosen.replicas)
    if batches is None:
        return False
    mode, layers = candidate.mode(chosen.recompute), sorted(layer for chunk in stages[0] for layer in chunk)
    state = sharded_state(candidate, chosen.replicas, chosen.zero, chosen.zero_degree)[layers].sum()
    more = [float(mode.more[list(chunk)].sum()) for chunk in stages[0]]
    moments = fullest_moments(schedule, 1, len(stages), batches)
    further = max(sum((held - 1) * each for held, each in zip(moment, more, strict=True)) for moment in moments)
    needed = state * copies_of(schedule) + float(mode.first[layers].sum()) + further
    return bool(needed * (1 - LIMIT_SLACK) > cluster.memory - cluster.reserve)


def _split(instance: Instance, stages: int, schedule: Schedule) -> Stages | None:
    """The chunks of each stage: as fixed, else divided evenly."""
    if chunks_of(schedule) > 1:
        return dealt(instance, schedule, stages)
    fixed = instance.space.partition
    if fixed is not None:
        return tuple((tuple(sorted(layers)),) for layers in fixed) if len(fixed) == stages else None
    pieces = units(instance)
    return partition(pieces, even_cuts(len(pieces), stages)) if stages <= len(pieces) else None
