"""Constraints on plans before their stages are decided: what they allow and refuse."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache

from attrs import define, field

from nest.instance import Candidate, Instance, Schedule, Space, chunks_of, partial, recompute_values
from nest.reuse import once
from nest.solve.dp.choices import Choice
from nest.spec.constraints import STAGE_NAMES, Constraint, Value

COUNTED_NAMES = frozenset({"pp", "devices"})  # Names determined by the number of stages.
CHOSEN_NAMES = STAGE_NAMES  # Names determined by a stage's choice.
REPLICA_NAMES = frozenset({"dp", "zero_degree"})  # Names determined by the candidate and the number of replicas.

SHARED_NAMES = COUNTED_NAMES | {"replicas", "micro_batches", "rank_order", "schedule", "chunks"}
"""Names with one value for all stages of a plan."""

BESIDE_CANDIDATES = SHARED_NAMES | CHOSEN_NAMES | REPLICA_NAMES  # Names not determined by the candidate alone.
Members = tuple[tuple[int, tuple[Choice, ...]], ...]  # Candidates by index, each with the choices of its stages.
AllowedCounts = dict[tuple[Choice, ...], tuple[int, ...]]  # Numbers of stages by the choices of stages.


@define(repr=False)
class Exclusions:
    """Reasons for excluded configurations, for the diagnosis of an infeasible problem."""

    batch: int = 0  # Pairs of candidate and replicas that cannot share the batch.
    constraints: Counter[str] = field(factory=Counter)  # By constraint text, combinations that it was first to refuse.
    # By text, constraints on one name that never hold: the name and its values.
    never: dict[str, tuple[str, tuple[Value, ...]]] = field(factory=dict)
    combinations: int = 0  # Combinations of candidate, replicas, rank order, schedule and stage count examined.
    uneven: int = 0  # Combinations of candidate, replicas, rank order and interleaved schedule without an even split.
    # Combinations of candidate, replicas, rank order and schedule without any plan of the schedule.
    unadmitted: int = 0
    shard_groups: int = 0  # Combinations of candidate, replicas, rank order and schedule without possible shard groups.
    slow: int = 0  # Combinations of candidate, replicas, schedule and stage count with too much compute.
    large: int = 0  # Such combinations that are fast enough, but exceed the memory of all stages together.

    def hold(
        self,
        constraints: "Sequence[_CachedConstraint]",
        values: Mapping[str, Value],
        added: Mapping[str, Value] | None = None,
        weight: int = 1,
    ) -> bool:
        """Check constraints on `values` and `added`; count `weight` for the first that fails."""
        refusing = next((each for each in constraints if not each.holds(values, added)), None)
        if refusing is not None:
            self.constraints[refusing.text] += weight
        return refusing is None


def plan_values(
    candidate: Candidate,
    replicas: int,
    micro_batches: int,
    rank_order: str,
    schedule: Schedule,
    zero_degree: int | None = None,
) -> dict[str, Value]:
    """Values of all constraint names except `pp` and `devices`; an unused strategy has degree 1."""
    degrees, samples = candidate.degrees, candidate.samples
    ranks = _share(replicas * candidate.width, degrees.get("tp", 1) * degrees.get("cp", 1))
    data_parallel = ranks if candidate.micro_batch is None else _share(replicas * samples, candidate.micro_batch)
    values: dict[str, Value] = defaultdict(lambda: 1)
    values.update(degrees)
    values.update(
        dp=data_parallel,
        zero_degree=ranks if zero_degree is None else zero_degree,
        replicas=replicas,
        micro_batch=samples if candidate.micro_batch is None else candidate.micro_batch,
        micro_batches=micro_batches,
        width=candidate.width,
        rank_order=rank_order,
        schedule=schedule.name,
        chunks=chunks_of(schedule),
    )
    return values


def _share(whole: int, among: int) -> Value:
    return whole / among if whole % among else whole // among


def stage_choices(instance: Instance, candidate: int) -> tuple[Choice, ...]:
    """Choices of a stage, preferred first: less recomputation, then a lower ZeRO stage."""
    return _every_choice(instance.recompute_names(candidate), instance.space.zero)


@lru_cache(maxsize=1 << 8)
def _every_choice(names: tuple[str, ...], zeros: tuple[int, ...]) -> tuple[Choice, ...]:
    return tuple(Choice(name, zero) for name in names for zero in zeros)


def uniform_sets(
    choices: Mapping[int, tuple[Choice, ...]], uniform: Collection[str], *, by_count: bool = True
) -> list[Members]:
    """Sets of choices for stages: one, or one per value of what must be `uniform`; without empty ones.

    Without `by_count`, a set has all numbers of first blocks, none and all included, instead of one each.
    """
    parts = {} if by_count else {each.recompute: partial(each.recompute) for some in choices.values() for each in some}
    joined = {name for part in parts.values() if part is not None for name in (part.mode, part.rest)}

    def value(choice: Choice, name: str) -> object:
        if name == "recompute" and (choice.recompute in joined or parts.get(choice.recompute) is not None):
            return None
        return getattr(choice, name)

    sets = [{index: choices_left for index, choices_left in choices.items() if choices_left}]
    for name in uniform:
        found = []
        for each in sets:
            alike: dict[object, dict[int, list[Choice]]] = defaultdict(lambda: defaultdict(list))
            for index, some in each.items():
                for choice in some:
                    alike[value(choice, name)][index].append(choice)
            found += [{index: tuple(some) for index, some in part.items()} for part in alike.values()]
        sets = found
    return [tuple(sorted(each.items())) for each in sets if each]


def by_count(choices: tuple[Choice, ...]) -> list[tuple[Choice, ...]]:
    """Split a set of choices by the number of recomputed blocks."""
    names = dict.fromkeys(choice.recompute for choice in choices)
    return [tuple(choice for choice in choices if choice.recompute == name) for name in names]


def _chosen(space: Space, choice: Choice) -> dict[str, Value]:
    return {"zero": choice.zero, **recompute_values(space, choice.recompute)}


def _counts(ranks: int, stages: int) -> dict[str, Value]:
    return {"pp": stages, "devices": ranks * stages}


def _from(least: int, totals: frozenset[int] | None) -> frozenset[int] | None:
    return None if totals is None else frozenset(total for total in totals if total >= least)


class _CachedConstraint:
    """Constraint cached by the values it reads."""

    def __init__(self, constraint: Constraint) -> None:
        self.text = constraint.text
        self._constraint = constraint
        self._names = tuple(sorted(constraint.names()))
        self.shared = tuple(name for name in self._names if name not in CHOSEN_NAMES)
        self._known: dict[tuple[Value, ...], bool] = {}

    def holds(self, values: Mapping[str, Value], added: Mapping[str, Value] | None = None) -> bool:
        """Check the constraint on `values` and `added`.

        Raises:
            InputError: see `Constraint.holds`.
        """
        further = added or {}
        key = tuple([further[name] if name in further else values[name] for name in self._names])
        return once(self._known, key, lambda: self._constraint.holds(dict(zip(self._names, key, strict=True))))

    def reads(self, names: Collection[str]) -> bool:
        return any(name in names for name in self._names)

    def reads_only(self, name: str) -> bool:
        return self._names == (name,)

    def never(self) -> tuple[str, tuple[Value, ...]] | None:
        """The only name it reads with the values tried, if it never held."""
        if len(self._names) != 1 or not self._known or any(self._known.values()):
            return None
        return self._names[0], tuple(key[0] for key in self._known)


class PlainRules:
    """Constraints on plans of one candidate, grouped by the names they read."""

    def __init__(self, instance: Instance, exclusions: Exclusions) -> None:
        self.exclusions, self.space = exclusions, instance.space
        expressions = [each for each in instance.space.constraints if each.expression is not None]
        plain = [each for each in expressions if not each.per_stage]
        choosing = [each for each in expressions if each.per_stage]
        self.once = [_CachedConstraint(each) for each in plain if not each.names() & COUNTED_NAMES]
        self._sized = [each for each in self.once if not each.reads(BESIDE_CANDIDATES)]
        self.counted = [_CachedConstraint(each) for each in plain if each.names() & COUNTED_NAMES]
        self.choosing = [_CachedConstraint(each) for each in choosing]
        self.choosing_counted = any(each.names() & COUNTED_NAMES for each in choosing)
        self.uniform = [each.uniform for each in instance.space.constraints if each.uniform is not None]
        self._choosing_names = tuple(sorted(set().union(*(each.names() for each in choosing)) - CHOSEN_NAMES))
        self._sets: dict[tuple[object, ...], tuple[list[tuple[Choice, ...]], list[str]]] = {}
        self._by_plan = any(each.names() & (SHARED_NAMES | REPLICA_NAMES) - {"pp"} for each in expressions)
        self._allowed: dict[tuple[int, tuple[int, ...]], tuple[AllowedCounts, Counter[str]]] = {}
        self._of_devices = [each for each in self.counted if each.reads_only("devices")]
        self._most: dict[tuple[int, int], int] = {}

    def admit(self, candidate: Candidate, schedule: Schedule) -> bool:
        """Check the constraints that read only a candidate's degrees and sizes."""
        values = plan_values(candidate, 1, 1, "", schedule) if self._sized else {}
        return all(each.holds(values) for each in self._sized)

    def most_stages(self, ranks: int, most: int) -> int:
        """Most stages, up to `most`, of so many ranks each that constraints on devices alone allow."""
        if not self._of_devices:
            return most
        if (ranks, most) not in self._most:
            fewer = (count for count in range(most, 0, -1) if self._admit_devices(ranks * count))
            self._most[ranks, most] = next(fewer, 0)
        return self._most[ranks, most]

    def _admit_devices(self, devices: int) -> bool:
        return all(each.holds({"devices": devices}) for each in self._of_devices)

    def never(self) -> dict[str, tuple[str, tuple[Value, ...]]]:
        """Constraints that never held, for `Exclusions.never`."""
        rows = ((each.text, each.never()) for each in (*self.once, *self.counted, *self.choosing))
        return {text: reason for text, reason in rows if reason is not None}

    def allowed(
        self,
        candidate: int,
        values: Callable[[], dict[str, Value]],
        ranks: int,
        counts: tuple[int, ...],
        choices: tuple[Choice, ...],
    ) -> AllowedCounts:
        """Allowed stage counts by the choices of stages: one set, or one per value of what is uniform.

        Args:
            values: of its plans, from `plan_values`.
            ranks: devices of a stage in all replicas.
        """
        self.exclusions.combinations += len(counts)
        if self._by_plan:
            return self._asked(values(), ranks, counts, choices)
        # Constraints read nothing that tells plans of a candidate apart but the number of stages.
        known = self._allowed.get((candidate, counts))
        if known is None:
            before = self.exclusions.constraints.copy()
            found = self._asked(values(), ranks, counts, choices)
            self._allowed[candidate, counts] = found, self.exclusions.constraints - before
            return found
        if known[1]:
            self.exclusions.constraints.update(known[1])
        return known[0]

    def _asked(
        self, values: dict[str, Value], ranks: int, counts: Sequence[int], choices: tuple[Choice, ...]
    ) -> AllowedCounts:
        if not self.exclusions.hold(self.once, values, weight=len(counts)):
            return {}
        counts_left = list(counts)
        if self.counted:
            counts_left = [
                count for count in counts if self.exclusions.hold(self.counted, values, _counts(ranks, count))
            ]
        if not counts_left:
            return {}
        if not self.choosing_counted:
            return dict.fromkeys(self._choice_sets(values, choices, len(counts_left)), tuple(counts_left))
        result: dict[tuple[Choice, ...], list[int]] = {}
        for count in counts_left:
            for choice_set in self._choice_sets(values | _counts(ranks, count), choices, 1):
                result.setdefault(choice_set, []).append(count)
        return {choice_set: tuple(allowed) for choice_set, allowed in result.items()}

    def _choice_sets(
        self, values: dict[str, Value], choices: tuple[Choice, ...], weight: int
    ) -> list[tuple[Choice, ...]]:
        """Sets of choices of stages; what refuses the last choice refuses `weight` plans."""
        key = (choices, *(values[name] for name in self._choosing_names))
        if key not in self._sets:
            left, refusing = choices, []
            for constraint in self.choosing:
                choices_left = tuple(choice for choice in left if constraint.holds(values, _chosen(self.space, choice)))
                if left and not choices_left:
                    refusing.append(constraint.text)
                left = choices_left
            self._sets[key] = (
                [members[0][1] for members in uniform_sets({0: left}, self.uniform, by_count=False)],
                refusing,
            )
        sets, refusing = self._sets[key]
        for text in refusing:
            self.exclusions.constraints[text] += weight
        return sets


