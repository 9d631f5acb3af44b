"""Plans by their price: leaves of pools and of mixed plans are enumerated, and what ports make of passes counts."""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, islice, pairwise, product
from random import Random
from typing import Any

import numpy
import pytest

from nest.solve.dp.by_price import not_worse
from nest.solve.dp.chunk_memory import Held, Share
from nest.solve.dp.configurations import Tally, offsets
from nest.solve.dp.places import NONE, Graph, OffsetPlaces, Place, PoolPlaces, SlotPlaces
from tests.agreement import draws
from tests.agreement.compare import complaint, disagreements, solved
from tests.small_instances import cluster

OPEN = {"pools": (1005, 1017, 1140), "mixed": (1008, 1061), "sharded mixed": (1020, 1141), "mixed schedules": (1238,)}
"""Problems whose plan of least closed form is not the one of least price, or was not known to be."""

BUSY = {"plain": 268, "chunked": 269}
"""Problems with ports in which a choice of shorter passes was taken to be no worse than one whose ports wait less."""


def draw(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch, corner: str | None = None) -> draws.Draw:
    """A problem priced by replays."""
    monkeypatch.setattr(draws, "REPLAYS", 1.0)
    return draws.draw(seed, kind, corner=corner)


@pytest.mark.longer
@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind, every in OPEN.items() for seed in every])
def test_pools_and_mixed_plans_of_least_price_are_found_and_proved(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = draw(kind, seed, monkeypatch)
    assert solved(drawn.problem).status == "optimal"
    wrong = disagreements(drawn.problem, drawn.answer)
    assert not wrong, complaint(f"{kind} seed {seed}", drawn.problem, wrong)


@pytest.mark.parametrize(("kind", "seed"), BUSY.items())
def test_a_choice_of_shorter_passes_may_wait_for_ports_for_longer(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = draw(kind, seed, monkeypatch, "ports")
    wrong = disagreements(drawn.problem, drawn.answer)
    assert not wrong, complaint(f"{kind} seed {seed}", drawn.problem, wrong)


def test_a_choice_is_left_out_where_another_one_is_no_worse() -> None:
    """Stages of two choices, the second of which has shorter passes: as long in all, longer, shorter, held by ports."""
    time = numpy.array([[3.0, 3.0, 3.0, 3.0], [3.0, 2.0, 4.0, 3.0]])
    alone = numpy.array([[3.0, 3.0, 3.0, 3.0], [3.0, 2.0, 4.0, 2.0]])
    figures, every = numpy.array([time, time, numpy.ones((2, 4))]), numpy.ones((2, 4), dtype=bool)
    kept = not_worse(every, figures, alone, [(0, 1)])
    assert kept.tolist() == [[True, False, True, True], [False, True, True, True]]


def walks(placed: Graph, members: dict[int, list[int]]) -> set[tuple[Any, ...]]:
    """Each sequence of members, by block, and of rows between them that is met."""

    def behind(place: Place, stage: int) -> Iterator[tuple[Any, ...]]:
        for member in members[placed.places.at(place)[0]]:
            if stage == 1:
                yield (member,)
            else:
                for row, entering, following, _ in placed.following(place, stage):
                    for rest in behind(following, stage - 1):
                        yield (member, (row, entering), *rest)

    return {walk for place, _ in placed.first() for walk in behind(place, placed.stages)}


@pytest.mark.parametrize("seed", range(30))
def test_mixed_plans_may_be_wherever_blocks_fit_in_order(seed: int) -> None:
    random = Random(seed)
    fanouts = random.choice([(2, 3), (3, 2), (2, 2, 2), (4, 2), (5, 2)])
    machines = cluster(fanouts)
    widths = [width for width in random.sample([1, 2, 3, 4], 3) if machines.admits(width)] or [1]
    replicas, stages = random.choice([1, 1, 2, 3]), random.randint(1, 4)
    size = max(widths) * (machines.size // (replicas * max(widths)))
    placed = offsets(machines, size, replicas, random.choice(["pp-inner", "dp-inner"]))
    totals = random.choice([None, frozenset(random.sample(range(1, size + 1), min(3, size)))]) if size else None
    tally = Tally(max(widths), totals)
    expected = set()
    for chosen in product(range(len(widths)), repeat=stages):
        used = [widths[index] for index in chosen]
        if max(used) != max(widths) or (totals is not None and sum(used) not in totals):
            continue
        for at in product(*(range(0, size - width + 1, width) for width in used)):
            ends = [offset + width for offset, width in zip(at, used, strict=True)]
            if all(end <= offset for end, offset in zip(ends, at[1:], strict=False)):
                rows = [int((placed.ends[:, at[i]] >= ends[i + 1]).argmax()) for i in range(stages - 1)]
                expected.add((chosen[0], *(each for i, row in enumerate(rows) for each in ((row, row), chosen[i + 1]))))
    graph = Graph(OffsetPlaces(placed, tuple(sorted(widths)), tally), stages)
    assert walks(graph, {width: [index] for index, width in enumerate(widths)}) == expected


@pytest.mark.parametrize("seed", range(30))
def test_stages_of_pools_may_be_wherever_blocks_fit_in_order(seed: int) -> None:
    """Links between pools are rows behind those of the levels; one pair of three pools may have none."""
    random = Random(seed)
    pools = random.randint(1, 3)
    joined = {(one, two): pools < 3 or {one, two} != {0, 2} for one in range(pools) for two in range(pools)}
    every: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for own in range(pools):
        steps = tuple(random.randrange(3) for _ in range(random.randrange(5)))
        levels, links = max(steps, default=0) + 1, list[int]()
        for other in range(pools):
            linked = other != own and joined[own, other]
            links.append(levels + sum(row != NONE for row in links) if linked else NONE)
        every.append((steps, tuple(links)))
    counts = tuple(random.randint(1, min(len(steps) + 1, 3)) for steps, _ in every)
    expected = set()
    for order in {
        each for each in product(range(pools), repeat=sum(counts)) if Counter(each) == Counter(dict(enumerate(counts)))
    }:
        slots = [combinations(range(len(steps) + 1), count) for (steps, _), count in zip(every, counts, strict=True)]
        for chosen in product(*slots):
            left = [iter(some) for some in chosen]
            blocks = [(pool, next(left[pool])) for pool in order]
            walk: list[Any] = [order[0]]
            for (one, at), (two, then) in pairwise(blocks):
                row = max(every[one][0][at:then]) if one == two else NONE
                walk += [(row, row) if one == two else (every[one][1][two], every[two][1][one]), two]
            if all(NONE not in each for each in walk[1::2]):
                expected.add(tuple(walk))
    own_slots = tuple(SlotPlaces(steps, count) for (steps, _), count in zip(every, counts, strict=True))
    graph = Graph(PoolPlaces(own_slots, tuple(links for _, links in every)), sum(counts))
    assert walks(graph, {pool: [pool] for pool in range(pools)}) == expected


def held(chunks: int) -> Held:
    """Chunks of a unit each with room for another one."""
    return Held((tuple([2.0] * chunks),), Share(((1,),) * chunks, ((1,),) * chunks))


def test_ways_to_lay_units_into_many_chunks_are_found_one_by_one() -> None:
    """All of two times 64 chunks would take for ever; of 6 chunks they are those of a brute force."""
    many, looked = held(64), list[int]()
    found = list(islice(many.ways((32,), [1.0], many.base([1.0], [0.0] * 64), 1e9, looked.append), 100))
    assert len(set(found)) == len(looked) == 100
    few = held(6)
    base = few.base([1.0], [0.0] * 6)
    found = list(few.ways((3,), [1.0], base, 1e9, looked.append))
    assert sorted(found) == sorted(
        tuple((each,) for each in way) for way in product(range(2), repeat=6) if sum(way) == 3
    )
    assert few.most(numpy.array([[3]]), [1.0], [0.0] * 6).tolist() == [9.0]
    assert not list(few.ways((3,), [1.0], base, 8.0, looked.append))
