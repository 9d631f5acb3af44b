"""Blocks on devices: every placement tried on small networks, and what must hold of any answer."""

from collections.abc import Iterator
from itertools import permutations, product

import numpy
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from nest.solve.placement import embedding as module
from nest.solve.placement.embedding import embed
from nest.solve.placement.problem import EmbeddingProblem, Link, Placement


def placements(problem: EmbeddingProblem) -> Iterator[Placement]:
    """Every way to give blocks their devices, rank by rank, compact or not."""
    widths = list(problem.widths) * problem.replicas
    for order in permutations(range(len(problem.level)), sum(widths)):
        devices = iter(order)
        blocks = [tuple(next(devices) for _ in range(width)) for width in widths]
        stages = len(problem.widths)
        yield tuple(tuple(blocks[first : first + stages]) for first in range(0, len(blocks), stages))


def compact(problem: EmbeddingProblem, block: tuple[int, ...]) -> bool:
    for mine, other in product(range(len(block)), repeat=2):
        meet = problem.meeting[mine // problem.leaf][other // problem.leaf]
        if mine != other and not problem.compact[meet][block[mine]][block[other]]:
            return False
    return True


def seconds(problem: EmbeddingProblem, link: Link, placement: Placement) -> float:
    met = []
    for group in link.groups:
        blocks = [placement[replica][stage] for replica, stage in group]
        for one, two in product(range(len(blocks)), repeat=2):
            if one != two or link.inside:
                met += [problem.level[x][y] for x in blocks[one] for y in blocks[two] if x != y]
    worst = max((link.seconds[level] for level in met), default=0.0)
    for choice in link.aligned:
        here = sorted(sorted(placement[replica][stage]) for replica, stage in link.groups[0])
        if here == sorted(sorted(devices) for devices in choice):
            worst = min(worst, link.aligned_seconds)
    return worst


def price(problem: EmbeddingProblem, placement: Placement) -> float:
    times, syncs = list(problem.times), list(problem.syncs)
    for link in problem.links:
        taken = seconds(problem, link, placement)
        for stage in range(len(times)):
            times[stage] += taken * link.stages.count(stage)
        if link.sync is not None:
            syncs[link.sync] += taken
    for found, least in ((times, problem.least_times), (syncs, problem.least_syncs)):
        for stage, bound in enumerate(least):
            found[stage] = max(found[stage], bound)
    return problem.weights[0] * max(times) + problem.weights[1] * sum(times) + max(syncs)


def tried(problem: EmbeddingProblem) -> float:
    """The least over every placement."""
    return min(
        price(problem, placement)
        for placement in placements(problem)
        if all(compact(problem, block) for replica in placement for block in replica)
    )


@st.composite
def problems(draw: st.DrawFn) -> EmbeddingProblem:
    replicas, widths = draw(
        st.sampled_from(
            [(1, (1, 1)), (1, (1, 1, 1)), (2, (1, 1)), (1, (2, 2)), (1, (2, 1, 1)), (2, (2,)), (2, (1,)), (1, (4, 1))]
        )
    )
    used = replicas * sum(widths)
    devices = used + draw(st.integers(0, 1))
    levels = draw(st.integers(1, 3))
    level = numpy.full((devices, devices), -1, dtype=numpy.int8)
    for one in range(devices):
        for two in range(one):
            level[one, two] = level[two, one] = draw(st.integers(0, levels - 1))
    leaf = draw(st.sampled_from([1, 2, 4]))
    leaves = -(-max(widths) // leaf)
    meeting = numpy.array([[int(one // 2 != two // 2) for one in range(leaves)] for two in range(leaves)])
    order = iter(draw(st.permutations(range(devices))))
    start = tuple(tuple(tuple(next(order) for _ in range(width)) for width in widths) for _ in range(replicas))
    masks = [level >= 0, level >= 0]
    for index in range(2):
        limit = draw(st.integers(0, levels - 1))
        masks[index] = (level >= 0) & (level <= limit)
        for block in (block for replica in start for block in replica):
            for mine, other in product(range(len(block)), repeat=2):
                if mine != other and meeting[mine // leaf, other // leaf] == index:
                    masks[index][block[mine], block[other]] = True
    duration = st.sampled_from([0.0, 0.5, 1.0, 2.5, 7.0])
    costs = st.lists(duration, min_size=levels, max_size=levels).map(tuple)
    links = []
    groups: tuple[tuple[tuple[int, int], ...], ...]
    for stage in range(len(widths) - 1):
        groups = tuple(((replica, stage), (replica, stage + 1)) for replica in range(replicas))
        links.append(Link(groups, False, draw(costs), (stage, stage + 1)))
        if draw(st.booleans()):
            links.append(Link(groups, False, draw(costs), (stage,)))
    for stage, width in enumerate(widths):
        if replicas > 1:
            groups = (tuple((replica, stage) for replica in range(replicas)),)
            aligned = (tuple(replica[stage] for replica in start),) if draw(st.booleans()) else ()
            inside = width > 1 and draw(st.booleans())
            links.append(Link(groups, inside, draw(costs), (stage,), None, aligned, draw(duration)))
            links.append(Link(groups, inside, draw(costs), (), stage, aligned, draw(duration)))
    amounts = st.lists(duration, min_size=len(widths), max_size=len(widths)).map(tuple)
    return EmbeddingProblem(
        level=level,
        replicas=replicas,
        widths=widths,
        leaf=leaf,
        meeting=meeting,
        compact=tuple(masks),
        links=tuple(links),
        times=draw(amounts),
        syncs=draw(amounts),
        weights=draw(st.sampled_from([(7.0, 1.0), (3.0, 0.0), (31.5, 0.5), (0.0, 1.0)])),
        start=start,
        least_times=draw(st.one_of(st.just(()), amounts)),
        least_syncs=draw(st.one_of(st.just(()), amounts)),
    )


@settings(max_examples=150)
@given(problems())
def test_equals_every_placement_tried(problem: EmbeddingProblem) -> None:
    found = embed(problem)
    assert found.optimal
    assert found.batch_time == pytest.approx(tried(problem), rel=1e-6, abs=1e-9)
    assert found.batch_time == pytest.approx(price(problem, found.placement), rel=1e-12)
    assert found.lower_bound <= found.batch_time <= price(problem, problem.start)
    assert problem.allowed(found.placement)
    assert embed(problem) == found


@given(problems())
def test_without_effort_the_answer_still_holds(problem: EmbeddingProblem) -> None:
    found = embed(problem, effort=1e-6)
    least = tried(problem)
    assert found.lower_bound <= least * (1 + 1e-9) <= found.batch_time * (1 + 2e-9)
    assert problem.allowed(found.placement)
    assert found.batch_time <= price(problem, problem.start)


@settings(max_examples=30)
@given(problems())
def test_beyond_the_limit_devices_are_exchanged(problem: EmbeddingProblem) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_CELLS", 0)
        found = embed(problem)
    assert found.method in ("bound", "exchanges")
    assert problem.allowed(found.placement)
    assert found.batch_time == pytest.approx(price(problem, found.placement), rel=1e-12)
    assert found.batch_time <= price(problem, problem.start)
    assert found.lower_bound <= tried(problem) * (1 + 1e-9)


def path(devices: int, slow: int) -> EmbeddingProblem:
    """Two stages on a row of devices, of whose links one is slow; others than neighbours are slower still."""
    level = numpy.full((devices, devices), 2, dtype=numpy.int8)
    numpy.fill_diagonal(level, -1)
    for one in range(devices - 1):
        level[one, one + 1] = level[one + 1, one] = int(one == slow)
    everywhere = level >= 0
    link = Link((((0, 0), (0, 1)),), False, (1.0, 2.0, 3.0), (0, 1))
    return EmbeddingProblem(
        level,
        1,
        (1, 1),
        1,
        numpy.array([[0]]),
        (everywhere,),
        (link,),
        (1.0, 1.0),
        (0.0, 0.0),
        (3.0, 1.0),
        (((0,), (1,)),),
    )


def test_a_slow_link_is_avoided() -> None:
    found = embed(path(4, slow=0))
    assert {0, 1} != {device for (device,) in found.placement[0]}
    assert found.batch_time == 3 * 2 + 2 * 2
    assert found.method == "cp-sat"
    assert found.optimal


def test_where_the_start_meets_the_bound_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CELLS", 0)
    assert embed(path(4, slow=2)).method == "bound"


def test_a_start_that_is_not_allowed_is_refused() -> None:
    problem = path(4, slow=0)
    for start in ((((0,), (0,)),), (((0,), (4,)),), (((0,),),), (((0, 1), (2,)),)):
        with pytest.raises(ValueError, match="not allowed"):
            embed(evolve(problem, start=start))
    nowhere = numpy.zeros((4, 4), dtype=bool)
    wide = evolve(problem, widths=(2, 1), leaf=2, compact=(nowhere,), start=(((0, 1), (2,)),))
    with pytest.raises(ValueError, match="not allowed"):
        embed(wide)
