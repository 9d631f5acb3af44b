"""Cases: all decisions that the stages of a plan share, enumerated (PROBLEM.md section 3).

Each case is a separate question: does it hold a better plan than the incumbent?
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

from attrs import define, evolve, field, frozen

from nest.instance import (
    Candidate,
    Instance,
    Schedule,
    Solution,
    StageDecision,
    Weights,
    chunks_of,
    fullest_moments,
    in_flight,
    recompute_values,
)
from nest.spec.constraints import Constraint, Value
from nest_cpsat.families import Families, Family, rooms
from nest_cpsat.scaling import Limit, least_weight

Mode = tuple[str, int]  # Recompute mode and ZeRO stage.

Step = tuple[str, int]
"""Part of a pass, or the message it waits for (`arriving`, `returning`), and the chunk in the pipeline."""

Path = tuple[tuple[Step, int], ...]  # Counts of each step on a path through the passes of a batch.


@frozen(eq=False)
class Case:
    """One choice of everything that stages share."""

    candidates: tuple[int, ...]  # Indices of the candidates for its stages; on pools one for each pool in use.
    modes: tuple[tuple[Mode, ...], ...]  # Allowed modes by candidate.
    widest: int  # Width of the widest block (`g`), used by at least one stage; on pools each candidate has a stage.
    replicas: int  # `d`.
    rank_order: str  # `pp-inner` or `dp-inner`.
    schedule: Schedule
    stages: int  # `s`.
    micro_batches: int  # Per replica (`M`).
    weights: Weights
    hiding: bool = False  # Messages between stages hide under compute.
    replayed: bool = False  # Its plans are also priced by replay.
    block_devices: int | None = None  # Devices of all blocks of a replica if a constraint reads them; else None.
    zero_degree: int | None = None  # Ranks over which ZeRO shards at most; None: all.

    @property
    def apart(self) -> bool:
        """True if `sum u` differs from `B * sum t`, or if no time has weight and so nothing is limited."""
        return self.hiding or not self.weights.uniform or self.weights.slowest == self.weights.forward == 0

    @property
    def least_weights(self) -> tuple[float, float]:
        """`(A, B)` of a lower bound on the step time from stage times without hiding.

        A hidden message is no longer than the compute that hides it, and that compute remains.
        """
        return self.weights.slowest / (2 if self.hiding else 1), least_weight(self.weights)

    def in_flight(self, stage: int) -> float:
        """Micro-batches in flight on a stage, counted from 1."""
        return in_flight(fullest_moments(self.schedule, stage, self.stages, self.micro_batches))

    def replicas_alike(self, instance: Instance) -> bool:
        """True if replicas are interchangeable: ZeRO does not shard over only some of them (shard groups)."""
        groups = (group for each in self.candidates for group in instance.candidates[each].state)
        return self.zero_degree is None or all(len(each.ranks) * self.replicas <= self.zero_degree for each in groups)

    def plan(self, stages: Iterable[StageDecision]) -> Solution:
        """Build the plan of the case with these stages."""
        chunks = chunks_of(self.schedule)
        return Solution(self.replicas, self.rank_order, self.schedule.name, tuple(stages), chunks, self.zero_degree)


@define
class OpenCase:
    """An unsettled case."""

    case: Case
    # Lower bound on its plans in seconds.
    bound: float = field(converter=float)  # Arrays give numbers of NumPy, whose comparisons are no `bool`.
    margin: float  # Bounds drop what exceeds the target by this factor.
    stuck: str | None = None  # Reason it cannot be settled.
    paths: Sequence[Path] = ()  # Through the passes of its plans, which bound their replay.
    excluded: list[Any] = field(factory=list)  # Plans priced already, in the form of its models.


LimitOf = Callable[[Case, int], Limit | None]
"""Limit for a case, given how many terms of a stage's time are rounded down separately; None: any plan is better."""


def has_ports(instance: Instance, case: Case) -> bool:
    """True if stages of the case may have ports (PROBLEM.md section 4, Ports)."""
    return any(instance.candidates[each].busy is not None for each in case.candidates)


