"""Diagnosis of infeasible problems: the tightest constraint, and by how much."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy
from numpy.typing import NDArray

from nest.instance import Array, Cluster, Instance, chunks_of, modes_of
from nest.solve.dp.configurations import Configuration, LeastMemory, State, Tally
from nest.solve.dp.members import Member
from nest.solve.dp.mixed import MixedSearch
from nest.solve.dp.pairs import distinct
from nest.solve.dp.plain import PlainSearch
from nest.solve.dp.pool_bounds import least_excess
from nest.solve.dp.rules import Exclusions, by_count
from nest.solve.dp.stages import StageTables
from nest.solve.search import Meter
from nest.spec.constraints import Value
from nest.units import format_bytes, percent

MOST_LISTED = 12  # Most values named in a sentence.
MOST_OTHERS = 3  # Most other constraints named in it.


def diagnose(
    search: PlainSearch | MixedSearch,
    exclusions: Exclusions,
    chunked: Callable[[float], LeastMemory | None] | None = None,
) -> str:
    """One or two sentences on the tightest constraint of an infeasible instance.

    Args:
        search: with the configurations that constraints allow.
        chunked: least memory of a plan of several chunks if below so many bytes; None: no such plans.
    """
    configurations, most = search.configurations, search.downsets.most_stages
    tried = [configuration for configuration in configurations if configuration.stage_counts[0] <= most]
    least = None
    if tried:
        least = least_mixed_memory(search, tried) if isinstance(search, MixedSearch) else _least_memory(search, tried)
    other = None if chunked is None else chunked(numpy.inf if least is None else least.bytes)
    if tried or chunked is not None:
        return _memory(search.instance, LeastMemory.least((least, other)))
    if configurations:
        return _too_few_stages(most, min(configuration.stage_counts[0] for configuration in configurations))
    return refused(search.instance, exclusions)


def _memory(instance: Instance, least: LeastMemory | None) -> str:
    if least is None:
        return unable(instance) or "same_stage constraints leave too few places to cut for these stages; drop one."
    return memory_exceeded(instance.cluster, least)


def memory_exceeded(cluster: Cluster, least: LeastMemory, pool: str = "") -> str:
    """Report that memory is tightest, for the plan that exceeds its devices least, in the named pool if any."""
    needed, capacity = cluster.upper(least.bytes), cluster.device_memory
    margin = f", including a margin of {percent(cluster.margin)} over the estimate" if cluster.margin else ""
    candidate = f"is {least.candidate!r} with" if least.candidate else "has"
    where = f" in pool {pool!r}" if pool else ""
    return (
        f"Memory is tightest: every plan needs at least {_exactly(needed)} on its fullest device{where}{margin}. "
        f"That device has {format_bytes(capacity)}, {format_bytes(needed - capacity)} less. "
        f"The plan that needs least memory {candidate} PP {least.stages} and DP {least.replicas}."
    )


def unable(instance: Instance) -> str | None:
    """Report layers that run in no allowed recompute mode, or not beside others; None: there are none."""
    rows = [
        numpy.isinf(candidate.mode(mode).first)
        for index, candidate in enumerate(instance.candidates)
        for mode in {mode for name in instance.recompute_names(index) for mode in modes_of(name)}
    ]
    never = numpy.flatnonzero(numpy.logical_and.reduce(rows))
    if len(never):
        return (
            f"Layer {instance.graph.layers[never[0]]!r} runs in none of the allowed recompute modes (null in the "
            "profile); allow others in search.recompute."
        )
    if numpy.any(rows):
        return (
            "In every plan, layers of one stage have no recompute mode in common (null in the profile); allow "
            "other modes in search.recompute, or more stages."
        )
    return None


def _too_few_stages(most: int, fewest: int) -> str:
    """Report that layers kept together leave too few stages."""
    return (
        f"same_stage constraints allow at most {most} stages, but plans need at least {fewest}; drop one or use "
        "fewer stages."
    )


def refused(instance: Instance, exclusions: Exclusions) -> str:
    """Report why no configuration is left."""
    if exclusions.combinations == 0 and exclusions.uneven:
        return _not_interleaved(instance)
    if exclusions.combinations == 0 and exclusions.unadmitted:
        return _unadmitted(instance)
    if exclusions.shard_groups and exclusions.combinations == 0:
        return f"Shard groups rule out all plans: with every candidate and number of replicas, {_not_cut(instance)}."
    if exclusions.shard_groups:
        return f"{_tightest(instance, exclusions)} With other candidates or numbers of replicas, {_not_cut(instance)}."
    return _tightest(instance, exclusions)


def _unadmitted(instance: Instance) -> str:
    """Report that no schedule admits the remaining numbers of stages and micro-batches."""
    named = " or ".join(dict.fromkeys(each.name for each in instance.space.schedules))
    return (
        f"Schedule {named} supports no number of stages and micro-batches of this cluster and batch. Allow another "
        "in training.schedule, or change training.global_batch."
    )


def _not_cut(instance: Instance) -> str:
    allowed = ", ".join(map(str, instance.space.zero_degrees))
    return (
        f"the ranks that hold the same parameters cannot be cut into shard groups of {allowed}; "
        "allow other sizes, or all, in search.zero_degree"
    )


def _tightest(instance: Instance, exclusions: Exclusions) -> str:
    if exclusions.combinations == 0:
        return _batch(instance, exclusions)
    if not exclusions.constraints:
        allowed = ", ".join(instance.space.recompute or ())
        return (
            f"No candidate that divides the batch has an allowed recompute mode ({allowed}); allow others in "
            "search.recompute."
        )
    return _constraints(instance, exclusions)


def _batch(instance: Instance, exclusions: Exclusions) -> str:
    samples = sorted({candidate.samples for candidate in instance.candidates})
    if exclusions.batch and not instance.space.partition:
        sizes = ", ".join(str(value) for value in samples)
        return (
            f"No number of replicas divides {instance.space.global_batch} samples with micro-batches of {sizes}; "
            "set training.uneven_batch or change the micro-batch."
        )
    stages = len(instance.space.partition or ())
    narrowest = min(candidate.width for candidate in instance.candidates)
    return f"Too few devices: {stages} stages of at least {narrowest} devices do not fit on {instance.size}."


def _not_interleaved(instance: Instance) -> str:
    """Report that no interleaved schedule divides evenly."""
    interleaved = [each for each in instance.space.schedules if chunks_of(each) > 1]
    named = dict.fromkeys(each.name for each in interleaved)
    counts = " or ".join(map(str, sorted({chunks_of(each) for each in interleaved})))
    ends = len(instance.space.blocks_and_ends)
    counted = f" ({ends} with embedding and head)" if ends else ""
    return (
        f"The schedule is tightest: {', '.join(named)} with {counts} chunks for each stage divides "
        f"{len(instance.space.blocks)} transformer blocks{counted} evenly over 2 stages or more that divide the "
        "number of micro-batches and keep together what must be; no such number of stages has room. Allow another "
        "schedule in training.schedule."
    )


def _constraints(instance: Instance, exclusions: Exclusions) -> str:
    """Report the constraint that refuses most, or the set that together refuses all; targets with their reasons."""
    reasons = {each.text: each.reason for each in instance.space.constraints}
    texts = {text: f"`{text}`" + (f" ({reason})" if reason else "") for text, reason in reasons.items()}
    total = exclusions.combinations
    counts = exclusions.constraints.most_common()
    text, refused = counts[0]
    even = ""
    if instance.space.even:
        blocks = len(instance.space.blocks)
        even = f" search.target needs the {blocks} transformer blocks to split evenly over the stages."
    never = max(exclusions.never, key=lambda each: exclusions.constraints[each], default=None)
    if never is not None:
        beside = [f"`{each}`" for each, _ in counts if each != never][:MOST_OTHERS]
        possible = _possible(instance, never, beside, *exclusions.never[never])
        return f"Constraint {texts[never]} is tightest: {possible}{even}"
    if refused >= total or len(counts) == 1:
        every = f"all {total} combinations of candidate, replicas, stages."
        what = every if refused >= total else "every combination of candidate, replicas and stages."
        return f"Constraint {texts[text]} is tightest: it refuses {what}{even}"
    others = ", ".join(texts[name] for name, _ in counts[1:])
    return (
        f"Constraints are tightest: together they refuse all {total} combinations of candidate, replicas and "
        f"stages; {texts[text]} alone refuses {refused}; {others} the rest.{even}"
    )


def _possible(instance: Instance, text: str, others: Sequence[str], name: str, values: Sequence[Value]) -> str:
    """Report the possible values of a name without other constraints, or that the batch cannot be divided so."""
    batch, wanted = instance.space.global_batch, text.removeprefix(f"{name} == ")
    divided = name in ("replicas", "micro_batches") or (
        name == "dp" and all(candidate.micro_batch is not None for candidate in instance.candidates)
    )
    if divided and not instance.space.uneven_batch and wanted.isdecimal() and batch % int(wanted):
        return (
            f"{wanted} does not divide training.global_batch ({batch}); use {name} {_listed(values)}, change the "
            "batch, or set training.uneven_batch."
        )
    beside = f"{', '.join(others)} and " if others else ""
    return f"with {beside}the rest of the problem, {name} can only be {_listed(values)}."


def _listed(values: Sequence[Value]) -> str:
    in_order = sorted(set(values), key=lambda each: (isinstance(each, str), each))
    first, last = in_order[0], in_order[-1]
    if len(in_order) > 2 and isinstance(first, int) and in_order == list(range(first, first + len(in_order))):
        return f"{first} to {last}"
    if len(in_order) > MOST_LISTED:
        return f"{', '.join(map(str, in_order[: MOST_LISTED - 1]))}, ... or {last}"
    return ", ".join(map(str, in_order))


def _exactly(size: float) -> str:
    return f"{format_bytes(size)} ({size:.6g} bytes)" if size >= 2**10 else f"{size:.6g} bytes"


def _least_memory(search: PlainSearch, tried: list[Configuration]) -> LeastMemory | None:
    """Least memory of any plan on its fullest device."""
    distinct: dict[tuple[object, ...], Configuration] = {}
    for each in tried:
        key = (each.members, each.replicas, each.schedule.name, each.stage_counts, each.zero_degree)
        distinct.setdefault(key, each)
    least: LeastMemory | None = None
    for each in distinct.values():
        counts = [count for count in each.stage_counts if count <= search.downsets.most_stages]
        sizes = _least_alike(search, each, counts, numpy.inf if least is None else least.bytes)
        name = search.instance.candidates[each.candidate].name
        found = (
            LeastMemory(float(size), count, each.replicas, name) for count, size in zip(counts, sizes, strict=True)
        )
        least = LeastMemory.least((least, *found))
    return least


def _least_alike(search: PlainSearch, configuration: Configuration, counts: Sequence[int], most: float) -> Array:
    """Least bytes of the fullest stage for each number of stages, if below `most`."""
    tables = search.all_tables(configuration)

    def least(own: StageTables) -> Array:
        peaks = partial(least_excess, [own], [0.0], (max(counts, default=0),), meter=search.meter)
        every = zip(counts, search.for_counts(configuration, counts, peaks), strict=True)
        return numpy.array([found.get((count,), (numpy.inf,))[0] for count, found in every])

    bound = least(tables)
    if not search.relaxes(configuration):
        return bound
    found = numpy.full(len(counts), numpy.inf)
    # All stages recompute alike. The last set recomputes most blocks, so that it likely needs least.
    for choices in reversed(by_count(tables.choices)):
        if (bound >= numpy.minimum(found, most)).all():
            break
        if (own := tables.choosing(choices)) is not None:
            found = numpy.minimum(found, least(own))
    return found


def least_mixed_memory(search: MixedSearch, tried: list[Configuration]) -> LeastMemory | None:
    """Least memory of any mixed plan on its fullest device; None: no plan exists."""
    best: LeastMemory | None = None
    for configuration in tried:
        counts = [count for count in configuration.stage_counts if count <= search.downsets.most_stages]
        longest = search.in_flight(configuration, counts[-1])
        alike = all(search.in_flight(configuration, count) == longest[:count] for count in counts)
        for group in [counts] if alike else [[count] for count in counts]:
            best = _lesser_mixed(best, _MixedMemory(search, configuration, group))
    return best


def _lesser_mixed(best: LeastMemory | None, memory: "_MixedMemory") -> LeastMemory | None:
    """Improve on the known least memory with some numbers of stages, searching over all needs of stages."""
    levels = memory.levels()
    if best is not None:
        levels = levels[levels < best.bytes]
    if not len(levels) or memory.fits(float(levels[-1])) is None:
        return best
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if memory.fits(float(levels[middle])) is not None else (middle + 1, high)
    count = memory.fits(float(levels[low]))
    assert count is not None
    return LeastMemory(float(levels[low]), count, memory.configuration.replicas)


class _MixedMemory:
    """Memory of a configuration's stages, for numbers of stages with equal micro-batches in flight."""

    def __init__(self, search: MixedSearch, configuration: Configuration, counts: list[int]) -> None:
        self.search = search
        self.configuration = configuration
        self.counts = counts
        self.in_flight = search.in_flight(configuration, counts[-1])
        self.members = search.all_members(configuration)
        self.known: dict[tuple[int, float], Array] = {}

    def of(self, member: int, stage: int) -> Array:
        key = (member, self.in_flight[stage - 1])
        if key not in self.known:
            tables = self.members[member].tables
            self.known[key] = tables.pairs.spread(tables.least_memory(self.in_flight[stage - 1]))
        return self.known[key]

    def levels(self) -> Array:
        stages = range(1, len(self.in_flight) + 1)
        return distinct(numpy.concatenate([self.of(i, j) for i in range(len(self.members)) for j in stages]))

    def fits(self, capacity: float) -> int | None:
        """Least number of stages for which some plan needs at most `capacity`."""
        possible = packable(
            self.members,
            len(self.in_flight),
            self.configuration.size,
            self.configuration.tally,
            lambda member, stage: self.of(member, stage) <= capacity,
            numpy.inf,
            self.search.meter,
        )
        return next((count for count in self.counts if possible[count - 1]), None)


