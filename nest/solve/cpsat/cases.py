"""Cases: everything the stages of a plan share, listed one by one (PROBLEM.md section 3).

Each case is a question of its own: is there a plan of this case that is better than the one given?
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
from nest.solve.cpsat.families import Families, Family, rooms
from nest.solve.cpsat.scaling import Limit, least_weight
from nest.spec.constraints import Constraint, Value

Mode = tuple[str, int]
"""A recompute mode by name, and a ZeRO stage."""

Step = tuple[str, int]
"""A part of a pass, or the message that it waits for (`arriving`, `returning`), and the chunk in the pipeline."""

Path = tuple[tuple[Step, int], ...]
"""How often a path through the passes of a batch runs each step."""


@frozen(eq=False)
class Case:
    """One choice of everything stages share.

    Attributes:
        candidates: indices of the candidates its stages choose from; on pools one of each pool that the plan uses.
        modes: for each of them, the modes a stage may use.
        widest: width of the widest block, which at least one stage has (`g`); on pools each candidate has a stage.
        replicas: `d`.
        rank_order: `pp-inner` or `dp-inner`.
        schedule: the pipeline schedule.
        stages: how many (`s`).
        micro_batches: per replica (`M`).
        weights: of the schedule.
        hiding: whether messages between stages hide under compute.
        replayed: whether its plans are priced by their replay, too.
        block_devices: devices of all blocks of a replica, where a constraint speaks of them; else None.
        zero_degree: ranks over which ZeRO shards at most; None: all.
    """

    candidates: tuple[int, ...]
    modes: tuple[tuple[Mode, ...], ...]
    widest: int
    replicas: int
    rank_order: str
    schedule: Schedule
    stages: int
    micro_batches: int
    weights: Weights
    hiding: bool = False
    replayed: bool = False
    block_devices: int | None = None
    zero_degree: int | None = None

    @property
    def apart(self) -> bool:
        """Whether the sum of what stages add to it (`u`) is anything but `B` times that of their times (`t`).

        Or nothing weighs times, so that nothing limits them.
        """
        return self.hiding or not self.weights.uniform or self.weights.slowest == self.weights.forward == 0

    @property
    def least_weights(self) -> tuple[float, float]:
        """`(A, B)` with which no plan takes longer than it does, of stages' times with nothing hidden.

        What hides is no longer than the compute it hides under, which is left.
        """
        return self.weights.slowest / (2 if self.hiding else 1), least_weight(self.weights)

    def in_flight(self, stage: int) -> float:
        """Micro-batches in flight on a stage, counted from 1."""
        return in_flight(fullest_moments(self.schedule, stage, self.stages, self.micro_batches))

    def replicas_alike(self, instance: Instance) -> bool:
        """Whether replicas may change places: unless ZeRO shards over some of them alone (shard groups)."""
        groups = (group for each in self.candidates for group in instance.candidates[each].state)
        return self.zero_degree is None or all(len(each.ranks) * self.replicas <= self.zero_degree for each in groups)

    def plan(self, stages: Iterable[StageDecision]) -> Solution:
        """The plan of the case that has these stages."""
        chunks = chunks_of(self.schedule)
        return Solution(self.replicas, self.rank_order, self.schedule.name, tuple(stages), chunks, self.zero_degree)


@define
class OpenCase:
    """A case that is not settled yet.

    Attributes:
        case: the case.
        bound: seconds no plan of it is below.
        margin: bounds leave out what is above the target by this factor.
        stuck: why it cannot be settled.
        paths: through the passes of its plans, which bound their replay.
        excluded: plans that are priced already, as its models name them.
    """

    case: Case
    bound: float = field(converter=float)  # Arrays give numbers of NumPy, whose comparisons are no `bool`.
    margin: float
    stuck: str | None = None
    paths: Sequence[Path] = ()
    excluded: list[Any] = field(factory=list)


LimitOf = Callable[[Case, int], Limit | None]
"""Of a case, and of so many numbers rounded down on their own in a stage's time; None: any plan is better."""


def has_ports(instance: Instance, case: Case) -> bool:
    """Whether stages of the case may have ports (PROBLEM.md section 4, Ports)."""
    return any(instance.candidates[each].busy is not None for each in case.candidates)


