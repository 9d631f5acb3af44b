"""Stages that recompute their first blocks only: the proof, the dynamic program and every plan there is agree."""

from itertools import pairwise
from math import inf
from random import Random

import numpy
import pytest
from attrs import evolve

import nest
from cpsat_tests.asking import CLOSE, document, settles
from cpsat_tests.without_bounds import leave_cases_to_models
from nest.instance import Candidate, Instance, LayerGraph, Partial, RecomputeMode, recomputed
from nest.plan.evaluate import evaluate
from nest.solve.dp import solve
from nest_cpsat import search
from nest_cpsat.first_blocks import FirstBlocks
from tests.agreement.compare import plugins_of
from tests.agreement.draws import draw
from tests.agreement.networks import answers_of, draw_network
from tests.agreement.random_parts import thriftier
from tests.seeds import seeds
from tests.small_instances import candidate, chain, cluster, instance
from tests.solve.every_plan import fastest
from tests.solve.test_parts import tightened


def drawn(random: Random, layers: int, **options: object) -> Candidate:
    """A candidate whose recompute modes may stash inputs, occupy ports, peak, or not run some layers."""
    found = candidate(layers, seed=random.randrange(10**6), **options)  # type: ignore[arg-type]
    numbers = numpy.random.default_rng(random.randrange(10**6))
    none, full = found.recompute
    modes = [evolve(each, stash_inputs=random.random() < 0.3) for each in (none, full)]
    if random.random() < 0.5:
        held = none.first
        kept = (numpy.zeros(layers) + full.extra / 3, held * 0.6, held * 0.5, held * numbers.random(layers))
        modes.insert(1, RecomputeMode("selective", *kept))
    if random.random() < 0.3:
        busy = numbers.uniform(0.0, 3.0, (2, layers)) * found.forward
        modes[-1] = evolve(modes[-1], busy=busy / 3)
        found = evolve(found, busy=busy)
    if random.random() < 0.2:
        first = modes[0].first.copy()
        first[random.randrange(layers)] = inf
        modes[0] = evolve(modes[0], first=first)
    return evolve(found, recompute=tuple(modes))


def blocks(random: Random, layers: int) -> tuple[tuple[int, ...], ...]:
    """Blocks of one or two layers, with or without layers at the ends that are in none."""
    first, last = random.choice([0, 0, 1]), layers - random.choice([0, 0, 1])
    borders = sorted({first, last, *random.sample(range(first, last), min(3, last - first))})
    return tuple(tuple(range(one, two)) for one, two in pairwise(borders))


def with_parts(problem: Instance, units: tuple[tuple[int, ...], ...]) -> Instance:
    """The problem with all parts of stages allowed."""
    names = list(dict.fromkeys(mode.name for each in problem.candidates for mode in each.recompute))
    names.sort(key=["none", "selective", "full"].index)
    pairs = [(mode, rest) for place, mode in enumerate(names) for rest in names[:place]]
    parts = tuple(Partial(mode, k, rest).name for mode, rest in pairs for k in range(1, len(units)))
    return evolve(problem, space=evolve(problem.space, partial=parts, units=units))


def problem_of(random: Random, layers: int, graph: LayerGraph | None = None) -> Instance:
    kinds = [drawn(random, layers, tensors=len((graph or chain(layers)).tensors))]
    mixed = random.random() < 0.3
    if mixed:
        kinds.append(drawn(random, layers, name="wide", width=2, tensors=len((graph or chain(layers)).tensors)))
        kinds = [each if each.busy is not None else evolve(each, busy=numpy.zeros((2, layers))) for each in kinds]
    found = instance(
        kinds,
        graph=graph,
        machines=cluster(random.choice([(2, 2), (3, 1), (4, 1)])),
        zero=random.choice([(0,), (1,), (1, 3)]),
        rank_orders=("pp-inner",),
        global_batch=random.choice([4, 8]),
        exposed=random.choice([1.0, 0.3]),
        hiding=random.random() < 0.3,
        mixed=mixed,
        constraints=random.choice([(), (), ("uniform(recompute)",), ("recompute_layers != 1",)]),
    )
    return tightened(with_parts(found, blocks(random, layers)), random)


def without_ports(used: Candidate) -> Candidate:
    return evolve(used, busy=None, recompute=tuple(evolve(mode, busy=None) for mode in used.recompute))


