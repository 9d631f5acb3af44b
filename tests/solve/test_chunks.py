"""Plans of several chunks a stage, of any sizes and wherever they lie: the search against every plan there is."""

from collections import Counter
from itertools import islice, product
from math import inf
from random import Random

import numpy
import pytest
from attrs import evolve

from nest.instance import Candidate, Instance, ParameterGroup, RecomputeMode
from nest.plan.evaluate import evaluate
from nest.plan.legality import permission_violations, structure_violations
from nest.solve.dp import chunk_tables, solve
from nest.solve.dp.beside_compute import FirstBounds
from nest.solve.dp.choices import Choice
from nest.solve.dp.chunk_stages import least_largest
from nest.solve.dp.chunks import ChunkSearch
from nest.solve.dp.lean_units import LeanUnits, UnitRows
from nest.solve.dp.listing import configurations
from nest.solve.dp.pareto import Floor
from nest.solve.dp.units import Splits
from nest.spec.constraints import parse
from tests.seeds import seeds
from tests.small_instances import cluster, instance
from tests.solve.every_plan import Odd, fastest, fits, plans
from tests.solve.test_parts import tightened, weights


def repeated(random: Random, kinds: list[int]) -> Candidate:
    """A candidate whose layers of one kind are alike, and so is what they send; perhaps with ports."""
    numbers = numpy.random.default_rng(random.randrange(10**6))
    pick = numpy.array(kinds)

    def row(low: float, high: float) -> numpy.ndarray:
        return numbers.uniform(low, high, max(kinds) + 1)[pick]

    scale = random.choice([0.02, 0.3, 1.0])
    forward, held, zeros = row(0.5, 2.0) * scale, row(1.0, 4.0), numpy.zeros(len(kinds))
    busy = None if random.random() < 0.7 else numpy.array([row(0.0, 3.0), row(0.0, 3.0)]) * forward
    return Candidate(
        name="c",
        degrees={"tp": 1},
        width=1,
        samples=1,
        forward=forward,
        backward=2 * forward,
        state=(ParameterGroup("dense", (0,), held, held, 6 * held, held / 100),),
        recompute=(
            RecomputeMode("none", zeros, 3 * held, 3 * held, row(0.0, 1.0)),
            RecomputeMode("full", forward, held, held, 2 * held, stash_inputs=random.random() < 0.5),
        ),
        tensor_bytes=row(1.0, 20.0)[:-1],
        busy=busy,
        weight_gradients=None if random.random() < 0.5 else forward * row(0.1, 0.9),
    )


def drawn_kinds(random: Random, units: int) -> list[int]:
    """Layers alike in runs, or not at all."""
    if random.random() < 0.3:
        return list(range(units))
    kinds = [0]
    while len(kinds) < units:
        kinds.append(kinds[-1] + (random.random() < 0.3))
    return kinds


def in_flight(random: Random, chunks: int) -> object:
    """One number, one for each chunk, or moments of them."""
    if random.random() < 0.3:
        return random.choice([1, 1.5, 2, 3])
    rows = [tuple(random.randint(1, 4) for _ in range(chunks)) for _ in range(random.randint(1, 3))]
    return rows[0] if len(rows) == 1 else tuple(rows)


def chunked_problem(random: Random) -> Instance:
    chunks = random.choice([2, 2, 3])
    units = random.randint(2 * chunks, 7)
    placement = random.choice(["round", "v", "own"])
    homes = random.sample([*range(1, 4)] * chunks, 3 * chunks)

    def own(stages: int) -> list[int]:
        return [home for home in homes if home <= stages]

    said = weights(random)
    flying = tuple(in_flight(random, chunks) for _ in range(random.randint(1, 3)))
    odd = Odd(said, flying, chunks, own if placement == "own" else placement, random.choice([1, 2]))
    ends = random.random() < 0.4
    blocks = [(layer,) for layer in range(units)]
    joined = [(0, 1), *blocks[2:-2], (units - 2, units - 1)] if units > 4 else blocks
    found = instance(
        [repeated(random, drawn_kinds(random, units))],
        machines=cluster(random.choice([(3, 1), (2, 2), (4, 1), (5, 1)])),
        zero=random.choice([(0,), (1,), (3,), (2, 3)] if units < 7 else [(0,), (1,)]),
        rank_orders=("pp-inner",),
        global_batch=random.choice([4, 8]),
        exposed=random.choice([1.0, 0.3]),
        exposed_often=random.choice([None, 0.05, 0.7]),
        hiding=random.choice([False, True]),
        hidden_messages=random.choice([(), ("odd",)]),
        constraints=random.choice([(), ("pp == 2",), ("pp == 3",)]),
        blocks=tuple(joined if ends else blocks),
        blocks_and_ends=tuple(blocks) if ends else (),
    )
    return tightened(evolve(found, space=evolve(found.space, schedules=(odd,))), random)


