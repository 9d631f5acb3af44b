"""Where nodes of drawn networks lie: apart, inside of the drawing, neighbours beside each other, each time the same."""

from itertools import combinations
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.network import LinkGraph
from nest.network.graph import grid
from nest_page.network_layout import MOST_PITCH, TALL, Layout, grid_layout, spring_layout, tier_layout
from nest_page.svg import WIDTHS
from page_tests.networks import rails, routers, torus

SHAPES = st.lists(st.integers(1, 12), min_size=1, max_size=4).map(tuple).filter(lambda shape: 2 <= prod(shape) <= 128)


def _ends(graph: LinkGraph) -> list[tuple[int, int]]:
    return [(one, two) for one, two in graph.ends.tolist()]


def _apart(layout: Layout, side: float) -> bool:
    """Whether no two squares of a side around the nodes overlap."""
    return all(
        max(abs(one[0] - two[0]), abs(one[1] - two[1])) >= side - 1e-6 for one, two in combinations(layout.at, 2)
    )


def _inside(layout: Layout, margin: float) -> bool:
    return all(
        margin <= x + 1e-6 and x <= layout.width - margin + 1e-6 and margin <= y + 1e-6
        and y <= layout.height - margin + 1e-6
        for x, y in layout.at
    )  # fmt: skip


@pytest.mark.longer
@given(shape=SHAPES, data=st.data(), room=st.sampled_from(WIDTHS))
def test_grids_have_neighbours_side_by_side_and_stubs_between_cells(
    shape: tuple[int, ...], data: st.DataObject, room: float
) -> None:
    wrap = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    ends = _ends(grid(shape, wrap, 1.0, 0.0))
    layout = grid_layout(shape, ends, room)
    assert layout is not None
    assert layout.width <= room + 1e-6
    assert len(layout.at) == prod(shape)
    assert _apart(layout, layout.side + 4)
    assert _inside(layout, layout.side / 2)
    for index, (one, two) in enumerate(ends):
        far = [abs(layout.at[one][axis] - layout.at[two][axis]) for axis in (0, 1)]
        if index not in layout.stubs:
            assert min(far) < 1e-6
            assert layout.side < max(far) <= MOST_PITCH + 1e-6
            continue
        for end, (x, y) in zip((one, two), layout.stubs[index], strict=True):
            at = layout.at[end][0] + x, layout.at[end][1] + y
            inside = [
                node
                for node, middle in enumerate(layout.at)
                if max(abs(at[0] - middle[0]), abs(at[1] - middle[1])) < layout.side / 2
            ]
            assert inside == []
            assert 0 <= at[0] <= layout.width
            assert 0 <= at[1] <= layout.height


@given(shape=SHAPES, room=st.sampled_from(WIDTHS))
def test_no_two_links_leave_a_device_one_way(shape: tuple[int, ...], room: float) -> None:
    ends = _ends(torus(*shape))
    layout = grid_layout(shape, ends, room)
    assert layout is not None
    ways = []
    for index, (one, two) in enumerate(ends):
        straight = layout.at[two][0] - layout.at[one][0], layout.at[two][1] - layout.at[one][1]
        there, back = layout.stubs.get(index, (straight, (-straight[0], -straight[1])))
        ways += [(one, *map(_sign, there)), (two, *map(_sign, back))]
    assert len(set(ways)) == len(ways)


def _sign(value: float) -> int:
    return round(value / (abs(value) + 1))


def test_slices_are_named_by_their_coordinate() -> None:
    layout = grid_layout((3, 1, 4, 4), _ends(torus(3, 1, 4, 4)), 1120)
    assert layout is not None
    assert [words for _, _, words in layout.labels] == ["0,0,*,*", "1,0,*,*", "2,0,*,*"]


@pytest.mark.parametrize("shape", [(64, 2), (2, 64), (128,), (8, 16), (16, 8), (2, 8, 8), (8, 8, 2), (16, 2, 4)])
@pytest.mark.parametrize("room", WIDTHS)
def test_large_grids_fit_a_page(shape: tuple[int, ...], room: float) -> None:
    layout = grid_layout(shape, _ends(torus(*shape)), room)
    assert layout is not None
    assert layout.height <= 1.2 * TALL
    assert layout.side >= 12


def test_tiers_stand_above_each_other() -> None:
    graph = rails(2, 4)
    layout = tier_layout(graph.is_device.tolist(), _ends(graph), 1120)
    assert layout is not None
    height = {name: y for name, (_, y) in zip(graph.names, layout.at, strict=True)}
    across = {name: x for name, (x, _) in zip(graph.names, layout.at, strict=True)}
    assert height["spine"] < height["leaf 0"] < height["0.0"] < height["nvlink 0"]
    assert len({height[graph.names[device]] for device in graph.devices.tolist()}) == 1
    assert across["nvlink 0"] < across["nvlink 1"]
    assert _apart(layout, layout.side)


def test_links_between_neighbours_of_one_tier_are_no_tiers() -> None:
    for graph in (routers(4, 2), torus(4, 4)):
        assert tier_layout(graph.is_device.tolist(), _ends(graph), 1120) is None


LARGE = [pytest.param(graph, marks=pytest.mark.longer) for graph in (routers(16, 8), rails(16, 8))]


@pytest.mark.parametrize("room", WIDTHS)
@pytest.mark.parametrize("graph", [routers(2, 1), routers(9, 8), rails(8, 4), torus(2, 2, 2, 2), *LARGE])
def test_a_spring_layout_keeps_nodes_apart(graph: LinkGraph, room: float) -> None:
    layout = spring_layout(len(graph.names), _ends(graph), room)
    assert layout.width <= room
    assert layout.height <= TALL
    assert _inside(layout, layout.side / 2)
    assert _apart(layout, layout.side)
