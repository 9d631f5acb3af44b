"""Bounds and accelerators of the search: where each stands, and what says nothing in its place.

The product has no switches: `benchmarks.scale.switched_off` puts the other thing in place. Answers stay the same.
"""

from collections.abc import Callable, Iterator
from math import inf
from typing import Any, NamedTuple

import numpy
from attrs import evolve

Instead = Callable[[Any], Any]
"""From what stands in a place what says nothing there."""


class Switch(NamedTuple):
    """One thing that is put in place of another.

    Attributes:
        place: a module, and behind a colon a class of it.
        name: what it is called there.
        instead: what says nothing, from what stands there.
    """

    place: str
    name: str
    instead: Instead


class Accelerator(NamedTuple):
    """A bound or an accelerator.

    Attributes:
        what: it does, in a few words.
        switches: what turns it off.
    """

    what: str
    switches: tuple[Switch, ...]


def says(value: Any) -> Instead:
    """A function that always says the same."""
    return lambda _: lambda *_, **__: value


def number(value: Any) -> Instead:
    """A number that never decides."""
    return lambda _: value


def always(value: Any) -> Instead:
    """A property that always says the same."""
    return lambda _: property(lambda _: value)


def argument(place: int) -> Instead:
    """A function that hands back one of its arguments."""
    return lambda _: lambda *arguments, **__: arguments[place]


def instead(function: Callable[..., Any]) -> Instead:
    """Another function."""
    return lambda _: function


def _settled(least: Callable[..., Any]) -> Callable[..., Any]:
    """`least_batch_time` that takes for granted that some plan of a relaxation beats the limit."""

    def found(run: Any, objective: Any, floor: Any, limit: float, first_will_do: bool = False, **more: Any) -> Any:
        return (limit, True) if first_will_do else least(run, objective, floor, limit, **more)

    return found