def parted(problem: Instance, random: Random) -> Instance:
    """The same where stages may recompute their first blocks, perhaps all as many, of a third mode or of two."""
    layers = range(len(problem.graph.layers))
    ends = random.choice([0, 0, 1])
    units = [(layer,) for layer in layers[ends : len(layers) - ends]]
    if random.random() < 0.3:
        place = random.randrange(len(units) - 1)
        units[place : place + 2] = [units[place] + units[place + 1]]
    pairs = [("full", "none")]
    candidates = problem.candidates
    if random.random() < 0.3:
        [used] = candidates
        none, full = used.recompute
        half = evolve(full, name="selective", extra=0.3 * full.extra, more=0.5 * (full.more + none.more))
        candidates = (evolve(used, recompute=(none, half, full)),)
        pairs += [("full", "selective"), ("selective", "none")]
    every = [f"{mode}:{count}:{rest}" for mode, rest in pairs for count in range(1, len(units))]
    names = tuple(sorted(random.sample(every, min(len(every), 3)), key=every.index))
    alike = () if random.random() < 0.5 else (parse("uniform(recompute)"),)
    space = evolve(
        problem.space,
        units=tuple(units),
        partial=names,
        recompute=random.choice([None, None, ("none",), ()]),
        constraints=(*problem.space.constraints, *alike),
    )
    return evolve(problem, space=space, candidates=candidates)


def problem_of_parts(seed: int) -> Instance:
    random = Random(seed)
    return tightened(parted(chunked_problem(random), random), random)


def problem_of_parts_or_none(seed: int) -> Instance:
    """Every third problem has stages that may recompute their first blocks."""
    return chunked_problem(Random(seed)) if seed % 3 else problem_of_parts(seed)


def checked(problem: Instance) -> None:
    """The search finds what nothing beats, and prices it as it is."""
    found, (least, best) = solve(problem, runner_up=False), fastest(problem)
    assert (found.solution is None) == (best is None), found.diagnosis
    if found.solution is not None:
        assert not structure_violations(problem, found.solution)
        assert not permission_violations(problem, found.solution)
        priced = evaluate(problem, found.solution)
        assert fits(priced)
        assert found.batch_time == pytest.approx(priced.batch_time, rel=1e-9)
        assert found.batch_time == pytest.approx(least, rel=1e-9)
        assert found.status == "optimal"


@pytest.mark.parametrize("seed", [*seeds(24, of=113, now=(0, 1, 2, 3, 8)), *seeds(1, of=187, first=113)])
def test_no_plan_of_chunks_is_faster(seed: int) -> None:
    checked(chunked_problem(Random(seed)))


@pytest.mark.parametrize("seed", seeds(40, of=600, first=40_000, now=(40_007, 40_011)))
def test_no_plan_of_chunks_that_recompute_their_first_blocks_is_faster(seed: int) -> None:
    checked(problem_of_parts(seed))


def test_a_rule_on_modes_leaves_chunks_that_are_first_blocks_throughout_to_a_pure_mode(monkeypatch) -> None:
    found, layouts = [], chunk_tables.layouts
    monkeypatch.setattr(chunk_tables, "layouts", lambda *shares: found.append(layouts(*shares)) or found[-1])
    problem = problem_of_parts(40_005)
    rules = (*problem.space.constraints, parse("recompute != 'none'"))
    checked(evolve(problem, space=evolve(problem.space, constraints=rules)))
    assert {len(each) for each in found} == {1}


@pytest.mark.parametrize("seed", seeds(60, of=600, first=2000, now=(2008,)))
def test_bounds_ahead_of_patterns_leave_the_fastest_plan(seed: int) -> None:
    """What is refused before sizes of chunks are looked at holds none of the plans that are as fast."""
    problem = problem_of_parts_or_none(seed)
    least, best = fastest(problem)
    if best is None:
        return
    splits, count = Splits(problem), len(best.stages)
    possible, _ = configurations(problem, len(problem.graph.layers), splits.counts)
    chosen = {Choice(stage.recompute, stage.zero) for stage in best.stages}
    search = ChunkSearch(problem, possible, splits)
    held = [each for each in possible if each.replicas == best.replicas and chosen <= set(each.choices)]
    assert held
    for configuration in held:
        early = dict(zip(configuration.stage_counts, search.early_bounds(configuration).tolist(), strict=True))
        assert early[count] <= least * (1 + 1e-9)
        worthwhile = search.worthwhile(held, least * (1 + 1e-9))[configuration.order]
        assert count in worthwhile.room
        assert count in worthwhile.time


