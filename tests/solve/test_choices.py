"""What all choices cost is the same, whether they are computed at once or one at a time."""

from random import Random

import numpy
import pytest

from nest.solve.dp.choices import Choice, ChoiceTable, not_dominated
from nest.solve.dp.pairs import Pairs
from nest.solve.dp.stages import StageTables

CAPACITY = 6.0


def random_tables(random: Random, kinds: int) -> list[ChoiceTable]:
    """A few choices of whole numbers, so that many are equal."""

    def numbers(most: int) -> numpy.ndarray:
        return numpy.array([float(random.randint(0, most)) for _ in range(kinds)])

    return [ChoiceTable(numbers(3), numbers(2), numbers(8), numbers(2)) for _ in range(random.randint(1, 6))]


def stage_tables_of(tables: list[ChoiceTable], kinds: int) -> StageTables:
    larger = numpy.arange(1, kinds + 1, dtype=numpy.int32)
    pairs = Pairs.of(kinds + 1, larger, numpy.zeros(kinds, dtype=numpy.int32))
    choices = tuple(Choice(str(index), 0) for index in range(len(tables)))
    return StageTables(choices, tuple(tables), pairs, CAPACITY, numpy.arange(kinds + 1.0))


def test_the_least_of_all_choices_is_that_of_each() -> None:
    random = Random(1)
    fitting = 0
    for _ in range(60):
        kinds = random.randint(1, 8)
        tables = random_tables(random, kinds)
        whole = stage_tables_of(tables, kinds)
        for flying in (1.0, 1.5, 2.0, 4.0):
            time, sync = whole.least(flying)
            for kind in range(kinds):
                fits = [t for t in tables if t.first[kind] + (flying - 1) * t.more[kind] <= CAPACITY]
                assert time[kind] == min((t.time[kind] for t in fits), default=numpy.inf)
                assert sync[kind] == min((t.sync[kind] for t in fits), default=numpy.inf)
                fitting += bool(fits)
            assert (time == whole.best(flying, numpy.inf)[0]).all()
        same = [whole.same_fits(flying) for flying in range(1, 8)]
        for one, other in zip(range(1, 7), range(2, 8), strict=True):
            alike = all((t.fits(one, CAPACITY) == t.fits(other, CAPACITY)).all() for t in tables)
            assert (same[one - 1] == same[other - 1]) == alike
        left = whole.within(1.0)
        kept = [k for k in range(kinds) if any(t.first[k] <= CAPACITY and t.time[k] <= 1 for t in tables)]
        assert left.classes == len(kept) == len(left.pairs)
        for table, was in zip(left.tables, tables, strict=True):
            for name in ("time", "sync", "first", "more"):
                assert (getattr(table, name) == getattr(was, name)[kept]).all()
    assert fitting


@pytest.mark.parametrize("kinds", [1, 3, 65])
def test_choices_that_never_help_are_left_out(kinds: int) -> None:
    random = Random(kinds)
    dropped = 0
    for _ in range(100):
        tables = random_tables(random, kinds)
        for table in list(tables):  # Alike but at the last kind, or not at all.
            later = [array.copy() for array in (table.time, table.sync, table.first, table.more)]
            later[random.randrange(4)][-1] += random.randint(-1, 1)
            tables.append(ChoiceTable(*later))
        kept = not_dominated(tables)
        assert kept == sorted(kept)
        # A preferred choice may stay beside one that is nowhere worse, but is no faster for some stages.
        assert not any(
            tables[one].dominates(tables[other]) for place, one in enumerate(kept) for other in kept[place + 1 :]
        )
        whole, left = stage_tables_of(tables, kinds), stage_tables_of([tables[index] for index in kept], kinds)
        for flying in (1.0, 2.0, 4.0):
            for limit in (1.0, numpy.inf):
                (*seconds, chosen), (*same, places) = (each.best(flying, limit) for each in (whole, left))
                assert all((mine == its).all() for mine, its in zip(seconds, same, strict=True))
                fits = numpy.isfinite(seconds[0])
                assert (numpy.array(kept)[places[fits]] == chosen[fits]).all()
        dropped += len(tables) - len(kept)
    assert dropped
    assert not_dominated([]) == []
