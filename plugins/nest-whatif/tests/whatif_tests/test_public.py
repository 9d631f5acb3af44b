"""The public functions check a plan before they ask about it."""

from pathlib import Path

import pytest
from attrs import evolve

import nest
from nest.errors import InputError
from nest.io import write_text, yaml_text
from tests.whatif.small import solved


@pytest.mark.longer
def test_a_plan_file_is_asked_about(tmp_path: Path) -> None:
    plan, _, _ = next(solved(range(5)))
    path = tmp_path / "plan.yaml"
    write_text(path, yaml_text(plan.to_dict()))
    told: list[str] = []
    points = nest.frontier(path, progress=lambda asking, done: told.append(asking))
    responses = nest.sensitivity(path)
    assert points == nest.frontier(plan)
    assert responses == nest.sensitivity(plan)
    assert plan.batch_time in {point.batch_time for point in points}
    assert all("devices of" in each for each in told)


def test_a_plan_whose_numbers_do_not_hold_is_refused() -> None:
    plan, _, _ = next(solved(range(5)))
    assert plan.batch_time is not None
    wrong = evolve(plan, batch_time=plan.batch_time / 2)
    for asked in (nest.frontier, nest.sensitivity):
        with pytest.raises(InputError, match="the plan fails its check, so nest cannot use it"):
            asked(wrong)
