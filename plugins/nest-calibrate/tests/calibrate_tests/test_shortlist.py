"""`nest shortlist`: what launches of close plans tell, the next one, and when to stop."""

import json
from math import log, sqrt
from pathlib import Path
from statistics import NormalDist

import pytest
from attrs import evolve

import nest
from nest.catalogue import TimeSpread
from nest_calibrate.shortlist import BELIEVED, TAKEN, TRUSTED, Choice, ranked
from tests.command_line import Caller

USUAL = TimeSpread(between=0.15, within=0.09, apart=0.1)
FACT = "overlap.data"

PROBLEM = {
    "nest": 1,
    "model": "gpt2",
    "training": {"global_batch": 16, "sequence_length": 1024},
    "cluster": {"device": "h100-sxm", "levels": [{"name": "node", "fanout": 8, "link": "nvlink4"}]},
}


def choice(name: str, taken: float, other: float, measured: float | None = None, failed: bool = False) -> Choice:
    return Choice(name, {TAKEN: taken, FACT: other}, 1.0, measured, failed)


def test_nothing_measured_begins_with_the_plan_itself() -> None:
    found = ranked([choice("plan", 10.0, 14.0), choice("safer", 10.2, 10.3)], USUAL, 0.01)
    assert (found.following, found.level, found.best) == ("plan", None, None)
    assert found.cases == {TAKEN: pytest.approx(0.5), FACT: pytest.approx(0.5)}


def test_a_time_far_off_tells_which_value_a_fact_has() -> None:
    far, near = (
        ranked([choice("plan", 10.0, 14.0, seconds), choice("safer", 10.2, 10.3)], USUAL, 0.01)
        for seconds in (14.0, 10.0)
    )
    assert far.cases[FACT] > 0.8 > 0.2 > near.cases[FACT]
    assert far.following == "safer"
    assert far.gains["safer"] > 5 * near.gains["safer"]


def test_two_times_tell_a_fact_by_their_ratio_whatever_the_level() -> None:
    """Both take 1.3 times as long; only the other value has the plans in that ratio."""
    plans = [choice("plan", 10.0, 14.0, 13 * 1.4), choice("safer", 10.2, 10.3, 13 * 1.03)]
    assert ranked(plans, USUAL, 0.01).cases[FACT] > 0.95


def test_launches_stop_where_none_is_expected_to_gain() -> None:
    slow = ranked([choice("plan", 10.0, 10.0, 10.0), choice("safer", 13.0, 13.0)], USUAL, 0.01)
    assert slow.following is None
    assert slow.best is not None
    assert slow.best.name == "plan"
    done = ranked([choice("plan", 10.0, 10.0, 10.0), choice("safer", 10.1, 10.1, 9.0)], USUAL, 0.01)
    assert done.following is None
    assert done.choices[0].name == "safer"


def test_a_level_moves_what_is_expected_of_other_plans() -> None:
    found = ranked([choice("plan", 10.0, 10.0, 12.0), choice("safer", 10.4, 10.4)], USUAL, 0.01)
    assert found.level is not None
    assert 1.1 < found.level < 1.2
    assert found.expected["safer"] == pytest.approx(10.4 * found.level)


def test_expected_gains_are_those_of_many_draws() -> None:
    """Normal ratios of one plan to another, in a thousand quantiles; a time as predicted makes the scatter less."""
    found = ranked([choice("plan", 10.0, 10.0, 10.0), choice("safer", 10.3, 10.3)], USUAL, 0.01)
    scatter = log(1.1) / TRUSTED * sqrt(BELIEVED / (BELIEVED + 1))
    draws = [10.3 * (1 + scatter * NormalDist().inv_cdf((i + 0.5) / 1000)) for i in range(1000)]
    assert found.gains["safer"] == pytest.approx(sum(max(10.0 - each, 0.0) for each in draws) / 1e4, rel=0.01)


def test_a_surprising_time_makes_another_launch_worth_it() -> None:
    """Twice as long as predicted is far from usual, so other plans may be far off, too."""
    usual, far = (
        ranked([choice("plan", 10.0, 10.0, seconds), choice("safer", 11.5, 11.5)], USUAL, 0.01)
        for seconds in (10.0, 20.0)
    )
    assert usual.following is None
    assert far.following == "safer"


def test_plans_that_may_not_fit_are_launched_later() -> None:
    tight, safe = choice("plan", 10.0, 10.0), choice("safer", 10.4, 10.4)
    assert ranked([tight, safe], USUAL, 0.01).following == "plan"
    assert ranked([evolve(tight, fit=0.6), evolve(safe, fit=0.95)], USUAL, 0.01).following == "safer"
    begun = [choice("simpler", 10.5, 10.5, 11.0), evolve(tight, fit=0.5), evolve(safe, fit=1.0)]
    assert ranked(begun, USUAL, 0.01).following == "safer"


def test_a_plan_out_of_memory_is_last_and_not_launched_again() -> None:
    found = ranked([choice("plan", 10.0, 10.0, failed=True), choice("safer", 10.4, 10.4)], USUAL, 0.01)
    assert [each.name for each in found.choices] == ["safer", "plan"]
    assert found.following == "safer"
    none = ranked([choice("plan", 10.0, 10.0, failed=True), choice("safer", 10.4, 10.4, failed=True)], USUAL, 0.01)
    assert (none.following, none.best) == (None, None)


@pytest.mark.longer
def test_the_command_ranks_and_writes_the_plans_of_a_document(call: Caller, tmp_path: Path) -> None:
    plan = nest.solve(PROBLEM)
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan.to_dict()))
    code, out, _ = call("shortlist", str(file), "--output", str(tmp_path / "plans"))
    assert code == 0
    assert "Next launch: plan." in out
    other = json.loads((tmp_path / "plans" / "runner_up.json").read_text())
    assert plan.runner_up is not None
    assert other["batch_time"] == pytest.approx(plan.runner_up["batch_time"])
    assert nest.check(other).ok
    alike = f"plan={1e3 * plan.unknown[0].batch_time}ms"
    code, out, _ = call("shortlist", str(file), "--measured", alike, "--json")
    told = json.loads(out)
    assert told["next"] is None  # The runner-up is slower under both values.
    assert told["cases"][FACT] > 0.5
    code, out, _ = call("shortlist", str(file), "--measured", alike, "--measured", "runner-up=oom")
    assert "Probably training.overlap.data is False" in out
    assert "Stop: take plan." in out
    code, _, err = call("shortlist", str(file), "--measured", "simpler=1s")
    assert code == 2
    assert "the plans are plan and runner-up" in err
    assert call("shortlist", str(file), "--measured", "plan=0")[0] == 2
