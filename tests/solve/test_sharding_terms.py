"""What a model adds to the table of ZeRO: calls in pieces, a share of their own that shows, whole gradients.

Profiles have none of it, so that the brute force of the tests knows nothing of it; here every plan is priced.
"""

from collections.abc import Iterator
from itertools import combinations, product
from math import inf
from random import Random
from statistics import median

import numpy
import pytest
from attrs import evolve

from nest.instance import Instance, Solution, StageDecision
from nest.plan.evaluate import evaluate
from nest.solve.dp import screen, solve
from nest.solve.dp.beside_compute import FirstBounds
from nest.solve.dp.choices import Choice
from nest.solve.dp.downsets import lattice, membership
from nest.solve.dp.listing import configurations, least_times
from nest.solve.dp.plain import PlainSearch
from nest.solve.dp.screen import ScreenTables
from nest.solve.dp.units import Splits
from nest.spec.constraints import parse
from nest_cpsat import Price, verify
from tests.seeds import seeds
from tests.small_instances import candidate, cluster, instance

LAYERS = 3

TAILS = (0b000, 0b100, 0b110, 0b111)
"""The downsets of a chain of so many layers."""


def drawn(seed: int) -> Instance:
    """A short chain on four devices, for which what ZeRO sends takes as long as what it hides under."""
    random = Random(seed)
    used = candidate(LAYERS, seed=seed)
    group = evolve(used.state[0], pieces=[random.choice([0.0, 1.0, 2.0]) for _ in range(LAYERS)])
    busy = [[random.choice([0.0, random.uniform(0.0, 6.0)]) for _ in range(LAYERS)] for _ in range(2)]
    return instance(
        [evolve(used, state=(group,), busy=random.choice([None, busy]))],
        machines=cluster((2, 2), memory=random.choice([1e9, 60.0, 80.0])),
        zero=(0, 2, 3),
        recompute=("none",),
        exposed=random.choice([0.1, 0.5]),
        exposed_often=random.choice([None, 0.05, 0.7]),
        whole_gradients=random.choice([False, True]),
        adapters=random.choice([False, False, True]),
        hiding=random.choice([False, True]),
        global_batch=8,
    )