def replica_devices(instance: Instance, case: Case) -> int:
    """Devices of one replica (`K` of PROBLEM.md section 3); on pools, of an instance from `seen_by`."""
    return case.widest * (instance.cluster.size // (case.replicas * case.widest))


def seen_by(instance: Instance, case: Case, candidate: int) -> tuple[Instance, Case]:
    """View instance and case from blocks of a candidate; on pools its own pool becomes the cluster."""
    if instance.pools is None:
        return instance, case
    return instance.at(candidate), evolve(case, widest=instance.candidates[candidate].width)


def teams(instance: Instance, case: Case) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Positions of the candidates whose blocks share devices, and the most stages of each group."""
    if instance.pools is None:
        return ((tuple(range(len(case.candidates))), case.stages),)
    return tuple(((position,), room) for position, room in enumerate(rooms(instance, case.candidates, case.replicas)))


def cases(instance: Instance, most_stages: int, *, apart: bool = True) -> Iterator[Case]:
    """Enumerate cases that together hold every plan of the instance.

    Args:
        apart: see `cases_of`.

    Raises:
        InputError: a constraint cannot be computed.
    """
    for family in Families(instance, most_stages):
        yield from cases_of(instance, family, apart=apart)


def cases_of(instance: Instance, family: Family, *, apart: bool = True) -> Iterator[Case]:
    """Enumerate the cases of a family.

    Args:
        apart: split cases whose stages all recompute alike (`told_apart`); else one stands for all.

    Raises:
        InputError: a constraint cannot be computed.
    """
    uniform = {constraint.uniform for constraint in instance.space.constraints}
    if not apart and parts_alike(instance):
        uniform.remove("recompute")
    for setting in _settings(instance, family):
        for degree, candidates in _shard_degrees(instance, setting.candidates, setting.replicas):
            cut = evolve(setting, candidates=candidates, zero_degree=degree)
            for devices in _block_devices(instance, cut):
                allowed = [_modes(instance, cut, candidate, devices) for candidate in candidates]
                yield from _narrowed(instance, evolve(cut, block_devices=devices), allowed, uniform)


def parts_alike(instance: Instance) -> bool:
    """True if all stages must recompute the same number of blocks; each of the many numbers is a case."""
    return bool(instance.space.partial) and any(each.uniform == "recompute" for each in instance.space.constraints)


def told_apart(instance: Instance, case: Case) -> Iterator[Case]:
    """Split a case by recompute mode where stages are `parts_alike`."""
    return _narrowed(instance, case, case.modes, {"recompute"})


def _narrowed(
    instance: Instance, setting: Case, allowed: Sequence[tuple[Mode, ...]], uniform: Collection[str | None]
) -> Iterator[Case]:
    for modes in _uniform(allowed, uniform):
        usable = {each: used for each, used in zip(setting.candidates, modes, strict=True) if used}
        if _fits(instance, setting, list(usable)):
            yield evolve(setting, candidates=tuple(usable), modes=tuple(usable.values()))


def orders(instance: Instance) -> tuple[str, ...]:
    """Rank orders that distinguish cases."""
    space = instance.space
    read = any("rank_order" in constraint.names() for constraint in space.constraints)
    # On a network blocks lie anywhere, whatever the order of ranks.
    return tuple(space.rank_orders[:1] if instance.network is not None and not read else space.rank_orders)


def _settings(instance: Instance, family: Family) -> Iterator[Case]:
    space, rows = instance.space, family.rows
    numbers = (each.tolist() for each in (rows.replicas, rows.micro_batches, rows.schedule, rows.stages))
    for replicas, count, number, stages in zip(*numbers, strict=True):
        schedule = space.schedules[number]
        weights, hiding = space.weights(schedule, count, stages), space.hides(schedule.name)
        replayed = instance.makespan is not None and space.replays(schedule)
        shared = (family.candidates, (), family.widest, replicas)
        for order in orders(instance):
            yield Case(*shared, order, schedule, stages, count, weights, hiding, replayed)


def _shard_degrees(
    instance: Instance, candidates: Sequence[int], replicas: int
) -> Iterator[tuple[int | None, tuple[int, ...]]]:
    """Sizes of shard groups, and the candidates whose parameter groups they divide.

    Of sizes with the same division the first stands for all, unless a constraint reads `zero_degree`.
    """
    read = any("zero_degree" in constraint.names() for constraint in instance.space.constraints)
    seen = set()
    for degree in instance.space.zero_degrees:
        sizes = {}
        for each in candidates:
            counts = [replicas * len(group.ranks) for group in instance.candidates[each].state]
            if degree is None or all(count <= degree or count % degree == 0 for count in counts):
                sizes[each] = tuple(counts if degree is None else (min(count, degree) for count in counts))
        cut = tuple(sizes.items())
        if instance.pools is not None and len(cut) < len(candidates):
            continue  # Each of them has a stage.
        if cut and (read or cut not in seen):
            seen.add(cut)
            yield degree, tuple(sizes)


def _block_devices(instance: Instance, setting: Case) -> Sequence[int | None]:
    """Possible sums of the stages' widths if a constraint reads `devices`; else None."""
    widths = {instance.candidates[each].width for each in setting.candidates}
    if len(widths) == 1:
        return (setting.stages * widths.pop(),)
    if not any("devices" in constraint.names() for constraint in instance.space.constraints):
        return (None,)
    needed, room = [setting.widest], replica_devices(instance, setting)
    if instance.pools is not None:
        needed = [instance.candidates[each].width for each in setting.candidates]
        room = sum(replica_devices(*seen_by(instance, setting, each)) for each in setting.candidates)
    sums = {sum(needed)}
    for _ in range(setting.stages - len(needed)):
        sums = {total + width for total in sums for width in widths if total + width <= room}
    return tuple(sorted(sums))


def _modes(instance: Instance, setting: Case, index: int, devices: int | None) -> tuple[Mode, ...]:
    space, values = instance.space, _values(setting, instance.candidates[index], devices)
    modes = product(instance.recompute_names(index), dict.fromkeys(space.zero))
    every = {mode: {**values, **recompute_values(space, mode[0]), "zero": mode[1]} for mode in modes}
    for constraint in space.constraints:
        if constraint.per_stage:
            every = {mode: own for mode, own in every.items() if _holds(constraint, own)}
        elif every and not _holds(constraint, values):
            return ()
    return tuple(every)


def _holds(constraint: Constraint, values: Mapping[str, Value]) -> bool:
    """Check a constraint, cached by the values it reads; most cases differ in others."""
    return _known(constraint, tuple([(name, values.get(name, 1)) for name in constraint.names()]))


@lru_cache(maxsize=2**14)
def _known(constraint: Constraint, read: tuple[tuple[str, Value], ...]) -> bool:
    return constraint.holds(dict(read))


def _values(setting: Case, candidate: Candidate, devices: int | None) -> dict[str, Value]:
    """Value of every name of the constraint language except the modes (FORMATS.md, "Problem")."""
    values: dict[str, Value] = defaultdict(lambda: 1)
    values.update(candidate.degrees)
    split, size = int(values["tp"]) * int(values["cp"]), candidate.micro_batch
    ranks = _ratio(setting.replicas * candidate.width, split)
    values["dp"] = ranks if size is None else _ratio(setting.replicas * candidate.samples, size)
    values["pp"] = setting.stages
    values["replicas"] = setting.replicas
    values["micro_batch"] = size or candidate.samples
    values["micro_batches"] = setting.micro_batches
    values["width"] = candidate.width
    values["rank_order"] = setting.rank_order
    values["schedule"] = setting.schedule.name
    values["chunks"] = chunks_of(setting.schedule)
    values["zero_degree"] = ranks if setting.zero_degree is None else setting.zero_degree
    if devices is not None:
        values["devices"] = setting.replicas * devices
    return values


def _fits(instance: Instance, setting: Case, candidates: Sequence[int]) -> bool:
    """True if all blocks have room: one as wide as the setting says, the others as narrow as possible.

    A plan without a block that wide belongs to a setting of narrower ones. If constraints leave one width only,
    `block_devices` must match it.
    """
    widths = [instance.candidates[each].width for each in candidates]
    if instance.pools is not None:
        return len(candidates) == len(setting.candidates)
    room = replica_devices(instance, setting)
    if setting.widest not in widths or setting.widest + (setting.stages - 1) * min(widths) > room:
        return False
    return setting.block_devices in (None, setting.stages * setting.widest) or min(widths) < max(widths)


def _uniform(
    allowed: Sequence[tuple[Mode, ...]], uniform: Collection[str | None]
) -> Iterator[Sequence[tuple[Mode, ...]]]:
    """Narrow `allowed` to one recompute mode or ZeRO stage for all stages, if `uniform` requires it."""
    parts = (dict.fromkeys(mode[part] for modes in allowed for mode in modes) for part in range(2))
    recomputes, zeros = (
        used if name in uniform else [None] for name, used in zip(("recompute", "zero"), parts, strict=True)
    )
    for recompute, zero in product(recomputes, zeros):
        yield [
            tuple(mode for mode in modes if recompute in (None, mode[0]) and zero in (None, mode[1]))
            for modes in allowed
        ]


def _ratio(value: int, by: int) -> int | float:
    return value / by if value % by else value // by
