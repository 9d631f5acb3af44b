"""Alpa (Zheng et al., OSDI 2022, arXiv 2201.12023), and Alpa-E as the NEST paper compares with it.

What follows its authors' program (alpa-projects/alpa, `pipeline_parallel/stage_construction.py`) is described in
plugins/nest-planners/README.md.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy
from attrs import evolve, frozen

from nest.hooks.planning import PlannerContext, Proposal
from nest.instance import Array, Candidate, Instance, RecomputeMode, Solution, StageDecision
from nest.public.sharding import Resharding, cheapest_shardings
from nest_planners.shapes import Choices, Units, modes, partition, permitted, requested_counts, units
from nest_planners.splits import Option, even_slowest, over_submeshes
from nest_planners.tables import in_flight_from_end, plain_schedules, stage_table
from nest_planners.views import (
    Believed,
    boundless,
    first_that_fits,
    node_level,
    two_dimensional,
    usable_devices,
    usual_order,
)

ONCE_PER_BATCH = 1
"""ZeRO stage of Alpa's gradients: with `prefer_reduce_scatter`, which its GPT runs set, an all-reduce becomes a
reduce-scatter and an all-gather around a sharded optimizer step (arXiv 2201.12023, section 4.2)."""

LARGEST_MESH = 128
"""Devices of the largest submesh in Alpa-E's program (scai-tech/Nest, scripts/alpa, `get_submesh_choices`)."""


class Alpa:
    """An integer program chooses shardings inside submeshes, a dynamic program stages and their submeshes.

    It sees machines and what joins them, each with links all alike, and no cost between stages. A stage whose memory
    does not suffice for the micro-batches in flight is none.
    """

    name = "alpa"
    summary = "an integer program inside submeshes and a dynamic program across them, on a network of two dimensions"

    def plan(self, instance: Instance, context: PlannerContext) -> Proposal:
        """The plan of least latency by its own model that fits."""
        ranked = _Passes(instance, context, instance.cluster.size).ranked(memory=True)
        return first_that_fits(context, ranked, "it predicts {:.4g} s with its model of the network.")


class AlpaE:
    """Alpa without memory in view, and what does not fit is sharded further until it does.

    The least latency decides first. Then all stages are sharded: by ZeRO as far as the problem allows, then over
    blocks of twice as many devices, and so on; the first plan that fits is taken.
    """

    name = "alpa-e"
    summary = "alpa for memory without end; what does not fit is sharded over more and more devices"

    def plan(self, instance: Instance, context: PlannerContext) -> Proposal:
        """The fastest plan of endless memory by its own model, sharded until it fits."""
        passes = _Passes(instance, context, LARGEST_MESH)
        ranked = sorted(passes.ranked(memory=False), key=lambda each: each[0])
        blind = next((plan for _, plan in ranked if context.assess(plan).priced is not None), None)
        if blind is None:
            return Proposal(None, ("no plan it comes to is one of the problem.",))
        closest = blind, context.assess(blind).missing
        for solution in passes.grown(blind):
            seen = context.assess(solution)
            if seen.admitted:
                width, zero = instance.candidates[solution.stages[0].candidate].width, solution.stages[0].zero
                grown = f"sharded with ZeRO {zero} on blocks of width {width}, as it did not fit."
                return Proposal(solution, () if solution == blind else (grown,))
            if seen.priced is not None and seen.missing < closest[1]:
                closest = solution, seen.missing
        return Proposal(closest[0], ("it does not fit, though sharded as far as the problem allows.",))


@frozen
class _Mesh:
    """A submesh and how it is used: `devices = replicas * width` (Alpa's logical mesh), with one number of samples.

    Attributes:
        devices: of the submesh.
        replicas: data-parallel degree of the plan inside it.
        samples: per micro-batch and replica.
        candidates: the shardings that there are.
    """

    devices: int
    replicas: int
    samples: int
    candidates: tuple[int, ...]


