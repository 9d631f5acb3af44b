"""`nest calibrate cluster` and `cluster.calibration`: runs of one's own, and all that takes as much longer."""

import copy
import json
import re
from math import exp, log
from pathlib import Path
from random import Random
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nest
from nest.catalogue import TimeSpread, estimate_error, time_spread
from nest.errors import InputError
from nest_calibrate.cluster import level
from tests.command_line import Caller
from tests.plan.test_check import PROBLEM as PROFILE
from tests.seeds import few
from tests.test_api import SMALL

USUAL = TimeSpread(between=0.1, within=0.05, apart=0.1)

EXPERTS: dict[str, Any] = copy.deepcopy(SMALL)
EXPERTS["model"]["transformer"] |= {"experts": 4, "top_k": 2, "moe_ffn": 512}
EXPERTS["strategies"] = {"ep": [2]}
TORUS: dict[str, Any] = {
    **SMALL,
    "cluster": {
        "device": "h100-sxm",
        "topology": {"torus": {"shape": [2, 4], "bandwidth": "40 GB/s", "latency": "2 us"}},
    },
}
OFFLOADED: dict[str, Any] = {**SMALL, "training": {**SMALL["training"], "offload": ["optimizer"]}, "fixed": {"zero": 1}}


def on_slower(problem: dict[str, Any], **calibration: float) -> dict[str, Any]:
    told = {"time": 1.0, "time_spread": 0.05, **calibration}
    return {**problem, "cluster": {**problem["cluster"], "calibration": told}}


@pytest.mark.parametrize(
    ("problem", "factor"),
    few([(SMALL, 0.8), (EXPERTS, 1.25), (TORUS, 0.8), (OFFLOADED, 1.25)], (SMALL, 0.8)),
    ids=["dense", "experts", "torus", "offloaded"],
)
def test_all_takes_as_much_longer_and_the_best_plan_stays(problem: dict[str, Any], factor: float) -> None:
    plan, slower = nest.solve(problem), nest.solve(on_slower(problem, time=factor))
    assert plan.batch_time is not None
    assert slower.batch_time == pytest.approx(factor * plan.batch_time, rel=1e-9)
    assert [stage.sync_time for stage in slower.stages] == pytest.approx(
        [factor * stage.sync_time for stage in plan.stages], rel=1e-9
    )
    assert (slower.candidate, slower.schedule, slower.data_parallel) == (
        plan.candidate,
        plan.schedule,
        plan.data_parallel,
    )
    assert [stage.memory for stage in slower.stages] == [stage.memory for stage in plan.stages]
    utilisation = slower.summary["model_flops_utilisation"] * factor
    assert utilisation == pytest.approx(plan.summary["model_flops_utilisation"])
    assert slower.placement == plan.placement
    report = nest.check(slower)
    assert report.ok, report.disagreements


@pytest.mark.longer
def test_memory_is_as_the_calibration_says() -> None:
    plain = nest.evaluate(SMALL)
    certain = nest.evaluate(on_slower(SMALL, memory=1.0, memory_spread=0.001))
    needed = max(stage.memory for stage in plain.stages)
    tight = on_slower(
        {**SMALL, "cluster": {**SMALL["cluster"], "memory": needed * 1.05}}, memory=1.1, memory_spread=0.01
    )
    assert certain.fit_probability == pytest.approx(1)
    assert not nest.evaluate(tight).fits
    assert nest.evaluate({**tight, "cluster": {**tight["cluster"], "calibration": None}}).fits