def replica_devices(instance: Instance, case: Case) -> int:
    """Devices of one replica (`K` of PROBLEM.md section 3); on pools of one that a candidate sees (`seen_by`)."""
    return case.widest * (instance.cluster.size // (case.replicas * case.widest))


def seen_by(instance: Instance, case: Case, candidate: int) -> tuple[Instance, Case]:
    """An instance and a case as blocks of a candidate see them: on pools its own pool is a cluster by itself."""
    if instance.pools is None:
        return instance, case
    return instance.at(candidate), evolve(case, widest=instance.candidates[candidate].width)


def teams(instance: Instance, case: Case) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Positions of the candidates whose blocks share devices, and how many stages these have at most."""
    if instance.pools is None:
        return ((tuple(range(len(case.candidates))), case.stages),)
    return tuple(((position,), room) for position, room in enumerate(rooms(instance, case.candidates, case.replicas)))


def cases(instance: Instance, most_stages: int, *, apart: bool = True) -> Iterator[Case]:
    """Every case of an instance; together they hold every plan of its space.

    Args:
        instance: the problem.
        most_stages: more stages than this no plan has.
        apart: as `cases_of` has it.

    Raises:
        InputError: a constraint cannot be computed.
    """
    for family in Families(instance, most_stages):
        yield from cases_of(instance, family, apart=apart)


def cases_of(instance: Instance, family: Family, *, apart: bool = True) -> Iterator[Case]:
    """Every case of a family.

    Args:
        instance: the problem.
        family: the family.
        apart: whether cases that all stages recompute alike are `told_apart`; else one stands for all.

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
    """Whether all stages must recompute as many of their blocks: there are many numbers, each a case of its own."""
    return bool(instance.space.partial) and any(each.uniform == "recompute" for each in instance.space.constraints)


def told_apart(instance: Instance, case: Case) -> Iterator[Case]:
    """The cases that a case of `cases_of` stands for where stages are `parts_alike`: one for each recompute mode."""
    return _narrowed(instance, case, case.modes, {"recompute"})


def _narrowed(
    instance: Instance, setting: Case, allowed: Sequence[tuple[Mode, ...]], uniform: Collection[str | None]
) -> Iterator[Case]:
    """The cases of a setting whose stages may have these modes."""
    for modes in _uniform(allowed, uniform):
        usable = {each: used for each, used in zip(setting.candidates, modes, strict=True) if used}
        if _fits(instance, setting, list(usable)):
            yield evolve(setting, candidates=tuple(usable), modes=tuple(usable.values()))


def orders(instance: Instance) -> tuple[str, ...]:
    """The rank orders that tell cases apart."""
    space = instance.space
    read = any("rank_order" in constraint.names() for constraint in space.constraints)
    # On a network blocks lie anywhere, whatever the order of ranks.
    return tuple(space.rank_orders[:1] if instance.network is not None and not read else space.rank_orders)


def _settings(instance: Instance, family: Family) -> Iterator[Case]:
    """What stages share before shard groups, modes and the devices of all blocks are chosen."""
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
    """Sizes of shard groups, and the candidates whose parameter groups they cut evenly.

    Unless a constraint reads `zero_degree`, of sizes that cut alike the first stands for all.
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
    """Every sum of the stages' widths there is, where a constraint reads `devices`; else it need not be known."""
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
    """The modes a stage with this candidate may use."""
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
    """Whether a constraint holds, worked out once for what it reads: most cases differ in other things."""
    return _known(constraint, tuple([(name, values.get(name, 1)) for name in constraint.names()]))


@lru_cache(maxsize=2**14)
def _known(constraint: Constraint, read: tuple[tuple[str, Value], ...]) -> bool:
    return constraint.holds(dict(read))


def _values(setting: Case, candidate: Candidate, devices: int | None) -> dict[str, Value]:
    """The value of every name of the constraint language but the modes (FORMATS.md, "Problem")."""
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
    """Whether so many blocks have room, one of them as wide as the setting says and the others as narrow as they go.

    A plan without a block that wide belongs to a setting of narrower ones. Where constraints leave blocks of one width
    only, `block_devices` must be what these have.
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
    """`allowed` narrowed to one recompute mode or ZeRO stage for all stages, where `uniform` asks for it."""
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
