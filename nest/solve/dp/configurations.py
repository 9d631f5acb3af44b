"""What is decided before stages are: candidate, replicas, rank order, schedule, and the choices stages may make."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import inf

from attrs import define, field, frozen

from nest.instance import Candidate, Instance, Schedule, chunks_of
from nest.solve.dp.choices import Choice
from nest.solve.dp.even import even_counts
from nest.solve.dp.first_bounds import FirstBounds
from nest.spec.constraints import Constraint, Value


@frozen
class Configuration:
    """A family of plans that differ in their stages only.

    Attributes:
        order: position in the documented order of ties (candidate, schedule, rank order, replicas, shard groups,
            choices).
        candidate: index of the candidate.
        replicas: data-parallel degree `d`.
        micro_batches: `M`.
        rank_order: `pp-inner` or `dp-inner`.
        schedule: the pipeline schedule.
        choices: what a stage may choose, preferred first.
        stage_counts: numbers of stages the constraints allow, ascending.
        zero_degree: ranks over which ZeRO shards at most; None: all.
    """

    order: int
    candidate: int
    replicas: int
    micro_batches: int
    rank_order: str
    schedule: Schedule
    choices: tuple[Choice, ...]
    stage_counts: tuple[int, ...]
    zero_degree: int | None = None

    @property
    def modes(self) -> tuple[str, ...]:
        """Recompute modes that a stage may choose."""
        return tuple(dict.fromkeys(choice.recompute for choice in self.choices))

    @property
    def most_zero(self) -> int:
        """The highest ZeRO stage that a stage may choose."""
        return max(choice.zero for choice in self.choices)


@define
class Exclusions:
    """Why configurations fell away, for the diagnosis of an infeasible problem.

    Attributes:
        batch: pairs of candidate and replicas that cannot share the batch.
        constraints: per constraint text, combinations it alone refused first.
        never: by text, constraints of one name that hold nowhere: the name and the values it has.
        combinations: combinations of candidate, replicas, rank order, schedule and stage count looked at.
        uneven: combinations of candidate, replicas, rank order and schedule of several chunks without an even split.
        shard_groups: combinations of candidate, replicas, rank order and schedule without any shard groups to choose.
        slow: combinations of candidate, replicas, rank order, schedule and stage count that compute for too long.
    """

    batch: int = 0
    constraints: Counter[str] = field(factory=Counter)
    never: dict[str, tuple[str, tuple[Value, ...]]] = field(factory=dict)
    combinations: int = 0
    uneven: int = 0
    shard_groups: int = 0
    slow: int = 0


EvenCounts = Callable[[int, int, int], tuple[int, ...]]
"""Numbers of stages for so many chunks, so many micro-batches, and at most so many stages."""


def configurations(
    instance: Instance,
    most_stages: int,
    dealt_counts: EvenCounts,
    among: Sequence[int] | None = None,
    watch: Callable[[], None] = lambda: None,
    limit: float = inf,
) -> tuple[list[Configuration], Exclusions]:
    """Every configuration the constraints allow, in the documented order of ties, and what was excluded.

    Args:
        instance: the problem.
        most_stages: stages the layer graph can be cut into.
        dealt_counts: numbers of stages a schedule of several chunks may have.
        among: the candidates to take, ascending; None: all.
        watch: called after each step of a few milliseconds; may raise `OutOfTime`.
        limit: batch time, seconds; what cannot take less, by its compute alone, is left out.
    """
    exclusions, bounds = Exclusions(), FirstBounds(instance)
    rules = _Rules(instance, exclusions)
    found: list[Configuration] = []
    for index in range(len(instance.candidates)) if among is None else among:
        watch()
        candidate = instance.candidates[index]
        sharings = list(_sharings(instance, candidate, exclusions))
        choices = stage_choices(instance, candidate)
        for schedule, rank_order in product(instance.space.schedules, instance.space.rank_orders):
            for replicas, micro_batches in sharings:
                slots, chunks = instance.cluster.size // (replicas * candidate.width), chunks_of(schedule)
                counts: Sequence[int] = stage_counts(instance, min(slots, most_stages))
                if chunks > 1:
                    counts = dealt_counts(chunks, micro_batches, slots)
                    exclusions.uneven += not counts
                if counts and limit < inf:
                    kept_counts = bounds.of(index, schedule, micro_batches, counts) <= limit
                    exclusions.slow += len(counts) - int(kept_counts.sum())
                    counts = [count for count, kept in zip(counts, kept_counts, strict=True) if kept]
                for degree in zero_degrees(instance, (candidate,), replicas, exclusions) if counts else ():
                    values = plan_values(candidate, replicas, micro_batches, rank_order, schedule, degree)
                    for kept, every in rules.allowed(values, replicas * candidate.width, counts, choices).items():
                        for allowed in apart(instance, every):
                            order = len(found)
                            found.append(
                                Configuration(
                                    order, index, replicas, micro_batches, rank_order, schedule, kept, allowed, degree
                                )
                            )
    exclusions.never = rules.never()
    return found, exclusions


def zero_degrees(
    instance: Instance, candidates: Sequence[Candidate], replicas: int, exclusions: Exclusions
) -> list[int | None]:
    """The ranks over which ZeRO may shard at most, in the documented order of ties.

    Those that are no choice for any of the candidates are left out; so are those that change nothing compared with an
    earlier one, unless a constraint reads them.
    """
    if instance.space.zero_degrees == (None,):
        return [None]
    told_apart = any("zero_degree" in constraint.names() for constraint in instance.space.constraints)
    found: dict[object, int | None] = {}
    for degree in instance.space.zero_degrees:
        effects = tuple(shard_counts(candidate, replicas, degree) for candidate in candidates)
        if any(effect is not None for effect in effects):
            found.setdefault((degree, effects) if told_apart else effects, degree)
    exclusions.shard_groups += not found
    return list(found.values())


def shard_counts(candidate: Candidate, replicas: int, zero_degree: int | None) -> tuple[int, ...] | None:
    """Over how many ranks ZeRO shards each parameter group; None: `zero_degree` does not divide the ranks of one."""
    counts = [replicas * len(group.ranks) for group in candidate.state]
    if zero_degree is None:
        return tuple(counts)
    if any(count > zero_degree and count % zero_degree for count in counts):
        return None
    return tuple(min(count, zero_degree) for count in counts)


def _sharings(instance: Instance, candidate: Candidate, exclusions: Exclusions) -> Iterator[tuple[int, int]]:
    """Numbers of replicas of a candidate, ascending, with their micro-batches."""
    most = min(instance.cluster.size // candidate.width, instance.space.global_batch // candidate.samples)
    for replicas in range(1, most + 1):
        micro_batches = instance.micro_batches(candidate, replicas)
        if micro_batches is None:
            exclusions.batch += 1
        else:
            yield replicas, micro_batches


def stage_counts(instance: Instance, most: int) -> Sequence[int]:
    """Numbers of stages up to `most`, or that of the partition given; only those that can be even where they must."""
    if instance.space.partition is not None:
        count = len(instance.space.partition)
        return range(count, count + 1) if count <= most else range(0)
    return even_counts(instance, range(1, most + 1))


def apart(instance: Instance, counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The numbers of stages of one configuration: all, or each alone where it decides how to cut."""
    if instance.space.even:
        yield from ((count,) for count in counts)
    elif counts:
        yield counts