def _unscreened(listed: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **named: listed(*arguments[:6], None, **named)


def _without_limit(fast: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, every: fast(evolve(self, limit=inf), every)


def _floors_from_compute(self: Any, configuration: Any, counts: tuple[int, ...], limit: float) -> list[Any]:
    from nest.solve.dp.pareto import Floor

    return [Floor(self.first_bounds.slowest(configuration, count), 0.0, 0.0) for count in counts]


def _each_alone(self: Any, configuration: Any, counts: Any, make: Callable[..., Any]) -> Iterator[Any]:
    return (make(self.in_flight(configuration, count)) for count in counts)


def _forgetful_tables(self: Any, key: Any, time_limit: float, make: Callable[..., Any]) -> tuple[Any, bool]:
    return make()[0], True


def _run_again(self: Any, time_limit: float, sync_limit: float) -> Any:
    partition = self.run(time_limit, sync_limit)
    if partition is not None and self.objective.of(partition) < self.value:
        self.value, self.best = self.objective.of(partition), partition
    return partition


def _all_worthwhile(self: Any, configurations: Any, limit: float) -> Any:
    from nest.solve.dp.chunk_bounds import Worthwhile

    return {each.order: Worthwhile(each.stage_counts, each.stage_counts) for each in configurations}


def _every_window(self: Any, stages: int, time_limit: float) -> Any:
    return numpy.zeros(stages, dtype=numpy.int64), numpy.full(stages, self.pairs.count - 1)


def _of_several_terms(least: Callable[..., Any]) -> Callable[..., Any]:
    def found(grid: Any, stages: int, smaller: Any, downsets: int, combines: Any, *rest: Any, **named: Any) -> Any:
        return least(grid, stages, smaller, downsets, combines, *rest, **named) if len(combines) > 1 or named else {0}

    return found


def _searched_at_once(self: Any, searcher: Any, known: Any) -> Any:
    return known


DP = "nest.solve.dp"
PLAIN, CHUNKS, POOLS = f"{DP}.plain:PlainSearch", f"{DP}.chunk_bounds:ChunkBounds", f"{DP}.pools:PoolSearch"


def _one(what: str, place: str, name: str, nothing: Instead) -> Accelerator:
    return Accelerator(what, (Switch(place, name, nothing),))


ACCELERATORS: dict[str, Accelerator] = {
    # Candidates.
    "worth": _one("prices only candidates that may win", "nest.formulate.worth", "can_be_worth", says(False)),
    "worth-first-plan": _one("a first plan of few candidates", DP, "first_plan", says(None)),
    "scouts": _one("a first plan of some candidates", f"{DP}.solver", "SCOUTED", number(inf)),
    "scouts-whole": _one("scouts without parts of stages", f"{DP}.solver", "without_parts", argument(0)),
    "guesses": _one("lists plans near the least bound first", f"{DP}.solver", "GUESSES", number(())),
    "reach": _one("plans near the least bound first", f"{DP}.attempt", "REACH", number(inf)),
    "begun-with": _one("four candidates ahead of the others", f"{DP}.solver", "BEGUN_WITH", number(1 << 30)),
    # What is listed.
    "screen": _one("bounds plans ahead of their listing", f"{DP}.attempt", "configurations", _unscreened),
    "screen-compute": _one("first by compute, whatever else", f"{DP}.screen:Screen", "fast", _without_limit),
    "screen-memory": _one(
        "memory of all stages together",
        f"{DP}.screen:Screen",
        "_holding",
        instead(lambda self, every, screened, sets: numpy.ones((len(sets), len(screened.owner)), dtype=bool)),
    ),
    "beside-compute": _one(
        "recomputation and ZeRO of all stages",
        f"{DP}.beside_compute:FirstBounds",
        "beside_each",
        instead(lambda self, every, sets: numpy.zeros((2, len(sets), len(every)))),
    ),
    "share-out": _one(
        "longest layers, by the pigeonhole principle",
        f"{DP}.compute_bounds:ComputeBounds",
        "longest_compute",
        instead(lambda self, candidate: numpy.zeros(len(self.instance.graph.layers))),
    ),
    # The queue.
    "quick": _one("a plan of promising leaves", "nest.solve.search", "PROMISING", number(0)),
    "plan-ahead": _one("a plan ahead of partition bounds", PLAIN, "first", says(None)),
    "one-chunk-first": _one(
        "plans of one chunk ahead of several", f"{DP}.attempt:Attempt", "_best_of", instead(_searched_at_once)
    ),
    "coarse-plan": _one(
        "a first plan at 65 cuts", f"{DP}.attempt:Attempt", "_first_plan", instead(lambda self, _: self.known)
    ),
    "stage-ranges": _one("how long stages may be, of many cuts", f"{DP}.attempt:Attempt", "_ranges", says(None)),
    "idle-layers": _one("the graph without idle layers", f"{DP}.attempt:Attempt", "_without_idle_layers", says(None)),
    # Plain plans.
    "closer": _one(
        "the cheapest boundaries, when a turn comes",
        PLAIN,
        "_closer_bounds",
        instead(lambda self, configuration: self.early_bounds(configuration)),
    ),
    "packing": _one("fewest stages, packed greedily", PLAIN, "_packed", argument(2)),
    "packing-mixed": _one("blocks of two modes, by Everett", f"{DP}.bounds:LeanMode", "_mixed_reach", argument(2)),
    "partitions": _one("bounds from partitions", PLAIN, "_floors", instead(_floors_from_compute)),
    "one-pass": _one(
        "one pass for all numbers of stages", f"{DP}.nodes:InstanceSearch", "for_counts", instead(_each_alone)
    ),
    "tables-kept": _one(
        "tables serve lower limits, too", f"{DP}.stages:RecentTables", "of", instead(_forgetful_tables)
    ),
    "joint": _one("a joint bound of times and reduction", PLAIN, "_joint", says(None)),
    "joint-of-many": _one("the same of many numbers of stages", PLAIN, "_least_beside", says(0.0)),
    "joint-again": _one("the same under its own limit", f"{DP}.pareto", "WORTH_ANOTHER", number(-1.0)),
    "without-places": _one("cheapest boundaries ahead of places", f"{DP}.plain", "least_batch_time", _settled),
    # Boxes.
    "box-least-time": _one("the least slowest stage first", f"{DP}.pareto", "NARROW", number(inf)),
    "box-within": _one("runs bound boxes within their limits", f"{DP}.pareto:_Boxes", "_within_others", argument(1)),
    "box-known": _one("runs answer boxes they lie in", f"{DP}.pareto:_Boxes", "_solve", instead(_run_again)),
    "box-halves": _one("boxes are halved", f"{DP}.pareto:_Boxes", "_halves", lambda _: lambda self, box, _: (box,)),
    # Tables and recurrences.
    "dominated": _one(
        "drops choices that never help",
        f"{DP}.stages",
        "not_dominated",
        instead(lambda tables: list(range(len(tables)))),
    ),
    "dominated-look": _one("16 classes tell mostly", f"{DP}.choices", "FIRST_LOOK", number(0)),
    "parts-distinct": _one("numbers of blocks that no stage has", f"{DP}.parts", "distinct_choices", argument(1)),
    "classes": _one("one row for stages that cost the same", f"{DP}.pairs:Pairs", "classified", argument(0)),
    "same-fits": _one("one answer where the same choices fit", f"{DP}.stages:StageTables", "same_fits", argument(1)),
    "windows": Accelerator(
        "stages that time leaves at a place",
        (
            Switch(
                f"{DP}.stages:StageTables",
                "window",
                instead(lambda self, after, before, limit: self.pairs.rows(0, self.pairs.count - 1)),
            ),
            Switch(f"{DP}.stages:StageTables", "windows", instead(_every_window)),
        ),
    ),
    "band": _one("chains as rectangles", f"{DP}.pairs:Pairs", "band", always(None)),
    "in-line": _one("a call or two a stage", f"{DP}.stages:StageTables", "in_line", always(False)),
    "run-choices": _one("choices kept between runs", f"{DP}.recurrence", "REMEMBERED_BYTES", number(0)),
    "regular": _one("the first slot behind a boundary", f"{DP}.places:SlotPlaces", "_regular", always(False)),
    "placements": _one("graphs of places are kept", f"{DP}.recurrence", "graph", lambda kept: kept.__wrapped__),
    # Plans of several chunks.
    "chunks-worth": _one("room and time, all plans at once", CHUNKS, "worthwhile", instead(_all_worthwhile)),
    "chunks-mix": _one(
        "units recomputed for others' memory",
        f"{DP}.lean_units:LeanUnits",
        "_mixed",
        instead(lambda self, roomy, full, *_: numpy.full(numpy.broadcast_shapes(roomy.shape, full.shape), inf)),
    ),
    "chunks-alike": _one(
        "numbers of chunks held alike",
        CHUNKS,
        "_room",
        instead(
            lambda self, units, least: units.room(
                least.held, numpy.zeros_like(least.held), self.room * (1 + 1e-9), least.homes
            )
        ),
    ),
    "chunks-slow": _one("levels ahead of the recurrence", f"{DP}.chunks", "_too_slow", says(False)),
    "chunks-filled": _one("patterns of a number of stages kept", f"{DP}.chunk_costs", "REMEMBERED", number(0)),
    "chunks-quick": _one("a plan side by side", f"{DP}.chunks:ChunkSearch", "quick", says(None)),
    "chunks-at-once": _one("many points in one go", f"{DP}.chunk_recurrence", "MOST_AT_ONCE", number(1)),
    "chunks-left": _one("states left are kept", f"{DP}.chunk_recurrence", "_left", lambda kept: kept.__wrapped__),
    # Mixed plans.
    "mixed-placeable": _one(
        "stages that leave room for others",
        f"{DP}.blocks:MemberTimes",
        "placeable",
        instead(lambda self, *_: [numpy.ones(len(each.tables.pairs), dtype=bool) for each in self.members]),
    ),
    "mixed-limits": _one("the slowest stage that fits", f"{DP}.blocks:MemberTimes", "least_limits", says({})),
    "mixed-regular": _one("the first offset behind a boundary", f"{DP}.places:OffsetPlaces", "_regular", always(False)),
    # Pools.
    "pools-lean": _one(
        "shares of the model, nothing sent",
        f"{DP}.pool_tables:Curves",
        "least",
        instead(lambda self, _: numpy.zeros(len(self.shares))),
    ),
    "pools-powers": _one("micro-batches as powers of 2", f"{DP}.pools", "powers_of_two", instead(numpy.array)),
    "pools-places": _one("without places first", f"{DP}.pools", "least_batch_time", _settled),
    "pools-quick": _one("a plan side by side", POOLS, "quick_plan", says(None)),
    "pools-term": _one("one term ahead of all", f"{DP}.pool_bounds", "_least", _of_several_terms),
    "pools-few": _one("least times kept", f"{DP}.pools", "FEW_PAIRS", number(0)),
    "pools-listing": _one(
        "compute ahead of listing",
        f"{DP}.pool_configurations:PoolListing",
        "_bounds",
        instead(lambda self, *arguments: numpy.zeros(len(arguments[-1]))),
    ),
    "pools-weight": _one(
        "the least weight, all replicas at once", f"{DP}.pool_configurations:PoolListing", "_least_weight", says(0.0)
    ),
    # Prices by replay.
    "price-worse": Accelerator(
        "choices no pass of which is shorter",
        (Switch(f"{DP}.stage_prices", "worse", says([])), Switch(f"{DP}.chunk_prices", "worse", says([]))),
    ),
    # Answers kept.
    "kept-shared": _one("tables of searches of one problem", f"{DP}.tables:SharedTables", "of", instead(lambda *_: {})),
    "kept-scheduled": _one(
        "what schedules decide",
        f"{DP}.nodes:InstanceSearch",
        "once_scheduled",
        lambda _: lambda self, key, make: make(),
    ),
    "kept-problems": _one(
        "tables of problems alike",
        f"{DP}.tables:SearchCache",
        "of",
        lambda of: lambda self, instance: of(type(self)(), instance),
    ),
    "kept-first": _one(
        "bounds from compute",
        f"{DP}.compute_bounds:ComputeBounds",
        "rows_of",
        lambda _: lambda self, *decided: self.rows(*decided),
    ),
    # The proof.
    "proof-rows": _one(
        "bounds of rows of settings",
        "nest_cpsat.compute_bound:ComputeBound",
        "of_rows",
        instead(lambda _, family: numpy.zeros(len(family.rows))),
    ),
    "proof-room": _one("bounds from room", "nest_cpsat.room_bound:RoomBound", "excludes", says(False)),
    "proof-contents": _one("the small model of chunks", "nest_cpsat.chunk_models:ChunkModels", "outline", says(None)),
}
"""All of them, by name."""
