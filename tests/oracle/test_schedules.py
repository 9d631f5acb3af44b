"""The oracle's table of schedules against what the built-in ones say."""

import pytest

from tests.oracle.makespan import orders
from tests.oracle.schedules import TABLE, Pipeline


def built_in() -> dict:
    from nest.hooks.registry import registry

    return {name: schedule for name, schedule in registry().schedules().items() if name in TABLE}


@pytest.mark.longer
@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("stages", [1, 2, 3, 4, 5, 8])
def test_a_schedule_says_what_the_table_has(name, stages):
    from nest.instance import admits, copies_of, fullest_moments, route, weights_of

    schedule, said = built_in()[name], TABLE[name]
    for chunks in [said.chunks] if said.chunks is not None else [2, 3, 4]:
        asked = schedule if said.chunks is not None else schedule.with_chunks(chunks)
        pipeline = Pipeline(name, said, chunks)
        assert copies_of(asked) == said.copies
        if chunks > 1 and stages == 1:
            assert not admits(asked, 1, 8)
            continue
        assert route(asked, stages) == pipeline.route(stages)
        for micro_batches in [*range(1, 20), 24, 40]:
            allowed = admits(asked, stages, micro_batches)
            assert allowed == pipeline.admits(stages, micro_batches)
            if not allowed:
                continue
            weights = weights_of(asked, micro_batches, stages)
            found = (weights.slowest, weights.forward, weights.input_gradients, weights.weight_gradients)
            assert found == pytest.approx(pipeline.weights(micro_batches, stages), abs=1e-12)
            for stage in range(1, stages + 1):
                rows = pipeline.moments(stage, stages, micro_batches)
                mine = {row for row in rows if not any(row != o and all(map(int.__le__, row, o)) for o in rows)}
                assert set(fullest_moments(asked, stage, stages, micro_batches)) == mine


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("stages", [1, 2, 3, 4, 6])
def test_a_schedule_orders_its_passes_as_the_table_does(name, stages):
    from nest.instance.schedule import places_of

    schedule, said = built_in()[name], TABLE[name]
    kinds = {"forward": "f", "backward": "b", "input-gradients": "i", "weight-gradients": "w"}
    for chunks in [said.chunks] if said.chunks is not None else [2, 3]:
        asked = schedule if said.chunks is not None else schedule.with_chunks(chunks)
        pipeline = Pipeline(name, said, chunks)
        for micro_batches in [each for each in (1, 2, 3, 4, 5, 7, 8, 12, 16) if pipeline.admits(stages, each)]:
            places = places_of(asked, stages, micro_batches)
            for device, mine in enumerate(orders(pipeline, stages, micro_batches)):
                order = asked.order(device + 1, stages, micro_batches)
                passes = [(kinds[each.kind], places.place(device, each), each.micro_batch) for each in order]
                assert passes == [each for together in mine for each in together]
                pairs = [len(together) > position + 1 for together in mine for position in range(len(together))]
                assert [each.overlapped for each in order] == pairs