def plan_values(
    candidate: Candidate,
    replicas: int,
    micro_batches: int,
    rank_order: str,
    schedule: Schedule,
    zero_degree: int | None = None,
) -> dict[str, Value]:
    """The names constraints know, but for `pp` and `devices`; a strategy that takes no part has degree 1."""
    degrees, samples = candidate.degrees, candidate.samples
    ranks = Fraction(replicas * candidate.width, degrees.get("tp", 1) * degrees.get("cp", 1))
    data_parallel = ranks if candidate.micro_batch is None else Fraction(replicas * samples, candidate.micro_batch)
    values: dict[str, Value] = defaultdict(lambda: 1)
    values.update(degrees)
    values.update(
        dp=_number(data_parallel),
        zero_degree=_number(ranks) if zero_degree is None else zero_degree,
        replicas=replicas,
        micro_batch=samples if candidate.micro_batch is None else candidate.micro_batch,
        micro_batches=micro_batches,
        width=candidate.width,
        rank_order=rank_order,
        schedule=schedule.name,
        chunks=chunks_of(schedule),
    )
    return values


def _number(value: Fraction) -> Value:
    return value.numerator if value.denominator == 1 else float(value)


class Remembered:
    """A constraint that is computed once for each combination of the values it reads."""

    def __init__(self, constraint: Constraint) -> None:
        self.text = constraint.text
        self._constraint = constraint
        self._names = tuple(sorted(constraint.names()))
        self._known: dict[tuple[Value, ...], bool] = {}

    def holds(self, values: Mapping[str, Value], chosen: Mapping[str, Value] | None = None) -> bool:
        """Whether it is true of `values` with what a stage chose.

        Raises:
            InputError: as `Constraint.holds`.
        """
        named = chosen or {}
        key = tuple(named[name] if name in named else values[name] for name in self._names)
        if key not in self._known:
            self._known[key] = self._constraint.holds(dict(zip(self._names, key, strict=True)))
        return self._known[key]

    def never(self) -> tuple[str, tuple[Value, ...]] | None:
        """The only name it reads and the values that had, where it was true of none of them."""
        if len(self._names) != 1 or not self._known or any(self._known.values()):
            return None
        return self._names[0], tuple(key[0] for key in self._known)


