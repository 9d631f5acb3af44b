"""`nest solve --best`, and `nest export` of what it wrote."""

import json

import pytest
from attrs import evolve

import nest
from nest.api import shortlist
from nest.report.text.comparison import shortlist_text

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
@pytest.mark.parametrize(
    ("factors", "column", "told"),
    [
        ((1.0, 1.0), False, ""),
        ((1.0, 1.001), True, ""),
        ((1.06, 1.0), True, "Simulated pass by pass, plan 2 is the fastest"),
    ],
)
def test_where_a_replay_differs_it_is_told(problem, factors, column, told):
    entries = shortlist(problem, 2)
    times = [each.plan.batch_time for each in entries]
    first = max(times) * factors[0] if factors[0] > 1 else times[0]
    replayed = (first, times[1] * factors[1])
    changed = [evolve(each, replayed=seconds) for each, seconds in zip(entries, replayed, strict=True)]
    text = " ".join(shortlist_text(changed).split())
    assert ("replayed" in text.split("1 ")[0]) == column
    assert (told in text) if told else ("Simulated" not in text)
    assert "follows the formula" in text or not told


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


@pytest.mark.longer
def test_a_folder_of_plans_is_exported_plan_by_plan(call, problem, tmp_path):
    plans, out = tmp_path / "plans", tmp_path / "launch"
    call("solve", problem, "--best", 2, "--output", plans)
    (plans / "plan-3.json").write_text('{"nest": 1}')
    code, printed, errors = call("export", plans, "--to", "dot", "--output", out)
    assert code == 2
    assert "plan-3.json" in errors
    assert printed.split() == [str(out / f"plan-{n}" / name) for n in (1, 2) for name in ("plan.json", "plan.dot")]
    assert (out / "plan-2" / "plan.json").read_text() == (plans / "plan-2.json").read_text()
