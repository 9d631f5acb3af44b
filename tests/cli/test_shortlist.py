"""`nest solve --best`, and `nest export` of what it wrote."""

import json

import pytest

import nest

PROBLEM = {
    "nest": 1,
    "model": {"transformer": {"layers": 4, "hidden": 512, "ffn": 2048, "heads": 4, "vocab": 1024}},
    "training": {"global_batch": 8, "sequence_length": 256, "graphs": "iteration"},
    "cluster": {"device": "h100-sxm", "levels": [{"fanout": 4, "link": "nvlink4"}]},
}


@pytest.fixture
def problem(tmp_path):
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(PROBLEM))
    return path


@pytest.mark.longer
def test_the_best_plan_comes_first_and_each_holds(call, problem, tmp_path):
    code, printed, _ = call("solve", problem, "--best", 4, "--json", "--output", tmp_path / "plans")
    assert code == 0
    found = json.loads(printed)
    times = [plan["batch_time"] for plan in found["plans"]]
    assert times == sorted(times)
    assert len(times) == 4
    assert times[0] == nest.solve(PROBLEM).lower_bound
    assert [each["slower_by"] for each in found["shortlist"]] == [seconds / times[0] - 1 for seconds in times]
    assert found["shortlist"][0]["told_apart"]
    assert all(each["proved"] for each in found["shortlist"])
    for place, plan in enumerate(found["plans"], 1):
        assert plan["lower_bound"] == times[0]
        written = tmp_path / "plans" / f"plan-{place}.json"
        assert json.loads(written.read_text()) == plan
        assert nest.check(written).ok


@pytest.mark.longer
def test_people_read_a_table(call, problem):
    code, printed, _ = call("solve", problem, "--best", 3)
    assert code == 0
    assert "Optimal." in printed.splitlines()
    assert printed.splitlines()[-1] in (
        "Plans 2 and 3: too close to plan 1 to call. Measure them.",
        "Plan 2: too close to plan 1 to call. Measure them.",
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--best", 0), "--best is 0; it must be at least 1."),
        (("--best", 2, "--verify"), "--best takes one problem, without --verify or --explain-search."),
        (("--best", 2, "--output", __file__), "is a file; --best needs a folder as --output."),
    ],
)
def test_what_does_not_go_together_is_refused(call, problem, arguments, told):
    code, printed, errors = call("solve", problem, *arguments)
    assert (code, printed) == (2, "")
    assert told in errors
