"""Blocks that fit into a replica beside all others, against every placement there is."""

from collections.abc import Iterator
from itertools import product
from math import isfinite
from random import Random

import numpy
import pytest

from nest.instance import Candidate, RecomputeMode
from nest.solve.dp.blocks import MemberTimes, fitting
from nest.solve.dp.configurations import Configuration, Tally
from nest.solve.dp.listing import mixed_configurations
from nest.solve.dp.mixed import MixedSearch
from nest.solve.dp.rules import Exclusions
from nest.solve.search import Meter
from tests.small_instances import cluster, downsets_of, instance

WIDTHS = (1, 2, 3, 4, 6)
LAYERS = 4
SIZE = 12

Block = tuple[int, int, int]
"""Member, larger and smaller downset."""


def times_of(seed: int) -> tuple[MixedSearch, Configuration, MemberTimes]:
    """The stages of a chain with some candidates; of every other seed its layers are alike."""
    random, numbers = Random(seed), numpy.random.default_rng(seed)
    zeros = numpy.zeros(LAYERS)

    def made(index: int, width: int) -> Candidate:
        forward = numbers.uniform(0.5, 2.0, LAYERS) if seed % 2 else numpy.full(LAYERS, numbers.uniform(0.5, 2.0))
        held = RecomputeMode("none", zeros, numbers.uniform(0.0, 1.0) * forward, forward, zeros)
        sent = numpy.full(LAYERS - 1, numbers.uniform(0.0, 10.0))
        return Candidate(f"c{index}", {}, width, 1, forward / width, zeros, (), (held,), sent)

    found = [made(index, random.choice(WIDTHS)) for index in range(3)]
    problem = instance(found, machines=cluster((SIZE,), memory=random.choice([4.0, 8.0])), mixed=True, zero=(0,))
    downsets = downsets_of(problem.graph)
    listed = mixed_configurations(problem, LAYERS, 0, Exclusions())
    configuration = next(each for each in listed if each.replicas == 1)
    search = MixedSearch(problem, listed, downsets)
    members = [each.without_levels() for each in search.members(configuration, numpy.inf)]
    return search, configuration, MemberTimes.of_members(members)


def placements(
    search: MixedSearch, configuration: Configuration, times: MemberTimes, stages: int, limit: float
) -> Iterator[tuple[list[Block], int]]:
    """Every row of blocks within a limit from the first device to the last, with the devices it uses."""
    in_flight = search.in_flight(configuration, stages)
    seconds = []
    for flying in in_flight:
        own = {}
        for index, member in enumerate(times.members):
            pairs = member.tables.pairs
            least, _ = member.tables.least(flying)
            added = member.times[0][pairs.larger] + member.times[0][pairs.smaller]
            rows = zip(pairs.larger, pairs.smaller, pairs.spread(least) + added, strict=True)
            own |= {(index, int(one), int(other)): float(time) for one, other, time in rows}
        seconds.append(own)

    def rest(stage: int, downset: int, taken: int) -> Iterator[tuple[list[Block], int]]:
        if stage == 0:
            if downset == 0:
                yield [], 0
            return
        for block, time in seconds[stage - 1].items():
            width = times.members[block[0]].width
            first = -(-taken // width) * width
            if block[1] == downset and time <= limit and isfinite(time):
                for offset in range(first, SIZE - width + 1, width):
                    for behind, used in rest(stage - 1, block[2], offset + width):
                        yield [block, *behind], used + width

    yield from rest(stages, LAYERS, 0)


@pytest.mark.parametrize("seed", range(16))
def test_blocks_fit_where_some_placement_has_them(seed: int) -> None:
    """Exactly these, where only places bound them; none less, where what a plan may use does, too."""
    search, configuration, times = times_of(seed)
    every = times.by_width(1.0).least
    levels = numpy.quantile(every[numpy.isfinite(every)], [0.2, 0.5, 0.9])
    left_out = 0
    for stages, limit in product((1, 2, 3), [*levels.tolist(), numpy.inf]):
        in_flight = search.in_flight(configuration, stages)
        by_stage = [times.by_width(flying) for flying in in_flight]
        found = list(placements(search, configuration, times, stages, limit))
        for tally in (Tally(), Tally(0, frozenset(range(1, 6))), Tally(6), Tally(3, frozenset({4, 7}))):
            widths = [{times.members[block[0]].width for block in blocks} for blocks, _ in found]
            kept = [
                blocks
                for (blocks, used), own in zip(found, widths, strict=True)
                if (tally.totals is None or used in tally.totals) and (not tally.demanded or tally.demanded in own)
            ]
            fits = bool(fitting(by_stage, limit, SIZE, tally, Meter())[-1])
            assert fits >= bool(kept)
            assert fits == bool(kept) or tally.totals is not None
            masks = times.placeable(in_flight, limit, SIZE, tally)
            pairs = [each.tables.pairs for each in times.members]
            left = {
                (index, int(pairs[index].larger[place]), int(pairs[index].smaller[place]))
                for index, mask in enumerate(masks)
                for place in numpy.flatnonzero(mask)
            }
            used = {block for blocks in kept for block in blocks}
            assert left >= used
            assert left == used or tally != Tally()
            left_out += sum(len(mask) for mask in masks) - len(left)
    assert left_out


@pytest.mark.parametrize("seed", range(8))
def test_the_least_limit_is_that_of_the_fastest_placement(seed: int) -> None:
    search, configuration, times = times_of(seed)
    in_flight = search.in_flight(configuration, 3)
    levels = numpy.unique(times.by_width(1.0).least)
    limits = times.least_limits(in_flight, (3,), numpy.inf, SIZE, Tally(), Meter())
    fastest = next((each for each in levels if any(placements(search, configuration, times, 3, each))), numpy.inf)
    assert limits == {3: fastest}
    assert times.least_limits(in_flight, (3,), fastest * 0.99, SIZE, Tally(), Meter()) == {3: numpy.inf}


@pytest.mark.parametrize("seed", range(4))
def test_tables_of_some_stages_say_the_same_of_them(seed: int) -> None:
    _, _, times = times_of(seed)
    for member in times.members:
        tables = member.tables
        mask = numpy.random.default_rng(seed).random(len(tables.pairs)) < 0.5
        left = tables.only(mask)
        assert left.pairs.larger.tolist() == tables.pairs.larger[mask].tolist()
        assert left.pairs.smaller.tolist() == tables.pairs.smaller[mask].tolist()
        for flying in (1.0, 2.0):
            whole, part = tables.best(flying, numpy.inf), left.best(flying, numpy.inf)
            for values, own in zip(whole, part, strict=True):
                assert left.pairs.spread(own).tolist() == tables.pairs.spread(values)[mask].tolist()