def test_a_range_holds_the_share_of_a_normal_variable_that_it_names() -> None:
    known = {**SMALL, "training": {**SMALL["training"], "unknown": {}}}
    plan = nest.evaluate(on_slower(known, time_spread=0.2))
    span = plan.batch_time_range
    assert span is not None
    assert plan.batch_time is not None
    drawn = plan.batch_time * numpy.exp(0.2 * numpy.random.default_rng(0).standard_normal(100_000))
    assert ((drawn > span.low) & (drawn < span.high)).mean() == pytest.approx(span.probability, abs=0.01)
    stranger = nest.evaluate(known).batch_time_range
    assert stranger is not None
    usual = time_spread("hopper")
    assert log(stranger.high / stranger.low) == pytest.approx(
        2 * 1.2815515 * (usual.between**2 + usual.within**2) ** 0.5
    )


@pytest.mark.longer
def test_profiles_and_problems_without_a_plan_have_no_range() -> None:
    assert nest.solve(PROFILE).batch_time_range is None
    with pytest.raises(InputError, match="a profile has measured times"):
        nest.solve(on_slower(PROFILE))
    tiny = {**SMALL, "cluster": {**SMALL["cluster"], "memory": "1 GB"}}
    assert nest.solve(tiny).batch_time_range is None


@settings(max_examples=25)
@given(
    seen=st.lists(st.floats(-0.4, 0.4), max_size=6),
    between=st.floats(0.05, 0.3),
    within=st.floats(0.02, 0.2),
    median=st.sampled_from([1.0, 1.28]),
)
def test_the_level_is_the_posterior_of_bayes(seen: list[float], between: float, within: float, median: float) -> None:
    """Against the integral over a grid of levels."""
    if not seen:
        return
    grid, narrower = numpy.linspace(-4, 4, 16001), 1.28155 / 1.88562  # 90 % quantiles: normal, two degrees of freedom.
    weight = (1 + ((grid - log(median)) / between) ** 2 / 8) ** -4.5
    for each in seen:
        weight *= (1 + ((each - grid) / within / narrower) ** 2 / 2) ** -1.5
    weight /= weight.sum()
    mean = float((weight * grid).sum())
    variance = float((weight * (grid - mean) ** 2).sum())
    center, spread = level(seen, TimeSpread(between, within, 0.1, median))
    assert center == pytest.approx(mean, abs=0.01)
    assert spread == pytest.approx((variance + within**2) ** 0.5, rel=0.03)


def test_a_run_far_from_the_others_moves_the_level_little() -> None:
    usual = TimeSpread(0.13, 0.08, 0.1)
    near, far = level([0.1, 0.12], usual)[0], level([0.1, 0.12, 0.9], usual)[0]
    assert far - near < 0.03
    assert level([1.0, 1.02, 1.04], usual)[0] > 0.98  # Three that agree are believed, however far from published ones.
    assert level([1.02], usual)[0] < 0.5


def test_one_run_helps_a_little_and_three_help_a_lot() -> None:
    """Other runs of clusters drawn as the spreads say: their error, and how often ranges hold them."""
    random = Random(1)
    errors: dict[int, list[float]] = {0: [], 1: [], 3: []}
    inside: dict[int, list[bool]] = {0: [], 1: [], 3: []}
    for _ in range(2000):
        own = random.gauss(0, USUAL.between)
        runs = [own + random.gauss(0, USUAL.within) for _ in range(4)]
        for count in errors:
            center, spread = level(runs[:count], USUAL)
            errors[count].append(abs(runs[3] - center))
            inside[count].append(abs(runs[3] - center) <= 1.2815515 * spread)
    means = {count: sum(found) / len(found) for count, found in errors.items()}
    assert means[0] > 1.3 * means[1] > 1.3 * means[3]
    for found in inside.values():
        assert sum(found) / len(found) == pytest.approx(0.8, abs=0.04)


def runs_file(folder: Path, slower: float, **measured: Any) -> Path:
    """Three runs that took as much longer than predicted."""
    lines = []
    for tp in (1, 2, 4):
        problem = {**SMALL, "fixed": {"tp": tp, "micro_batch": 1}}
        predicted = nest.evaluate(problem).batch_time
        assert predicted is not None
        told = {"batch_time": slower * predicted, **measured}
        lines.append({"nest": 1, "measurement": "run", "id": f"tp{tp}", "problem": problem, "measured": told})
    path = folder / "runs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.longer