class MixedRules:
    """Constraints on mixed plans: they apply to every stage, with the values of its candidate and choice."""

    def __init__(self, instance: Instance, exclusions: Exclusions) -> None:
        self.exclusions, self.space = exclusions, instance.space
        expressions = [each for each in instance.space.constraints if each.expression is not None]
        self.plain = [_CachedConstraint(each) for each in expressions if not each.names() & COUNTED_NAMES]
        counted = [each for each in expressions if each.names() & COUNTED_NAMES]
        self.counted = [_CachedConstraint(each) for each in counted if each.names() <= SHARED_NAMES]
        self.counted_by_stage = [_CachedConstraint(each) for each in counted if not each.names() <= SHARED_NAMES]
        self.uniform = [each.uniform for each in instance.space.constraints if each.uniform is not None]
        self.devices_matter = any("devices" in each.names() for each in expressions)
        self._left: dict[tuple[object, ...], tuple[Choice, ...]] = {}
        self.choices = {index: stage_choices(instance, index) for index in range(len(instance.candidates))}

    def allowed(
        self, values: Mapping[int, dict[str, Value]], replicas: int, counts: Sequence[int], size: int
    ) -> list[tuple[Members, frozenset[int] | None, tuple[int, ...]]]:
        """Choices of stages with the allowed devices of a replica (None: any) and numbers of stages."""
        self.exclusions.combinations += len(counts)
        left = {index: self.left(index, known) for index, known in values.items()}
        if not any(left.values()) or not counts:
            return []
        return self.counted_among(left, values, replicas, counts, size)

    def left(self, index: int, values: dict[str, Value]) -> tuple[Choice, ...]:
        """Choices of a candidate's stages for any number of stages."""
        return self._holding(self.plain, values, self.choices[index])

    def counted_among(
        self,
        left: Mapping[int, tuple[Choice, ...]],
        values: Mapping[int, dict[str, Value]],
        replicas: int,
        counts: Sequence[int],
        size: int,
    ) -> list[tuple[Members, frozenset[int] | None, tuple[int, ...]]]:
        """Same as `allowed`, for the choices in `left`."""
        every = uniform_sets(left, self.uniform)
        if not self.counted and not self.counted_by_stage:
            return [(members, None, tuple(counts)) for members in every]
        result: list[tuple[Members, frozenset[int] | None, list[int]]] = []
        # What depends on numbers alone is the same whatever the stages use.
        shared = next(iter(values.values()))
        for count in counts:
            added = {
                used: {"pp": count, "devices": replicas * used}
                for used in (range(count, size + 1) if self.devices_matter else (0,))
            }
            held = [used for used, each in added.items() if self.exclusions.hold(self.counted, shared, each)]
            totals = {members: held for members in every if held}
            if self.counted_by_stage:
                totals = defaultdict(list)
                for used in held:
                    choices_left = {
                        i: self._holding(self.counted_by_stage, values[i] | added[used], own) for i, own in left.items()
                    }
                    for members in uniform_sets(choices_left, self.uniform):
                        totals[members].append(used)
            for members, each in totals.items():
                any_total = not self.devices_matter or len(each) == size + 1 - count
                allowed = None if any_total else frozenset(each)
                # So many stages use as many devices at least: what was allowed below that for fewer changes nothing.
                alike = (own for one, total, own in result if one == members and _from(count, total) == allowed)
                counted = next(alike, None)
                if counted is None:
                    result.append((members, allowed, counted := []))
                counted.append(count)
        return [(members, total, tuple(own)) for members, total, own in result]

    def _holding(
        self, constraints: list[_CachedConstraint], values: dict[str, Value], choices: tuple[Choice, ...]
    ) -> tuple[Choice, ...]:
        for constraint in constraints:
            key = (constraint.text, tuple([values[name] for name in constraint.shared]), choices)
            if key not in self._left:
                held = (choice for choice in choices if constraint.holds(values, _chosen(self.space, choice)))
                self._left[key] = tuple(held)
            if choices and not self._left[key]:
                self.exclusions.constraints[constraint.text] += 1
            choices = self._left[key]
        return choices
