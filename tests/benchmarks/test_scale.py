"""The parts of the scale benchmark that measure nothing: limits, checks, slopes, tables, the list."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scale.__main__ import wanted
from benchmarks.scale.checks import branched, equal_to, settled, states_a_size, within
from benchmarks.scale.growth import grown, slope
from benchmarks.scale.measure import Limit, Measure, Series
from benchmarks.scale.outcome import carried_out
from benchmarks.scale.plot import plotted
from benchmarks.scale.problems import busy, heterogeneous
from benchmarks.scale.processes import run
from benchmarks.scale.report import cells, closing, markdown
from benchmarks.scale.suite import suite


@given(st.floats(-2, 3), st.floats(1e-3, 10), st.lists(st.integers(1, 10**6), min_size=2, unique=True))
def test_the_slope_of_a_power_law_is_its_power(power: float, factor: float, sizes: list[int]) -> None:
    assert slope([(size, factor * size**power) for size in sizes]) == pytest.approx(power, abs=1e-6)


def test_a_limit_is_broken_above_it_only() -> None:
    limit = Limit(planning=1, process=2, memory=3e8)
    assert limit.told() == "planning 1 s, process 2 s, 300 MB"
    assert limit.broken(1.0, 2.0, 3e8) == []
    assert limit.broken(None, None, 0) == []
    assert len(limit.broken(1.1, 2.1, 3.1e8)) == 3
    assert Limit().broken(1e9, 1e9, 1e12) == []


def test_the_limits_are_those_agreed_on(shared: Path) -> None:
    measures, skipped = suite(shared)
    assert skipped == []
    limits = {each.name: each.limit for each in measures if isinstance(each, Measure)}
    assert len(limits) + sum(isinstance(each, Series) for each in measures) == len(measures)
    gpt3 = [limit for name, limit in limits.items() if name.startswith("artifact-gpt3")]
    assert gpt3 == [Limit(planning=1, process=2, memory=3e8)] * 2
    assert limits["joint"] == limits["scale-llama-405b"] == Limit(planning=3)
    vast = [limits[f"scale-{name}"] for name in ("blocks", "profile", "blocks-million", "profile-million")]
    assert vast == [Limit(planning=10, memory=1e9)] * 4
    branching = [limit for name, limit in limits.items() if name.startswith("dag-")]
    assert len(branching) >= 6
    assert set(branching) == {Limit(planning=10, memory=1e9)}
    slopes = {each.name: each.steepest for each in measures if isinstance(each, Series)}
    assert slopes["growth-devices"] == slopes["growth-devices-profile"] == 1.3


def test_absent_data_is_skipped_with_a_line(tmp_path: Path) -> None:
    measures, skipped = suite(tmp_path)
    assert len(skipped) == 4
    assert all(str(tmp_path) in told for told in skipped)
    assert {each.name.partition("-")[0] for each in measures} == {
        "joint",
        "scale",
        "growth",
        "towers",
    }


def test_names_are_chosen_by_beginning_or_pattern() -> None:
    assert wanted("dag-gnmt", ["dag"])
    assert wanted("dag-gnmt", ["*gnmt"])
    assert not wanted("dag-gnmt", ["gnmt"])


def test_refusals_and_published_bounds_of_branched_graphs() -> None:
    solved = {"status": "optimal", "statistics": {"downsets": 5}, "stages": [{"time": 2.0}, {"time": 3.0}]}
    assert branched(3.00005, False)([solved]).right
    assert not branched(3.1, True)([solved]).right
    refused = {"status": "refused", "message": "there are 36,596 downsets"}
    assert branched(3.1, True)([refused]).right
    assert not branched(3.1, False)([refused]).right
    assert not states_a_size("there are too many downsets")
    assert not settled([solved, refused]).right


def test_a_gap_is_within_what_it_may_be() -> None:
    answer = {"status": "feasible", "batch_time": 1.04, "lower_bound": 1.0}
    assert within(0.05)([answer]).right
    assert not within(0.03)([answer]).right
    assert not within(0.05)([{"status": "infeasible"}]).right


def test_optima_are_equal_to_a_billionth_and_infeasible_is_none() -> None:
    answers = [{"status": "optimal", "batch_time": 1.0 + 5e-10}, {"status": "infeasible"}]
    assert equal_to([1.0, None])(answers).right
    assert equal_to([1.0, 1.0])(answers).told.startswith("1 of 2 ")
    assert not equal_to([1.0 + 5e-9, None])(answers).right
    assert not equal_to([None, None])(answers).right


def test_a_process_that_takes_too_long_is_stopped() -> None:
    assert run(["-c", "while True: pass"], 0.2).stopped
    ended = run(["-c", "import sys; print('out'); sys.exit(3)"], 60)
    assert (ended.stopped, ended.code, ended.output) == (False, 3, "out\n")
    assert ended.memory > 1e6


@pytest.mark.slow
def test_a_measure_and_a_series_are_carried_out(tmp_path: Path) -> None:
    def small() -> dict[str, object]:
        return heterogeneous(3, (4, 2), 8)

    measure = Measure("small", "three layers", (small, small), Limit(), settled)
    outcome = carried_out(measure, tmp_path, 1, 60)
    assert (outcome.mark, outcome.what) == ("pass", "three layers: 2 optimal")
    assert outcome.process is not None
    broken = carried_out(Measure("b", "b", (small,), Limit(memory=1.0), settled, whole=False), tmp_path, 1, 60)
    assert broken.mark == "FAIL"
    assert broken.process is None
    series = Series("s", "layers", "layers", ((2, lambda: heterogeneous(2, (8,), 8)), (3, small)), 1e9)
    growth = grown(series, tmp_path, 1, 60)
    assert [point["size"] for point in growth.details["points"]] == [2, 3]
    assert closing([outcome, broken, growth])[-1] == "2 of 3 pass"
    page = markdown({"date": "2026-01-01"}, [outcome, growth], ["growth-layers.svg"])
    assert " | ".join(cells(growth)) in page
    drawn = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        names, told = plotted([growth], folder)
        drawn.append([(folder / name).read_bytes() for name in names])
        assert names or "not installed" in told
    assert drawn[0] == drawn[1]


def test_problems_are_the_same_every_time_and_need_several_stages() -> None:
    one, other = heterogeneous(1000, (8, 2), 64), heterogeneous(1000, (8, 2), 64)
    assert json.dumps(one) == json.dumps(other)
    for candidate in one["profile"]["candidates"]:
        assert sum(candidate["state"]["dense"]["weights"]) > 80e9, (
            "ZeRO 3 is not allowed, so this is what a stage holds"
        )


def test_idle_layers_are_left_out_or_given_a_cost(shared: Path) -> None:
    profile = busy(shared / "dag" / "layergraphs__gnmt_inference.json")["profile"]
    ends = [{edge[end] for edge in profile["edges"]} for end in (0, 1)]
    assert len(profile["layers"]) < 96
    for candidate in profile["candidates"]:
        assert all(seconds > 0 for seconds in candidate["forward"])
        assert len(candidate["edge_bytes"]) == len(profile["edges"])
    assert max(ends[0] | ends[1]) < len(profile["layers"])