def test_from_runs_to_a_calibrated_plan_in_two_commands(tmp_path: Path, call: Caller) -> None:
    runs, told = runs_file(tmp_path, 1.3), tmp_path / "cluster.toml"
    code, out, _ = call("calibrate", "cluster", str(runs), "--output", str(told))
    assert code == 0
    assert "Your runs take 1.300 times the predicted time." in out
    assert "On devices whose coefficients nest has fitted, published runs take 1.000 times the predicted time" in out
    expected = exp(level([log(1.3)] * 3, time_spread("hopper"))[0])
    problem = tmp_path / "problem.json"
    problem.write_text(json.dumps({**SMALL, "cluster": {**SMALL["cluster"], "calibration": "cluster.toml"}}))
    code, out, _ = call("solve", str(problem), "--json")
    assert code == 0
    plan = json.loads(out)
    bare = nest.solve(SMALL)
    assert bare.batch_time is not None
    assert plan["batch_time"] == pytest.approx(expected * bare.batch_time, rel=1e-3)
    assert bare.batch_time_range is not None
    width = plan["batch_time_range"]["high"] / plan["batch_time_range"]["low"]
    assert width < bare.batch_time_range.high / bare.batch_time_range.low
    # The plan carries its calibration alone.
    told.unlink()
    assert nest.check(plan).ok


def test_runs_like_a_plan_decide_its_factor(tmp_path: Path, call: Caller) -> None:
    """One of three runs is slow, and the plan is its own."""
    runs, plans = runs_file(tmp_path, 1.0), {}
    lines = [json.loads(line) for line in runs.read_text().splitlines()]
    lines[0]["measured"]["batch_time"] *= 1.2
    runs.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for line in (lines[0], lines[2]):
        plans[line["id"]] = file = tmp_path / f"{line['id']}.json"
        slower = on_slower(line["problem"], time=1.3)  # A calibration of the plan itself changes nothing.
        file.write_text(json.dumps(nest.evaluate(slower).to_dict()))
    found = {}
    for name, file in plans.items():
        code, out, _ = call("calibrate", "cluster", str(runs), "--for", str(file), "--json")
        assert code == 0
        found[name] = json.loads(out)["calibration"]
    cluster = json.loads(call("calibrate", "cluster", str(runs), "--json")[1])["calibration"]
    assert found["tp1"]["time"] > cluster["time"] > found["tp4"]["time"]
    assert "--for tp1.json" in found["tp1"]["sources"][0]
    out = " ".join(call("calibrate", "cluster", str(runs), "--for", str(plans["tp1"]))[1].split())
    assert f"tp1.json is {found['tp1']['time']:.3f}." in out


def test_a_factor_is_for_a_plan_of_a_model(tmp_path: Path, call: Caller) -> None:
    runs, file = runs_file(tmp_path, 1.0), tmp_path / "plan.json"
    file.write_text(json.dumps(nest.solve(PROFILE).to_dict()))
    code, _, error = call("calibrate", "cluster", str(runs), "--for", str(file))
    assert (code, "a profile needs no calibration" in error) == (2, True)
    tiny = {**SMALL, "cluster": {**SMALL["cluster"], "memory": "1 GB"}}
    file.write_text(json.dumps(nest.solve(tiny).to_dict()))
    code, _, error = call("calibrate", "cluster", str(runs), "--for", str(file))
    assert (code, "has no plan" in error) == (2, True)


