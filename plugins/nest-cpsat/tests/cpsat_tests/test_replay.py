"""Plans priced by their replay: CP-SAT against every plan there is, priced one by one."""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

import numpy
import pytest
from attrs import evolve

from cpsat_tests.asking import CLOSE, ask
from cpsat_tests.test_chunks import draw, every_plan, examine
from nest.hooks.registry import registry
from nest.instance import Instance, Solution, chunks_of, route
from nest.instance.schedule import FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS
from nest.plan.evaluate import evaluate, makespan
from nest.plan.makespan import ChunkSeconds, pipeline_length
from nest.solve.effort import Deadline
from nest.spec.constraints import parse
from nest.tolerances import AGREEMENT
from nest_cpsat import graph_search, search
from nest_cpsat.cuts import chunk_units
from nest_cpsat.replay import events, longest_path
from tests.seeds import seeds
from tests.small_instances import candidate, instance

PLAIN = ("1f1b", "gpipe", "zero-bubble", "zero-bubble-h2", "dualpipe")
CHUNKED = ("interleaved", "interleaved-zero-bubble", "zb-v", "dualpipe-v")


def replayed(seed: int, name: str | None = None) -> Instance:
    """A small problem with a real schedule, its plans priced by their replay."""
    random = numpy.random.default_rng([57, seed])
    name = name or str(random.choice(PLAIN + CHUNKED))
    chunks = 1 if name in PLAIN else 2
    problem = draw(seed, chunks)
    schedule = registry().schedules()[name]
    (used,) = problem.candidates
    backward = used.forward * numpy.exp(random.uniform(-2.0, 2.0, len(used.forward)))
    found = None if used.weight_gradients is None else backward * random.uniform(0.1, 0.5)
    used = evolve(used, backward=backward, weight_gradients=found)
    space = evolve(problem.space, schedules=(schedule,), replayed=True, constraints=(parse("pp > 1"),))
    space = evolve(space, hidden_messages=(name,) if space.hidden_messages else ())
    return evolve(problem, candidates=(used,), space=space, makespan=makespan)


def alike(sizes: Sequence[int]) -> bool:
    """Whether chunks of so many blocks differ by one at most; those at the ends may be smaller."""
    return max(sizes) - min(sizes[1:-1]) <= 1


def plans(problem: Instance) -> Iterator[Solution]:
    """Every plan of two stages or more whose chunks are of about one size."""
    layers = len(problem.graph.layers)
    allowed = [pp for pp in range(2, 5) if all(each.holds({"pp": pp}) for each in problem.space.constraints)]
    others = {0, layers - 1} if problem.space.blocks_and_ends else set()
    for plan in every_plan(problem):
        runs = sorted((chunk for stage in plan.stages for chunk in stage.chunks), key=min)
        if len(plan.stages) in allowed and (not runs or alike([len(set(run) - others) for run in runs])):
            yield plan


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(4, 300))
def test_it_agrees_with_every_plan_priced(seed: int) -> None:
    examine(replayed(seed), plans)


@pytest.mark.longer
@pytest.mark.parametrize("seed", [28, 45, 108, 112, 154])
def test_plans_of_which_many_have_a_closed_form_below_the_claim_are_proved(seed: int) -> None:
    """ZeRO that gathers and scatters, ports, GPipe; CP-SAT calls a model of 45 infeasible if numbers are unbounded."""
    examine(replayed(seed), plans)


@pytest.mark.parametrize("seed", [5, 10])
@pytest.mark.parametrize("name", ["gpipe", "zero-bubble", "interleaved", "zb-v"])
def test_a_closed_form_below_the_claim_does_not_refute_it(name: str, seed: int) -> None:
    """Some plan has a closed form below the price of the best."""
    problem = contrary(name, seed)
    priced = [evaluate(problem, plan) for plan in plans(problem)]
    best = min(each.batch_time for each in priced)
    assert min(each.closed_form for each in priced) < best * (1 - 2 * CLOSE)
    examine(problem, plans)


def contrary(name: str, seed: int, *, even: bool = False) -> Instance:
    """Two or four stages of layers whose passes take anything."""
    random, chunks = numpy.random.default_rng(seed), chunks_of(registry().schedules()[name])
    count = 8 if even else 3 + 2 * chunks
    used = candidate(count, seed=seed)
    forward, backward = numpy.exp(random.uniform(-3.0, 1.0, (2, count)))
    used = evolve(used, forward=forward, backward=backward, recompute=used.recompute[:1])
    rules = [f"pp == {4 // chunks}"]
    numbers = {"rank_orders": ("pp-inner",), "zero": (0,), "blocks": tuple((layer,) for layer in range(count))}
    problem = instance([used], schedules=(name,), constraints=rules, replayed=True, even=even, **numbers)
    return evolve(problem, makespan=makespan)


