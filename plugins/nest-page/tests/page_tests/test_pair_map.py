"""Measured pairs as a map: every pair in the shade of its bandwidth, device groups one after the other."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.instance.pairs import Pairs
from nest_page.cluster import Place
from nest_page.pair_map import ABOVE, CLASSES, MOST_MAPPED, PairMap, group_table, map_body, map_keys, map_size
from nest_page.pair_map import pair_map as mapped
from nest_page.records import Drawing
from nest_page.svg import WIDTHS
from page_tests.drawn_paths import boxes_of, elements


def _pairs(count: int, measured: list[float]) -> Pairs:
    bandwidth = numpy.full((count, count), numpy.inf)
    upper = numpy.triu_indices(count, 1)
    bandwidth[upper] = numpy.resize(numpy.array(measured), len(upper[0]))
    bandwidth.T[upper] = bandwidth[upper]
    return Pairs(tuple(f"n{index}" for index in range(count)), bandwidth, numpy.zeros((count, count)))


def _drawing(drawn: PairMap, room: float) -> Drawing:
    _, width, height = map_size(drawn, room)
    return Drawing(width, height, map_body(drawn, room), "", "")


@pytest.mark.longer
@given(
    count=st.integers(2, 12),
    measured=st.lists(st.floats(1e6, 1e12), min_size=1, max_size=66),
    data=st.data(),
    room=st.sampled_from(WIDTHS),
)
def test_every_pair_has_the_shade_of_its_bandwidth(
    count: int, measured: list[float], data: st.DataObject, room: float
) -> None:
    places = [Place(replica, stage) for replica in range(2) for stage in range(2)]
    chosen = data.draw(st.lists(st.sampled_from([None, *places]), min_size=count, max_size=count))
    pairs = _pairs(count, measured)
    drawn = mapped(pairs, dict(zip(pairs.names, chosen, strict=True)))
    assert drawn is not None
    side, width, height = map_size(drawn, room)
    assert width <= room
    assert height >= count * side
    at = {name: index for index, name in enumerate(pairs.names)}
    shade = {}
    for each in range(1, CLASSES + 1):
        for left, top, right, bottom in boxes_of(_drawing(drawn, room), f"busy-{each}"):
            row = round((top - ABOVE - 1) / side)
            assert round((bottom - top) / side) == 1
            for column in range(round((left - 1) / side), round((right - 1) / side)):
                assert (row, column) not in shade
                shade[row, column] = each
    assert len(shade) == count * (count - 1)
    bounds = [0.0, *drawn.bounds, numpy.inf]
    for (row, column), each in shade.items():
        bandwidth = pairs.bandwidth[at[drawn.names[row]], at[drawn.names[column]]]
        assert bounds[each - 1] <= bandwidth < bounds[each]


def test_device_groups_stand_one_after_the_other_with_their_outlines() -> None:
    pairs = _pairs(8, [4e9, 1e9, 8e9])
    order = [Place(1, 0), Place(0, 1), None, Place(0, 0), Place(0, 0), Place(0, 1), Place(1, 1), None]
    drawn = mapped(pairs, dict(zip(pairs.names, order, strict=True)))
    assert drawn is not None
    assert drawn.names == ("n3", "n4", "n1", "n5", "n0", "n6", "n2", "n7")
    assert drawn.groups == ((Place(0, 0), 0, 2), (Place(0, 1), 2, 4), (Place(1, 0), 4, 5), (Place(1, 1), 5, 6))
    drawing = _drawing(drawn, 1120)
    side, _, _ = map_size(drawn, 1120)
    assert [round((right - left) / side) for left, _, right, _ in boxes_of(drawing, "line")] == [2, 2, 1, 1]
    assert [each.text for each in elements(drawing).iter("text")] == ["1.1", "1.2"]


def test_the_table_has_the_slowest_pairs() -> None:
    pairs = _pairs(4, [5e9, 1e9, 2e9, 3e9, 4e9, 6e9])  # 0-1 0-2 0-3 1-2 1-3 2-3
    drawn = mapped(pairs, {"n0": Place(0, 0), "n1": Place(0, 0), "n2": Place(0, 1), "n3": Place(0, 1)})
    assert drawn is not None
    rows = [[cell.text for cell in row] for row in group_table(drawn).rows]
    assert rows == [
        ["stage 1 of replica 1", "5 GB/s", "n0 – n1", "1 GB/s", "n0 – n2"],
        ["stage 2 of replica 1", "6 GB/s", "n2 – n3", "–", "–"],
    ]
    alone = mapped(pairs, {"n0": Place(0, 0)})
    assert alone is not None
    assert [cell.text for cell in group_table(alone).rows[0]] == ["stage 1 of replica 1", "–", "–", "–", "–"]


def test_pairs_that_are_alike_have_one_shade_and_no_key() -> None:
    drawn = mapped(_pairs(3, [2e9]), {})
    assert drawn is not None
    assert map_keys(drawn) == ()
    assert len(boxes_of(_drawing(drawn, 358), "busy-1")) == 4
    several = mapped(_pairs(4, [1e9, 1e11]), {})
    assert several is not None
    assert [key.style for key in map_keys(several)] == [f"busy-{each}" for each in range(1, CLASSES + 1)]


def test_more_devices_than_a_phone_can_show_have_no_map() -> None:
    assert mapped(_pairs(MOST_MAPPED, [1e9]), {}) is not None
    assert mapped(_pairs(MOST_MAPPED + 1, [1e9]), {}) is None