@pytest.mark.parametrize("seed", seeds(3, of=300, now=(2,)))
def test_a_look_at_memory_leaves_the_emptiest_plan(seed: int) -> None:
    problem = problem_of_parts_or_none(seed)
    splits = Splits(problem)
    for each in configurations(problem, len(problem.graph.layers), splits.counts)[0]:
        for count in each.stage_counts:
            search = ChunkSearch(problem, [evolve(each, stage_counts=(count,))], splits)
            least = search.least_memory()
            assert least is None or search.room_for_units(each, count, least.bytes * (1 + 1e-9))


@pytest.mark.parametrize("seed", seeds(20, of=300, first=7000))
def test_a_look_at_all_plans_says_the_same_as_one_at_each(seed: int) -> None:
    """Whatever there is memory for, whatever is to be beaten."""
    random = Random(seed)
    problem = problem_of_parts_or_none(seed)
    splits = Splits(problem)
    possible, _ = configurations(problem, len(problem.graph.layers), splits.counts)
    search = ChunkSearch(problem, possible, splits)
    pairs = [(each, count) for each in possible for count in each.stage_counts]
    for configuration, count in random.sample(pairs, min(len(pairs), 4)):
        early = dict(zip(configuration.stage_counts, search.early_bounds(configuration).tolist(), strict=True))
        limit = early[count] * random.uniform(1, 2)
        together = search.worthwhile(possible, limit)
        assert together[configuration.order] == search.worthwhile((configuration,), limit)[configuration.order]
        for each in possible:
            assert set(together[each.order].time) <= set(together[each.order].room) <= set(each.stage_counts)


@pytest.mark.parametrize("seed", seeds(20, of=300, first=5000, now=(5000,)))
def test_stages_take_what_their_units_do_at_least(seed: int) -> None:
    problem = problem_of_parts_or_none(seed)
    splits, bounds = Splits(problem), FirstBounds(problem)
    possible, _ = configurations(problem, len(problem.graph.layers), splits.counts)
    lean = {
        (each.replicas, choice): UnitRows.of(problem, splits, 0).lean(bounds, evolve(each, members=((0, (choice,)),)))
        for each in possible
        for choice in each.choices
    }
    if not lean or len(splits.units) <= 2:
        return
    inner = [[unit for unit in run.units if unit not in (splits.units[0], splits.units[-1])] for run in splits.runs]
    column = {unit: index for index, run in enumerate(filter(None, inner)) for unit in run}
    for plan in islice(plans(problem), 500):
        for stage, priced in zip(plan.stages, evaluate(problem, plan).stages, strict=True):
            units = lean.get((plan.replicas, Choice(stage.recompute, stage.zero)))
            if units is None:
                continue
            least = sum(
                units.ends[0, 0, 0 if unit == splits.units[0] else 1]
                if unit in (splits.units[0], splits.units[-1])
                else units.seconds[0, column[unit]]
                for unit in splits.units
                if set(unit) <= set(stage.layers)
            )
            assert least <= (priced.compute + priced.recompute + priced.sharding) * (1 + 1e-9)


@pytest.mark.parametrize("seed", seeds(3, of=100, first=1200))
def test_chunks_that_hold_nothing_at_the_fullest_moment_need_less_than_a_micro_batch(seed: int) -> None:
    """Stages may then fit where what one micro-batch keeps of all layers would not."""
    random = Random(seed)
    problem = chunked_problem(random)
    [odd] = problem.space.schedules
    empty = tuple(tuple(random.sample([1] + [0] * (odd.chunks - 1), odd.chunks)) for _ in range(3))
    problem = evolve(
        problem,
        space=evolve(problem.space, schedules=(evolve(odd, flying=empty),)),
        cluster=evolve(problem.cluster, memory=1e9, device_memory=1e9),
    )
    checked(tightened(problem, random))


