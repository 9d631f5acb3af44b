"""The decision rule: of all plans within a share of the least step time, the simplest.

Simple is a plan with a small key. Its entries, compared in this order:

1. stages use more than one candidate;
2. pools used;
3. there is a pipeline;
4. the schedule is another than 1F1B;
5. chunks of a stage;
6. stages;
7. stages, or chunks, are no even split of the transformer blocks; 0 where candidates are mixed;
8. stages differ in recompute mode or ZeRO stage;
9. the heaviest recompute mode: none 0, full 3, of the first layers alone 2, any other 1;
10. strategies with a degree above 1;
11. a stage has another ZeRO stage than the one fixed or listed first, or there is a shard group;
12. the rank order is another than the one fixed or listed first, and there are several replicas of several stages;
13. devices are idle;
14. how likely the plan is to fit: 0, as bytes of a profile are exact.

Among plans with the same key the fastest is taken, and of those equally fast the one with the fewest bytes on its
fullest stage.

`spelled_out` prices every plan. `simplest` goes through keys in their order, and leaves all plans of a key to the
searches of `brute_force.py` and `pools.py`; `test_simplicity.py` compares the two.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tests.oracle import brute_force, pools
from tests.oracle.brute_force import FITS, TIE, alone, describe
from tests.oracle.chunks import even_split
from tests.oracle.enumerate_plans import every_plan
from tests.oracle.network import Network
from tests.oracle.partitions import partitions
from tests.oracle.parts import Recompute
from tests.oracle.price import candidates_of, price, runs_of
from tests.oracle.settings import RANK_ORDERS, given, settings

USUAL_RANK_ORDER = "dp-inner"
USUAL_SCHEDULE = "1f1b"
HEAVY = {"none": 0, "full": 3}
"""Recompute modes that are no selective ones."""
SELECTIVE, PARTIAL = 1, 2
FLAGS = frozenset({"sp"})
"""Names among degrees that are no degrees."""

Key = tuple[int, ...]


@dataclass(frozen=True)
class Simplest:
    """The simplest plan within a share of the least step time.

    Attributes:
        key: of the plan.
        batch_time: seconds.
        least: least step time of all plans, seconds.
        plan: its decisions.
        memory: bytes of its fullest stage, where equally fast plans were compared.
    """

    key: Key
    batch_time: float
    least: float
    plan: dict
    memory: float | None = None


def rank_of(recompute: Recompute) -> int:
    if isinstance(recompute, str):
        return HEAVY.get(recompute, SELECTIVE)
    return min(PARTIAL, HEAVY.get(recompute[0], SELECTIVE))


def usual(problem: dict, name: str, every: list):
    """What a problem lists first of a choice, or fixes."""
    return given(problem.get("fixed"), name, given(problem.get("search"), name, every)[0])


def usual_rank_order(problem: dict) -> str:
    """That of most frameworks, where a problem allows it."""
    fixed = given(problem.get("fixed"), "rank_order", None)
    listed = [fixed] if fixed else given(problem.get("search"), "rank_order", RANK_ORDERS)
    return USUAL_RANK_ORDER if USUAL_RANK_ORDER in listed else listed[0]


def usual_zero(problem: dict) -> int:
    return usual(problem, "zero", [0])


def size_of(problem: dict) -> int:
    """Devices of the cluster, of all pools together."""
    return sum(Network(each).size for each in given(problem["cluster"], "pools", [problem["cluster"]]))


def is_even(problem: dict, runs) -> bool:
    """Whether runs of layers, in pipeline order, are those of the even split into as many."""
    expected = even_split(problem, len(runs))
    return expected is not None and [sorted(run) for run in runs] == [sorted(run) for run in expected]


def key(problem: dict, plan: dict) -> Key:
    """Entries 1 to 14 of the key of a plan."""
    stages, chosen = plan["stages"], candidates_of(problem, plan)
    mixed = len({candidate["name"] for candidate in chosen}) > 1
    degrees = {
        name
        for candidate in chosen
        for name, degree in candidate["degrees"].items()
        if degree > 1 and name not in FLAGS
    }
    order = usual_rank_order(problem)
    zeros = {stage["zero"] for stage in stages}
    return (
        int(mixed),
        len({candidate.get("pool") for candidate in chosen}),
        int(len(stages) > 1),
        int(plan["schedule"] != USUAL_SCHEDULE),
        plan.get("chunks", 1),
        len(stages),
        int(not mixed and not is_even(problem, runs_of(problem, plan))),
        int(len({(stage["recompute"], stage["zero"]) for stage in stages}) > 1),
        max(rank_of(stage["recompute"]) for stage in stages),
        len(degrees),
        int(zeros != {usual_zero(problem)} or plan.get("zero_degree") is not None),
        int(plan["rank_order"] != order and plan["replicas"] > 1 and len(stages) > 1),
        int(plan["replicas"] * sum(candidate["width"] for candidate in chosen) < size_of(problem)),
        0,
    )


def spelled_out(problem: dict, within: float, limit: int) -> Simplest | None:
    """The simplest of all plans, each of them priced; None: none fits.

    Raises:
        OverflowError: there are more plans than `limit`.
    """
    plans = list(every_plan(problem, limit))
    if None in plans:
        raise OverflowError("too many plans to try")
    return simplest_of(problem, [(plan, price(problem, plan)) for plan in plans], within)


def simplest_of(problem: dict, plans: list[tuple[dict, dict]], within: float) -> Simplest | None:
    """The simplest of these plans, each with its numbers; None: none fits."""
    fitting = [(numbers["batch_time"], plan, numbers["stages"]) for plan, numbers in plans if numbers["fits"]]
    if not fitting:
        return None
    least = min(time for time, _, _ in fitting)
    near = [(key(problem, plan), time, plan, stages) for time, plan, stages in fitting if near_to(least, time, within)]
    simple = min(each[0] for each in near)
    quickest = min(time for own, time, _, _ in near if own == simple)
    memory, plan = min(
        (
            (max(stage["memory"] for stage in stages), plan)
            for own, time, plan, stages in near
            if own == simple and near_to(quickest, time)
        ),
        key=lambda each: each[0],
    )
    return Simplest(simple, quickest, least, plan, memory)


def near_to(least: float, time: float, within: float = 0.0) -> bool:
    """Whether a time is at most `1 + within` times the least, but for rounding."""
    return time <= (1 + within) * least * TIE


@dataclass(frozen=True)
class Kind:
    """Which modes stages may have, for three entries of the key to be these or less."""

    unlike: int
    recompute: int
    zero: int

    def sets(self, modes, common: int) -> Iterator[set[tuple[str, int]]]:
        """Sets of modes from which every stage chooses freely; where stages are alike, single ones."""
        if self.unlike:
            yield {mode for mode in modes if rank_of(mode[0]) <= self.recompute and (self.zero or mode[1] == common)}
            return
        for recompute, zero in dict.fromkeys(modes):
            if rank_of(recompute) == self.recompute and (self.zero or zero == common):
                yield {(recompute, zero)}

    def of(self, base: Key) -> Key:
        """The key of a plan whose other entries are these."""
        whole = list(base)
        whole[7:9], whole[10] = (self.unlike, self.recompute), max(base[10], self.zero)
        return tuple(whole)


KINDS = tuple(Kind(*each) for each in product((0, 1), (0, SELECTIVE, PARTIAL, 3), (0, 1)))


class OfCluster(brute_force.Search):
    """The plans of one setting, of modes of one kind at a time."""

    kind = KINDS[0]

    def __init__(self, problem: dict, setting, fits: float) -> None:
        super().__init__(problem, fits)
        self.setting = setting
        self.forget()

    def outlines(self):
        """All but places and modes of each plan, and a plan of it."""
        every = partitions(len(self.layers), self.problem["profile"]["edges"])
        plain = (alone(each) for each in every if self.rules.allow_partition(each) and self.rules.allow_run(each))
        for split in plain if self.setting.chunks == 1 else self.chunked(self.setting):
            stages = len(split.stages)
            if self.setting.pipeline.admits(stages, self.setting.micro_batches):
                for chosen in self.setting.choices(stages):
                    modes = [("none", usual_zero(self.problem))] * stages
                    yield (split, chosen), describe(self.setting, split, chosen, [0] * stages, modes)

    def attempt(self, split, chosen) -> None:
        self.try_stages(self.setting, split, chosen)

    def together(self, every):
        for options in super().together(every):
            modes = [option.mode for stage in options for option in stage]
            for kept in self.kind.sets(modes, usual_zero(self.problem)):
                left = [[option for option in stage if option.mode in kept] for stage in options]
                if all(left):
                    yield left


class OfPools(pools.Search):
    """The same of plans on pools."""

    kind = KINDS[0]

    def __init__(self, problem: dict, setting, fits: float) -> None:
        super().__init__(problem, fits)
        *self.shared, self.settings, self.chosen = setting
        self.known = {}

    def outlines(self):
        every = partitions(len(self.problem["profile"]["layers"]), self.problem["profile"]["edges"])
        for partition in filter(self.rules.allow_partition, every):
            stages = len(partition)
            for used in product(self.settings, repeat=stages):
                if set(used) == set(self.settings):
                    modes = [("none", usual_zero(self.problem))] * stages
                    yield (partition, used), self.describe(self.shared, partition, used, [0] * stages, modes)

    def attempt(self, partition, used) -> None:
        self.try_stages(self.shared, partition, used)

    def together(self, every):
        for options in super().together(every):
            modes = [mode for stage in options for mode, _, _ in stage]
            for kept in self.kind.sets(modes, usual_zero(self.problem)):
                left = [[each for each in stage if each[0] in kept] for stage in options]
                if all(left):
                    yield left


def searches(problem: dict, fits: float) -> list[OfCluster] | list[OfPools]:
    """One for each setting."""
    if pools.has_pools(problem):
        return [OfPools(problem, each, fits) for each in pools.Search(problem).shared_settings()]
    return [OfCluster(problem, each, fits) for each in settings(problem, Network(problem["cluster"]))]


def simplest(problem: dict, within: float, least: float, fits: float = FITS) -> Simplest | None:
    """The simplest plan that takes at most `1 + within` times the `least` step time; None: there is none.

    Of modes that stages choose one by one, those are tried that make a key no larger: whatever is simpler takes too
    long, or an earlier key would have been the answer.
    """
    limit = (1 + within) * least * TIE
    waiting: dict[Key, list] = defaultdict(list)
    for search in searches(problem, fits):
        for outline, plan in search.outlines():
            waiting[key(problem, plan)].append((search, outline))
    tasks: dict[Key, list] = defaultdict(list)
    for base, outlines in waiting.items():
        for kind in KINDS:
            tasks[kind.of(base)].append((kind, outlines))
    for simple in sorted(tasks):
        best = fastest_of(tasks[simple], limit)
        if best is not None:
            time, plan = best
            assert key(problem, plan) == simple
            return Simplest(simple, time, least, plan)
    return None


def fastest_of(tasks: list, limit: float) -> tuple[float, dict] | None:
    """The fastest plan of some outlines, each with the kind of its modes, within the limit."""
    tried = []
    for kind, outlines in tasks:
        for search, outline in outlines:
            search.kind, search.limit, search.best = kind, limit, {}
            search.attempt(*outline)
            tried += [each for each in search.best.values() if each[0] <= limit]
    return min(tried, key=lambda each: each[0], default=None)
