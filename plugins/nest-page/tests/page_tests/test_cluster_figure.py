"""The cluster: every device is drawn once, in its group, in the colour and with the number of its stage."""

import re
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.deployment import rank_table
from nest.hooks.registry import registry
from nest.spec import PlanDocument
from nest_page.cluster import cluster_figure, device_spans, devices, runs
from nest_page.nested_boxes import Layout, fanouts_of_cells, gathered
from nest_page.page_of_plan import subject
from nest_page.palette import stage_style
from page_tests.plans import decided, solved

PART = r"\d+(?:-\d+)?(?: \(\d+ times, \d+ apart\))?"


def _figure(plan: PlanDocument) -> str:
    return str(cluster_figure(subject(plan, registry())).sizes[0][0].body)


def _cells(drawing: str, stage: int) -> int:
    found = re.findall(rf'<path class="{stage_style(stage)}" d="([^"]*)"><title>stage {stage + 1}</title>', drawing)
    return sum(path.count("M") for path in found)


@pytest.mark.longer
@pytest.mark.parametrize("order", ["pp-inner", "dp-inner"])
def test_devices_are_those_of_the_ranks(order: str) -> None:
    plan = decided(rank_order=order)
    places = devices(subject(plan, registry())).places
    ranks = rank_table(plan)
    assert {(rank.device, rank.replica, rank.pp) for rank in ranks} == {
        (device, place.replica, place.stage) for device, place in enumerate(places) if place is not None
    }


@pytest.mark.longer
@pytest.mark.parametrize("plan", [solved, decided])
def test_every_device_is_drawn_once(plan: object) -> None:
    found: PlanDocument = plan()  # type: ignore[operator]
    drawing = _figure(found)
    width = {index: stage.devices[1] for index, stage in enumerate(found.stages)}
    for stage, each in width.items():
        assert _cells(drawing, stage) == each * (found.data_parallel or 0)
    numbers = [int(text) for text in re.findall(r"<text[^>]*>(\d+)</text>", drawing.split('class="cells"')[1])]
    assert sorted(numbers) == sorted(
        stage + 1 for stage in width for _ in range(width[stage] * (found.data_parallel or 0))
    )


@pytest.mark.parametrize(("fanouts", "columns"), [((8, 4, 8), 4), ((8, 4, 32), 4), ((8, 2), 2), ((8, 4, 4), 4)])
def test_the_last_row_of_the_cluster_is_full(fanouts: tuple[int, ...], columns: int) -> None:
    assert Layout(fanouts, 16.0, 2.0, 1120.0).columns[-1] == columns


@given(repeats=st.integers(1, 8), block=st.sampled_from([1, 2, 4, 8]), nodes=st.integers(1, 8), most=st.integers(1, 64))
def test_a_cell_holds_devices_of_one_place(repeats: int, block: int, nodes: int, most: int) -> None:
    capacities = (8, 8 * nodes, 8 * nodes * repeats)
    places = [device // block for device in range(capacities[-1])]
    many = gathered(places, capacities, most)
    for first in range(0, len(places), many):
        assert len(set(places[first : first + many])) == 1
    assert many <= block
    assert prod(fanouts_of_cells(capacities, many, 10**9)) * many == len(places)


@given(numbers=st.sets(st.integers(0, 60)))
def test_devices_in_words_are_these_devices(numbers: set[int]) -> None:
    ascending = tuple(sorted(numbers))
    spans = runs(ascending)
    assert [each for first, last in spans for each in range(first, last + 1)] == list(ascending)
    again = [each for part in re.findall(PART, device_spans((ascending,))) for each in _read(part)]
    assert sorted(again) == list(ascending)


def _read(part: str) -> list[int]:
    match = re.fullmatch(r"(\d+)(?:-(\d+))?(?: \((\d+) times, (\d+) apart\))?", part)
    assert match is not None, part
    first, last = int(match[1]), int(match[2] or match[1])
    times, step = int(match[3] or 1), int(match[4] or 0)
    return [each + step * time for time in range(times) for each in range(first, last + 1)]
