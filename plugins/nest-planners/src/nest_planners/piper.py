"""Piper's objective (Tarnawski, Narayanan and Phanishayee, NeurIPS 2021): the slowest stage alone counts.

Its authors' program is msr-fiddle/piper; plugins/nest-planners/README.md says what is kept.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy
from attrs import evolve

from nest.hooks.planning import PlannerContext, Proposal
from nest.instance import Array, Candidate, Instance, RecomputeMode, Result, Solution, StageDecision
from nest.spec.constraints import equals
from nest_planners.shapes import Choices, Units, modes, partition, permitted, requested_counts, units
from nest_planners.splits import Option, even_slowest, over_submeshes
from nest_planners.tables import StageTable, in_flight_from_end, plain_schedules, stage_table, touching_bytes
from nest_planners.views import Believed, first_that_fits, flat, usable_devices, usual_order

ENDLESS = 10**8
"""Micro-batches, at least, of a pipeline whose filling does not count: it takes less than 1e-6 of the time."""


class Piper:
    """The most throughput of a pipeline that is always full, on a network of one bandwidth.

    A stage's time is its compute, what crosses its boundaries both ways and its share of reducing gradients; memory
    is that of the micro-batches in flight. Filling and draining the pipeline do not count.
    """

    name = "piper"
    summary = "the least slowest stage on a network of one bandwidth, filling and draining left out"

    def plan(self, instance: Instance, context: PlannerContext) -> Proposal:
        """The plan of least seconds per sample by its own model that fits."""
        objective = _Objective(instance, flat(instance, context))
        ranked = objective.ranked() if objective.in_one_order else objective.over_downsets(context.search)
        return first_that_fits(context, ranked, "it predicts {:.4g} s without a bubble.")


class _Objective:
    def __init__(self, instance: Instance, view: Instance) -> None:
        self._instance, self._view = instance, view
        self._pieces: Units = units(instance)
        self._devices = usable_devices(instance)
        self._schedule = plain_schedules(instance)[0]
        self._zero = min(instance.space.zero)  # Piper has data parallelism alone.

    @property
    def in_one_order(self) -> bool:
        """True if stages are runs of one order: each unit reads the one before, or plans may be mixed."""
        read = {(each[0], consumer) for each in self._instance.graph.tensors for consumer in each[1]}
        joined = all(any((a, b) in read for a in one for b in other) for one, other in pairwise(self._pieces))
        return joined or self._instance.space.mixed

    def ranked(self) -> Iterator[Believed]:
        """Plans with the seconds that the whole batch takes in a full pipeline."""
        if self._instance.space.mixed:
            yield from self._mixed()
        for index, replicas, micro_batches in self._shapes():
            candidate = self._view.candidates[index]
            held = in_flight_from_end(self._schedule, micro_batches)
            for name in modes(self._instance, candidate):
                choices = Choices(index, replicas, usual_order(self._instance), self._schedule, name, self._zero, None)
                table = self._table(candidate, candidate.mode(name), self._zero, replicas, micro_batches)
                best = None
                for split in even_slowest(table, self._devices // (candidate.width * replicas), held):
                    allowed = permitted(self._instance, candidate, replicas, len(split.cuts) + 1)
                    if allowed and (best is None or split.slowest < best.slowest):
                        best = split
                if best is not None:
                    cut = partition(self._pieces, best.cuts)
                    yield best.slowest * micro_batches, choices.solution(self._instance, cut)

    def over_downsets(self, search: Callable[[Instance], Result]) -> Iterator[Believed]:
        """The same where the graph branches: stages are differences of any downsets, as in the paper.

        The exact dynamic program decides, of tensors sent straight to their readers and of batches so long that the
        slowest stage alone counts.
        """
        orders, instance = (usual_order(self._instance),), self._instance
        for index, replicas, micro_batches in self._shapes():
            candidate = self._view.candidates[index]
            share = self._reduced(candidate, replicas) / self._view.cluster.levels[0].bandwidth / micro_batches
            longer = -(-ENDLESS // micro_batches)
            # Constraints on the number of micro-batches speak of the whole batch: `_shapes` checked them.
            kept = tuple(each for each in instance.space.constraints if "micro_batches" not in each.names())
            space = evolve(
                instance.space,
                global_batch=instance.space.global_batch * longer,
                schedules=(self._schedule,),
                rank_orders=orders,
                zero=(self._zero,),
                constraints=(*kept, equals("replicas", replicas)),
                direct=True,
            )
            only = evolve(candidate, forward=candidate.forward + share)
            found = search(evolve(self._view, candidates=(only,), space=space))
            if found.solution is not None and found.batch_time is not None:
                stages = tuple(evolve(stage, candidate=index) for stage in found.solution.stages)
                yield found.batch_time / longer, evolve(found.solution, stages=stages)

    def _shapes(self) -> Iterator[tuple[int, int, int]]:
        """Candidates, replicas that share the micro-batches evenly (the paper's condition on `d`), micro-batches."""
        for index in requested_counts(self._instance):
            candidate = self._view.candidates[index]
            for replicas in range(1, self._devices // candidate.width + 1):
                micro_batches = self._instance.micro_batches(candidate, replicas)
                if micro_batches is None or self._instance.space.global_batch % (replicas * candidate.samples):
                    continue
                yield index, replicas, micro_batches

    def _reduced(self, candidate: Candidate, replicas: int) -> Array:
        """Bytes that each layer's gradients take to reduce, by Piper's formula. Shape `(layers,)`."""
        found = numpy.zeros(len(self._view.graph.layers))
        for group in candidate.state:
            sharing = replicas * len(group.ranks)
            found += 4 * (sharing - 1) / sharing * group.gradients / 2
        return found

    def _table(
        self, candidate: Candidate, mode: RecomputeMode, zero: int, replicas: int, micro_batches: int
    ) -> StageTable:
        """A stage's time with what crosses its boundaries, there and back, and its share in reducing gradients."""
        view, (level,) = self._view, self._view.cluster.levels[:1]
        share = self._reduced(candidate, replicas) / level.bandwidth / micro_batches
        table = stage_table(view, self._pieces, candidate, mode, zero, replicas, share)
        return evolve(table, time=table.time + touching_bytes(view, self._pieces, candidate) / level.bandwidth)

    def _mixed(self) -> Iterator[Believed]:
        """Stages that each have a width and replicas of their own (the strategy `batch`), where plans may be mixed."""
        usable, zero = requested_counts(self._instance), self._zero
        for samples in sorted({self._view.candidates[index].samples for index in usable}):
            same = [index for index in usable if self._view.candidates[index].samples == samples]
            micro_batches = self._instance.micro_batches(self._view.candidates[same[0]], 1)
            if micro_batches is None:
                continue
            held = in_flight_from_end(self._schedule, micro_batches)
            chosen = [(index, name) for index in same for name in modes(self._instance, self._view.candidates[index])]
            most = min(len(self._pieces), self._devices)
            options = []
            for index, name in chosen:
                candidate = self._view.candidates[index]
                table = self._table(candidate, candidate.mode(name), zero, 1, micro_batches)
                options.append(Option.of(table, candidate.width, held, most))
            split = over_submeshes(options, self._devices, False, None)
            if split is None:
                continue
            stages, end = [], 0
            for (layers,), place in zip(partition(self._pieces, split.cuts), split.options, strict=True):
                index, name = chosen[place]
                width = self._view.candidates[index].width
                offset = -(-end // width) * width
                end = offset + width
                stages.append(StageDecision(layers, index, name, zero, offset))
            order = usual_order(self._instance)
            yield split.slowest * micro_batches, Solution(1, order, self._schedule.name, tuple(stages))