@pytest.mark.longer
@pytest.mark.parametrize("name", ["interleaved", "dualpipe-v"])
@pytest.mark.parametrize("seed", range(2))
def test_modes_that_add_as_much_to_other_chunks_are_told_apart(seed: int, name: str) -> None:
    """A stage may take as long with either, and the batch not."""
    problem = contrary(name, seed, even=True)
    (used,) = problem.candidates
    (mode,) = used.recompute
    early = numpy.arange(len(used.forward)) < 4
    added = numpy.array([early, ~early]) * 0.5
    modes = (evolve(mode, name=name, extra=extra) for name, extra in zip(("one", "other"), added, strict=True))
    problem = evolve(problem, candidates=(evolve(used, recompute=tuple(modes)),))
    examine(problem, plans)


@pytest.mark.longer
@pytest.mark.parametrize("name", ["gpipe", "zero-bubble"])
def test_where_cuts_are_too_many_to_list_it_never_contradicts_plans_priced(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_CUTS", 0)
    problem = contrary(name, 5)
    priced = [(evaluate(problem, plan).batch_time, plan) for plan in plans(problem)]
    (best, _), (worst, plan) = (each(priced, key=lambda pair: pair[0]) for each in (min, max))
    assert ask(problem, best).status == "proved"
    found = graph_search.solve(problem, (plan, worst), Deadline(None))
    assert found.status == "optimal"
    assert found.batch_time == pytest.approx(best, rel=CLOSE)


@pytest.mark.parametrize("ends", [0, 2])
@pytest.mark.parametrize("count", range(4, 11))
def test_chunks_begin_where_none_differs_by_two_blocks(count: int, ends: int) -> None:
    units = tuple((layer,) for layer in range(count + ends))
    blocks = ((0, 1), *units[2:-2], (count, count + 1)) if ends else units
    problem = instance([candidate(count + ends)], blocks=blocks, blocks_and_ends=units if ends else ())
    begun: list[set[int]] = [set() for _ in range(3)]
    for inner in combinations(range(1, count + ends), 3):
        runs = [range(*pair) for pair in pairwise((0, *inner, count + ends))]
        if alike([sum(not ends or 0 < unit <= count for unit in run) for run in runs]):
            for starts, unit in zip(begun, inner, strict=True):
                starts.add(unit)
    found = chunk_units(problem, 4)
    assert found is not None
    assert [set(each) for each in found.starts] == begun
    given = evolve(problem, space=evolve(problem.space, partition=((0,), tuple(range(1, count + ends)))))
    free = chunk_units(given, 4)
    assert free is not None
    assert [set(each) for each in free.starts] == [set(range(n, count + ends - 3 + n)) for n in range(1, 4)]


STEPS = (FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS)


@pytest.mark.parametrize("name", PLAIN + CHUNKED)
def test_the_path_that_ends_last_takes_as_long_as_the_batch(name: str) -> None:
    """And no less than what its steps add up to, whatever else they take."""
    schedule, random = registry().schedules()[name], numpy.random.default_rng(0)
    places = 4 * chunks_of(schedule)
    every = events(schedule, 4, 8)
    staggered = bool(getattr(schedule, "staggered", False))
    drawn = [{(kind, place): random.uniform(0.1, 3.0) for kind in STEPS for place in range(places)} for _ in range(2)]
    still = dict.fromkeys(drawn[0], 0.0)
    path = longest_path(every, drawn[0], still, staggered=staggered)
    for lengths, exact in zip(drawn, (True, False), strict=True):
        home = route(schedule, 4)
        stages = [[chunk for chunk, here in enumerate(home) if here == stage] for stage in range(4)]
        passes = [
            [
                ChunkSeconds(
                    lengths[FORWARD, chunk],
                    lengths[INPUT_GRADIENTS, chunk] + lengths[WEIGHT_GRADIENTS, chunk],
                    lengths[WEIGHT_GRADIENTS, chunk],
                    0.0,
                    0.0,
                )
                for chunk in own
            ]
            for own in stages
        ]
        whole = pipeline_length(schedule, 8, passes)
        told = sum(count * lengths.get(step, 0.0) for step, count in path)
        assert told <= whole * (1 + AGREEMENT)
        if exact and not staggered:
            assert told == pytest.approx(whole, rel=AGREEMENT)