def examine(problem: Instance) -> None:
    """The optimum is proved, and nothing above it."""
    settles(problem, solve(problem, runner_up=False).batch_time, 1.02)


@pytest.mark.parametrize("seed", seeds(6, 200))
def test_every_plan_of_a_chain_agrees(seed: int) -> None:
    random = Random(seed)
    problem = problem_of(random, random.randint(2, 3))
    if not problem.space.mixed:
        least, _ = fastest(problem)
        found = solve(problem, runner_up=False)
        assert (found.batch_time or inf) == pytest.approx(least, rel=1e-9)
    examine(problem)


@pytest.mark.parametrize("seed", [20, 32])
def test_the_price_is_exact_where_blocks_are_fewer_or_layers_are_in_none(seed: int) -> None:
    """One chain has stages of fewer blocks than recompute, the other a first layer in no block."""
    random = Random(seed)
    problem = problem_of(random, random.randint(3, 6))
    found = solve(problem, runner_up=False)
    assert found.solution is not None
    assert found.batch_time == pytest.approx(evaluate(problem, found.solution).batch_time, rel=1e-9)


@pytest.mark.parametrize("seed", seeds(3, 100))
def test_blocks_of_which_a_stage_holds_a_part_are_counted(seed: int) -> None:
    random, numbers = Random(seed), numpy.random.default_rng(seed)
    units, layers = blocks(random, 7), numpy.arange(7)
    stages = [(one, two) for one in range(7) for two in range(one + 1, 8)]
    held = numpy.array([(layers >= one) & (layers < two) for one, two in stages])
    first, rest = numbers.random((2, 7))
    found = FirstBlocks.of(units, held).joined(numpy.add, first, rest)
    for (one, two), by_count in zip(stages, found.T, strict=True):
        for count, total in enumerate(by_count):
            inside = recomputed(units, range(one, two), count)
            expected = sum(first[layer] if layer in inside else rest[layer] for layer in range(one, two))
            assert total == pytest.approx(expected, rel=1e-12)


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(5, 100))
def test_bounds_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems are asked in one model without bounds; here each case is, after the bounds."""
    monkeypatch.setattr(search, "FEW_CASES", 0)
    random = Random(seed + 500)
    examine(problem_of(random, random.randint(3, 6)))


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(4, 100))
def test_models_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds settle most cases; here none takes part."""
    leave_cases_to_models(monkeypatch)
    random = Random(seed + 1000)
    examine(problem_of(random, random.randint(3, 5)))


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(4, 100))
def test_models_over_layers_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of graphs with too many cuts to list; where collectives cost nothing they are exact."""
    monkeypatch.setattr(search, "MOST_CUTS", 0)
    leave_cases_to_models(monkeypatch)
    random = Random(seed + 2000)
    found = problem_of(random, random.randint(3, 5))
    candidates = [without_ports(each) for each in found.candidates]
    problem = evolve(found, candidates=tuple(candidates), space=evolve(found.space, exposed=0.0, hiding=False))
    examine(problem)


@pytest.mark.longer
@pytest.mark.parametrize(
    ("kind", "seed"), [("plain", 21), ("mixed", 2), ("sharded", 9), ("uneven", 12), ("chunked", 0), ("chunked", 11)]
)
def test_the_optimum_of_brute_force_is_proved(kind: str, seed: int) -> None:
    asked = draw(seed, kind, parts=True)
    assert asked.answer.plan is not None
    assert any(not isinstance(stage["recompute"], str) for stage in asked.answer.plan["stages"])
    plan = document(asked.problem, asked.answer.plan)
    assert nest.verify(plan, **plugins_of(asked.problem)).status == "proved"


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(2, 40))
def test_on_a_network_brute_force_agrees(seed: int) -> None:
    random, problem = Random(seed), draw_network(seed)
    problem.setdefault("search", {}).update(recompute_layers=True)
    for used in problem["profile"]["candidates"]:
        kept = next(iter(used["recompute"].values()))
        used["recompute"] = {"none": kept, "full": thriftier(random, used, kept)}
    _, answer = answers_of(problem)
    plan = nest.solve(problem, verify=True)
    assert (plan.verification or {})["status"] == "proved"
    assert plan.batch_time == (None if answer.batch_time is None else pytest.approx(answer.batch_time, rel=CLOSE))