def test_a_plan_is_of_the_device_of_the_runs_and_has_parts_of_its_time(tmp_path: Path, call: Caller) -> None:
    runs, file = runs_file(tmp_path, 1.0), tmp_path / "plan.json"
    plan = nest.evaluate({**SMALL, "fixed": {"tp": 1, "micro_batch": 1}}).to_dict()
    parts = plan["summary"]["time_shares"]

    def refused(**changes: Any) -> str:
        file.write_text(json.dumps({**plan, **changes}))
        code, _, error = call("calibrate", "cluster", str(runs), "--for", str(file))
        assert code == 2
        return " ".join(error.split())

    less = {name: each for name, each in parts.items() if name != "sync"}
    for told in ({}, {"time_shares": {}}, *({"time_shares": each} for each in (less, {**less, "gradients": 1.0}))):
        assert "plan.json has no summary.time_shares with seconds of bubble, " in refused(summary=told)
    for each in ("1 s", 0.0):
        assert "solve again" in refused(summary={"time_shares": dict.fromkeys(parts, each)})
    cluster = {**plan["problem"]["cluster"], "device": "a100-sxm-80g"}
    error = refused(problem={**plan["problem"], "cluster": cluster})
    assert "plan.json is a plan for a100-sxm-80g, the runs are on h100-sxm. Give runs of its cluster." in error


def test_calibrating_again_does_not_count_what_is_known_twice(tmp_path: Path, call: Caller) -> None:
    runs = runs_file(tmp_path, 1.3)
    once = json.loads(call("calibrate", "cluster", str(runs), "--json")[1])["calibration"]
    lines = [json.loads(line) for line in runs.read_text().splitlines()]
    for line in lines:
        line["problem"]["cluster"] = {**line["problem"]["cluster"], "calibration": {"time": 1.2, "time_spread": 0.1}}
    runs.write_text("".join(json.dumps(line) + "\n" for line in lines))
    again = json.loads(call("calibrate", "cluster", str(runs), "--json")[1])["calibration"]
    assert again["time"] == once["time"]


@pytest.mark.longer
def test_peaks_tell_of_memory(tmp_path: Path, call: Caller) -> None:
    peak = max(stage.memory for stage in nest.evaluate({**SMALL, "fixed": {"tp": 1, "micro_batch": 1}}).stages)
    bare = json.loads(call("calibrate", "cluster", str(runs_file(tmp_path, 1.0)), "--json")[1])["calibration"]
    assert bare["memory"] is None
    path = runs_file(tmp_path, 1.0, peak_memory=1.3 * peak)
    found = json.loads(call("calibrate", "cluster", str(path), "--json")[1])["calibration"]
    assert found["memory"] > estimate_error().median
    printed = call("calibrate", "cluster", str(runs_file(tmp_path, 1.0, peak_memory=0.5 * peak)))[1]
    (median,) = re.findall(r"Measured memory peaks are (\S+) times the estimate", " ".join(printed.split()))
    assert float(median) < 0.9


@pytest.mark.longer
def test_runs_that_cannot_be_those_of_their_problems_are_refused(tmp_path: Path, call: Caller) -> None:
    problem = {**SMALL, "fixed": {}}
    seconds = (nest.evaluate(problem).batch_time or 0.0) * 25
    runs = tmp_path / "runs.jsonl"
    runs.write_text(
        "".join(
            json.dumps({"id": name, "problem": problem, "measured": {"batch_time": seconds}}) + "\n"
            for name in "abcdefghi"
        )
    )
    code, _, errors = call("calibrate", "cluster", str(runs))
    assert code == 2
    assert "x the predicted time, more than any cluster" in " ".join(errors.split())


def test_mistakes_are_told(tmp_path: Path, call: Caller) -> None:
    problem = tmp_path / "problem.json"
    problem.write_text(json.dumps({**SMALL, "cluster": {**SMALL["cluster"], "calibration": "nowhere.toml"}}))
    code, _, err = call("solve", str(problem))
    assert code == 2
    assert "cluster.calibration: there is no file" in err
    empty = tmp_path / "none.jsonl"
    empty.write_text("")
    code, _, err = call("calibrate", "cluster", str(empty))
    assert code == 2