class _Passes:
    """Both passes on one instance."""

    def __init__(self, instance: Instance, context: PlannerContext, largest: int) -> None:
        self._instance = instance
        self._largest = largest
        self._view = two_dimensional(instance, context)
        self._pieces: Units = units(instance)
        self._devices = usable_devices(instance)
        self._schedule = plain_schedules(instance)[0]
        zero = instance.space.zero
        self._zero = ONCE_PER_BATCH if ONCE_PER_BATCH in zero else min(zero)
        self._sharded: dict[tuple[tuple[int, ...], int], int] = {}

    def ranked(self, memory: bool) -> Iterator[Believed]:
        """Plans with the latency they are taken to have; `memory`: whether stages that do not fit are none."""
        view = self._view if memory else boundless(self._view)
        if self._instance.space.mixed:
            yield from self._of_several_meshes(view)
        for mesh in self._meshes():
            yield from self._of_one_mesh(view, mesh)

    def grown(self, solution: Solution) -> Iterator[Solution]:
        """The plan, sharded by ZeRO further and further, then over blocks of twice as many devices, ..."""
        width = self._instance.candidates[solution.stages[0].candidate].width
        mixed = len({stage.candidate for stage in solution.stages}) > 1
        devices = width * solution.replicas
        samples = self._instance.candidates[solution.stages[0].candidate].samples
        while True:
            for zero in sorted(set(self._instance.space.zero)):
                yield evolve(
                    solution, stages=tuple(evolve(each, zero=max(zero, each.zero)) for each in solution.stages)
                )
            wider = [mesh for mesh in self._meshes() if mesh.devices == devices and mesh.replicas * width < devices]
            wider = [mesh for mesh in wider if mesh.samples == samples] or wider
            if mixed or not wider:
                return
            mesh = max(wider, key=lambda each: each.replicas)
            width, samples = devices // mesh.replicas, mesh.samples
            index = self._sharding(mesh)
            stages = tuple(
                evolve(each, candidate=index, offset=place * width, recompute=self._mode_like(index, each.recompute))
                for place, each in enumerate(solution.stages)
            )
            solution = evolve(solution, replicas=mesh.replicas, stages=stages)

    def _mode_like(self, index: int, name: str) -> str:
        allowed = modes(self._instance, self._instance.candidates[index])
        return name if name in allowed else allowed[0]

    def _sizes(self) -> list[int]:
        """Devices of submeshes: powers of two inside a machine, then whole machines (section 5.2, theorem 1)."""
        machine = min(self._instance.cluster.capacities[node_level(self._instance)], self._devices)
        inside = [size for size in (2**power for power in range(machine.bit_length())) if size < machine]
        return [*inside, *range(machine, min(self._largest, self._devices) + 1, machine)]

    def _meshes(self) -> Iterator[_Mesh]:
        """Submeshes that cover all devices with stages alike, and every logical shape that candidates give them."""
        usable = [index for index in requested_counts(self._instance) if modes(*self._of(index))]
        for devices in self._sizes():
            if self._devices % devices:
                continue
            for (width, samples), group in groupby(sorted(usable, key=self._shape), key=self._shape):
                indices = tuple(group)
                replicas = devices // width
                candidate = self._instance.candidates[indices[0]]
                if devices % width == 0 and self._instance.micro_batches(candidate, replicas) is not None:
                    yield _Mesh(devices, replicas, samples, indices)

    def _shape(self, index: int) -> tuple[int, int]:
        candidate = self._instance.candidates[index]
        return candidate.width, candidate.samples

    def _of(self, index: int) -> tuple[Instance, Candidate]:
        return self._instance, self._instance.candidates[index]

    def _of_one_mesh(self, view: Instance, mesh: _Mesh) -> Iterator[Believed]:
        """The stages of least latency that have one shape, as one candidate for the whole plan needs."""
        index, stages = self._sharding(mesh), self._devices // mesh.devices
        candidate = view.candidates[index]
        micro_batches = view.micro_batches(candidate, mesh.replicas)
        allowed = permitted(self._instance, candidate, mesh.replicas, stages)
        if micro_batches is None or stages > len(self._pieces) or not allowed:
            return
        held = in_flight_from_end(self._schedule, micro_batches)
        for mode in self._modes(candidate):
            table = stage_table(
                view, self._pieces, candidate, mode, self._zero, mesh.replicas, self._reduction(mesh, index)
            )
            for split in even_slowest(table, stages, held):
                if len(split.cuts) + 1 == stages:
                    choices = self._choices(index, mesh.replicas, mode)
                    yield (
                        split.latency(micro_batches),
                        choices.solution(self._instance, partition(self._pieces, split.cuts)),
                    )

    def _choices(self, index: int, replicas: int, mode: RecomputeMode) -> Choices:
        space = self._instance.space
        return Choices(
            index, replicas, usual_order(self._instance), self._schedule, mode.name, self._zero, space.zero_degrees[0]
        )

    def _modes(self, candidate: Candidate) -> list[RecomputeMode]:
        """Recomputation is an option of the whole run."""
        return [candidate.mode(name) for name in modes(self._instance, candidate)]

    def _of_several_meshes(self, view: Instance) -> Iterator[Believed]:
        """The stages of least latency, each with a submesh and logical shape of its own, where plans may be mixed.

        One replica: data parallelism is inside a stage's block (the strategy `batch`).
        """
        usable = [index for index in requested_counts(self._instance) if modes(*self._of(index))]
        for samples in sorted({view.candidates[index].samples for index in usable}):
            shapes: dict[tuple[int, int], list[int]] = {}
            for index in usable:
                candidate = view.candidates[index]
                if candidate.samples == samples and candidate.width in self._sizes():
                    shapes.setdefault((candidate.width, candidate.degrees.get("batch", 1)), []).append(index)
            meshes = [_Mesh(width, 1, samples, tuple(indices)) for (width, _), indices in sorted(shapes.items())]
            if not meshes:
                continue
            micro_batches = view.micro_batches(view.candidates[meshes[0].candidates[0]], 1)
            if micro_batches is None:
                continue
            held = in_flight_from_end(self._schedule, micro_batches)
            chosen = [
                (self._sharding(mesh), mesh, mode)
                for mesh in meshes
                for mode in self._modes(view.candidates[self._sharding(mesh)])
            ]
            most = min(len(self._pieces), self._devices)
            options = [
                Option.of(
                    stage_table(
                        view, self._pieces, view.candidates[index], mode, self._zero, 1, self._reduction(mesh, index)
                    ),
                    mesh.devices,
                    held,
                    most,
                )
                for index, mesh, mode in chosen
            ]
            split = over_submeshes(options, self._devices, True, micro_batches)
            if split is not None:
                yield split.latency(micro_batches), self._mixed(split.cuts, [chosen[place] for place in split.options])

    def _mixed(self, cuts: Sequence[int], chosen: Sequence[tuple[int, _Mesh, RecomputeMode]]) -> Solution:
        """Blocks in pipeline order, each at the next multiple of its width."""
        stages, end = [], 0
        for (layers,), (index, mesh, mode) in zip(partition(self._pieces, cuts), chosen, strict=True):
            offset = -(-end // mesh.devices) * mesh.devices
            end = offset + mesh.devices
            stages.append(StageDecision(layers, index, mode.name, self._zero, offset))
        return Solution(1, usual_order(self._instance), self._schedule.name, tuple(stages))

    def _sharding(self, mesh: _Mesh) -> int:
        """The candidate of a submesh: of the shardings that the integer program chooses, the one of most layers' time.

        A plan has one sharding for all layers of a stage, so the program's choices of single layers cannot be kept.
        """
        key = (mesh.candidates, mesh.replicas)
        if key not in self._sharded:
            costs = numpy.stack([self._layer_costs(mesh, index) for index in mesh.candidates], axis=1)
            chosen = cheapest_shardings(costs, self._resharding(mesh))
            weight = numpy.zeros(len(mesh.candidates))
            for layer, option in enumerate(chosen):
                weight[option] += costs[layer].mean()
            self._sharded[key] = mesh.candidates[int(weight.argmax())]
        return self._sharded[key]

    def _layer_costs(self, mesh: _Mesh, index: int) -> Array:
        """Seconds per micro-batch of each layer, the reduction of its gradients included. Shape `(layers,)`."""
        candidate = self._view.candidates[index]
        costs: Array = candidate.forward + candidate.backward + self._reduction(mesh, index)
        return costs

    def _reduction(self, mesh: _Mesh, index: int) -> Array:
        """Seconds per micro-batch of each layer's share in reducing gradients once per batch. Shape `(layers,)`."""
        view, candidate = self._view, self._view.candidates[index]
        seconds = numpy.zeros(len(view.graph.layers))
        micro_batches = view.micro_batches(candidate, mesh.replicas) or 1
        for group in candidate.state:
            members = [replica * candidate.width + rank for replica in range(mesh.replicas) for rank in group.ranks]
            whole = float(group.gradients.sum())
            if len(members) > 1 and whole > 0:
                shape = view.cluster.shape(members)
                reduced = view.collectives.time("all_reduce", whole, shape, view.cluster.levels, members=len(members))
                seconds += group.gradients / whole * reduced
        return view.space.exposed * seconds / micro_batches

    def _resharding(self, mesh: _Mesh) -> list[Resharding]:
        """Gathers of a tensor over its maker's block, if its two layers differ."""
        view, width = self._view, mesh.devices // mesh.replicas
        shape = view.cluster.shape(range(width))
        found = []
        for place, (producer, consumers) in enumerate(view.graph.tensors):
            sizes = [float(view.candidates[index].tensor_bytes[place]) for index in mesh.candidates]
            costs = numpy.array(
                [
                    view.collectives.time("all_gather", size, shape, view.cluster.levels, members=width)
                    if size and width > 1
                    else 0.0
                    for size in sizes
                ]
            )
            found += [Resharding(producer, consumer, costs) for consumer in consumers]
        return found