Allowed = Callable[[int, int], NDArray[numpy.bool_]]
"""From a member and a stage number from the end to a mask of the member's stages."""


def packable(
    members: Sequence[Member], stages: int, size: int, tally: Tally, allowed: Allowed, time_limit: float, meter: Meter
) -> NDArray[numpy.bool_]:
    """For 1 to `stages` stages, whether the whole model fits into a replica of `size` devices.

    Args:
        stages: most stages.
        tally: required totals.
        time_limit: most seconds of a stage per micro-batch.
    """
    # Blocks lie one behind the other: what starts as late as it can leaves most room in front, so one start is enough.
    start = numpy.full(members[0].tables.pairs.count, numpy.inf)
    start[0] = -float(size)
    starts: dict[State, Array] = {tally.start: start}  # The negative of the latest start; infinite: none.
    fits = numpy.zeros(stages, dtype=bool)
    for stage in range(1, stages + 1):
        following: dict[State, Array] = {}
        for index, member in enumerate(members):
            rows = member.tables.window(stage - 1, stages - stage, time_limit)
            if not len(rows):
                continue
            usable = allowed(index, stage)[rows.pairs]
            smaller = member.tables.pairs.smaller[rows.pairs]
            for state, behind in starts.items():
                after = tally.step(state, member.width)
                if after is None:
                    continue
                # The latest multiple of the width that leaves the block in front of those behind it.
                latest = numpy.ceil((behind[smaller] + member.width) / member.width) * member.width
                latest[~usable | (latest > 0)] = numpy.inf
                rows.lower(following.setdefault(after, numpy.full_like(start, numpy.inf)), latest)
                meter.count(len(rows))
        starts = following
        fits[stage - 1] = any(tally.accepts(state) and numpy.isfinite(each[-1]) for state, each in starts.items())
    return fits
