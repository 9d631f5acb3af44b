"""Why there is no plan: what is tightest and by how much."""

from typing import TYPE_CHECKING

from nest.solve.dp.bounds import least_peak_memory
from nest.solve.dp.configurations import Configuration, Exclusions

if TYPE_CHECKING:
    from nest.solve.dp.search import Search


def diagnose(search: "Search", exclusions: Exclusions) -> str:
    """One or two sentences on the tightest constraint of an infeasible instance.

    Args:
        search: what is known of the instance, with the configurations its constraints allow.
        exclusions: what they refuse.
    """
    found = search.configurations
    tried = [c for c in found if c.stage_counts[0] < search.downsets.count]
    if tried:
        return _memory(search, tried)
    if found:
        return (
            f"Constraints keep so many layers together that at most {search.downsets.count - 1} stages remain, "
            f"but plans need at least {min(c.stage_counts[0] for c in found)}; drop a same_stage constraint or ask "
            "for fewer stages."
        )
    if exclusions.combinations == 0:
        return _batch(search, exclusions)
    return _constraints(exclusions)


def _memory(search: "Search", found: list[Configuration]) -> str:
    """The least memory any plan needs of its fullest device, against what a device has."""
    best: tuple[float, Configuration, int] | None = None
    seen = set()
    for configuration in found:
        key = (
            configuration.candidate,
            configuration.replicas,
            configuration.schedule.name,
            configuration.choices,
            configuration.stage_counts,
        )
        if key in seen:
            continue
        seen.add(key)
        counts = [count for count in configuration.stage_counts if count < search.downsets.count]
        tables = search.all_tables(configuration)
        longest = search.in_flight(configuration.schedule, configuration.micro_batches, counts[-1])
        shared = least_peak_memory(tables, longest)
        for count in counts:
            own = search.in_flight(configuration.schedule, configuration.micro_batches, count)
            peaks = shared if own == longest[:count] else least_peak_memory(tables, own)
            if best is None or peaks[count - 1] < best[0]:
                best = (float(peaks[count - 1]), configuration, count)
    if best is None or best[0] == float("inf"):
        return "Constraints keep so many layers together that the stages asked for cannot be formed; drop a same_stage."
    needed, configuration, stages = best
    instance = search.instance
    candidate = instance.candidates[configuration.candidate]
    capacity = instance.cluster.memory
    return (
        f"Memory is tightest: the least that any plan needs on its fullest device is {needed:.6g} bytes "
        f"({needed / 2**30:.2f} GiB) against a capacity of {capacity:.6g} bytes ({capacity / 2**30:.2f} GiB), "
        f"{needed - capacity:.6g} bytes too many. That plan has {stages} stages of candidate {candidate.name!r} "
        f"in {configuration.replicas} replicas."
    )


def _batch(search: "Search", exclusions: Exclusions) -> str:
    instance = search.instance
    samples = sorted({candidate.samples for candidate in instance.candidates})
    if exclusions.batch and not search.instance.space.partition:
        shown = ", ".join(str(value) for value in samples)
        return (
            f"The batch is tightest: {instance.space.global_batch} samples cannot be dealt evenly to any number of "
            f"replicas with micro-batches of {shown} samples; set training.uneven_batch or change the micro-batch."
        )
    stages = len(instance.space.partition or ())
    widest = min(candidate.width for candidate in instance.candidates)
    return (
        f"Devices are tightest: {stages} stages of at least {widest} devices each do not fit on "
        f"{instance.cluster.size} devices."
    )


def _constraints(exclusions: Exclusions) -> str:
    """The constraint that refuses most, or the set that together refuses all."""
    total = exclusions.combinations
    counts = exclusions.constraints.most_common()
    text, refused = counts[0]
    if refused >= total:
        return f"Constraint `{text}` is tightest: it refuses all {total} combinations of candidate, replicas, stages."
    others = ", ".join(f"`{name}`" for name, _ in counts[1:])
    return (
        f"Constraints are tightest: together they refuse all {total} combinations of candidate, replicas and stages; "
        f"`{text}` alone refuses {refused}, the rest fall to {others}."
    )
