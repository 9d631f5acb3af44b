"""Legality of decisions: PROBLEM.md section 3 and the declared constraints."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy

from nest.errors import InputError
from nest.instance import (
    Cluster,
    Instance,
    Schedule,
    Solution,
    StageDecision,
    admits,
    chunks_of,
    recompute_values,
    recompute_words,
    route,
    stage_mode,
)
from nest.plan.layout import (
    chunk_layers,
    chunk_units,
    even_blocks,
    evenly_split,
    replica_size,
    runs_of_stages,
    schedule_of,
)
from nest.spec.constraints import Constraint, Value


def structure_violations(instance: Instance, solution: Solution) -> list[str]:
    """Violated rules of PROBLEM.md section 3, in words; a price needs that there are none."""
    layers = _layers(instance, solution)
    return [*(layers or _modes(instance, solution)), *_devices(instance, solution), *_shard_groups(instance, solution)]


def _layers(instance: Instance, solution: Solution) -> list[str]:
    violations = []
    order = [layer for stage in solution.stages for layer in stage.layers]
    if sorted(order) != list(range(len(instance.graph.layers))):
        violations.append("the stages do not hold every layer exactly once")
        return violations
    if solution.chunks > 1:
        first = instance.candidates[solution.stages[0].candidate]
        return _chunks(instance, solution, instance.micro_batches(first, solution.replicas))
    stage_of = {layer: index for index, stage in enumerate(solution.stages) for layer in stage.layers}
    for index, stage in enumerate(solution.stages):
        if not stage.layers:
            violations.append(f"stage {index + 1} is empty")
        if stage.chunks not in ((), (stage.layers,)):
            violations.append(f"stage {index + 1} lists chunks, but the plan has one per stage")
    for producer, consumers in instance.graph.tensors:
        for consumer in consumers:
            if stage_of[producer] > stage_of[consumer]:
                names = instance.graph.layers
                violations.append(
                    f"layer {names[consumer]!r} runs in an earlier stage than {names[producer]!r}, which it reads from"
                )
    return violations


def _chunks(instance: Instance, solution: Solution, micro_batches: int | None) -> list[str]:
    """Reasons why the chunks of a plan are no split of the model over its stages, in words."""
    schedule = _schedule(instance, solution)
    if schedule is None:
        return []  # Reported with the devices.
    stages, chunks = len(solution.stages), solution.chunks
    violations = chunk_violations(instance, schedule, stages, micro_batches)
    said = any(stage.chunks for stage in solution.stages)
    if not violations and not said and not even_blocks(instance, stages * chunks):
        violations.append(_no_even_split(instance, stages, chunks))
    for index, stage in enumerate(solution.stages) if said else ():
        held = sorted(layer for chunk in stage.chunks for layer in chunk)
        if len(stage.chunks) != chunks or held != sorted(stage.layers):
            violations.append(f"stage {index + 1} does not list the layers of its {chunks} chunks")
    if violations:
        return violations
    runs = [tuple(sorted(run)) for run in chunk_layers(instance, solution)]
    for index, stage in enumerate(solution.stages):
        mine = [run for run, home in zip(runs, route(schedule, stages), strict=True) if home == index]
        if sorted(stage.layers) != sorted(layer for run in mine for layer in run):
            violations.append(f"stage {index + 1} does not hold the layers of its {chunks} chunks of the even split")
    if instance.space.even and not evenly_split(instance, solution):
        violations.append("the chunks are uneven, but search.target needs even ones")
    return violations or [*_uncut(instance, runs), *_units(instance, runs)]


def _uncut(instance: Instance, runs: Sequence[tuple[int, ...]]) -> list[str]:
    """Layers before one they read from, or separated from those they must stay with, by chunks in pipeline order."""
    names, home = instance.graph.layers, {layer: index for index, run in enumerate(runs) for layer in run}
    violations = [
        f"layer {names[consumer]!r} is in an earlier chunk than {names[producer]!r}"
        for producer, consumers in instance.graph.tensors
        for consumer in consumers
        if home[producer] > home[consumer]
    ]
    return violations + [
        f"layers from {names[group[0]]!r} to {names[group[-1]]!r}, kept together, are in two chunks"
        for group in instance.space.together
        if len({home[layer] for layer in group}) > 1
    ]


def _units(instance: Instance, runs: Sequence[tuple[int, ...]]) -> list[str]:
    """Chunks that are empty or no run of whole blocks, with embedding and head if they count."""
    units, taken = chunk_units(instance), 0
    violations: list[str] = []
    for index, run in enumerate(runs):
        first, held, wanted = taken, set[int](), set(run)
        while taken < len(units) and held < wanted:
            held.update(units[taken])
            taken += 1
        place = f"chunk {index + 1} of {len(runs)}"
        if held != wanted:
            return [*violations, f"{place} does not continue the transformer blocks of the chunk before"]
        # What holds a unit holds a block, or an embedding or head alone, which are at the ends, as no chunk is empty.
        if taken == first:
            violations.append(f"{place} holds no transformer block")
    return violations


def chunk_violations(instance: Instance, schedule: Schedule, stages: int, micro_batches: int | None) -> list[str]:
    """Reasons why no plan has the chunks of a schedule on each of so many stages, in words.

    Args:
        schedule: of several chunks (`v`).
        stages: `s`.
        micro_batches: `M`; None: unknown.
    """
    chunks, violations = chunks_of(schedule), []
    if stages < 2:
        return [f"a schedule of {chunks} chunks needs at least 2 stages"]
    if micro_batches is not None and not admits(schedule, stages, micro_batches):
        violations.append(_not_admitted(schedule, stages, micro_batches))
    units = len(chunk_units(instance))
    if stages * chunks > units:
        violations.append(
            f"{units} {_counted(instance)} are too few for {stages * chunks} chunks, "
            f"{chunks} for each of {stages} stages"
        )
    elif instance.space.even and not even_blocks(instance, stages * chunks):
        violations.append(_no_even_split(instance, stages, chunks))
    return violations


def _counted(instance: Instance) -> str:
    """Name of the units of chunks."""
    return "transformer blocks, embedding and head" if instance.space.blocks_and_ends else "transformer blocks"


def _no_even_split(instance: Instance, stages: int, chunks: int) -> str:
    return (
        f"{len(instance.space.blocks)} transformer blocks cannot be split evenly into {stages * chunks} chunks, "
        f"{chunks} for each of {stages} stages"
    )


def _not_admitted(schedule: Schedule, stages: int, micro_batches: int) -> str:
    chunks = chunks_of(schedule)
    each = f" of {chunks} chunks" if chunks > 1 else ""
    return f"the schedule {schedule.name!r} does not run {micro_batches} micro-batches over {stages} stages{each}"


def _schedule(instance: Instance, solution: Solution) -> Schedule | None:
    """Schedule of a plan; None: it is not among those allowed."""
    try:
        return schedule_of(instance, solution)
    except ValueError:
        return None


def _modes(instance: Instance, solution: Solution) -> list[str]:
    """Layers that cannot run in the recompute mode of their stage."""
    if _schedule(instance, solution) is None:
        return []  # Reported with the devices.
    violations = []
    for index, (stage, chunks) in enumerate(zip(solution.stages, runs_of_stages(instance, solution), strict=True)):
        first = stage_mode(instance, stage, chunks).first
        unable = [instance.graph.layers[layer] for layer in stage.layers if numpy.isinf(first[layer])]
        if unable:
            violations.append(
                f"stage {index + 1}: layer {unable[0]!r} cannot run with recompute mode "
                f"{recompute_words(stage.recompute)!r} (null in the profile)"
            )
    return violations


def _devices(instance: Instance, solution: Solution) -> list[str]:
    violations = []
    first = instance.candidates[solution.stages[0].candidate]
    mixed = instance.space.mixed or instance.pools is not None
    if len({stage.candidate for stage in solution.stages}) > 1 and not mixed:
        violations.append("stages use different candidates, which only search.mixed allows")
    if len({stage.candidate for stage in solution.stages}) > 1 and solution.chunks > 1:
        violations.append("stages use different candidates, which a schedule of several chunks does not allow")
    samples = sorted({instance.candidates[stage.candidate].samples for stage in solution.stages})
    if len(samples) > 1:
        violations.append(
            f"stages take micro-batches of {', '.join(map(str, samples))} samples; all must take the same"
        )
    if instance.micro_batches(first, solution.replicas) is None:
        violations.append(
            f"a batch of {instance.space.global_batch} cannot be divided among {solution.replicas} replicas "
            f"in micro-batches of {first.samples}"
        )
    schedule, micro_batches = _schedule(instance, solution), instance.micro_batches(first, solution.replicas)
    if schedule is None:
        chunks = f" with {solution.chunks} chunks" if solution.chunks > 1 else ""
        violations.append(f"schedule {solution.schedule!r}{chunks} is not among those allowed")
    elif solution.chunks == 1 and micro_batches is not None:  # With several chunks, reported with the layers.
        count = len(solution.stages)
        violations += [] if admits(schedule, count, micro_batches) else [_not_admitted(schedule, count, micro_batches)]
    widths = [instance.candidates[stage.candidate].width for stage in solution.stages]
    if instance.pools is not None:
        return violations + _on_pools(instance, solution)
    violations += _blocks(solution, range(len(widths)), widths, instance.cluster, "the cluster")
    return violations + _misplaced(solution, widths)


def _on_pools(instance: Instance, solution: Solution) -> list[str]:
    """Violations of the rules for pools (PROBLEM.md section 8)."""
    assert instance.pools is not None
    pools, violations = [instance.pool_of(stage.candidate) for stage in solution.stages], []
    for number, (here, there) in enumerate(pairwise(pools), start=1):
        if here != there and instance.pools.link(here, there) is None:
            names = (instance.pools.members[each].name for each in (here, there))
            violations.append("stages {} and {}: nothing joins pools {!r} and {!r}".format(number, number + 1, *names))
    if solution.chunks > 1:
        violations.append("stages on pools have one chunk each")
    if instance.space.alike and len({instance.candidates[stage.candidate].split for stage in solution.stages}) > 1:
        violations.append("stages are split differently in different pools, which search.target does not allow")
    for pool in dict.fromkeys(pools):
        indices = [index for index, each in enumerate(pools) if each == pool]
        name = instance.pools.members[pool].name
        used = {solution.stages[index].candidate for index in indices}
        if len(used) > 1:
            violations.append(f"stages of pool {name!r} use different candidates; they must use the same")
        widths = [instance.candidates[solution.stages[index].candidate].width for index in indices]
        cluster = instance.pools.members[pool].cluster
        violations += _blocks(solution, indices, widths, cluster, f"pool {name!r}")
    return violations


def _blocks(
    solution: Solution, indices: Iterable[int], widths: Sequence[int], cluster: Cluster, where: str
) -> list[str]:
    """Faults of the blocks of these stages, which are all in one cluster."""
    if solution.replicas * max(widths) > cluster.size:
        each = f"{solution.replicas} replicas of at least {max(widths)} devices"
        return [f"{each} need more than the {cluster.size} of {where}"]
    size, free, violations = replica_size(cluster, max(widths), solution.replicas), 0, list[str]()
    for index, width in zip(indices, widths, strict=True):
        place, offset = f"stage {index + 1}", solution.stages[index].offset
        if not cluster.admits(width):
            violations.append(f"{place}: blocks of {width} devices cannot be aligned with the levels of {where}")
        if offset % width:
            violations.append(f"{place}: offset {offset} is not a multiple of its width {width}")
        if offset < free:
            violations.append(f"{place}: its block overlaps or precedes the block before it")
        if offset + width > size:
            violations.append(f"{place}: it needs devices up to {offset + width}, but a replica has {size}")
        free = offset + width
    return violations


def _misplaced(solution: Solution, widths: Sequence[int]) -> list[str]:
    placement = solution.placement
    if placement is None:
        return []
    if [[len(block) for block in replica] for replica in placement] != [list(widths)] * solution.replicas:
        return ["placement does not give each stage of every replica as many devices as its width"]
    devices = [device for replica in placement for block in replica for device in block]
    return [] if len(set(devices)) == len(devices) else ["placement gives a device to several blocks, or twice to one"]


def _shard_groups(instance: Instance, solution: Solution) -> list[str]:
    """Parameter groups whose ranks `zero_degree` does not divide into equal shard groups."""
    degree = solution.zero_degree
    if degree is None:
        return []
    used = dict.fromkeys(stage.candidate for stage in solution.stages)
    counts = [
        (instance.candidates[index].name, group.name, solution.replicas * len(set(group.ranks)))
        for index in used
        for group in instance.candidates[index].state
    ]
    return [
        f"candidate {candidate!r}: the {count} ranks that hold the parameters of group {group!r} cannot be cut into "
        f"shard groups of {degree} (zero_degree)"
        for candidate, group, count in counts
        if count > degree and count % degree
    ]


def permission_violations(instance: Instance, solution: Solution) -> list[str]:
    """Decisions that the search was not allowed, and unsatisfied constraints, in words."""
    violations = []
    if solution.rank_order not in instance.space.rank_orders:
        violations.append(f"rank order {solution.rank_order!r} is not among those allowed")
    if solution.zero_degree not in instance.space.zero_degrees:
        ranks = "all ranks" if solution.zero_degree is None else solution.zero_degree
        violations.append(f"shard groups of {ranks} (zero_degree) are not among those allowed")
    for index, stage in enumerate(solution.stages):
        if stage.zero not in instance.space.zero:
            violations.append(f"stage {index + 1}: ZeRO stage {stage.zero} is not among those allowed")
        if stage.recompute not in instance.recompute_names(stage.candidate):
            mode = recompute_words(stage.recompute)
            violations.append(f"stage {index + 1}: recompute mode {mode!r} is not among those allowed")
    if instance.space.partition is not None:
        wanted = [sorted(stage) for stage in instance.space.partition]
        if [sorted(stage.layers) for stage in solution.stages] != wanted:
            violations.append("the stages differ from the ones that are fixed")
    homes = {layer: index for index, stage in enumerate(solution.stages) for layer in stage.layers}
    if instance.space.even and solution.chunks == 1 and not evenly_split(instance, solution):
        violations.append("the stages do not hold as many transformer blocks each, in order, as search.target demands")
    for group in instance.space.together:
        if len({homes[layer] for layer in group}) > 1:
            first, last = (instance.graph.layers[layer] for layer in (group[0], group[-1]))
            violations.append(
                f"layers from {first!r} to {last!r} are in several stages, which search.granularity forbids"
            )
    violations += [
        f"constraint `{constraint.text}` does not hold" + (f" ({constraint.reason})" if constraint.reason else "")
        for constraint in instance.space.constraints
        if not _holds(instance, solution, constraint)
    ]
    return violations


def unsatisfied(instance: Instance, solution: Solution) -> tuple[str, ...]:
    """Unsatisfied wishes of `constraints`, as written.

    Raises:
        InputError: one cannot be computed for this plan.
    """
    violations = []
    for index, constraint in enumerate(instance.space.wishes):
        try:
            held = _holds(instance, solution, constraint)
        except InputError as error:
            raise InputError(f"constraints[{index}]: {error}") from None
        violations += [] if held else [constraint.text]
    return tuple(violations)


def _holds(instance: Instance, solution: Solution, constraint: Constraint) -> bool:
    if constraint.same_stage:
        homes = {
            index
            for index, stage in enumerate(solution.stages)
            for layer in stage.layers
            if instance.graph.layers[layer] in constraint.same_stage
        }
        return len(homes) == 1
    if constraint.uniform is not None:
        return len({getattr(stage, constraint.uniform) for stage in solution.stages}) == 1
    alike = {(stage.candidate, stage.zero, stage.recompute): stage for stage in solution.stages}
    return all(constraint.holds(_values(instance, solution, stage)) for stage in alike.values())


def _values(instance: Instance, solution: Solution, stage: StageDecision) -> dict[str, Value]:
    """Value of every name for one stage; those of candidates are of the stage's own."""
    from fractions import Fraction

    candidate = instance.candidates[stage.candidate]
    widths = [instance.candidates[each.candidate].width for each in solution.stages]
    inside = Fraction(candidate.width, candidate.degrees.get("tp", 1) * candidate.degrees.get("cp", 1))
    copies = inside if candidate.micro_batch is None else Fraction(candidate.samples, candidate.micro_batch)
    data_parallel, every = (
        int(each) if each.denominator == 1 else float(each)
        for each in (solution.replicas * copies, solution.replicas * inside)
    )
    values: dict[str, Value] = defaultdict(lambda: 1)
    values.update(candidate.degrees)
    values.update(
        pp=len(solution.stages),
        dp=data_parallel,
        zero_degree=every if solution.zero_degree is None else solution.zero_degree,
        replicas=solution.replicas,
        micro_batch=candidate.micro_batch or candidate.samples,
        micro_batches=instance.micro_batches(candidate, solution.replicas) or 0,
        devices=solution.replicas * sum(widths),
        width=candidate.width,
        rank_order=solution.rank_order,
        schedule=solution.schedule,
        chunks=solution.chunks,
        zero=stage.zero,
        **recompute_values(instance.space, stage.recompute),
    )
    return values
