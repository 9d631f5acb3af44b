"""Plans whose stages use different candidates: places, tallies, bounds, certificates (brute force: tests/agreement)."""

from collections import Counter
from itertools import chain, product
from random import Random
from typing import Any

import numpy
import pytest
from attrs import evolve

from nest.instance import Cluster, Instance, Level
from nest.plan.evaluate import evaluate
from nest.plan.legality import permission_violations
from nest.solve.dp import solve
from nest.solve.dp.configurations import Tally, offsets
from nest.solve.dp.listing import mixed_configurations
from nest.solve.dp.mixed import MixedSearch
from nest.solve.dp.rules import Exclusions
from tests.seeds import seeds
from tests.small_instances import candidate, cluster, downsets_of, instance
from tests.solve.every_plan import Odd


@pytest.mark.parametrize("order", ["pp-inner", "dp-inner"])
@pytest.mark.parametrize("fanouts", [(2, 3), (3, 2), (5, 2), (2, 7), (1, 4, 2), (2, 2, 3)])
def test_the_level_between_blocks_of_any_width(fanouts: tuple[int, ...], order: str) -> None:
    machines = Cluster(tuple(Level(f"l{i}", f, 1.0, 0.0) for i, f in enumerate(fanouts)), 1.0)
    widths = [width for width in range(1, 5) if machines.admits(width)]
    for widest, replicas in product(widths, range(1, 5)):
        size = widest * (machines.size // (replicas * widest))
        found = offsets(machines, size, replicas, order) if size else None
        narrower = [width for width in widths if width <= widest]
        blocks = [(offset, width) for width in narrower for offset in range(0, size - width + 1, width)]
        for one, other in product(blocks, blocks):
            if found is None or one[0] + one[1] > other[0]:
                continue
            worst = -1
            for replica in range(replicas):
                devices: list[int] = []
                for offset, width in (one, other):
                    first = replica * size + offset if order == "pp-inner" else offset * replicas + replica * width
                    devices += (first, first + width - 1)
                worst = max(worst, machines.level(min(devices), max(devices)))
            assert numpy.flatnonzero(found.ends[:, one[0]] >= sum(other))[0] == worst


def test_a_tally_counts_devices_and_asks_for_the_widest() -> None:
    tally = Tally(4, frozenset({5, 6}))
    one = tally.step(tally.start, 1)
    assert one is not None
    both = tally.step(one, 4)
    assert both is not None
    assert not tally.accepts(one)
    assert [state for state in product(range(8), (False, True)) if tally.accepts(state)] == [both, (6, True)]
    assert tally.step(both, 4) is None
    assert Tally().accepts(Tally().start)


@pytest.mark.parametrize("tally", [Tally(4, frozenset({5, 6})), Tally(4), Tally(0, frozenset({6})), Tally()])
def test_a_tally_counts_alike_from_either_end(tally: Tally) -> None:
    for widths in chain.from_iterable(product((1, 2, 4), repeat=count) for count in (1, 2, 3)):
        front, state = {(0, True)}, tally.start
        for width in widths:
            front = {each for before in front for each in tally.behind(before, width)}
        for width in reversed(widths):
            state = state and tally.step(state, width)
        left = {used for used, due in front if due == tally.start[1]}
        assert any(tally.accepts((used, True)) for used in left) == (state is not None and tally.accepts(state))


def mixed(seed: int) -> Instance:
    """Candidates of several widths on a cluster whose replicas need not fill nodes."""
    random = Random(seed)
    layers = random.randint(3, 6)
    widths = random.sample([1, 2, 3, 6], 3)
    machines = cluster((6, random.choice([1, 2])), memory=random.choice([40.0, 70.0, 1e9]))
    found = [
        candidate(layers, name=f"c{i}", width=width, seed=seed + i, scale=random.uniform(0.8, 1.3) / width)
        for i, width in enumerate(widths)
    ]
    return instance(found, machines=machines, mixed=True, uneven_batch=True, global_batch=random.choice([4, 9]))


def weighing(problem: Instance, seed: int) -> Instance:
    """The same with a schedule that weighs parts apart, and candidates that find gradients of weights in many ways."""
    random, numbers = Random(seed), numpy.random.default_rng(seed)
    found = tuple(
        evolve(each, weight_gradients=each.backward * numbers.choice([0.0, 0.4, 0.5])) for each in problem.candidates
    )
    forward, inputs = random.choice([0.5, 1.0]), random.choice([0.5, 1.0, 2.0])
    gradients = random.choice([-1.0, -0.9, 0.5]) * min(forward, inputs)
    odd = Odd((0.5, forward, inputs, gradients), (1, 2, 4, 1), copies=random.choice([1, 2]), even=False)
    space = evolve(problem.space, schedules=(odd,), hidden_messages=random.choice([(), ("odd",)]))
    return evolve(problem, candidates=found, space=space)


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("seed", seeds(12, 12, now=(0, 1, 4, 8)))
def test_no_bound_of_a_node_exceeds_its_best_plan(seed: int, parts: bool) -> None:
    """Every configuration solved on its own, without a plan to beat, against the bounds that could drop it.

    And what is found costs what its evaluation says, whichever width the configuration takes to be the widest.
    """
    problem = weighing(mixed(seed), seed) if parts else mixed(seed)
    downsets = downsets_of(problem.graph)
    found = mixed_configurations(problem, len(problem.graph.layers), 0, Exclusions())
    search = MixedSearch(problem, found, downsets)
    for rough in search.nodes(1e6)[::5]:
        (node,) = rough.node.branch(1e6, Counter())
        for leaf in node.node.branch(1e6, Counter()):
            plan = leaf.node.solve(1e6, Counter())
            if plan is not None:
                assert leaf.bound <= plan.value * (1 + 1e-9)
                assert rough.bound <= plan.value * (1 + 1e-9)
                assert node.bound <= plan.value * (1 + 1e-9)
                assert leaf.tie_break <= plan.tie_break
                priced = evaluate(problem, plan.solution)
                assert priced.batch_time == pytest.approx(plan.value, rel=1e-9)
                own: Any = leaf.node
                floor, weight = own.floor, search.objective(own.configuration, own.counts[0]).total
                filling = sum(stage.weighed(priced.weights) for stage in priced.stages)
                assert floor.largest_time <= priced.slowest * (1 + 1e-9)
                assert weight * floor.total_time <= filling + 1e-9 * priced.batch_time
                assert floor.largest_sync <= priced.sync * (1 + 1e-9)


def test_constraints_hold_on_every_stage_of_a_mixed_plan() -> None:
    machines = cluster((8,), memory=45.0)
    found = [candidate(5, name=f"c{w}", width=w, seed=w, scale=1 / w) for w in (1, 2, 4)]
    for text in ("tp >= 2", "devices <= 6", "dp % 2 == 0", "width != 2 or zero == 1", "devices == 7"):
        problem = instance(found, machines=machines, mixed=True, constraints=[text])
        result = solve(problem)
        assert result.solution is not None, text
        assert permission_violations(problem, result.solution) == [], text


def test_numbers_of_stages_share_the_devices_they_may_use() -> None:
    """As far as they may: what fewer stages can use and more cannot tells them not apart."""
    found = [candidate(5, name=f"c{w}", width=w, seed=w, scale=1 / w) for w in (1, 2, 4)]

    def listed(text: str) -> list[tuple[tuple[int, ...], frozenset[int] | None]]:
        problem = instance(found, machines=cluster((8,)), mixed=True, constraints=["replicas == 1", text])
        every = mixed_configurations(problem, 5, 0, Exclusions())
        return [(each.stage_counts, each.tally.totals) for each in every if each.rank_order == "pp-inner"]

    assert listed("devices <= 8") == [((1, 2, 3, 4, 5), None)]
    assert listed("devices <= 6") == [((1, 2, 3, 4, 5), frozenset(range(1, 7)))]
    assert listed("pp * devices <= 12") == [((1,), None), ((2,), frozenset(range(2, 7))), ((3,), frozenset({3, 4}))]


def test_an_infeasible_mixed_problem_names_memory() -> None:
    found = [candidate(5, name=f"c{w}", width=w, seed=w) for w in (1, 2)]
    result = solve(instance(found, machines=cluster((4,), memory=1.0), mixed=True))
    assert result.status == "infeasible"
    assert result.diagnosis is not None
    assert "Memory is tightest" in result.diagnosis
