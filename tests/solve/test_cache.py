"""Searches that share tables answer as they do alone."""

from math import inf
from random import Random

import numpy
import pytest
from attrs import evolve

from nest.formulate.instance import build_instance
from nest.hooks.registry import registry
from nest.instance import Instance
from nest.io import structure
from nest.solve.dp import SearchCache, candidate_floors, solve
from nest.solve.dp.attempt import SLOWER
from nest.spec import Problem
from nest.spec.constraints import parse
from nest.tolerances import TIE
from tests.agreement.problems import random_problem
from tests.seeds import few, seeds
from tests.solve.test_chunks import chunked_problem
from tests.solve.test_sharding_terms import drawn

CONSTRAINTS = ("uniform(zero)", "pp != 2", "replicas != 1", "zero != 3", "same_stage('layer0', 'layer1')")


def neighbours(problem: Instance, random: Random) -> list[Instance]:
    """The problem with other memory, constraints, batch and times, in any order; some are no neighbours of others."""
    names = problem.graph.layers
    rules = [text.replace("layer0", names[0]).replace("layer1", names[1]) for text in CONSTRAINTS]
    changed = [problem]
    for place in range(5):
        memory = problem.cluster.memory * random.choice([0.5, 0.8, 1.0, 1.5])
        constraints = tuple(parse(text) for text in random.sample(rules, random.choice([0, 1, 2])))
        space = evolve(problem.space, constraints=(*problem.space.constraints, *constraints))
        if random.random() < 0.2:
            space = evolve(space, exposed=1.0)
        if random.random() < 0.4:
            space = evolve(space, global_batch=random.choice([2, 3]) * space.global_batch)
        if place == 3:
            space = evolve(space, global_batch=3 * space.global_batch, uneven_batch=True, zero=space.zero[-1:])
        cluster = evolve(problem.cluster, memory=memory, device_memory=memory)
        candidates = problem.candidates
        if random.random() < 0.4:
            slower = numpy.full(len(problem.graph.layers), random.choice([0.5, 2.0]))
            if random.random() < 0.5:  # Blocks that were alike are no longer.
                slower[random.randrange(len(slower))] *= 1.5
            candidates = tuple(evolve(each, forward=each.forward * slower) for each in candidates)
        changed.append(evolve(problem, cluster=cluster, space=space, candidates=candidates))
    random.shuffle(changed)
    return changed


@pytest.mark.parametrize("chunked", few([False, True], True), ids=["one chunk", "chunks"])
@pytest.mark.parametrize("seed", [*seeds(12, of=200, now=(2, 11)), *few((52, 69))])
def test_what_was_searched_before_changes_no_answer(seed: int, chunked: bool) -> None:
    random, cache = Random(seed), SearchCache()
    problem = chunked_problem(random) if chunked else drawn(seed)
    for each in neighbours(problem, random):
        alone = solve(each, runner_up=False)
        assert solve(each, runner_up=False, cache=cache) == alone
        if alone.solution is None or alone.batch_time is None:
            continue
        # With a plan in hand, what is slower is left out before it is listed.
        known = alone.solution, alone.batch_time * 1.3
        both = [solve(each, runner_up=False, known=known, preferred=False, cache=kept) for kept in (None, cache)]
        assert both[0] == both[1]
        assert (both[0].solution, both[0].batch_time) == (alone.solution, alone.batch_time)


@pytest.mark.longer
@pytest.mark.parametrize("kind", ["plain", "chunked"])
@pytest.mark.parametrize("seed", [*seeds(6, of=44), 44])
def test_a_known_plan_decides_nothing_between_equals(seed: int, kind: str) -> None:
    """At 44 recomputation takes no time: it was the answer where searches listed few plans, as it needs less memory."""
    instance = build_instance(structure(random_problem(Random(seed), kind), Problem), registry())
    alone = solve(instance)
    if alone.solution is None or alone.batch_time is None:
        return
    for factor in (1.0, 1.02, 4.0):
        known = solve(instance, known=(alone.solution, factor * alone.batch_time), preferred=False)
        assert (known.solution, known.batch_time) == (alone.solution, alone.batch_time)


@pytest.mark.parametrize("chunked", [False, True], ids=["one chunk", "chunks"])
@pytest.mark.parametrize("seed", seeds(12, of=300))
def test_a_runner_up_is_the_same_however_much_is_listed_first(seed: int, chunked: bool) -> None:
    random = Random(seed)
    problem = chunked_problem(random) if chunked else drawn(seed)
    every = solve(problem)
    best, least = every.solution, every.batch_time
    if best is None or least is None:
        return
    for longer in (1, 1.01, 1.05, 1.2):
        found = solve(problem, known=(best, least * longer), preferred=False)
        assert (found.solution, found.batch_time) == (best, least)
        if every.runner_up is not None and every.runner_up[1] <= SLOWER * least:
            assert found.runner_up is not None
            assert found.runner_up[1] == pytest.approx(every.runner_up[1], rel=2 * TIE)


@pytest.mark.parametrize("seed", [*seeds(6, of=300), 181])
def test_ports_hold_up_as_many_micro_batches_as_there_are(seed: int) -> None:
    """How long they do decides what stages take, of another batch for another time."""
    random, cache = Random(seed), SearchCache()
    problem = chunked_problem(random)
    memory, slower = 2 * problem.cluster.memory, [1, 1.5, 2, 3]
    busy = [None if each.busy is None else each.busy * random.choice(slower) for each in problem.candidates]
    candidates = tuple(evolve(each, busy=own) for each, own in zip(problem.candidates, busy, strict=True))
    cluster = evolve(problem.cluster, memory=memory, device_memory=memory)
    exposed = random.choice([0.0, 0.1, 0.3])
    for times in (1, 3, 2):
        space = evolve(problem.space, exposed=exposed, global_batch=times * problem.space.global_batch)
        each = evolve(problem, candidates=candidates, cluster=cluster, space=space)
        assert solve(each, runner_up=False, cache=cache) == solve(each, runner_up=False)


@pytest.mark.parametrize("chunked", [False, True], ids=["one chunk", "chunks"])
@pytest.mark.parametrize("first", seeds(2, of=20))
def test_no_plan_is_below_the_floor_of_its_candidate(first: int, chunked: bool) -> None:
    """With as much memory or less; and constraints on its degrees that refuse a candidate leave it no plan."""
    asked = 0
    for seed in range(5 * first, 5 * first + 5):
        random, cache = Random(seed), SearchCache()
        for each in neighbours(chunked_problem(random) if chunked else drawn(seed), random):
            names = sorted({name for candidate in each.candidates for name in candidate.degrees})
            rules = [parse(f"{name} {random.choice(['<= 1', '> 1'])}") for name in names if random.random() < 0.3]
            ruled = evolve(each, space=evolve(each.space, constraints=(*each.space.constraints, *rules)))
            floors, memory = candidate_floors(ruled, cache), ruled.cluster.memory * random.choice([0.7, 1.0])
            cluster = evolve(ruled.cluster, memory=memory, device_memory=memory)
            seconds = min(floors.values()) * random.uniform(1, 3)
            near = candidate_floors(ruled, cache, seconds) if seconds < inf else floors
            for candidate in ruled.candidates:
                alone = solve(evolve(ruled, candidates=(candidate,), cluster=cluster), runner_up=False)
                if alone.batch_time is not None:
                    asked += 1
                    assert floors[candidate.name] <= alone.batch_time * (1 + 1e-9)
                    if alone.batch_time <= seconds:
                        assert near[candidate.name] <= alone.batch_time * (1 + 1e-9)
    assert asked