def every_plan(problem: Instance) -> Iterator[Solution]:
    """Every plan of a chain of one candidate of width 1 with 1F1B."""
    size = problem.cluster.size
    for replicas in (1, 2, 4):
        for stages in range(1, min(LAYERS, size // replicas) + 1):
            for cuts in combinations(range(1, LAYERS), stages - 1):
                edges = (0, *cuts, LAYERS)
                runs = [tuple(range(edges[i], edges[i + 1])) for i in range(stages)]
                for offsets, zeros in product(
                    combinations(range(size // replicas), stages), product((0, 2, 3), repeat=stages)
                ):
                    decided = tuple(
                        StageDecision(run, 0, "none", zero, offset)
                        for run, zero, offset in zip(runs, zeros, offsets, strict=True)
                    )
                    for order in ("pp-inner", "dp-inner"):
                        yield Solution(replicas, order, "1f1b", decided)


def price(problem: Instance, solution: Solution) -> Price:
    """What the proof asks of a plan."""
    found = evaluate(problem, solution)
    return Price(found.batch_time, found.overfull)


@pytest.mark.parametrize("seed", seeds(7, 60))
def test_no_plan_is_faster_than_the_one_found(seed: int) -> None:
    problem = drawn(seed)
    every = [evaluate(problem, each) for each in every_plan(problem)]
    fitting = [each.batch_time for each in every if each.fits]
    found = solve(problem)
    assert (found.solution is None) == (not fitting)
    if found.solution is not None:
        assert found.batch_time == pytest.approx(min(fitting), rel=1e-9)
        assert evaluate(problem, found.solution).batch_time == pytest.approx(min(fitting), rel=1e-9)
        verdict = verify(problem, found.batch_time, lambda each: price(problem, each))
        assert verdict.status == "proved"


def test_what_goes_in_pieces_pays_for_each() -> None:
    problem = instance([candidate(LAYERS)], machines=cluster((4,)), zero=(3,))
    used = problem.candidates[0]
    stage = StageDecision(tuple(range(LAYERS)), 0, "none", 3, 0)
    times = []
    for pieces in (None, [1.0, 0.0, 0.0], [1.0, 1.0, 2.0]):
        group = evolve(used.state[0], pieces=pieces)
        changed = evolve(problem, candidates=(evolve(used, state=(group,)),))
        times.append(evaluate(changed, Solution(4, "pp-inner", "1f1b", (stage,))).stages[0].sharding)
    # Three more calls of each of three collectives, of three steps each.
    assert times[0] == times[1]
    assert times[2] - times[0] == pytest.approx(3 * 3 * 3 * problem.cluster.levels[0].latency)


def test_whole_gradients_make_zero_2_what_zero_1_is() -> None:
    problem = instance([candidate(LAYERS)], machines=cluster((4,)), zero=(1, 2), whole_gradients=True)
    priced = []
    for zero in (1, 2):
        stage = StageDecision(tuple(range(LAYERS)), 0, "none", zero, 0)
        priced.append(evaluate(problem, Solution(4, "pp-inner", "1f1b", (stage,))))
    assert priced[0].batch_time == priced[1].batch_time
    assert priced[0].stages[0].memory == priced[1].stages[0].memory
    assert numpy.isfinite(priced[0].batch_time)


def test_what_takes_for_ever_is_no_plan_however_it_is_weighed() -> None:
    rows, stages = numpy.zeros((3, 6)), numpy.array([1, 2, 3])
    rows[1, 1], rows[2, 5] = 1.0, 1.0
    bounds = FirstBounds(instance([candidate(LAYERS)]))
    assert (bounds.least(0, rows, stages, (inf, 0.0)) == inf).all()
    assert numpy.isfinite(bounds.least(0, rows, stages, (1.0, 0.0))).all()


@pytest.mark.parametrize("zeros", [(0,), (2,), (3,), (0, 2, 3)])
@pytest.mark.parametrize("seed", seeds(4, 40))
def test_no_bound_ahead_of_stages_exceeds_a_plan(seed: int, zeros: tuple[int, ...]) -> None:
    problem = drawn(seed)
    problem = evolve(problem, space=evolve(problem.space, zero=zeros))
    bounds = FirstBounds(problem)
    times: dict[tuple[str, int, int], float] = {}
    for each in every_plan(problem):
        if {stage.zero for stage in each.stages} <= set(zeros):
            key = (each.rank_order, each.replicas, len(each.stages))
            times[key] = min(times.get(key, inf), evaluate(problem, each).batch_time)
    possible, _ = configurations(problem, LAYERS, Splits(problem).counts)
    for configuration in possible:
        bound = bounds.of_configuration(configuration)
        for count, seconds in zip(configuration.stage_counts, bound.tolist(), strict=True):
            key = (configuration.rank_order, configuration.replicas, count)
            assert seconds <= times[key] * (1 + 1e-9)


@pytest.mark.parametrize("seed", seeds(8, 80, now=(0, 1)))
def test_no_bound_with_memory_and_boundaries_exceeds_a_plan_that_fits(seed: int) -> None:
    problem = drawn(seed)
    priced = [(each, evaluate(problem, each)) for each in every_plan(problem)]
    peaks = [max(stage.memory for stage in price.stages) for _, price in priced]
    # Half of the plans fit.
    memory = median(peaks) * Random(seed).choice([0.7, 1.0])
    problem = evolve(problem, cluster=cluster((2, 2), memory=memory))
    times: dict[tuple[str, int, int], float] = {}
    for (each, price), peak in zip(priced, peaks, strict=True):
        if peak <= memory:
            key = (each.rank_order, each.replicas, len(each.stages))
            times[key] = min(times.get(key, inf), price.batch_time)
    possible, _ = configurations(problem, LAYERS, Splits(problem).counts)
    search = PlainSearch(problem, possible, lattice(membership(TAILS, LAYERS)))
    assert times
    for configuration in possible:
        for count, seconds in zip(
            configuration.stage_counts, search.closer_bounds(configuration).tolist(), strict=True
        ):
            key = (configuration.rank_order, configuration.replicas, count)
            assert seconds <= times.get(key, inf) * (1 + 1e-9)


@pytest.mark.parametrize("constraints", [(), ("uniform(zero)",)])
@pytest.mark.parametrize("seed", seeds(6, 60))
def test_the_screen_leaves_every_plan_that_is_worth_it(seed: int, constraints: tuple[str, ...]) -> None:
    problem = drawn(seed)
    memory = Random(seed).choice([22.0, 30.0, 40.0, 60.0])
    rules = tuple(parse(text) for text in constraints)
    problem = evolve(
        problem, cluster=evolve(problem.cluster, memory=memory), space=evolve(problem.space, constraints=rules)
    )
    plans = [(each, evaluate(problem, each)) for each in every_plan(problem)]
    plans = [(each, priced) for each, priced in plans if priced.fits]
    limit = median([priced.batch_time for _, priced in plans]) if plans else 1.0
    tables = ScreenTables(problem, FirstBounds(problem))
    possible, _ = configurations(problem, LAYERS, Splits(problem).counts, limit=limit, tables=tables)
    listed = {
        (each.rank_order, each.replicas, count, choice): each.bound
        for each in possible
        for count in each.stage_counts
        for choice in each.choices
    }
    for plan, priced in plans:
        zeros = {stage.zero for stage in plan.stages}
        if priced.batch_time <= limit and (not constraints or len(zeros) == 1):
            for stage in plan.stages:
                choice = Choice(stage.recompute, stage.zero)
                bound = listed[plan.rank_order, plan.replicas, len(plan.stages), choice]
                assert bound is not None
                assert bound <= priced.batch_time * (1 + 1e-9)


def test_options_are_screened_alike_in_parts_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = drawn(4)
    used = problem.candidates[0]
    # One has more parameter groups than the other.
    others = evolve(used, name="others", forward=2 * used.forward, state=used.state * 2)
    problem = evolve(problem, candidates=(used, others))
    counts, found = Splits(problem).counts, []
    for most in (1, screen.TOGETHER):
        monkeypatch.setattr(screen, "TOGETHER", most)
        least = least_times(problem, LAYERS, counts, ScreenTables(problem, FirstBounds(problem)))
        for limit in (inf, 1.5 * least[1]):
            tables = ScreenTables(problem, FirstBounds(problem))
            every, exclusions = configurations(problem, LAYERS, counts, limit=limit, tables=tables)
            found.append((least, every, [each.bound for each in every], exclusions))
            assert {each.candidate for each in every} == {0, 1}
            assert (exclusions.slow > 0) == (limit < inf)
    assert found[:2] == found[2:]


@pytest.mark.parametrize("rule", ["devices <= 4", "devices == 6", "devices % 3 == 0", "devices >= 5", "devices > 8"])
def test_the_screen_leaves_what_a_constraint_on_devices_allows(rule: str) -> None:
    problem = instance([candidate(LAYERS)], machines=cluster((8,)), constraints=[rule])
    counts, tables = Splits(problem).counts, ScreenTables(problem, FirstBounds(problem))
    screened, every = (configurations(problem, LAYERS, counts, tables=each)[0] for each in (tables, None))
    assert screened == every
    assert all(parse(rule).holds({"devices": n * each.replicas}) for each in every for n in each.stage_counts)
    assert bool(every) == (rule != "devices > 8")