def placed_problem(random: Random) -> Instance:
    """Three stages on more slots than that, in groups that may not hold them all, with messages that take long."""
    units = random.randint(6, 7)
    placement = random.choice(["round", "v", lambda stages: [home for home in (1, 3, 2, 1, 3, 2) if home <= stages]])
    said = random.choice([(0.0, 1.0), (2.0, 0.5), (2.0, 0.25, 1.0, -0.25)])
    odd = Odd(said, (in_flight(random, 2),), 2, placement)
    found = instance(
        [evolve(repeated(random, drawn_kinds(random, units)), recompute=repeated(random, [0] * units).recompute[:1])],
        machines=cluster(random.choice([(2, 2), (3, 2), (2, 3), (5, 2)])),
        zero=random.choice([(0,), (1, 3)]),
        rank_orders=(random.choice(["pp-inner", "dp-inner"]),),
        global_batch=4,
        hidden_messages=random.choice([(), ("odd",)]),
        constraints=("pp == 3", "replicas <= 2"),
        blocks=tuple((layer,) for layer in range(units)),
    )
    return tightened(evolve(found, space=evolve(found.space, schedules=(odd,))), random)


@pytest.mark.parametrize("seed", [*seeds(16, of=84, long=[13], now=range(4)), *seeds(1, of=116, first=84)])
def test_no_place_of_chunks_is_faster(seed: int) -> None:
    checked(placed_problem(Random(seed)))


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(4, of=60))
def test_plans_that_are_priced_alike_have_the_same_optimum(seed: int) -> None:
    """Those of a single replica, with either rank order and any ZeRO stage; a higher limit is a new question."""
    problem = placed_problem(Random(seed))
    constraints = (*problem.space.constraints, parse("replicas == 1"))
    orders = ("pp-inner", "dp-inner")
    problem = evolve(problem, space=evolve(problem.space, rank_orders=orders, zero=(0, 1), constraints=constraints))
    least, best = fastest(problem)
    if best is None:
        return
    splits = Splits(problem)
    possible, _ = configurations(problem, len(problem.graph.layers), splits.counts)
    apart = [evolve(each, members=((0, (choice,)),)) for each in possible for choice in each.choices]
    apart = [evolve(each, order=order) for order, each in enumerate(apart)]
    assert len(apart) == 4
    for limits in ((0.999 * least, inf), (inf, 0.999 * least)):
        search = ChunkSearch(problem, apart, splits)
        for limit, each in product(limits, apart):
            found = search.solve(each, 3, Floor(0.0, 0.0, 0.0), limit, Counter())
            assert (found is not None) == (limit == inf)
            if found is not None:
                assert found.value == pytest.approx(least, rel=1e-9)
                assert found.solution.rank_order == each.rank_order
                assert {Choice(stage.recompute, stage.zero) for stage in found.solution.stages} == set(each.choices)


@pytest.mark.parametrize("seed", range(20))
def test_the_least_limit_is_the_first_that_leaves_room(seed: int) -> None:
    """Of stages that take and add one of a few things each, where infinite is what does not fit."""
    random = Random(seed)
    drawn = [
        (
            numpy.array([random.choice([1.0, 2.0, 3.0, 5.0, numpy.inf]) for _ in range(points)]),
            numpy.array([float(random.randint(0, 4)) for _ in range(points)]),
            random.randint(1, 3),
        )
        for points in (random.randint(1, 4) for _ in range(random.randint(1, 3)))
    ]
    every = [list(zip(values.tolist(), added.tolist(), strict=True)) for values, added, n in drawn for _ in range(n)]
    for needed in range(20):
        possible = (max(t for t, _ in chosen) for chosen in product(*every) if sum(a for _, a in chosen) >= needed)
        assert least_largest(drawn, float(needed)) == min(possible, default=numpy.inf)


def test_a_moment_at_which_a_chunk_holds_nothing_bounds_no_units() -> None:
    """Inputs that the chunk would keep are then taken off again, as much as they are."""
    of_a_run_and_any = numpy.ones((1, 2))
    ends = numpy.array([[[0.0, 0.0]], [[3.0, 1.0]], [[0.0, 0.0]]])
    units = LeanUnits(numpy.array([4, 4]), of_a_run_and_any, 2 * of_a_run_and_any, of_a_run_and_any, ends, 0.0)
    nothing, one, homes = numpy.array([[0.0]]), numpy.array([[1.0]]), (0, 0)
    assert units.room(nothing, nothing, 14.0, homes).tolist() == [[[numpy.inf], [numpy.inf]]]
    assert units.room(one, nothing, 14.0, homes).tolist() == [[[5.0], [5.0]]]


