"""What is listed of all plans ahead of their search."""

from attrs import evolve

from nest.instance import chunks_of
from nest.schedules.interleaved import Interleaved
from nest.solve.dp.beside_compute import FirstBounds
from nest.solve.dp.listing import configurations
from nest.solve.dp.screen import ScreenTables
from nest.solve.dp.units import Splits
from tests.small_instances import candidate, instance


def test_schedules_of_several_chunks_are_left_out_where_nobody_asks_for_them() -> None:
    used, blocks = [candidate(6), candidate(6, name="b", width=2)], tuple((layer,) for layer in range(6))
    problem = instance(used, schedules=("1f1b",), blocks=blocks, global_batch=4)
    schedules = (*problem.space.schedules, Interleaved(2))
    problem = evolve(problem, space=evolve(problem.space, schedules=schedules))
    counts, tables = Splits(problem).counts, ScreenTables(problem, FirstBounds(problem))
    every, some = (
        configurations(problem, 6, counts, tables=tables, one_chunk=one_chunk)[0] for one_chunk in (False, True)
    )
    one_chunk = [each for each in every if chunks_of(each.schedule) == 1]
    assert 0 < len(one_chunk) < len(every)
    # In the same order, with places of their own among ties.
    assert some == [evolve(each, order=order) for order, each in enumerate(one_chunk)]
