"""Piper's objective (Tarnawski, Narayanan and Phanishayee, NeurIPS 2021): the slowest stage alone counts.

Its authors' program is msr-fiddle/piper; docs/explanation/planners/piper.md says what is kept.
"""

from collections.abc import Iterator

from attrs import evolve

from nest.hooks.planning import PlannerContext, Proposal
from nest.instance import Candidate, Instance, RecomputeMode, Solution, StageDecision
from nest.planners.shapes import Choices, Units, modes, partition, permitted, requested_counts, units
from nest.planners.splits import Option, even_slowest, over_submeshes
from nest.planners.tables import StageTable, in_flight_from_end, plain_schedules, stage_table, touching_bytes
from nest.planners.views import Believed, first_that_fits, flat, usable_devices, usual_order


class Piper:
    """The most throughput of a pipeline that is always full, on a network of one bandwidth.

    A stage's time is its compute, what crosses its boundaries both ways and its share of reducing gradients; memory
    is that of the micro-batches in flight. Filling and draining the pipeline do not count.
    """

    name = "piper"
    summary = "the least slowest stage on a network of one bandwidth, filling and draining left out"

    def plan(self, instance: Instance, context: PlannerContext) -> Proposal:
        """The plan of least seconds per sample by its own model that fits."""
        ranked = _Objective(instance, flat(instance, context)).ranked()
        return first_that_fits(context, ranked, "it expects {:.4g} s of a pipeline that is always full.")


class _Objective:
    def __init__(self, instance: Instance, view: Instance) -> None:
        self._instance, self._view = instance, view
        self._pieces: Units = units(instance)
        self._devices = usable_devices(instance)
        self._schedule = plain_schedules(instance)[0]

    def ranked(self) -> Iterator[Believed]:
        """Plans with the seconds that the whole batch takes in a full pipeline."""
        if self._instance.space.mixed:
            yield from self._mixed()
        zero = min(self._instance.space.zero)  # Piper has data parallelism alone.
        for index in requested_counts(self._instance):
            candidate = self._view.candidates[index]
            for replicas in range(1, self._devices // candidate.width + 1):
                micro_batches = self._instance.micro_batches(candidate, replicas)
                # Replicas share the micro-batches evenly (the paper's condition on `d`).
                if micro_batches is None or self._instance.space.global_batch % (replicas * candidate.samples):
                    continue
                held = in_flight_from_end(self._schedule, micro_batches)
                for name in modes(self._instance, candidate):
                    choices = Choices(index, replicas, usual_order(self._instance), self._schedule, name, zero, None)
                    table = self._table(candidate, candidate.mode(name), zero, replicas, micro_batches)
                    best = None
                    for split in even_slowest(table, self._devices // (candidate.width * replicas), held):
                        allowed = permitted(self._instance, candidate, replicas, len(split.cuts) + 1)
                        if allowed and (best is None or split.slowest < best.slowest):
                            best = split
                    if best is not None:
                        cut = partition(self._pieces, best.cuts)
                        yield best.slowest * micro_batches, choices.solution(self._instance, cut)

    def _table(
        self, candidate: Candidate, mode: RecomputeMode, zero: int, replicas: int, micro_batches: int
    ) -> StageTable:
        """A stage's time with what crosses its boundaries, there and back, and its share in reducing gradients."""
        view, (level,) = self._view, self._view.cluster.levels[:1]
        reduced = sum(
            4 * (replicas * len(group.ranks) - 1) / (replicas * len(group.ranks)) * group.gradients / 2
            for group in candidate.state
        )
        table = stage_table(
            view, self._pieces, candidate, mode, zero, replicas, reduced / level.bandwidth / micro_batches
        )
        return evolve(table, time=table.time + touching_bytes(view, self._pieces, candidate) / level.bandwidth)

    def _mixed(self) -> Iterator[Believed]:
        """Stages that each have a width and replicas of their own (the strategy `batch`), where plans may be mixed."""
        usable = requested_counts(self._instance)
        zero = min(self._instance.space.zero)
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
