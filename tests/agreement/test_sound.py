"""Problems that were once answered wrong: rows that span many decades, and a gap that pays."""

import json

import pytest

from tests.agreement import compare


def differences(problem: dict) -> list[str]:
    return compare.disagreements(problem, verify=True)


@pytest.mark.parametrize("name", ["true", "false", "gap"])
def test_the_planner_agrees_with_the_oracle(shared, name):
    problem = json.loads((shared / "sound" / f"{name}.json").read_text())
    wrong = differences(problem)
    assert not wrong, compare.complaint(name, problem, wrong)


def test_a_mode_that_fits_nowhere_may_be_written_as_any_number(shared):
    nest = compare.planner()
    huge = json.loads((shared / "sound" / "b_1e30.json").read_text())
    large = json.loads(json.dumps(huge).replace("1e+30", "1e+12"))
    assert large != huge
    found, expected = (nest.solve(problem).to_dict() for problem in (huge, large))
    assert found["status"] == "optimal"
    assert [found[key] for key in ("batch_time", "stages")] == [expected[key] for key in ("batch_time", "stages")]
    assert nest.verify(found).status == "proved"