def test_each_micro_batch_beyond_those_of_the_emptiest_chunk_takes_room() -> None:
    """Of 20 bytes 19 are left for units of 3 and one more micro-batch: another chunk holds one beyond its share."""
    one, free = numpy.ones((1, 2)), numpy.zeros((3, 1, 2))
    units = LeanUnits(numpy.array([4, 4]), one, 3 * one, one, free, 0.0)
    two, excess = numpy.array([[2.0]]), numpy.array([[1.0]])
    assert units.room(two, excess, 20.0, (0, 0)).tolist() == [[[19 / 4], [19 / 4]]]


def test_every_run_of_units_needs_stages_that_hold_it() -> None:
    """In 3 s two stages hold six light units, in 4 s four heavy ones; 1 s and 2 s more where they hold ends beside."""
    seconds, free = numpy.array([[1.0, 2.0, 1.0]]), numpy.zeros((1, 3))
    room = numpy.full((1, 3, 2), numpy.inf)

    def held(heavy: int, light: int, longest: float) -> bool:
        ends = numpy.array([[[1.0, 2.0]], [[0.0, 0.0]], [[0.0, 0.0]]])
        units = LeanUnits(numpy.array([light, heavy, light + heavy]), seconds, free, free, ends, 0.0)
        time = numpy.array([[longest + 1, longest + 2], [longest + 3, longest]])
        apart, together = units.hold(numpy.stack([room, room]), time, numpy.array([[0, 1], [0, 0]])).tolist()
        assert apart == together
        return bool(apart)

    assert held(0, 6, 3.0)
    assert not held(0, 7, 3.0)
    assert held(4, 1, 4.0)
    assert not held(5, 0, 4.0)


@pytest.mark.parametrize("seed", seeds(6, of=100))
def test_stages_that_send_past_others_lie_in_the_slots_that_are_priced(seed: int) -> None:
    """Four stages, of which the second and the fourth send each other messages, with slots left between them."""
    random = Random(seed)
    homes, said = (2, 4, 1, 3, 4, 2, 3, 1), random.choice([(0.0, 1.0), (2.0, 0.5), (2.0, 0.25, 1.0, -0.25)])
    odd = Odd(said, (in_flight(random, 2),), 2, lambda stages: [home for home in homes if home <= stages])
    found = instance(
        [evolve(repeated(random, drawn_kinds(random, 8)), recompute=repeated(random, [0] * 8).recompute[:1])],
        machines=cluster(random.choice([(2, 3), (3, 2), (2, 4)])),
        zero=random.choice([(0,), (3,)]),
        rank_orders=("pp-inner",),
        global_batch=4,
        constraints=("pp == 4", "replicas == 1"),
        blocks=tuple((layer,) for layer in range(8)),
    )
    checked(evolve(found, space=evolve(found.space, schedules=(odd,))))


def test_an_even_split_may_have_any_number_of_chunks() -> None:
    """More than arrays have axes."""
    layers = 72
    odd = Odd((0.0, 1.0), (2,), layers // 2, "round")
    problem = instance(
        [repeated(Random(1), [0] * layers)], machines=cluster((2, 1)), blocks=tuple((layer,) for layer in range(layers))
    )
    found = solve(evolve(problem, space=evolve(problem.space, schedules=(odd,), even=True)))
    assert found.solution is not None
    assert [chunk for stage in found.solution.stages for chunk in stage.chunks] == [
        *((layer,) for layer in range(0, layers, 2)),
        *((layer,) for layer in range(1, layers, 2)),
    ]


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(3, of=60, first=900))
def test_constraints_tell_units_apart(seed: int) -> None:
    """A constraint on two layers, layers that no cut may part, or stages that are decided."""
    random = Random(seed)
    problem = chunked_problem(random)
    one, other = sorted(random.sample(range(len(problem.graph.layers)), 2))
    kind = random.choice(["stage", "cut", "partition"])
    best = solve(problem, runner_up=False).solution
    if kind == "stage":
        constraints = (*problem.space.constraints, parse(f'same_stage("l{one}", "l{other}")'))
        problem = evolve(problem, space=evolve(problem.space, constraints=constraints))
    elif kind == "cut":
        problem = evolve(problem, space=evolve(problem.space, together=((one, min(one + 1, other)),)))
    elif best is not None:
        partition = tuple(stage.layers for stage in best.stages)
        problem = evolve(problem, space=evolve(problem.space, partition=partition))
    checked(problem)
