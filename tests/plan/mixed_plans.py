"""Random plans whose stages use different candidates, legal by construction (PROBLEM.md section 3)."""

from collections.abc import Sequence
from math import prod

import numpy
from attrs import evolve
from hypothesis import strategies as st

from nest.instance import Candidate, Cluster, Instance, ParameterGroup, RecomputeMode, Solution, StageDecision
from tests.small_instances import candidate, cluster, instance

MODES = ("none", "full")


def replica_devices(machines: Cluster, widths: Sequence[int], replicas: int) -> int:
    """`K` of PROBLEM.md section 3 for stages of these widths."""
    return max(widths) * (machines.size // (replicas * max(widths)))


def blocks(instance: Instance, solution: Solution) -> list[list[range]]:
    """For each stage, its devices in every replica, written out from PROBLEM.md section 3."""
    widths = [instance.candidates[stage.candidate].width for stage in solution.stages]
    size = replica_devices(instance.cluster, widths, solution.replicas)
    found = []
    for stage, width in zip(solution.stages, widths, strict=True):
        if solution.rank_order == "pp-inner":
            first = [replica * size + stage.offset for replica in range(solution.replicas)]
        else:
            first = [stage.offset * solution.replicas + replica * width for replica in range(solution.replicas)]
        found.append([range(start, start + width) for start in first])
    return found


def rich_candidate(layers: int, name: str, width: int, ranks: Sequence[int], seed: int) -> Candidate:
    """A candidate with two parameter groups, one of them held by `ranks`, and a mode that stashes inputs."""
    plain = candidate(layers, name=name, width=width, seed=seed)
    numbers = numpy.random.default_rng(seed + 1).uniform(0.1, 3.0, (4, layers))
    shared = ParameterGroup("shared", tuple(ranks), numbers[0], numbers[1], numbers[2], numbers[3])
    none, full = plain.recompute
    return evolve(
        plain,
        state=(*plain.state, shared),
        recompute=(none, RecomputeMode(full.name, full.extra, full.first, full.more, full.peak, stash_inputs=True)),
    )


def least_ends(widths: Sequence[int], free: int = 0) -> int:
    """Where blocks of these widths, in order and as low as alignment lets them, end."""
    for width in widths:
        free = -(-free // width) * width + width
    return free


def fitting_replicas(machines: Cluster, widths: Sequence[int]) -> list[int]:
    """How many replicas with stages of these widths the devices may hold, most first."""
    counts = range(machines.size // max(widths), 0, -1)
    return [count for count in counts if least_ends(widths) <= replica_devices(machines, widths, count)]


def drawn_offsets(draw: st.DrawFn, widths: Sequence[int], size: int) -> list[int]:
    """Offsets of aligned, ordered blocks within a replica of `size` devices, now and then with gaps."""
    offsets = []
    free = 0
    for index, width in enumerate(widths):
        least = -(-free // width) * width
        offset = least + width * draw(st.integers(0, 2))
        if least_ends(widths[index + 1 :], offset + width) > size or offset + width > size:
            offset = least
        offsets.append(offset)
        free = offset + width
    return offsets


@st.composite
def mixed_plans(draw: st.DrawFn) -> tuple[Instance, Solution]:
    """An instance with two or three widths, and one of its plans; its stages may or may not differ."""
    machines = cluster(
        draw(st.lists(st.integers(1, 4), min_size=3, max_size=4).filter(lambda fanouts: prod(fanouts) >= 16))
    )
    admissible = [width for width in range(1, machines.size // 4 + 1) if machines.admits(width)]
    widths = draw(st.lists(st.sampled_from(admissible), min_size=2, max_size=3, unique=len(admissible) > 2))
    used = draw(st.lists(st.integers(0, len(widths) - 1), min_size=1, max_size=5))
    while not (fitting := fitting_replicas(machines, [widths[index] for index in used])):
        used = used[:-1]
    replicas = draw(st.sampled_from(fitting))
    stage_widths = [widths[index] for index in used]
    offsets = drawn_offsets(draw, stage_widths, replica_devices(machines, stage_widths, replicas))
    sizes = [draw(st.integers(1, 2)) for _ in used]
    layers = iter(range(sum(sizes)))
    stages = tuple(
        StageDecision(
            tuple(next(layers) for _ in range(size)),
            index,
            draw(st.sampled_from(MODES)),
            draw(st.integers(0, 3)),
            offset,
        )
        for index, size, offset in zip(used, sizes, offsets, strict=True)
    )
    candidates = [
        rich_candidate(
            sum(sizes), f"c{index}", width, sorted({0, draw(st.integers(0, width - 1))}), draw(st.integers(0, 99))
        )
        for index, width in enumerate(widths)
    ]
    batch = replicas * draw(st.integers(1, 4))
    problem = instance(candidates, machines=machines, mixed=True, global_batch=batch)
    order = draw(st.sampled_from(["pp-inner", "dp-inner"]))
    return problem, Solution(replicas, order, "1f1b", stages)