class _Rules:
    """The constraints, sorted by what they read, so that each is computed no more often than its names change."""

    def __init__(self, instance: Instance, exclusions: Exclusions) -> None:
        self.exclusions = exclusions
        expressions = [each for each in instance.space.constraints if each.expression is not None]
        plain = [each for each in expressions if not each.per_stage]
        choosing = [each for each in expressions if each.per_stage]
        self.once = [Remembered(each) for each in plain if not each.names() & COUNTED_NAMES]
        self.counted = [Remembered(each) for each in plain if each.names() & COUNTED_NAMES]
        self.choosing = [Remembered(each) for each in choosing]
        self.choosing_counted = any(each.names() & COUNTED_NAMES for each in choosing)
        self.uniform = [each.uniform for each in instance.space.constraints if each.uniform is not None]
        self._choosing_names = tuple(sorted(set().union(*(each.names() for each in choosing)) - CHOSEN_NAMES))
        self._sets: dict[tuple[object, ...], tuple[list[tuple[Choice, ...]], list[str]]] = {}

    def never(self) -> dict[str, tuple[str, tuple[Value, ...]]]:
        """Constraints that held nowhere, as `Exclusions.never` has them."""
        rows = ((each.text, each.never()) for each in (*self.once, *self.counted, *self.choosing))
        return {text: found for text, found in rows if found is not None}

    def allowed(
        self, values: dict[str, Value], ranks: int, counts: Sequence[int], choices: tuple[Choice, ...]
    ) -> dict[tuple[Choice, ...], tuple[int, ...]]:
        """Stage counts allowed, by the choices stages may draw from: one set, or one per value of what is uniform."""
        self.exclusions.combinations += len(counts)
        refusing = next((each for each in self.once if not each.holds(values)), None)
        if refusing is not None:
            self.exclusions.constraints[refusing.text] += len(counts)
            return {}
        kept = list(counts)
        if self.counted:
            kept = [count for count in counts if self._holds(_with_count(values, ranks, count))]
        if not kept:
            return {}
        if not self.choosing_counted:
            return dict.fromkeys(self._choice_sets(values, choices, len(kept)), tuple(kept))
        found: dict[tuple[Choice, ...], list[int]] = {}
        for count in kept:
            for choice_set in self._choice_sets(_with_count(values, ranks, count), choices, 1):
                found.setdefault(choice_set, []).append(count)
        return {choice_set: tuple(allowed) for choice_set, allowed in found.items()}

    def _holds(self, values: dict[str, Value]) -> bool:
        refusing = next((each for each in self.counted if not each.holds(values)), None)
        if refusing is not None:
            self.exclusions.constraints[refusing.text] += 1
        return refusing is None

    def _choice_sets(
        self, values: dict[str, Value], choices: tuple[Choice, ...], weight: int
    ) -> list[tuple[Choice, ...]]:
        """The sets of choices that stages may draw from; what refuses the last choice is told of `weight` plans."""
        key = (choices, *(values[name] for name in self._choosing_names))
        if key not in self._sets:
            self._sets[key] = self._made_sets(values, choices)
        sets, refusing = self._sets[key]
        for text in refusing:
            self.exclusions.constraints[text] += weight
        return sets

    def _made_sets(
        self, values: dict[str, Value], choices: tuple[Choice, ...]
    ) -> tuple[list[tuple[Choice, ...]], list[str]]:
        refusing = []
        for constraint in self.choosing:
            kept = tuple(choice for choice in choices if constraint.holds(values, _of(choice)))
            if choices and not kept:
                refusing.append(constraint.text)
            choices = kept
        sets = [choices] if choices else []
        for attribute in self.uniform:
            sets = [part for choice_set in sets for part in _split(choice_set, attribute)]
        return sets, refusing


COUNTED_NAMES = frozenset({"pp", "devices"})
"""Names whose value follows from the number of stages."""

CHOSEN_NAMES = frozenset({"zero", "recompute"})
"""Names whose value is what a stage chooses."""


def _with_count(values: dict[str, Value], ranks: int, stages: int) -> dict[str, Value]:
    counted = values.copy()
    counted.update(pp=stages, devices=ranks * stages)
    return counted


def with_choice(values: dict[str, Value], choice: Choice) -> dict[str, Value]:
    """The names constraints know, with what a stage chose."""
    chosen = values.copy()
    chosen.update(_of(choice))
    return chosen


def _of(choice: Choice) -> dict[str, Value]:
    return {"zero": choice.zero, "recompute": choice.recompute}


def _split(choices: tuple[Choice, ...], attribute: str) -> list[tuple[Choice, ...]]:
    parts: dict[Value, list[Choice]] = {}
    for choice in choices:
        parts.setdefault(_of(choice)[attribute], []).append(choice)
    return [tuple(part) for part in parts.values()]


def stage_choices(instance: Instance, candidate: Candidate) -> tuple[Choice, ...]:
    """What a stage may choose, preferred first: less recomputation, then a lower ZeRO stage."""
    allowed = instance.space.recompute
    return tuple(
        Choice(mode.name, zero)
        for mode in candidate.recompute
        if allowed is None or mode.name in allowed
        for zero in instance.space.zero
    )
