"""Cases: everything the stages of a plan share, listed one by one (PROBLEM.md section 3).

Each case is a question of its own: is there a plan of this case that is better than the one given?
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import combinations, product

from attrs import define, evolve, field, frozen

from nest.instance import (
    Candidate,
    Instance,
    Schedule,
    Solution,
    StageDecision,
    Weights,
    admits,
    chunks_of,
    fullest_moments,
    in_flight,
)
from nest.solve.cpsat.cuts import chunk_units
from nest.solve.cpsat.scaling import Limit, least_weight
from nest.spec.constraints import Constraint, Value

Mode = tuple[str, int]
"""A recompute mode by name, and a ZeRO stage."""


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
    """

    case: Case
    bound: float = field(converter=float)  # Arrays give numbers of NumPy, whose comparisons are no `bool`.
    margin: float
    stuck: str | None = None


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


def rooms(instance: Instance, candidates: Sequence[int], replicas: int) -> tuple[int, ...]:
    """For each of some candidates, how many blocks of a replica its pool has room for."""
    every = ((instance.cluster_of(each).size, instance.candidates[each].width) for each in candidates)
    return tuple(size // (replicas * width) for size, width in every)


def cases(instance: Instance, most_stages: int) -> Iterator[Case]:
    """Every case of an instance; together they hold every plan of its space.

    Args:
        instance: the problem.
        most_stages: more stages than this no plan has.

    Raises:
        InputError: a constraint cannot be computed.
    """
    for setting in _settings(instance, most_stages):
        for degree, candidates in _shard_degrees(instance, setting.candidates, setting.replicas):
            cut = evolve(setting, candidates=candidates, zero_degree=degree)
            for devices in _block_devices(instance, cut):
                allowed = [_modes(instance, cut, candidate, devices) for candidate in candidates]
                for modes in _uniform(instance, allowed):
                    usable = {each: used for each, used in zip(candidates, modes, strict=True) if used}
                    if _fits(instance, cut, list(usable), devices):
                        used = tuple(usable.values())
                        yield evolve(cut, candidates=tuple(usable), modes=used, block_devices=devices)


def _settings(instance: Instance, most_stages: int) -> Iterator[Case]:
    """What stages share before shard groups, modes and the devices of all blocks are chosen."""

    def setting(
        candidates: tuple[int, ...], widest: int, replicas: int, order: str, schedule: Schedule, stages: int, count: int
    ) -> Case:
        weights, hiding = space.weights(schedule, count, stages), space.hides(schedule.name)
        return Case(candidates, (), widest, replicas, order, schedule, stages, count, weights, hiding)

    space, size = instance.space, instance.cluster.size
    read = any("rank_order" in constraint.names() for constraint in space.constraints)
    # On a network blocks lie anywhere, whatever the order of ranks.
    orders = space.rank_orders[:1] if instance.network is not None and not read else space.rank_orders
    plain = [schedule for schedule in space.schedules if chunks_of(schedule) == 1]
    interleaved = [schedule for schedule in space.schedules if chunks_of(schedule) > 1]
    for candidates, widest in _together(instance, mixed=space.mixed):
        fewest = 1 if instance.pools is None else len(candidates)
        for replicas, count in _replica_numbers(instance, candidates, widest):
            room = _room(instance, candidates, widest, replicas)
            numbers: Iterable[int] = range(fewest, min(most_stages, room) + 1)
            if space.even:
                numbers = [stages for stages in numbers if len(space.blocks) % stages == 0]
            if space.partition is not None:
                numbers = [stages for stages in numbers if len(space.partition) == stages]
            for order, schedule, stages in product(orders, plain, numbers):
                if admits(schedule, stages, count):
                    yield setting(candidates, widest, replicas, order, schedule, stages, count)
    # Plans of several chunks have one candidate.
    split = cache(lambda parts: chunk_units(instance, parts) is not None)
    for candidates, widest in _together(instance, mixed=False) if interleaved else ():
        for replicas, count in _replica_numbers(instance, candidates, widest):
            for order, schedule in product(orders, interleaved):
                for stages in range(2, min(size // (replicas * widest), len(space.blocks)) + 1):
                    given = space.partition is None or len(space.partition) == stages
                    if given and split(stages * chunks_of(schedule)) and admits(schedule, stages, count):
                        yield setting(candidates, widest, replicas, order, schedule, stages, count)


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


def _replica_numbers(instance: Instance, candidates: Sequence[int], widest: int) -> Iterator[tuple[int, int]]:
    """Numbers of replicas, with the micro-batches of each."""
    most = instance.cluster.size // widest
    if instance.pools is not None:
        most = min(instance.cluster_of(each).size // instance.candidates[each].width for each in candidates)
    for replicas in range(1, most + 1):
        count = instance.micro_batches(instance.candidates[candidates[0]], replicas)
        if count is not None:
            yield replicas, count


def _room(instance: Instance, candidates: Sequence[int], widest: int, replicas: int) -> int:
    """How many blocks of these candidates a replica has room for at most."""
    widths = [instance.candidates[each].width for each in candidates]
    if instance.pools is None:
        return widest * (instance.cluster.size // (replicas * widest)) // min(widths)
    return sum(rooms(instance, candidates, replicas))


def _together(instance: Instance, *, mixed: bool) -> Iterator[tuple[tuple[int, ...], int]]:
    """Sets of candidates that the stages of one plan choose from, each with the width of the widest."""
    if instance.pools is not None:
        yield from _across_pools(instance)
        return
    usable = [(index, each) for index, each in enumerate(instance.candidates) if instance.cluster.admits(each.width)]
    if not mixed:
        for index, each in usable:
            yield (index,), each.width
        return
    for samples, width in sorted({(each.samples, each.width) for _, each in usable}):
        indices = (index for index, each in usable if each.samples == samples and each.width <= width)
        yield tuple(indices), width


def _across_pools(instance: Instance) -> Iterator[tuple[tuple[int, ...], int]]:
    """Candidates of the same samples, one of each of some pools, with the width of the widest."""
    by_samples: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, each in enumerate(instance.candidates):
        if instance.cluster_of(index).admits(each.width):
            by_samples[each.samples][instance.pool_of(index)].append(index)
    for _, of_pool in sorted(by_samples.items()):
        for count in range(1, len(of_pool) + 1):
            for pools in combinations(sorted(of_pool), count):
                for candidates in product(*(of_pool[pool] for pool in pools)) if _joined(instance, pools) else ():
                    used = [instance.candidates[each] for each in candidates]
                    if not instance.space.alike or all(each.split == used[0].split for each in used):
                        yield candidates, max(each.width for each in used)


def _joined(instance: Instance, pools: Sequence[int]) -> bool:
    """Whether links lead from each of these pools to all the others, by way of some of them."""
    assert instance.pools is not None
    reached, waiting = {pools[0]}, [pools[0]]
    while waiting:
        here = waiting.pop()
        near = {each for each in pools if each not in reached and instance.pools.link(here, each) is not None}
        reached |= near
        waiting += near
    return len(reached) == len(pools)


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
    space, candidate = instance.space, instance.candidates[index]
    names = [mode.name for mode in candidate.recompute if space.recompute is None or mode.name in space.recompute]
    values = _values(setting, candidate, devices)
    every = list(product(names, dict.fromkeys(space.zero)))
    for constraint in space.constraints:
        every = [mode for mode in every if _holds(constraint, values, mode)]
    return tuple(every)


def _holds(constraint: Constraint, values: dict[str, Value], mode: Mode) -> bool:
    values["recompute"], values["zero"] = mode
    return constraint.holds(values)


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


def _fits(instance: Instance, setting: Case, candidates: Sequence[int], devices: int | None) -> bool:
    """Whether so many blocks have room, one of them as wide as the setting says and the others as narrow as they go.

    A plan without a block that wide belongs to a setting of narrower ones. Where constraints leave blocks of one width
    only, `devices` must be what these have.
    """
    widths = [instance.candidates[each].width for each in candidates]
    if instance.pools is not None:
        return len(candidates) == len(setting.candidates)
    room = replica_devices(instance, setting)
    if setting.widest not in widths or setting.widest + (setting.stages - 1) * min(widths) > room:
        return False
    return devices in (None, setting.stages * setting.widest) or min(widths) < max(widths)


def _uniform(instance: Instance, allowed: Sequence[tuple[Mode, ...]]) -> Iterator[Sequence[tuple[Mode, ...]]]:
    """`allowed` narrowed to one recompute mode or ZeRO stage for all stages, where `uniform` asks for it."""
    uniform = {constraint.uniform for constraint in instance.space.constraints}
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
