"""Why there is no plan on several pools: the tightest constraint, and by how much."""

from math import inf

from nest.instance import Instance
from nest.solve.dp.configurations import LeastMemory
from nest.solve.dp.diagnosis import memory_exceeded, refused, unable
from nest.solve.dp.downsets import Downsets
from nest.solve.dp.pool_configurations import PoolListing
from nest.solve.dp.pools import PoolSearch
from nest.solve.dp.rules import Exclusions


def diagnose(instance: Instance, downsets: Downsets) -> str:
    """One or two sentences on the tightest constraint of an infeasible instance with pools."""
    exclusions = Exclusions()
    search = PoolSearch(instance, [], downsets)
    listed = PoolListing(instance, downsets.most_stages, exclusions, fewest=1).listed()
    best: tuple[float, str, LeastMemory] | None = None
    known: set[tuple[object, ...]] = set()
    for _, configuration in listed:
        key = (
            configuration.members,
            configuration.replicas,
            configuration.schedule.name,
            configuration.stage_counts,
            configuration.zero_degree,
        )
        if key in known:
            continue
        known.add(key)
        for split, excess in search.excess(configuration).items():
            if excess < (inf if best is None else best[0]):
                index = search.fullest(configuration, sum(split), excess)
                needed = instance.cluster_of(index).memory + excess
                candidate = instance.candidates[index]
                of_all = candidate.name if len(configuration.members) == 1 else ""
                best = excess, str(candidate.pool), LeastMemory(needed, sum(split), configuration.replicas, of_all)
    if not listed:
        return refused(instance, exclusions)
    if best is None:
        return unable(instance) or (
            "Constraints keep so many layers together that the stages asked for cannot be formed; drop a same_stage."
        )
    _, pool, least = best
    assert instance.pools is not None
    return memory_exceeded(instance.pools.members[instance.pools.index(pool)].cluster, least, pool)
