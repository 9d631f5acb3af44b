"""Galvatron's objective (Miao et al., VLDB 2023, arXiv 2211.13878): powers of two, and sharding stage by stage.

plugins/nest-planners/README.md says what is kept of its authors' program (PKU-DAIR/Hetu-Galvatron).
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator
from itertools import pairwise, product

from attrs import evolve

from nest.hooks.planning import PlannerContext, Proposal, assessed
from nest.instance import Candidate, Instance, Partial, Solution, StageDecision, partial, stage_mode
from nest_planners.shapes import Choices, Units, even_cuts, modes, partition, permitted, requested_counts, units
from nest_planners.tables import in_flight_from_end, plain_schedules, stage_table
from nest_planners.views import Believed, first_that_fits, usable_devices, usual_order

DATA_PARALLEL = (0, 2, 3)
"""ZeRO stages: data parallelism, sharded data parallelism (section 3.1), and ZeRO 2, which its program has, too
(`--default_dp_type zero2`)."""


class Galvatron:
    """All devices in powers of two, blocks divided evenly, and per stage sharding and recomputation that fit.

    Every stage takes the quickest of plain and sharded data parallelism, with and without recomputation, that fits its
    micro-batches in flight; of all degrees the plan of least step time is taken.
    """

    name = "galvatron"
    summary = "powers of two and even stages, each with the quickest sharding and recomputation that fit"

    def plan(self, instance: Instance, context: PlannerContext) -> Proposal:
        """The fastest such plan."""
        return first_that_fits(context, _ranked(instance))


def _ranked(instance: Instance) -> Iterator[Believed]:
    pieces, devices = units(instance), usable_devices(instance)
    for index in requested_counts(instance):
        candidate = instance.candidates[index]
        stages = 1
        while stages <= len(pieces) and stages * candidate.width <= devices:
            replicas = devices // (stages * candidate.width)
            if replicas * stages * candidate.width == devices and not candidate.width & (candidate.width - 1):
                solution = _sharded(instance, pieces, index, stages, replicas)
                priced = None if solution is None else assessed(instance, solution).priced
                if solution is not None and priced is not None:
                    yield priced.batch_time, solution
            stages *= 2


def _sharded(instance: Instance, pieces: Units, index: int, stages: int, replicas: int) -> Solution | None:
    """Even stages, each with the quickest ways to shard and recompute that fit; None where one has none."""
    candidate = instance.candidates[index]
    micro_batches = instance.micro_batches(candidate, replicas)
    if micro_batches is None or not permitted(instance, candidate, replicas, stages):
        return None
    schedule = plain_schedules(instance)[0]
    held = in_flight_from_end(schedule, micro_batches)
    allowed = [zero for zero in DATA_PARALLEL if zero in instance.space.zero] or sorted(set(instance.space.zero))
    choices = Choices(
        index,
        replicas,
        usual_order(instance),
        schedule,
        modes(instance, candidate)[0],
        allowed[0],
        instance.space.zero_degrees[0],
    )
    solution = choices.solution(instance, partition(pieces, even_cuts(len(pieces), stages)))
    tables = {
        (name, zero): stage_table(instance, pieces, candidate, candidate.mode(name), zero, replicas)
        for name in modes(instance, candidate)
        for zero in allowed
    }
    runs = list(pairwise((0, *even_cuts(len(pieces), stages), len(pieces))))
    fitting = [
        [key for key, table in tables.items() if table.fits(held(stages - place))[run]]
        for place, run in enumerate(runs)
    ]
    if not all(fitting):
        return None
    alike = any(each.uniform == "recompute" for each in instance.space.constraints)
    for keys, stage, run, place in zip(fitting, solution.stages, runs, range(stages), strict=True):
        keys += _parts(instance, pieces, stage, run, replicas, held(stages - place), keys, alike)
    if alike:
        shared = set.intersection(*({name for name, _ in keys} for keys in fitting))
        least = min(shared, key=lambda name: (_again(instance, candidate, name), name), default=None)
        fitting = [[key for key in keys if key[0] == least] for keys in fitting]
    if not all(fitting):
        return None
    # Where every stage has the same choice in front there is nothing to compare: it costs least.
    plain = choices.recompute, choices.zero
    used = {plain} if all(plain in keys for keys in fitting) else {key for keys in fitting for key in keys}
    costs = {key: _seconds(instance, solution, *key) for key in sorted(used)}
    decided = [
        min((key for key in keys if key in costs), key=lambda key: (costs[key], key[1], key[0])) for keys in fitting
    ]
    stages_decided = (
        evolve(stage, recompute=name, zero=zero) for stage, (name, zero) in zip(solution.stages, decided, strict=True)
    )
    return evolve(solution, stages=tuple(stages_decided))


def _parts(
    instance: Instance,
    pieces: Units,
    stage: StageDecision,
    run: tuple[int, int],
    replicas: int,
    held: float,
    fitting: Collection[tuple[str, int]],
    alike: bool,
) -> list[tuple[str, int]]:
    """The fewest blocks of a stage whose recomputation makes it fit, where it must be some; where `alike` more, too."""
    named = [part for name in instance.space.partial if (part := partial(name)) is not None]
    inside, found = frozenset(stage.layers), []
    most = sum(not inside.isdisjoint(unit) for unit in instance.space.units)
    pairs = dict.fromkeys((each.mode, each.rest) for each in named)
    for (mode, rest), zero in product(pairs, sorted({zero for _, zero in fitting})):
        counts = [each.layers for each in named if (each.mode, each.rest) == (mode, rest) and each.layers < most]

        def fits(count: int, mode: str = mode, rest: str = rest, zero: int = zero) -> bool:
            decided = stage_mode(instance, evolve(stage, recompute=Partial(mode, count, rest).name))
            candidate = instance.candidates[stage.candidate]
            return bool(stage_table(instance, pieces, candidate, decided, zero, replicas).fits(held)[run])

        if (mode, zero) in fitting and (alike or (rest, zero) not in fitting):
            least = bisect_left(counts, True, key=fits)
            found += [(Partial(mode, count, rest).name, zero) for count in counts[least : None if alike else least + 1]]
    return found


def _again(instance: Instance, candidate: Candidate, name: str) -> float:
    """Seconds that all layers take again in a recompute mode, or so."""
    part = partial(name) or Partial(name, 0, name)
    first, rest = (float(candidate.mode(each).extra.sum()) for each in (part.mode, part.rest))
    return rest + (first - rest) * part.layers / max(len(instance.space.units), 1)


def _seconds(instance: Instance, solution: Solution, name: str, zero: int) -> float:
    """Step time of the plan with one way to shard and recompute for all stages."""
    alike = evolve(solution, stages=tuple(evolve(each, recompute=name, zero=zero) for each in solution.stages))
    priced = assessed(instance, alike).priced
    return float("inf") if priced is None else priced.batch_time
