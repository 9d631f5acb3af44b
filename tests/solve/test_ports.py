"""Ports in the dynamic program: against the brute force, and against the pricing of plans (PROBLEM.md section 4)."""

import importlib
from random import Random

import numpy
import pytest
from attrs import evolve

from nest.instance import Instance
from nest.plan.evaluate import evaluate
from nest.solve.dp import choices, solve
from nest.solve.dp.choices import UNKNOWN, Boundary, ChoiceTable, Ports
from tests.agreement.compare import complaint, disagreements
from tests.agreement.draws import draw, hangs_on_rounding
from tests.seeds import few
from tests.small_instances import candidate, cluster, instance

attempt = importlib.import_module("nest.solve.dp.attempt")


@pytest.mark.parametrize("kind", few(["plain", "mixed", "chunked", "sharded", "uneven"], "plain"))
def test_no_plan_is_faster_where_ports_are_busy(kind: str) -> None:
    compared = 0
    for seed in range(14):
        drawn = draw(seed, kind, corner="ports")
        if sum(1 for _ in drawn.problem["profile"]["layers"]) > 5 or hangs_on_rounding(drawn):
            continue
        wrong = disagreements(drawn.problem, drawn.answer, checked=False)
        assert not wrong, complaint(f"{kind} {seed}", drawn.problem, wrong)
        compared += drawn.answer.plan is not None
    assert compared > 5


def busy_instance(seed: int, *, exposed: float, layers: int = 4, fanouts: tuple[int, ...] = (2, 2, 2)) -> Instance:
    """A chain with a port that is about as busy as the stages, on a network of slow links."""
    random = Random(seed)
    machines = cluster(fanouts)
    used = candidate(layers, seed=seed)
    busy = [[random.choice([0.0, random.uniform(0.0, 16.0)]) for _ in range(layers)] for _ in machines.levels]
    return instance(
        [evolve(used, busy=busy, tensor_bytes=used.tensor_bytes * random.choice([1, 4]))],
        machines=machines,
        exposed=exposed,
        global_batch=random.choice([1, 2, 8]),
        constraints=("pp > 1",),
    )


@pytest.mark.parametrize("exposed", few([0.0, 0.3, 1.0], 0.0))
def test_the_search_prices_what_it_finds_as_plans_are_priced(exposed: float) -> None:
    waits = held = 0
    for seed in range(18):
        problem = busy_instance(seed, exposed=exposed)
        found = solve(problem)
        assert found.solution is not None
        priced = evaluate(problem, found.solution)
        assert found.batch_time == pytest.approx(priced.batch_time, rel=1e-12)
        bare = evolve(problem, candidates=tuple(evolve(each, busy=None) for each in problem.candidates))
        alone = evaluate(bare, found.solution)
        waits += priced.slowest > alone.slowest
        held += priced.sync > alone.sync * (1 + 1e-9)
    assert waits > 5
    assert (held > 3) == (exposed < 1)


def random_choices(random: Random, kinds: int, levels: int) -> list[ChoiceTable]:
    """Choices of small whole numbers; a port is busy for longer than its stage now and then."""

    def numbers(most: int, *shape: int) -> numpy.ndarray:
        return numpy.array([float(random.randint(0, most)) for _ in range(int(numpy.prod(shape)))]).reshape(shape)

    found = []
    for _ in range(random.randint(2, 6)):
        time, once = numbers(4, kinds), numbers(3, kinds)
        sync, used = numpy.minimum(numbers(3, kinds), once), numbers(1, levels, kinds) > 0
        ports = Ports.of(numbers(4, levels, kinds), time, sync, once, used, random.choice([1, 3, None]))
        found.append(ChoiceTable(time, sync, numbers(1, kinds), numbers(1, kinds), ports))
    return found


def test_a_choice_left_out_is_nowhere_better_between_any_boundaries() -> None:
    random = Random(3)
    levels, left = 2, 0
    for _ in range(300):
        tables = random_choices(random, 1, levels)
        tables.append(tables[0]._replace(time=tables[0].time))
        kept = choices.not_dominated(tables)
        left += len(tables) - len(kept)
        for _ in range(20):
            around = [Boundary(random.randrange(levels), float(random.randint(0, 4))) for _ in range(2)]
            priced = [table.with_boundaries(numpy.array([0]), *around) for table in tables]
            numbers = [
                (float(time[0]), float(sync[0]), float(table.first[0]), float(table.more[0]))
                for table, (time, sync) in zip(tables, priced, strict=True)
            ]
            for each in numbers:
                assert any(all(a <= b for a, b in zip(numbers[one], each, strict=True)) for one in kept)
    assert left > 50


def test_what_is_not_tight_is_the_sum_and_what_is_relaxed_is_below() -> None:
    random = Random(4)
    loose = 0
    for _ in range(300):
        for table in random_choices(random, 3, 2):
            assert table.ports is not None
            kinds = numpy.arange(3)
            around = [Boundary(random.randrange(2), float(random.randint(0, 4))) for _ in range(2)]
            time, sync = table.with_boundaries(kinds, *around)
            bound, least = table.with_boundaries(kinds, *(each._replace(level=UNKNOWN) for each in around))
            added = table.time + sum(each.seconds for each in around)
            assert (bound <= time).all()
            assert (least <= sync).all()
            assert (table.floor <= time).all()
            free = ~table.ports.tight
            assert (time[free] == added[free]).all()
            assert (sync[free] == table.sync[free]).all()
            loose += int(free.sum())
    assert loose > 100
